"""What counts as broken: eight properties, each with a unit, a limit and a source."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bbrgym.benchmark.breaking.space import OURS, Space
from bbrgym.benchmark.run_facts import Facts
from bbrgym.checks import check_name, check_number
from bbrgym.envs.scenario import Scenario

ALONE: Final = "cubic alone"
"""The run of a CUBIC flow on the path without the candidate's flows."""

CHEAP: Final = ("bbr", "cubic", "constant")
"""The yardsticks that a search runs. All of them run for what is printed."""


@dataclass(frozen=True)
class Verdict:
    """How a property came out in a run.

    Attributes:
        value: in the property's unit; NaN if the run cannot show it.
        is_broken: whether it is above the limit, and the path allows better.
        best: the yardstick that does best.
        best_value: of this one, in the same unit; NaN without one.
        severity: for a search: 1 at the limit, below 1 if the path allows no better.
    """

    value: float
    is_broken: bool
    best: str = ""
    best_value: float = math.nan
    severity: float = 0.0


@dataclass(frozen=True)
class Property:
    """One way to be broken.

    Attributes:
        name: on the command line.
        unit: of its value. More is worse.
        limit: above it a run is broken, by default.
        least_s: a run that shows it is at least so long: shorter ones show how flows start.
        definition: what is measured.
        source: where the limit comes from.
        others: what must run beside the candidate to judge it.
        applies: whether a run of this scenario can show it.
        value: of a run.
        bound: the largest value that the others' runs could make of the candidate's run; None for `value`.
    """

    name: str
    unit: str
    limit: float
    least_s: float
    definition: str
    source: str
    others: tuple[str, ...]
    applies: Callable[[Scenario], bool]
    value: Callable[[Scenario, Facts, Mapping[str, Facts]], float]
    bound: Callable[[Scenario, Facts], float] | None = None

    def suspicion(self, scenario: Scenario, own: Facts) -> float:
        """Return the largest value that the property can have, known from the candidate's run alone; 0 if none."""
        if not self.applies(scenario):
            return 0.0
        if "error" in own:
            return 1.0 if self.name == "crash" else 0.0
        found = self.value(scenario, own, {}) if self.bound is None else self.bound(scenario, own)
        return 0.0 if math.isnan(found) else found

    def judge(self, scenario: Scenario, own: Facts, others: Mapping[str, Facts], limit: float) -> Verdict:
        """Judge a run beside those of yardsticks in its place.

        A path is no counterexample if no yardstick does better on it: one of them must be within the limit.
        """
        if not self.applies(scenario) or ("error" in own) != (self.name == "crash"):
            return Verdict(math.nan, is_broken=False)
        if self.name == "crash":
            return Verdict(1.0, is_broken=True, severity=2.0)
        sound = {name: facts for name, facts in others.items() if "error" not in facts}
        value = self.value(scenario, own, sound)
        if math.isnan(value):
            return Verdict(value, is_broken=False)
        severity = value / limit if limit else value
        if self.name == "regret":
            best = max(sound, key=lambda name: sound[name]["fair_power"])
            return Verdict(value, value > limit, best, 0.0, severity)
        if self.name in ("bloated", "harmful"):  # which compare with CUBIC themselves
            best_value = sound["cubic"]["queue_bdp"] if self.name == "bloated" else 0.0
            return Verdict(value, value > limit, "cubic", best_value, severity)
        of_others = {name: self.value(scenario, facts, {}) for name, facts in sound.items() if name != ALONE}
        if not of_others:
            return Verdict(value, is_broken=False)
        best = min(of_others, key=lambda name: of_others[name])
        is_possible = of_others[best] <= limit
        is_broken = value > limit and is_possible
        return Verdict(value, is_broken, best, of_others[best], severity if is_possible else min(severity, 0.9))


def _always(_: Scenario) -> bool:
    return True


def _has_one_kind(scenario: Scenario) -> bool:
    return len(scenario.agent_flows) == len(scenario.flows)


def _alike(scenario: Scenario) -> list[int]:
    """Return the largest group of the candidate's flows that differ in nothing but their start."""
    groups: dict[object, list[int]] = {}
    for index in scenario.agent_flows:
        flow = scenario.flows[index]
        if flow.is_absent:
            continue
        traits = (
            flow.rtt_ms,
            flow.stop_s,
            flow.jitter_ms,
            flow.ecn,
            flow.rtt_schedule,
            flow.ack_loss,
            flow.path,
            flow.ack_aggregation_ms,
            flow.app_rate_mbps,
            flow.on_s,
            flow.off_s,
        )
        groups.setdefault(traits, []).append(index)
    return max(groups.values(), key=len, default=[])


def _are_alike(scenario: Scenario) -> bool:
    return len(_alike(scenario)) > 1


def _is_beside_cubic(scenario: Scenario) -> bool:
    return [flow.algorithm for flow in scenario.flows] == [OURS, "cubic"]


def _regret(scenario: Scenario, own: Facts, others: Mapping[str, Facts]) -> float:
    most = max((float(facts["fair_power"]) for facts in others.values()), default=math.nan)
    return most - float(own["fair_power"])


def _worst(column: str) -> Callable[[Scenario, Facts, Mapping[str, Facts]], float]:
    def value(scenario: Scenario, own: Facts, _: Mapping[str, Facts]) -> float:
        return max(float(own[column][index]) for index in scenario.agent_flows)

    return value


def _bloat(scenario: Scenario, own: Facts, others: Mapping[str, Facts]) -> float:
    if "cubic" not in others:
        return math.nan
    queue = float(own["queue_bdp"])
    return queue if queue > 2 * float(others["cubic"]["queue_bdp"]) else 0.0


def _unfairness(scenario: Scenario, own: Facts, _: Mapping[str, Facts]) -> float:
    rates = [float(own["throughputs_mbps"][index]) for index in _alike(scenario)]
    return max(rates) / max(min(rates), 1e-3) if max(rates) > 0 else math.nan


def _harm(scenario: Scenario, own: Facts, others: Mapping[str, Facts]) -> float:
    if "cubic" not in others or ALONE not in others:
        return math.nan
    alone = float(others[ALONE]["throughputs_mbps"][0])
    beside = float(others["cubic"]["throughputs_mbps"][1])
    return (beside - float(own["throughputs_mbps"][1])) / alone if alone > 0 else math.nan


def _harm_at_most(scenario: Scenario, own: Facts) -> float:
    """Return the harm to a flow that has the link to itself without ours, at its highest rate."""
    return 1.0 - float(own["throughputs_mbps"][1]) / scenario.fastest_mbps


PROPERTIES: Final = {
    one.name: one
    for one in (
        Property(
            name="regret",
            unit="fair power",
            limit=0.3,
            least_s=10.0,
            definition="fair power (Jain's index x utilisation / (1 + delay)) of the best yardstick less its own",
            source="the regret of a score (docs/score.md); 0.3 is about a third of what the best yardstick reaches",
            others=CHEAP,
            applies=_has_one_kind,
            value=_regret,
            bound=lambda scenario, own: 1.0 - float(own["fair_power"]),
        ),
        Property(
            name="starved",
            unit="s",
            limit=10.0,
            least_s=12.0,
            definition="longest time in which a flow receives less than a tenth of its fair share",
            source="Arun et al., Starvation in End-to-End Congestion Control (SIGCOMM 2022): a ratio without bound",
            others=CHEAP,
            applies=_always,
            value=_worst("starved_s"),
        ),
        Property(
            name="stalled",
            unit="s",
            limit=3.0,
            least_s=5.0,
            definition="longest time in which a flow delivers nothing while its link could",
            source="CC-Fuzz (HotNets 2022), BBR stalls; 3 s are two probe timeouts in a row (RFC 9002, RFC 6298)",
            others=CHEAP,
            applies=_always,
            value=_worst("stalled_s"),
        ),
        Property(
            name="bloated",
            unit="BDP",
            limit=3.0,
            least_s=10.0,
            definition="mean queue, if it is more than twice CUBIC's on the same path",
            source="Gettys and Nichols, Bufferbloat (2011); BBR's own bound is a window of two BDPs, a queue of one",
            others=("cubic",),
            applies=_has_one_kind,
            value=_bloat,
            bound=lambda scenario, own: float(own["queue_bdp"]),
        ),
        Property(
            name="unfair",
            unit=": 1",
            limit=10.0,
            least_s=20.0,
            definition="largest over smallest throughput of flows of its own that differ in nothing but their start",
            source="RFC 9743, section 5.1.3; ten is far beyond what chance makes of equal flows",
            others=CHEAP,
            applies=_are_alike,
            value=_unfairness,
        ),
        Property(
            name="harmful",
            unit="of what CUBIC has alone",
            limit=0.25,
            least_s=20.0,
            definition="what a CUBIC flow loses beside it, less what it loses beside another CUBIC flow",
            source="Ware et al., Beyond Jain's Fairness Index (HotNets 2019): no more harm than the status quo does",
            others=("cubic", ALONE),
            applies=_is_beside_cubic,
            value=_harm,
            bound=_harm_at_most,
        ),
        Property(
            name="unstable",
            unit=": 1",
            limit=4.0,
            least_s=10.0,
            definition="how far the rate of two RTTs both rises and falls within 20 RTTs: the median over the run",
            source="Low et al., Dynamics of TCP/RED (INFOCOM 2002): cycles of some RTTs; halving twice is 4 : 1",
            others=CHEAP,
            applies=_always,
            value=_worst("swings"),
        ),
        Property(
            name="crash",
            unit="fault",
            limit=0.0,
            least_s=0.5,
            definition="a fault, a decision that is no number, or too much time or memory",
            source="docs/score.md, the sandbox",
            others=(),
            applies=_always,
            value=lambda scenario, own, others: 0.0,
        ),
    )
}
"""The properties by name."""


def read_limits(given: Sequence[str]) -> dict[str, float]:
    """Return the limits of `--at-most regret=0.3`.

    Raises:
        ValueError: there is no such property, or the limit is no number >= 0.
    """
    found: dict[str, float] = {}
    for setting in given:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"give --at-most as PROPERTY=NUMBER, as regret=0.3, got {setting!r}")
        check_name("property", name, PROPERTIES)
        try:
            found[name] = float(text)
        except ValueError:
            raise ValueError(f"--at-most {name} must be a number, got {text!r}") from None
        check_number(f"--at-most {name}", found[name], at_least=0)
    return found


def check_can_show(names: Sequence[str], space: Space) -> None:
    """Check that a box has paths on which a property can be seen.

    Raises:
        ValueError: it has none.
    """
    kinds = set(space.kinds)
    most_flows = space.ranges["flows"][1]
    is_alone = space.ranges["flows"][0] < 2
    needs = {
        "unfair": (
            "alike" in kinds or (not is_alone and most_flows >= 2),
            "several flows: the kind alike, and space.flows of 2 or more",
        ),
        "harmful": (
            "rival" in kinds and "cubic" in space.choices["rivals"],
            "the kind rival, and cubic in space.rivals",
        ),
        "bloated": (
            space.ranges["buffer_bdp"][1] > 1 or bool({"second", "rate", "outage", "rate_trace"} & kinds),
            "a space.buffer_bdp above 1",
        ),
        "starved": (space.ranges["duration_s"][1] > PROPERTIES["starved"].limit, "a space.duration_s above 10"),
        "stalled": (space.ranges["duration_s"][1] > PROPERTIES["stalled"].limit, "a space.duration_s above 3"),
    }
    for name in names:
        can_show, need = needs.get(name, (True, ""))
        if not can_show:
            raise ValueError(f"no path of this box can show {name}: it needs {need}")
