# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The logic of the module cgroup_parent."""

from __future__ import annotations

from .manifests import read_source
from .podslice import DONE, Document, Failure, Podslice, failure_of

ARGUMENTS: Document = {
    "pod": {"type": "str", "required": True},
    "container": {"type": "str"},
    "namespace": {"type": "str"},
    "output": {
        "type": "str",
        "choices": [
            "name",
            "podman",
            "podman-pod",
            "docker",
            "compose",
            "systemd",
            "quadlet",
            "oci",
        ],
        "default": "podman",
    },
    "definition": {"type": "raw"},
    "src": {"type": "path"},
}
MUTUALLY_EXCLUSIVE = [("definition", "src")]


def run(wanted: Document, podslice: Podslice, *, check_mode: bool) -> Document:
    """Return a pod's slice and the options that use it.

    Raises:
        Failure: the pod is not applied, and not in the manifests.
    """
    podslice.require_version()
    source = read_source(wanted["definition"], wanted["src"], wanted["namespace"])
    words = ["cgroup-parent", wanted["pod"]]
    words += [] if source is None else source.arguments
    words += [f"--container={wanted['container']}"] if wanted["container"] else []
    words += [f"--namespace={wanted['namespace']}"] if wanted["namespace"] else []
    text = None if source is None else source.text
    try:
        found = podslice.read(*words, text=text)
    except Failure as failure:
        hint = "" if source is not None else "; 'definition' or 'src' names its manifest"
        raise Failure(f"{failure.message}{hint}", **failure.facts) from failure
    line = found["lines"].get(wanted["output"])
    if line is None:  # the form requires the choice of a container, or an error about it
        ended = podslice.call(*words, f"--output={wanted['output']}", *podslice.options, text=text)
        if ended.code != DONE:
            raise failure_of(("cgroup-parent",), ended)
        line = ended.out.rstrip("\n")
    warns = not found["exists"] and not check_mode
    return {
        "changed": False,
        "slice": found["slice"],
        "control_group": found["control_group"],
        "exists": found["exists"],
        "labels": found["labels"],
        "line": line,
        "warnings": found["notes"] if warns else [],
    }
