"""The units of pods for podman's generator, from manifests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from podslice.cli import interrupts
from podslice.cli.arguments import DONE, FAILED, code_of
from podslice.cli.host import PROGRAM, load_node, own_program
from podslice.cli.manifests import all_problems, decide_all, read_stdin
from podslice.cli.options import Planning
from podslice.cli.output import note, note_problems, write
from podslice.cli.wanted import note_start_at_boot
from podslice.errors import HostError, InputError, Problem, invalid, printable
from podslice.features.quadlet.files import Directories, installed, write_quadlets
from podslice.features.quadlet.generate import generate
from podslice.features.quadlet.probes import program_problem
from podslice.features.quadlet.result import (
    ARCHIVE_SUFFIX,
    Options,
    Quadlets,
    is_data,
    with_archive,
)
from podslice.features.quadlet.workloads import LoadedWorkloads, read_workloads
from podslice.inputs.manifest.kinds import DATA_KINDS
from podslice.inputs.manifest.load import LoadedPods, load_pods
from podslice.kernel.programs import NoAnswerError, run_program
from podslice.model.config import Rules, Validate
from podslice.model.desired import PodDecision
from podslice.model.unit import Manager
from podslice.policy.allocatable import validate_node

_VERSION_WAIT_SEC = 30.0
_EXTRACT = "tar --extract --preserve-permissions --directory=/ --file=FILE"


def render_quadlets(
    planning: Planning,
    filename: Sequence[str],
    namespace: str | None,
    *,
    ignored: frozenset[str],
    directory: Path | None,
    install: bool,
) -> int:
    """Write the quadlets of pods, if there is no error and no field is refused.

    They are printed on standard output unless they are for a directory or installed.

    Raises:
        InputError: the options contradict each other, or podman is too old.
    """
    if directory is not None and install:
        raise invalid("contradicts --output-dir", "write one of the two", where="--install")
    config = planning.config
    loaded, workloads = load_with_workloads(filename, namespace, ignored, config.validate)
    node = load_node(config, manager=planning.manager)
    decisions = decide_all(loaded, node, config)
    problems = [
        *all_problems(loaded, decisions),
        *validate_node(node, config),
        *further_problems(workloads.problems, loaded),
    ]
    note_problems(problems)
    if code := code_of(problems):
        return code
    options = host_options(planning, is_for_host=install)
    made = make_quadlets(decisions, workloads, options)
    for text in chain.from_iterable(each.notes for each in made):
        note(text)
    code = _write(made, planning.manager, directory, install=install)
    if install:
        note_start_at_boot(planning, filename)
    return code


def _write(
    made: tuple[Quadlets, ...], manager: Manager, directory: Path | None, *, install: bool
) -> int:
    top = manager.own_state_directory
    if install:
        directories = installed(manager)
    elif directory is not None:
        directories = Directories(generator=directory, units=directory)
        made = tuple(with_archive(each, top) for each in made)
    else:
        write(chain.from_iterable(quadlet_lines(each, top) for each in made))
        return DONE
    interrupts.begin(f"not all files are in {directories.generator}")
    done = write_quadlets(made, directories)
    for path in done.removed:
        note(f"removed {printable(str(path))}, which the pod no longer has")
    write(map(printable, done.written))
    if directory is not None:
        _note_places(done.written, manager)
    note_problems(done.problems)
    return FAILED if done.problems else DONE


def _note_places(paths: Iterable[str], manager: Manager) -> None:
    """Say where files belong on the host for which they are."""
    suffixes = {Path(each).suffix for each in paths}
    host = installed(manager)
    if suffixes & {".pod", ".container", ".volume"}:
        note(f"on the host, .pod, .container and .volume files belong in {host.generator}")
    if ".service" in suffixes:
        note(f"on the host, .service files belong in {host.units}")
    if ".tar" in suffixes:
        note(
            f"on the host, extract each {ARCHIVE_SUFFIX} file, which has the data of a pod:"
            f" {_EXTRACT}; it belongs in no directory of units"
        )


def load_with_workloads(
    sources: Sequence[str], namespace: str | None, ignored: frozenset[str], validate: Validate
) -> tuple[LoadedPods, LoadedWorkloads]:
    """Return the pods of all files, and their workloads."""
    loaded = load_pods(
        sources, namespace=namespace, stdin=read_stdin, validate=validate, used_kinds=DATA_KINDS
    )
    workloads = read_workloads(loaded.pods, loaded.documents, namespace=namespace, ignored=ignored)
    return loaded, workloads


def make_quadlets(
    decisions: Iterable[PodDecision], workloads: LoadedWorkloads, options: Options
) -> tuple[Quadlets, ...]:
    """Return the units of pods.

    Raises:
        InputError: podman is too old for them, their services cannot execute podslice, or a text
            does not fit in a unit.
    """
    if options.problem is not None:
        raise InputError(options.problem)
    pods = [(each, workloads.workloads[each.pod.key]) for each in decisions]
    found = [program_problem(each.pod.key, workload, options) for each, workload in pods]
    problems = [each for each in found if each is not None]
    made: list[Quadlets] = []
    for each, workload in pods:
        try:
            made.append(generate(each, workload, options))
        except InputError as error:
            problems += [problem.within(f"pod {each.pod.key}") for problem in error.problems]
    if problems:
        raise InputError(problems)
    return tuple(made)


def host_options(planning: Planning, *, is_for_host: bool, is_kept: bool = False) -> Options:
    """Return the options for this host, or for one with recent versions of its programs.

    Raises:
        HostError: podman or systemd is not installed on this host.
    """
    has_init_phase = planning.config.rules is not Rules.KUBERNETES
    if not is_for_host:
        return Options(manager=planning.manager, has_init_phase=has_init_phase, program=PROGRAM)
    return Options(
        manager=planning.manager,
        has_init_phase=has_init_phase,
        systemd_version=_version_of("systemctl")[0],
        podman_version=_version_of("podman"),
        is_kept=is_kept,
        program=own_program(),
    )


def _version_of(program: str) -> tuple[int, int]:
    try:
        ended = run_program([program, "--version"], limit_sec=_VERSION_WAIT_SEC)
    except OSError as error:
        raise HostError(f"{program}: {str(error.strerror).lower()}; install {program}") from error
    except NoAnswerError as error:
        raise HostError(f"{program} --version: {error}") from error
    if ended.code:
        raise HostError(f"{program} --version: exit code {ended.code}")
    printed = ended.out.decode(errors="replace")
    found = re.search(r"([0-9]{1,6})(?:\.([0-9]{1,6}))?", printed)
    if found is None:
        raise HostError(f"{program} --version: no version in {printed[:64]!r}")
    return int(found[1]), int(found[2] or 0)


def further_problems(problems: Iterable[Problem], loaded: LoadedPods) -> list[Problem]:
    """Return the problems that the pods do not have already."""
    known = {str(each) for each in loaded.all_problems}
    return [each for each in problems if str(each) not in known]


def quadlet_lines(quadlets: Quadlets, top: str) -> Iterator[str]:
    """Yield the files of a pod, each below its name; contents of Secrets are not among them.

    `top` is the directory of podslice's own files on the host.
    """
    for file in quadlets.files:
        path = f"{top}/{file.path}" if is_data(file.path) else file.path
        yield f"### {printable(path)} (mode {file.mode:04o})"
        if file.is_secret:
            yield f"# {len(file.content)} bytes, which are written to a file only"
        else:
            try:
                yield from file.text.removesuffix("\n").split("\n")
            except UnicodeDecodeError:
                yield f"# {len(file.content)} bytes, which are not text"
        yield ""
