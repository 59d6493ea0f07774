"""How much of a boot is podslice-apply.service, with as many pods as a kubelet accepts by default.

    python3 -m tests.bench boot [--quick]

A virtual machine with Debian 13 and the package is rebooted, in turn with the service enabled and
disabled. Its processor is emulated, so that seconds are ten to twenty times those of hardware, for
systemd as for Python, and it starts little beside the service: the share is an upper limit.
"""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, dataclass

from tests.bench.load import watch_load
from tests.bench.pods import CAPACITY, make_manifests
from tests.bench.result import Result, Table, ratios, spread
from tests.lab.machine import Machine
from tests.lab.paths import require_host
from tests.lab.vm import Vm
from tests.packaging.builds import Packages, install

NAME = "boot"
TITLE = "Boot: podslice-apply.service on the way to multi-user.target"
SERVICE, TARGET = "podslice-apply.service", "multi-user.target"
MANIFEST, CONFIG_FILE = "/etc/podslice/manifests/pods.yaml", "/etc/podslice/podslice.toml"
PODS, ROUNDS = 110, 3
"""As many pods as the kubelet accepts. Source: KubeletConfiguration, maxPods."""
QUICK_PODS, QUICK_ROUNDS = 5, 1
BEGAN, COMPLETE = "InactiveExitTimestampMonotonic", "ActiveEnterTimestampMonotonic"
USEC_PER_SEC = 1e6
# `├─podslice-apply.service @5.123s +1.250s`; a unit that was there before has no duration
_LINK = re.compile(r"([\w.@:\\-]+) @([^+]+?)(?: \+(.+))?$")
_TIME = re.compile(r"([\d.]+)(min|ms|us|s)")
_SEC = {"min": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A unit of the critical chain: each one was started when the next one was complete."""

    unit: str
    at_sec: float
    """When it was active, since the start of systemd."""
    took_sec: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """One boot."""

    pods: int
    """0: the service was disabled."""
    target_sec: float
    """From the start of systemd to multi-user.target."""
    service_sec: float
    service_cpu_sec: float
    chain: tuple[Link, ...]
    """From multi-user.target backwards."""
    disturbed: bool = False

    @property
    def share_percent(self) -> float:
        """Return the service's part of the time to multi-user.target; 0 beside the chain."""
        took = sum(link.took_sec for link in self.chain if link.unit == SERVICE)
        return 100 * took / self.target_sec


def run(*, quick: bool = False) -> Result:
    """Install the package in one machine, and reboot it again and again."""
    require_host()
    pods, rounds = (QUICK_PODS, QUICK_ROUNDS) if quick else (PODS, ROUNDS)
    package = Packages().get("trixie")
    with Vm("trixie") as machine:
        install(machine, package)
        machine.put(MANIFEST, make_manifests(pods))
        machine.put(CONFIG_FILE, f'capacity = "{CAPACITY}"\n')
        boots = []
        for number in range(rounds):
            for verb, count in (("enable", pods), ("disable", 0)):
                sys.stderr.write(f"boot {number + 1} with {count} pods\n")
                machine.run("systemctl", "--quiet", verb, SERVICE)
                with watch_load() as load:
                    machine.reboot()
                boots.append(measure(machine, pods=count, disturbed=load.is_disturbed))
    return make_result(boots)


def measure(machine: Machine, *, pods: int, disturbed: bool = False) -> Boot:
    """Read the times of the boot that is complete."""
    shown = properties(machine, SERVICE, BEGAN, COMPLETE, "CPUUsageNSec")
    (booted,) = properties(machine, "", "UserspaceTimestampMonotonic").values()
    target = int(properties(machine, TARGET, COMPLETE)[COMPLETE])
    service = int(shown[COMPLETE]) - int(shown[BEGAN])
    if pods and service <= 0:
        raise RuntimeError(f"{SERVICE} has not run: {shown}")
    chain = machine.run("systemd-analyze", "--no-pager", "critical-chain", TARGET).stdout
    return Boot(
        pods=pods,
        target_sec=(target - int(booted)) / USEC_PER_SEC,
        service_sec=service / USEC_PER_SEC,
        service_cpu_sec=int(shown["CPUUsageNSec"]) / 1e9 if pods else 0.0,
        chain=parse_chain(chain),
        disturbed=disturbed,
    )


def properties(machine: Machine, unit: str, *names: str) -> dict[str, str]:
    """Return properties of a unit, or of the manager."""
    options = [f"--property={name}" for name in names]
    lines = machine.run("systemctl", "show", *filter(None, [unit]), *options).stdout.splitlines()
    return dict(line.split("=", 1) for line in lines)


def parse_chain(text: str) -> tuple[Link, ...]:
    """Return the units of `systemd-analyze critical-chain`."""
    found = filter(None, map(_LINK.search, text.splitlines()))
    return tuple(
        Link(unit=each[1], at_sec=parse_sec(each[2]), took_sec=parse_sec(each[3] or ""))
        for each in found
    )


def parse_sec(text: str) -> float:
    """Return the seconds of `1min 2.5s` or `350ms`."""
    return sum(float(number) * _SEC[unit] for number, unit in _TIME.findall(text))


def make_result(boots: list[Boot]) -> Result:
    """Return the tables of the boots."""
    return Result(
        name=NAME,
        title=TITLE,
        tables=(boot_table(boots), chain_table(boots)),
        rounds=[asdict(each) for each in boots],
    )


def boot_table(boots: list[Boot]) -> Table:
    """Return a row for the boots with the service, and one for those without."""
    with_pods = [each for each in boots if each.pods]
    without = [each for each in boots if not each.pods] or with_pods
    base = [each.target_sec for each in without]
    return Table(
        title=f"Seconds from the start of systemd to {TARGET}",
        columns=("pods", "to the target", "/ without", "the service", "its CPU", "% of the chain"),
        rows=tuple(
            (
                f"{group[0].pods}" if group[0].pods else "service disabled",
                spread(each.target_sec for each in group).show(1),
                ratios([each.target_sec for each in group], base).show(2),
                spread(each.service_sec for each in group).show(1),
                spread(each.service_cpu_sec for each in group).show(1),
                spread(each.share_percent for each in group).show(),
            )
            for group in (with_pods, without)
        ),
        note="The machine is emulated, and starts little else: on hardware seconds and shares are less.",
    )


def chain_table(boots: list[Boot]) -> Table:
    """Return the critical chain of a boot with pods, of medium duration."""
    with_pods = sorted((each for each in boots if each.pods), key=lambda each: each.target_sec)
    chosen = with_pods[len(with_pods) // 2]
    return Table(
        title=f"The critical chain of a boot with {chosen.pods} pods, `systemd-analyze critical-chain`",
        columns=("unit", "active after, s", "took, s"),
        rows=tuple(
            (link.unit, f"{link.at_sec:.2f}", f"{link.took_sec:.2f}") for link in chosen.chain
        ),
    )
