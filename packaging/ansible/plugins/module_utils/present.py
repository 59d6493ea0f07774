# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""State present of the module pods: plan, compare the file, write it, apply."""

from __future__ import annotations

import os
from collections.abc import Sequence

from .changes import (
    describe_refusal,
    describe_skipped,
    file_diff,
    shortcomings,
    stops_of,
    unit_diff,
)
from .files import is_manifest, read_text, write_text
from .manifests import STDIN, Source, as_definition, key_of
from .pod_status import applied_pods, occupied
from .pod_work import PodWork, Result, warnings_of
from .podslice import (
    DIFFERENCES,
    DONE,
    FAILED,
    Document,
    Ended,
    Failure,
    Podslice,
    describe_problem,
    failure_of,
    list_under,
    parse_document,
)


class Present(PodWork):
    """Pods that are applied, and their file."""

    def __init__(
        self, wanted: Document, podslice: Podslice, source: Source, *, check_mode: bool
    ) -> None:
        super().__init__(wanted, podslice, check_mode=check_mode)
        self.source = source

    def run(self) -> Result:
        """Return the result."""
        explained = self._explain()
        keys = [key_of(pod) for pod in explained["pods"]]
        self.result.slices = {key_of(pod): pod["slice"] for pod in explained["pods"]}
        text, target = self._text_to_write(keys)
        self.result.file = target if target is not None else self._kept_file()
        old = None if target is None else read_text(target)
        is_new_text = target is not None and old != text
        lost: list[str] = []
        if target is not None and is_new_text:
            lost = self._compare_directory(target, old, text)
        plan = self._plan(target, text)
        self.result.changed = plan["changed"] or is_new_text
        self._describe(plan)
        if target is not None and is_new_text:
            self.result.diff.append(file_diff(target, old, text))
        self._judge(plan)
        self._release(lost)
        if not self.check_mode:
            if target is not None and is_new_text and text is not None:
                # first, because an agent would undo what differs from the file that it knows
                write_text(target, text)
            if plan["changed"] or is_new_text or target is None:
                self._apply(target, text, has_written=is_new_text)
        self._note_unconfirmed()
        return self.result

    def _explain(self) -> Document:
        """Return the document of all pods of the definition.

        Raises:
            Failure: it is invalid.
        """
        words = ("explain", *self.source.arguments, *self.namespace)
        try:
            return self.podslice.read(*words, text=self.source.text)
        except Failure as failure:
            raise as_definition(failure, self.source) from failure

    def _text_to_write(self, keys: Sequence[str]) -> tuple[str | None, str | None]:
        """Return the text of the manifest to keep and the path of its file, if there is to be one.

        Raises:
            Failure: the name of the file is not certain.
        """
        path = self.source.path
        if not self.wanted["persist"] or self._is_kept(path):
            return self.source.text, None
        target = self.target(keys)
        if target is None:
            raise Failure(
                f"the definition has {len(keys)} pods: set 'file' to the name of the file in"
                f" {self.directory} that keeps them, or 'persist: false'"
            )
        if path is None:
            return self.source.text, target
        if os.path.isdir(path):
            raise Failure(
                f"{path} is a directory, and one task keeps one file in {self.directory}: use a"
                " task for each file, or 'persist: false'"
            )
        return read_text(path, follow=True), target

    def _is_kept(self, path: str | None) -> bool:
        """Return whether a path is the manifest directory, or a manifest in it."""
        if path is None:
            return False
        here, kept = os.path.realpath(path), os.path.realpath(self.directory)
        return here == kept or (os.path.dirname(here) == kept and is_manifest(here))

    def _kept_file(self) -> str | None:
        path = self.wanted["src"]
        return path if self.wanted["persist"] and path is not None and self._is_kept(path) else None

    def _compare_directory(self, target: str, old: str | None, text: str | None) -> list[str]:
        """Compare the directory as it will be, and return the pods that it no longer has.

        Raises:
            Failure: another file has one of the pods.
        """
        future = self.pods_of(self.others(target), text)
        errors = [each for each in future["problems"] if each["severity"] == "error"]
        own = [each for each in errors if each["where"].split(":")[0] == STDIN]
        if own:
            lines = [describe_problem(each).replace(STDIN, target, 1) for each in own]
            raise Failure(
                list_under(
                    f"with this file, {self.directory} would be invalid, and its pods would not be"
                    " applied at boot; 'file' names the file to write",
                    lines,
                ),
                problems=own,
            )
        self.warn([describe_problem(each) for each in errors])
        if old is None:
            return []
        present = {key_of(pod) for pod in future["pods"]}
        before = self.pods_of([target])
        return sorted({key_of(pod) for pod in before["pods"]} - present)

    def _plan(self, target: str | None, text: str | None) -> Document:
        """Return the plan.

        Raises:
            Failure: there is none, because the input is invalid or the root is of a kubelet.
        """
        ended = self._call("plan", target, text)
        plan = parse_document(ended.out)
        if plan is None or ended.code not in (DONE, FAILED, DIFFERENCES):
            raise self._failure("plan", ended)
        if plan.get("foreign"):
            foreign = plan["foreign"]
            raise Failure(f"apply would be refused: {foreign['reason']}; {foreign['fix']}")
        self.warn(list(map(describe_skipped, plan["skipped"])))
        self.warn(warnings_of(ended))
        if ended.code == FAILED and not plan["refused"]:
            skipped = "; ".join(map(describe_skipped, plan["skipped"])) or ended.err.strip()
            raise Failure(f"the plan cannot be executed as a whole: {skipped}", plan=plan)
        return plan

    def _call(self, verb: str, target: str | None, text: str | None, *options: str) -> Ended:
        """Plan or apply the pods; to prune means to keep those of the other files, too."""
        words = [verb, "--output=json"]
        if self.wanted["prune"]:
            words += [f"--filename={path}" for path in self._kept_beside(target)]
        words += [*self.source.arguments, *self.namespace] if target is None else ["--filename=-"]
        words += ["--prune"] if self.wanted["prune"] else []
        words += ["--force"] if self.wanted["force"] else []
        given = self.source.text if target is None else text
        return self.podslice.call(*words, *options, *self.podslice.options, text=given)

    def _kept_beside(self, target: str | None) -> list[str]:
        """Return the manifests whose pods `prune` keeps, because they are in other files."""
        if target is not None:
            return self.others(target)
        kept = self._kept_file()
        if kept is None or os.path.isdir(kept):
            return []
        return self.others(os.path.join(self.directory, os.path.basename(kept)))

    def _failure(self, verb: str, ended: Ended) -> Failure:
        return as_definition(failure_of((verb,), ended), self.source)

    def _describe(self, plan: Document) -> None:
        """Add a plan to the result."""
        self.result.plan = {name: plan[name] for name in ("steps", "skipped")}
        self.result.refused = plan["refused"]
        pods = {slice_: pod for pod, slice_ in self.result.slices.items()}
        if plan["steps"]:
            self.result.diff.append(unit_diff(plan["steps"], pods))

    def _judge(self, plan: Document) -> None:
        """Check that the plan may be executed.

        Raises:
            Failure: a pod is refused, or processes would be stopped.
        """
        if plan["refused"] and not self.wanted["allow_refused"]:
            raise Failure(
                list_under(
                    "not all pods fit, and nothing was changed; to apply the others, set"
                    " 'allow_refused: true'",
                    map(describe_refusal, plan["refused"]),
                ),
                **self.result.facts(changed=False),
            )
        self.warn(list(map(describe_refusal, plan["refused"])))
        self.refuse_stops(stops_of(plan["steps"]))

    def _release(self, lost: Sequence[str]) -> None:
        """Report pods that no file has any longer: an agent stops them.

        Raises:
            Failure: an agent would stop their processes, and this is not allowed.
        """
        if not lost or self.wanted["prune"]:
            return
        status = self.podslice.read("status", accept=(DONE, DIFFERENCES))
        running = [pod for pod in lost if pod in applied_pods(status)]
        if status["agent_pid"] is None:
            self.warn(
                [
                    f"pod {pod} is in no manifest of {self.directory} any longer; it stays until it"
                    " is deleted (state 'absent' or 'prune'), or the host is shut down"
                    for pod in running
                ]
            )
            return
        for pod in running:
            self.warn([f"the agent stops pod {pod}, which is in no manifest any longer"])
        self.refuse_stops(
            [stop for stop in occupied(status, running) if stop not in self.result.stopped]
        )

    def _apply(self, target: str | None, text: str | None, *, has_written: bool) -> None:
        """Apply the pods.

        Raises:
            Failure: something was not done.
        """
        seconds = self.wanted["confirm_seconds"]
        options = [] if seconds is None else [f"--confirm={seconds}"]
        ended = self._call("apply", target, text, *options)
        report = parse_document(ended.out)
        if report is None or ended.code not in (DONE, FAILED):
            raise self._failure("apply", ended)
        self.warn(warnings_of(ended))
        missing = shortcomings(report)
        if report["refused"] and not self.wanted["allow_refused"]:
            missing += map(describe_refusal, report["refused"])
        if ended.code == FAILED and not report["refused"] and not missing:
            missing = list(map(describe_skipped, report["skipped"])) or [ended.err.strip()]
        if missing:
            raise Failure(
                list_under("not everything was applied", missing),
                report=report,
                stderr=ended.err,
                **self.result.facts(changed=report["changed"] or has_written),
            )
        if report["changed"]:
            self.result.changed = True

    def _note_unconfirmed(self) -> None:
        """Add the values that a new connection has to confirm, also those of an earlier run."""
        if self.wanted["confirm_seconds"] is None or self.check_mode:
            return
        self.result.unconfirmed = self.podslice.unconfirmed()
