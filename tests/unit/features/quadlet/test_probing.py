"""Probes of a container: when they run, and what follows from their results."""

import json
import re

import pytest

from podslice.errors import InputError
from podslice.features.quadlet.prober import begin, parse_probes
from podslice.features.quadlet.workload import Exec, HttpGet, Probe, ProbeKind, TcpSocket

ACTION = TcpSocket(port=80)


def probe(**options):
    return Probe(action=ACTION, **options)


def run(state, results, limit=50):
    """Answer probes in the order in which they are due, as text: `S` for startup, small if failed."""
    seen = []
    while not state.must_stop and (kind := state.next()) is not None and len(seen) < limit:
        if not results[kind]:
            break
        success = results[kind].pop(0) == "+"
        letter = kind[0].upper() if success else kind[0].lower()
        seen.append(f"{letter}{state.counters[kind].due:g}")
        state.record(kind, success=success, now=state.counters[kind].due)
    return " ".join(seen)


def test_others_wait_for_the_startup_probe():
    state = begin(
        {
            ProbeKind.STARTUP: probe(period_sec=1, failure_threshold=5),
            ProbeKind.LIVENESS: probe(initial_delay_sec=2),
        },
        0,
    )
    results = {ProbeKind.STARTUP: list("--+"), ProbeKind.LIVENESS: list("++")}
    assert run(state, results) == "s0 s1 S2 L2 L12"
    assert not state.must_stop
    assert state.is_ready


def test_a_container_that_does_not_start_in_time_is_stopped():
    state = begin({ProbeKind.STARTUP: probe(failure_threshold=3)}, 100)
    assert run(state, {ProbeKind.STARTUP: list("----")}) == "s100 s110 s120"
    assert state.must_stop


def test_failures_count_if_they_follow_each_other():
    state = begin({ProbeKind.LIVENESS: probe(failure_threshold=2)}, 0)
    assert run(state, {ProbeKind.LIVENESS: list("-+-+--+")}) == "l0 L10 l20 L30 l40 l50"
    assert state.must_stop


def test_readiness_comes_and_goes_and_never_stops_a_container():
    state = begin({ProbeKind.READINESS: probe(success_threshold=2, failure_threshold=2)}, 0)
    expected = [("+", False), ("+", True), ("-", True), ("-", False), ("+", False), ("+", True)]
    for result, ready in expected:
        state.record(ProbeKind.READINESS, success=result == "+", now=0)
        assert state.is_ready is ready
    assert not state.must_stop


def test_each_probe_has_a_period_of_its_own():
    state = begin(
        {
            ProbeKind.LIVENESS: probe(period_sec=3, initial_delay_sec=1),
            ProbeKind.READINESS: probe(period_sec=2),
        },
        0,
    )
    results = {ProbeKind.LIVENESS: list("+++"), ProbeKind.READINESS: list("++++")}
    assert run(state, results) == "R0 L1 R2 L4 R4 R6 L7"


def test_after_the_start_nothing_is_left_to_do_without_other_probes():
    state = begin({ProbeKind.STARTUP: probe()}, 0)
    state.record(ProbeKind.STARTUP, success=True, now=0)
    assert state.next() is None
    assert state.is_ready


def test_a_unit_has_the_probes_of_its_manifest(case_units):
    found = parse_probes(case_units("app"))
    assert found[ProbeKind.STARTUP] == Probe(
        action=Exec(command=("test", "-e", "/tmp/started")), failure_threshold=30, period_sec=1
    )
    assert found[ProbeKind.LIVENESS].action == HttpGet(
        port=8080, path='/healthz?q="100%"', scheme="HTTPS", headers=(("Host", "$shop"),)
    )
    assert found[ProbeKind.READINESS] == Probe(action=TcpSocket(port=8080), success_threshold=2)


@pytest.fixture
def case_units(request):
    """The probes in a unit of `tests/cases/quadlet`, as systemd passes them on."""
    text = (
        request.config.rootpath / "tests/cases/quadlet/probes-from-outside/expect.txt"
    ).read_text()

    def find(container):
        (quoted,) = re.findall(
            rf'^ExecStart=.* __probe web_{container} "(.*)"$', text, re.MULTILINE
        )
        plain = quoted.replace("%%", "%").replace("$$", "$")
        return re.sub(r"\\(.)", r"\1", plain)

    return find


STATED = {
    "exec": ["check"],
    "period_sec": 0,
    "initial_delay_sec": 0,
    "timeout_sec": 1,
    "success_threshold": 1,
    "failure_threshold": 3,
}
STATED_TCP = {key: value for key, value in STATED.items() if key != "exec"}
STATED_HTTP = {"scheme": "HTTP", "host": "", "port": 80, "path": "/", "headers": []}


def test_what_the_cases_of_invalid_probes_are_made_from_is_valid():
    http = {**STATED_TCP, "http": STATED_HTTP}
    found = parse_probes(json.dumps({"liveness": STATED, "readiness": http}))
    assert len(found) == 2


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "{", "5", "null", "[" * 100_000),
        *(json.dumps({"liveness": each}) for each in ({}, 5, [])),
        *(
            json.dumps({"liveness": {**STATED, key: value}})
            for key, values in {
                "period_sec": (float("inf"), float("nan"), 1e308, 2**31, -1, "1", True, None, [1]),
                "initial_delay_sec": (10**300,),
                "exec": (5, "check", [5], {"a": 1}, None),
            }.items()
            for value in values
        ),
        json.dumps({"liveness": {**STATED, "period_sec": 0}}).replace(": 0,", ": 1e400,"),
        *(
            json.dumps({"liveness": {**STATED_TCP, "tcp": each}})
            for each in (
                *({"host": "", "port": port} for port in (2**16, "80", float("inf"))),
                *({"host": 5, "port": 80}, {"port": 80}, 80),
            )
        ),
        *(
            json.dumps({"liveness": {**STATED_TCP, "http": {**STATED_HTTP, key: value}}})
            for key, value in {"headers": [["a"]], "path": 5, "port": 1e400}.items()
        ),
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(InputError, match="render the pod again"):
        parse_probes(text)
