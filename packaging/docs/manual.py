"""Manual pages from templates: prose in man/*.md, with directives for content from the code.

    @verbs GROUP             one line for each verb of a group, `VerbGroup`
    @verb NAME               heading, synopsis and options of a verb; its prose follows
    @options shared          the options that choose the manager, the configuration and colors
    @options configuration   the keys of the configuration file as options
    @option KEY              a key of the file with its values, default and help; prose may follow
    @source MODULE NAME      the docstring of something, with its source
    @cite MODULE NAME        only its source
    @weights                 CPU requests and what the mappings make of them
    @annotations             the annotations of manifests, and their properties
    @properties              the properties that podslice sets, and the kernel's files
    @fields                  the fields of manifests, and what quadlets do with each
    @feature NAME            until @end: the part of a feature, left out where its package is absent

A template that lacks a verb or an option, or names one that does not exist, is an error.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, StrEnum
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from docs import roff
from podslice import __version__
from podslice.cli.app import command_of
from podslice.cli.arguments import FORMATS
from podslice.cli.options import CONFIG_PANEL
from podslice.cli.verb_table import VERBS
from podslice.inputs.manifest.fields import WORKLOADS, Use, type_of
from podslice.inputs.options.table import OPTIONS, ConfigOption
from podslice.model.codec import format_duration
from podslice.model.config import Config, Threshold, WeightMapping
from podslice.model.feature import VerbGroup
from podslice.model.properties import ANNOTATIONS, NEWER, PROPERTIES, annotation_key
from podslice.model.quantity import format_shortest, parse_quantity
from podslice.policy.convert import curve_of, shares_from_milli, weight_from_shares

_BY_KEY = {row.key: row for row in OPTIONS}
_DEFAULTS = Config()
_PODS = "NAME or NAMESPACE/NAME"
"""In the help of arguments that podslice(1) describes for all verbs."""
_EXAMPLE_WIDTH = 66
_HEADINGS = ("Source:", "Raises:", "Args:", "Returns:")


class TemplateError(Exception):
    """A template and the code disagree."""


def pages(templates: Path) -> dict[str, str]:
    """Return every manual page by its name, such as `podslice.1`."""
    named: list[str] = []
    made = {path.stem: _page(path, named) for path in sorted(templates.glob("*.md"))}
    _compare("the manual", "verb", named, _shown())
    return made


def _page(path: Path, verbs: list[str]) -> str:
    title, _, section = path.stem.rpartition(".")
    used: dict[str, list[str]] = {}
    lines = []
    is_absent = False
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if line == "@end":
            is_absent = False
            continue
        if line.startswith("@feature "):
            package = f"podslice.features.{line.split()[1]}"
            is_absent = importlib.util.find_spec(package) is None
            continue
        if is_absent:
            continue
        if not line.startswith("@"):
            lines.append(line)
            continue
        name, *arguments = line[1:].split()
        used.setdefault(name, []).append(" ".join(arguments))
        try:
            made = list(_DIRECTIVES[name](*arguments))
        except (KeyError, TypeError, AttributeError, ImportError) as error:
            raise TemplateError(f"{path.name}:{number}: {line}: {error!r}") from error
        lines += ["", *made, ""]
    verbs += used.get("verb", [])
    if "option" in used:
        _compare(path.name, "option", used["option"], _BY_KEY)
    return roff.page(title, section, date=_date(), version=__version__, body="\n".join(lines))


def _compare(where: str, what: str, found: Iterable[str], wanted: Iterable[str]) -> None:
    found, wanted = set(found), set(wanted)
    wrong = [f"has no @{what} {name}" for name in sorted(wanted - found)]
    wrong += [f"has @{what} {name}, which is not there" for name in sorted(found - wanted)]
    if wrong:
        raise TemplateError(f"{where} {', '.join(wrong)}")


def _date() -> str:
    """Return the date of the source, or today."""
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


# verbs and options


def _shown() -> list[str]:
    """Return the verbs that are documented; some of them the help does not list."""
    return [name for name, row in VERBS.items() if row.group is not VerbGroup.INTERNAL]


@cache
def _command(name: str) -> Any:
    """Return a verb as typer's command."""
    return command_of(*name.split(" "))


def _verbs(group: str) -> Iterator[str]:
    """Yield a line for each verb of a group, or of all."""
    for name in _shown():
        if VERBS[name].group.name == group.upper():
            yield from (f"`{name}`", f":   {VERBS[name].summary}", "")


def _verb(*path: str) -> Iterator[str]:
    name = " ".join(path)
    command = _command(name)
    own = [each for each in _options_of(command) if not (_is_config(each) or _is_shared(each))]
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    yield from (f"## podslice {name}", "", _synopsis(name, command, own, arguments), "")
    for paragraph in (command.help or "").split("\n\n"):
        yield from (paragraph, "")
    for argument in arguments:
        if _PODS not in argument.help:
            yield from (f"*{_metavar(argument)}*", f":   {argument.help}", "")
    yield from _option_list(own)
    if command.epilog:
        lines = command.epilog.split("\n\n")[1:]
        yield from ("```", *(part for line in lines for part in _continued(line)), "```", "")


def _continued(command: str) -> list[str]:
    """Return an example in lines that fit 80 columns."""
    parts = textwrap.wrap(command, _EXAMPLE_WIDTH, subsequent_indent="    ", break_on_hyphens=False)
    return [*(f"{part} \\" for part in parts[:-1]), parts[-1]]


def _options_of(command: Any) -> list[Any]:
    return [each for each in command.params if each.param_type_name == "option" and not each.hidden]


def _synopsis(name: str, command: Any, own: list[Any], arguments: list[Any]) -> str:
    parts = [f"`podslice {name}`"]
    parts += [
        f"`{_flags(option)[0]}` *{_metavar(option)}*" + ("…" if option.multiple else "")
        for option in own
        if option.required
    ]
    if _options_of(command):
        parts.append("[*OPTION*]…")
    for argument in arguments:
        shown = f"*{_metavar(argument)}*" + ("…" if argument.nargs == -1 else "")
        parts.append(shown if argument.required else f"[{shown}]")
    return " ".join(parts)


def _flags(option: Any) -> list[str]:
    """Return the flags of an option, short ones first."""
    return sorted(option.opts, key=lambda flag: flag.startswith("--"))


def _metavar(parameter: Any) -> str:
    """Return the name of a value; empty for a flag without one."""
    if getattr(parameter, "is_flag", False):
        return ""
    default = parameter.default
    choices = "|".join(type(default)) if isinstance(default, StrEnum) else ""
    return (parameter.metavar or choices or parameter.name.upper()).strip("[].…")


def _options(which: str) -> Iterator[str]:
    options = _options_of(_command("plan"))
    if which == "shared":
        yield from _option_list([each for each in options if _is_shared(each)])
    elif which == "configuration":
        yield from _option_list([each for each in options if _is_config(each)])
    else:
        raise KeyError(which)


def _is_shared(option: Any) -> bool:
    """Return whether podslice(1) describes the option for all verbs."""
    shared = {"--namespace", "--user", "--config", "--set", "--color"}
    return bool(shared & {*option.opts}) or option.help == FORMATS


def _is_config(option: Any) -> bool:
    return option.rich_help_panel == CONFIG_PANEL


def _option_list(options: Iterable[Any]) -> Iterator[str]:
    for option in options:
        value = f" *{_metavar(option)}*" if _metavar(option) else ""
        yield ", ".join(f"`{flag}`{value}" for flag in _flags(option))
        more = ["May be repeated."] if option.multiple else []
        default = option.default.value if isinstance(option.default, Enum) else option.default
        more += [f"The default is `{default}`."] if default and value else []
        yield from (f":   {' '.join([option.help or '', *more])}", "")


# configuration options


def _config_option(key: str) -> Iterator[str]:
    row = _BY_KEY[key]
    value = f"*{row.metavar}*" if row.metavar else "*true* | *false*"
    yield from (f"`{key}` = {value}", f":   {row.help}")
    if row.field is not None:
        yield f":   The default is {_default(row)}."
    if row.aliases:
        yield f":   It may also be written {', '.join(f'`{name}`' for name in row.aliases)}."
    yield ""


def _default(row: ConfigOption) -> str:
    text = default_text(row)
    return f"`{text}`" if text else "nothing"


def default_text(row: ConfigOption) -> str:
    """Return the default of an option in the syntax of its value."""
    value = getattr(_DEFAULTS, row.field) if row.field else None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return format_duration(value) if (row.field or "").endswith("_usec") else str(value)
    if value is None:
        return ""
    if isinstance(value, tuple | frozenset):
        return ",".join(sorted(value))
    if isinstance(value, Mapping):
        return ",".join(f"{name}<{_threshold(each)}" for name, each in value.items())
    return str(value.value if isinstance(value, Enum) else value)


def _threshold(threshold: Threshold) -> str:
    if threshold.percent_milli is not None:
        return f"{threshold.percent_milli // 1000}%"
    return format_shortest(threshold.amount or 0)


# formulas


def _source(module: str, name: str = "") -> Iterator[str]:
    """Yield the text of a docstring, and its source."""
    said, source = _docstring(module, name)
    for paragraph in said:
        yield from (paragraph, "")
    yield source


def _cite(module: str, name: str = "") -> Iterator[str]:
    """Yield only the source of a docstring."""
    yield _docstring(module, name)[1]


def _docstring(module: str, name: str) -> tuple[list[str], str]:
    """Return the paragraphs of a docstring, and the one with its source."""
    found = importlib.import_module(f"podslice.{module}")
    text = inspect.getdoc(attrgetter(name)(found) if name else found) or ""
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    sources = [part for part in paragraphs if part.startswith("Source: ")]
    if not sources:
        raise TypeError(f"podslice.{module} {name} has no source")
    said = [part for part in paragraphs if not part.startswith(_HEADINGS)]
    return said, f"*Source:* {sources[0].removeprefix('Source: ')}"


def _weights() -> Iterator[str]:
    for mapping in WeightMapping:
        texts = [_formula(mapping, container=container) for container in (False, True)]
        text = texts[0] if texts[0] == texts[1] else f"slices {texts[0]}, containers {texts[1]}"
        yield from (f"`{mapping}`", f":   {text}", "")
    columns = tuple(WeightMapping)
    yield f"| request | shares | {' | '.join(columns)} |"
    yield f"|{'---|' * (2 + len(columns))}"
    for request in ("0", "10m", "100m", "250m", "500m", "1", "2", "8", "64"):
        shares = shares_from_milli(parse_quantity(request).milli)
        weights = (_weights_of(shares, mapping) for mapping in columns)
        yield f"| {request} | {shares} | {' | '.join(weights)} |"


def _formula(mapping: WeightMapping, *, container: bool) -> str:
    text = curve_of(mapping, container=container).value
    return f"shares {text}" if text.startswith("×") else text


def _weights_of(shares: int, mapping: WeightMapping) -> str:
    """Return the weight of a slice, and that of a container if it differs."""
    both = [weight_from_shares(shares, mapping, container=each) for each in (False, True)]
    return str(both[0]) if both[0] == both[1] else f"{both[0]} ({both[1]})"


def _annotations() -> Iterator[str]:
    for row in ANNOTATIONS.values():
        limits = {"least": row.codec.limit(row.minimum), "most": row.codec.limit(row.maximum)}
        values = row.codec.describe.format(**limits)
        of = "pods" if row.is_of_pod_only else "pods and containers"
        yield from (f"`{annotation_key(row.name)}`", f":   `{row.key}`: {values}; for {of}", "")


def _properties() -> Iterator[str]:
    newer = {name for names in NEWER.values() for name in names}
    for row in sorted(PROPERTIES.values(), key=lambda row: row.key):
        if row.managed:
            file = f" (`{row.kernel_file}`)" if row.kernel_file else ""
            since = f"; requires systemd {row.since}" if row.name in newer else ""
            yield from (f"`{row.key}`", f":   {row.meaning}{file}{since}.", "")


def _fields() -> Iterator[str]:
    """Yield an entry for each type whose fields quadlets read, that of the pod first."""
    quadlets = importlib.import_module("podslice.features.quadlet.workload_containers")
    specs = [row.fields["spec"].type for row in map(type_of, WORKLOADS) if "spec" in row.fields]
    left = list(dict.fromkeys(specs))
    for name in left:
        rows = type_of(name).fields.values()
        kept = [row for row in rows if row.use is Use.KEPT]
        left += dict.fromkeys(row.type for row in kept if row.type and row.type not in left)
        ignored = ", ".join(f"`{row.name}`" for row in rows if row.use is Use.IGNORED)
        reasons: dict[str, list[str]] = {}
        for row in rows:
            if row.use is Use.REFUSED:
                why = quadlets.reason_of(f"{name}.{row.name}")[0]
                reasons.setdefault(why, []).append(f"`{row.name}`")
        states = [
            f"Kept: {', '.join(f'`{row.name}`' for row in kept)}." if kept else "",
            f"Ignored: {ignored}." if ignored else "",
            *(f"Refused, since {why}: {', '.join(names)}." for why, names in reasons.items()),
        ]
        yield from (f"`{name}`", f":   {' '.join(filter(None, states))}", "")


_DIRECTIVES: dict[str, Callable[..., Iterator[str]]] = {
    "verbs": _verbs,
    "verb": _verb,
    "options": _options,
    "option": _config_option,
    "source": _source,
    "cite": _cite,
    "weights": _weights,
    "annotations": _annotations,
    "properties": _properties,
    "fields": _fields,
}
