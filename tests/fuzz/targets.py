"""The fuzz targets: one row for each reader of text or bytes from other programs.

A target takes bytes and raises nothing unless the reader is at fault: an error that its docstring
does not name, a value of another type than it promises, or a value that does not survive being
written and read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import yaml

from podslice.cli.views import tables
from podslice.cli.views.problem_lines import problem_line
from podslice.errors import BadMessage, HostError, InputError, PodsliceError, Problem, Severity
from podslice.features.compose.manifest import PodDraft, format_yaml, make_override, unsupported_by
from podslice.features.compose.project import Settings, read_project
from podslice.features.compose.tools import ComposeTool, parse_resolved
from podslice.features.history.files import UsageFiles
from podslice.features.history.model import PodHistory
from podslice.features.history.prometheus import (
    make_history,
    make_pod_history,
    parse_error,
    parse_range,
)
from podslice.features.history.recommendation import recommend_pod
from podslice.features.kubelet.api import read_kubeconfig
from podslice.features.kubelet.config import read_settings
from podslice.features.kubelet.levels import LevelRecord
from podslice.features.kubelet.model import KubeletSettings
from podslice.features.kubelet.pods import parse_pod_list, read_pod_list
from podslice.features.kubelet.policy import plan_levels
from podslice.features.kubelet.values import expect_node
from podslice.inputs.budget import Budget, Exhausted
from podslice.inputs.manifest.load import (
    format_manifest,
    load_text,
    parse_manifest,
    read_manifest,
)
from podslice.inputs.options.config_files import make_config, restore
from podslice.kernel import cgroup, proc, text
from podslice.model import node as cpu_list
from podslice.model.config import Config
from podslice.model.naming import Tree
from podslice.model.node import Node
from podslice.model.pod import Qos, default_uid
from podslice.model.unit import is_unit_name
from podslice.policy.decide import decide
from podslice.store.store import Store
from podslice.systemd import journalctl
from podslice.systemd.dbus import connection, wire
from podslice.systemd.dbus.connection import Connection, Peer
from podslice.systemd.manager import ChangeSignals, Jobs, error_of
from tests.configuration import load_config

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
CORPUS = HERE / "corpus"
NODE = Node(capacity={"cpu": 8_000, "memory": 2**35 * 1000, "hugepages-2Mi": 2**30 * 1000})
SEED_BYTES_MAX = 8 * 1024
PODS_MAX = 20
"""Pods of one input that are decided; the others differ only in their names."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One reader."""

    name: str
    run: Callable[[bytes], None]
    seeds: tuple[str, ...] = ()
    """Globs below `tests` and `examples` for inputs besides the corpus."""
    tokens: tuple[bytes, ...] = ()
    """Tokens that mutations insert, besides random bytes."""
    calls: int
    """Calls of functions that each byte of input may cost."""

    @property
    def corpus(self) -> Path:
        """Return the directory of its seeds and findings."""
        return CORPUS / self.name

    def inputs(self) -> list[bytes]:
        """Return the corpus and the other seeds, sorted by name."""
        paths = [path for glob in self.seeds for path in sorted(TESTS.parent.glob(glob))]
        contents = [path.read_bytes() for path in (*sorted(self.corpus.glob("*")), *paths)]
        return [content for content in contents if len(content) <= SEED_BYTES_MAX]


@cache
def scratch() -> Path:
    """Return a directory for readers of files; it is removed when the process exits."""
    directory = tempfile.TemporaryDirectory(prefix="podslice-fuzz-")
    SCRATCH.append(directory)
    return Path(directory.name)


SCRATCH: list[tempfile.TemporaryDirectory[str]] = []


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
        assert all(line.isprintable() for line in tables.explanation(decision))
        if decision.is_valid:
            again = parse_manifest(format_manifest(pod), where="again")
            assert format_manifest(again) == format_manifest(pod)


def run_compose(data: bytes) -> None:
    """Read a resolved project, and write its pod and its override file."""
    try:
        project = read_project(parse_resolved(data, "a.yaml"))
    except InputError as error:
        check_problems(error.problems)
        return
    draft = PodDraft(project, Settings())
    loaded = read_manifest(draft.document, "")
    (pod,) = loaded.pods
    decision = decide(pod, NODE, Config())
    problems = draft.problems((*loaded.problems, *decision.problems))
    check_problems((*problems, *unsupported_by(ComposeTool.PODMAN_COMPOSE, project)))
    if all(each.severity is not Severity.ERROR for each in problems):
        assert yaml.safe_load("\n".join(draft.lines())) == draft.document
        override = make_override(project, decision, has_oom_scores=False)
        assert override.keys() == {"services"}
        assert list(format_yaml(override))


def check_problems(problems: tuple[Problem, ...]) -> None:
    """Check that problems are printable: each on one line, and shorter than the input."""
    for problem in problems:
        shown = problem_line(problem)
        assert shown.isprintable()
        assert len(shown) < 4096


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


def run_range(data: bytes) -> None:
    """Read an answer of Prometheus; the series that are read become the history of a pod."""
    check_problems((parse_error(data, 503),))
    try:
        series = parse_range(data)
        found = dict.fromkeys(("cpu", "memory", "kills"), series)
        recommend_pod("a/b", PodHistory(pod=make_history(**found)), 1_700_000_000)
        recommend_pod("a/b", make_pod_history(found, found), 1_700_000_000)
    except InputError as error:
        check_problems(error.problems)


def run_usage(data: bytes) -> None:
    """Read a damaged history of usage; one that is read is used, and written again."""
    files = UsageFiles(scratch() / "usage")
    path = files.pod_path("default/web")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    with contextlib.suppress(HostError):
        history = files.read(path)
        assert history is not None
        recommend_pod("default/web", history, 1_700_000_000)
        files.write(path, history)
        assert files.read(path) is not None


def run_record(data: bytes) -> None:
    """Read a damaged file in each place where podslice stores one."""
    store = Store(scratch() / "run")
    places = [store.root / "pods/a.json", store.marks / "a.json"]
    names = ("agent.json", "reserved.json", "configuration.json", "pod-levels.json")
    places += [store.root / name for name in names]
    for path in places:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    store.agent.read()
    store.reserved()
    LevelRecord(store.root).read()
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
        store.save_start("a", "main", 1)
        (store.root / "containers/a" / damaged).write_bytes(data)
        for history in store.histories("a").values():
            store.save_start("a", "main", history.started_usec)
            assert store.histories("a")["main"].restarts == history.restarts + 1
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
        entry = journalctl.parse(data)
        assert datetime.fromtimestamp(entry.time_usec / 1e6, UTC).year >= 1970
        assert all(isinstance(each, str) for each in entry.fields.values())


def run_kubelet_config(data: bytes) -> None:
    """Read the configuration of a kubelet."""
    try:
        settings = read_settings(data, "config.yaml")
    except InputError as error:
        check_problems(error.problems)
    else:
        assert expect_node((), NODE, settings).root.endswith("kubepods.slice")


def run_kubeconfig(data: bytes) -> None:
    """Read a kubeconfig, whose files are the kubeconfig itself."""
    path = scratch() / "kubeconfig"
    path.write_bytes(data)
    try:
        token = read_kubeconfig(path).token
    except InputError as error:
        check_problems(error.problems)
    else:
        assert not token or token.isprintable()


def run_pod_levels(data: bytes) -> None:
    """Read the pods of a kubelet as its agent does, where no pod affects another, and plan them."""
    settings = KubeletSettings(config=Config(), version=(1, 33))
    try:
        pods = parse_pod_list(data, "pods.json", keeps_invalid=True)
    except InputError as error:
        check_problems(error.problems)
    else:
        plan = plan_levels(pods[:PODS_MAX], {}, {}, NODE, settings)
        assert not plan.changes
        assert all(each.message and each.message.isprintable() for each in plan.left)


def run_kubelet_pods(data: bytes) -> None:
    """Read the pods of a kubelet with their status, and compute their units."""
    try:
        pods = read_pod_list(["-"], lambda: data)
    except InputError as error:
        check_problems(error.problems)
        return
    expected = expect_node(pods[:PODS_MAX], NODE, KubeletSettings(config=Config()))
    assert all(is_unit_name(unit.name) for unit in expected.units)
    assert all(found.message.isprintable() for found in expected.findings)


def as_json(data: bytes) -> None:
    """Read a manifest as JSON."""
    run_manifest(data, "a.json")


def as_yaml(data: bytes) -> None:
    """Read a manifest that may be YAML or JSON."""
    run_manifest(data, "a.yaml")


_QUANTITIES = (b"1e3", b"0.1", b"-1", b"9223372036854775808", b"1Ei", b"100u", b"0x1F", b"1_0")
_YAML = (
    b"&a ",
    b"*a",
    b"<<: ",
    b"? ",
    b"- ",
    b": ",
    b"\n  ",
    b"!!str ",
    b"---\n",
    b"|\n",
    b"%TAG ",
)
_HOSTILE = (b"\x00", b"\xff", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0c", b"\x1b[31m", b"\xed\xa0\x80")
_JSON = (b"{", b"[", b"null", b"1e400", b'"\\ud800"', b'""', b"]", b"}", b",", b"true", b"-0.0")
_FIELDS = (b"replicas", b"limits", b"hugepages-2Mi", b"initContainers", b"List", b"items", b"uid")
_COMPOSE = (b"deploy: ", b"resources: ", b"1.5gb", b"cpu_shares: ", b"scale: ", b"x-podslice: ")
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

TARGETS = (
    Target(
        name="frame", run=run_frame, seeds=("tests/fuzz/corpus/stream/*",), tokens=_FRAME, calls=40
    ),
    Target(name="stream", run=run_stream, tokens=_FRAME, calls=60),
    Target(name="handshake", run=run_handshake, tokens=(b"\r\n", b"OK ", b"\0"), calls=20),
    Target(
        name="yaml",
        run=as_yaml,
        seeds=("tests/cases/hostile/*.yaml", "examples/**/*.yaml"),
        tokens=(*_YAML, *_QUANTITIES, *_HOSTILE, *_FIELDS),
        calls=2000,
    ),
    Target(
        name="json",
        run=as_json,
        seeds=("tests/cases/hostile/*.json",),
        tokens=(*_JSON, *_QUANTITIES, *_HOSTILE, *_FIELDS),
        calls=2000,
    ),
    Target(
        name="compose",
        run=run_compose,
        seeds=("tests/unit/features/compose/cases/*/project.yaml",),
        tokens=(*_YAML, *_QUANTITIES, *_HOSTILE, *_COMPOSE),
        calls=2000,
    ),
    Target(
        name="toml",
        run=run_toml,
        seeds=("examples/*.toml",),
        tokens=(
            *_QUANTITIES,
            *_HOSTILE,
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
        tokens=(*_QUANTITIES, *_HOSTILE, b"=", b",", b"<", b"%", b"/", b"\n", b"1h30m", b".slice"),
        calls=400,
    ),
    Target(
        name="kubelet-config",
        run=run_kubelet_config,
        tokens=(*_YAML, *_JSON, *_QUANTITIES, *_HOSTILE, b"true", b"100ms", b"10%"),
        calls=2000,
    ),
    Target(
        name="kubeconfig",
        run=run_kubeconfig,
        tokens=(*_YAML, *_JSON, *_HOSTILE, b"-data", b"tokenFile: kubeconfig", b"Zm9v"),
        calls=2000,
    ),
    Target(
        name="kubelet-pods",
        run=run_kubelet_pods,
        tokens=(*_JSON, *_QUANTITIES, *_HOSTILE, *_FIELDS, b"status", b"containerd://"),
        calls=3000,
    ),
    Target(
        name="pod-levels",
        run=run_pod_levels,
        seeds=("tests/fuzz/corpus/kubelet-pods/*",),
        tokens=(*_JSON, *_QUANTITIES, *_HOSTILE, *_FIELDS, b"podslice.io/resources", b"{"),
        calls=3000,
    ),
    Target(name="record", run=run_record, tokens=(*_JSON, *_QUANTITIES, *_FIELDS), calls=2000),
    Target(
        name="range",
        run=run_range,
        tokens=(
            *_JSON,
            b'"values":[[',
            b'"1e308"',
            b'"NaN"',
            b"1e300",
            b'"metric":{',
            b"success",
            b'"container":"a"',
        ),
        calls=400,
    ),
    Target(
        name="usage",
        run=run_usage,
        tokens=(*_JSON, b"1e308", b"-1", b"9223372036854775807", b'"buckets":{', b'"175":10000'),
        calls=2000,
    ),
    Target(
        name="ends",
        run=run_ends,
        tokens=(*_JSON, *_HOSTILE, b"\0", b"=", b"EXIT_CODE=exited", b"oom_kill 1", b"SIGKILL"),
        calls=2000,
    ),
    Target(name="proc", run=run_proc, tokens=(*_HOSTILE, b")", b"(", b" ", b"0::", b":"), calls=60),
    Target(
        name="kernel", run=run_kernel, tokens=(*_HOSTILE, b"0::", b"-", b",", b"\\040"), calls=60
    ),
    Target(name="journal", run=run_journal, tokens=(*_JSON, *_HOSTILE, b"[256]"), calls=60),
)
"""Every reader. To add one, add a row and seeds in `corpus`."""
