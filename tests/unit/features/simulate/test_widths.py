"""The tables of `simulate` on a real terminal."""

from tests.unit.cli.test_widths import (  # noqa: F401 - fixtures
    at_terminal,
    check_pods,
    check_widths,
    crowd,
)


def test_the_tables_fit_and_pods_look_different(at_terminal, podslice, crowd):  # noqa: F811
    check_widths(at_terminal, podslice, ("simulate",))
    check_pods(at_terminal, crowd, ["simulate"], "NAME")
