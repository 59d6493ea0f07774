"""The fuzz targets: one row for each reader of text or bytes from other programs.

The targets of a feature are beside its tests, in `fuzz.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from datetime import UTC, datetime
from importlib import import_module

from podslice.cli.views import tables
from podslice.cli.views.style import Display
from podslice.errors import BadMessage, HostError, InputError, PodsliceError
from podslice.inputs.budget import Budget, Exhausted
from podslice.inputs.manifest.load import (
    format_manifest,
    load_text,
    parse_manifest,
)
from podslice.inputs.options.config_files import make_config, restore
from podslice.kernel import cgroup, proc, text
from podslice.model import node as cpu_list
from podslice.model.config import Config
from podslice.model.naming import Tree
from podslice.model.pod import Qos, default_uid
from podslice.policy.decide import decide
from podslice.store.store import Store
from podslice.systemd import journal
from podslice.systemd.dbus import connection, wire
from podslice.systemd.dbus.connection import Connection, Peer
from podslice.systemd.manager import ChangeSignals, Jobs, error_of
from tests.cases.hostile_inputs import INPUTS
from tests.configuration import load_config
from tests.fuzz.target import (
    FIELDS,
    HOSTILE,
    JSON,
    NODE,
    PODS_MAX,
    QUANTITIES,
    TESTS,
    YAML,
    Target,
    check_problems,
    scratch,
)


def run_frame(data: bytes) -> None:
    """Read a message, and check that skipping its values ends at the same position as reading them."""
    with contextlib.suppress(BadMessage):
        wire.frame_bytes(data)
        message = wire.parse_frame(data)
        check_header(message)
        with contextlib.suppress(BadMessage):
            assert isinstance(message.properties({"Id", "CPUWeight", "Slice"}), dict)
        with contextlib.suppress(BadMessage):
            assert isinstance(message.changed_properties({"Result", "ExecMainCode"}), dict)
        body = message.body()
        assert isinstance(body, tuple)
        reader, skipper = message.body_reader(), message.body_reader()
        for type_ in wire.split_types(message.signature):
            reader.read(type_)
            skipper.skip(type_)
            assert reader.position == skipper.position <= len(data)


def check_header(message: wire.Received) -> None:
    """Check the types of a message's header."""
    texts = (message.path, message.interface, message.member, message.error_name, message.sender)
    assert all(isinstance(each, str) for each in (*texts, message.signature))
    assert isinstance(message.reply_serial, int)


def run_stream(data: bytes) -> None:
    """Feed a connection in pieces with data from a bus: it accepts them, or closes."""
    jobs, changes = Jobs(timeout_sec=1), ChangeSignals(lambda _: None, lambda _name, _exit: None)
    changes.begin()
    connection = Connection(
        Peer(address="unix:path=/x", service="a.b", error_of=error_of), [jobs, changes]
    )
    transport = Transport()
    connection.connection_made(transport)
    connection.follow(":1.1")
    for start in range(0, len(data), 97):
        if not transport.is_closing():
            connection.data_received(data[start : start + 97])
    connection.connection_lost(None)


class Transport(asyncio.Transport):
    """A transport that only records whether it was closed."""

    is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted


def run_handshake(data: bytes) -> None:
    """Authenticate at a bus that sends this in reply to any request, and closes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.sendall(data[:65_536])
        theirs.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError, EOFError, ValueError):
            assert asyncio.run(connection.authenticate(ours)) in (True, False)


def hostile_texts(suffix: str) -> tuple[bytes, ...]:
    """Return the hostile inputs whose names have this suffix, sorted by name."""
    return tuple(text for name, text in sorted(INPUTS.items()) if name.endswith(suffix))


def run_manifest(data: bytes, name: str) -> None:
    """Read manifests and decide their pods: errors are problems, never exceptions."""
    try:
        loaded = load_text(data, name, Budget())
    except Exhausted:
        return
    check_problems(loaded.all_problems)
    for pod in loaded.pods[:PODS_MAX]:
        decision = decide(pod, NODE, Config())
        check_problems(decision.problems)
        assert all(line.isprintable() for line in tables.explanation(decision, Display()))
        if decision.is_valid:
            again = parse_manifest(format_manifest(pod), where="again")
            assert format_manifest(again) == format_manifest(pod)


def run_toml(data: bytes) -> None:
    """Read a configuration file."""
    path = scratch() / "podslice.toml"
    path.write_bytes(data)
    try:
        assert isinstance(load_config(file=path), Config)
    except InputError as error:
        check_problems(error.problems)


def run_flags(data: bytes) -> None:
    """Read options as the command line states them: `key=value`, one to a line."""
    lines = data.decode(errors="surrogateescape").split("\n")
    flags = dict(line.partition("=")[::2] for line in lines if line)
    try:
        config = load_config(flags, root=scratch() / "nowhere")
    except InputError as error:
        check_problems(error.problems)
    else:
        assert Tree(cgroup_root=config.cgroup_root).pod(default_uid("a", "b"), Qos.BESTEFFORT)


def run_record(data: bytes) -> None:
    """Read a damaged file in each place where podslice stores one."""
    store = Store(scratch() / "run")
    places = [store.root / "pods/a.json", store.marks / "a.json"]
    names = ("agent.json", "reserved.json", "configuration.json")
    places += [store.root / name for name in names]
    for path in places:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    store.agent.read()
    store.reserved()
    with contextlib.suppress(InputError):
        make_config(restore(store.options() or {}), {})
    with contextlib.suppress(HostError):  # applied below another root
        records = store.load()
        assert len(records.pods) + len(records.broken) + len(records.evicted) == 2
        for pod in records.pods:
            store.save(pod, records.sources.get(pod.uid))
            assert pod.uid in Store(store.root).load().digests
            store.remove(pod.uid)


def run_ends(data: bytes) -> None:
    """Read the history of a container, and its end, each from damaged files."""
    store = Store(scratch() / "ends")
    for damaged in ("main.json", "main,1"):
        store.histories.save_start("a", "main", 1)
        (store.root / "containers/a" / damaged).write_bytes(data)
        for history in store.histories.read("a").values():
            store.histories.save_start("a", "main", history.started_usec)
            assert store.histories.read("a")["main"].restarts == history.restarts + 1
        store.remove("a")


def run_proc(data: bytes) -> None:
    """Read a process with a name and a control group chosen by another user.

    The kernel takes any byte but the line feed and NUL, in groups no slash either.
    """
    name, _, group = (
        part.replace(b"\n", b"").replace(b"\0", b"") for part in data.partition(b"\n")
    )
    place = scratch() / "proc/7"
    place.mkdir(parents=True, exist_ok=True)
    (place / "stat").write_bytes(b"7 (" + name[:15] + b") S 1" + b" 0" * 40 + b"\n")
    (place / "cgroup").write_bytes(b"1:name=x:/forged\n0::/" + group + b"\n")
    (place / "status").write_bytes(b"Name:\tx\nTgid:\t7\nUid:\t5\t5\t5\t5\n")
    process = proc.read_process(7, scratch())
    assert process is not None
    assert (process.parent, process.state, process.leader, process.uid) == (1, "S", 7, 5)
    assert process.control_group.encode(errors="surrogateescape") == b"/" + group
    assert process.name.isprintable()


def run_kernel(data: bytes) -> None:
    """Read counters and lists; texts that the kernel never writes raise ValueError at most."""
    shown = data.decode(errors="surrogateescape")
    for parse in (proc.parse_control_group, cgroup.parse_pressure, cpu_list.parse_cpus):
        with contextlib.suppress(ValueError, LookupError):
            parse(shown)
    with contextlib.suppress(ValueError):
        list(text.parse_mounts(shown))
    lines = text.split_lines(shown)
    assert "\n".join(lines) == shown.removesuffix("\n")


def run_journal(data: bytes) -> None:
    """Read a line of journalctl."""
    with contextlib.suppress(PodsliceError):
        entry = journal.parse_entry(data)
        assert datetime.fromtimestamp(entry.time_usec / 1e6, UTC).year >= 1970
        assert all(isinstance(each, str) for each in entry.fields.values())


def as_json(data: bytes) -> None:
    """Read a manifest as JSON."""
    run_manifest(data, "a.json")


def as_yaml(data: bytes) -> None:
    """Read a manifest that may be YAML or JSON."""
    run_manifest(data, "a.yaml")


_FRAME = (
    b"\x01v\0",
    b"l\2\0\1",
    b"a{sv}",
    b"\0\0\0\0",
    b"\xff\xff\xff\x7f",
    b"(",
    b")",
    b"a",
    b"B",
)

_CORE = (
    Target(
        name="frame", run=run_frame, seeds=("tests/fuzz/corpus/stream/*",), tokens=_FRAME, calls=40
    ),
    Target(name="stream", run=run_stream, tokens=_FRAME, calls=60),
    Target(name="handshake", run=run_handshake, tokens=(b"\r\n", b"OK ", b"\0"), calls=20),
    Target(
        name="yaml",
        run=as_yaml,
        seeds=("examples/**/*.yaml",),
        texts=hostile_texts(".yaml"),
        tokens=(*YAML, *QUANTITIES, *HOSTILE, *FIELDS),
        calls=2000,
    ),
    Target(
        name="json",
        run=as_json,
        texts=hostile_texts(".json"),
        tokens=(*JSON, *QUANTITIES, *HOSTILE, *FIELDS),
        calls=2000,
    ),
    Target(
        name="toml",
        run=run_toml,
        seeds=("examples/*.toml",),
        tokens=(
            *QUANTITIES,
            *HOSTILE,
            b"[",
            b"=",
            b'"',
            b"'''",
            b".",
            b"{",
            b"inf",
            b"1979-05-27",
        ),
        calls=400,
    ),
    Target(
        name="flags",
        run=run_flags,
        tokens=(*QUANTITIES, *HOSTILE, b"=", b",", b"<", b"%", b"/", b"\n", b"1h30m", b".slice"),
        calls=400,
    ),
    Target(name="record", run=run_record, tokens=(*JSON, *QUANTITIES, *FIELDS), calls=2000),
    Target(
        name="ends",
        run=run_ends,
        tokens=(*JSON, *HOSTILE, b"\0", b"=", b"EXIT_CODE=exited", b"oom_kill 1", b"SIGKILL"),
        calls=2000,
    ),
    Target(name="proc", run=run_proc, tokens=(*HOSTILE, b")", b"(", b" ", b"0::", b":"), calls=60),
    Target(
        name="kernel", run=run_kernel, tokens=(*HOSTILE, b"0::", b"-", b",", b"\\040"), calls=60
    ),
    Target(name="journal", run=run_journal, tokens=(*JSON, *HOSTILE, b"[256]"), calls=60),
)

_FEATURES = sorted((TESTS / "unit/features").glob("*/fuzz.py"))
TARGETS = (
    *_CORE,
    *(
        target
        for path in _FEATURES
        for target in import_module(f"tests.unit.features.{path.parent.name}.fuzz").TARGETS
    ),
)
"""Every reader. To add one, add a row and seeds in `corpus`."""
