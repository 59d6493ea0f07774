# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The action of modules with the option confirm_seconds: the module, then a second connection."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from .trial import Ended, NoLogin, conclude, conclude_lost


@contextmanager
def _logging_in(connection: Any) -> Iterator[None]:  # noqa: ANN401 - of any plugin
    """Let each command begin with a login, even if ssh keeps a connection for all tasks."""
    with suppress(AnsibleConnectionFailure):  # some plugins connect again at once
        connection.reset()
    if connection.transport != "ssh":
        yield
        return
    before = connection.get_option("ssh_args")
    # the first value of an option counts
    connection.set_option("ssh_args", f"-o ControlPath=none {before or ''}".strip())
    try:
        yield
    finally:
        connection.set_option("ssh_args", before)


class _Connection:
    """The connection of an action."""

    def __init__(self, action: ConfirmingAction) -> None:
        self._action = action

    def log_in(self) -> None:
        """Close the connection, so that the next command begins with a login."""
        try:
            self._action._connection.reset()  # noqa: SLF001 - the interface of actions
        except AnsibleConnectionFailure as error:
            raise NoLogin(str(error)) from error

    def run(self, words: list[str]) -> Ended:
        """Run a command, with `become` if the task has it."""
        try:
            ended = self._action._low_level_execute_command(  # noqa: SLF001
                shlex.join(words), sudoable=True
            )
        except AnsibleConnectionFailure as error:
            raise NoLogin(str(error)) from error
        return Ended(ended["rc"], ended.get("stdout", ""), ended.get("stderr", ""))


class ConfirmingAction(ActionBase):
    """Runs the module, and confirms what it has set on trial."""

    _supports_check_mode = True
    _supports_async = False
    _supports_diff = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the result of the task."""
        result = super().run(tmp, task_vars)
        seconds = self._task.args.get("confirm_seconds")
        if not seconds or self._task.check_mode:
            result.update(self._execute_module(task_vars=task_vars))
            return result
        # a host that cannot be reached at all is unreachable, as in every task
        self._low_level_execute_command("true")
        try:
            result.update(self._execute_module(task_vars=task_vars))
        except AnsibleConnectionFailure as error:
            name = self._task.args.get("executable") or "podslice"
            with _logging_in(self._connection):
                lost = conclude_lost(int(seconds), name, str(error), _Connection(self), time)
            result.update(lost)
            return result
        unconfirmed = result.get("unconfirmed")
        if unconfirmed and not result.get("failed"):
            with _logging_in(self._connection):
                result.update(conclude(unconfirmed, int(seconds), _Connection(self), time))
        return result
