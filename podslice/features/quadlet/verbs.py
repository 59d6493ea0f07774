"""Quadlets for `apply`, `plan` and `render`: the options of these verbs, and the units from manifests."""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from itertools import chain, starmap
from pathlib import Path
from typing import Annotated, Any

import typer

from podslice.cli import interrupts, wanted
from podslice.cli.arguments import DONE, FAILED, code_of
from podslice.cli.generated_files import FileEntry, FilesReport, emit_files
from podslice.cli.host import PROGRAM, load_node, own_program
from podslice.cli.manifests import (
    all_problems,
    choose_candidates,
    decide_all,
    read_stdin,
    require_pods,
)
from podslice.cli.options import Planning, declared, parameter
from podslice.cli.output import OutputFormat, emit, note, note_problems
from podslice.cli.report import document
from podslice.cli.wanted import PodsToApply, is_enabled, sources_or_default
from podslice.errors import HostError, InputError, Problem, invalid, printable
from podslice.features.quadlet.files import Directories, installed, write_quadlets
from podslice.features.quadlet.generate import make_quadlets
from podslice.features.quadlet.result import (
    ARCHIVE_SUFFIX,
    OWN_SUFFIXES,
    File,
    Options,
    Quadlets,
    is_data,
    with_archive,
)
from podslice.features.quadlet.services import PodsToStart
from podslice.features.quadlet.transition import SERVICE_SUFFIXES, targets_of
from podslice.features.quadlet.workloads import LoadedWorkloads, read_workloads
from podslice.inputs.manifest.load import Extent, LoadedPods, load_pods
from podslice.kernel.programs import NoAnswerError, run_program
from podslice.model.config import Config, Rules, Validate
from podslice.model.desired import PodDecision
from podslice.model.unit import Manager
from podslice.policy.allocatable import validate_node

_VERSION_WAIT_SEC = 30.0
_DNS = "aardvark-dns"
_HELPERS = tuple(f"/usr/{each}/podman" for each in ("local/libexec", "local/lib", "libexec", "lib"))
"""Source: containers/common, pkg/config/config_linux.go, defaultHelperBinariesDir."""


def load_with_workloads(
    sources: Sequence[str], namespace: str | None, ignored: frozenset[str], validate: Validate
) -> tuple[LoadedPods, LoadedWorkloads]:
    """Return the pods of all files, and their workloads."""
    loaded = load_pods(
        sources, namespace=namespace, stdin=read_stdin, validate=validate, extent=Extent.WORKLOADS
    )
    workloads = read_workloads(loaded, namespace=namespace, ignored=ignored)
    return loaded, workloads


def host_options(planning: Planning, *, is_for_host: bool, is_kept: bool = False) -> Options:
    """Return the options for this host, or for one with recent versions of its programs.

    Raises:
        InputError: podman is too old, or cannot mount podslice's own files.
        HostError: podman or systemd is not installed on this host.
    """
    has_init_phase = planning.config.rules is not Rules.KUBERNETES
    options = Options(manager=planning.manager, has_init_phase=has_init_phase, program=PROGRAM)
    if is_for_host:
        options = options._replace(
            systemd_version=_version_of("systemctl")[0],
            podman_version=_version_of("podman"),
            is_kept=is_kept,
            program=own_program(),
            has_dns=any(Path(each, _DNS).exists() for each in _HELPERS) or bool(shutil.which(_DNS)),
        )
    if options.problem is not None:
        raise InputError(options.problem)
    return options


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


_STDIN = "-"
_AGENT, _APPLY = "podslice-agent.service", "podslice-apply.service"
_EXTRACT = "tar --extract --preserve-permissions --directory=/ --file=FILE"
_IGNORE = parameter(
    "ignore",
    typer.Option(metavar="FIELD", help="Drop a field that quadlets lack."),
    list[str] | None,
)
_START = parameter(
    "start",
    typer.Option("--start", help="Also run the containers, with podman."),
    bool,
)


def with_start(verb: Callable[..., int]) -> Callable[..., int]:
    """Return `apply` or `plan` with the options that run the containers of the pods, too."""

    def starting(
        planning: Planning,
        *,
        start: bool,
        ignore: Collection[str] | None,
        **given: Any,  # noqa: ANN401 (as typer has parsed it)
    ) -> int:
        if ignore and not start:
            raise invalid("is for quadlets only", "add --start", where="--ignore")
        if start:
            given["load"] = partial(load_started, ignored=frozenset(ignore or ()))
        return verb(planning, **given)

    own = inspect.signature(verb, eval_str=True).parameters.values()
    return declared(starting, verb, [*own, _START, _IGNORE])


def load_started(
    planning: Planning,
    filename: Sequence[str] | None,
    namespace: str | None,
    *,
    ignored: frozenset[str],
    is_for_host: bool = False,
) -> PodsToApply:
    """Return the pods to apply and their quadlets, if the whole input is valid.

    Raises:
        InputError: there is an error in the input, or podman is too old; it has every problem.
        HostError: podman or systemd is not installed.
        PodsliceError: the stated files have nothing that podslice runs.
    """
    sources = sources_or_default(planning, filename)
    validate = planning.config.validate
    loaded, workloads = load_with_workloads(sources, namespace, ignored, validate)
    further = further_problems(workloads.problems, loaded)
    candidates = choose_candidates(planning, loaded, further, is_for_host=is_for_host)
    require_pods(loaded, filename or ())
    options = host_options(planning, is_for_host=True)

    def make(decisions: Iterable[PodDecision]) -> tuple[Quadlets, ...]:
        return make_quadlets(decisions, workloads.workloads, options)

    made = make(candidates)
    for text in chain.from_iterable(each.notes for each in made):
        note(text)
    if made and is_for_host:
        _note_start_at_boot(planning, sources)
    return PodsToApply(
        candidates=candidates,
        started=PodsToStart(quadlets=made, decisions=candidates, make=make),
    )


def _note_start_at_boot(planning: Planning, sources: Sequence[str]) -> None:
    """Print what the pods of these manifests need to start at boot, if something is missing."""
    manager, missing = planning.manager, []
    directories = wanted.manifest_directories(planning.config, manager) or Config().manifests
    outside = [each for each in sources if not _is_inside(each, directories)]
    if outside:
        listed = " ".join("standard input" if each == _STDIN else each for each in outside)
        missing.append(f"copy {listed} to {directories[0]}")
    units = (_AGENT,) if manager.is_user else (_APPLY, _AGENT)
    if not any(is_enabled(each, manager) for each in units):
        missing.append(f"systemctl{manager.flag} enable {units[0]}")
    if missing:
        when = "with the user's service manager" if manager.is_user else "at boot"
        note(f"the pods do not start {when}; to change that: {'; '.join(missing)}")


def _is_inside(source: str, directories: Sequence[str]) -> bool:
    path = Path(source).resolve()
    places = {Path(each).resolve() for each in directories}
    return source != _STDIN and not places.isdisjoint({path, *path.parents})


class UnitFormat(StrEnum):
    """What is written: values of `--format`."""

    UNITS = "units"
    QUADLET = "quadlet"


_FORMAT = inspect.Parameter(
    "form",
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    default=UnitFormat.UNITS,
    annotation=Annotated[
        UnitFormat,
        typer.Option(
            "--format", help="units: the slices; quadlet: the containers, for podman's generator."
        ),
    ],
)
_INSTALL = parameter(
    "install",
    typer.Option(
        "--install", help="Write quadlets to the directories that podman and systemd read."
    ),
    bool,
)


def with_quadlets(verb: Callable[..., int]) -> Callable[..., int]:
    """Return `render` with the options that write quadlets."""

    def rendering(
        planning: Planning,
        *,
        form: UnitFormat,
        install: bool,
        ignore: Collection[str] | None,
        **given: Any,  # noqa: ANN401 (as typer has parsed it)
    ) -> int:
        if form is UnitFormat.UNITS:
            if install or ignore:
                option = "--install" if install else "--ignore"
                raise invalid("is for quadlets only", "add --format quadlet", where=option)
            return verb(planning, **given)
        return render_quadlets(planning, ignored=frozenset(ignore or ()), install=install, **given)

    own = list(inspect.signature(verb, eval_str=True).parameters.values())
    return declared(rendering, verb, [*own[:-1], _FORMAT, own[-1], _INSTALL, _IGNORE])


def render_quadlets(  # noqa: PLR0913 - as many arguments as options
    planning: Planning,
    filename: Sequence[str],
    namespace: str | None,
    *,
    ignored: frozenset[str],
    output_dir: Path | None,
    install: bool,
    output: OutputFormat,
) -> int:
    """Write the quadlets of pods, if there is no error and no field is refused.

    They are printed on standard output unless they are for a directory or installed.

    Raises:
        InputError: the options contradict each other, podman is too old, or a manifest is invalid.
    """
    if output_dir is not None and install:
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
    if code_of(problems):
        raise InputError(problems)
    note_problems(problems)
    options = host_options(planning, is_for_host=install)
    made = make_quadlets(decisions, workloads.workloads, options)
    for text in chain.from_iterable(each.notes for each in made):
        note(text)
    code = _write(made, planning.manager, output_dir, output, install=install)
    if install:
        _note_start_at_boot(planning, filename)
    return code


def _write(
    made: tuple[Quadlets, ...],
    manager: Manager,
    directory: Path | None,
    output: OutputFormat,
    *,
    install: bool,
) -> int:
    top = manager.own_state_directory
    if install:
        directories = installed(manager)
    elif directory is not None:
        directories = Directories(generator=directory, units=directory)
        made = tuple(with_archive(each, top) for each in made)
    else:
        _show(made, top, output)
        return DONE
    interrupts.begin(f"not all files are in {directories.generator}")
    done = write_quadlets(made, directories)
    for path in done.removed:
        note(f"removed {printable(str(path))}, which the pod no longer has")
    emit_files((FileEntry(path=each) for each in done.written), output)
    if directory is not None:
        _note_places(done.written, manager)
        units = [each for pod in made for each in pod.files if each.is_unit]
        if enabled := [each.path for each in units if targets_of(each.text)]:
            note(
                f"on the host, start them: systemctl{manager.flag} enable --now {' '.join(enabled)}"
            )
    note_problems(done.problems)
    return FAILED if done.problems else DONE


def _note_places(paths: Iterable[str], manager: Manager) -> None:
    """Say where files belong on the host for which they are."""
    suffixes = {Path(each).suffix for each in paths}
    host = installed(manager)
    if suffixes.intersection(SERVICE_SUFFIXES):
        kinds = ".pod, .container, .volume and .network"
        note(f"on the host, {kinds} files belong in {host.generator}")
    if suffixes.intersection(OWN_SUFFIXES):
        note(f"on the host, .service and .timer files belong in {host.units}")
    if ".tar" in suffixes:
        note(
            f"on the host, extract each {ARCHIVE_SUFFIX} file, which has the data of a pod:"
            f" {_EXTRACT}; it belongs in no directory of units"
        )


def _show(made: Iterable[Quadlets], top: str, output: OutputFormat) -> None:
    files = [(file, _entry(file, top)) for pod in made for file in pod.files]
    report = FilesReport(files=tuple(entry for _, entry in files))
    emit(
        output,
        document=lambda: document(report),
        lines=lambda _: chain.from_iterable(starmap(_file_lines, files)),
        names=lambda: [each.path for each in report.files],
    )


def _entry(file: File, top: str) -> FileEntry:
    """Return a file with its text, unless it is of a Secret or no text.

    `top` is the directory of podslice's own files on the host.
    """
    path = f"{top}/{file.path}" if is_data(file.path) else file.path
    text = None
    if not file.is_secret:
        with suppress(UnicodeDecodeError):
            text = file.text
    return FileEntry(path=printable(path), mode=f"{file.mode:04o}", text=text)


def _file_lines(file: File, entry: FileEntry) -> Iterator[str]:
    """Yield the text of a file below its name."""
    yield f"### {entry.path} (mode {entry.mode})"
    if entry.text is None:
        why = "written to a file only" if file.is_secret else "not text"
        yield f"# {len(file.content)} bytes, which are {why}"
    else:
        yield from entry.text.removesuffix("\n").split("\n")
    yield ""
