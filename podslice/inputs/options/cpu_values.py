"""Values of the options of the CPU manager."""

from __future__ import annotations

from podslice.errors import invalid
from podslice.inputs.fields import nearest
from podslice.inputs.options.values import is_text, read_boolean, read_map
from podslice.inputs.scalars import describe, quote
from podslice.model.config import CpuManagerOption
from podslice.model.cpu_list import parse_cpus


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
