import pytest
import typer

from podslice.cli.options import agent_options, planning_options


@pytest.fixture
def parse(monkeypatch, capsys):
    """Call a verb with these options; return the exit code and the flags."""

    def call(options, *arguments):
        given = []

        @options
        def verb(planning) -> int:
            given.append(planning)
            return 0

        app = typer.Typer()
        app.command()(verb)
        code = app(list(arguments), standalone_mode=False)
        capsys.readouterr()
        return code, given[0].flags

    return call


def test_the_agent_has_its_own_options_beside_the_others(parse):
    arguments = ["--collect-orphans", "--oom-policy", "pod", "--rules", "kubernetes"]
    flags = {"collect-orphans": True, "oom-policy": "pod", "rules": "kubernetes"}
    assert parse(agent_options, *arguments) == (0, flags)


def test_options_that_are_not_given_are_left_to_the_files(parse):
    assert parse(agent_options) == parse(planning_options) == (0, {})


@pytest.mark.parametrize("option", ["--manifests=/a", "--collect-orphans"])
def test_no_other_verb_has_them(parse, option):
    with pytest.raises(Exception, match="No such option"):
        parse(planning_options, option)
