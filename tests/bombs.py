"""Manifests that are small as text and large as work, from hostile or careless users.

    python3 -m tests.bombs [NAME]...     the time and the memory of `podslice check` for each

Every bomb has the same bytes each time. Its cost without a budget was
measured with podslice at e503f34.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

MIB = 2**20

_WORKLOAD = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d{number}}}\nspec: {{replicas: 1000, template: {{spec: {spec}}}}}\n"
_DOCUMENT = "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p{number}}}\nspec: {spec}\n"


def _workloads(count: int, spec: str) -> bytes:
    return "".join(_WORKLOAD.format(number=n, spec=spec) for n in range(count)).encode()


def _pods(count: int, spec: str) -> bytes:
    return "".join(_DOCUMENT.format(number=n, spec=spec) for n in range(count)).encode()


def _containers(count: int) -> str:
    entries = ",".join(
        f"{{name: c{n}, resources: {{limits: {{cpu: 1m, memory: 1Mi}}}}}}" for n in range(count)
    )
    return f"{{containers: [{entries}]}}"


def _volumes(count: int) -> str:
    entries = ",".join(f"{{name: v{n}, emptyDir: {{medium: Memory}}}}" for n in range(count))
    return f"{{containers: [{{name: a}}], volumes: [{entries}]}}"


def _mistakes(count: int) -> str:
    amounts = ",".join(f"k{n}: x" for n in range(count))
    return f"{{containers: [{{name: a, resources: {{limits: {{{amounts}}}}}}}]}}"


def _unknown(count: int) -> str:
    fields = ",".join(f"k{n}: x" for n in range(count))
    return f"{{containers: [{{name: a, {fields}}}]}}"


def _amounts(containers: int, count: int) -> str:
    amounts = ",".join(f"x/k{n}: 1" for n in range(count))
    stated = f"resources: {{limits: {{{amounts}}}, requests: {{{amounts}}}}}"
    entries = ",".join(f"{{name: c{n}, {stated}}}" for n in range(containers))
    return f"{{containers: [{entries}]}}"


BOMBS: dict[str, Callable[[], dict[str, bytes]]] = {
    "replicas-of-containers": lambda: {"a.yaml": _workloads(1, _containers(256))},
    "replicas-of-volumes": lambda: {"a.yaml": _workloads(20, _volumes(256))},
    "tag-directives": lambda: {
        "a.yaml": b"".join(b"%%TAG !t%d! t\n" % n for n in range(60_000)) + b"--- a\n"
    },
    "mistakes": lambda: {"a.yaml": _pods(9_000, _mistakes(60))},
    "unknown-fields": lambda: {"a.yaml": _pods(5_000, _unknown(60))},
    "invalid-documents": lambda: {"a.yaml": b"---\na: 1\n" * 19_000},
    "files-of-replicas": lambda: {
        f"f{n}.yaml": _workloads(20, "{containers: [{name: a}]}").replace(
            b"name: d", b"name: f%dd" % n
        )
        for n in range(40)
    },
    "lines-of-one-text": lambda: {"a.yaml": b"a\n" * (4 * MIB - 1)},
    "one-comment": lambda: {"a.yaml": b"#" * (8 * MIB - 1)},
    "one-quoted-text": lambda: {"a.yaml": b'a: "' + b"x" * (7 * MIB) + b'"\n'},
    "numbers": lambda: {"a.yaml": b"a: [" + b"1," * (3 * MIB) + b"]"},
    "mappings": lambda: {"a.yaml": b"- {a: 1}\n" * 800_000},
    "numbers-as-json": lambda: {"a.json": b'{"a": [' + b"1," * (3 * MIB) + b"1]}"},
    "objects-as-json": lambda: {"a.json": b"[" + b'{"a":1},' * 800_000 + b"{}]"},
    "brackets-as-json": lambda: {"a.json": b"[" * (7 * MIB)},
    "text-as-json": lambda: {"a.json": b'["' + b"\\u0041" * MIB + b'"]'},
    "documents": lambda: {"a.yaml": b"---\n" * (2 * MIB - 1)},
    "amounts-of-one-pod": lambda: {"a.yaml": _pods(1, _amounts(256, 64))},
}
"""Name → the files of a directory, by their names."""


def write(name: str, directory: Path) -> None:
    """Write the files of a bomb."""
    for file, data in BOMBS[name]().items():
        (directory / file).write_bytes(data)


_CHILD = """
import json, resource, subprocess, sys, time
started = time.monotonic()
done = subprocess.run([sys.executable, "-m", "podslice", *sys.argv[1:]], capture_output=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({
    "wall_sec": time.monotonic() - started,
    "cpu_sec": used.ru_utime + used.ru_stime,
    "peak_mib": used.ru_maxrss / 1024,
    "code": done.returncode,
    "printed": len(done.stdout) + len(done.stderr),
    "lines": done.stdout.count(b"\\n") + done.stderr.count(b"\\n"),
    "last": (done.stderr or done.stdout)[-300:].decode("utf-8", "replace"),
}))
"""


def measure(*arguments: str) -> dict[str, object]:
    """Run a verb of podslice in a separate process; return its cost and output."""
    argv = (sys.executable, "-c", _CHILD, *arguments)
    source = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run(argv, capture_output=True, check=True, env=environment)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def main(names: list[str]) -> int:
    """Print one line for each bomb."""
    for name in names or BOMBS:
        with tempfile.TemporaryDirectory() as directory:
            write(name, Path(directory))
            size = sum(path.stat().st_size for path in Path(directory).iterdir())
            took = measure("check", "-f", directory)
        sys.stdout.write(
            f"{name:24} {size / 1024:8.0f} KiB {took['cpu_sec']:7.2f} s {took['peak_mib']:6.0f} MiB"
            f" {took['lines']:6} lines {took['printed']:9} bytes, exit code {took['code']}\n"
        )
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
