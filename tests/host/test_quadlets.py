"""Quadlets and podman: its generator reads the cases."""

import subprocess

import pytest

from podslice.processes.quadlet_files import Directories, write_quadlets
from tests.cases.quadlets import CASES, QUADLETS, made_of, settings_of
from tests.host.test_podman import PACKAGES
from tests.lab import extras, fixtures
from tests.lab.deps import run_tool
from tests.lab.image import ensure_image
from tests.lab.recipe import DEFAULT_SUITE

RENDERED = [name for name in CASES if "=== pod" in (QUADLETS / name / "expect.txt").read_text()]
SUFFIXES = {".container": "", ".pod": "-pod", ".volume": "-volume"}


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    """A command with podman's generator, and the libraries of the release that it is from."""
    fixtures.need_lab()
    root = tmp_path_factory.mktemp("podman")
    (deb,) = extras.fetch(DEFAULT_SUITE, PACKAGES).glob("podman_*.deb")
    run_tool("dpkg-deb", "--extract", str(deb), str(root))
    system = ensure_image(DEFAULT_SUITE).root
    return (
        system / "lib64/ld-linux-x86-64.so.2",
        "--library-path",
        system / "usr/lib/x86_64-linux-gnu",
        root / "usr/libexec/podman/quadlet",
    )


@pytest.mark.parametrize("name", RENDERED)
def test_the_generator_of_podman_reads_each_case(generator, tmp_path, monkeypatch, name):
    monkeypatch.chdir(QUADLETS / name)
    _, quadlets = made_of(QUADLETS / name)
    directories = Directories(generator=tmp_path / "quadlets", units=tmp_path / "units")
    directories.generator.mkdir()
    write_quadlets(quadlets, directories)
    user = ("-user",) if settings_of(QUADLETS / name).get("user") else ()
    result = subprocess.run(
        [*generator, "-dryrun", "-no-kmsg-log", *user],
        env={"QUADLET_UNIT_DIRS": str(directories.generator)},
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [
        line for line in result.stderr.splitlines() if "Loading source unit file" not in line
    ]
    assert complaints == []
    assert result.returncode == 0
    made = [line.strip("-") for line in result.stdout.splitlines() if line.startswith("---")]
    assert sorted(made) == sorted(service for pod in quadlets for service in services_of(pod))


def services_of(pod):
    """Yield the services that the generator makes of a pod's files."""
    for file in pod.files:
        stem, dot, suffix = file.path.rpartition(".")
        if f".{suffix}" in SUFFIXES:
            named = [
                line.removeprefix("ServiceName=")
                for line in file.text.splitlines()
                if line.startswith("ServiceName=")
            ]
            yield f"{named[0] if named else stem + SUFFIXES[dot + suffix]}.service"
