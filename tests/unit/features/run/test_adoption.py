"""Adoption, with processes as files and systemd in memory."""

import errno
import os
from dataclasses import replace
from functools import partial

import pytest

from podslice.errors import (
    BadProperty,
    HostError,
    InputError,
    JobFailed,
    Refused,
    UnitExists,
    printable,
)
from podslice.features.run import adoption
from podslice.features.run.adoption import AdoptionOutcome
from podslice.features.run.target import find_place, scope_of
from podslice.model.pod import ContainerKind
from podslice.model.unit import TransientUnit, UnitName, user_manager
from podslice.reconcile.assess import Request, assess
from tests.cases.tables import cases
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import burstable, container, decisions, make_files, world
from tests.unit.converged import apply
from tests.unit.usage.invented import DELEGATED, hostile_groups, processes

POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podweb.slice"
SCOPE = UnitName("podslice-podweb-main.scope")
SERVICE = UnitName("podslice-podweb-main.service")
GROUP = f"{POD}/{SCOPE}"
SESSION = "/user.slice/session.scope"
# more than the limit of a message, with ids that the kernel does not assign
MANY = range(5_000_000, 5_000_020)


class Host(FakeSystemd):
    """systemd in memory that moves the processes of a root directory."""

    def __init__(self, root, **fields):
        super().__init__(**fields)
        self.root = root
        self.ended = set()
        self.meanwhile = []
        """Callbacks, one before each move."""

    def add(self, *rows):
        make_files(self.root, processes(*rows))

    def end(self, *pids):
        """Let processes exit, reaped by their parent."""
        for pid in pids:
            self.ended.add(pid)
            self.end_process(pid)
            for file in ("stat", "cgroup", "status", "comm", "oom_score_adj"):
                (self.root / f"proc/{pid}/{file}").unlink(missing_ok=True)

    def group_of(self, pid):
        return (self.root / f"proc/{pid}/cgroup").read_text().strip().rpartition("0::")[2]

    def handle(self, pid):
        return Handle(self, pid)

    async def start(self, unit):
        self._happen()
        pids = unit.properties.get("PIDs") or tuple(
            fd - 1000 for fd in unit.properties.get("PIDFDs", ())
        )
        if unit.name in (SCOPE, SERVICE) and self.ended.intersection(pids):
            raise BadProperty(f"{unit.name}: a process has exited")
        await super().start(unit)
        await self.moved(unit.name, pids)

    async def attach(self, name, pids):
        self._happen()
        await super().attach(name, pids)
        await self.moved(name, pids)

    def _happen(self):
        if self.meanwhile:
            self.meanwhile.pop(0)()

    async def moved(self, name, pids):
        (unit,) = await self.observe([name])
        for pid in pids:
            make_files(self.root, {f"proc/{pid}/cgroup": f"0::{unit.control_group}\n"})


class Handle:
    """A pidfd of an invented process."""

    def __init__(self, host, pid):
        if not (host.root / f"proc/{pid}/stat").exists():
            raise ProcessLookupError(errno.ESRCH, "No such process")
        if f"Tgid:\t{pid}\n" not in (host.root / f"proc/{pid}/status").read_text():
            raise OSError(errno.EINVAL, "Invalid argument")
        self.host, self.pid, self.fd = host, pid, 1000 + pid
        self.is_open = True
        host.handles.append(self)

    @property
    def has_ended(self):
        return self.pid in self.host.ended

    def close(self):
        self.is_open = False


@pytest.fixture
def notes():
    return []


@pytest.fixture
async def host(tmp_path, monkeypatch, notes):
    """Return a host with two pods: web with two containers, and other."""
    return await make_host(tmp_path, monkeypatch)


async def make_host(tmp_path, monkeypatch, **fields):
    made = Host(tmp_path, **fields)
    made.handles = []
    monkeypatch.setattr(adoption, "PidFd", made.handle)
    made.add({"pid": 1, "parent": 0, "group": "/init.scope"}, {"pid": os.getpid(), "parent": 40})
    made.add({"pid": 40}, {"pid": 11}, {"pid": 12, "name": "nginx"}, {"pid": 13})
    web = burstable("web", containers=(container("main", "cpu=1"), container("log")))
    await apply(world(tmp_path, made), Request(candidates=decisions(web, burstable("other"))))
    made.calls.clear()
    return made


async def adopt(host, *pids, key="default/web", name="main", notes=None, **fields):
    made = world(host.root, host, notes=notes, **fields)
    return await adoption.adopt(made, key, name, pids, host.root)


def outcomes(adopted):
    return {each.pid: each.outcome for each in adopted.processes}


async def why(host, *pids, **more):
    adopted = await adopt(host, *pids, **more)
    (refused,) = adopted.processes
    assert (refused.outcome, adopted.exit_code) == (AdoptionOutcome.REFUSED, 1)
    return refused.why


async def test_processes_start_the_scope_of_the_container(host, notes):
    adopted = await adopt(host, 11, 12, notes=notes)
    assert (adopted.unit, adopted.control_group, adopted.exit_code) == (SCOPE, GROUP, 0)
    assert [(each.pid, each.name, each.outcome, each.why) for each in adopted.processes] == [
        (11, "sleep", AdoptionOutcome.ADOPTED, f"from {SESSION}"),
        (12, "nginx", AdoptionOutcome.ADOPTED, f"from {SESSION}"),
    ]
    (scope,) = await host.observe([SCOPE])
    assert scope.properties["Delegate"] is True
    assert scope.properties["CPUWeight"] == 100
    assert notes == []
    assert not any(handle.is_open for handle in host.handles)


async def test_the_kernel_may_refuse_an_oom_score(host):
    await adopt(host, 11)
    text = (host.root / "proc/11/oom_score_adj").read_text()
    assert 2 < int(text) < 1000


async def test_a_refusal_of_the_kernel_is_one_line(host, notes, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(adoption, "set_oom_score_adj", refuse)
    assert (await adopt(host, 11, 12, notes=notes)).exit_code == 0
    assert len(notes) == 1
    assert notes[0].startswith("2 processes keep their oom_score_adj, not ")
    assert notes[0].endswith(": Permission denied")
    await adopt(host, 13, notes=notes)
    assert notes[1].startswith("1 process keeps its oom_score_adj")


async def test_more_processes_join_the_existing_unit(host):
    await adopt(host, 11)
    host.calls.clear()
    adopted = await adopt(host, 12, 11)
    assert outcomes(adopted) == {12: AdoptionOutcome.ADOPTED, 11: AdoptionOutcome.THERE}
    assert adopted.exit_code == 0
    assert (host.calls["start"], host.calls["attach"]) == (0, 1)
    host.calls.clear()
    assert outcomes(await adopt(host, 11)) == {11: AdoptionOutcome.THERE}
    assert (host.calls["start"], host.calls["attach"]) == (0, 0)


async def test_a_detached_container_takes_processes_too(host, tmp_path):
    place = find_place(await assess(world(tmp_path, host)), "default/web", "main")
    scope = scope_of(place, {"PIDs": (13,)})
    properties = {key: value for key, value in scope.properties.items() if key != "PIDs"}
    service = scope._replace(
        name=SERVICE, properties={**properties, "ExecStart": (("/bin/sh", ("/bin/sh",), False),)}
    )
    await host.start(service)
    adopted = await adopt(host, 11)
    assert (adopted.unit, adopted.control_group) == (SERVICE, f"{POD}/{SERVICE}")
    assert outcomes(adopted) == {11: AdoptionOutcome.ADOPTED}


async def test_ids_that_are_named_twice_count_once(host):
    assert outcomes(await adopt(host, 11, 11)) == {11: AdoptionOutcome.ADOPTED}


async def test_pidfds_are_sent_where_supported_up_to_the_limit_of_a_message(tmp_path, monkeypatch):
    started = []

    async def start(host, unit):
        started.append({key: len(value) for key, value in unit.properties.items() if "PID" in key})
        await Host.start(host, unit)

    for version, first in ((257, {"PIDFDs": 16}), (252, {"PIDs": 20})):
        host = await make_host(tmp_path / str(version), monkeypatch, systemd_version=version)
        monkeypatch.setattr(host, "start", partial(start, host))
        host.add(*({"pid": pid} for pid in MANY))
        adopted = await adopt(host, *MANY)
        assert set(outcomes(adopted).values()) == {AdoptionOutcome.ADOPTED}
        assert started.pop() == first


@cases
async def test_some_may_not_move(host, row, reason):
    host.add({"pid": 20, **row})
    assert reason in await why(host, 20)
    assert host.calls["start"] == 0


async def test_a_process_in_a_misplaced_unit_of_another_pod_may_not_move(host):
    name = UnitName("podslice-podother-main.scope")
    properties = {"Slice": "system.slice", "PIDs": (20,)}
    host.add({"pid": 20})
    await host.start(TransientUnit(name=name, properties=properties))
    assert "it is in container main of pod default/other" in await why(host, 20)


@pytest.mark.parametrize(
    "group", [*hostile_groups(GROUP), f"{DELEGATED}/podslice-podother-main.scope"]
)
async def test_a_group_that_only_looks_like_a_pods_is_adopted(host, group):
    host.add({"pid": 20, "group": group})
    (done,) = (await adopt(host, 20)).processes
    assert (done.outcome, done.why) == (AdoptionOutcome.ADOPTED, f"from {printable(group)}")
    assert host.group_of(20) == GROUP


async def test_a_process_in_another_pod_is_refused_with_the_remedy(host):
    host.add({"pid": 20, "group": POD.replace("podweb", "podother")})
    assert (await why(host, 20)).endswith(
        "stop it, and start it with podslice run default/web -c main -- COMMAND"
    )


async def test_in_the_init_phase_the_way_to_bind_limits_is_reported(host, notes):
    init = container("setup", kind=ContainerKind.INIT)
    pod = burstable("web", containers=(init, container("main", "cpu=1"), container("log")))
    await apply(world(host.root, host), Request(candidates=decisions(pod)))
    assert outcomes(await adopt(host, 11, notes=notes)) == {11: AdoptionOutcome.ADOPTED}
    (note,) = notes
    assert note.startswith("pod default/web is in its init phase; to make its own limits bind:")
    assert note.endswith(": podslice phase default/web running")
    notes.clear()
    await adopt(host, 12, name="setup", notes=notes)
    await adopt(host, 12, name="setup", notes=notes)
    assert notes == []


async def test_neither_process_1_nor_ancestors_may_move(host):
    assert "it is a service manager" in await why(host, 1)
    for pid in (os.getpid(), 40):
        assert "it is podslice itself or an ancestor of it" in await why(host, pid)


async def test_a_missing_process_is_refused(host):
    assert await why(host, 99) == "no such process"


async def test_a_user_moves_the_own_processes_only(host):
    host.add({"pid": 20, "uid": os.getuid()}, {"pid": 21, "uid": 4711})
    assert "runs as user 4711; with --user only your own" in await why(
        host, 21, manager=user_manager(os.getuid(), {})
    )
    assert outcomes(await adopt(host, 20, manager=user_manager(os.getuid(), {}))) == {
        20: AdoptionOutcome.ADOPTED
    }
    assert outcomes(await adopt(host, 21)) == {21: AdoptionOutcome.ADOPTED}


async def test_a_refused_process_does_not_prevent_the_others(host):
    adopted = await adopt(host, 11, 1, 99, 12)
    assert [each.outcome for each in adopted.processes] == [
        *(
            AdoptionOutcome.ADOPTED,
            AdoptionOutcome.REFUSED,
            AdoptionOutcome.REFUSED,
            AdoptionOutcome.ADOPTED,
        )
    ]
    assert adopted.exit_code == 1


async def test_processes_in_the_pod_outside_containers_may_move(host):
    host.add({"pid": 20, "group": f"{POD}/run-1.service"})
    assert outcomes(await adopt(host, 20)) == {20: AdoptionOutcome.ADOPTED}


async def test_a_process_that_exits_meanwhile_does_not_prevent_the_others(host):
    host.meanwhile = [lambda: host.end(11), lambda: host.end(12)]
    adopted = await adopt(host, 11, 12, 13)
    assert outcomes(adopted) == {
        11: AdoptionOutcome.ENDED,
        12: AdoptionOutcome.ENDED,
        13: AdoptionOutcome.ADOPTED,
    }
    assert [each.name for each in adopted.processes] == ["sleep", "nginx", "sleep"]
    assert adopted.exit_code == 1
    assert host.group_of(13) == GROUP


async def test_no_unit_is_started_once_all_have_exited(host):
    host.meanwhile = [lambda: host.end(11)]
    adopted = await adopt(host, 11)
    assert (adopted.unit, adopted.control_group) == (SCOPE, GROUP)
    assert outcomes(adopted) == {11: AdoptionOutcome.ENDED}
    assert await host.observe([SCOPE]) == ()


async def test_processes_move_singly_if_one_exits_each_time(host):
    host.add(*({"pid": pid} for pid in MANY))
    host.meanwhile = [partial(host.end, pid) for pid in MANY[:10]]
    found = outcomes(await adopt(host, *MANY))
    assert {pid for pid, outcome in found.items() if outcome is AdoptionOutcome.ENDED} == host.ended
    survivors = set(MANY) - host.ended
    assert {pid for pid in survivors if host.group_of(pid) == GROUP} == survivors


async def test_one_that_ends_right_after_it_was_seen(host, monkeypatch):
    def vanish(pid):
        handle = Handle(host, pid)
        host.end(pid)
        return handle

    monkeypatch.setattr(adoption, "PidFd", vanish)
    assert outcomes(await adopt(host, 11)) == {11: AdoptionOutcome.ENDED}


async def test_a_unit_that_is_replaced_meanwhile_is_observed_again(host):
    await adopt(host, 11)
    host.meanwhile = [lambda: host.end(11)]  # and with it the scope, before 12 is in
    assert outcomes(await adopt(host, 12)) == {12: AdoptionOutcome.ADOPTED}


@pytest.mark.parametrize(
    "error", [BadProperty("no"), UnitExists("no"), JobFailed("no", result="failed")]
)
async def test_a_failed_move_is_reported_with_the_error_of_systemd(host, error):
    host.refuse(SCOPE, error)
    adopted = await adopt(host, 11, 12)
    assert [(each.outcome, each.why) for each in adopted.processes] == [
        (AdoptionOutcome.NOT_MOVED, f"it is still in {SESSION}: no")
    ] * 2
    assert adopted.exit_code == 1
    assert host.calls["start"] == adoption.MOVE_TRIES + 2


async def test_a_process_that_does_not_arrive_is_reported(host, monkeypatch):
    async def do_nothing(*_):
        pass

    monkeypatch.setattr(host, "moved", do_nothing)
    (found,) = (await adopt(host, 11)).processes
    assert (found.outcome, found.why) == (AdoptionOutcome.NOT_MOVED, f"it is still in {SESSION}")


async def test_without_rights_nothing_is_tried_again(host):
    host.refuse(SCOPE, Refused("no rights"))
    with pytest.raises(Refused):
        await adopt(host, 11)
    assert host.calls["start"] == 1
    assert not any(handle.is_open for handle in host.handles)


async def test_a_scope_outside_of_its_pod_has_to_go_first(host, tmp_path):
    place = find_place(await assess(world(tmp_path, host)), "default/web", "main")
    scope = scope_of(place, {"PIDs": (13,)})
    misplaced = scope._replace(properties={**scope.properties, "Slice": "system.slice"})
    await host.start(misplaced)
    with pytest.raises(HostError, match=f"stop it first: systemctl stop {SCOPE}"):
        await adopt(host, 11)


async def test_a_scope_that_is_being_stopped_takes_no_process(host, monkeypatch):
    await adopt(host, 11)
    observe = host.observe

    async def stopping(patterns):
        units = await observe(patterns)
        return tuple(replace(unit, active_state="deactivating") for unit in units)

    state = await assess(world(host.root, host))

    async def see(_):
        return state

    monkeypatch.setattr(host, "observe", stopping)
    monkeypatch.setattr(adoption, "assess", see)
    with pytest.raises(HostError, match="is being stopped; try again once it is inactive"):
        await adopt(host, 12)


async def test_the_pod_and_the_container_must_exist(host):
    with pytest.raises(HostError, match="pod default/none is not applied"):
        await adopt(host, 11, key="default/none")
    with pytest.raises(InputError, match="name one with -c: main, log"):
        await adopt(host, 11, name=None)


async def test_services_and_descendants_outside_the_pod_are_reported(host, notes):
    host.add(
        {"pid": 20, "name": "nginx", "group": "/system.slice/nginx.service"},
        *({"pid": pid, "name": "worker", "parent": 20} for pid in range(21, 34)),
        {"pid": 34, "name": "helper", "group": "/system.slice/nginx.service"},
    )
    listed = " ".join(map(str, range(21, 34)))
    make_files(
        host.root, {"proc/20/task/20/children": listed, "proc/21/task/21/children": "34 20 99"}
    )
    await adopt(host, 20, 11, notes=notes)
    service, left = notes
    assert service == (
        "nginx.service starts further processes outside the pod; to configure it to start them"
        " in the pod, see: podslice cgroup-parent default/web -o systemd"
    )
    assert left.startswith("their child processes were not moved; adopt them, too,")
    assert left.endswith("and 4 more")
    assert left.count("worker") == 10
    notes.clear()
    await adopt(host, *range(21, 34), notes=notes)
    assert notes == ["their child processes were not moved; adopt them, too, if desired: 34 helper"]


async def test_many_processes_need_many_descriptors(monkeypatch):
    set_to = []
    monkeypatch.setattr(adoption.resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(adoption.resource, "setrlimit", lambda _, limits: set_to.append(limits))
    for count in (200, 2000, 9000):
        adoption.allow_descriptors(count)
    assert set_to == [(2064, 4096), (4096, 4096)]
