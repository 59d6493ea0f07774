"""The containers that podman runs in the slice of a removed pod, such as the containers of a compose project.

systemd stops a slice together with conmon, which records the end of a container: podman would show
the container as running until the next boot. Therefore podman stops it first.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from podslice.kernel.programs import NoAnswerError
from podslice.plan import Action, PodStep, PodSteps, StopUnit
from podslice.reconcile.assess import Assessment
from podslice.reconcile.extension import Extension, PodRequest
from podslice.reconcile.report import Outcome, PodResult
from podslice.reconcile.world import World
from podslice.systemd.client import run_concurrently
from podslice.usage import runtimes

_PODMAN = "podman"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStop(PodStep):
    """A container of podman that stops; `name` is podman's."""

    section: ClassVar[str] = "containers"
    id: str
    grace_sec: int

    @property
    def subject(self) -> str:
        """The container and its pod."""
        return f"{_PODMAN} container {self.name} ({self.pod}): {self.why}"


class ContainerStops(Extension):
    """Stops the containers of podman in the slices of removed pods.

    The containers of quadlets are in services, which stop with their pod.
    """

    section = ContainerStop.section

    def __init__(self, world: World, _: PodRequest) -> None:
        self._world = world

    async def plan(self, assessment: Assessment, failed: Collection[str] | None = None) -> PodSteps:
        """Return the stops of containers, which come before the stops of slices."""
        steps = (each for each in assessment.plan.steps if isinstance(each, StopUnit))
        stops = {str(each.name): each for each in steps if each.pod is not None}
        if failed is not None or not stops:
            return PodSteps()
        keys = {each.pod for each in stops.values()}
        pods = [pod for pod in assessment.current if pod.key in keys]
        world = self._world
        listed = await runtimes.containers(pods, manager=world.manager, on_note=world.on_note)
        found = [(each, _stop_of(each.control_group, stops)) for each in listed]
        return PodSteps(
            before=tuple(
                ContainerStop(
                    action=Action.STOP,
                    pod=stop.pod or "",
                    name=each.name,
                    why=stop.why,
                    id=each.id,
                    grace_sec=stop.grace_sec or 0,
                )
                for each, stop in sorted(found, key=lambda pair: pair[0].name)
                if stop is not None
            )
        )

    async def act(self, steps: Sequence[PodStep]) -> AsyncGenerator[PodResult, None]:
        """Stop the containers of each pod with one command, and all pods at the same time."""
        stops = [each for each in steps if isinstance(each, ContainerStop)]
        by_pod: dict[str, list[ContainerStop]] = {}
        for each in stops:
            by_pod.setdefault(each.pod, []).append(each)
        for results in await run_concurrently(map(_stop_all, by_pod.values())):
            for result in results:
                yield result


def _stop_of(control_group: str, stops: Mapping[str, StopUnit]) -> StopUnit | None:
    """Return the stop that would end a container of podman; None for one of quadlets, or elsewhere.

    Source: podman 5.4, libpod/oci_conmon_linux.go and container_internal_linux.go, the names of scopes.
    """
    parts = control_group.split("/")
    if not any(each.startswith("libpod-") and each.endswith(".scope") for each in parts):
        return None
    return next((stops[each] for each in parts if each in stops), None)


async def _stop_all(steps: Sequence[ContainerStop]) -> list[PodResult]:
    grace_sec, error = steps[0].grace_sec, ""
    try:
        await runtimes.run(
            *(_PODMAN, "stop", "--ignore", f"--time={grace_sec}"),
            *(each.id for each in steps),
            limit_sec=grace_sec + runtimes.PATIENT_LIMIT_SEC,
        )
    except NoAnswerError as failure:
        error = f"{_PODMAN}: {failure}"
    outcome = Outcome.FAILED if error else Outcome.DONE
    return [PodResult(step=each, outcome=outcome, error=error) for each in steps]
