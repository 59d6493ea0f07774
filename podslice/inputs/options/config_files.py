"""Files and flags → `Config`: where the values of `settings` come from, and what is made of them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from podslice.errors import InputError, Problem, printable
from podslice.inputs.fields import nearest
from podslice.inputs.limits import TOML_BYTES_MAX, TOML_DOTS_MAX
from podslice.inputs.options.rules import validate_config
from podslice.inputs.options.table import OPTIONS, ConfigOption
from podslice.inputs.options.values import WrongValue
from podslice.inputs.scalars import Number, extend_path, shown
from podslice.inputs.source import read_bytes
from podslice.model.config import Config

NAME = "podslice.toml"
DIRECTORIES = ("etc", "run", "usr/lib")
"""Where configuration is, the first before the others. Source: systemd, "Configuration
Directories and Precedence" in systemd-system.conf(5)."""


_BY_KEY = {name: row for row in OPTIONS for name in (row.key, *row.aliases)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stated:
    """One value, and how messages call the place where it is stated."""

    row: ConfigOption
    value: object
    where: str

    def read(self) -> Any:  # noqa: ANN401 (of the field's type)
        """The value of the field.

        Raises:
            InputError: it is wrong; with every mistake in it.
        """
        try:
            return self.row.read(self.value)
        except WrongValue as error:
            raise InputError(
                Problem(
                    where=extend_path(self.where, *([part] if part else [])),
                    message=mistake.message,
                    hint=mistake.hint,
                )
                for part, mistake in error.mistakes
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """The values that files state, and everything that is wrong with the files themselves."""

    values: Mapping[str, _Stated] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    @property
    def settings(self) -> dict[str, object]:
        """The values by key, for `restore`."""
        return {key: each.value for key, each in self.values.items()}


def load_config(
    flags: Mapping[str, object] | None = None,
    *,
    root: Path = Path("/"),
    file: Path | None = None,
) -> Config:
    """Read the configuration: built-in values, then files, then flags; a later one replaces.

    Args:
        flags: by key, in the syntax of the command line or as values.
        root: as in `read_files`.
        file: as in `read_files`.

    Raises:
        InputError: with everything that is wrong in files and flags.
    """
    return make_config(read_files(root=root, file=file), flags or {})


def read_files(*, root: Path = Path("/"), file: Path | None = None) -> Stated:
    """Read the configuration files.

    They are placed as those of systemd's own programs: `podslice.toml` of /etc, or else of /run or
    /usr/lib, then the drop-ins `podslice.toml.d/*.toml` of all three by name, where /etc takes the
    place of a file of the same name in /run, and that of one in /usr/lib.

    Args:
        root: below which the directories are.
        file: read instead of all these files; it has to exist.
    """
    problems: list[Problem] = []
    stated: dict[str, _Stated] = {}
    for path in _find_files(root) if file is None else [file]:
        _take(_read_file(path, problems), f"{printable(str(path))}: ", stated, problems)
    return Stated(values=stated, problems=tuple(problems))


def restore(settings: Mapping[str, object]) -> Stated:
    """Return what files stated, from their settings as `Stated.settings` had them."""
    problems: list[Problem] = []
    stated: dict[str, _Stated] = {}
    _take(settings, "", stated, problems)
    return Stated(values=stated, problems=tuple(problems))


def make_config(files: Stated, flags: Mapping[str, object]) -> Config:
    """Return the configuration that files and flags state.

    Raises:
        InputError: with everything that is wrong in files and flags.
    """
    problems, stated = [*files.problems], {**files.values}
    _take(flags, "--", stated, problems)
    config, failed = _build(stated, problems)
    for problem in validate_config(config, failed):
        at = stated.get(problem.where)
        problems.append(replace(problem, where=at.where) if at else problem)
    if problems:
        raise InputError(problems)
    return config


def _take(
    values: Mapping[str, object], prefix: str, stated: dict[str, _Stated], problems: list[Problem]
) -> None:
    """Put values in the place of earlier ones."""
    for key, value in values.items():
        where = f"{prefix}{extend_path('', key)}"
        row = _BY_KEY.get(key)
        if row is None:
            problems.append(_unknown(key, value, where))
        else:
            stated[row.key] = _Stated(row=row, value=value, where=where)


def _unknown(key: str, value: object, where: str) -> Problem:
    right = nearest(key.replace("_", "-"), _BY_KEY)
    if right:
        hint = f"write {right}"
    elif isinstance(value, dict):
        hint = f"settings are not grouped in tables; remove the line [{printable(key)}]"
    else:
        hint = "see podslice.toml(5) for the settings"
    return Problem(where=where, message=f"{shown(key)} is not a setting", hint=hint)


def _build(stated: Mapping[str, _Stated], problems: list[Problem]) -> tuple[Config, frozenset[str]]:
    """The configuration without the settings that are wrong, and the keys of these."""
    fields = {}
    failed = set()
    for each in stated.values():
        try:
            value = each.read()
        except InputError as error:
            problems += error.problems
            failed.add(each.row.key)
        else:
            if each.row.field is not None:
                fields[each.row.field] = value
    return Config(**fields), frozenset(failed)


def _find_files(root: Path) -> list[Path]:
    """The main file, and the drop-ins by name."""
    files = ((directory, root / directory / "podslice" / NAME) for directory in DIRECTORIES)
    main = next((path for directory, path in files if _is_there(directory, path)), None)
    drop_ins: dict[str, Path] = {}
    for directory in reversed(DIRECTORIES):
        for path in (root / directory / "podslice" / f"{NAME}.d").glob("*.toml"):
            if not path.name.startswith("."):
                drop_ins[path.name] = path
    return [*([main] if main else []), *(drop_ins[name] for name in sorted(drop_ins))]


def _is_there(directory: str, path: Path) -> bool:
    """Whether there is a file; one that is hidden is told when it is read.

    Below /run the directory is that of the records, too, and root's umask may hide it: no reason
    for others to go without `check`, or their own pods.
    """
    try:
        return path.exists()
    except PermissionError:
        return directory != "run"


def _read_file(path: Path, problems: list[Problem]) -> dict[str, Any]:
    """The values of a file; a link to /dev/null is an empty one, which masks others."""
    where = printable(str(path))
    try:
        if path.is_symlink() and str(path.readlink()) == "/dev/null":
            return {}
        text = read_bytes(path, limit_bytes=TOML_BYTES_MAX).decode("utf-8-sig")
        _check_dots(text)
        return tomllib.loads(text, parse_float=Number)
    except FileNotFoundError:
        problems.append(Problem(where=where, message="no such file or directory"))
    except InputError as error:
        problems += error.problems
    except OSError as error:  # a name that is too long, or a link that went away
        problems.append(Problem(where=where, message=(error.strerror or "").lower()))
    except RecursionError:
        problems.append(Problem(where=where, message="it is nested too deep"))
    except UnicodeDecodeError:
        problems.append(Problem(where=where, message="it is not UTF-8", hint="save it as UTF-8"))
    except ValueError as error:  # also an integer with thousands of digits
        problems.append(_toml_problem(where, str(error)))
    return {}


def _check_dots(text: str) -> None:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > TOML_DOTS_MAX and not line.startswith("#"):
            raise ValueError(f"more than {TOML_DOTS_MAX} dots (at line {number}, column 1)")


def _toml_problem(where: str, message: str) -> Problem:
    match = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", message, re.DOTALL)
    text, where = (match[1], f"{where}: line {match[2]}") if match else (message, where)
    if "int_max_str_digits" in text:
        text = "a number has thousands of digits"
    text = text[:1].lower() + text[1:]
    hint = "texts need quotes" if text == "invalid value" else ""
    return Problem(where=where, message=printable(text), hint=hint)
