"""Features are tested on the simulated machine of the command line."""

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.unit.cli.conftest import (  # noqa: F401 - fixtures
    command_line,
    commands,
    files,
    here,
    journal,
    main,
    memory,
    messages,
    no_loop,
    no_systemd,
    podman_memory,
    podslice,
    quadlet_directory,
    runtimes_hold,
    web,
)


@pytest.fixture
def expect(request, podslice, files):  # noqa: F811 - a fixture
    """Run the command line of a case, or those of its `steps`, and compare how each of them ends.

    `needs` are fixtures, and `files` are written before. `out` and `err` are whole texts, in which
    `[...]` is any text; what is not stated: the exit code is 0, there is nothing on standard error,
    and any output, or none where the code is another one. `json` is a part of the document,
    `written` are files with their texts, and `lacks` are texts that are not in the output.
    """

    def check(case):
        for name in case.get("needs", ()):
            request.getfixturevalue(name)
        for step in case.get("steps", [case]):
            files(step.get("files", {}))
            code = step.get("code", 0)
            ended = podslice(*shlex.split(step["run"]))
            assert ended.code == code, ended
            check_text(ended.err, step.get("err", ""))
            check_text(ended.out, step.get("out", "" if code and "json" not in step else "[...]"))
            check_part(json.loads(ended.out) if "json" in step else {}, step.get("json", {}))
            assert not [text for text in step.get("lacks", ()) if text in ended.out]
            for path, text in step.get("written", {}).items():
                check_text(Path(path).read_text(), text)

    return check


def check_text(text, pattern):
    """Compare a text with a pattern, in which `[...]` is any text."""
    parts = map(re.escape, pattern.split("[...]"))
    if not re.fullmatch(".*".join(parts), text, re.DOTALL):
        assert text == pattern  # shows the difference


def check_part(found, expected):
    """Compare the keys that are expected, in each mapping."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            check_part(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected), (found, expected)
        for one, other in zip(found, expected, strict=True):
            check_part(one, other)
    else:
        assert found == expected
