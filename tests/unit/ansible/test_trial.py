"""The confirmation of values on trial: by a new login in time, or not at all."""

import json

import pytest

from podslice.model.desired import TrialState
from tests.cases.tables import cases
from tests.unit.ansible.conftest import plugin_utility

trial = plugin_utility("trial")
Ended, NoLogin = trial.Ended, trial.NoLogin
UNCONFIRMED = {
    "state": "armed",
    "remaining_sec": 30,
    "units": [{"unit": "system.slice"}],
    "confirm_command": ["podslice", "confirm"],
    "status_command": ["podslice", "status", "-o", "json"],
}


def state_is(state):
    """Return the answer of `podslice status`."""
    return Ended(3, json.dumps({"unconfirmed": {"state": state}}), "")


RETURNED = state_is("returned")


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Host:
    """A host on which logins fail for some seconds."""

    def __init__(self, clock, replies, *, dark_sec=0.0):
        self.clock = clock
        self.replies = replies
        self.until = clock.now + dark_sec
        self.did = []

    def log_in(self):
        self.did.append("login")

    def run(self, words):
        if self.clock.now < self.until:
            raise NoLogin("connection timed out")
        self.did.append(words[1])
        return self.replies[words[1]]


@pytest.fixture
def clock():
    return Clock()


def test_a_new_login_confirms(clock):
    host = Host(clock, {"confirm": Ended(0, "confirmed", "")})
    assert trial.conclude(UNCONFIRMED, 30, host, clock) == {"confirmed": True}
    assert host.did == ["login", "confirm"]
    assert clock.now == 1000


def test_a_login_may_be_repeated_until_the_time_is_over(clock):
    host = Host(clock, {"confirm": Ended(0, "", "")}, dark_sec=20)
    assert trial.conclude(UNCONFIRMED, 30, host, clock) == {"confirmed": True}
    assert clock.now <= 1030


def test_without_a_login_the_values_are_restored(clock):
    host = Host(clock, {"status": RETURNED}, dark_sec=31)
    found = trial.conclude(UNCONFIRMED, 30, host, clock)
    assert (found["failed"], found["confirmed"], found["reverted"]) == (True, False, True)
    assert "the new values of system.slice were not confirmed: no new login" in found["msg"]
    assert "connection timed out" in found["msg"]
    assert found["msg"].endswith("has restored the old ones")
    assert "confirm" not in host.did


def test_a_host_that_stays_out_of_reach(clock):
    host = Host(clock, {}, dark_sec=10**6)
    found = trial.conclude(UNCONFIRMED, 30, host, clock)
    assert (found["failed"], found["reverted"]) == (True, None)
    assert "cannot be reached to verify it" in found["msg"]


@pytest.mark.parametrize("status", [state_is("armed"), Ended(1, "", "error: no answer")])
def test_an_error_of_the_command_is_repeated(clock, status):
    host = Host(clock, {"confirm": Ended(1, "", "error: no answer"), "status": status})
    found = trial.conclude(UNCONFIRMED, 30, host, clock)
    assert host.did.count("confirm") >= 5
    assert "error: no answer" in found["msg"]


@pytest.mark.parametrize("status", [state_is("returned"), state_is("stopped"), Ended(0, "{}", "")])
def test_a_final_answer_is_not_repeated(clock, status):
    host = Host(clock, {"confirm": Ended(1, "", "it is too late"), "status": status})
    found = trial.conclude(UNCONFIRMED, 30, host, clock)
    assert host.did.count("confirm") == 1
    assert "it is too late" in found["msg"]
    assert clock.now < 1030


def test_a_host_does_not_extend_the_trial(clock):
    host = Host(clock, {}, dark_sec=10**6)
    trial.conclude(UNCONFIRMED | {"remaining_sec": 10**9}, 30, host, clock)
    assert clock.now < 1000 + 30 + trial.RETURN_SEC + trial.LOOKS * trial.RETRY_SEC + 1


@cases
def test_a_connection_that_is_lost_while_values_are_set(clock, state, reverted, message):
    status = Ended(3, json.dumps({"unconfirmed": state} if state else {}), "")
    host = Host(clock, {"status": status}, dark_sec=60)
    found = trial.conclude_lost(60, "podslice", "broken pipe", host, clock)
    assert (found["failed"], found["confirmed"], found["reverted"]) == (True, False, reverted)
    assert "the connection was lost while new values were set" in found["msg"]
    assert "broken pipe" in found["msg"]
    assert message in found["msg"]
    assert clock.now >= 1000 + 60 + trial.RETURN_SEC
    assert host.did == ["login", "status"]


def test_a_document_that_is_cut_off_is_read_again(clock):
    host = Host(clock, {"status": Ended(1, "{", "")})
    assert trial.conclude_lost(60, "podslice", "broken pipe", host, clock)["reverted"] is None
    assert host.did.count("status") == trial.LOOKS


def test_the_states_are_those_of_podslice():
    assert trial.ARMED == TrialState.ARMED


class Sshd(Host):
    """A host that refuses logins, and a source with too many of them even for longer."""

    def __init__(self, clock, answers, dark_sec):
        super().__init__(clock, answers, dark_sec=dark_sec)
        self.penalty_ends = clock.now

    def run(self, words):
        if self.penalty_ends - self.clock.now >= 15:
            raise trial.NoLogin("connection closed by remote host")
        try:
            return super().run(words)
        except trial.NoLogin:
            self.penalty_ends = max(self.penalty_ends, self.clock.now) + 5
            raise


def test_failed_logins_do_not_exclude_the_controller(clock):
    """So that it finds out that the values are restored, and can restore the configuration."""
    host = Sshd(clock, {"status": RETURNED}, dark_sec=31)
    found = trial.conclude(UNCONFIRMED, 30, host, clock)
    assert (found["confirmed"], found["reverted"]) == (False, True)
    assert host.penalty_ends - clock.now < 5


@pytest.mark.parametrize(
    "out",
    [*("", "[]", "5", "null", "[" * 100_000), *('{"unconfirmed": 5}', '{"unconfirmed": [1]}')],
)
def test_a_status_of_another_form_is_none(clock, out):
    host = Host(clock, {"confirm": Ended(1, "", "no"), "status": Ended(0, out, "")})
    result = trial.conclude({**UNCONFIRMED}, 30, host, clock)
    assert result["failed"]
    assert result["reverted"] is None


@pytest.mark.parametrize(
    "changes",
    [
        {"remaining_sec": "soon"},
        {"remaining_sec": [1]},
        {"units": 5},
        {"units": [{}]},
        {"units": None},
        {"confirm_command": "podslice confirm"},
        {"status_command": []},
        {"status_command": None},
    ],
)
def test_new_values_that_are_described_in_another_form(clock, changes):
    host = Host(clock, {})
    result = trial.conclude({**UNCONFIRMED, **changes}, 30, host, clock)
    assert (result["failed"], result["confirmed"]) == (True, False)
    assert "in an unknown form" in result["msg"]
    assert not host.did


@pytest.mark.parametrize("remaining", [float("nan"), float("-inf"), -1])
def test_no_time_is_left(clock, remaining):
    host = Host(clock, {"confirm": Ended(1, "", "no"), "status": RETURNED})
    began = clock.now
    trial.conclude({**UNCONFIRMED, "remaining_sec": remaining}, 30, host, clock)
    assert clock.now - began < 30
