"""Requests and limits for a manifest, from the present settings and use of a unit or a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from podslice.model import properties
from podslice.model.config import Config, MemoryProtection
from podslice.model.pod import Qos
from podslice.model.properties import MANAGED, OOM_SCORE_ADJ, PROPERTIES, format_value
from podslice.model.quantity import (
    INT64_MAX,
    format_age,
    format_bytes,
    format_milli,
    human_bytes,
    parse_quantity,
)
from podslice.model.resources import CPU, MEMORY, format_amount
from podslice.model.unit import InspectedUnit, UnitKind
from podslice.policy.convert import (
    MIN_WEIGHT,
    RequestSpan,
    limit_of_quota,
    requests_of_shares,
    requests_of_weight,
)
from podslice.policy.unit_properties import protection_property

MI = 2**20

_CPU_STEP_MILLI = 10
"""A hundredth of a CPU, the precision that systemd stores."""
_SPARE_PERCENT = 25
"""What the proposed memory limit leaves above the peak."""
_SPARE_WITHOUT_PEAK_PERCENT = 50


class PresentUse(NamedTuple):
    """What a running unit or process uses; None where the kernel does not count it."""

    name: str
    """`nginx`."""
    what: str
    """`nginx.service`, or `process 226 (sleep)`."""
    age_sec: int
    """The time since its oldest process started, at least 1."""
    cpu_usec: int | None = None
    """Since the start."""
    memory_bytes: int | None = None
    """The memory that cannot be reclaimed at once."""
    peak_bytes: int | None = None
    """The most memory since the start."""
    tasks: int | None = None
    """Processes and threads."""


class StatedAmount(NamedTuple):
    """A quantity, as the manifest has it, and its source."""

    text: str
    source: str = ""
    """Empty if the user has chosen it."""


class ProposedAmounts(NamedTuple):
    """Amounts for the level of a pod; None where nothing is known."""

    cpu: StatedAmount | None = None
    memory: StatedAmount | None = None
    memory_limit: StatedAmount | None = None


def propose_amounts(use: PresentUse) -> ProposedAmounts:
    """Return requests of the present use, and a memory limit above the peak.

    There is no CPU limit: the average does not show the peak.
    """
    cpu = memory = limit = None
    if use.cpu_usec is not None:
        average_milli = use.cpu_usec // (use.age_sec * 1000)
        proposed = _round_up(max(average_milli, 1), _CPU_STEP_MILLI)
        source = f"its average in {format_age(use.age_sec)} is {average_milli}m"
        cpu = StatedAmount(text=format_milli(proposed), source=source)
    if use.memory_bytes is not None:
        proposed = _round_up(max(use.memory_bytes, 1), MI)
        memory = StatedAmount(text=format_bytes(proposed), source="what it uses now")
        if use.peak_bytes is None:
            spare, base = _SPARE_WITHOUT_PEAK_PERCENT, use.memory_bytes
            source = "1.5 times what it uses now; its peak is not known"
        else:
            spare, base = _SPARE_PERCENT, max(use.peak_bytes, use.memory_bytes)
            source = f"1.25 times its peak, {human_bytes(base)}"
        proposed = _round_up(max(base, 1) * (100 + spare) // 100, MI)
        limit = StatedAmount(text=format_bytes(max(proposed, MI)), source=source)
    return ProposedAmounts(cpu=cpu, memory=memory, memory_limit=limit)


def at_most(proposed: StatedAmount | None, limit: StatedAmount | None) -> StatedAmount | None:
    """Return a proposed request, or the limit if that is less."""
    if proposed is None or limit is None or _milli(proposed) <= _milli(limit):
        return proposed
    return StatedAmount(text=limit.text, source=f"the limit; {proposed.source}: {proposed.text}")


def at_least(proposed: StatedAmount | None, request: StatedAmount | None) -> StatedAmount | None:
    """Return a proposed limit, or the request if that is more."""
    if proposed is None or request is None or _milli(proposed) >= _milli(request):
        return proposed
    source = f"the request; {proposed.source} would be {proposed.text}"
    return StatedAmount(text=request.text, source=source)


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step


class SettingKind(StrEnum):
    """The settings that have a field in a manifest, as the properties of systemd or by their own."""

    CPU_WEIGHT = properties.CPU_WEIGHT
    CPU_SHARES = "CPUShares"
    """The shares of a container runtime, which converts them to a weight by another formula."""
    CPU_QUOTA = properties.CPU_QUOTA
    MEMORY_LOW = properties.MEMORY_LOW
    MEMORY_MIN = properties.MEMORY_MIN
    MEMORY_MAX = properties.MEMORY_MAX


class PresentSetting(NamedTuple):
    """A setting that is set."""

    value: int
    text: str
    """As the unit file or the command line has it: `CPUWeight=50`."""


class PresentSettings(NamedTuple):
    """The settings of a unit or a container that are set."""

    taken: Mapping[SettingKind, PresentSetting] = {}
    further: tuple[str, ...] = ()
    """Settings that have no field in a manifest: `IOWeight=50`."""


class ImportedAmounts(NamedTuple):
    """The amounts of a container, or of the pod level, and their sources."""

    requests: Mapping[str, StatedAmount] = {}
    limits: Mapping[str, StatedAmount] = {}
    further: tuple[str, ...] = ()
    """Settings that are not in the manifest."""


def score_of(unit: InspectedUnit) -> int | None:
    """Return the OOM score of the processes of a service; None of another unit, which has none."""
    if not unit.observed.name.endswith(f".{UnitKind.SERVICE}"):
        return None
    return int(unit.further.get(OOM_SCORE_ADJ, 0))


def settings_of(unit: InspectedUnit) -> PresentSettings:
    """Return the settings of a unit, except the OOM score of its processes."""
    found = {
        name: value
        for name, value in unit.observed.properties.items()
        # TasksMax has the default of the manager where it was not set: it is among the further settings
        if name in MANAGED[UnitKind.SCOPE]
        and value != PROPERTIES[name].unset
        and isinstance(value, int | str)
    }
    texts = {
        name: f"{PROPERTIES[name].key}={format_value(name, value)}" for name, value in found.items()
    }
    taken = {
        kind: PresentSetting(value=int(found[kind]), text=texts[kind])
        for kind in SettingKind
        # `MemoryLow=infinity` is not an amount
        if kind in found and int(found[kind]) <= INT64_MAX
    }
    others = [texts[name] for name in found if name not in taken]
    others += [
        f"{key}={value}" if value else key
        for key, value in unit.further.items()
        if key != OOM_SCORE_ADJ
    ]
    return PresentSettings(taken=taken, further=tuple(sorted(others)))


def import_container(
    settings: PresentSettings, use: PresentUse | None, config: Config, *, is_least: bool = False
) -> ImportedAmounts:
    """Return the amounts of a container that has these settings and this use.

    A limit is stated only where one is set. A request follows from a setting, otherwise from the present
    use, and at most the limit. Where a memory limit is set and no memory is protected, and the use
    is not known, the request is 0: otherwise the limit would count as the request.

    With `is_least` a CPU request is the least of those that have the weight, not the roundest.
    """
    limits = _limits(settings)
    proposed = propose_amounts(use) if use else ProposedAmounts()
    cpu = _cpu_request(settings, limits.get(CPU), config, is_least=is_least)
    memory = _memory_request(settings, limits.get(MEMORY), config)
    requests = {
        CPU: _with_use(cpu, proposed.cpu) or at_most(proposed.cpu, limits.get(CPU)),
        MEMORY: _with_use(memory, proposed.memory) or at_most(proposed.memory, limits.get(MEMORY)),
    }
    if requests[MEMORY] is None and MEMORY in limits:
        requests[MEMORY] = _NOTHING_PROTECTED
    return ImportedAmounts(
        requests={name: amount for name, amount in requests.items() if amount},
        limits=limits,
        further=(*settings.further, *_unused(settings, config)),
    )


def _with_use(amount: StatedAmount | None, proposed: StatedAmount | None) -> StatedAmount | None:
    """Return a request that a setting states, with the present use in its comment."""
    if amount is None or proposed is None:
        return amount
    source = f"{amount.source}; by its use it would be {proposed.text}"
    return StatedAmount(text=amount.text, source=source)


_NOTHING_PROTECTED = StatedAmount(
    text="0", source="none is set; without this line the limit would count as the request"
)


def import_pod(
    level: PresentSettings,
    containers: Sequence[tuple[PresentSettings, PresentUse | None]],
    config: Config,
) -> tuple[ImportedAmounts, tuple[ImportedAmounts, ...]]:
    """Return the amounts of a pod whose slice has these settings, and of its containers.

    The pod's request is at least the sum of its containers', which have their least requests if
    otherwise no request of the pod would have its weight. If their sum is more than the pod's limit
    nevertheless, all are scaled down. A request of the pod that would be less than the sum is not
    stated, so that the sum applies.
    """
    limits = _limits(level)
    choices = [
        tuple(
            import_container(settings, use, config, is_least=is_least)
            for settings, use in containers
        )
        for is_least in (False, True)
    ]
    # the roundest requests if the slice's weight and limit allow them, else the least ones
    found = next((each for each in choices if _fits(each, level, config)), choices[0])
    # Kubernetes rejects a pod whose containers request more than its limit
    for name, limit in limits.items():
        found = _scale_down(found, name, _milli(limit))
    requests = {
        CPU: _cpu_request(level, limits.get(CPU), config, at_least=_sum(CPU, found)),
        MEMORY: _memory_request(level, limits.get(MEMORY), config),
    }
    sums = {name: _sum(name, found) for name in requests}
    stated = {
        name: amount for name, amount in requests.items() if amount and _milli(amount) >= sums[name]
    }
    if MEMORY in limits and not requests[MEMORY] and not sums[MEMORY]:
        stated[MEMORY] = _NOTHING_PROTECTED
    dropped = (_source(level, name, config) for name in requests.keys() - stated.keys())
    further = (*level.further, *_unused(level, config), *filter(None, dropped))
    return ImportedAmounts(requests=stated, limits=limits, further=further), found


def _fits(containers: Sequence[ImportedAmounts], level: PresentSettings, config: Config) -> bool:
    """Return whether the pod's CPU limit and weight are possible with these containers."""
    limit, least = _limits(level).get(CPU), _sum(CPU, containers)
    if limit and _milli(limit) < least:
        return False
    request = _cpu_request(level, limit, config, at_least=least)
    return request is None or _milli(request) >= least


def _scale_down(
    containers: tuple[ImportedAmounts, ...], resource: str, limit: int
) -> tuple[ImportedAmounts, ...]:
    """Return the containers with requests whose sum is at most the limit; their ratios stay."""
    whole = _sum(resource, containers)
    if whole <= limit:
        return containers
    scaled = []
    for each in containers:
        amount = each.requests.get(resource) or each.limits.get(resource)
        if amount:
            step = _STEP_MILLI[resource]
            milli = _milli(amount) * limit // whole // step * step
            source = f"{amount.source}: {amount.text}, scaled down to the pod's limit"
            fitting = StatedAmount(format_amount(resource, milli), source)
            each = each._replace(requests={**each.requests, resource: fitting})  # noqa: PLW2901
        scaled.append(each)
    return tuple(scaled)


_STEP_MILLI = {CPU: 1, MEMORY: 1024 * 1000}
"""Requests that are scaled down are multiples of this."""


def _source(settings: PresentSettings, resource: str, config: Config) -> str:
    """Return the setting that a request is from; empty if there is none."""
    kind = SettingKind.CPU_WEIGHT if resource == CPU else _protection(settings, config)
    setting = settings.taken.get(kind) if kind else None
    return setting.text if setting else ""


def _sum(resource: str, containers: Iterable[ImportedAmounts]) -> int:
    """Return the sum of the requests, where a limit without one counts."""
    stated = (each.requests.get(resource, each.limits.get(resource)) for each in containers)
    return sum(_milli(amount) for amount in stated if amount)


def _limits(settings: PresentSettings) -> dict[str, StatedAmount]:
    found: dict[str, StatedAmount] = {}
    if quota := settings.taken.get(SettingKind.CPU_QUOTA):
        milli = limit_of_quota(quota.value)
        is_exact = milli * 1000 == quota.value
        source = quota.text if is_exact else f"{quota.text}, rounded up to a whole percent"
        found[CPU] = StatedAmount(text=format_milli(milli), source=source)
    if most := settings.taken.get(SettingKind.MEMORY_MAX):
        found[MEMORY] = _memory(most)
    return found


def _cpu_request(
    settings: PresentSettings,
    limit: StatedAmount | None,
    config: Config,
    *,
    at_least: int | None = None,
    is_least: bool = False,
) -> StatedAmount | None:
    """Return the request that has the weight; with `at_least` the request of a pod's slice.

    It is less than that if no request that has the weight is as large.
    """
    found = _request_span(settings, config, container=at_least is None)
    if found is None:
        return None
    setting, span = found
    milli = span.least if is_least else span.roundest(at_least=at_least)
    if milli is None:  # all are less than `at_least`
        milli = span.most
    source = setting.text if span.is_exact else f"{setting.text}, rounded up"
    return at_most(StatedAmount(text=format_milli(milli), source=source), limit)


def _request_span(
    settings: PresentSettings, config: Config, *, container: bool
) -> tuple[PresentSetting, RequestSpan] | None:
    if weight := settings.taken.get(SettingKind.CPU_WEIGHT):
        if weight.value < MIN_WEIGHT:
            text = f"{weight.text}, for which there is no request: the least weight"
            weight = PresentSetting(value=MIN_WEIGHT, text=text)
        mapping = config.cpu_weight_mapping
        return weight, requests_of_weight(weight.value, mapping, container=container)
    if shares := settings.taken.get(SettingKind.CPU_SHARES):
        return shares, requests_of_shares(shares.value)
    return None


def _memory_request(
    settings: PresentSettings, limit: StatedAmount | None, config: Config
) -> StatedAmount | None:
    """Return the memory that is protected: by the property of memory requests, else the other."""
    used = _protection(settings, config)
    if used is None:
        return None
    amount = _memory(settings.taken[used])
    own = [protection_property(qos, config) for qos in Qos]
    if used not in own:
        source = f"{amount.source}; memory-protection sets {own[0] or 'no property'} for it"
        amount = StatedAmount(text=amount.text, source=source)
    return at_most(amount, limit)


def _protection(settings: PresentSettings, config: Config) -> SettingKind | None:
    """Return the setting that is the memory request."""
    order = [SettingKind.MEMORY_LOW, SettingKind.MEMORY_MIN]
    if config.memory_protection is MemoryProtection.MIN:
        order.reverse()
    return next((kind for kind in order if kind in settings.taken), None)


def _unused(settings: PresentSettings, config: Config) -> Iterator[str]:
    """Yield settings of the kinds that manifests have, and that are not used here."""
    used = _protection(settings, config)
    for kind in (SettingKind.MEMORY_LOW, SettingKind.MEMORY_MIN):
        if kind in settings.taken and kind is not used:
            yield settings.taken[kind].text


def _memory(setting: PresentSetting) -> StatedAmount:
    return StatedAmount(text=format_amount(MEMORY, setting.value * 1000), source=setting.text)


def _milli(amount: StatedAmount) -> int:
    return parse_quantity(amount.text).milli
