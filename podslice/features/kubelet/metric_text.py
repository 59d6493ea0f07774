"""The text format of Prometheus: lines of metrics, from names, labels and numbers.

Source: Prometheus, docs/instrumenting/exposition_formats.md, "Text format details".
"""

from __future__ import annotations

from collections.abc import Mapping

_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def format_head(name: str, kind: str, text: str) -> str:
    """Return the lines before the samples of a metric; `kind` is `gauge`, for example."""
    return f"# HELP {name} {text.translate(_HELP_ESCAPES)}\n# TYPE {name} {kind}"


def format_sample(name: str, labels: Mapping[str, str], value: str) -> str:
    """Return the line of a sample, with its labels in the order of their names."""
    pairs = (f'{label}="{labels[label].translate(_LABEL_ESCAPES)}"' for label in sorted(labels))
    return f"{name}{{{','.join(pairs)}}} {value}" if labels else f"{name} {value}"
