"""The text format of Prometheus.

prometheus_client has a writer of it, too, whose import takes 4 MiB: it contains an HTTP server, a
client, and TLS.

Source: Prometheus, docs/instrumenting/exposition_formats.md, "Text format details".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from podslice.imports import modules_of

with modules_of("prometheus_client"):
    from prometheus_client.metrics_core import Metric
    from prometheus_client.utils import floatToGoString

_COUNTER = "counter"
_format_number: Callable[[float], str] = floatToGoString
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def format_family(family: Metric) -> bytes:
    """Format a counter, a gauge or a histogram with its samples."""
    return "".join(f"{line}\n" for line in _lines(family)).encode()


def _lines(family: Metric) -> Iterator[str]:
    name = f"{family.name}_total" if family.type == _COUNTER else family.name
    yield f"# HELP {name} {family.documentation.translate(_HELP_ESCAPES)}"
    yield f"# TYPE {name} {family.type}"
    for sample in family.samples:
        yield f"{sample.name}{_labels(sample.labels)} {_format_number(sample.value)}"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = (f'{name}="{labels[name].translate(_LABEL_ESCAPES)}"' for name in sorted(labels))
    return f"{{{','.join(pairs)}}}" if labels else ""
