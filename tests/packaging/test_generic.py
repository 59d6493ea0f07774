"""The package for other releases of Debian and Ubuntu: compiled libraries for several Pythons.

The tests of each release run in one machine, offline, in the order of this file: each continues from
the state that the previous one left. Kernel and units are those of the other packages, which
test_install.py and test_upgrade.py check; test_deb.py and test_sbom.py check the content.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import subprocess
import sys
import zipfile

import pytest

from podslice import __version__
from tests.host.scenario import units
from tests.lab.namespace import Namespace
from tests.packaging.builds import ROOT, install, read_deb
from tests.packaging.installed import wait_until
from tests.packaging.release import POD, Host

KIND = "generic-amd64"
HOME = "/usr/lib/podslice/python"
HOOK = "/usr/share/python3/runtime.d/podslice.rtupdate"
PYTHONS = {"bookworm": "3.11", "trixie": "3.13", "forky": "3.14"}
"""The releases, each with another Python; with systemd 252, 257 and 262."""
INIT_POD = POD.replace("spec:\n", "spec:\n  initContainers: [{name: first}]\n")
BROKEN = "raise SystemExit('a file of the user is imported')\n"
STAND_IN = """
import _imp, sys
sys.version_info = {version}
_imp.extension_suffixes = lambda: ["{suffix}"]
exec(compile(open("/usr/bin/podslice").read(), "/usr/bin/podslice", "exec"))
"""
# the names of files, and the number of the processor in their headers
ARCHITECTURES = {"generic-amd64": ("x86_64", 62), "generic-arm64": ("aarch64", 183)}
ABIS = ("cpython-311", "cpython-312", "cpython-313", "cpython-314")
SYSTEM_LIBRARIES = {"libc", "libdl", "libgcc_s", "libpthread", "librt", "ld-linux-x86-64"}


@pytest.fixture(scope="module", params=PYTHONS)
def host(request, packages):
    with Namespace(request.param) as namespace:
        host = Host(namespace, KIND, packages)
        host.seen["release"] = request.param
        host.seen["files"] = host.files()
        if request.param == "bookworm":
            install(namespace, packages.get("bookworm"))
        host.install_present()
        yield host


def compiled(host):
    """Return the compiled modules by their Python's tag, and the number of modules."""
    script = f"find {HOME} -name '*.pyc'; find {HOME} -name '*.py' | wc -l"
    *names, count = host.run("sh", "-c", script).stdout.split()
    found = {}
    for name in names:
        found.setdefault(name.split(".")[-2], []).append(name)
    return {tag: len(each) for tag, each in found.items()}, int(count)


def test_apt_installs_it_also_in_place_of_the_package_for_debian_12(host):
    shown = json.loads(host.podslice("version", "-o", "json").stdout)
    assert shown["podslice"] == __version__
    assert shown["python"].startswith(f"{PYTHONS[host.seen['release']]}.")
    stated = host.run("dpkg-query", "--show", "--showformat=${Version}", "podslice").stdout
    assert stated == f"{__version__}~generic"
    assert host.run("dpkg", "--verify", "podslice").stdout == ""
    assert host.run("dpkg", "--audit").stdout == ""


def test_pods_are_applied_shown_and_deleted(host):
    host.machine.put("/root/web.yaml", POD)
    host.podslice("apply", "-f", "/root/web.yaml")
    host.podslice("run", "--detach", "web", "--", "sleep", "infinity")
    status = json.loads(host.podslice("status", "-o", "json").stdout)
    (shown,) = [unit for unit in status["units"] if unit["pod"] and unit["kind"] == "slice"]
    assert (status["in_sync"], shown["pod"]) == (True, "default/web")
    assert "sleep" in host.run("systemctl", "status", shown["name"]).stdout
    host.podslice("delete", "--all", "--grace-period", "0")
    assert units(host.machine) == []


def test_the_end_of_an_init_container_is_recorded_by_the_installed_program(host):
    host.machine.put("/root/init.yaml", INIT_POD)
    host.podslice("apply", "-f", "/root/init.yaml")
    host.podslice("run", "--detach", "web", "-c", "first", "--", "true")
    wait_until(host.machine, """podslice phase web -o json | grep -q '"running"'""")
    host.podslice("delete", "--all")


def test_modules_are_compiled_for_the_python_of_the_machine_only(host):
    tag = f"cpython-{PYTHONS[host.seen['release']].replace('.', '')}"
    found, count = compiled(host)
    assert found == {tag: count}
    # as when the distribution has changed its Python, which then runs the hook
    left = f"{HOME}/podslice/__pycache__/errors.cpython-310.pyc"
    host.machine.put(left, "of another Python")
    host.run(HOOK, "rtupdate", "3.10", PYTHONS[host.seen["release"]])
    assert compiled(host) == ({tag: count}, count)
    assert host.run("test", "-e", left, check=False).exit_code != 0
    # the other calls of hooks
    host.run(HOOK, "pre-rtupdate", "3.10", PYTHONS[host.seen["release"]])
    assert compiled(host) == ({tag: count}, count)


def test_neither_libraries_of_the_distribution_nor_of_the_user_are_imported(host):
    python = PYTHONS[host.seen["release"]]
    user = f"/root/.local/lib/python{python}/site-packages"
    for name in (f"{user}/usercustomize.py", f"{user}/yaml.py", "/root/other/yaml.py"):
        host.machine.put(name, BROKEN)
    packages, elsewhere = "/usr/lib/python3/dist-packages", "/usr/lib/python3/elsewhere"
    host.run("mv", packages, elsewhere)
    try:
        shown = host.run(
            *("sh", "-c", "cd /root/other && podslice check -f /root/web.yaml"),
            env={"PYTHONPATH": "/root/other", "PYTHONHOME": "/root/other", "HOME": "/root"},
        )
    finally:
        host.run("mv", elsewhere, packages)
        host.run("rm", "-r", "/root/.local", "/root/other")
    assert shown.stdout == "1 pod, 0 errors, 0 warnings\n"


@pytest.mark.parametrize("version", [(3, 10), (3, 15)])
def test_a_python_that_is_not_supported_is_named_with_the_way_out(host, version):
    suffix = f".cpython-{version[0]}{version[1]}-x86_64-linux-gnu.so"
    script = STAND_IN.format(version=version, suffix=suffix)
    ended = host.run("/usr/bin/python3", "-IS", "-c", script, check=False)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr == (
        "error: this package of podslice is for CPython 3.11 to 3.14, and /usr/bin/python3 is "
        f"cpython {version[0]}.{version[1]} ({suffix}); install a later release of the package, or "
        "the package of this distribution\n"
    )


# the package for Debian 12 sorts before it, and there is none for forky
@pytest.mark.parametrize("host", ["trixie"], indirect=True)
def test_after_an_upgrade_of_debian_its_own_package_replaces_it(host, packages):
    install(host.machine, packages.get("trixie"))
    assert host.podslice("--version").stdout == f"podslice {__version__}\n"
    assert host.run("dpkg", "--audit").stdout == ""
    assert host.run("test", "-e", "/usr/lib/podslice", check=False).exit_code != 0


def test_removal_leaves_nothing(host):
    # compiled in the meantime for another Python
    if host.seen["release"] != "trixie":
        host.machine.put(f"{HOME}/podslice/__pycache__/errors.cpython-310.pyc", "")
    host.run("apt-get", "purge", "--yes", "-q", "podslice", timeout_sec=300)
    host.run("sh", "-c", "rm -f /root/*.yaml; rm -rf /root/deb")
    assert host.files() ^ host.seen["files"] == set()


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_compiled_libraries_are_there_for_each_python(packages, kind):
    """Those of another architecture cannot be executed here, so their headers and names are read."""
    machine, number = ARCHITECTURES[kind]
    files = {name: content for name, (_, content) in read_deb(packages.get(kind).package).items()}
    libraries = {name: content for name, content in files.items() if name.endswith(".so")}
    home = HOME.lstrip("/")
    assert libraries.keys() == {
        f"{home}/{library}.{abi}-{machine}-linux-gnu.so"
        for library in ("pydantic_core/_pydantic_core", "yaml/_yaml")
        for abi in ABIS
    }
    for name, content in libraries.items():
        assert (content[:4], struct.unpack_from("<H", content, 18)) == (b"\x7fELF", (number,)), name
        # not newer than the dependency on libc6, and nothing else
        needed = {
            tuple(map(int, each.split(b"."))) for each in re.findall(rb"\0GLIBC_([\d.]+)", content)
        }
        assert needed
        assert max(needed) <= (2, 17), name
        linked = {each.decode() for each in re.findall(rb"\0([\w-]+)\.so\.\d", content)}
        assert linked <= SYSTEM_LIBRARIES, name


# the script that unpacks the wheels


@pytest.fixture
def unpack(tmp_path):
    """Unpack wheels with the given files, of which the lock has all but those in `unknown`."""

    def run(wheels, unknown=()):
        (tmp_path / "wheels").mkdir()
        lines = []
        for name, files in wheels.items():
            path = tmp_path / "wheels" / name
            with zipfile.ZipFile(path, "w") as archive:
                for file, text in files.items():
                    archive.writestr(file, text)
            if name not in unknown:
                lines.append(f"a==1 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}")
        (tmp_path / "requirements.txt").write_text("\n".join(lines))
        arguments = [tmp_path / name for name in ("wheels", "requirements.txt", "target")]
        script = ROOT / "packaging/builder/unpack.py"
        done = subprocess.run(
            [sys.executable, script, *arguments], capture_output=True, text=True, check=False
        )
        target = tmp_path / "target"
        found = {
            str(p.relative_to(target)): p.read_text() for p in target.rglob("*") if p.is_file()
        }
        return done.returncode, done.stderr, found

    return run


def test_wheels_for_several_pythons_share_their_modules(unpack):
    info = {"a.dist-info/METADATA": "m", "a.dist-info/RECORD": "r", "a.dist-info/licenses/x": "l"}
    code, told, found = unpack(
        {
            "a-1.whl": {"a/__init__.py": "1", "a/x.cpython-311.so": "e", "a/x.pyi": "t", **info},
            "a-2.whl": {"a/__init__.py": "1", "a/x.cpython-312.so": "f", **info},
        }
    )
    assert (code, told) == (0, "")
    assert found == {
        "a/__init__.py": "1",
        "a/x.cpython-311.so": "e",
        "a/x.cpython-312.so": "f",
        "a.dist-info/METADATA": "m",
    }


def test_of_files_that_may_differ_the_first_wheel_by_name_has_the_one(unpack):
    """So that all builds give the same bytes."""
    names = [f"a-{number}.whl" for number in (5, 3, 8, 1, 7, 2, 6, 4)]
    _, _, found = unpack({name: {"a.dist-info/WHEEL": name} for name in names})
    assert found == {"a.dist-info/WHEEL": "a-1.whl"}


def test_wheels_that_disagree_are_an_error(unpack):
    code, told, _ = unpack({"a-1.whl": {"a/b.py": "1"}, "a-2.whl": {"a/b.py": "2"}})
    assert (code, "a-2.whl has another a/b.py than the wheels before it" in told) == (1, True)


def test_a_wheel_that_is_not_locked_is_an_error(unpack):
    code, told, found = unpack({"a-1.whl": {"a/b.py": "1"}}, unknown=("a-1.whl",))
    assert (code, found) == (1, {})
    assert "a-1.whl is not in" in told
