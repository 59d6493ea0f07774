"""Containers of a pod → their workloads."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeVar

from podslice.errors import quote
from podslice.inputs.manifest.workload_environment import EnvironmentReader
from podslice.inputs.manifest.workload_fields import Refusals
from podslice.inputs.manifest.workload_models import (
    ContainerWorkloadFields,
    HandlerFields,
    HttpGetFields,
    LifecycleFields,
    MountFields,
    PortFields,
    ProbeFields,
)
from podslice.inputs.manifest.workload_security import SecurityReader
from podslice.model.pod import ContainerKind
from podslice.model.workload import (
    Action,
    Claim,
    ContainerWorkload,
    EmptyDir,
    Exec,
    HttpGet,
    Port,
    Probe,
    Protocol,
    Pull,
    Sleep,
    TcpSocket,
    Volume,
    VolumeMount,
)

Choice = TypeVar("Choice", bound=StrEnum)
_PROPAGATIONS = ("None", "HostToContainer", "Bidirectional")


class ContainerReader(NamedTuple):
    """Reads the containers of one pod."""

    refusals: Refusals
    environment: EnvironmentReader
    security: SecurityReader
    volumes: Mapping[str, Volume | None]
    """Volumes by name; None for one with an error."""
    host_network: bool

    def read(
        self, entries: Sequence[ContainerWorkloadFields], path: str, *, init: bool
    ) -> Iterator[ContainerWorkload]:
        """Yield the containers of one list."""
        for index, entry in enumerate(entries):
            if entry.name:
                at = f"{path}[{index}]"
                yield self._read(entry, at, self._kind(entry, at, init=init))

    def _kind(self, entry: ContainerWorkloadFields, path: str, *, init: bool) -> ContainerKind:
        policy = entry.restart_policy
        if init and policy == "Always":
            return ContainerKind.SIDECAR
        if policy is not None:
            reason = "a container has the restart policy of its pod"
            self.refusals.refuse(f"{path}.restartPolicy", reason)
        return ContainerKind.INIT if init else ContainerKind.APP

    def _read(
        self, entry: ContainerWorkloadFields, path: str, kind: ContainerKind
    ) -> ContainerWorkload:
        if not entry.image and not self.refusals.has_error(f"{path}.image"):
            self.refusals.error(f"{path}.image", "a container needs an image")
        ports = tuple(self._ports(entry.ports or (), f"{path}.ports"))
        if kind is ContainerKind.INIT:
            self._refuse_for_init(entry, path)
        lifecycle = entry.lifecycle or LifecycleFields()
        return ContainerWorkload(
            name=entry.name or "",
            kind=kind,
            image=entry.image or "",
            command=tuple(entry.command or ()),
            args=tuple(entry.args or ()),
            working_dir=entry.working_dir or "",
            environment=tuple(self.environment.read(entry, path)),
            pull=self._pull(entry, path),
            ports=ports,
            mounts=tuple(self._mounts(entry.volume_mounts or (), f"{path}.volumeMounts")),
            liveness=self._probe(entry.liveness_probe, ports, f"{path}.livenessProbe"),
            readiness=self._probe(entry.readiness_probe, ports, f"{path}.readinessProbe"),
            startup=self._probe(entry.startup_probe, ports, f"{path}.startupProbe"),
            post_start=self._handler(lifecycle.post_start, f"{path}.lifecycle.postStart"),
            pre_stop=self._handler(lifecycle.pre_stop, f"{path}.lifecycle.preStop"),
            stop_signal=lifecycle.stop_signal or "",
            has_terminal=bool(entry.tty),
            security=self.security.read(entry.security_context, f"{path}.securityContext"),
        )

    def _refuse_for_init(self, entry: ContainerWorkloadFields, path: str) -> None:
        """Report what an init container cannot have.

        Source: Kubernetes, pkg/apis/core/validation/validation.go, validateInitContainers.
        """
        for name, value in (
            ("livenessProbe", entry.liveness_probe),
            ("readinessProbe", entry.readiness_probe),
            ("startupProbe", entry.startup_probe),
            ("lifecycle", entry.lifecycle),
        ):
            if value is not None:
                message = "an init container without restartPolicy Always has none"
                self.refusals.error(f"{path}.{name}", message)

    def _pull(self, entry: ContainerWorkloadFields, path: str) -> Pull:
        """Return when to pull: with the tag latest, or without one, always.

        Source: Kubernetes, pkg/apis/core/v1/defaults.go, SetDefaults_Container.
        """
        if entry.image_pull_policy is not None:
            return self._choose(Pull, entry.image_pull_policy, f"{path}.imagePullPolicy")
        name = (entry.image or "").rpartition("/")[2]
        is_latest = "@" not in name and name.partition(":")[2] in ("", "latest")
        return Pull.ALWAYS if is_latest else Pull.IF_NOT_PRESENT

    def _choose(self, choices: type[Choice], value: str, path: str) -> Choice:
        for each in choices:
            if each.value == value:
                return each
        hint = f"write one of {', '.join(choices)}"
        self.refusals.error(path, f"unknown value {quote(value)}", hint)
        return next(iter(choices))

    def _ports(self, entries: Sequence[PortFields], path: str) -> Iterator[Port]:
        for index, entry in enumerate(entries):
            at = f"{path}[{index}]"
            number = entry.container_port or 0
            host = entry.host_port or None
            if self.host_network and host not in (None, number):
                message = "in the host's network it must be the containerPort"
                self.refusals.error(f"{at}.hostPort", message)
            protocol = self._choose(Protocol, entry.protocol or "TCP", f"{at}.protocol")
            yield Port(
                container_port=number,
                name=entry.name or "",
                host_port=host,
                host_ip=entry.host_ip or "",
                protocol=protocol,
            )

    def _mounts(self, entries: Sequence[MountFields], path: str) -> Iterator[VolumeMount]:
        for index, entry in enumerate(entries):
            at = f"{path}[{index}]"
            name = entry.name or ""
            if name not in self.volumes:
                message = f"the pod has no volume {quote(name)}"
                self.refusals.error(f"{at}.name", message)
                continue
            sub_path = _normal_sub_path(entry.sub_path or "")
            propagation = entry.mount_propagation or "None"
            if propagation not in _PROPAGATIONS:
                hint = f"write one of {', '.join(_PROPAGATIONS)}"
                message = f"unknown value {quote(propagation)}"
                self.refusals.error(f"{at}.mountPropagation", message, hint)
            elif propagation != "None" and sub_path and _is_podmans(self.volumes[name]):
                reason = "podman has no propagation for a part of a volume"
                self.refusals.refuse(f"{at}.mountPropagation", reason)
            yield VolumeMount(
                volume=name,
                path=entry.mount_path or "",
                read_only=bool(entry.read_only),
                sub_path=sub_path,
                propagation=propagation,
            )

    def _probe(self, fields: ProbeFields | None, ports: Sequence[Port], path: str) -> Probe | None:
        """Read a probe; a value of 0 stands for the default.

        Source: Kubernetes, pkg/apis/core/v1/defaults.go, SetDefaults_Probe.
        """
        action = self._action(fields, ports, path) if fields else None
        if fields is None or action is None:
            return None
        return Probe(
            action=action,
            initial_delay_sec=fields.initial_delay_seconds or 0,
            period_sec=fields.period_seconds or 10,
            timeout_sec=fields.timeout_seconds or 1,
            success_threshold=fields.success_threshold or 1,
            failure_threshold=fields.failure_threshold or 3,
        )

    def _action(self, fields: ProbeFields, ports: Sequence[Port], path: str) -> Action | None:
        if fields.exec is not None and fields.exec.command:
            return Exec(command=tuple(fields.exec.command))
        if fields.http_get is not None:
            return self._http_get(fields.http_get, ports, f"{path}.httpGet")
        if fields.tcp_socket is not None:
            port = self._resolve(fields.tcp_socket.port, ports, f"{path}.tcpSocket.port")
            return TcpSocket(port=port, host=fields.tcp_socket.host or "")
        # another action is refused with its name
        if fields.exec is not None or not _has_other_action(self.refusals, path):
            self.refusals.error(path, "a probe needs an action", "add exec, httpGet or tcpSocket")
        return None

    def _http_get(self, fields: HttpGetFields, ports: Sequence[Port], path: str) -> HttpGet:
        where, scheme = fields.path or "/", (fields.scheme or "HTTP").upper()
        if scheme not in ("HTTP", "HTTPS"):
            message = f"unknown scheme {quote(fields.scheme or '')}"
            self.refusals.error(f"{path}.scheme", message, "write HTTP or HTTPS")
        return HttpGet(
            port=self._resolve(fields.port, ports, f"{path}.port"),
            path=where if where.startswith("/") else f"/{where}",
            scheme=scheme,
            host=fields.host or "",
            headers=tuple(
                (each.name or "", each.value or "") for each in fields.http_headers or ()
            ),
        )

    def _resolve(self, port: int | str | None, ports: Sequence[Port], path: str) -> int:
        if isinstance(port, str):
            for each in ports:
                if each.name == port:
                    return each.container_port
            self.refusals.error(path, f"the container has no port {quote(port)}")
            return 0
        return port or 0

    def _handler(self, fields: HandlerFields | None, path: str) -> Exec | Sleep | None:
        if fields is None:
            return None
        if fields.exec is not None and fields.exec.command:
            return Exec(command=tuple(fields.exec.command))
        if fields.sleep is not None:
            return Sleep(seconds=fields.sleep.seconds or 0)
        if not _has_other_action(self.refusals, path):
            self.refusals.error(path, "it needs an action", "add exec or sleep")
        return None


def _normal_sub_path(stated: str) -> str:
    """Return the part of the volume that is mounted, without needless parts; empty for all."""
    found = posixpath.normpath(stated)
    return "" if found == "." else found


def _is_podmans(volume: Volume | None) -> bool:
    """Return whether podman holds a volume."""
    return isinstance(volume, Claim) or (isinstance(volume, EmptyDir) and not volume.in_memory)


def _has_other_action(refusals: Refusals, path: str) -> bool:
    """Return whether an action below a path has been refused."""
    return any(each.where.startswith(f"{refusals.where}: {path}.") for each in refusals.found)
