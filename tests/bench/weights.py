"""Measured shares of the CPU compared with CPU weights, when all control groups want all of it.

    python3 -m tests.bench weights [--quick]

In a virtual machine of the lab with cgroup v2. podslice applies and starts pods of all classes,
each with as many busy loops as the machine has processors, and so has system.slice. No
pod has a quota (`cpu-cfs-quota = false`), so that only weights divide. Per round and mapping the
same loops run for a few seconds and are stopped again; the use of each control group is read
from its cpu.stat.

There are two predictions. *Predicted* is the share by the weights in the kernel: weight by the sum
of the weights of busy siblings, times the share of the parent. *Requested* is the share by the
manifests, in thousandths of a CPU; the difference is the rounding of a mapping.

The machine is emulated, which slows down everything equally and does not affect shares.
"""

from __future__ import annotations

import statistics

from tests.bench import contention
from tests.bench.contention import ALL_PODS, CPUS, PODS_MILLI, SYSTEM, SYSTEM_MILLI, Case, Round
from tests.bench.result import Aim, Plot, Point, Result, Spread, Table, spread
from tests.lab.paths import require_host
from tests.lab.vm import Vm

NAME = "weights"
TITLE = "Weights: measured shares of the processors against what the weights say"
ROUNDS, QUICK_ROUNDS = 3, 1
AIM_POINTS = 5.0
# the one without comes first: a weight remains once it is set
CASES = (Case(pods=5, reserved=False), *(Case(pods=count) for count in (2, 5, 10, 20)))
QUICK_CASES = (Case(pods=5),)
DETAIL = Case(pods=5)


def run(*, quick: bool = False) -> Result:
    """Measure every case in one machine."""
    require_host()
    cases, count = (QUICK_CASES, QUICK_ROUNDS) if quick else (CASES, ROUNDS)
    rounds: list[Round] = []
    with Vm(has_source=True) as machine:
        contention.prepare(machine)
        for case in cases:
            rounds += contention.measure(machine, case, count)
    return make_result(rounds)


def make_result(rounds: list[Round]) -> Result:
    """Return the tables and plots of the rounds."""
    detail = [each for each in rounds if each.case == DETAIL]
    return Result(
        name=NAME,
        title=TITLE,
        tables=(summary_table(rounds), system_table(rounds), detail_table(detail)),
        aims=(make_aim(rounds),),
        plots=(prediction_plot(rounds), request_plot(detail)),
        rounds=[plain(each) for each in rounds],
    )


def make_aim(rounds: list[Round]) -> Aim:
    """Return the aims."""
    return Aim(
        text="largest difference of a measured share from the predicted one, of all cases and rounds",
        value=max(max(each.off_points) for each in rounds),
        limit=AIM_POINTS,
        unit="points",
    )


def _by_case(rounds: list[Round]) -> list[list[Round]]:
    """Return the rounds of every case and mapping, in the order of cases."""
    keys = dict.fromkeys((each.case, each.mapping) for each in sorted(rounds, key=_order))
    return [[each for each in rounds if (each.case, each.mapping) == key] for key in keys]


def _order(one: Round) -> tuple[bool, int, int]:
    return not one.case.reserved, one.case.pods, contention.MAPPINGS.index(one.mapping)


def summary_table(rounds: list[Round]) -> Table:
    """Return how well weights predict shares, and represent requests."""
    return Table(
        title="Shares of the machine: deviation from the prediction and from requests",
        columns=(
            "mapping, pods",
            "largest deviation",
            "median",
            "most below a request",
            "least part of one",
        ),
        rows=tuple(
            (
                f"{each[0].mapping.value}, {each[0].case.title}",
                f"{max(max(one.off_points) for one in each):.2f}",
                f"{statistics.median(off for one in each for off in one.off_points):.2f}",
                f"{spread(one.shortfall_points for one in each).middle:.1f}",
                f"{spread(one.received_percent for one in each).middle:.0f} %",
            )
            for each in _by_case(rounds)
        ),
        note=(
            f"Points are percent of the machine's {CPUS} processors. The pods ask for"
            f" {PODS_MILLI}m together; system.slice has {SYSTEM_MILLI}m reserved, or nothing."
        ),
    )


def system_table(rounds: list[Round]) -> Table:
    """Return the two halves of the machine."""
    return Table(
        title="All pods against system.slice, % of the machine",
        columns=("mapping, pods", "weights", "pods predicted", "measured", "requested"),
        rows=tuple(
            (
                f"{each[0].mapping.value}, {each[0].case.title}",
                f"{each[0].shares[ALL_PODS].weight} : {each[0].shares[SYSTEM].weight}",
                f"{each[0].shares[ALL_PODS].predicted:.1f}",
                spread(one.shares[ALL_PODS].measured for one in each).show(1),
                f"{PODS_MILLI / (10 * CPUS):.1f}",
            )
            for each in _by_case(rounds)
        ),
    )


def detail_table(rounds: list[Round]) -> Table:
    """Return every control group of one case."""
    mappings = {each[0].mapping.value: each for each in _by_case(rounds)}
    rows = [
        (
            name,
            "-" if share.requested is None else f"{share.requested:.1f}",
            *(cell for each in mappings.values() for cell in _detail(each, name)),
        )
        for name, share in rounds[0].shares.items()
    ]
    heads = [head for name in mappings for head in (f"{name}: predicted", "measured")]
    return Table(
        title=f"{DETAIL.pods} pods in full, % of the machine",
        columns=("control group", "requested", *heads),
        rows=tuple(rows),
    )


def _detail(rounds: list[Round], name: str) -> tuple[str, str]:
    measured = spread(each.shares[name].measured for each in rounds)
    return f"{rounds[0].shares[name].predicted:.1f}", measured.show(1)


def prediction_plot(rounds: list[Round]) -> Plot:
    """Return a plot of every share: predicted against measured."""
    shares = {
        mapping.value: sorted(
            (share.predicted, share.measured)
            for one in rounds
            if one.mapping is mapping
            for share in one.shares.values()
        )
        for mapping in contention.MAPPINGS
    }
    top = max(predicted for pairs in shares.values() for predicted, _ in pairs)
    exact = {"as predicted": tuple(Point(x=x, y=Spread(x, x, x)) for x in (0.0, top))}
    return Plot(
        name="weights-predicted",
        title="Shares of the machine under full contention",
        x="predicted from weights, % of the machine",
        y="measured, %",
        kind="lines",
        series=exact
        | {
            name: tuple(Point(x=x, y=Spread(y, y, y)) for x, y in pairs)
            for name, pairs in shares.items()
        },
    )


def request_plot(rounds: list[Round]) -> Plot:
    """Return a plot of requests and of shares with each mapping."""
    shares = rounds[0].shares
    names = [name for name, share in shares.items() if share.requested is not None]
    asked = tuple(
        Point(x=_short(name), y=Spread(*[shares[name].requested or 0.0] * 3)) for name in names
    )
    return Plot(
        name="weights-requested",
        title=f"{DETAIL.pods} pods and system.slice: requested, and measured with each mapping",
        x="",
        y="% of the machine",
        kind="bars",
        series={"asked for": asked}
        | {
            each[0].mapping.value: tuple(
                Point(x=_short(name), y=spread(one.shares[name].measured for one in each))
                for name in names
            )
            for each in _by_case(rounds)
        },
    )


def _short(name: str) -> str:
    return name.replace(" ", "\n")


def plain(one: Round) -> dict[str, object]:
    """Return a round as figures."""
    return {
        "round": one.number,
        "what": one.mapping.value,
        "pods": one.case.pods,
        "system_reserved": one.case.reserved,
        "worst_off_points": max(one.off_points),
        "shortfall_points": one.shortfall_points,
        "others_percent": one.others_percent,
        "shares": {
            name: {
                "weight": share.weight,
                "requested": share.requested,
                "predicted": share.predicted,
                "measured": share.measured,
            }
            for name, share in one.shares.items()
        },
        "disturbed": one.disturbed,
    }
