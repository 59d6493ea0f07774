"""Sessions on the simulated machine: `transcripts/*.txt` have commands and all that they print.

A case begins with `=== what must hold`; `$ ` begins a command, and the lines below it are its output:
standard output, then standard error with `! `, then the exit code if it is not 0. After `cat > FILE`
they are the content of the file. `--update-cases` writes the output (without `-n`). The commands are
the methods of `Session`; MACHINE, WORK and REPO stand for paths, and `/etc/…` is below MACHINE.
"""

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from podslice.cli import overview, progress
from podslice.errors import Refused
from podslice.inputs.manifest.load import parse_manifest
from podslice.model.unit import INFINITY, TransientUnit, UnitName
from podslice.store.store import Store
from podslice.systemd import bus, journal
from podslice.usage import location
from tests.unit.builders import make_files, manifest
from tests.unit.cli.conftest import Absent
from tests.unit.cli.pods import (
    FULL,
    WEB,
    mark_evicted,
    of_present_verbs,
    podman_container,
    run_agent,
)

DIRECTORY = Path(__file__).with_name("transcripts")
REPO = Path(__file__).resolve().parents[3]
SAMPLES = {"web.yaml": WEB, "full.yaml": FULL}
"""The files that `cp` writes."""


class Case(NamedTuple):
    """A session: its title, and its commands with the lines below each."""

    file: Path
    title: str
    note: str
    blocks: list[tuple[str, str]]

    @property
    def text(self):
        body = "".join(f"$ {command}\n{lines}" for command, lines in self.blocks)
        return f"=== {self.title}\n{self.note}{body}"

    def is_possible(self):
        """Return whether all verbs are there: a feature may be absent."""
        lines = [shlex.split(command) for command, _ in self.blocks]
        ours = [words[1:] for words in lines if words[0] == "podslice"]
        return of_present_verbs(ours) == ours


def parse(file):
    for part in file.read_text().split("\n=== ")[1:]:
        title, _, body = part.partition("\n")
        note, *blocks = re.split(r"^\$ ", body.rstrip("\n") + "\n", flags=re.MULTILINE)
        pairs = [(head, lines) for head, _, lines in (each.partition("\n") for each in blocks)]
        yield Case(file, title, note, pairs)


CASES = [case for file in sorted(DIRECTORY.glob("*.txt")) for case in parse(file)]


def pairs_of(words):
    return [word.split("=", 1) for word in words]


def values_of(words):
    """Return `Name=value` as values: numbers, infinity and texts."""
    pairs = [(name, INFINITY if text == "infinity" else text) for name, text in pairs_of(words)]
    return {name: int(text) if str(text).isdigit() else text for name, text in pairs}


def select(found, path):
    """Return what a path selects in a document: `/pods/0/name`, `/units/*/pod`, `/a/b=c/d`."""
    for number, part in enumerate(path):
        if part == "*":
            return [select(each, path[number + 1 :]) for each in found]
        if "=" in part:
            key, value = part.split("=", 1)
            (found,) = (each for each in found if each.get(key) == value)
        else:
            found = found[int(part)] if isinstance(found, list) else found.get(part)
    return found


FILTERS = {
    "grep": lambda out, text: [line for line in out if re.search(text, line)],
    "head": lambda out, count: out[: int(count)],
    "tail": lambda out, count: out[-int(count) :],
    "quiet": lambda out: [],
    "json": lambda out, *paths: [
        json.dumps(select(json.loads("\n".join(out)), path.split("/")[1:]), ensure_ascii=False)
        for path in paths
    ],
}


class Session:
    """The commands of transcripts; each returns the lines that it prints."""

    def __init__(self, here, memory, podslice, runtimes_hold, monkeypatch):
        self.here, self.memory, self.call, self.monkeypatch = here, memory, podslice, monkeypatch
        self.runtimes_hold = runtimes_hold
        monkeypatch.setattr(location, "process_name", lambda pid, _: f"p{pid}")
        monkeypatch.setattr(journal, "read_events", lambda _: ())
        monkeypatch.setattr(overview, "INTERVAL_SEC", 0)
        monkeypatch.setattr(progress, "INTERVAL_SEC", 1e6)  # on a slow machine, too
        self.store = Store(here / "run-False")
        self.names = {str(here): "MACHINE", str(Path.cwd()): "WORK", str(REPO): "REPO"}

    def run(self, command, lines):
        content = lines
        for path, name in self.names.items():
            command, content = command.replace(name, path), content.replace(name, path)
        name, *words = shlex.split(command.replace("\\x1b", "\x1b"))
        if words[:1] == [">"]:
            make_files(self._path(words[1]).parent, {self._path(words[1]).name: content})
            return lines
        text = "".join(f"{line}\n" for line in getattr(self, name)(*words) or ())
        for path, name in self.names.items():
            text = text.replace(path, name)
        return text

    def _path(self, name):
        is_absolute = name.startswith("/") and not name.startswith(str(self.here.parent))
        return self.here / name.removeprefix("/") if is_absolute else Path(name)

    def podslice(self, *words):
        """Run a verb; `| json /path…`, `| grep RE`, `| head N`, `| tail N`, `| quiet` follow."""
        command, *filters = " ".join(shlex.quote(word) for word in words).split(" '|' ")
        ended = self.call(*shlex.split(command))
        assert not ended.out or ended.out.endswith("\n")
        out = ended.out.split("\n")[:-1]
        for name, *arguments in map(shlex.split, filters):
            out = FILTERS[name](out, *arguments)
        return [*out, *(f"! {line}" for line in ended.err.splitlines()), *self._code(ended.code)]

    def _code(self, code):
        return [f"[{code}]"] if code else []

    def cp(self, *names):
        """Write sample manifests."""
        for name in names:
            make_files(self._path(name).parent, {Path(name).name: SAMPLES[Path(name).name]})

    def pod(self, file, requests="", limits="", *fields):
        """Write a manifest: FILE.yaml, requests, limits, and fields of its metadata."""
        path = self._path(f"{file}.yaml")
        both = [dict(values_of(part.split(","))) if part else None for part in (requests, limits)]
        document = json.loads(manifest(path.stem, *both))
        document["metadata"] |= values_of(fields)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document))

    def sed(self, file, old, new):
        before = self._path(file).read_text()
        assert old in before
        self._path(file).write_text(before.replace(old, new))

    def rm(self, file):
        self._path(file).unlink()

    def cat(self, file):
        return self._path(file).read_text().splitlines()

    def ls(self, directory):
        """List files below a directory."""
        root = self._path(directory)
        return sorted(str(each.relative_to(root)) for each in root.rglob("*") if each.is_file())

    def systemctl(self, verb, unit, *words):
        """Act on the fake: set, start, stop, provide, tasks, refuse, allow."""
        name, fake = UnitName(unit), self.memory
        match verb:
            case "set":
                asyncio.run(fake.set_properties(name, values_of(words)))
            case "start":
                processes = {"PIDs": (3,)} if name.endswith(".scope") else {}
                properties = {**processes, **values_of(words)}
                asyncio.run(fake.start(TransientUnit(name=name, properties=properties)))
            case "stop":
                asyncio.run(fake.stop(name))
            case "provide":
                fake.provide(name, **values_of(words))
            case "tasks":
                fake.set_tasks(name, int(*words))
            case "refuse":
                fake.refuse(name, Refused("access denied"))
            case "allow":
                fake.refuse(name, None)

    def units(self, pattern, *keys):
        """List loaded units with values of properties."""
        found = asyncio.run(self.memory.observe([pattern]))
        rows = [(each.name, *(each.properties[key] for key in keys)) for each in found]
        return [" ".join(map(str, row)) for row in rows]

    def calls(self):
        """Print the calls of systemd since the last time."""
        made = sorted(f"{name} {count}" for name, count in self.memory.calls.items())
        self.memory.calls.clear()
        return made

    def no(self, what):
        """End systemd: `no systemd`."""
        assert what == "systemd"
        self.monkeypatch.setattr(bus, "Bus", lambda *_, **__: Absent())

    def evict(self, *names):
        """Mark the pods of `pod NAME` as evicted."""
        for name in names:
            mark_evicted(self.store, parse_manifest(json.loads(manifest(name)), where=name))

    def agent(self, *options):
        """Let an agent run."""
        run_agent(Store(self.here / f"run-{'--user' in options}"), pending=())

    def podman(self, group, *fields):
        """Let podman have a container, of main of shop/web, in a control group."""
        values = {name: value or None for name, value in values_of(fields).items()}
        self.runtimes_hold.append(podman_container(group, **values))

    def group(self, name, *files):
        """Write files of a control group, with a line for each part: `cgroup.procs=3,4`."""
        texts = {file: text.replace(",", "\n") + "\n" for file, text in pairs_of(files)}
        make_files(self.here / "cgroup", {"cgroup.controllers": ""})
        make_files(self.here / f"cgroup{name}", texts)

    def path(self, *programs):
        """Let there be only these programs."""
        make_files(Path("bin"), dict.fromkeys(programs, ""))
        for each in Path("bin").iterdir():
            each.chmod(0o755)
        self.monkeypatch.setenv("PATH", str(Path("bin").resolve()))

    def let(self, name, *words):
        """Define a name for options."""
        self.names[" ".join(words)] = name


@pytest.fixture
def session(here, memory, podslice, runtimes_hold, monkeypatch):
    return Session(here, memory, podslice, runtimes_hold, monkeypatch)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{case.file.stem}: {case.title}")
        for case in CASES
        if case.is_possible()
    ],
)
def test_a_session_prints_its_transcript(session, case, update_cases):
    made = case._replace(
        blocks=[(command, session.run(command, lines)) for command, lines in case.blocks]
    )
    if update_cases:
        text = f"{case.file.read_text()}\n"
        case.file.write_text(text.replace(f"{case.text}\n", f"{made.text}\n")[:-1])
    else:
        assert made.text.rstrip() == case.text.rstrip()


def test_the_titles_of_transcripts_differ():
    titles = [(case.file, case.title) for case in CASES]
    assert len(set(titles)) == len(titles)
