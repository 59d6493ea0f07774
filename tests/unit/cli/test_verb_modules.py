"""Each verb imports only the modules that it needs: most of its time is imports."""

import tomllib

import pytest

from podslice.cli.app import VERBS
from tests.unit.cli import verb_modules

TABLE = tomllib.loads(verb_modules.TABLE.read_text())
UPDATE = "if this is intended, run: python -m tests.unit.cli.verb_modules"


def test_every_verb_is_listed():
    hidden = {verb for verb in VERBS if verb.startswith("_")}
    # the agent does not end, and has a test of its own
    assert {*VERBS} - hidden - {"agent"} == {
        name for name in TABLE if not name.startswith(("-", "_"))
    }
    assert TABLE.keys() == verb_modules.COMMANDS.keys()


@pytest.mark.usefixtures("allow_effects")
@pytest.mark.parametrize("verb", verb_modules.COMMANDS)
def test_a_verb_imports_what_is_listed(verb, tmp_path):
    names = verb_modules.modules_of(verb, tmp_path)
    listed = dict(TABLE[verb])
    absent = listed.pop("absent").split()
    assert verb_modules.own(names) == listed, UPDATE
    assert {*absent} <= {*verb_modules.absent(names)}, UPDATE
