"""Evicts pods while the node is under pressure."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from podslice.agent.context import AgentContext, AgentPart
from podslice.agent.terminations import Terminations
from podslice.errors import HostError, SystemdError
from podslice.kernel.host import nodefs_device
from podslice.model.desired import PodDecision
from podslice.model.event import Kind
from podslice.model.node import Allocation
from podslice.model.node_state import Condition, Eviction
from podslice.model.resources import MEMORY
from podslice.policy.allocatable import threshold_amount
from podslice.policy.eviction import (
    SIGNALS,
    EvictionCandidate,
    EvictionThreshold,
    PodUsage,
    Pressures,
    SignalObservation,
    Verdict,
    choose,
    concerns,
    eviction_thresholds,
    format_signal,
    judge,
    next_poll_usec,
    pod_grace_sec,
)
from podslice.reconcile.observe import tier_groups
from podslice.systemd.client import Client
from podslice.usage.stats import observe_signals, pod_usage

SETTLE_SEC = 10.0
"""How long resources other than memory may take to become available after an eviction.

Source: Kubernetes, pkg/kubelet/kubelet.go, evictionMonitoringPeriod.
"""
NO_CANDIDATE_SEC = 1.0
"""The pause after no pod was found whose eviction would free memory."""
OVERDUE_SEC = 10.0
"""How long after its grace period a pod may terminate before the next one is evicted."""
RETRY_SEC = 1.0
_ORDER_SEC = 0.001
_AT_LEAST_SEC = 0.01
"""The shortest time between two observations."""


class Evictor(AgentPart):
    """Observes available memory, storage and process ids, and evicts one pod at a time."""

    def __init__(
        self,
        context: AgentContext,
        client: Client,
        terminations: Terminations,
        on_change: Callable[[], None],
        *,
        root: Path = Path("/"),
    ) -> None:
        """`client` has no cache; `on_change` is called with new conditions, and after evictions."""
        self._context = context
        self._client = client
        self._terminations = terminations
        self._on_change = on_change
        self._root = root
        self._woken = asyncio.Event()
        self._pressures = Pressures()
        self._observations: Mapping[str, SignalObservation] = {}
        """The signals as they were judged last."""
        self._paused_until: dict[str, float] = {}
        self._without_candidates: set[str] = set()
        """The signals reported as having no pod to evict."""
        self._assessments = 0
        self._evicted: set[str] = set()
        """The uids of the pods evicted since the last assessment, or still terminating."""

    def wake(self) -> None:
        """Observe again at once, as the kernel has reported pressure."""
        self._woken.set()

    async def run(self) -> NoReturn:
        """Observe and evict."""
        while True:
            try:
                poll_sec = await self.check()
            except (SystemdError, HostError) as error:
                self._context.status.fail("eviction", f"eviction: {error}")
                poll_sec = RETRY_SEC
            else:
                self._context.status.recover("eviction")
            await asyncio.sleep(_AT_LEAST_SEC)
            with suppress(TimeoutError):
                async with asyncio.timeout(poll_sec):
                    await self._woken.wait()
            self._woken.clear()

    async def check(self) -> float:
        """Observe, and evict one pod if needed; return the seconds until the next observation."""
        if self._context.assessments != self._assessments:
            self._assessments = self._context.assessments
            # A new assessment has the marks of the others, or no longer has the pods.
            self._evicted.intersection_update(self._context.terminating.in_progress)
        observed_at = time.monotonic()
        verdict = self._judge()
        # the stop comes first: each millisecond counts, and conditions are written to a file. An
        # eviction has updated the conditions itself: this verdict is older than the wait for its end
        if not await self._act_on(verdict, observed_at):
            self._update_conditions(verdict)
        return next_poll_usec(self._thresholds(), self._observations) / 1e6

    def _thresholds(self) -> tuple[EvictionThreshold, ...]:
        return eviction_thresholds(self._context.world.config)

    def _observe(self) -> Mapping[str, SignalObservation]:
        """Observe all signals; before the first assessment those of pods are unknown."""
        world, assessment = self._context.world, self._context.assessment
        if assessment is None:
            return observe_signals(self._root, world.cgroups, Allocation(capacity={}), "")
        return observe_signals(
            self._root,
            world.cgroups,
            assessment.desired.allocation,
            self._context.group(world.tree.root),
            tier_groups(world, assessment.observed),
        )

    def _judge(self) -> Verdict:
        self._observations = self._observe()
        verdict = judge(
            self._thresholds(),
            self._observations,
            self._pressures,
            time.monotonic_ns() // 1000,
            self._context.world.config.eviction_pressure_transition_period_usec,
        )
        self._pressures = verdict.pressures
        return verdict

    def _update_conditions(self, verdict: Verdict) -> None:
        before, observations = self._context.status.conditions, self._observations
        if verdict.conditions == before:
            return
        self._context.status.set_conditions(verdict.conditions)
        for condition in sorted(verdict.conditions - before):
            met = [
                _describe(each, observations[each.signal])
                for each in verdict.pressures.met_since_usec
                if SIGNALS[each.signal].condition is condition
            ]
            self._report_condition(Kind.PRESSURE_BEGAN, condition, f"{condition}: {'; '.join(met)}")
        for condition in sorted(before - verdict.conditions):
            left = [
                f"{signal_} is {format_signal(signal_, each.available)[0]}"
                for signal_, each in observations.items()
                if SIGNALS[signal_].condition is condition
            ]
            message = f"{condition} has ended" + (f": {'; '.join(left)}" if left else "")
            self._report_condition(Kind.PRESSURE_ENDED, condition, message)
        self._without_candidates = {
            each
            for each in self._without_candidates
            if SIGNALS[each].condition in verdict.conditions
        }
        self._on_change()

    def _report_condition(self, kind: Kind, condition: Condition, message: str) -> None:
        self._context.events.report(kind, message, fields={"CONDITION": condition.value})

    async def _act_on(self, verdict: Verdict, observed_at: float) -> bool:
        """Evict one pod, for the most urgent threshold with a candidate; return whether there is one."""
        assessment = self._context.assessment
        if assessment is None or assessment.foreign is not None:
            return False
        excluded = self._evicted.union(mark.uid for mark in assessment.evicted)
        pods = [pod for pod in assessment.desired.pods if pod.pod.uid not in excluded]
        now = asyncio.get_running_loop().time
        for threshold in verdict.due:
            signal_ = threshold.signal
            # a tier pauses for itself, all signals of a resource of the node together
            pausing = signal_ if SIGNALS[signal_].tier else SIGNALS[signal_].resource
            if now() < self._paused_until.get(pausing, 0.0):
                continue
            is_memory = SIGNALS[signal_].resource == MEMORY
            candidate = choose(signal_, pods, self._usage(signal_, pods))
            what = _describe(threshold, self._observations[signal_])
            if candidate is None:
                self._report_no_candidate(threshold, what)
                # finding that out takes an observation of every pod
                self._paused_until[pausing] = now() + (
                    NO_CANDIDATE_SEC if is_memory else SETTLE_SEC
                )
                continue
            self._without_candidates.discard(signal_)
            # raises before a pod is marked: otherwise the next one would be marked, too, and so on
            await self._client.caps()
            await self._context.world.claim(self._client)
            stopping = await self._evict(candidate, threshold, what, observed_at)
            self._update_conditions(verdict)
            is_stopped = await self._wait_for(stopping, candidate.decision, threshold)
            self._on_change()
            # memory is available at once, blocks of removed files and process ids are not
            self._paused_until[pausing] = now() + (0.0 if is_memory and is_stopped else SETTLE_SEC)
            return True
        return False

    def _usage(self, signal_: str, pods: Iterable[PodDecision]) -> Mapping[str, PodUsage]:
        """Return the use of a signal's resource by the pods that it concerns.

        For memory it reads few files.
        """
        cgroups = self._context.world.cgroups
        groups = {
            pod.pod.key: self._context.group(pod.slice) for pod in pods if concerns(signal_, pod)
        }
        if SIGNALS[signal_].resource == MEMORY:
            return {
                key: PodUsage(memory=(cgroups.working_set_bytes(group) or 0) * 1000)
                for key, group in groups.items()
            }
        device = nodefs_device(self._root)
        return {key: pod_usage(cgroups.sample(group), device) for key, group in groups.items()}

    def _report_no_candidate(self, threshold: EvictionThreshold, what: str) -> None:
        """Report once that every pod is critical, or that its eviction would free nothing."""
        if threshold.signal not in self._without_candidates:
            self._without_candidates.add(threshold.signal)
            users = "what is used outside pods, by critical pods and by Guaranteed pods"
            if tier := SIGNALS[threshold.signal].tier:
                users = f"the critical pods of the {tier} tier"
            message = f"{what}, but evicting a pod would not help: check {users}"
            fields = {"SIGNAL": threshold.signal}
            self._context.events.report(Kind.AGENT_FAILED, message, fields=fields)

    async def _evict(
        self,
        candidate: EvictionCandidate,
        threshold: EvictionThreshold,
        what: str,
        observed_at: float,
    ) -> asyncio.Task[bool]:
        """Stop a pod, mark it and report it; the returned task ends with the pod."""
        context, decision = self._context, candidate.decision
        message = f"{what}; {candidate.reason}"
        grace_sec = pod_grace_sec(decision.pod, threshold, context.world.config)
        why = f"pod {decision.pod.key} is evicted"
        stopping = self._terminations.start(decision, why=why, grace_sec=grace_sec, is_removal=True)
        # the stop is sent before anything is written or reported
        await asyncio.wait({stopping}, timeout=_ORDER_SEC)
        # the mark before the next round, which would start the pod again
        context.marks.write(
            Eviction(
                pod=decision.pod.key,
                uid=decision.pod.uid,
                digest=context.world.store.digest(decision.pod),
                signal=threshold.signal,
                message=message,
                at_usec=time.time_ns() // 1000,
            )
        )
        self._evicted.add(decision.pod.uid)
        reaction_sec = time.monotonic() - observed_at
        context.counters.evictions[threshold.signal] += 1
        context.counters.reactions.observe(reaction_sec)
        context.events.report(
            Kind.POD_EVICTED,
            f"{why}: {message}; grace period {grace_sec} s",
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

    async def _wait_for(
        self, stopping: asyncio.Task[bool], decision: PodDecision, threshold: EvictionThreshold
    ) -> bool:
        """Wait until a pod is stopped, for a limited time; return False if stopping it has failed.

        If a hard threshold that concerns the pod is crossed meanwhile, the pod is killed; if one of
        another tier is, that tier does not wait.
        """
        now = asyncio.get_running_loop().time
        is_hard = threshold.is_hard
        deadline = now() + pod_grace_sec(decision.pod, threshold, self._context.world.config)
        while not stopping.done() and now() < deadline + OVERDUE_SEC:
            poll_usec = next_poll_usec(self._thresholds(), self._observe())
            await asyncio.wait({stopping}, timeout=min(poll_usec / 1e6, 1.0))
            if stopping.done() or is_hard:
                continue
            verdict = self._judge()
            hard = tuple(each for each in verdict.due if each.is_hard)
            if any(concerns(each.signal, decision) for each in hard):
                with suppress(SystemdError, HostError):  # retried
                    await self._client.kill(decision.slice, signal.SIGKILL)
                    is_hard, deadline = True, now()
            elif hard:
                await self._act_on(verdict._replace(due=hard), time.monotonic())
        return not stopping.done() or stopping.result()


def _describe(threshold: EvictionThreshold, observation: SignalObservation) -> str:
    """Describe a crossed threshold: `memory.available is 87 MiB, below the hard threshold 100 MiB`."""
    kind = "hard" if threshold.is_hard else "soft"
    name, capacity = threshold.signal, observation.capacity
    wanted = threshold_amount(threshold.value, capacity)
    available, shown = format_signal(name, observation.available, wanted)
    text = f"{name} is {available}, below the {kind} threshold {shown}"
    if observation.available >= wanted and threshold.minimum_reclaim is not None:
        more = threshold_amount(threshold.minimum_reclaim, capacity)
        text += f" with its minimum reclaim {format_signal(name, more)[0]}"
    return text
