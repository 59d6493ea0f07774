"""A short round of fuzzing: the whole corpus, and the same mutations of it in every run."""

import pytest

pytest.importorskip("hypothesis")

from tests.fuzz.engine import TooMuchWorkError, execute, save, search
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

EXAMPLES = 40
by_name = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)


def execute_all(target):
    for data in target.inputs():
        execute(target, data)


@by_name
def test_the_corpus(target):
    execute_all(target)


@by_name
def test_mutations_of_the_corpus(target):
    found = search(target, examples=EXAMPLES)
    if found is not None:
        raise AssertionError(f"{found.data!r}") from found.error


def test_every_directory_of_the_corpus_has_a_target():
    directories = {path for target in TARGETS for path in target.home.iterdir()}
    assert directories <= {target.corpus for target in TARGETS}
    assert all(target.inputs() for target in TARGETS)


# Faults that are planted are found.


def planted(run, **fields):
    return Target(name="planted", run=run, calls=10, **fields)


def test_an_error_that_is_not_documented_is_found_and_minimised(tmp_path):
    def fail(data):
        if b"[" in data and b"\xff" in data:
            raise RecursionError

    (tmp_path / "planted").mkdir()
    (tmp_path / "planted/seed").write_bytes(b"a long seed that has nothing to do with it")
    target = planted(fail, tokens=(b"[", b"\xff", b"{", b"x"), home=tmp_path)
    found = search(target, examples=2000)
    assert isinstance(found.error, RecursionError)
    assert len(found.data) < 50
    assert save(target, found).read_bytes() == found.data
    assert found.data in target.inputs()


@pytest.mark.parametrize(
    ("name", "part", "fault"),
    [
        ("frame", "podslice.systemd.dbus.wire.NESTING_MAX", 10**6),
        ("frame", "podslice.systemd.dbus.wire.TYPE_CODES", frozenset("yvas")),
        ("stream", "podslice.systemd.dbus.wire.MALFORMED", (ValueError,)),
        ("flags", "podslice.errors.SHOWN_MAX", 10**6),
        ("proc", "podslice.kernel.proc.split_lines", str.splitlines),
        ("yaml", "podslice.errors.SHOWN_MAX", 10**6),
        ("journal", "podslice.systemd.journal.TIME_MAX_USEC", 10**30),
    ],
)
def test_a_reader_without_one_of_its_checks_is_found(monkeypatch, name, part, fault):
    monkeypatch.setattr(part, fault)
    target = next(each for each in TARGETS if each.name == name)
    with pytest.raises(BaseException):  # noqa: B017, PT011 - whichever
        execute_all(target)


def test_endless_work_is_found():
    def spin(data):
        while data:
            len(data)

    found = search(planted(spin), examples=50)
    assert isinstance(found.error, TooMuchWorkError)
