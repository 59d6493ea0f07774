import pytest

from tests.bench import boot
from tests.bench.boot import Boot, Link

# as systemd 257 prints it in a pipe
CHAIN = """\
The time when unit became active or started is printed after the "@" character.
The time the unit took to start is printed after the "+" character.

multi-user.target @1min 2.500s
└─podslice-apply.service @40.250s +22.250s
  └─basic.target @40.100s
    └─dbus.socket @40.000s +250ms
      └─-.mount
"""


def test_the_chain_is_read_from_the_target_backwards():
    assert boot.parse_chain(CHAIN) == (
        Link(unit="multi-user.target", at_sec=62.5, took_sec=0),
        Link(unit=boot.SERVICE, at_sec=40.25, took_sec=22.25),
        Link(unit="basic.target", at_sec=40.1, took_sec=0),
        Link(unit="dbus.socket", at_sec=40.0, took_sec=0.25),
    )


@pytest.mark.parametrize(("text", "seconds"), [("1min 2.5s", 62.5), ("350ms", 0.35), ("", 0)])
def test_times(text, seconds):
    assert boot.parse_sec(text) == pytest.approx(seconds)


def make_boot(pods, target_sec, service_sec, *chain):
    return Boot(
        pods=pods,
        target_sec=target_sec,
        service_sec=service_sec,
        service_cpu_sec=service_sec / 2,
        chain=tuple(Link(unit=unit, at_sec=1, took_sec=service_sec) for unit in chain),
    )


def test_a_service_beside_the_chain_has_no_share_of_it():
    assert make_boot(1, 10, 4, boot.TARGET, boot.SERVICE).share_percent == 40
    assert make_boot(1, 10, 4, boot.TARGET).share_percent == 0


def test_boots_are_compared_with_those_without_the_service():
    pairs = ((12, 10), (15, 10), (18, 10))
    boots = [
        made
        for target_sec, base_sec in pairs
        for made in (make_boot(110, target_sec, 3, boot.SERVICE), make_boot(0, base_sec, 0))
    ]
    result = boot.make_result(boots)
    assert [row[:3] for row in result.tables[0].rows] == [
        ("110", "15.0 (12.0 to 18.0)", "1.50 (1.20 to 1.80)"),
        ("service disabled", "10.0 (10.0 to 10.0)", "1.00 (1.00 to 1.00)"),
    ]
    assert result.tables[1].rows == ((boot.SERVICE, "1.00", "3.00"),)
