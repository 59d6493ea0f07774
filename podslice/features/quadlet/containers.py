"""`podslice __containers`, run by the agent: the services of the pods in its manifest directories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path

from podslice.cli import wanted
from podslice.cli.manifests import all_problems, decide_all
from podslice.cli.options import Planning, configured
from podslice.cli.output import note, write
from podslice.cli.session import in_world, locked
from podslice.cli.views.changes import pod_lines
from podslice.cli.views.problem_lines import problem_line
from podslice.cli.views.style import Display
from podslice.errors import HostError, InputError, PodsliceError, Problem, Severity, printable
from podslice.features.quadlet.discovery import connect
from podslice.features.quadlet.files import find_obstacles, installed
from podslice.features.quadlet.generate import make_quadlets
from podslice.features.quadlet.keeper import list_paths
from podslice.features.quadlet.result import Quadlets
from podslice.features.quadlet.services import QuadletChanges
from podslice.features.quadlet.status import ContainerFailures
from podslice.features.quadlet.verbs import further_problems, host_options
from podslice.features.quadlet.workload import PodWorkload
from podslice.features.quadlet.workloads import read_members, with_networks
from podslice.inputs.budget import BYTES_MAX, Budget, Exhausted
from podslice.inputs.manifest.load import Extent, LoadedPods, load_text
from podslice.kernel.files import NotRegularError, read_with_status
from podslice.model.config import CpuManagerPolicy
from podslice.model.desired import Desired, PodDecision
from podslice.model.event import Event, Kind
from podslice.model.node import Node
from podslice.model.node_state import ContainerFailure
from podslice.model.unit import Manager, UnitName
from podslice.plan import Action
from podslice.policy.exclusive import with_lasting_cpus
from podslice.reconcile.assess import assess
from podslice.reconcile.extension import PodRequest
from podslice.reconcile.report import Outcome, PodResult
from podslice.reconcile.world import LiveWorld
from podslice.store.store import Records, Store
from podslice.systemd.journal import Journal, reading_command

_OTHERS_WRITE = 0o022


@configured
def containers(planning: Planning) -> int:
    """Keep the containers of the pods that the agent has applied."""

    async def work(world: LiveWorld) -> list[PodResult]:
        log = ContainerLog(world.store, world.manager)
        changes = QuadletChanges(world, PodRequest())
        results: list[PodResult] = []
        with locked(world.store), log.published():
            applied = _applied_pods(world.store.load())
            # pods have exclusive CPUs with a policy only
            has_policy = world.config.cpu_manager_policy is not CpuManagerPolicy.NONE
            desired = (await assess(world)).desired if has_policy else None
            found = _wanted_quadlets(planning, world.node, applied, desired, log)
            wanted = _checked(found, world.manager, log)
            present = await changes.observe(wanted)
            if log.has_broken_file:  # it may have Services
                wanted = tuple(each for each in wanted if not present[each.pod].has_network)
            kept = {key for key, pod in present.items() if pod.is_kept}
            gone = kept.difference(applied)
            removal = changes.plan_removal(present, gone)
            results += [each async for each in changes.act(removal)]
            steps = changes.plan_start(await changes.observe(wanted), wanted)
            starts = [each for each in steps if each.action is Action.START]
            others = [each for each in steps if each not in starts]
            results += [each async for each in changes.act(others)]
            failed = {each.step.pod for each in results if each.error}
            log.add_results(results)
        # the last init container takes the lock
        starts = [each for each in starts if each.pod not in failed]
        started = [each async for each in changes.act(starts)]
        with locked(world.store), log.published():
            log.add_results(started)
        return [*results, *started]

    results = in_world(planning, work)
    write(pod_lines(results, Display()))
    return int(any(each.outcome is not Outcome.DONE for each in results))


def _applied_pods(records: Records) -> dict[str, str]:
    """Return the pods that the agent has applied and not evicted, with their files."""
    evicted = {mark.uid for mark in records.evicted}
    return {
        pod.key: records.sources[pod.uid]
        for pod in records.pods
        if pod.uid in records.sources and pod.uid not in evicted
    }


def _wanted_quadlets(
    planning: Planning,
    node: Node,
    applied: Mapping[str, str],
    desired: Desired | None,
    log: ContainerLog,
) -> Iterator[Quadlets]:
    """Yield the quadlets of applied pods; a file with an error leaves its pods as they are."""
    files = list(_read_files(planning, node, sorted(set(applied.values())), log))
    if not files:
        return
    try:
        options = host_options(planning, is_for_host=True, is_kept=True)
    except (HostError, InputError) as error:
        log.add_error(error)
        return
    for source, pods, workloads in files:
        try:
            decisions = pods if desired is None else with_lasting_cpus(pods, desired)
            made = make_quadlets(decisions, workloads, options)
        except InputError as error:
            log.add_error(error, source)
        else:
            yield from (each for each in made if applied.get(each.pod) == source)


def _read_files(
    planning: Planning, node: Node, sources: Iterable[str], log: ContainerLog
) -> Iterator[tuple[str, tuple[PodDecision, ...], Mapping[str, PodWorkload]]]:
    """Yield the files of the agent's manifest directories that have no error, with their pods.

    Services of all files in the directories count.
    """
    directories = wanted.manifest_directories(planning.config, planning.manager)
    own = {each for each in sources if str(Path(each).parent) in directories}
    files: dict[str, LoadedPods] = {}
    for path in sorted(own.union(*map(list_paths, directories)) if own else ()):
        try:
            files[path] = _load_file(planning, path)
        except FileNotFoundError:
            continue  # the agent stops its pods, for as long as their grace periods
        except InputError as error:
            log.has_broken_file = True
            if path in own:
                log.add_error(error, path)
        except HostError as error:
            if path in own:
                log.add_error(error, path)
    members = {path: read_members(each) for path, each in files.items()}
    stated = (each for loaded in files.values() for each in loaded.data)
    networks, lost = connect(stated, [m for found, _ in members.values() for m in found], None)
    of_files = (each for loaded in files.values() for each in loaded.problems)
    of_services = chain.from_iterable(lost.values())
    errors = (each.severity is Severity.ERROR for each in chain(of_services, of_files))
    log.has_broken_file |= any(errors)
    for path in sorted(own & files.keys()):
        loaded, (found, problems) = files[path], members[path]
        documents = dict.fromkeys(each.where for each in loaded.data)
        lost_here = chain.from_iterable(lost.get(each, ()) for each in documents)
        further = further_problems((*problems, *lost_here), loaded)
        try:
            decisions = decide_all(loaded, node, planning.config)
        except InputError as error:
            log.add_error(error, path)
            continue
        problems = [*all_problems(loaded, decisions), *further]
        if any(each.severity is Severity.ERROR for each in problems):
            log.add_error(InputError(problems), path)
        else:
            yield path, decisions, with_networks(found, networks)


def _load_file(planning: Planning, source: str) -> LoadedPods:
    """Read a file; its problems have its path.

    Raises:
        InputError: it is beyond the limits.
        HostError: it cannot be read, or other users can write it.
        FileNotFoundError: it was removed.
    """
    name = printable(source)
    try:
        content = _read_private(source, planning.manager)
        return load_text(
            content, name, Budget(), validate=planning.config.validate, extent=Extent.WORKLOADS
        )
    except Exhausted as error:
        raise InputError(error.at(name)) from error


def _read_private(source: str, manager: Manager) -> bytes:
    """Return the content of a manifest that only the user of the service manager can write.

    Containers may have all rights of that user, which those who may write other manifests have not.

    Raises:
        HostError: other users can write it, or it is not a regular file.
        FileNotFoundError: it does not exist.
    """
    try:
        content, status = read_with_status(source, limit_bytes=BYTES_MAX)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise HostError(str(error.strerror)) from error
    except NotRegularError as error:
        raise HostError(str(error)) from error
    owner = manager.uid or 0
    if status.st_uid != owner or status.st_mode & _OTHERS_WRITE:
        raise HostError(
            f"users other than {owner} can write it; if you trust"
            f" its content: chown {owner} {source}; chmod go-w {source}"
        )
    return content


def _checked(pods: Iterable[Quadlets], manager: Manager, log: ContainerLog) -> tuple[Quadlets, ...]:
    """Return the pods whose files can be written, and report the others."""
    valid: list[Quadlets] = []
    taken: set[str] = set()
    directories = installed(manager)
    for pod in pods:
        problems: Iterable[Problem]
        try:
            problems = find_obstacles([pod], directories, taken).get(pod.pod, ())
        except InputError as error:
            problems = error.problems
        for problem in problems:
            log.add_problem(problem, pod=pod.pod)
        if not problems:
            valid.append(pod)
            taken.update(each.path for each in pod.files)
    return tuple(valid)


_PATIENCE_SEC = 1
"""How long to wait for a busy journal."""
_NOT_UPDATED = "its containers are not updated"
_NONE_UPDATED = "the containers of pods are not updated"


class ContainerLog:
    """Records the failures of one run, and logs those that the run before did not have."""

    def __init__(self, store: Store, manager: Manager) -> None:
        self._record = ContainerFailures(store.root)
        self._manager = manager
        self._found: dict[ContainerFailure, None] = {}
        """The failures in the order of their discovery, each once: replicas share those of their manifest."""
        self._recorded: tuple[ContainerFailure, ...] | None = None
        self._known = set(self._record.load())
        self.has_broken_file = False
        """Whether the Services of some file are not known."""

    @property
    def _retry(self) -> str:
        return f"to try again: systemctl{self._manager.flag} restart podslice-agent.service"

    def add_problem(
        self, problem: Problem, *, pod: str | None = None, consequence: str = _NOT_UPDATED
    ) -> None:
        """Add an error in a manifest or in a pod's files; a warning is only printed."""
        if problem.severity is not Severity.ERROR:
            note(problem_line(problem))
            return
        message = f"{consequence}: {printable(problem.message)}"
        hint = printable(problem.hint) or "the agent updates them after a correction"
        self._add(ContainerFailure(where=problem.where, message=message, hint=hint, pod=pod))

    def add_error(self, error: PodsliceError, source: str = "") -> None:
        """Add an error that concerns a manifest, or all pods."""
        consequence = _NOT_UPDATED if source else _NONE_UPDATED
        if isinstance(error, InputError):
            for each in error.problems:
                self.add_problem(each, consequence=consequence)
            return
        message = f"{consequence}: {printable(str(error))}"
        self._add(ContainerFailure(where=source, message=message, hint=self._retry))

    def _add(self, failure: ContainerFailure) -> None:
        if failure not in self._found:
            note(f"{failure}; {failure.hint}")
            self._found[failure] = None

    def add_results(self, results: Iterable[PodResult]) -> None:
        """Add the steps that have failed, and log the containers that were started."""
        results = tuple(results)
        done = ((each.step, each.step.event) for each in results if not each.error)
        self._log(
            Event(kind=event[0], message=event[1], pod=step.pod, unit=UnitName(step.name))
            for step, event in done
            if event is not None
        )
        for each in results:
            if not each.error:
                continue
            step, is_start = each.step, each.step.action is Action.START
            name = UnitName(step.name)
            journal = f"to see its output: {reading_command(name, self._manager)}"
            failure = ContainerFailure(
                message=f"failed to {step.action.value} {step.path or step.name}: {each.error}",
                hint=journal if is_start else self._retry,
                pod=step.pod,
                unit=name if is_start else None,
            )
            self._found[failure] = None

    @contextmanager
    def published(self) -> Iterator[None]:
        """Write the record at the end, also after an error, and log the failures that are new.

        The caller holds the lock. What a later run has recorded in between remains.

        Raises:
            HostError: it can't be written.
        """
        try:
            yield
        except PodsliceError as error:
            self.add_error(error)
            raise
        finally:
            self._publish()

    def _publish(self) -> None:
        if self._recorded is not None and self._record.load() != self._recorded:
            return
        self._recorded = tuple(self._found)
        self._record.save(self._recorded)
        new = [each for each in self._recorded if each not in self._known]
        self._log(
            Event(kind=Kind.STEP_FAILED, message=str(each), pod=each.pod, unit=each.unit)
            for each in new
        )
        self._known.update(self._recorded)

    def _log(self, events: Iterable[Event]) -> None:
        events = tuple(events)
        if not events:
            return
        with closing(Journal(manager=self._manager, patience_sec=_PATIENCE_SEC)) as journal:
            for each in events:
                journal.log(each)
