import pytest
import typer

from podslice.cli.options import agent_options, planning_options


@pytest.fixture
def told(monkeypatch, capsys):
    """What a verb with these options is given, and the exit code."""

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


def test_the_agent_has_its_own_options_beside_the_others(told):
    arguments = ["--collect-orphans", "--oom-policy", "pod", "--rules", "kubernetes"]
    flags = {"collect-orphans": True, "oom-policy": "pod", "rules": "kubernetes"}
    assert told(agent_options, *arguments) == (0, flags)


def test_what_is_not_said_is_left_to_the_files(told):
    assert told(agent_options) == told(planning_options) == (0, {})


@pytest.mark.parametrize("option", ["--manifests=/a", "--collect-orphans"])
def test_no_other_verb_has_them(told, option):
    with pytest.raises(Exception, match="No such option"):
        told(planning_options, option)
