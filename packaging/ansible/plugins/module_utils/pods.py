# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The logic of the module pods."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any, Sequence

from .changes import (
    describe_refusal,
    describe_skipped,
    describe_stop,
    file_diff,
    shortcomings,
    stops_of,
    unit_diff,
)
from .files import is_manifest, list_manifests, read_text, remove, write_text
from .podslice import (
    BAD_INPUT,
    DIFFERENCES,
    DONE,
    FAILED,
    Document,
    Ended,
    Failure,
    Podslice,
    describe_problem,
    failure_of,
    parse_document,
    problems_of,
)
from .rendering import to_yaml

ARGUMENTS: Document = {
    "definition": {"type": "raw"},
    "src": {"type": "path"},
    "name": {"type": "list", "elements": "str"},
    "namespace": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "prune": {"type": "bool", "default": False},
    "persist": {"type": "bool", "default": True},
    "directory": {"type": "path"},
    "file": {"type": "str"},
    "allow_stop": {"type": "bool", "default": False},
    "allow_refused": {"type": "bool", "default": False},
    "force": {"type": "bool", "default": False},
    "grace_period": {"type": "int"},
    "confirm_seconds": {"type": "int"},
}
MUTUALLY_EXCLUSIVE = [("definition", "src", "name")]
REQUIRED_ONE_OF = [("definition", "src", "name", "file")]

SYSTEM_DIRECTORY = "/etc/podslice/manifests"
USER_DIRECTORY = "podslice/manifests"
HEADER = "# Written by Ansible (podslice.host.pods), which overwrites changes.\n"
STDIN = "stdin"
"""How podslice names what a module passes to it."""

_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")


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

    def facts(self) -> Document:
        """Return it as the result of a module."""
        found = {name: value for name, value in vars(self).items() if name != "unconfirmed"}
        return found if self.unconfirmed is None else {**found, "unconfirmed": self.unconfirmed}


def run(wanted: Document, podslice: Podslice, *, check_mode: bool) -> Document:
    """Bring pods into a state, and return the result of the module.

    Raises:
        Failure: it is not possible, or not allowed.
    """
    _check_options(wanted, podslice)
    podslice.require_version()
    work = _Present if wanted["state"] == "present" else _Absent
    return work(wanted, podslice, check_mode=check_mode).run().facts()


def _check_options(wanted: Document, podslice: Podslice) -> None:
    """Check what the specification of arguments cannot state.

    Raises:
        Failure: options do not fit together.
    """
    is_present = wanted["state"] == "present"
    if is_present and wanted["definition"] is None and wanted["src"] is None:
        raise Failure("state 'present' requires one of: definition, src")
    is_text = wanted["src"] is not None or isinstance(wanted["definition"], str)
    if is_present and wanted["persist"] and wanted["namespace"] is not None and is_text:
        raise Failure(
            "a text that is kept in a file must state its namespace, since it is applied at boot"
            " without the option 'namespace': add metadata.namespace, or set 'persist: false'"
        )
    if is_present and wanted["grace_period"] is not None:
        raise Failure(
            "grace_period is an option of state 'absent'; pods that 'prune' removes have their own"
            " terminationGracePeriodSeconds"
        )
    if not is_present and wanted["confirm_seconds"] is not None:
        raise Failure("confirm_seconds is an option of state 'present'")
    if podslice.is_user and wanted["confirm_seconds"] is not None:
        raise Failure("confirm_seconds requires scope 'system': a user has no reserved slices")
    name = wanted["file"]
    if name is not None and not _FILE_NAME.fullmatch(name):
        raise Failure(
            f"file: {name!r} is not a name of a file: letters, digits, '-', '_', '.' and '@';"
            " 'directory' has the directory"
        )


@dataclass(frozen=True)
class Source:
    """Manifests: a text, or a file or a directory of the host."""

    text: str | None = None
    path: str | None = None

    @property
    def arguments(self) -> list[str]:
        """Return the options that pass it to podslice."""
        return [f"--filename={self.path or '-'}"]


def read_source(
    definition: object, path: str | None, namespace: str | None = None
) -> Source | None:
    """Return the manifests of the options; None without any.

    Objects of a definition get the namespace, unless they have one.

    Raises:
        Failure: the definition is neither a mapping, a list of mappings nor a text.
    """
    if path is not None:
        return Source(path=path)
    if definition is None:
        return None
    if isinstance(definition, str):
        text = definition if definition.endswith("\n") else f"{definition}\n"
        return Source(text=text)
    objects = definition if isinstance(definition, list) else [definition]
    if not objects or not all(isinstance(each, dict) for each in objects):
        raise Failure("definition must be a mapping, a list of mappings, or a text")
    if namespace is not None:
        objects = [_with_namespace(each, namespace) for each in objects]
    return Source(text=HEADER + "---\n".join(map(to_yaml, objects)))


def _with_namespace(value: Any, namespace: str) -> Any:  # noqa: ANN401
    """Return an object with a namespace; in a list its items have it."""
    if not isinstance(value, dict):
        return value
    items, metadata = value.get("items"), value.get("metadata")
    if isinstance(items, list):
        return {**value, "items": [_with_namespace(item, namespace) for item in items]}
    if isinstance(metadata, dict) and not metadata.get("namespace"):
        return {**value, "metadata": {**metadata, "namespace": namespace}}
    return value


class _Work:
    """What both states have in common."""

    def __init__(self, wanted: Document, podslice: Podslice, *, check_mode: bool) -> None:
        self.wanted = wanted
        self.podslice = podslice
        self.check_mode = check_mode
        self.result = Result()
        self.source = read_source(wanted["definition"], wanted["src"], wanted["namespace"])
        self.namespace = [f"--namespace={wanted['namespace']}"] if wanted["namespace"] else []
        self.directory = wanted["directory"] or default_directory(is_user=podslice.is_user)

    def target(self, keys: Sequence[str]) -> str | None:
        """Return the path of the file of pods; None if their number leaves its name open."""
        name = self.wanted["file"]
        if name is None and len(keys) == 1:
            namespace, _, pod = keys[0].partition("/")
            name = pod if namespace == "default" else f"{namespace}_{pod}"
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
        return self.podslice.read(
            "check", *files, *self.namespace, text=text, accept=(DONE, BAD_INPUT)
        )

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
                "\n- ".join(
                    (
                        "processes would be stopped; to allow this, set 'allow_stop: true':",
                        *map(describe_stop, stops),
                    )
                ),
                **self.result.facts(),
            )

    def warn(self, notes: Sequence[str]) -> None:
        """Add warnings, each once."""
        self.result.warnings += [each for each in notes if each not in self.result.warnings]


class _Present(_Work):
    """State present: plan, compare the file, apply, write the file."""

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
            if plan["changed"] or is_new_text or target is None:
                self._apply(target, text)
            if target is not None and is_new_text and text is not None:
                write_text(target, text)
        self._note_unconfirmed()
        return self.result

    def _explain(self) -> Document:
        """Return the document of all pods of the definition.

        Raises:
            Failure: it is invalid.
        """
        assert self.source is not None
        words = ("explain", *self.source.arguments, *self.namespace)
        try:
            return self.podslice.read(*words, text=self.source.text)
        except Failure as failure:
            raise _as_definition(failure, self.source) from failure

    def _text_to_write(self, keys: Sequence[str]) -> tuple[str | None, str | None]:
        """Return the text of the manifest to keep and the path of its file, if there is to be one.

        Raises:
            Failure: the name of the file is not certain.
        """
        assert self.source is not None
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
        return read_text(path), target

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
                "\n- ".join(
                    (
                        f"with this file, {self.directory} would be invalid, and its pods would not"
                        " be applied at boot; 'file' names the file to write:",
                        *lines,
                    )
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
        self.warn(_notes(ended))
        if ended.code == FAILED and not plan["refused"]:
            skipped = "; ".join(map(describe_skipped, plan["skipped"])) or ended.err.strip()
            raise Failure(f"the plan cannot be executed as a whole: {skipped}", plan=plan)
        return plan

    def _call(self, verb: str, target: str | None, text: str | None, *options: str) -> Ended:
        """Plan or apply the pods; to prune means to keep those of the other files, too."""
        assert self.source is not None
        words = [verb, "--output=json"]
        if target is not None and self.wanted["prune"]:
            words += [f"--filename={path}" for path in self.others(target)]
        words += self.source.arguments if target is None else ["--filename=-"]
        words += self.namespace
        words += ["--prune"] if self.wanted["prune"] else []
        words += ["--force"] if self.wanted["force"] else []
        given = self.source.text if target is None else text
        return self.podslice.call(*words, *options, *self.podslice.options, text=given)

    def _failure(self, verb: str, ended: Ended) -> Failure:
        assert self.source is not None
        return _as_definition(failure_of((verb,), ended), self.source)

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
                "\n- ".join(
                    (
                        "not all pods fit, and nothing was changed; to apply the others, set"
                        " 'allow_refused: true':",
                        *map(describe_refusal, plan["refused"]),
                    )
                ),
                **self.result.facts(),
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
            [
                stop
                for stop in occupied(status, running)
                if stop not in self.result.stopped
            ]
        )

    def _apply(self, target: str | None, text: str | None) -> None:
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
        self.warn(_notes(ended))
        missing = shortcomings(report)
        if report["refused"] and not self.wanted["allow_refused"]:
            missing += map(describe_refusal, report["refused"])
        if ended.code == FAILED and not report["refused"] and not missing:
            missing = list(map(describe_skipped, report["skipped"])) or [ended.err.strip()]
        if missing:
            raise Failure(
                "\n- ".join(("not everything was applied:", *missing)),
                report=report,
                stderr=ended.err,
                **self.result.facts(),
            )
        if report["changed"]:
            self.result.changed = True

    def _note_unconfirmed(self) -> None:
        """Add the values that a new connection has to confirm, also those of an earlier run."""
        if self.wanted["confirm_seconds"] is None or self.check_mode:
            return
        self.result.unconfirmed = self.podslice.unconfirmed()


class _Absent(_Work):
    """State absent: remove the file, delete the pods."""

    def run(self) -> Result:
        """Return the result."""
        keys = self._keys()
        target = self._existing(self.target(keys))
        if target is not None and self.source is None and not self.wanted["name"]:
            keys = self._keys_of_file(target)
        status = self.podslice.read("status", accept=(DONE, DIFFERENCES))
        marked = {each["pod"] for each in status["evicted"]}
        present = [key for key in keys if key in applied_pods(status) or key in marked]
        self._check_files(keys, target)
        steps = list(_steps_of(status, present))
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
            raise _as_definition(failure, self.source) from failure
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
            if not missing:
                raise failure_of(("delete",), ended)
            raise Failure(
                "\n- ".join(("not everything was removed:", *missing)),
                report=report,
                stderr=ended.err,
                **self.result.facts(),
            )
        self.warn(_notes(ended))


def default_directory(*, is_user: bool) -> str:
    """Return the directory of manifests that boot and agent apply."""
    if not is_user:
        return SYSTEM_DIRECTORY
    config = os.environ.get("XDG_CONFIG_HOME", "")
    if not config.startswith("/"):
        config = os.path.expanduser("~/.config")
    return os.path.join(config, USER_DIRECTORY)


def key_of(pod: Document) -> str:
    """Return `namespace/name`."""
    return f"{pod['namespace']}/{pod['name']}"


def applied_pods(status: Document) -> set[str]:
    """Return the pods that have units."""
    return {unit["pod"] for unit in status["units"] if unit["pod"] is not None}


def _steps_of(status: Document, keys: Sequence[str]) -> Any:  # noqa: ANN401
    """Yield the slices of pods as steps that stop them: `delete` has no dry run."""
    stops = {stop["unit"]: stop for stop in occupied(status, keys)}
    for unit in status["units"]:
        if unit["pod"] in keys and unit["kind"] == "slice":
            stop = stops.get(unit["name"], {})
            yield {
                "action": "stop",
                "unit": unit["name"],
                "pod": unit["pod"],
                "properties": [],
                "why": f"pod {unit['pod']} is removed",
                "tasks": stop.get("tasks", 0),
                "occupants": stop.get("processes", []),
            }


def occupied(status: Document, keys: Sequence[str]) -> list[Document]:
    """Return the slices of pods with processes, as `stops_of` does for a plan."""
    found: dict[str, list[str]] = {}
    for unit in (*status["units"], *status["others"]):
        for process in unit.get("processes") or []:
            found.setdefault(unit["pod"], []).append(f"{process['name']} ({process['pid']})")
    tasks = {unit["pod"]: unit.get("usage", {}).get("tasks") or 0 for unit in _slices(status)}
    stops = []
    for unit in _slices(status):
        pod = unit["pod"]
        processes = found.get(pod, [])
        if not processes and tasks[pod]:
            processes = [f"{tasks[pod]} tasks"]
        if pod in keys and processes:
            stops.append(
                {
                    "unit": unit["name"],
                    "why": f"pod {pod}",
                    "tasks": max(tasks[pod], len(found.get(pod, []))),
                    "processes": processes,
                }
            )
    return stops


def _slices(status: Document) -> list[Document]:
    return [unit for unit in status["units"] if unit["pod"] is not None and unit["kind"] == "slice"]


def _notes(ended: Ended) -> list[str]:
    """Return the warnings of a call."""
    return [
        describe_problem(each) for each in problems_of(ended) if each.get("severity") == "warning"
    ]


def _as_definition(failure: Failure, source: Source) -> Failure:
    """Return a failure whose problems are in the definition instead of in standard input."""
    if source.path is not None:
        return failure
    message = re.sub(rf"(?m)(^|: |- ){STDIN}\b", r"\1definition", failure.message)
    return Failure(message, **failure.facts)
