"""The families of metrics as text.

prometheus_client has a writer of it, too, whose import takes 4 MiB: it contains an HTTP server, a
client, and TLS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from podslice.metric_text import format_head, format_sample

_COUNTER = "counter"
_format_number: Callable[[float], str] = floatToGoString


def format_family(family: Metric) -> bytes:
    """Format a counter, a gauge or a histogram with its samples."""
    return "".join(f"{line}\n" for line in _lines(family)).encode()


def _lines(family: Metric) -> Iterator[str]:
    name = f"{family.name}_total" if family.type == _COUNTER else family.name
    yield format_head(name, family.type, family.documentation)
    for sample in family.samples:
        yield format_sample(sample.name, sample.labels, _format_number(sample.value))
