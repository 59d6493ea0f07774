"""Values of the options of the CPU manager."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from podslice.errors import InputError, Problem, invalid, quote
from podslice.inputs.options.values import is_text, read_boolean, read_map
from podslice.inputs.readers import nearest
from podslice.inputs.scalars import describe
from podslice.inputs.source import read_bytes
from podslice.model.config import CpuManagerOption
from podslice.model.cpu_list import CPUS_MAX, parse_cpus
from podslice.model.cpu_topology import Cpu, CpuTopology, regular_topology

_PARTS = ("sockets", "numa", "cores", "threads")
_NUMBERS = ("cpu", "core", "socket", "numa", "uncore")
_REQUIRED = _NUMBERS[:2]
_FILE_BYTES_MAX = 2**20
_EXAMPLE = "write sockets=2,numa=2,cores=4,threads=2, or the path of a JSON file"
_ENTRY = 'write {"cpu": 0, "core": 0, "socket": 0, "numa": 0, "uncore": 0}, for example'


def read_cpus(value: object) -> frozenset[int]:
    """Return the CPUs of `0-1,8`; none of an empty string.

    Source: Kubernetes, cmd/kubelet/app/options/options.go, --reserved-cpus.
    """
    if not is_text(value):
        raise invalid(
            f"must be a list of CPUs, not {describe(value)}", "write '0-1,8', for example"
        )
    try:
        return frozenset(parse_cpus(str(value)))
    except ValueError as error:
        message = f"must be a list of CPUs, not {describe(value)}"
        raise invalid(message, "write 0-1,8, for example") from error


def read_cpu_options(value: object) -> frozenset[CpuManagerOption]:
    """Return the options of `full-pcpus-only=true,strict-cpu-reservation=true` that are true.

    Source: Kubernetes, pkg/kubelet/cm/cpumanager/policy_options.go.
    """
    known = {str(each): each for each in CpuManagerOption}

    def read(name: str, text: object) -> bool:
        if name not in known:
            right = nearest(name, known)
            hint = f"write {right}" if right else f"options are {', '.join(known)}"
            raise invalid(f"unknown option {quote(name)}", hint)
        return read_boolean(text)

    found: dict[str, bool] = read_map(value, "=", read)
    return frozenset(known[name] for name, is_set in found.items() if is_set)


def read_topology(value: object) -> CpuTopology | None:
    """Return the CPUs of `sockets=2,numa=2,cores=4,threads=2`, or of a JSON file; None of "".

    `numa` counts the NUMA nodes of the machine, `cores` those of each socket; each is 1 by default.
    The file has a list of objects with the numbers of each CPU, which are unique in the machine.
    """
    if value == "":
        return None
    if isinstance(value, list):
        return _listed(value)
    if isinstance(value, dict) or (is_text(value) and "=" in str(value)):
        return _regular(value)
    if not is_text(value):
        raise invalid(f"must be a topology, not {describe(value)}", _EXAMPLE)
    path = Path(str(value))
    try:
        entries = json.loads(read_bytes(path, limit_bytes=_FILE_BYTES_MAX))
    except OSError as error:
        message = f"{quote(str(path))}: {(error.strerror or str(error)).lower()}"
        raise invalid(message, _EXAMPLE) from error
    except (ValueError, RecursionError) as error:
        raise invalid(f"{quote(str(path))} is not a JSON file", _ENTRY) from error
    return _listed(entries)


def _regular(value: object) -> CpuTopology:
    def read(name: str, text: object) -> int:
        if name not in _PARTS:
            raise invalid(f"{quote(name)} is not a part", f"write one of {', '.join(_PARTS)}")
        if not str(text).isdecimal() or not 0 < int(str(text)) <= CPUS_MAX:
            raise invalid(f"must be a whole number above 0, not {describe(text)}")
        return int(str(text))

    parts: dict[str, int] = dict.fromkeys(_PARTS, 1)
    parts |= read_map(value, "=", read)
    if parts["sockets"] * parts["cores"] * parts["threads"] > CPUS_MAX:
        raise invalid(f"it has more than {CPUS_MAX} CPUs", _EXAMPLE)
    return regular_topology(**parts)


def _listed(entries: object) -> CpuTopology:
    if not isinstance(entries, list) or not 0 < len(entries) <= CPUS_MAX:
        raise invalid(f"must be a list of 1 to {CPUS_MAX} CPUs", _ENTRY)
    problems = [each for place, entry in enumerate(entries) for each in _check(entry, place)]
    if problems:
        raise InputError(problems)
    cpus = [Cpu(**entry) for entry in entries]
    if len({each.cpu for each in cpus}) < len(cpus):
        raise invalid("a CPU is listed twice", "list each CPU once")
    if divided := tuple(_divided_cores(cpus)):
        raise InputError(divided)
    return CpuTopology(cpus=tuple(sorted(cpus, key=lambda each: each.cpu)))


def _divided_cores(cpus: Iterable[Cpu]) -> Iterator[Problem]:
    """Yield a problem for each core whose CPUs are in different places."""
    places: dict[int, Cpu] = {}
    for each in cpus:
        first = places.setdefault(each.core, each)
        for name in _NUMBERS[2:]:
            if getattr(each, name) != getattr(first, name):
                message = (
                    f"the CPUs {first.cpu} and {each.cpu} of core {each.core} differ in {name}"
                )
                hint = "number cores uniquely in the machine, not in each socket"
                yield Problem(message=message, hint=hint)


def _check(entry: object, place: int) -> Iterator[Problem]:
    """Yield the problems of one CPU of a list."""
    if not isinstance(entry, dict) or not set(_REQUIRED) <= entry.keys() <= set(_NUMBERS):
        message = f"[{place}] must be an object with {' and '.join(_REQUIRED)}"
        yield Problem(message=message, hint=_ENTRY)
        return
    for name, number in entry.items():
        if type(number) is not int or not 0 <= number < CPUS_MAX:
            message = f"[{place}].{name} must be a number from 0 to {CPUS_MAX - 1}"
            yield Problem(message=f"{message}, not {describe(number)}", hint=_ENTRY)
