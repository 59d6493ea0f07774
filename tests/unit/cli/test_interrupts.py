"""SIGINT and SIGTERM, sent to this process while a verb runs."""

import asyncio
import logging
import signal

import pytest

from podslice.cli.verbs import node
from podslice.store.store import Store
from tests.unit.cli.pods import of_present_verbs

CODES = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]


@pytest.fixture(autouse=True)
def handlers():
    """The handlers of this process, restored at the end; logging, too."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    logging.disable(logging.NOTSET)


@pytest.fixture
def ended(main, capsys):
    """Run the whole program; the exit code, output and stderr."""

    def call(*arguments):
        with pytest.raises(SystemExit) as done:
            main(*arguments)
        return (done.value.code, *capsys.readouterr())

    return call


@pytest.mark.parametrize(("number", "code", "word"), CODES)
def test_before_anything_has_changed(ended, monkeypatch, number, code, word):
    monkeypatch.setattr(node, "load_node", lambda *_, **__: signal.raise_signal(number))
    assert ended("node") == (code, "", f"{word}: nothing was changed\n")


@pytest.mark.parametrize(
    "arguments",
    of_present_verbs(
        [
            ["apply", "-f", "web.yaml"],
            ["adopt", "shop/web", "-c", "app", "1"],
            ["delete", "shop/web"],
            ["doctor"],
            ["phase", "shop/web", "init"],
            ["plan", "-f", "web.yaml"],
            ["run", "shop/web", "-c", "app", "--", "/bin/true"],
            ["run", "shop/web", "-c", "app", "--detach", "--", "/bin/true"],
            ["status"],
            ["status", "shop/web"],
            ["top", "--once"],
            ["tree"],
        ]
    ),
    ids=" ".join,
)
def test_every_verb_that_waits_for_systemd(ended, podslice, memory, web, arguments, monkeypatch):
    assert podslice("apply", "-f", web).code == 0

    async def wait(*_):
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(60)

    for name in ("caps", "observe", "list_units"):
        monkeypatch.setattr(memory, name, wait)
    code, out, err = ended(*arguments)
    assert (code, out, err.count("\n")) == (143, "", 1)
    assert err.startswith("terminated: ")


def test_a_wait_for_the_lock_ends_at_once(ended, memory, web):
    def wait(self, on_wait):
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the signal did not end it")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "lock", wait)
        assert ended("apply", "-f", web) == (130, "", "interrupted: nothing was changed\n")


def test_an_apply_in_between(ended, podslice, memory, web, monkeypatch):
    """What was done and what was not is stated; the next apply completes it."""
    start = memory.start

    async def start_and_wait(unit):
        await start(unit)
        if "-pod" in unit.name:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(60)

    with monkeypatch.context() as patch:
        patch.setattr(memory, "start", start_and_wait)
        message = "3 of 4 steps done; to continue, run the same command again"
        assert ended("apply", "-f", web) == (143, "", f"terminated: {message}\n")
    assert podslice("apply", "-f", web) == (0, "nothing to do\n", "")


def test_a_delete_names_the_pods_that_are_terminating(ended, podslice, memory, web, monkeypatch):
    podslice("apply", "-f", web)
    podslice("run", "--detach", "shop/web", "-c", "app", "--", "/bin/true")

    async def interrupt(name, **_):
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(60)

    with monkeypatch.context() as patch:
        patch.setattr(memory, "stop", interrupt)
        code, out, err = ended("delete", "shop/web")
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == (
        "interrupted: 0 of 4 steps done; terminating: shop/web (0 of 30 s); to continue, run the"
        " same command again"
    )
    assert podslice("delete", "shop/web").code == 0
    assert podslice("status").out == "no pods\n"


def test_the_second_signal_does_not_wait(ended, memory, monkeypatch):
    """A coroutine that goes on after its cancellation."""

    async def stubborn(_):
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.sleep(60)
        finally:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(60)

    monkeypatch.setattr(memory, "observe", stubborn)
    assert ended("status") == (143, "", "terminated: nothing was changed\n")


def test_an_error_that_follows_from_the_cancellation_is_not_reported(ended, memory, monkeypatch):
    async def fail(_):
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.sleep(60)
        finally:
            raise ConnectionResetError

    monkeypatch.setattr(memory, "observe", fail)
    assert ended("status") == (130, "", "interrupted: nothing was changed\n")


def test_ignored_signals_stay_ignored(ended, monkeypatch):
    """As `nohup` and the background of a script leave them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert ended("node")[0] == 0
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert callable(signal.getsignal(signal.SIGTERM))


def test_the_agent_handles_signals_itself(ended):
    assert ended("agent", "--help")[0] == 0
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
