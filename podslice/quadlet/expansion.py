"""`$(NAME)` in arguments and variables, as the kubelet expands it.

Source: Kubernetes, third_party/forked/golang/expansion/expand.go; pkg/kubelet/kubelet_pods.go,
makeEnvironmentVariables; pkg/kubelet/container/helpers.go, ExpandContainerCommandAndArgs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from podslice.model.workload import Variable

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expanded:
    """A text after expansion."""

    text: str
    is_secret: bool = False
    """Whether a Secret's value is in it."""


def expand_variables(variables: Iterable[Variable]) -> dict[str, Expanded]:
    """Return the variables of a container by name; each may refer to earlier ones."""
    known: dict[str, Expanded] = {}
    for each in variables:
        if each.is_literal:
            known[each.name] = Expanded(text=each.value, is_secret=each.is_secret)
        else:
            known[each.name] = expand(each.value, known)
    return known


def expand(text: str, known: Mapping[str, Expanded]) -> Expanded:
    """Replace `$(NAME)` of known variables; `$$` is a dollar sign, and the rest remains."""
    is_secret = False

    def replace(match: re.Match[str]) -> str:
        nonlocal is_secret
        name = match[1]
        if name is None:
            return "$"
        if name not in known:
            return match[0]
        is_secret = is_secret or known[name].is_secret
        return known[name].text

    expanded = _REFERENCE.sub(replace, text)
    return Expanded(text=expanded, is_secret=is_secret)
