"""The command line on a simulated machine: node, configuration, /run and systemd."""

import asyncio
import gc
import json
import os
import sys
import warnings
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import pytest

from podslice import __main__
from podslice.cli import app, host, manual_log, options, wanted
from podslice.cli.app import run
from podslice.cli.verb_table import VERBS
from podslice.errors import BusUnavailable
from podslice.features.quadlet import containers
from podslice.features.quadlet import services as quadlet_services
from podslice.features.quadlet import verbs as quadlets
from podslice.inputs.options.config_files import read_as, read_files
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.proc import find_kubelets, find_manager
from podslice.model.node import regular_topology
from podslice.systemd import bus
from podslice.systemd import journal as journal_module
from podslice.usage import runtimes
from tests.fake_systemd import FakeSystemd
from tests.unit.agent.fakes import Events
from tests.unit.builders import make_files, node
from tests.unit.cli.podman import WithPodman
from tests.unit.cli.pods import WEB

try:
    import fastjsonschema
except ImportError:  # with the packages of a distribution: documents are not validated
    fastjsonschema = None


SCHEMAS = Path(__file__).resolve().parents[3] / "docs/json"
"""The schemas of documents; `test_schemas` compares them with the reports, which takes seconds."""


class Ended(NamedTuple):
    """The result of a run."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="module", autouse=True)
def no_loop():
    """An old pytest-asyncio leaves a loop after coroutines; a verb, with its own, would lose it open."""
    with suppress(RuntimeError), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        asyncio.get_event_loop().close()


def _kubelets(root):
    """Ignore a kubelet on the machine that runs the tests."""
    return iter(()) if root == Path("/") else find_kubelets(root)


def _find_manager(root, *, user=False):
    """Leave the files of this host alone."""
    return replace(
        find_manager(user=user),
        config_directory=str(root / f"etc-{user}"),
        state_directory=str(root / f"lib-{user}"),
    )


@pytest.fixture
def journal():
    """The events that verbs log."""
    return Events()


@pytest.fixture
def here(tmp_path, monkeypatch, journal):
    """The directory that stands for the machine; the current directory is beside it."""
    root = tmp_path / "machine"
    machine = node("cpu=8,memory=32Gi,ephemeral-storage=100Gi,pid=32768")
    monkeypatch.setattr(host, "read_node", lambda **_: machine)
    cpus = regular_topology(sockets=1, numa=1, cores=8, threads=1)
    monkeypatch.setattr(host, "read_cpu_topology", lambda: cpus)
    monkeypatch.setattr(host, "runtime_directory", lambda manager: root / f"run-{manager.is_user}")
    monkeypatch.setattr(options, "find_manager", partial(_find_manager, root))
    monkeypatch.setattr(options, "read_files", partial(read_files, root=root))
    monkeypatch.setattr(options, "read_as", partial(read_as, root=root))
    monkeypatch.setattr("podslice.reconcile.world.find_kubelets", _kubelets)
    monkeypatch.setattr(wanted, "manifest_directories", lambda *_: (str(root / "manifests"),))
    monkeypatch.setattr(host, "usage_directory", lambda *_: str(root / "usage"))
    monkeypatch.setattr(CgroupFs.__new__, "__defaults__", (root / "cgroup",))
    monkeypatch.setattr(manual_log, "read_login_uid", lambda: None)
    for name in ("SUDO_USER", "SUDO_UID"):
        monkeypatch.delenv(name, raising=False)
    for module in (containers, manual_log):
        monkeypatch.setattr(module, "Journal", lambda **_: journal)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return root


@pytest.fixture(autouse=True)
def runtimes_hold(monkeypatch):
    """The containers of podman and docker: a list, empty at first."""
    found = []

    async def containers(pods, **_):
        return tuple(found)

    monkeypatch.setattr(runtimes, "containers", containers)
    return found


@pytest.fixture(autouse=True)
def messages(monkeypatch):
    """The messages of units and containers: by their name or id, none at first."""
    found = {}

    def read_messages(query):
        entries = (
            entry for name in (*query.units, *query.containers) for entry in found.get(name, ())
        )
        return tuple(entries)[-query.lines :]

    monkeypatch.setattr(journal_module, "read_messages", read_messages)
    return found


@pytest.fixture
def memory(here, monkeypatch):
    """A machine with systemd."""
    client = FakeSystemd()
    monkeypatch.setattr(bus, "Bus", lambda *_, **__: client)
    return client


@pytest.fixture
def no_systemd(here, monkeypatch):
    """A machine without systemd."""

    def refuse(*_, **__):
        return Absent()

    monkeypatch.setattr(bus, "Bus", refuse)


class Absent:
    """A connection that cannot be opened."""

    async def __aenter__(self):
        raise BusUnavailable("unix:path=/run/dbus: no such file or directory")

    async def __aexit__(self, *_):
        pass


@cache
def _validator(name):
    """Return the validator of a verb's documents, and the keys that the schema has."""
    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    reports = [
        schema,
        *(schema["$defs"][each["$ref"].rpartition("/")[2]] for each in schema.get("anyOf", ())),
    ]
    keys = {key for each in reports for key in each.get("properties", ())}
    return fastjsonschema.compile(schema), keys


def _validate(arguments, out):
    """Validate the JSON documents of a verb against the schema of its report, or that of errors.

    The schema permits further keys, since later versions add some; here each one is in it.
    """
    verb = next((each for each in arguments if each in VERBS), "")
    below = " ".join([verb, *arguments[arguments.index(verb) + 1 :][:1]]) if verb else ""
    name = below if below in VERBS else verb
    decoder, rest = json.JSONDecoder(), out.strip()
    while name and rest:
        found, end = decoder.raw_decode(rest)
        rest = rest[end:].strip()
        if found.keys() == {"version", "problems"}:
            name = "problems"
        if name == "problems" or VERBS[name].report:
            validate, keys = _validator(name.replace(" ", "-"))
            validate(found)
            assert found.keys() <= keys


def _is_json(arguments):
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "-ojson" in words or "--output=json" in words or ("json" in words and "-o" in words)


@pytest.fixture(scope="session", autouse=True)
def command_line():
    """Build the command line once: it is the same in each of some thousand calls."""
    with pytest.MonkeyPatch.context() as patched:
        for name in ("make_app", "command_of"):
            patched.setattr(app, name, cache(getattr(app, name)))
        yield


@pytest.fixture
def podslice(here, capsys):
    """Run a verb: `podslice("plan", "-f", "web.yaml")`; what it prints as JSON fits its schema."""

    def call(*arguments):
        capsys.readouterr()
        code = run(list(arguments))
        ended = Ended(code, *capsys.readouterr())
        if (
            fastjsonschema and _is_json(arguments) and "logs" not in arguments
        ):  # a format of journalctl
            _validate(arguments, ended.out)
        return ended

    return call


@pytest.fixture
def golden(update_cases):
    """Compare a text with that of a file in `golden`."""

    def compare(name, text):
        file = Path(__file__).with_name("golden") / name
        if update_cases:
            file.write_text(text)
        assert file.read_text() == text

    return compare


@pytest.fixture
def files(here, tmp_path):
    """Write files into the current directory."""
    return partial(make_files, tmp_path / "work")


@pytest.fixture
def main(here, monkeypatch):
    """Run the whole program; it leaves the streams and the collector of garbage as they were."""
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["podslice", *arguments])
        monkeypatch.setattr(os, "_exit", sys.exit)
        __main__.main()

    yield call
    gc.enable()


@pytest.fixture
def web(files):
    """The manifest of one pod with two containers."""
    files({"web.yaml": WEB})
    return "web.yaml"


@pytest.fixture
def quadlet_directory(here):
    return here / "etc-False/containers/systemd"


@pytest.fixture
def commands(monkeypatch):
    """The commands that were run; what they print may be set."""
    found = []

    async def run(*argv):
        found.append(argv)
        return "no such image\n" if argv[0] == "journalctl" else ""

    monkeypatch.setattr(quadlet_services, "run", run)
    monkeypatch.setattr(quadlet_services, "run_patiently", run)
    return found


@pytest.fixture
def podman_memory(here, quadlet_directory, commands, monkeypatch):
    client = WithPodman(quadlet_directory)
    monkeypatch.setattr(bus, "Bus", lambda *_, **__: client)
    monkeypatch.setattr(quadlets, "_version_of", lambda _: (257, 0))
    return client
