"""The box of paths: what can be drawn, and how numbers in [0, 1] become a scenario."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from bbrgym.baselines import registry
from bbrgym.benchmark.run_facts import check_measurable
from bbrgym.benchmark.traces import mean_of
from bbrgym.checks import check_keys, check_name, is_number
from bbrgym.envs.mahimahi import LOWEST_RATE_MBPS
from bbrgym.envs.scenario import HEADER_BYTES, Scenario

DEFAULT: Final = Path(__file__).parent / "paths.yaml"
"""The box, with a comment for each field."""

OURS: Final = "agent"
"""The algorithm of the flows that the candidate drives."""

_CHOICES: Final = ("kinds", "rate_traces", "rtt_traces", "queues", "ecn", "rivals")
_WHOLE: Final = ("packet_bytes", "changes", "flows", "second_buffer_packets", "least_buffer_packets", "most_packets")
_NAMED: Final = {"rate_trace": "rate_traces", "rtt_trace": "rtt_traces", "aqm": "queues"}
"""Kinds that choose a name which only a path of the kind can check."""
_EXCLUSIVE: Final = (
    {"loss", "bursts", "burst_packets"},
    {"rate", "outage", "rate_trace"},
    {"rtt", "rtt_trace"},
    {"aqm", "ecn"},
    {"crowd", "alike", "rival"},
)
"""Kinds that one path cannot have together."""
_LOG_FROM: Final = 8.0
"""A range whose ends differ by this factor is drawn uniformly in the logarithm."""
_AT_ONCE: Final = 0.3
"""In so many of the paths with several flows these start as early as they can, all at once."""
_LEAST_BURST_BYTES: Final = 5000
"""Of a policer, which also lets a full packet through."""
_ACK_SHARE: Final = HEADER_BYTES / (1000 + HEADER_BYTES)
"""What the ACKs of a link's packets need of its rate."""


@dataclass(frozen=True)
class Genome:
    """A path before it is one.

    Attributes:
        kinds: what it has, the first one of which names it in an archive.
        numbers: in [0, 1], by name. What is missing is drawn.
    """

    kinds: tuple[str, ...]
    numbers: Mapping[str, float]


@dataclass(frozen=True)
class Space:
    """A box of paths.

    Attributes:
        ranges: {field: (least, most)}.
        choices: {field: names}.
    """

    ranges: Mapping[str, tuple[float, float]]
    choices: Mapping[str, tuple[str, ...]]

    @classmethod
    def read(cls, path: Path | None = None, changes: Mapping[str, Any] | None = None) -> Space:
        """Read a box.

        Args:
            path: a file with some of the fields of `DEFAULT`.
            changes: fields that have precedence.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a field is unknown, or its value is no range, no names, or makes no path.
        """
        plain = _load(DEFAULT)
        for where, given in (
            ("" if path is None else str(path), {} if path is None else _load(path)),
            ("space", changes or {}),
        ):
            check_keys(where or "space", given, plain)
            plain = {**plain, **given}
        choices = {name: _names(name, plain[name]) for name in _CHOICES}
        ranges = {name: _range(name, value) for name, value in plain.items() if name not in _CHOICES}
        space = cls(ranges, choices)
        space._check(_load(DEFAULT)["kinds"])
        return space

    def _check(self, known: Sequence[str]) -> None:
        for kind in self.choices["kinds"]:
            check_name("kind of path", kind, known, of="space.kinds")
        for rival in self.choices["rivals"]:
            check_name("algorithm", rival, registry.controllers(), of="space.rivals")
        for ecn in self.choices["ecn"]:
            check_name("ECN", ecn, ("none", "classic", "l4s"), of="space.ecn")
        if not self.kinds:
            raise ValueError(
                f"the box is empty: {', '.join(self.choices['kinds'])} needs two flows, and space.flows is at most "
                f"{self.ranges['flows'][1]:g}"
            )
        for kind in self.kinds:
            for numbers in (_Numbers(0.0), _Numbers(1.0), *self._of_each_name(kind)):
                try:
                    check_measurable(self._made(kind, numbers)[1])
                except ValueError as error:
                    raise ValueError(f"space: no path of the kind {kind}: {error}") from None

    def _of_each_name(self, kind: str) -> list[_Numbers]:
        """Return numbers that choose each of the names of a kind, in a run as long as it can be."""
        field = _NAMED.get(kind)
        if field is None:
            return []
        count = len(self.choices[field])
        longest = {"duration_s": 1.0, "packet_bytes": 1.0}
        return [_Numbers(0.0, {**longest, field: (place + 0.5) / count}) for place in range(count)]

    def _made(self, kind: str, numbers: _Numbers) -> tuple[Genome, Scenario]:
        return self.scenario(Genome(self.alone(kind), numbers), np.random.default_rng(0))

    def least(self, kind: str) -> tuple[Genome, Scenario]:
        """Return the path of a kind with the least of all numbers, which can be: `read` has checked it."""
        return self._made(kind, _Numbers(0.0))

    @property
    def kinds(self) -> list[str]:
        """The kinds of path that can be drawn."""
        most = self.ranges["flows"][1]
        least = self.ranges["flows"][0]
        needs = {"crowd": 2, "alike": 2}
        found = [kind for kind in self.choices["kinds"] if most >= needs.get(kind, 1)]
        if least >= 2:  # then every path has several flows
            found = [kind for kind in found if kind not in ("rival", "link")]
        return found

    def alone(self, kind: str) -> tuple[str, ...]:
        """Return a kind with what a path of the box has beside it in any case: other flows, if all paths have some."""
        return tuple(self._with_flows([kind], "alike"))

    def _with_flows(self, kinds: list[str], usual: str) -> list[str]:
        """Return kinds of a path with `usual` among them, if all paths have several flows and this one has not."""
        has_one = self.ranges["flows"][0] >= 2 and not {"crowd", "alike"} & set(kinds)
        return [*kinds, usual] if has_one else kinds

    def draw(self, kind: str, rng: np.random.Generator) -> Genome:
        """Draw what a path of a kind has beside it; its numbers are drawn by `scenario`."""
        kinds = [kind]
        if self.ranges["flows"][0] >= 2 and kind not in ("crowd", "alike"):
            kinds.append("alike" if rng.random() < 0.5 else "crowd")
        elif rng.random() < 0.4:
            kinds.append(self.kinds[rng.integers(len(self.kinds))])
        return Genome(tuple(compatible(kinds)), {})

    def mutate(self, genome: Genome, rng: np.random.Generator) -> Genome:
        """Return a path that is like another one: some numbers are moved or drawn anew, or a kind comes or goes."""
        kinds = list(genome.kinds)
        several = next((kind for kind in kinds if kind in ("crowd", "alike")), "alike")
        chance = rng.random()
        if chance < 0.15 and len(kinds) > 1:
            kinds.pop()
        elif chance < 0.35 and len(kinds) < 3:
            kinds.append(self.kinds[rng.integers(len(self.kinds))])
        numbers = {}
        for name, value in genome.numbers.items():
            chance = rng.random()
            if chance < 0.1:
                continue  # is drawn anew
            numbers[name] = float(np.clip(value + 0.15 * rng.standard_normal(), 0, 1)) if chance < 0.6 else value
        return Genome(tuple(self._with_flows(compatible(kinds), several)), numbers)

    def scenario(self, genome: Genome, rng: np.random.Generator) -> tuple[Genome, Scenario]:
        """Return the scenario of a genome, and the genome with exactly the numbers that it needs.

        Values have three significant digits, and times in s one decimal. Flows of the candidate have the algorithm
        `OURS`.
        """
        used: dict[str, float] = {}

        def number(name: str) -> float:
            if name not in used:
                given = genome.numbers.get(name)
                used[name] = float(rng.random()) if given is None else given
            return used[name]

        def value(field: str, gene: str = "") -> float:
            return self._value(field, number(gene or field))

        def choice(field: str) -> str:
            names = self.choices[field]
            return names[min(int(number(field) * len(names)), len(names) - 1)]

        scenario = _Path(self, genome.kinds, value, choice, number).scenario()
        return Genome(genome.kinds, used), scenario

    def _value(self, field: str, place: float) -> float:
        low, high = self.ranges[field]
        if field in _WHOLE:
            return float(min(int(low) + int(place * (int(high) - int(low) + 1)), int(high)))
        if low > 0 and high / low >= _LOG_FROM:
            found = math.exp(math.log(low) + place * (math.log(high) - math.log(low)))
        else:
            found = low + place * (high - low)
        return min(max(round(found, 1) if field.endswith("_s") else figures(found), low), high)


def compatible(kinds: Sequence[str]) -> list[str]:
    """Return kinds that one path can have together, the earlier ones first."""
    found: list[str] = []
    for kind in dict.fromkeys(kinds):
        if kind == "link" and len(kinds) > 1:
            continue
        if not any({kind, other} <= group for other in found for group in _EXCLUSIVE):
            found.append(kind)
    return found or ["link"]


def figures(value: float, digits: int = 3) -> float:
    """Return a number with so many significant digits."""
    return float(f"{value:.{digits}g}")


class _Numbers(dict[str, float]):
    """The numbers of a genome, all of them the same but for those that are given."""

    def __init__(self, value: float, given: Mapping[str, float] | None = None) -> None:
        super().__init__(given or {})
        self._value = value

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, self._value)


@dataclass
class _Path:
    """Makes a scenario of numbers that it asks for by name."""

    space: Space
    kinds: Sequence[str]
    value: Callable[..., float]
    choice: Callable[[str], str]
    number: Callable[[str], float]

    def scenario(self) -> Scenario:
        rate_mbps, rtt_ms = self.value("rate_mbps"), self.value("rtt_ms")
        duration_s = self._duration_s(rate_mbps)
        link: dict[str, Any] = {
            "rate_mbps": rate_mbps,
            "buffer_bdp": self.value("buffer_bdp"),
            "duration_s": duration_s,
            "packet_bytes": int(self.value("packet_bytes")),
        }
        flow: dict[str, Any] = {"algorithm": OURS, "rtt_ms": rtt_ms}
        for kind in self.kinds:
            if kind == "loss":
                link["loss"] = self.value("loss")
            elif kind in ("bursts", "burst_packets"):
                field = "loss_burst_ms" if kind == "bursts" else "loss_burst_packets"
                link |= {"loss": self.value("burst_loss"), field: self.value(field)}
            elif kind == "jitter":
                flow["jitter_ms"] = self.value("jitter_ms")
            elif kind == "aggregation":
                flow["ack_aggregation_ms"] = self.value("ack_aggregation_ms")
            elif kind == "ack_loss":
                flow["ack_loss"] = self.value("ack_loss")
            elif kind == "reordering":
                link |= {"reordering": self.value("reordering"), "reordering_ms": self.value("reordering_ms")}
            elif kind == "rate":
                most_mbps = max(self.space.ranges["rate_mbps"][1], rate_mbps)
                link["rate_schedule"] = self._changes("rate", rate_mbps, duration_s, (LOWEST_RATE_MBPS, most_mbps))
            elif kind == "rtt":
                flow["rtt_schedule"] = self._changes("rtt", rtt_ms, duration_s, (0.1, 1000.0))
            elif kind == "outage":
                begin_s = min(self.value("change_s"), round(duration_s / 2, 1))
                outage_s = self.value("outage_s")
                end_s = round(begin_s + outage_s, 1)
                end_s = end_s if end_s > begin_s else begin_s + outage_s
                link["rate_schedule"] = [[begin_s, min(self.value("outage_mbps"), rate_mbps)], [end_s, rate_mbps]]
            elif kind in ("rate_trace", "rtt_trace"):
                target = link if kind == "rate_trace" else flow
                target[kind] = self._trace(kind)
            elif kind == "aqm":
                link["queue"] = self.choice("queues")
                flow["ecn"] = None if (ecn := self.choice("ecn")) == "none" else ecn
            elif kind == "ecn":
                link["ce_threshold_ms"] = self.value("ce_threshold_ms")
                flow["ecn"] = "classic"
            elif kind == "policer":
                policer_mbps = max(figures(rate_mbps * self.value("policer_share")), LOWEST_RATE_MBPS)
                burst = figures(policer_mbps * 125 * self.value("policer_burst_ms"))
                least = max(_LEAST_BURST_BYTES, link["packet_bytes"] + HEADER_BYTES)
                link |= {"policer_mbps": policer_mbps, "policer_burst_bytes": round(max(burst, least))}
            elif kind == "reverse":
                share = self.value("reverse_share")
                link["reverse_rate_mbps"] = max(figures(rate_mbps * _ACK_SHARE * share), LOWEST_RATE_MBPS)
            elif kind == "second":
                link["second_rate_mbps"] = max(figures(rate_mbps * self.value("second_share")), LOWEST_RATE_MBPS)
                link["second_buffer_packets"] = int(self.value("second_buffer_packets"))
            elif kind == "application":
                flow["app_rate_mbps"] = max(figures(rate_mbps * self.value("app_share")), LOWEST_RATE_MBPS)
                if self.number("is_on_off") < 0.6:
                    flow |= {"on_s": self.value("on_s"), "off_s": self.value("off_s")}
        scenario = Scenario.from_dict({**link, "flows": self._flows(flow, duration_s)})
        if "rate_trace" in link:
            scenario = _with_mean_rate(scenario, is_scaled="synthetic" in link["rate_trace"])
        least = int(self.space.ranges["least_buffer_packets"][0])
        if scenario.queue_packets >= least:
            return scenario
        return dataclasses.replace(scenario, buffer_bdp=None, buffer_packets=least)

    def _duration_s(self, rate_mbps: float) -> float:
        """Return how long the run is: on a fast link not so long, since every packet costs processor time."""
        packets_per_s = rate_mbps * 1e6 / 8 / self.value("packet_bytes")
        most_s = round(self.space.ranges["most_packets"][1] / packets_per_s, 1)
        return max(min(self.value("duration_s"), most_s), self.space.ranges["duration_s"][0])

    def _changes(self, what: str, first: float, duration_s: float, bounds: tuple[float, float]) -> list[list[float]]:
        """Return changes at rising times within bounds, the last one at two thirds of the run at the latest."""
        places = range(int(self.value("changes", f"{what}.changes")))
        latest_s = round(duration_s * 2 / 3, 1)
        times = sorted({min(self.value("change_s", f"{what}.{place}.time"), latest_s) for place in places})
        factors = [self.value(f"{what}_factor", f"{what}.{place}.factor") for place, _ in enumerate(times)]
        low, high = bounds
        levels = [min(max(figures(first * factor), low), high) for factor in factors]
        return [[time, level] for time, level in zip(times, levels, strict=True)]

    def _trace(self, kind: str) -> dict[str, Any]:
        name = self.choice(f"{kind}s")
        if name in ("cellular", "redrawn", "leo"):
            bins = {"bin_ms": 500} if name == "cellular" else {}
            return {"synthetic": name, "seed": int(1000 * self.number(f"{kind}.seed")), **bins}
        return {"file": name}

    def _flows(self, flow: dict[str, Any], duration_s: float) -> list[dict[str, Any]]:
        if "rival" in self.kinds:
            rival = {name: value for name, value in flow.items() if not name.startswith(("app_", "on_", "off_"))}
            return [flow, {**rival, "algorithm": self.choice("rivals")}]
        if not {"crowd", "alike"} & set(self.kinds):
            return [flow]
        flows = [flow]
        latest_s = round(duration_s / 4, 1)
        if self.number("at_once") < _AT_ONCE:
            latest_s = min(latest_s, self.space.ranges["start_s"][0])
        for place in range(1, max(2, int(self.value("flows")))):
            more = {**flow, "start_s": min(self.value("start_s", f"flow{place}.start"), latest_s)}
            if "crowd" in self.kinds:
                if "rtt_schedule" not in flow and "rtt_trace" not in flow:
                    more["rtt_ms"] = self.value("rtt_ms", f"flow{place}.rtt")
                if self.number(f"flow{place}.leaves") < 0.25:
                    stop_s = self.value("stop_s", f"flow{place}.stop")
                    more["stop_s"] = self._stop_s(stop_s, more["start_s"], duration_s)
            flows.append(more)
        return flows

    def _stop_s(self, drawn_s: float, start_s: float, duration_s: float) -> float | None:
        """Return when a flow stops: if not after its start, then as late as it can; None if that is not later, too."""
        latest_s = round(duration_s * 3 / 4, 1)
        found_s = min(drawn_s, latest_s)
        if found_s <= start_s:
            found_s = min(self.space.ranges["stop_s"][1], latest_s)
        return found_s if found_s > start_s else None


def _with_mean_rate(scenario: Scenario, is_scaled: bool) -> Scenario:
    """Return a path whose rate, by which its buffer is sized, is the mean of its trace.

    Args:
        scenario: the path.
        is_scaled: whether the trace takes the path's rate, or the path that of the trace.
    """
    mean_mbps = mean_of(scenario, "rate_trace")
    if not is_scaled:
        return dataclasses.replace(scenario, rate_mbps=figures(mean_mbps))
    factor = scenario.rate_mbps / mean_mbps
    return dataclasses.replace(
        scenario, rate_schedule=tuple((time, scaled(rate, factor)) for time, rate in scenario.rate_schedule)
    )


def scaled(rate_mbps: float, factor: float) -> float:
    """Return a rate times a factor, in three digits, as far as a link can have it."""
    return min(max(figures(rate_mbps * factor), LOWEST_RATE_MBPS), 10_000.0)


def _load(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file '{path}'")
    try:
        plain = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(plain, dict) or not plain:
        raise ValueError(f"{path} must be a mapping of fields of the box, as {DEFAULT.name} is, got {plain!r}")
    return plain


def _range(name: str, given: Any) -> tuple[float, float]:
    pair = given if isinstance(given, list) else [given, given]
    if len(pair) != 2 or not all(map(is_number, pair)) or not 0 <= pair[0] <= pair[1]:
        raise ValueError(f"space.{name} must be a number or [least, most], both >= 0, got {given!r}")
    if name in _WHOLE and any(number != int(number) or number < 1 for number in pair):
        raise ValueError(f"space.{name} must have whole numbers >= 1, got {given!r}")
    return float(pair[0]), float(pair[1])


def _names(name: str, given: Any) -> tuple[str, ...]:
    names = given if isinstance(given, list) else [given]
    if not names or not all(isinstance(one, str) for one in names):
        raise ValueError(f"the box is empty: space.{name} must be a list of names, got {given!r}")
    return tuple(dict.fromkeys(names))
