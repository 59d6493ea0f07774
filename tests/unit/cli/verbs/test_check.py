"""`check`."""

import sys

import pytest

from tests.unit.builders import manifest
from tests.unit.cli.pods import WEB


@pytest.mark.parametrize("format_", ["table", "wide", "json", "yaml", "name"])
@pytest.mark.parametrize("verb", ["check", "explain", "render", "plan"])
def test_every_format_of_every_verb_is_stable(podslice, files, no_systemd, verb, format_):
    """The same bytes for the files in any order, and again."""
    files({f"{name}.yaml": manifest(name, {"cpu": "100m"}) for name in "abc"})
    first = podslice(verb, "-f", ".", "-o", format_)
    other = podslice(verb, "-f", "c.yaml", "-f", "a.yaml", "-f", "b.yaml", "-o", format_)
    assert first.code in (0, 3)
    assert first.out
    assert other == first


def test_the_list_of_files_may_come_from_stdin(podslice, monkeypatch, tmp_path):
    (tmp_path / "stdin").write_text(WEB)
    with (tmp_path / "stdin").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert podslice("check", "-f", "-").out == "1 pod, 0 errors, 0 warnings\n"
