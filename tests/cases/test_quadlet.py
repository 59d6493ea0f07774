"""Quadlets: one folder for each case, with the exact files that `podslice render` writes.

    pods.yaml       the manifests, with ConfigMaps and Secrets
    case.toml       what differs from the default: user, systemd, podman, kept, ignore, config
    expect.txt      the problems and notes, and each file with its mode; --update-cases rewrites it

The folder is named after what the case shows. `tests/host/test_quadlets.py` runs podman's own
generator on each.
"""

import re

import pytest

from tests.cases.quadlets import CASES, QUADLETS, made_of


def lines_of(problems, quadlets):
    yield from (f"{each.severity}: {each}" for each in problems)
    for pod in quadlets:
        yield f"=== pod {pod.pod}: {pod.service}"
        yield from (f"note: {each}" for each in pod.notes)
        yield from (f"--- {each.path}/ {each.mode:04o}" for each in pod.directories)
        for file in pod.files:
            kind = " unit" if file.is_unit else ""
            yield f"--- {file.path} {file.mode:04o}{kind}"
            yield file.content.decode("utf-8", "backslashreplace").rstrip("\n")


@pytest.fixture(params=CASES)
def case(request, monkeypatch):
    path = QUADLETS / request.param
    monkeypatch.chdir(path)
    return path


def test_quadlets(case, update_cases):
    text = "\n".join(lines_of(*made_of(case))) + "\n"
    expected = case / "expect.txt"
    if update_cases:
        expected.write_text(text)
    assert text == expected.read_text()


def test_a_case_is_refused_if_it_is_named_so(case):
    """Otherwise a case without files would show nothing of what it is named after."""
    problems, quadlets = made_of(case)
    is_refused = any(each.severity == "error" for each in problems)
    assert is_refused is case.name.startswith(("refused", "podman-", "ignored-without"))
    assert bool(quadlets) is not is_refused


def test_every_file_and_container_has_a_name_of_its_own(case):
    _, quadlets = made_of(case)
    paths = [file.path for pod in quadlets for file in pod.files]
    assert len(paths) == len(set(paths))
    services = [
        name
        for pod in quadlets
        for file in pod.files
        if file.path.endswith(".container")
        for name in re.findall(r"^ServiceName=(.*)$", file.text, re.MULTILINE)
    ]
    assert len(services) == len(set(services))


def test_what_has_a_secret_is_private(case):
    """No other user of the host can read a file with the value of a Secret."""
    _, quadlets = made_of(case)
    for pod in quadlets:
        private = [each.path for each in pod.directories if not each.mode & 0o077]
        for file in pod.files:
            inside = any(file.path.startswith(f"{each}/") for each in private)
            assert not file.is_secret or inside or not file.mode & 0o077
