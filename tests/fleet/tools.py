"""Ansible and its linters, as locked, in an environment of their own in the lab's cache.

They are not in the environment for development: nothing but these tests uses them, and their
dependencies must not decide about its versions.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.lab import deps
from tests.lab.image import ensure_dir, make_key
from tests.lab.machine import LabError

LOCK = Path(__file__).with_name("requirements.txt")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
KIND, NAME = "ansible", f"python{PYTHON}"


def ensure_tools():
    """Return the directory of the environment; create it once."""
    key = make_key(LOCK, sys.version)
    return ensure_dir(KIND, NAME, key, lambda new: _install(new, f"{NAME}-{key}"))


def _install(new, name):
    deps.run_tool(sys.executable, "-m", "venv", str(new))
    deps.run_tool(
        *(str(new / "bin/pip"), "install", "--quiet", "--no-deps", "--require-hashes"),
        f"--requirement={LOCK}",
    )
    # scripts begin with the path of the interpreter, which is that of the finished directory
    for script in (new / "bin").iterdir():
        data = b"" if script.is_symlink() else script.read_bytes()
        if data.startswith(b"#!"):
            script.write_bytes(data.replace(os.fsencode(new), os.fsencode(new.with_name(name)), 1))


def environment(tools, home):
    """Return variables for a program of the environment, without those of the user."""
    home.mkdir(parents=True, exist_ok=True)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not re.match("ANSIBLE|PYTHON|PYTEST|PODSLICE|COV|XDG", name)
    }
    return {
        **kept,
        "PATH": f"{tools}/bin:{deps.PATH}",
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_NOCOLOR": "1",
        "COLUMNS": "100",
    }


def run_tool(tools, home, *words, cwd=None, env=None):
    """Run a program of the environment, and return what it has printed and its exit code."""
    return subprocess.run(
        [tools / "bin" / words[0], *words[1:]],
        env={**environment(tools, home), **(env or {})},
        cwd=cwd,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def ensure_sanity(collection, left_out):
    """Return a home with the environments of ansible-test's sanity tests; create them once."""
    tools = ensure_tools()
    name = f"sanity{PYTHON}"
    key = make_key(tools.name, GET_PIP, *left_out)
    return ensure_dir(KIND, name, key, lambda new: _prime(tools, collection, left_out, new))


def sanity(tools, home, collection, left_out, *more):
    """Run sanity tests of a collection that is below a directory `ansible_collections`."""
    skipped = [f"--skip-test={name}" for name in left_out]
    words = ("ansible-test", "sanity", f"--python={PYTHON}", *skipped, *more)
    return run_tool(tools, home, *words, cwd=collection)


# ansible-test downloads get-pip.py, which is in no registry, to install pip in an empty environment
GET_PIP = """\
import shutil
import sysconfig

shutil.copytree({pip!r}, sysconfig.get_path("purelib") + "/pip")
"""


def _prime(tools, collection, left_out, new):
    cache = new / ".ansible/test/cache"
    cache.mkdir(parents=True)
    (packages,) = (tools / "lib").glob("python*/site-packages")
    source = (packages / "ansible_test/_internal/python_requirements.py").read_text()
    for version in re.findall(r"\bpip='([0-9.]+)'", source):
        script = cache / f"get_pip_{version.replace('.', '_')}.py"
        script.write_text(GET_PIP.format(pip=str(packages / "pip")))
    done = sanity(tools, new, collection, left_out, "--prime-venvs")
    if done.returncode:
        raise LabError(done.stdout + done.stderr)
