"""Make a failing path smaller while it keeps failing: fewer flows, nothing that it does not need, round numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from bbrgym.benchmark.breaking.judging import Judge, Trial
from bbrgym.benchmark.breaking.properties import PROPERTIES
from bbrgym.benchmark.breaking.space import OURS, figures, scaled
from bbrgym.envs.scenario import Flow, Scenario

SEEDS: Final = 5
"""A failure is repeated with so many seeds, the first of which is that of its discovery."""
NEEDED: Final = 3
"""It must hold in so many of them."""

LEAST_BUFFER_PACKETS: Final = 3
"""As in paths.yaml: no real buffer is smaller."""

_MOST_TRIES: Final = 150
_AT_A_TIME: Final = 4
"""How many smaller paths one failure may cost, and how many are judged at a time."""

_ALWAYS: Final = ("rate_mbps", "buffer_bdp", "buffer_packets", "duration_s", "rtt_ms")
"""Fields that every path has."""

_OF_LINK: Final = tuple(
    field.name for field in dataclasses.fields(Scenario) if field.name not in ("flows", "rate_schedule", *_ALWAYS)
)
_OF_FLOW: Final = tuple(
    field.name
    for field in dataclasses.fields(Flow)
    if field.name not in ("algorithm", "parameters", "rtt_schedule", *_ALWAYS)
)
_NUMBERS: Final = (
    "rate_mbps",
    "buffer_bdp",
    "loss",
    "loss_burst_ms",
    "loss_burst_packets",
    "reordering",
    "reordering_ms",
    "policer_mbps",
    "policer_burst_bytes",
    "second_rate_mbps",
    "reverse_rate_mbps",
    "ce_threshold_ms",
)
_FLOW_NUMBERS: Final = (
    "rtt_ms",
    "start_s",
    "stop_s",
    "jitter_ms",
    "ack_loss",
    "ack_aggregation_ms",
    "app_rate_mbps",
    "on_s",
    "off_s",
)
_DURATIONS_S: Final = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30)
_DEFAULTS: Final = Scenario(), Flow()


def size(scenario: Scenario) -> tuple[int, int]:
    """Return how large a path is: its flows, and how many fields differ from the default or change."""
    first = scenario.flows[0]
    fields = sum(getattr(scenario, name) != getattr(_DEFAULTS[0], name) for name in _OF_LINK)
    fields += len(scenario.rate_schedule) + 2  # rate and buffer
    fields += sum(getattr(first, name) != getattr(_DEFAULTS[1], name) for name in _OF_FLOW)
    fields += len(first.rtt_schedule) + 1  # RTT
    for flow in scenario.flows[1:]:
        fields += sum(
            getattr(flow, name) != getattr(first, name) for name in (*_OF_FLOW, "rtt_ms", "rtt_schedule", "algorithm")
        )
    return len(scenario.flows), fields


def seeds_of(seed: int) -> list[int]:
    """Return the seeds with which a failure must hold."""
    return [(seed + place) % 2**31 for place in range(SEEDS)]


def holds(judge: Judge, name: str, scenarios: Sequence[Scenario], seed: int) -> list[int]:
    """Return for each scenario with how many of the seeds the property is broken, as `count_broken` does.

    What does not fail with the first seed counts 0.
    """
    trials = [Trial(scenario, seed) for scenario in scenarios]
    broken = [{name} if verdicts[name].is_broken else set() for verdicts in judge.judge(trials)]
    return [counts.get(name, 0) for counts in count_broken(judge, trials, broken)]


def count_broken(judge: Judge, trials: Sequence[Trial], broken: Sequence[set[str]]) -> list[dict[str, int]]:
    """Return with how many of its seeds each property of a trial is broken.

    As soon as that is decided, no more seeds run: a count is then `NEEDED`, or too low to reach it.

    Args:
        judge: of at least these properties.
        trials: with their first seeds.
        broken: the properties that are known to be broken with them.
    """
    counts = [dict.fromkeys(names, 1) for names in broken]
    tried = 1
    for more in (NEEDED - 1, 1, 1):  # at first as many as are enough if all of them fail
        open_ = [
            place
            for place, of_trial in enumerate(counts)
            if any(count < NEEDED <= count + SEEDS - tried for count in of_trial.values())
        ]
        again = [
            Trial(trials[place].scenario, seed)
            for place in open_
            for seed in seeds_of(trials[place].seed)[tried : tried + more]
        ]
        verdicts = iter(judge.judge(again))
        for place in open_:
            for _ in range(more):
                of_seed = next(verdicts)
                for name in counts[place]:
                    counts[place][name] += of_seed[name].is_broken
        tried += more
    return counts


def shrink(judge: Judge, name: str, trial: Trial, ends_at: Callable[[], bool] = lambda: False) -> Scenario:
    """Return the smallest path that was found on which the property still holds for `NEEDED` seeds of `SEEDS`.

    Each step tries the ways to make the path smaller, several at a time, and takes the first one that holds.

    Args:
        judge: of the property alone.
        name: the property.
        trial: on which it holds.
        ends_at: whether there is no time left.
    """
    current = trial.scenario
    refused: set[Scenario] = {current}
    tries = _MOST_TRIES
    while True:
        before = current
        place = 0
        while place < len(_STEPS):
            tried = [one for one in dict.fromkeys(_STEPS[place](current)) if one not in refused]
            tried = [one for one in tried if not any(flow.is_absent for flow in one.flows)]
            tried = [one for one in tried if one.duration_s >= min(PROPERTIES[name].least_s, current.duration_s)]
            tried = [one for one in tried if one.queue_packets >= min(LEAST_BUFFER_PACKETS, current.queue_packets)]
            found = None
            for first in range(0, len(tried), _AT_A_TIME):
                some = tried[first : first + _AT_A_TIME]
                if ends_at() or tries <= 0:
                    return current
                tries -= len(some)
                counts = holds(judge, name, some, trial.seed)
                refused.update(one for one, count in zip(some, counts, strict=True) if count < NEEDED)
                found = next((one for one, count in zip(some, counts, strict=True) if count >= NEEDED), None)
                if found is not None:
                    break
            if found is None:
                place += 1
            else:
                current = found
        if current == before:
            return current


def _with(scenario: Scenario, **changes: Any) -> list[Scenario]:
    """Return the scenario with changed fields; nothing if they do not fit together."""
    try:
        return [dataclasses.replace(scenario, **changes)]
    except ValueError:
        return []


def _with_flows(scenario: Scenario, **changes: Any) -> list[Scenario]:
    """Return the scenario with changed fields of all flows."""
    try:
        return [
            dataclasses.replace(scenario, flows=tuple(dataclasses.replace(flow, **changes) for flow in scenario.flows))
        ]
    except ValueError:
        return []


def _fewer_flows(scenario: Scenario) -> Iterator[Scenario]:
    flows = scenario.flows
    for index in reversed(range(len(flows))):
        rest = flows[:index] + flows[index + 1 :]
        if any(flow.algorithm == OURS for flow in rest):
            yield from _with(scenario, flows=rest)


def _shorter_run(scenario: Scenario) -> Iterator[Scenario]:
    for duration_s in _DURATIONS_S:
        if duration_s < scenario.duration_s:
            yield from _with(scenario, duration_s=float(duration_s))


def _slower_link(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the path with all rates in proportion, the link's the first that is round and below."""
    links = {name: getattr(scenario, name) for name in ("policer_mbps", "second_rate_mbps", "reverse_rate_mbps")}
    for rate_mbps in (5.0, 10.0, 20.0, 50.0, 100.0):
        factor = rate_mbps / scenario.rate_mbps
        if factor >= 1:
            return
        schedule = tuple((at, scaled(rate, factor)) for at, rate in scenario.rate_schedule)
        slower = {name: scaled(rate, factor) for name, rate in links.items() if rate is not None}
        flows = tuple(
            flow
            if flow.app_rate_mbps is None
            else dataclasses.replace(flow, app_rate_mbps=scaled(flow.app_rate_mbps, factor))
            for flow in scenario.flows
        )
        yield from _with(scenario, rate_mbps=rate_mbps, rate_schedule=schedule, flows=flows, **slower)


def _fewer_changes(scenario: Scenario) -> Iterator[Scenario]:
    for schedule in _shorter(scenario.rate_schedule):
        yield from _with(scenario, rate_schedule=schedule)
    for schedule in _shorter(scenario.flows[0].rtt_schedule):
        yield from _with_flows(scenario, rtt_schedule=schedule)


def _plainer_link(scenario: Scenario) -> Iterator[Scenario]:
    for names in _GROUPS:
        if any(getattr(scenario, name) != getattr(_DEFAULTS[0], name) for name in names):
            yield from _with(scenario, **{name: getattr(_DEFAULTS[0], name) for name in names})
    if scenario.buffer_bdp not in (None, 1.0):
        yield from _with(scenario, buffer_bdp=1.0)


def _plainer_flows(scenario: Scenario) -> Iterator[Scenario]:
    for names in _FLOW_GROUPS:
        plain = {name: getattr(_DEFAULTS[1], name) for name in names}
        if any(getattr(flow, name) != value for flow in scenario.flows for name, value in plain.items()):
            yield from _with_flows(scenario, **plain)
    rtts_ms = dict.fromkeys(flow.rtt_ms for flow in scenario.flows)
    if len(rtts_ms) > 1:
        for rtt_ms in rtts_ms:
            yield from _with_flows(scenario, rtt_ms=rtt_ms)


_GROUPS: Final = (
    ("loss", "loss_burst_ms", "loss_burst_packets"),
    ("loss_burst_ms",),
    ("loss_burst_packets",),
    ("reordering", "reordering_ms"),
    ("policer_mbps", "policer_burst_bytes"),
    ("second_rate_mbps", "second_buffer_packets"),
    ("reverse_rate_mbps",),
    ("queue",),
    ("ce_threshold_ms",),
)
_FLOW_GROUPS: Final = (
    ("jitter_ms",),
    ("ack_loss",),
    ("ack_aggregation_ms",),
    ("ecn",),
    ("on_s", "off_s"),
    ("app_rate_mbps", "on_s", "off_s"),
    ("stop_s",),
    ("start_s",),
)
"""Fields that get their defaults together."""


def _shorter(schedule: Sequence[tuple[float, float]]) -> Iterator[tuple[tuple[float, float], ...]]:
    """Yield schedules without some changes: all, halves, quarters, …, single ones (delta debugging)."""
    length = len(schedule)
    chunk = length
    while chunk >= 1:
        for begin in range(0, length, chunk):
            yield (*schedule[:begin], *schedule[begin + chunk :])
        if length // chunk >= 16:  # enough for one round
            return
        chunk //= 2


def _earlier(scenario: Scenario) -> Iterator[Scenario]:
    """Yield paths on which everything that happens is earlier, down to 1 s, and the run ends as much earlier."""
    times = [time_s for time_s, _ in scenario.rate_schedule]
    times += [time_s for flow in scenario.flows for time_s, _ in flow.rtt_schedule]
    if not times:
        return
    for first_s in (1.0, 2.0, 5.0, 10.0):
        by = round(min(times) - first_s, 1)
        if by <= 0:
            return
        for duration_s in (round(scenario.duration_s - by, 1), scenario.duration_s):
            try:
                yield dataclasses.replace(
                    scenario,
                    rate_schedule=_moved(scenario.rate_schedule, by),
                    flows=tuple(
                        dataclasses.replace(flow, rtt_schedule=_moved(flow.rtt_schedule, by)) for flow in scenario.flows
                    ),
                    duration_s=duration_s,
                )
            except ValueError:  # two changes of a trace can be at one time then
                continue


def _moved(schedule: Sequence[tuple[float, float]], by_s: float) -> tuple[tuple[float, float], ...]:
    return tuple((round(at - by_s, 1), level) for at, level in schedule)


def _rounder(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the path with all numbers rounded, then with one of them, to one digit, then to two."""
    for digits in (1, 2):
        yield from _rounded(scenario, digits)


def _rounded(scenario: Scenario, digits: int) -> Iterator[Scenario]:
    link: dict[str, Any] = {name: _round(getattr(scenario, name), digits) for name in _NUMBERS}
    link |= {
        "rate_schedule": _round_schedule(scenario.rate_schedule, digits),
        "duration_s": float(round(scenario.duration_s)),
    }
    of_flows = [{name: _round(getattr(flow, name), digits) for name in _FLOW_NUMBERS} for flow in scenario.flows]
    for changes, flow in zip(of_flows, scenario.flows, strict=True):
        changes["rtt_schedule"] = _round_schedule(flow.rtt_schedule, digits)
    names = ["", *link, *of_flows[0]]
    for name in names:  # the first time all of them
        try:
            flows = tuple(
                dataclasses.replace(flow, **{one: changes[one] for one in changes if name in ("", one)})
                for flow, changes in zip(scenario.flows, of_flows, strict=True)
            )
            some = {one: value for one, value in link.items() if name in ("", one)}
            yield dataclasses.replace(scenario, flows=flows, **some)
        except ValueError:
            continue


def _round(value: Any, digits: int) -> Any:
    return None if value is None else type(value)(figures(value, digits))


def _round_schedule(schedule: Sequence[tuple[float, float]], digits: int) -> tuple[tuple[float, float], ...]:
    return tuple((float(round(at)) if at >= 1 else at, figures(level, digits)) for at, level in schedule)


_STEPS: Final = (
    _fewer_flows,
    _slower_link,
    _fewer_changes,
    _shorter_run,
    _plainer_link,
    _plainer_flows,
    _earlier,
    _shorter_run,
    _rounder,
)
"""The ways to make a path smaller, in their order: those first that also make runs cheaper."""
