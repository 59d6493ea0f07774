"""`podslice new`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from podslice.cli import interrupts
from podslice.cli.arguments import DONE, Namespace, TextOrJson, code_of
from podslice.cli.host import tolerate
from podslice.cli.options import Planning
from podslice.cli.output import ReportFormat, note_problems, write, write_json
from podslice.cli.report import document
from podslice.cli.session import in_world
from podslice.errors import HostError, InputError, Problem, invalid, printable, quote
from podslice.features.importing.manifest import (
    NewContainer,
    NewPod,
    decide_draft,
    format_lines,
    make_document,
    with_proposals,
    with_requests,
)
from podslice.features.importing.policy import PresentUse, StatedAmount, propose_amounts
from podslice.features.importing.reading import (
    describe_use,
    note_if_young,
    process_use,
    unit_use,
)
from podslice.kernel.proc import find_manager
from podslice.model.config import Config
from podslice.model.grammar import to_label
from podslice.model.resources import CPU, MEMORY
from podslice.model.unit import ObservedUnit, complete_name, is_unit_name
from podslice.reconcile.world import LiveWorld

_DEFAULT_CONTAINER = "main"
_OPTION_OF_FIELD = {
    "metadata.name": "NAME",
    "metadata.namespace": "--namespace",
    "spec.resources.requests[cpu]": "--cpu",
    "spec.resources.limits[cpu]": "--cpu-limit",
    "spec.resources.requests[memory]": "--memory",
    "spec.resources.limits[memory]": "--memory-limit",
}
"""The fields of the manifest, and the options that set them."""
_CONTAINER_FIELD = re.compile(r"spec\.containers\[\d+\]\.name")

CpuRequest = Annotated[
    str | None, typer.Option(metavar="QUANTITY", help="Request of CPUs: 500m is half of one.")
]
CpuLimit = Annotated[str | None, typer.Option(metavar="QUANTITY", help="Limit of CPUs: 500m, 2.")]
MemoryRequest = Annotated[
    str | None, typer.Option(metavar="QUANTITY", help="Request of memory: 512Mi, 2Gi.")
]
MemoryLimit = Annotated[
    str | None, typer.Option(metavar="QUANTITY", help="Limit of memory: 512Mi, 2Gi.")
]
Reserve = Annotated[bool, typer.Option("--reserve", help="Make the limits requests, too.")]
Containers = Annotated[
    list[str] | None,
    typer.Option("--container", "-c", metavar="NAME", help="A container; may be repeated."),
]
Like = Annotated[
    str | None,
    typer.Option(
        metavar="UNIT|PID",
        help="Propose values from the present use.",
    ),
]
OutputFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the manifest to a new file."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]
User = Annotated[bool, typer.Option("--user", help="With --like: a unit of the user manager.")]


@dataclass(frozen=True, kw_only=True)
class Report:
    """The manifest of the pod, and the file that it was written to."""

    manifest: dict[str, Any]
    file: str | None


def new(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the pod.")],
    cpu: CpuRequest = None,
    cpu_limit: CpuLimit = None,
    memory: MemoryRequest = None,
    memory_limit: MemoryLimit = None,
    reserve: Reserve = False,  # noqa: FBT002
    container: Containers = None,
    like: Like = None,
    namespace: Namespace = None,
    output_file: OutputFile = None,
    overwrite: Overwrite = False,  # noqa: FBT002
    user: User = False,  # noqa: FBT002
    output: TextOrJson = ReportFormat.TEXT,
) -> int:
    """Run `podslice new`.

    All containers share the pod's budget. The manifest is printed on standard output; nothing is
    started.

    Examples:
        podslice new web --cpu-limit 2 --memory-limit 1Gi --output-file web.yaml
        podslice new web --like nginx.service
    """
    use, problems = _observe(like, user=user) if like else (None, [])
    like_name = (to_label(use.name) if use else "") or _DEFAULT_CONTAINER
    pod = NewPod(
        name=name,
        namespace=namespace,
        containers=tuple(NewContainer(name=each) for each in container or [like_name]),
        requests=_amounts(cpu, memory),
        limits=_amounts(cpu_limit, memory_limit),
    )
    problems += _validate(pod)
    if reserve and not pod.limits:
        hint = "add --cpu-limit or --memory-limit"
        problems.append(
            Problem(where="--reserve", message="there is no limit to reserve", hint=hint)
        )
    if not code_of(problems):
        if use is not None:
            pod = with_proposals(pod, propose_amounts(use))
        pod = with_requests(pod, reserve=reserve)
        problems = _validate(pod)
    if code_of(problems):
        raise InputError(problems)
    note_problems(problems)
    origin = f"Proposed from the present use of {describe_use(use)}." if use else ""
    lines = list(format_lines(pod, origin))
    if output_file is not None:
        _write_file(output_file, lines, overwrite=overwrite)
        shown = printable(str(output_file))
        lines = [f"wrote {shown}; show what its values become: podslice explain -f {shown}"]
    if output is ReportFormat.JSON:
        file = None if output_file is None else str(output_file)
        write_json(document(Report(manifest=make_document(pod), file=file)))
    else:
        write(lines)
    return DONE


def _amounts(cpu: str | None, memory: str | None) -> dict[str, StatedAmount]:
    stated = {CPU: cpu, MEMORY: memory}
    return {key: StatedAmount(text=text) for key, text in stated.items() if text is not None}


def _validate(pod: NewPod) -> list[Problem]:
    """Return the problems that the manifest would have, with the options in place of its fields."""
    problems = []
    for each in decide_draft(pod, Config())[1]:
        field = each.where.removeprefix(": ")
        option = _OPTION_OF_FIELD.get(field, field)
        if _CONTAINER_FIELD.fullmatch(field):
            option = "--container"
        problems.append(replace(each, where=option))
    return list(dict.fromkeys(problems))


def _observe(like: str, *, user: bool) -> tuple[PresentUse | None, list[Problem]]:
    """Return the present use of a unit or a process, or why there is none."""
    try:
        if like.isdecimal() and like.isascii():
            use, missing = process_use(int(like)), f"there is no process {like}"
        else:
            unit = _find_unit(complete_name(like), user=user)
            use, missing = unit_use(unit), f"{unit.name} has no processes"
    except InputError as error:
        return None, list(error.problems)
    if use is None:
        hint = "name a unit that is running, or the id of a process"
        return None, [Problem(where="--like", message=missing, hint=hint)]
    note_if_young(use)
    return use, []


def _find_unit(name: str, *, user: bool) -> ObservedUnit:
    """Return a loaded unit.

    Raises:
        InputError: it is not the name of a unit, or no such unit is loaded.
    """
    if not is_unit_name(name):
        raise invalid(
            f"{quote(name)} is neither a unit nor the id of a process",
            "name a service, scope or slice",
            where="--like",
        )
    planning = tolerate(Planning(manager=find_manager(user=user)))

    async def work(world: LiveWorld) -> tuple[ObservedUnit, ...]:
        return await world.client.observe([name])

    found = [unit for unit in in_world(planning, work) if unit.name == name]
    if not found:
        hint = "see: systemctl --user" if user else "see: systemctl"
        raise invalid(f"no unit {name} is loaded", hint, where="--like")
    return found[0]


def _write_file(path: Path, lines: Iterable[str], *, overwrite: bool) -> None:
    """Write the manifest to a file.

    Raises:
        InputError: the file exists.
        HostError: it cannot be written.
    """
    interrupts.begin(f"{path} may be incomplete")
    try:
        with path.open("w" if overwrite else "x") as file:
            file.writelines(f"{line}\n" for line in lines)
    except FileExistsError:
        raise invalid(
            "the file exists", "choose another one, or add --overwrite", where=str(path)
        ) from None
    except OSError as error:
        raise HostError(f"{path}: {error.strerror}") from error
