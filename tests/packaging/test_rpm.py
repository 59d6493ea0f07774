"""The rpm: its files, the report of rpmlint, and its installation into a root directory."""

from __future__ import annotations

import re
import shutil

import pytest

from podslice import __version__
from podslice.model.event import Kind
from tests.packaging.builds import NEXT_VERSION, ROOT

PRIVATE = "/usr/lib/podslice/python"
DOC = "/usr/share/doc/podslice"


@pytest.fixture(scope="module")
def rpm(packages):
    return packages.get("rpm")


@pytest.fixture
def in_root(packages, rpm, tmp_path):
    """Run a script in a temporary root of trixie with rpm and systemd, and first.rpm.

    Its rpm does not know Debian's packages, so dependencies are ignored.
    """
    shutil.copyfile(rpm.package, tmp_path / "first.rpm")

    def run(script):
        chroot = packages.script.ensure_chroot("trixie")
        return packages.script.run_in(chroot, PRELUDE + script, source=tmp_path, out=rpm.dir)

    return run


PRELUDE = """
export SYSTEMD_OFFLINE=1
# it is surprised to be on Debian
rpm() { command rpm "$@" 2>&1 | { grep -v -e Alien -e 'However assuming' || true; }; }
"""
INSTALL = "rpm --initdb; rpm -i --nodeps first.rpm\n"


def query(in_root, what):
    return in_root(f"rpm -qp {what} first.rpm").splitlines()


def test_files_modes_and_owners(in_root, packages):
    lines = query(
        in_root, "--qf '[%{FILENAMES}|%{FILEMODES:perms}|%{FILEUSERNAME}:%{FILEGROUPNAME}\\n]'"
    )
    found = {name: (mode, owner) for name, mode, owner in (line.split("|") for line in lines)}
    assert {owner for _, owner in found.values()} == {"root:root"}
    is_program = {name: name == "/usr/bin/podslice" for name in found}
    wrong = {
        name: mode
        for name, (mode, _) in found.items()
        if mode not in ("drwxr-xr-x", "-rwxr-xr-x" if is_program[name] else "-rw-r--r--")
    }
    assert not wrong
    files = {name for name, (mode, _) in found.items() if mode.startswith("-")}
    places = packages.install.places(
        {"unit_dir": "/usr/lib/systemd/system", "doc_dir": DOC}
    ).values()
    examples = (path for path in (ROOT / "examples").rglob("*") if path.is_file())
    expected = {
        *places,
        "/usr/bin/podslice",
        "/usr/share/bash-completion/completions/podslice",
        "/usr/share/fish/vendor_completions.d/podslice.fish",
        "/usr/share/zsh/site-functions/_podslice",
        *(
            f"/usr/share/man/man{path.stem[-1]}/{path.stem}.gz"
            for path in (ROOT / "packaging/man").glob("*.md")
        ),
        *(f"{DOC}/{path.relative_to(ROOT)}" for path in examples),
        *(f"{DOC}/json/{path.name}" for path in (ROOT / "docs/json").iterdir()),
        *(f"{DOC}/{name}" for name in ("README.md", "CHANGELOG.md", "podslice.cdx.json")),
        "/usr/share/licenses/podslice/LICENSE",
    }
    assert {name for name in files if not name.startswith(f"{PRIVATE}/")} == expected
    modules = (name for name in files if name.startswith(f"{PRIVATE}/") and name.endswith(".py"))
    packed = {name.removeprefix(f"{PRIVATE}/") for name in modules}
    assert packed == {str(path.relative_to(ROOT)) for path in (ROOT / "podslice").rglob("*.py")}


def test_version_and_dependencies(in_root):
    assert query(in_root, "--qf '%{VERSION}'") == [__version__]
    requires = query(in_root, "--requires")
    assert {"python3 >= 3.11", "python3-pydantic >= 2.10", "systemd >= 252"} <= set(requires)
    assert {"python3-h11 >= 0.14", "python3-prometheus-client >= 0.19"} <= set(requires)
    source = query(in_root, "--qf '%{BUILDHOST} %{SOURCERPM}'")
    assert source == [f"reproducible podslice-{__version__}-1.src.rpm"]


def test_rpmlint_reports_nothing(packages, rpm):
    output = packages.script.lint(rpm)
    assert re.search(r"\b0 errors, 0 warnings", output), output


def test_installation_creates_groups_and_directories_and_enables_nothing(in_root):
    output = in_root(
        INSTALL
        + """
        rpm -V --nodeps podslice
        getent group podslice podslice-admin | cut -d: -f1
        stat -c '%a %U:%G %n' /etc/podslice/manifests
        systemctl is-enabled podslice-apply.service podslice-agent.service || true
        systemctl is-enabled podslice-agent.socket podruntime.slice || true
        systemctl --global is-enabled podslice-agent.service || true
        journalctl --list-catalog | grep -c podslice
        cd / && podslice --version && podslice check -f /usr/share/doc/podslice/examples/seeds
        find /usr/lib/podslice -name '*.pyc' -newer /usr/bin/podslice
        """
    )
    assert output.splitlines() == [
        "podslice",
        "podslice-admin",
        "2770 root:podslice-admin /etc/podslice/manifests",
        *["disabled"] * 5,
        str(len(Kind)),
        f"podslice {__version__}",
        "7 pods, 0 errors, 0 warnings",
    ]


def test_removal_leaves_only_files_of_other_owners(in_root):
    output = in_root(
        INSTALL
        + """
        systemctl --quiet enable podslice-apply.service podruntime.slice 2>/dev/null
        systemctl --quiet enable podslice-agent.service 2>/dev/null
        podslice --version >/dev/null
        echo '# mine' >> /etc/podslice/podslice.toml
        touch /etc/podslice/manifests/web.yaml
        rpm -e --nodeps podslice
        journalctl --list-catalog | grep podslice || true
        find / -xdev -path /proc -prune -o -path /dev -prune -o -path /build -prune \\
            -o \\( -name '*podslice*' -o -name '*podruntime*' -o -path '/etc/podslice/*' \\) -print
        """
    )
    assert sorted(line for line in output.splitlines() if not line.startswith("warning")) == [
        "/etc/podslice",
        "/etc/podslice/manifests",
        "/etc/podslice/manifests/web.yaml",
        "/etc/podslice/podslice.toml",
    ]


def test_an_upgrade_keeps_enabled_units_and_changed_files(in_root, packages, tmp_path):
    shutil.copyfile(packages.next("rpm").package, tmp_path / "second.rpm")
    output = in_root(
        INSTALL
        + """
        systemctl --quiet enable podslice-apply.service 2>/dev/null
        echo '# mine' >> /etc/podslice/podslice.toml
        rpm -U --nodeps second.rpm
        systemctl is-enabled podslice-apply.service
        tail -1 /etc/podslice/podslice.toml
        podslice --version
        """
    )
    assert output.splitlines() == ["enabled", "# mine", f"podslice {NEXT_VERSION}"]


def test_a_removal_restores_the_reserved_slices_but_an_upgrade_does_not(
    in_root, packages, tmp_path
):
    shutil.copyfile(packages.next("rpm").package, tmp_path / "second.rpm")
    output = in_root(
        INSTALL
        + """
        mkdir -p /run/systemd/system
        record() {
            printf '#!/bin/sh\\necho "${0##*/} $*" >> /calls\\n' > "$1"
        }
        record /usr/bin/systemctl
        rpm -U --nodeps second.rpm
        echo removal >> /calls
        record /usr/bin/podslice
        rpm -e --nodeps podslice
        cat /calls
        """
    )
    calls = [line for line in output.splitlines() if not line.startswith("warning")]
    upgrade, removal = calls[: calls.index("removal")], calls[calls.index("removal") + 1 :]
    assert "systemctl try-restart podslice-agent.service" in upgrade
    assert "systemctl stop podslice-agent.service" not in upgrade
    stop = removal.index("systemctl stop podslice-agent.service")
    assert removal[stop + 1] == "podslice __restore_reserved"


def test_two_builds_give_the_same_bytes(packages, rpm):
    again = packages.again("rpm")
    assert again.dir != rpm.dir
    for one, other in zip(rpm.packages, again.packages, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


STUBS = ("pyproject_buildrequires", "pyproject_wheel", "pyproject_install", "pyproject_files")
STUBS += ("pyproject_save_files", "pyproject_check_import", "systemd_post", "systemd_user_post")


def test_the_spec_parses_with_the_macros_of_fedora(in_root):
    """Only parsed: there is no Fedora to build on."""
    defines = " ".join(f"--define '{name}() :{name}'" for name in STUBS)
    output = in_root(f"rpmspec -P --define 'fedora 42' {defines} /out/podslice.spec")
    assert [name for name in STUBS if f":{name}" not in output] == []
    assert "python3 -m build" not in output
    assert "BuildRequires:  python3-devel" in output
