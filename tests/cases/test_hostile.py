"""Broken and hostile manifests: rejected with an address and a reason, quickly, in little memory."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

import pytest
import yaml

from podslice.errors import Severity
from podslice.inputs.budget import PROBLEMS_MAX
from podslice.inputs.manifest import parse
from podslice.inputs.manifest.load import format_manifest, load_pods, parse_manifest
from tests.bombs import BOMBS, write
from tests.cases.hostile_inputs import CASES, ERRORS, GENERATED, INPUTS, write_inputs

ROOT = Path(__file__).parents[2]
MIB = 2**20
MISTAKES = {"mistakes", "unknown-fields", "invalid-documents"}
CPU_SECONDS_MAX = 4.0  # of the process that reads: what else the host does does not count
PIPE_SECONDS_MAX = 30.0
STUCK_SECONDS = 600.0  # on a busy host each second of the processor takes many

POD = b"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: app}]\n"


def load(*sources):
    return load_pods([str(source) for source in sources], stdin=lambda: b"")


def errors(loaded):
    return [p for p in loaded.all_problems if p.severity is Severity.ERROR]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Every input as a file."""
    directory = tmp_path_factory.mktemp("hostile")
    write_inputs(directory)
    return directory


def matches(problem, path, row):
    at = row.get("at", "")
    where = str(path) + (at if at.startswith("[") else f": {at}" if at else "")
    said = row["message"] in problem.message and row.get("hint", "") in problem.hint
    return problem.where == where and said


def test_every_generated_input_has_a_case():
    assert GENERATED.keys() <= ERRORS.keys()
    assert all(ERRORS.values())
    assert len(CASES) == len(INPUTS)


@pytest.mark.parametrize("parser", ["c", "python"])
@pytest.mark.parametrize("name", ERRORS)
def test_file_is_rejected_with_address_and_reason(name, parser, folder, monkeypatch):
    path = folder / name
    monkeypatch.setattr(
        parse, "YAML_LOADER", yaml.SafeLoader if parser == "python" else parse.YAML_LOADER
    )
    started = time.process_time()
    found = errors(load(path))
    assert time.process_time() - started < CPU_SECONDS_MAX
    for row in ERRORS[name]:
        assert any(matches(problem, path, row) for problem in found), (row, found)
    for problem in found:
        assert problem.where.startswith(str(path))
        assert problem.message
        assert str(problem).isprintable()
        assert len(problem.message) < 500


@pytest.mark.parametrize("name", ERRORS)
def test_pods_of_rejected_files_are_invalid_or_whole(name, folder):
    loaded = load(folder / name)
    bad = [pod for pod in loaded.pods if not pod.is_valid]
    assert bad or errors(loaded)
    for pod in loaded.pods:
        assert pod.key.isprintable()
        assert pod.where.startswith(str(folder / name))


PIECES = [
    *(b"[", b"{", b"&a ", b"*a", b"<<: *a\n", b"!!x ", b"\n", b"  ", b"- ", b": ", b"? ", b"'"),
    *(b'"', b"\0", b"~", b"---\n", b"|\n", b"kind: List\n", b"items:\n", b"\xff", b"\t", b"]"),
    *(b"}", b","),
]


@pytest.mark.parametrize("seed", range(20))
def test_no_mutation_of_a_manifest_is_more_than_a_problem(seed):
    """Every mutation is answered, and accepted pods survive being recorded."""
    random = Random(seed)
    for _ in range(20):
        mutant = bytearray(INPUTS[random.choice(sorted(INPUTS))][:2000] + POD)
        for _ in range(random.randint(1, 8)):
            start = random.randrange(len(mutant))
            mutant[start : start + random.choice((0, 0, 1, 9))] = random.choice(PIECES)
        loaded = load_pods(["-"], stdin=lambda text=mutant: bytes(text))
        assert all(str(problem).isprintable() for problem in loaded.all_problems)
        for pod in loaded.pods:
            if pod.is_valid:
                assert parse_manifest(format_manifest(pod), "record").key == pod.key


# Generated when they are used, because they are large or no files at all.

LARGE = {
    "brackets": lambda: b"[" * (3 * MIB),
    "brackets-in-a-mapping": lambda: b"a: " + b"[" * (3 * MIB),
    "braces": lambda: b"a: " + b"{" * (3 * MIB),
    "dashes-in-one-line": lambda: b"- " * (3 * MIB),
    "complex-keys": lambda: b"? " * (3 * MIB),
    "numbers": lambda: b"a: [" + b"1," * (3 * MIB) + b"]",
    "numbers-in-containers": lambda: POD.replace(b"{name: app}", b"1," * 900_000),
    "keys": lambda: b"".join(b"k%d: 1\n" % n for n in range(600_000)),
    "one-key-again-and-again": lambda: b"a: 1\n" * MIB,
    "anchors": lambda: b"".join(b"- &a%d x\n" % n for n in range(600_000)),
    "documents": lambda: b"---\n" * (MIB),
    "scalar-documents": lambda: b"---\na\n" * MIB,
    "lines-of-one-scalar": lambda: b"a\n" * (3 * MIB),
    "open-quote": lambda: b'a: "' + b"x" * (13 * MIB),
    "long-key": lambda: b"x" * (13 * MIB) + b": 1",
    "comment": lambda: b"#" * (13 * MIB),
    "tags": lambda: b"- !!x y\n" * 700_000,
    "exclamation-marks": lambda: b"!" * (3 * MIB),
    "workloads-of-a-thousand": lambda: b"".join(
        b"---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d%d}\n"
        b"spec: {replicas: 1000, template: {spec: {containers: [{name: a}]}}}\n" % n
        for n in range(5000)
    ),
    "lists-by-aliases": lambda: (
        b"a: &a {apiVersion: v1, kind: Pod, metadata: {name: x}}\nb: &b {apiVersion: v1, kind: List, items: ["
        + b"*a," * 100
        + b"]}\nkind: List\nitems: ["
        + b"*b," * 1000
        + b"]"
    ),
    "mistakes": lambda: POD.replace(
        b"{name: app}",
        b"{resources: {limits: {" + b",".join(b"k%d: x" % n for n in range(60)) + b"}}}," * 200,
    ),
    "50-megabytes": lambda: b"# 50 MB\n" + b"a: b\n" * (3 * MIB),
}
LARGE_JSON = {
    "brackets": lambda: b"[" * (3 * MIB),
    "objects": lambda: b'{"a":' * MIB,
    "numbers": lambda: b'{"a": [' + b"1," * (3 * MIB) + b"1]}",
    "a-long-number": lambda: b'{"a": ' + b"9" * (13 * MIB) + b"}",
    "a-long-text": lambda: b'{"a": "' + b"\\u0041" * MIB + b"}",
}

# Each in a process of its own, so that its memory can be limited and measured. The server of these
# processes imports the program once.
SERVER = """
import json, os, resource, sys, time, traceback
from podslice.inputs.manifest.load import load_pods

def measure(path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resource.setrlimit(resource.RLIMIT_DATA, (400 * 2**20, 400 * 2**20))
    resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
    started = time.process_time()
    loaded = load_pods([path], stdin=lambda: b"")
    seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    errors = [[p.where, p.message] for p in loaded.all_problems if p.severity == "error"]
    return [seconds, (peak - before) // 1024, len(errors), errors[:100]]

while line := sys.stdin.readline():
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            text = json.dumps(measure(json.loads(line)))
        except BaseException:
            text = json.dumps(traceback.format_exc())
        with open(writer, "w") as opened:
            opened.write(text)
        os._exit(0)
    os.close(writer)
    with open(reader) as opened:
        text = opened.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(text or json.dumps(f"the process ended with {code}"), flush=True)
"""


@pytest.fixture(scope="module")
def load_apart():
    """Load a path in a process of its own; return its seconds, mebibytes and errors."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as server:

        def load_path(path):
            stuck = threading.Timer(STUCK_SECONDS, server.kill)
            stuck.start()
            server.stdin.write(f"{json.dumps(str(path))}\n")
            server.stdin.flush()
            found = json.loads(server.stdout.readline())
            stuck.cancel()
            assert isinstance(found, list), found
            return found

        yield load_path


def assert_rejected(path, result):
    seconds, mebibytes, count, found = result
    assert count > 0
    assert all(where.startswith(str(path)) and message for where, message in found)
    assert seconds < CPU_SECONDS_MAX, "nominal is 1 s"
    assert mebibytes < 100
    return count, found


@pytest.mark.parametrize(
    ("name", "data"),
    [*((f"{name}.yaml", data) for name, data in LARGE.items())]
    + [(f"{name}.json", data) for name, data in LARGE_JSON.items()],
    ids=[*(f"yaml: {name}" for name in LARGE), *(f"json: {name}" for name in LARGE_JSON)],
)
def test_a_large_file_is_rejected_in_time_and_memory(name, data, tmp_path, load_apart):
    path = tmp_path / name
    path.write_bytes(data())
    assert_rejected(path, load_apart(path))


@pytest.mark.parametrize("name", sorted(BOMBS.keys() - MISTAKES))
def test_a_bomb_is_rejected_in_time_and_memory_with_one_message(name, tmp_path, load_apart):
    write(name, tmp_path)
    count, found = assert_rejected(tmp_path, load_apart(tmp_path))
    assert count == 1, found


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_many_problems_are_counted_up_to_a_limit(name, tmp_path, load_apart):
    write(name, tmp_path)
    count, _ = assert_rejected(tmp_path, load_apart(tmp_path))
    assert count <= PROBLEMS_MAX + 1


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/full"])
def test_devices_are_rejected(device):
    (problem,) = errors(load(device))
    assert (problem.where, problem.message) == (device, "is a device, not a regular file")


def test_sockets_are_rejected(tmp_path):
    path = tmp_path / "s.yaml"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        (problem,) = errors(load(path))
    assert problem.where == str(path)


def test_pipe_without_writer_is_rejected_in_time(tmp_path):
    path = tmp_path / "pipe.yaml"
    os.mkfifo(path)
    started = time.monotonic()
    (problem,) = errors(load(path))
    assert problem.message == "is a pipe that no process writes to"
    assert time.monotonic() - started < PIPE_SECONDS_MAX


def test_link_to_itself_is_rejected(tmp_path):
    path = tmp_path / "loop.yaml"
    path.symlink_to(path)
    (problem,) = errors(load(path))
    assert "symbolic links" in problem.message
    (problem,) = errors(load(tmp_path))
    assert problem.where == str(path)


def test_directory_that_links_to_itself_ends(tmp_path):
    (tmp_path / "again.yaml").symlink_to(tmp_path, target_is_directory=True)
    (problem,) = errors(load(tmp_path))
    assert "has no *.json" in problem.message


def test_missing_and_forbidden_files_are_rejected(tmp_path):
    (problem,) = errors(load(tmp_path / "none.yaml"))
    assert problem.message == "no such file or directory"
    (problem,) = errors(load("\0"))
    assert problem.where == "\\x00"
    (problem,) = errors(load("https://example.com/pod.yaml"))
    assert problem.hint == "save it, or pipe it into '-f -'"
    (problem,) = errors(load("x" * 5000))
    assert "name too long" in problem.message


def test_file_names_are_escaped_for_terminals(tmp_path):
    path = tmp_path / "\x1b[2J\n.yaml"
    path.write_bytes(b"kind: Pod\n")
    for problem in load(path).all_problems:
        assert str(problem).isprintable()
        assert "\\x1b[2J\\n.yaml" in problem.where
