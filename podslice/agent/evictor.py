"""Eviction: what is short, who has to go, and the quickest way out for it."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from podslice.agent.board import Board
from podslice.agent.terminations import Endings
from podslice.errors import HostError, SystemdError
from podslice.kernel.host import nodefs_device
from podslice.model.desired import PodDecision
from podslice.model.event import Kind
from podslice.model.node import Allocation
from podslice.model.node_state import Condition, Eviction
from podslice.model.resources import MEMORY
from podslice.policy.allocatable import threshold_amount
from podslice.policy.eviction.pressure import (
    CONDITION_OF_SIGNAL,
    Pressures,
    Verdict,
    choose,
    judge,
    next_poll_usec,
    pod_grace_sec,
)
from podslice.policy.eviction.thresholds import (
    RESOURCE_OF_SIGNAL,
    Candidate,
    EvictionThreshold,
    Observation,
    PodUsage,
    eviction_thresholds,
    format_signal,
)
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.observe import control_group
from podslice.systemd.client import Client
from podslice.usage.eviction_signals import observe_signals, pod_usage

SETTLE_SEC = 10.0
"""How long after an eviction what it gave back may take to show; memory shows at once.

Source: Kubernetes, pkg/kubelet/kubelet.go, evictionMonitoringPeriod.
"""
_HELPLESS_SEC = 1.0
"""How long nobody is looked for again where no eviction would give memory back."""
_STUCK_SEC = 10.0
"""How long beyond its grace a pod may take to end before the next one has to go."""
_FAILED_SEC = 1.0
_ORDER_SEC = 0.001
_AT_LEAST_SEC = 0.01
"""Between two looks, however often the kernel calls."""


class Evictor:
    """Watches what is left of memory, storage and process ids, and evicts one pod at a time."""

    def __init__(
        self,
        board: Board,
        client: Client,
        endings: Endings,
        on_change: Callable[[], None],
        *,
        root: Path = Path("/"),
    ) -> None:
        """Nothing is watched yet.

        Args:
            board: what the parts of the agent share.
            client: one that asks systemd itself.
            endings: what ends pods.
            on_change: called when the conditions have changed, and after each eviction.
            root: the host.
        """
        self._board = board
        self._client = client
        self._endings = endings
        self._on_change = on_change
        self._root = root
        self._woken = asyncio.Event()
        self._pressures = Pressures()
        self._quiet_until: dict[str, float] = {}
        self._helpless: set[str] = set()
        """The signals of which it was told that nobody's eviction would help."""
        self._seen: Assessment | None = None
        self._gone: set[str] = set()
        """The pods, by uid, that were evicted since that look, or are still on their way."""

    def wake(self) -> None:
        """The kernel says that something is getting short."""
        self._woken.set()

    async def run(self) -> NoReturn:
        """Look and act, for ever."""
        while True:
            try:
                poll_sec = await self.check()
            except (SystemdError, HostError) as error:
                self._board.fail("eviction", f"eviction: {error}")
                poll_sec = _FAILED_SEC
            else:
                self._board.recover("eviction")
            await asyncio.sleep(_AT_LEAST_SEC)
            try:
                async with asyncio.timeout(poll_sec):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()

    async def check(self) -> float:
        """One look, and one eviction where there has to be one; returns when to look again."""
        state = self._board.state
        if state is not self._seen:
            self._seen = state
            self._gone.intersection_update(self._board.terminating.in_progress)
        noticed = time.monotonic()
        verdict, observations = self._judge(state)
        if state is not None and state.foreign is None:
            await self._act_on(verdict, observations, state, noticed)
        self._tell_conditions(verdict, observations)
        return next_poll_usec(self._thresholds(), observations) / 1e6

    def _thresholds(self) -> tuple[EvictionThreshold, ...]:
        return eviction_thresholds(self._board.world.config)

    def _observe(self, state: Assessment | None) -> Mapping[str, Observation]:
        """What is left; before the first look nobody knows what the pods may use."""
        world = self._board.world
        group = "" if state is None else control_group(world.tree.root, state.observed)
        allocation = Allocation(capacity={}) if state is None else state.desired.allocation
        return observe_signals(self._root, world.cgroups, allocation, group)

    def _judge(self, state: Assessment | None) -> tuple[Verdict, Mapping[str, Observation]]:
        config = self._board.world.config
        observations = self._observe(state)
        verdict = judge(
            self._thresholds(),
            observations,
            self._pressures,
            _now_usec(),
            config.eviction_pressure_transition_period_usec,
        )
        self._pressures = verdict.pressures
        return verdict, observations

    def _tell_conditions(self, verdict: Verdict, observations: Mapping[str, Observation]) -> None:
        before = self._board.conditions
        if verdict.conditions == before:
            return
        self._board.set_conditions(verdict.conditions)
        for condition in sorted(verdict.conditions - before):
            met = [
                _describe(each, observations[each.signal])
                for each in verdict.pressures.met_since_usec
                if CONDITION_OF_SIGNAL[each.signal] is condition
            ]
            self._tell(Kind.PRESSURE_BEGAN, condition, f"{condition}: {'; '.join(met)}")
        for condition in sorted(before - verdict.conditions):
            left = [
                f"{signal_} is {format_signal(signal_, each.available)}"
                for signal_, each in observations.items()
                if CONDITION_OF_SIGNAL[signal_] is condition
            ]
            message = f"{condition} is over: {'; '.join(left)}"
            self._tell(Kind.PRESSURE_ENDED, condition, message)
        self._helpless = {
            each for each in self._helpless if CONDITION_OF_SIGNAL[each] in verdict.conditions
        }
        self._on_change()

    def _tell(self, kind: Kind, condition: Condition, message: str) -> None:
        self._board.tell(kind, message, fields={"CONDITION": condition.value})

    def _rest(self, resource: str, seconds: float) -> None:
        """Evict nobody more for the want of a resource for so long."""
        self._quiet_until[resource] = asyncio.get_running_loop().time() + seconds

    async def _act_on(
        self,
        verdict: Verdict,
        observations: Mapping[str, Observation],
        state: Assessment,
        noticed: float,
    ) -> None:
        """Evict for the most urgent of what is due, or else for the next; one pod."""
        away = self._gone.union(mark.uid for mark in state.evicted)
        pods = [pod for pod in state.desired.pods if pod.pod.uid not in away]
        for threshold in verdict.due:
            resource = RESOURCE_OF_SIGNAL[threshold.signal]
            if asyncio.get_running_loop().time() < self._quiet_until.get(resource, 0.0):
                continue
            usage = self._usage(threshold.signal, pods, state)
            candidate = choose(threshold.signal, pods, usage)
            what = _describe(threshold, observations[threshold.signal])
            if candidate is None:
                self._tell_helpless(threshold, what)
                # to find that out every pod was looked at
                self._rest(resource, _HELPLESS_SEC if resource == MEMORY else SETTLE_SEC)
                continue
            self._helpless.discard(threshold.signal)
            # while nobody can be stopped nobody is marked: the next in turn would be, and the next
            await self._client.caps()
            await self._board.world.guard.claim(self._board.world)
            ordered = await self._order(candidate, threshold, what, state, noticed)
            self._tell_conditions(verdict, observations)
            is_gone = await self._see_it_through(ordered, candidate.decision, threshold, state)
            self._on_change()
            self._rest(resource, 0.0 if resource == MEMORY and is_gone else SETTLE_SEC)
            return

    def _usage(
        self, signal: str, pods: Iterable[PodDecision], state: Assessment
    ) -> Mapping[str, PodUsage]:
        """What the pods use of what is short; for memory as little is read as will do."""
        cgroups = self._board.world.cgroups
        groups = {pod.pod.key: control_group(pod.slice, state.observed) for pod in pods}
        if RESOURCE_OF_SIGNAL[signal] == MEMORY:
            return {
                key: PodUsage(memory=(cgroups.working_set_bytes(group) or 0) * 1000)
                for key, group in groups.items()
            }
        device = nodefs_device(self._root)
        return {key: pod_usage(cgroups.sample(group), device) for key, group in groups.items()}

    def _tell_helpless(self, threshold: EvictionThreshold, what: str) -> None:
        """Say once that nothing can be done: every pod is critical, or would give nothing back."""
        if threshold.signal not in self._helpless:
            self._helpless.add(threshold.signal)
            message = (
                f"{what}, and there is no pod whose eviction would help: look for what uses it"
                " outside the pods, in critical pods and in Guaranteed ones"
            )
            self._board.tell(Kind.AGENT_FAILED, message, fields={"SIGNAL": threshold.signal})

    async def _order(
        self,
        candidate: Candidate,
        threshold: EvictionThreshold,
        what: str,
        state: Assessment,
        noticed: float,
    ) -> asyncio.Task[bool]:
        """Have a pod stopped, mark it and tell of it; what is returned ends with the pod."""
        board, decision = self._board, candidate.decision
        message = f"{what}; {candidate.reason}"
        grace_sec = pod_grace_sec(decision.pod, threshold, board.world.config)
        stopping = self._endings.begin(
            decision,
            state,
            why=f"pod {decision.pod.key} is evicted",
            grace_sec=grace_sec,
            for_good=True,
        )
        # the order is on its way before anything is written or told
        await asyncio.wait({stopping}, timeout=_ORDER_SEC)
        self._mark(decision, threshold, message)
        reaction_sec = time.monotonic() - noticed
        board.counters.evicted(threshold.signal, reaction_sec)
        board.tell(
            Kind.POD_EVICTED,
            f"pod {decision.pod.key} is evicted: {message}; it has {grace_sec} s to end",
            pod=decision.pod.key,
            unit=decision.slice,
            fields={
                "SIGNAL": threshold.signal,
                "POD_UID": decision.pod.uid,
                "GRACE_SEC": str(grace_sec),
                "REACTION_USEC": str(int(reaction_sec * 1e6)),
            },
        )
        return stopping

    def _mark(self, decision: PodDecision, threshold: EvictionThreshold, message: str) -> None:
        store, pod = self._board.world.store, decision.pod
        eviction = Eviction(
            pod=pod.key,
            uid=pod.uid,
            digest=store.digest(pod),
            signal=threshold.signal,
            message=message,
            at_usec=time.time_ns() // 1000,
        )
        self._board.mark(eviction)
        self._gone.add(pod.uid)

    async def _see_it_through(
        self,
        stopping: asyncio.Task[bool],
        decision: PodDecision,
        threshold: EvictionThreshold,
        state: Assessment,
    ) -> bool:
        """Wait for the end of a pod, but not for ever; whether it has not failed to end.

        A hard threshold that is met meanwhile ends its patience.
        """
        now = asyncio.get_running_loop().time
        is_hard = threshold.is_hard
        deadline = now() + pod_grace_sec(decision.pod, threshold, self._board.world.config)
        while not stopping.done() and now() < deadline + _STUCK_SEC:
            poll_usec = next_poll_usec(self._thresholds(), self._observe(state))
            await asyncio.wait({stopping}, timeout=min(poll_usec / 1e6, 1.0))
            if stopping.done() or is_hard:
                continue
            verdict, _ = self._judge(state)
            if any(each.is_hard for each in verdict.due):
                with suppress(SystemdError, HostError):  # it is tried again
                    await self._client.kill(decision.slice, signal.SIGKILL)
                    is_hard, deadline = True, now()
        return not stopping.done() or stopping.result()


def _describe(threshold: EvictionThreshold, observation: Observation) -> str:
    """`memory.available is 87Mi, below the hard threshold 100Mi`."""
    kind = "hard" if threshold.is_hard else "soft"
    name, capacity = threshold.signal, observation.capacity
    wanted = threshold_amount(threshold.value, capacity)
    text = f"the {kind} threshold {format_signal(name, wanted)}"
    if observation.available >= wanted and threshold.minimum_reclaim is not None:
        more = threshold_amount(threshold.minimum_reclaim, capacity)
        text += f" with its minimum reclaim {format_signal(name, more)}"
    return f"{name} is {format_signal(name, observation.available)}, below {text}"


def _now_usec() -> int:
    return time.monotonic_ns() // 1000
