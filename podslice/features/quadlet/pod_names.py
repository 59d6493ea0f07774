"""The names of a pod's units, files and podman's objects."""

from __future__ import annotations

from typing import NamedTuple

from podslice.features.quadlet.workload import Claim, EmptyDir
from podslice.inputs.manifest.fields import checked
from podslice.model.desired import ContainerDecision, PodDecision
from podslice.model.naming import (
    SCOPE_PREFIX,
    data_directory,
    podman_part,
    podman_pod,
    podman_service,
    service_name,
)
from podslice.model.unit import UnitName


class Names(NamedTuple):
    """Names that follow from a pod's own."""

    decision: PodDecision

    @property
    def pod(self) -> str:
        """Return the name of podman's pod, with which the names of files begin."""
        return podman_pod(self.decision.pod.key)

    @property
    def pod_file(self) -> str:
        """Return the file of the pod."""
        return f"{self.pod}.pod"

    @property
    def pod_service(self) -> UnitName:
        """Return the service of the pod.

        Where the pod has an overhead it is the unit of its helpers, since podman's own container
        is one of them; otherwise it has the name that podman's generator gives it.
        """
        overhead = self.decision.overhead
        return service_name(overhead.scope) if overhead else podman_service(self.decision.pod.key)

    @property
    def data(self) -> str:
        """Return the directory of the files that are not units."""
        return data_directory(self.decision.pod.key)

    def container(self, name: str) -> str:
        """Return podman's name of a container; that of its file begins with it."""
        return podman_part(self.pod, name)

    def service(self, container: str) -> UnitName:
        """Return the service of a container: that which `status` finds as the container's own."""
        return service_name(self.decided(container).scope)

    def prober(self, container: str) -> UnitName:
        """Return the service that probes a container from outside."""
        return self._beside(container, "probe")

    def prober_commands(self, container: str) -> UnitName:
        """Return the service that runs commands of probes for the service that makes requests."""
        return self._beside(container, "commands")

    def _beside(self, container: str, what: str) -> UnitName:
        rest = self.service(container).removeprefix(f"{SCOPE_PREFIX}-")
        return UnitName(f"{SCOPE_PREFIX}-{what}-{rest}")

    def decided(self, container: str) -> ContainerDecision:
        """Return what policy has decided on a container."""
        return next(each for each in self.decision.containers if each.name == container)

    def volume_file(self, name: str) -> str:
        """Return the file of a volume that podman holds."""
        return f"{podman_part(self.pod, name)}.volume"

    def volume(self, volume: Claim | EmptyDir) -> str:
        """Return podman's name of a volume.

        The name of an empty directory, which is removed with the pod, has an underscore and a capital,
        which no claim has.
        """
        if isinstance(volume, Claim):
            return checked("PersistentVolumeClaimVolumeSource.claimName", volume.claim)
        return f"emptyDir-{podman_part(self.pod, volume.name)}"

    def environment(self, container: str) -> str:
        """Return the file with the secret variables of a container."""
        return f"{self.data}/{container}.env"


def stem(unit: UnitName) -> str:
    """Return a service's name as `ServiceName=` takes it, without suffix."""
    return unit.removesuffix(".service")
