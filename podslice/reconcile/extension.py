"""What features add to an apply, a delete or a plan: steps on files and services of pods."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from typing import NamedTuple

from podslice.plan import PodStep, PodSteps
from podslice.reconcile.assess import Assessment
from podslice.reconcile.report import PodResult


class PodRequest(NamedTuple):
    """What is requested of the files and services of pods."""

    named: Collection[str] | None = ()
    """The pods to remove, applied or not; None: all."""
    grace_sec: int | None = None
    """The grace period of the removed pods; None: as each pod states."""
    may_restart: bool = False
    """Services that run in removed pods may be restarted outside of them."""
    started: object = None
    """The pods whose containers are to run, as loaded by the feature that runs them."""


class Extension:
    """What one feature adds; by default nothing."""

    section: str
    """That of its steps."""

    async def check(self, assessment: Assessment) -> None:
        """Refuse what must not change.

        Raises:
            HostError: nothing may be changed.
        """

    async def plan(self, assessment: Assessment, failed: Collection[str] | None = None) -> PodSteps:
        """Return the steps before and after those on units.

        Once units have changed, `failed` are the pods of which some could not be changed. Then only
        the later steps are returned, of other pods.

        Raises:
            InputError: a file must not be changed.
            HostError: a file cannot be read.
        """
        return PodSteps()

    def act(self, steps: Sequence[PodStep]) -> AsyncGenerator[PodResult, None]:
        """Take steps, and yield their results.

        Raises:
            HostError, SystemdError: the other steps cannot be taken either.
        """
        raise NotImplementedError

    async def finish(self) -> None:
        """Do what is necessary once units are as desired.

        Raises:
            SystemdError: systemd has refused it.
        """
