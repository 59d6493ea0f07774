"""Write the result of each task, and the summary of each host, as lines of JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: record
type: aggregate
short_description: Writes results of tasks to a file
description: Writes a line of JSON for each result, to the file that $RECORD names.
"""


class CallbackModule(CallbackBase):
    """Writes results."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "record"

    def v2_runner_on_ok(self, result):
        self._write(result)

    def v2_runner_on_failed(self, result, ignore_errors=False):  # noqa: FBT002
        self._write(result)

    def v2_runner_on_unreachable(self, result):
        self._write(result)

    def v2_playbook_on_stats(self, stats):
        for host in stats.processed:
            self._append({"host": host, "stats": stats.summarize(host)})

    def _write(self, result):
        # its names have changed with ansible-core 2.19
        found = {
            "host": result._host.get_name(),
            "task": result._task.get_name(),
            "result": result._result,
        }
        self._append(found)

    def _append(self, found):
        with Path(os.environ["RECORD"]).open("a") as file:
            file.write(f"{json.dumps(found, default=str)}\n")
