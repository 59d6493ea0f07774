"""Rows about histories of usage: buckets, percentiles, peaks, confidence and recommendations."""

from podslice.features.history.model import DecayingHistogram, UsageHistory
from podslice.features.history.recommendation import confidence_days, confidence_factor, recommend
from podslice.features.history.samples import (
    CPU_BUCKETS,
    MEMORY_BUCKETS,
    BucketScheme,
    add_cpu,
    add_memory,
    add_oom_kills,
    add_sample,
    add_waits,
    percentile_bucket,
)
from podslice.model.resources import format_amount
from tests.cases.rows import to_amounts

MI = 2**20
START_SEC = 1_700_006_400  # midnight
HOUR_SEC = 3600
_SCHEMES = {"cpu": CPU_BUCKETS, "memory": MEMORY_BUCKETS}
_RESOURCES = {"cpu_request": "cpu", "memory_request": "memory", "memory_limit": "memory"}


def run_buckets(row):
    stated = row["scheme"]
    scheme = (
        _SCHEMES[stated]
        if isinstance(stated, str)
        else BucketScheme(
            first_width=stated["first"], growth=stated["growth"], maximum=stated["maximum"]
        )
    )
    return {
        "expect": [scheme.find(value) for value in row["values"]],
        "count": scheme.count,
        "starts": [round(scheme.start(index), 6) for index in range(min(scheme.count, 6))],
    }


def run_percentiles(row):
    histogram, references = DecayingHistogram(), []
    for value, weight, hour in row["samples"]:
        at_sec = START_SEC + hour * HOUR_SEC
        histogram = add_sample(histogram, value, weight, at_sec, half_life_sec=HOUR_SEC)
        references.append(histogram.reference_sec)
    buckets = {share: percentile_bucket(histogram, float(share)) for share in row["percentiles"]}
    return {
        "percentiles": {
            share: 0 if bucket is None else bucket + 1 for share, bucket in buckets.items()
        },
        "reference_moved": len(set(references)) > 1,
    }


def run_peaks(row):
    """The peaks of all windows, which are recorded as each of them ends."""
    history, peaks = UsageHistory(), []
    for used, hour, *request in row["samples"]:
        at_sec, ended = START_SEC + hour * HOUR_SEC, history.memory
        if request:
            request_bytes = request[0] * MI
            history = add_oom_kills(history, 1, at_sec, request_bytes=request_bytes)
        else:
            history = add_memory(history, used * MI, at_sec)
        if history.memory.window_end_sec != ended.window_end_sec and ended.window_end_sec:
            peaks.append(ended)
    peaks.append(history.memory)
    return {
        "expect": [memory.peak_bytes // MI for memory in peaks],
        "end_hours": (history.memory.window_end_sec - START_SEC) // HOUR_SEC,
    }


def run_confidence(row):
    history = UsageHistory(
        first_sec=START_SEC, last_sec=START_SEC + row["age_min"] * 60, samples=row["samples"]
    )
    days = confidence_days(history)
    factor = confidence_factor(days, row["multiplier"], row["exponent"])
    return {"expect": round(days, 8), "factor": round(factor, 6)}


def run_recommend(row):
    history, now_sec = to_history(row)
    stated = row.get("now", {})
    found = recommend(
        history,
        now_sec,
        requests=to_amounts(stated.get("requests", "")),
        limits=to_amounts(stated.get("limits", "")),
    )
    advice = {name: getattr(found, name) for name in _RESOURCES}
    advice = {name: each for name, each in advice.items() if each is not None}
    shown = {
        field: {
            name: format_amount(_RESOURCES[name], getattr(each, field))
            for name, each in advice.items()
            if getattr(each, field) is not None
        }
        for field in ("recommended", "computed", "lower", "upper")
    }
    shown["expect"] = shown.pop("recommended")
    # a row may be about some of the amounts
    found = {field: _like(shown[field], row.get(field)) for field in shown}
    return {**found, "veto": {name: each.veto.value for name, each in advice.items() if each.veto}}


KINDS = {
    "buckets": run_buckets,
    "percentiles": run_percentiles,
    "peaks": run_peaks,
    "confidence": run_confidence,
    "recommend": run_recommend,
}


def _like(shown, stated):
    return {name: shown[name] for name in stated if name in shown} if stated else shown


def to_history(row):
    """The history of a row's series, and its end."""
    history, minute = UsageHistory(), -1
    for step in row["series"]:
        for _ in range(step["hours"] * 60 + (step is row["series"][-1])):
            minute += 1
            at_sec = START_SEC + minute * 60
            history = add_cpu(history, step["cpu"], at_sec)
            history = add_memory(history, step["memory"] * MI, at_sec)
    now_sec = START_SEC + max(minute, 0) * 60
    if "waits" in row:
        cpu, memory = row["waits"]
        history = add_waits(history, 600.0, 600.0 * cpu, 600.0 * memory, now_sec)
    if "kills" in row:
        history = add_oom_kills(history, row["kills"], now_sec, request_bytes=0)
    return history, now_sec
