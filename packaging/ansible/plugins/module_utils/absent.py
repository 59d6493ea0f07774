# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""State absent of the module pods: remove the file, delete the pods."""

from __future__ import annotations

import os
from collections.abc import Sequence

from .changes import file_diff, shortcomings, unit_diff
from .files import read_text, remove
from .manifests import Source, as_definition, key_of
from .pod_status import occupied, present_pods, removals
from .pod_work import PodWork, Result, warnings_of
from .podslice import (
    DIFFERENCES,
    DONE,
    Document,
    Failure,
    Podslice,
    failure_of,
    list_under,
    parse_document,
)


class Absent(PodWork):
    """Pods that are removed, and their file."""

    def __init__(
        self, wanted: Document, podslice: Podslice, source: Source | None, *, check_mode: bool
    ) -> None:
        super().__init__(wanted, podslice, check_mode=check_mode)
        self.source = source

    def run(self) -> Result:
        """Return the result."""
        keys = self._keys()
        target = self._existing(self.target(keys))
        if target is not None and self.source is None and not self.wanted["name"]:
            keys = self._keys_of_file(target)
        status = self.podslice.read("status", accept=(DONE, DIFFERENCES))
        present = present_pods(status, keys)
        self._check_files(keys, target)
        steps = list(removals(status, present))
        result = self.result
        result.changed = bool(present) or target is not None
        result.plan = {"steps": steps, "skipped": []}
        result.slices = {step["pod"]: step["unit"] for step in steps}
        result.file = target
        if steps:
            result.diff.append(unit_diff(steps, {step["unit"]: step["pod"] for step in steps}))
        if target is not None:
            result.diff.append(file_diff(target, read_text(target), None))
        self.refuse_stops(occupied(status, present))
        if not self.check_mode:
            if target is not None:
                # first, because an agent starts the pods of its manifests again
                remove(target)
            if present:
                self._delete(present)
        return result

    def _keys(self) -> list[str]:
        """Return the pods to remove.

        Raises:
            Failure: the definition is invalid.
        """
        if self.source is None:
            namespace = self.wanted["namespace"] or "default"
            names = self.wanted["name"] or []
            return [name if "/" in name else f"{namespace}/{name}" for name in names]
        words = ("check", *self.source.arguments, *self.namespace)
        try:
            found = self.podslice.read(*words, text=self.source.text)
        except Failure as failure:
            raise as_definition(failure, self.source) from failure
        return [key_of(pod) for pod in found["pods"]]

    def _existing(self, target: str | None) -> str | None:
        """Return the file to remove, if it exists."""
        if target is None or not self.wanted["persist"] or read_text(target) is None:
            return None
        return target

    def _keys_of_file(self, target: str) -> list[str]:
        return [key_of(pod) for pod in self.pods_of([target])["pods"]]

    def _check_files(self, keys: Sequence[str], target: str | None) -> None:
        """Check that the file has no other pods, and that no other file has these.

        Raises:
            Failure: one of both is not so.
        """
        if not self.wanted["persist"]:
            return
        if target is not None:
            more = sorted(set(self._keys_of_file(target)) - set(keys))
            if more:
                raise Failure(
                    f"{target} also has {', '.join(more)}: write the rest with state 'present', or"
                    " name all of its pods"
                )
        others = self.others(target)
        if not set(keys) & {key_of(pod) for pod in self.pods_of(others)["pods"]}:
            return
        for path in others:
            left = sorted(set(self._keys_of_file(path)) & set(keys))
            if left:
                raise Failure(
                    f"{', '.join(left)} would be started again, because {path} has it: set 'file'"
                    f" to {os.path.basename(path)}"
                )

    def _delete(self, keys: Sequence[str]) -> None:
        """Delete pods.

        Raises:
            Failure: something is left.
        """
        grace = self.wanted["grace_period"]
        words = ["delete", *keys]
        words += [] if grace is None else [f"--grace-period={grace}"]
        ended = self.podslice.call(*words, "--output=json", *self.podslice.options)
        report = parse_document(ended.out)
        if report is None or ended.code != DONE:
            missing = shortcomings(report) if report is not None else []
            if report is not None and not missing and not self._still_present(keys):
                return  # an agent has removed them in the meantime
            if report is None or not missing:
                raise failure_of(("delete",), ended)
            raise Failure(
                list_under("not everything was removed", missing),
                report=report,
                stderr=ended.err,
                **self.result.facts(changed=report["changed"] or self.result.file is not None),
            )
        self.warn(warnings_of(ended))

    def _still_present(self, keys: Sequence[str]) -> list[str]:
        return present_pods(self.podslice.read("status", accept=(DONE, DIFFERENCES)), keys)
