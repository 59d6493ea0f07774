"""What the tiers get: CPU by their pods' requests, memory reserved for the tiers above."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from podslice.model.config import Config
from podslice.model.desired import PodDecision
from podslice.model.pod import Qos
from podslice.model.properties import share_of_percent
from podslice.model.quantity import format_bytes
from podslice.model.resources import CPU, MEMORY, format_amount
from podslice.model.unit import Setting
from podslice.policy.convert import MIN_SHARES, shares_from_milli
from podslice.policy.settings import PROTECTION_PROPERTY, weight

_CAP_STEP_BYTES = 2**20
"""A limit at the current usage is rounded up to this, so that it does not change with a page."""


def requested(pods: Iterable[PodDecision], resource: str, *classes: Qos) -> int:
    """The sum of the effective requests of the pods of some classes, in thousandths."""
    return sum(pod.requests.get(resource, 0) for pod in pods if pod.qos in classes)


def protected(pods: Iterable[PodDecision]) -> int:
    """Return the sum of what pods' slices protect, in thousandths of a byte."""
    asking = [pod for pod in pods if pod.requests.get(MEMORY)]
    return sum(pod.requests[MEMORY] + pod.hugepages_in_memory_bytes * 1000 for pod in asking)


def tier_settings(
    qos: Qos,
    pods: tuple[PodDecision, ...],
    allocatable_memory: int,
    config: Config,
    *,
    page_size: int,
    used_bytes: int | None = None,
) -> tuple[Setting, ...]:
    """What the slice of the Burstable or the BestEffort tier gets.

    `allocatable_memory` is in thousandths of a byte; `used_bytes` is the tier's unreclaimable
    memory where it is known.

    Source: seed 000, "QoS level CPU allocation" and "QoS level memory allocation".
    """
    settings = [_tier_weight(qos, pods, config)]
    settings += _tier_protection(qos, pods, config)
    if config.qos_reserved.get(MEMORY) is not None:
        settings += [
            _tier_memory(
                qos,
                pods,
                allocatable_memory,
                config.qos_reserved,
                page_size=page_size,
                used_bytes=used_bytes,
            )
        ]
    if qos in config.oomd_tiers:
        settings += _oomd(config)
    return tuple(sorted(settings, key=lambda setting: setting.name))


def _oomd(config: Config) -> Iterator[Setting]:
    """What systemd-oomd may do in a tier: kill one control group in it at a time.

    Source: systemd.resource-control(5), ManagedOOMSwap=, ManagedOOMMemoryPressureLimit=.
    """
    why = "oomd-tiers"
    yield Setting(name="ManagedOOMSwap", value="kill", why=why)
    yield Setting(name="ManagedOOMMemoryPressure", value="kill", why=why)
    percent = config.oomd_memory_pressure_limit_percent
    if percent is not None:
        yield Setting(
            name="ManagedOOMMemoryPressureLimit",
            value=share_of_percent(percent),
            why=f"oomd-memory-pressure-limit {percent}%",
        )


def _tier_weight(qos: Qos, pods: tuple[PodDecision, ...], config: Config) -> Setting:
    if qos is Qos.BESTEFFORT:
        return weight(MIN_SHARES, f"the BestEffort tier → {MIN_SHARES} shares", config)
    cpu_milli = requested(pods, CPU, qos)
    shares = shares_from_milli(cpu_milli)
    why = f"requests.cpu of Burstable pods {format_amount(CPU, cpu_milli)} → {shares} shares"
    return weight(shares, why, config)


def _tier_protection(qos: Qos, pods: tuple[PodDecision, ...], config: Config) -> list[Setting]:
    return protection(
        protected(pod for pod in pods if pod.qos is qos),
        f"requests.memory of {qos} pods, so that theirs hold",
        config,
    )


def protection(milli: int, why: str, config: Config) -> list[Setting]:
    """The memory protection of an inner slice; without it the kernel ignores its children's.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, memory.low: "up to the amount of its
    ancestors' effective protection".
    """
    name = PROTECTION_PROPERTY.get(config.memory_protection)
    return [Setting(name=name, value=-(-milli // 1000), why=why)] if name and milli else []


def _tier_memory(
    qos: Qos,
    pods: tuple[PodDecision, ...],
    allocatable_memory: int,
    qos_reserved: Mapping[str, int],
    *,
    page_size: int,
    used_bytes: int | None,
) -> Setting:
    """MemoryMax of a tier: Allocatable less what the tiers above request, in part or in whole.

    Source: seed 000, "QoS level memory allocation", both formulas.
    """
    above = (Qos.GUARANTEED,) if qos is Qos.BURSTABLE else (Qos.GUARANTEED, Qos.BURSTABLE)
    percent = qos_reserved[MEMORY]
    reserved_milli = sum(requested(pods, MEMORY, each) * percent // 100 for each in above)
    target = max((allocatable_memory - reserved_milli) // 1000, page_size)
    why = (
        f"allocatable {format_amount(MEMORY, allocatable_memory)} - {percent}% of the requests of"
        f" {' and '.join(above)} pods {format_amount(MEMORY, requested(pods, MEMORY, *above))}"
    )
    if used_bytes is not None and used_bytes > target:
        capped = -(-used_bytes // _CAP_STEP_BYTES) * _CAP_STEP_BYTES
        why += f" = {format_bytes(target)}, held at the current usage until that has fallen"
        target = capped
    return Setting(name="MemoryMax", value=target, why=why)
