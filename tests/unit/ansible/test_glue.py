"""What connects the modules with Ansible, whose classes are replaced by small ones."""

import importlib
import sys
import types

import pytest

from tests.unit.ansible.conftest import utility

PREFIX = "ansible_collections.podslice.host.plugins"


class Exit(Exception):
    """The end of a module, with its result."""


class ConnectionFailure(Exception):
    """A connection of Ansible has failed."""


class FakeModule:
    """An AnsibleModule with parameters, and a podslice of some version."""

    params: dict
    printed = "podslice 9.0.0\n"

    def __init__(self, argument_spec, supports_check_mode, **rules):
        self.argument_spec = argument_spec
        self.check_mode, self._diff = False, self.params.pop("_diff", False)
        self.commands, self.warned, self.rules = [], [], rules
        type(self).last = self

    def run_command(self, words, **options):
        self.commands.append((words, options))
        return 0, self.printed, ""

    def warn(self, text):
        self.warned.append(text)

    def exit_json(self, **result):
        raise Exit(result)

    def fail_json(self, **result):
        raise Exit({"failed": True, **result})


class FakeConnection:
    """A connection of ssh, which keeps one for all tasks."""

    transport = "ssh"

    def __init__(self, action):
        self.action = action
        self.ssh_args = "-o ControlMaster=auto -o ControlPersist=60s"

    def reset(self):
        self.action.did.append("reset")

    def get_option(self, name):
        return getattr(self, name)

    def set_option(self, name, value):
        setattr(self, name, value)


class FakeAction:
    """An ActionBase: a task, a connection, and the results of its calls."""

    def __init__(self, arguments, *, check_mode=False):
        self._task = types.SimpleNamespace(args=arguments, check_mode=check_mode)
        self._connection = FakeConnection(self)
        self.did, self.used = [], []
        self.module_result = {"changed": True}
        self.fails = ()

    def run(self, tmp, task_vars):
        return {}

    def _execute_module(self, task_vars):
        self.did.append("module")
        if "module" in self.fails:
            raise ConnectionFailure("broken pipe")
        return self.module_result

    def _low_level_execute_command(self, command, **_):
        self.did.append(command)
        self.used.append(self._connection.ssh_args)
        if command in self.fails:
            raise ConnectionFailure("no route to host")
        return {"rc": 0, "stdout": "{}", "stderr": ""}


@pytest.fixture
def ansible(monkeypatch):
    """The modules of Ansible that the collection imports."""
    contents = {
        "ansible": {},
        "ansible.errors": {"AnsibleConnectionFailure": ConnectionFailure},
        "ansible.module_utils": {},
        "ansible.module_utils.basic": {"AnsibleModule": FakeModule},
        "ansible.plugins": {},
        "ansible.plugins.action": {"ActionBase": FakeAction},
    }
    for name, values in contents.items():
        module = types.ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("module_utils.glue", "plugin_utils.confirming"):
        monkeypatch.delitem(sys.modules, f"{PREFIX}.{name}", raising=False)


@pytest.fixture
def run(ansible, tmp_path):
    """Run a module with some logic, and return its result."""
    program = tmp_path / "podslice"
    program.touch(mode=0o755)
    glue = importlib.import_module(f"{PREFIX}.module_utils.glue")

    def call(logic, **params):
        FakeModule.params = {
            "executable": str(program),
            "scope": "system",
            "cgroup_root": None,
            **params,
        }
        with pytest.raises(Exit) as ended:
            glue.run_module(logic, {"name": {"type": "str"}}, mutually_exclusive=[("a", "b")])
        return ended.value.args[0]

    return call


def test_a_module_returns_the_result_of_its_logic(run):
    def logic(wanted, podslice, *, check_mode):
        assert not check_mode
        return {"changed": True, "version": podslice.require_version(), "warnings": ["odd"]}

    assert run(logic) == {"changed": True, "version": "9.0.0"}
    module = FakeModule.last
    assert module.warned == ["odd"]
    assert module.rules == {"mutually_exclusive": [("a", "b")]}
    assert {"name", "executable", "scope"} <= module.argument_spec.keys()
    ((words, options),) = module.commands
    assert words[1:] == ["--version"]
    assert options["expand_user_and_vars"] is False


def test_a_difference_is_returned_only_where_it_is_requested(run):
    def logic(wanted, podslice, *, check_mode):
        return {"changed": False, "diff": [{"before": "secret"}]}

    assert "diff" not in run(logic)
    assert run(logic, _diff=True)["diff"] == [{"before": "secret"}]


def test_a_failure_has_its_facts(run):
    def logic(wanted, podslice, *, check_mode):
        raise utility("podslice").Failure("no", refused=["a"], warnings=["odd"], changed=False)

    assert run(logic) == {"failed": True, "msg": "no", "refused": ["a"], "changed": False}
    assert FakeModule.last.warned == ["odd"]


def test_a_missing_podslice_fails(run):
    found = run(lambda *_, **__: {}, executable="/none/podslice")
    assert found["msg"].startswith("podslice is not installed: there is no /none/podslice")


# actions


@pytest.fixture
def action(ansible, monkeypatch):
    """Return an action of a task with these arguments."""
    module = importlib.import_module(f"{PREFIX}.plugin_utils.confirming")
    monkeypatch.setattr(
        module, "time", types.SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None)
    )
    return module.ConfirmingAction


UNCONFIRMED = {
    "state": "armed",
    "remaining_sec": 0,
    "units": [{"unit": "system.slice"}],
    "confirm_command": ["podslice", "confirm"],
    "status_command": ["podslice", "status"],
}


def test_without_a_trial_there_is_one_connection(action):
    made = action({})
    assert made.run() == {"changed": True}
    assert made.did == ["module"]


def test_a_trial_is_confirmed_over_a_second_connection(action):
    made = action({"confirm_seconds": 60})
    made.module_result = {"changed": True, "unconfirmed": UNCONFIRMED}
    assert made.run()["confirmed"] is True
    assert made.did == ["true", "module", "reset", "reset", "podslice confirm"]


def test_the_second_connection_is_not_the_one_that_ssh_keeps(action):
    made = action({"confirm_seconds": 60})
    made.module_result = {"changed": True, "unconfirmed": UNCONFIRMED}
    kept = made._connection.ssh_args
    made.run()
    assert made.used == [kept, f"-o ControlPath=none {kept}"]
    assert made._connection.ssh_args == kept


def test_other_connections_are_only_reset(action):
    made = action({"confirm_seconds": 60})
    made._connection.transport = "local"
    made.module_result = {"changed": True, "unconfirmed": UNCONFIRMED}
    assert made.run()["confirmed"] is True
    assert len(set(made.used)) == 1


def test_no_trial_without_new_values_or_in_check_mode_or_after_a_failure(action):
    assert "confirmed" not in action({"confirm_seconds": 60}).run()
    made = action({"confirm_seconds": 60}, check_mode=True)
    assert (made.run(), made.did) == ({"changed": True}, ["module"])
    made = action({"confirm_seconds": 60})
    made.module_result = {"failed": True, "unconfirmed": UNCONFIRMED}
    assert "confirmed" not in made.run()


def test_a_login_that_fails_is_a_failure_of_the_task(action):
    made = action({"confirm_seconds": 60})
    made.module_result = {"changed": True, "unconfirmed": UNCONFIRMED}
    made.fails = ("podslice confirm",)
    found = made.run()
    assert (found["failed"], found["confirmed"]) == (True, False)
    assert "no route to host" in found["msg"]


def test_a_connection_that_is_lost_in_the_module_is_not_unreachable(action):
    made = action({"confirm_seconds": 60})
    made.fails = ("module",)
    found = made.run()
    assert (found["failed"], found["confirmed"]) == (True, False)
    assert made.did == ["true", "module", "reset", "reset", "podslice status --output=json"]


def test_a_host_without_a_connection_is_unreachable(action):
    made = action({"confirm_seconds": 60})
    made.fails = ("true",)
    with pytest.raises(ConnectionFailure):
        made.run()
