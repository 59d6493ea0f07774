"""Configuration files and flags → `Config`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from podslice.errors import InputError, Problem, invalid, printable, quote
from podslice.inputs.budget import TOML_BYTES_MAX, TOML_DOTS_MAX
from podslice.inputs.options.rules import validate_config
from podslice.inputs.options.table import OPTIONS, ConfigOption
from podslice.inputs.scalars import Number, extend_path, nearest
from podslice.inputs.source import read_file
from podslice.model.config import VERSION_RULES, Config, MemoryProtection, Rules
from podslice.model.resources import CPU

CONFIG_NAME = "podslice.toml"
CONFIG_DIRECTORIES = ("etc", "run", "usr/lib")
"""Directories of configuration files, by precedence. Source: systemd, "Configuration
Directories and Precedence" in systemd-system.conf(5)."""


NO_TEXTS: Mapping[Path, bytes | None] = {}
_BY_KEY = {name: option for option in OPTIONS for name in (option.key, *option.aliases)}


class _Stated(NamedTuple):
    """The value of an option, and the address where it is stated."""

    option: ConfigOption
    value: object
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """The options that configuration files state, and the problems of the files themselves."""

    values: Mapping[str, _Stated] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    @property
    def options(self) -> dict[str, object]:
        """Return the values by key, for `restore`."""
        return {key: each.value for key, each in self.values.items()}


def read_files(
    *,
    root: Path = Path("/"),
    file: Path | None = None,
    texts: Mapping[Path, bytes | None] = NO_TEXTS,
) -> Stated:
    """Read the configuration files.

    The places and their precedence are those of systemd: `podslice.toml` in /etc, or else in /run or
    /usr/lib, then the drop-ins `podslice.toml.d/*.toml` of all three by name, where a file in /etc
    replaces one of the same name in /run, and one in /run replaces one in /usr/lib.

    Args:
        root: the parent of the directories.
        file: read instead of all these files; it must exist.
        texts: files that have these texts, or with None do not exist, whatever is there.
    """
    problems: list[Problem] = []
    stated: dict[str, _Stated] = {}
    for path in _find_files(root, texts) if file is None else [file]:
        values = _read_file(path, texts.get(path), problems)
        found, unknown = _read_options(values, f"{printable(str(path))}: ")
        stated |= found
        problems += unknown
    return Stated(values=stated, problems=tuple(problems))


def read_as(file: Path, place: Path, *, root: Path = Path("/")) -> Stated:
    """Read the configuration files as if `file` were at `place`.

    Raises:
        InputError: the file cannot be read, or no configuration file is read from that place.
    """
    is_main = place.name == CONFIG_NAME
    is_drop_in = place.parent.name == f"{CONFIG_NAME}.d" and fnmatch(place.name, "[!.]*.toml")
    directory = place.parent if is_main else place.parent.parent
    if directory not in _directories(Path("/")) or not (is_main or is_drop_in):
        raise invalid(
            f"{printable(str(place))} is not a place of configuration files",
            f"write /etc/podslice/{CONFIG_NAME}, or a file in /etc/podslice/{CONFIG_NAME}.d that"
            " ends with .toml",
            where="--as",
        )
    text = read_file(file, limit_bytes=TOML_BYTES_MAX)
    return read_files(root=root, texts={root / place.relative_to("/"): text})


def restore(options: Mapping[str, object]) -> Stated:
    """Return the options that files stated, from those that `Stated.options` returned."""
    values, problems = _read_options(options, "")
    return Stated(values=values, problems=tuple(problems))


def make_config(
    files: Stated,
    flags: Mapping[str, object],
    settings: Mapping[str, object] | None = None,
    *,
    is_user: bool = False,
) -> Config:
    """Combine files, flags and the values of `--set`; with `is_user`, for a user's service manager.

    Raises:
        InputError: a value is invalid, or two contradict each other.
    """
    found, unknown = _read_options(flags, "--")
    further, more = _read_options(settings or {}, "--set ")
    # The later has precedence: files, then flags, then --set.
    stated, problems = {**files.values, **found, **further}, [*files.problems, *unknown, *more]
    config, failed = _build(stated, problems)
    for problem in validate_config(config, failed, is_user=is_user):
        at = stated.get(problem.keys[0])
        problems.append(replace(problem, where=at.where) if at else problem)
    if problems:
        raise InputError(problems)
    return config


def _read_options(
    values: Mapping[str, object], prefix: str
) -> tuple[dict[str, _Stated], list[Problem]]:
    """Return the options by key, and the problems of unknown ones; `prefix` begins addresses."""
    stated, problems = {}, []
    for key, value in values.items():
        where = f"{prefix}{extend_path('', key)}"
        option = _BY_KEY.get(key)
        if option is None:
            problems.append(_unknown(key, value, where))
        else:
            stated[option.key] = _Stated(option=option, value=value, where=where)
    return stated, problems


def _unknown(key: str, value: object, where: str) -> Problem:
    right = nearest(key.replace("_", "-"), _BY_KEY)
    if right:
        hint = f"write {right}"
    elif isinstance(value, dict):
        hint = f"options are not grouped in tables; remove the line [{printable(key)}]"
    else:
        hint = "podslice.toml(5) lists the options"
    return Problem(where=where, message=f"unknown option {quote(key)}", hint=hint)


def _build(stated: Mapping[str, _Stated], problems: list[Problem]) -> tuple[Config, frozenset[str]]:
    """Return the configuration without the invalid options, and the keys of these."""
    fields: dict[str, Any] = {}
    failed = set()
    for key, each in stated.items():
        try:
            value = each.option.read(each.value)
        except InputError as error:
            problems += (
                replace(found, where=extend_path(each.where, *found.keys), keys=(key,))
                for found in error.problems
            )
            failed.add(key)
        else:
            if each.option.field is not None:
                fields[each.option.field] = value
    config = Config(**fields)
    if config.cpu_topology is not None and CPU not in config.capacity:
        cpus = {CPU: len(config.cpu_topology.cpus) * 1000}
        config = replace(config, capacity={**config.capacity, **cpus})
    is_tiered = config.memory_protection is MemoryProtection.TIERED
    is_kubelets = config.rules is Rules.KUBERNETES and is_tiered
    if "memory_throttling_factor_milli" not in fields and is_kubelets:
        # as the kubelet with MemoryQoS
        factor = VERSION_RULES[config.kubernetes_version].throttling_factor_milli
        config = replace(config, memory_throttling_factor_milli=factor)
    return config, frozenset(failed)


def _directories(root: Path) -> list[Path]:
    return [root / directory / "podslice" for directory in CONFIG_DIRECTORIES]


def _find_files(root: Path, texts: Mapping[Path, bytes | None]) -> list[Path]:
    """Return the main file, and the drop-ins by name."""
    candidates = [each / CONFIG_NAME for each in _directories(root)]
    files = (
        path
        for directory, path in zip(CONFIG_DIRECTORIES, candidates, strict=True)
        if (texts[path] is not None if path in texts else _exists(directory, path))
    )
    main = next(files, None)
    drop_ins: dict[str, Path] = {}
    # /etc last, so that its files replace those of the same names.
    for directory in (each / f"{CONFIG_NAME}.d" for each in reversed(_directories(root))):
        added = (path for path in texts if path.parent == directory)
        for path in (*directory.glob("*.toml"), *added):
            if not path.name.startswith(".") and texts.get(path, b"") is not None:
                drop_ins[path.name] = path
    return [*([main] if main else []), *(drop_ins[name] for name in sorted(drop_ins))]


def _exists(directory: str, path: Path) -> bool:
    """Return whether a file exists, or may exist: reading it then reports that it is inaccessible.

    The directory below /run also has the records, and root's umask may make it inaccessible. Other
    users can still use `check` and their own pods.
    """
    try:
        return path.exists()
    except PermissionError:
        return directory != "run"


def _read_file(path: Path, given: bytes | None, problems: list[Problem]) -> dict[str, Any]:
    """Return the values of a file, or of the given text.

    A link to /dev/null is an empty file, which masks others.
    """
    where = printable(str(path))
    try:
        if given is None and path.is_symlink() and str(path.readlink()) == "/dev/null":
            return {}
        data = read_file(path, limit_bytes=TOML_BYTES_MAX) if given is None else given
        text = data.decode("utf-8-sig")
        for number, line in enumerate(text.split("\n"), start=1):
            if line.count(".") > TOML_DOTS_MAX and not line.startswith("#"):
                raise invalid(f"more than {TOML_DOTS_MAX} dots", where=f"{where}: line {number}")
        return tomllib.loads(text, parse_float=Number)
    except InputError as error:
        problems += error.problems
    except OSError as error:  # no such file, a name that is too long, or a link that was removed
        problems.append(Problem(where=where, message=(error.strerror or "").lower()))
    except RecursionError:
        problems.append(Problem(where=where, message="nested too deep"))
    except UnicodeDecodeError:
        hint = "save the file as UTF-8"
        problems.append(Problem(where=where, message="the encoding is not UTF-8", hint=hint))
    except tomllib.TOMLDecodeError as error:
        problems.append(_syntax_problem(where, str(error)))
    except ValueError:
        problems.append(Problem(where=where, message="a number has thousands of digits"))
    return {}


def _syntax_problem(where: str, message: str) -> Problem:
    # before Python 3.14 the error has its line only in the message
    match = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", message, re.DOTALL)
    text, where = (match[1], f"{where}: line {match[2]}") if match else (message, where)
    text = text[:1].lower() + text[1:]
    hint = "strings need quotes" if text == "invalid value" else ""
    return Problem(where=where, message=printable(text), hint=hint)
