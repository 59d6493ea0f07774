# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""What both states of the module pods have in common."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from .changes import describe_stop
from .files import list_manifests
from .manifests import default_directory
from .podslice import (
    BAD_INPUT,
    DONE,
    Document,
    Ended,
    Failure,
    Podslice,
    describe_problem,
    list_under,
    problems_of,
)


@dataclass
class Result:
    """What a run found and did."""

    changed: bool = False
    plan: Document = field(default_factory=dict)
    refused: list[Document] = field(default_factory=list)
    stopped: list[Document] = field(default_factory=list)
    slices: dict[str, str] = field(default_factory=dict)
    file: str | None = None
    unconfirmed: Document | None = None
    diff: list[Document] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def facts(self, *, changed: bool | None = None) -> Document:
        """Return it as the result of a module; a failure states whether something was changed."""
        found = {name: value for name, value in vars(self).items() if name != "unconfirmed"}
        if changed is not None:
            found["changed"] = changed
        return found if self.unconfirmed is None else {**found, "unconfirmed": self.unconfirmed}


class PodWork:
    """What both states have in common."""

    def __init__(self, wanted: Document, podslice: Podslice, *, check_mode: bool) -> None:
        self.wanted = wanted
        self.podslice = podslice
        self.check_mode = check_mode
        self.result = Result()
        self.namespace = [f"--namespace={wanted['namespace']}"] if wanted["namespace"] else []
        self.directory = wanted["directory"] or default_directory(is_user=podslice.is_user)

    def target(self, keys: Sequence[str]) -> str | None:
        """Return the path of the file of pods; None if their number leaves its name open."""
        name = self.wanted["file"]
        if name is None and len(keys) == 1:
            name = keys[0].removeprefix("default/").replace("/", "_")
        if name is None:
            return None
        is_named = name.endswith((".json", ".yaml", ".yml"))
        return os.path.join(self.directory, name if is_named else f"{name}.yaml")

    def pods_of(self, paths: Sequence[str], text: str | None = None) -> Document:
        """Return the document of a check of files, and of a text after them."""
        files = [f"--filename={path}" for path in paths]
        if text is not None:
            files.append("--filename=-")
        if not files:
            return {"pods": [], "problems": []}
        # without the option `namespace`: files are read as at boot, and a text has it
        return self.podslice.read("check", *files, text=text, accept=(DONE, BAD_INPUT))

    def others(self, target: str | None) -> list[str]:
        """Return the manifests of the directory besides one."""
        return [path for path in list_manifests(self.directory) if path != target]

    def refuse_stops(self, stops: Sequence[Document]) -> None:
        """Add what is stopped to the result.

        Raises:
            Failure: processes would be stopped, and this is not allowed.
        """
        self.result.stopped += stops
        if stops and not self.wanted["allow_stop"]:
            raise Failure(
                list_under(
                    "processes would be stopped; to allow this, set 'allow_stop: true'",
                    map(describe_stop, stops),
                ),
                **self.result.facts(changed=False),
            )

    def warn(self, notes: Sequence[str]) -> None:
        """Add warnings, each once."""
        self.result.warnings += [each for each in notes if each not in self.result.warnings]


def warnings_of(ended: Ended) -> list[str]:
    """Return the warnings of a call."""
    return [
        describe_problem(each) for each in problems_of(ended) if each.get("severity") == "warning"
    ]
