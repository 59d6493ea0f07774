"""The JSON document of `node init` and `node reset`: files, and what they make of the node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from podslice.cli.views import documents
from podslice.cli.views.pod_documents import division
from podslice.errors import InputError
from podslice.inputs.options.config_files import make_config, read_files
from podslice.policy.allocatable import allocate, validate_node

if TYPE_CHECKING:
    from podslice.cli.node_files import FileChange
    from podslice.cli.views.documents import Document
    from podslice.errors import Problem
    from podslice.model.node import Node

_AGENT = "podslice-agent.service"


def read_allocation(node: Node, changes: Sequence[FileChange], root: Path) -> Document:
    """Return the division of the node after the changes, with all configuration files.

    With a configuration that is invalid the division is not known, and its problems are listed.
    """
    texts = {each.path: None if each.after is None else each.after.encode() for each in changes}
    try:
        files = read_files(root=root, texts=texts)
        config = make_config(files, {})
        problems = validate_node(node, config)
    except InputError as error:
        found = documents.listed(error.problems, documents.problem)
        unknown = dict.fromkeys(("capacity", "reserved", "allocatable", "effective"))
        return {**unknown, "configuration_problems": found}
    return {
        **division(allocate(node, config)),
        "effective": dict(sorted(files.options.items())),
        "configuration_problems": documents.listed(problems, documents.problem),
    }


def document(
    changes: Sequence[FileChange],
    allocation: Document,
    problems: Sequence[Problem],
    *,
    placed: Mapping[Path, str],
    config: Path,
    dry_run: bool,
) -> Document:
    """Return the document; `placed` are the services by their drop-in."""
    changed = {each.path for each in changes if each.is_change}
    return documents.document(
        changed=bool(changed),
        dry_run=dry_run,
        **allocation,
        files=[
            {
                "path": str(each.path),
                "changed": each.is_change,
                "before": each.before,
                "after": each.after,
            }
            for each in changes
        ],
        services=[service for path, service in placed.items() if _exists_after(path, changes)],
        needs_daemon_reload=bool(changed - {config}),
        needs_restart=[service for path, service in placed.items() if path in changed],
        needs_reload=[_AGENT] if config in changed else [],
        problems=documents.listed(problems, documents.problem),
    )


def _exists_after(path: Path, changes: Sequence[FileChange]) -> bool:
    return any(each.path == path and each.after is not None for each in changes)
