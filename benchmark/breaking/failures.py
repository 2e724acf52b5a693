"""From what a search has found to what is printed: different failures, shrunk, beside all yardsticks."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bbrgym.baselines import registry
from bbrgym.benchmark.breaking.find import Entry, Found
from bbrgym.benchmark.breaking.judging import Judge, Trial
from bbrgym.benchmark.breaking.properties import ALONE, PROPERTIES, Verdict
from bbrgym.benchmark.breaking.shrink import NEEDED, SEEDS, seeds_of, shrink, size
from bbrgym.benchmark.breaking.space import OURS
from bbrgym.benchmark.breaking.words import best_of, failure_in_words, kind_of, path_in_words
from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.plan import Competitor
from bbrgym.benchmark.run_facts import Facts, check_measurable, facts_of, run
from bbrgym.benchmark.score import yardsticks
from bbrgym.checks import check_keys, check_name
from bbrgym.envs.engine import EngineError, check_algorithms, describe_engine
from bbrgym.envs.scenario import DRIVER, Scenario

MOST: Final = 8
"""How many failures are shrunk and printed, by default."""


@dataclass(frozen=True)
class Repetition:
    """What came of a failure in another engine.

    Attributes:
        stays: whether the property is broken there, too.
        text: what happened, in words.
    """

    stays: bool
    text: str


@dataclass(frozen=True)
class Failure:
    """A path on which a candidate is broken.

    Attributes:
        name: of the property.
        trial: the path, and the first seed with which the property is broken.
        verdict: beside all yardsticks.
        own: the facts of the candidate's run.
        others: those of the yardsticks in its place.
        before: the path as it was found.
        repeats: with how many seeds it is broken.
        seeds: how many were tried.
        elsewhere: {engine: what came of it there}.
    """

    name: str
    trial: Trial
    verdict: Verdict
    own: Facts
    others: Mapping[str, Facts]
    before: Scenario
    repeats: int
    seeds: int = SEEDS
    elsewhere: Mapping[str, Repetition] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """What the path has."""
        return kind_of(self.trial.scenario)

    @property
    def path(self) -> str:
        """The path in words."""
        return path_in_words(self.trial.scenario)

    @property
    def outcome(self) -> str:
        """What happens, in words."""
        best = best_of(self.verdict, self.others)
        return failure_in_words(self.name, self.verdict, self.own, best)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, for JSON."""
        return {
            "property": self.name,
            "value": self.verdict.value,
            "unit": PROPERTIES[self.name].unit,
            "best": self.verdict.best,
            "best_value": self.verdict.best_value,
            "kind": self.kind,
            "path": self.path,
            "outcome": self.outcome,
            "scenario": plain_path(self.trial.scenario),
            "seed": self.trial.seed,
            "repeats": f"{self.repeats} of {self.seeds}",
            "size": size(self.trial.scenario),
            "size_before": size(self.before),
            "elsewhere": {engine: repetition.text for engine, repetition in self.elsewhere.items()},
            "measured": dict(self.own),
        }


def settle(
    judge: Judge,
    found: Found,
    *,
    most: int = MOST,
    shrinks: bool = True,
    is_over: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Failure]:
    """Return different failures, the worst first.

    Of each property the worst comes first, then those of other kinds of path. They are shrunk, and two that become the
    same kind with the same property count once. What holds with fewer than `NEEDED` seeds is left out.
    """
    kept: dict[tuple[str, str], Failure] = {}
    for name, entry in _different(found.failures, most):
        first = entry.trial
        smaller = first
        if shrinks and not is_over():
            tell(f"shrinking: {path_in_words(first.scenario)}")
            smaller = dataclasses.replace(first, scenario=shrunk(judge, name, first, is_over))
        looked = (look(judge, name, one, first.scenario) for one in dict.fromkeys((smaller, first)))
        failure = next((one for one in looked if one is not None and one.repeats >= NEEDED), None)
        if failure is None:
            continue
        key = name, failure.kind
        if key not in kept or failure.verdict.severity > kept[key].verdict.severity:
            kept[key] = failure
    return sorted(kept.values(), key=lambda one: -one.verdict.severity)


def shrunk(judge: Judge, name: str, trial: Trial, is_over: Callable[[], bool] = lambda: False) -> Scenario:
    """Return a smaller path on which at least half of what is above the limit stays."""
    limit = judge.limits[name]
    of_seeds = judge.only(name).judge([Trial(trial.scenario, seed) for seed in seeds_of(trial.seed)])
    median = statistics.median(verdicts[name].value if verdicts[name].is_broken else limit for verdicts in of_seeds)
    return shrink(judge.only(name, limit + (median - limit) / 2), name, trial, is_over)


def look(judge: Judge, name: str, trial: Trial, before: Scenario | None = None) -> Failure | None:
    """Return the failure that a path shows beside all yardsticks; None if it shows none with any of its seeds."""
    alone = judge.only(name)
    trials = [Trial(trial.scenario, seed) for seed in seeds_of(trial.seed)]
    broken = [one for one, verdicts in zip(trials, alone.judge(trials), strict=True) if verdicts[name].is_broken]
    if not broken:
        return None
    return _beside_all(alone, name, broken[0], before or trial.scenario, len(broken))


def _beside_all(judge: Judge, name: str, trial: Trial, before: Scenario, repeats: int) -> Failure:
    (own,) = judge.own([trial])
    others: dict[str, Facts] = {}
    if PROPERTIES[name].others:
        (others,) = judge.others([trial], _everyone([name]))
    verdict = PROPERTIES[name].judge(trial.scenario, own, others, judge.limits[name])
    return Failure(name, trial, verdict, own, others, before, repeats)


def _everyone(names: Sequence[str]) -> list[Competitor | str]:
    """Return all yardsticks, and `ALONE` if one of the properties needs it."""
    return [*yardsticks(), *([ALONE] if any(ALONE in PROPERTIES[name].others for name in names) else [])]


def _different(failures: Sequence[tuple[str, Entry]], most: int) -> list[tuple[str, Entry]]:
    """Return the worst of each property, then the second of each, and so on."""
    places: dict[str, int] = {}
    ranked = []
    for name, entry in failures:
        places[name] = places.get(name, -1) + 1
        ranked.append((places[name], name, entry))
    return [(name, entry) for _, name, entry in sorted(ranked, key=lambda one: one[0])[:most]]


def replay(failure: Failure, candidate: Candidate, judge: Judge, engine: str) -> Failure:
    """Return the failure with what comes of it in another engine: the candidate there, the yardsticks' runs of here.

    In ns-3 the yardsticks that a search runs are run there, too. In real time the candidate runs alone.
    """
    name, trial = failure.name, failure.trial
    scenario = trial.driven_by(candidate.competitor)
    others = dict(failure.others)
    try:
        check_algorithms(scenario, describe_engine(engine))
        own = facts_of(run(scenario, trial.seed, engine))
        if not describe_engine(engine).is_real_time:
            others = {
                one.name: facts_of(run(trial.driven_by(one), trial.seed, engine))
                for one in yardsticks()
                if one.name in PROPERTIES[name].others
            }
            if ALONE in PROPERTIES[name].others:
                others[ALONE] = facts_of(run(trial.driven_by(ALONE), trial.seed, engine))
    except (EngineError, ValueError) as error:
        repetition = Repetition(stays=False, text=f"cannot run there: {error}")
    else:
        verdict = PROPERTIES[name].judge(trial.scenario, own, others, judge.limits[name])
        outcome = failure_in_words(name, verdict, own, best_of(verdict, others))
        words = "stays" if verdict.is_broken else "not repeated"
        repetition = Repetition(verdict.is_broken, f"{words}: {outcome}")
    return dataclasses.replace(failure, elsewhere={**failure.elsewhere, engine: repetition})


def run_for_real(candidate: Candidate, judge: Judge, trials: Sequence[Trial]) -> list[Failure]:
    """Return the failures of a candidate on paths in real time, once each, beside yardsticks of the engine native."""
    found = []
    for trial in trials:
        own = facts_of(run(trial.driven_by(candidate.competitor), trial.seed, "linux"))
        applying = [name for name in judge.limits if PROPERTIES[name].applies(trial.scenario)]
        (others,) = judge.others([trial], _everyone(applying))
        for name in applying:
            verdict = PROPERTIES[name].judge(trial.scenario, own, others, judge.limits[name])
            if verdict.is_broken:
                found.append(Failure(name, trial, verdict, own, others, trial.scenario, repeats=1, seeds=1))
    return found


def plain_path(scenario: Scenario) -> dict[str, Any]:
    """Return the fields of a path that differ from the default, of which `read_path` makes it again."""
    default = Scenario().to_dict()
    of_flow = default.pop("flows")[0]
    plain = scenario.to_dict()
    flows = [
        {
            key: value
            for key, value in flow.items()
            if (key not in DRIVER and value != of_flow.get(key)) or key == "rtt_ms"
        }
        | ({} if flow["algorithm"] == OURS else {"algorithm": flow["algorithm"]})
        for flow in plain.pop("flows")
    ]
    always = ("rate_mbps", "duration_s")
    link = {key: value for key, value in plain.items() if key in always or value != default.get(key)}
    return {key: value for key, value in link.items() if value is not None} | {
        "flows": [{key: value for key, value in flow.items() if value is not None} for flow in flows]
    }


def read_path(plain: Any) -> Scenario:
    """Return the path of plain types; flows without an algorithm are the candidate's.

    Raises:
        ValueError: naming the bad value; no flow is the candidate's; or flows are finite, or the run too short to be
            measured.
    """
    if isinstance(plain, Mapping) and "workload" in plain:
        raise ValueError("a path must have no workload, whose flows are finite: give flows without size_bytes")
    check_keys("a path", plain, [*Scenario.__dataclass_fields__, "rate_trace"])
    flows = plain.get("flows", [{}])
    if not isinstance(flows, list) or not all(isinstance(flow, Mapping) for flow in flows):
        raise ValueError(f"flows of a path must be a list of mappings, got {flows!r}")
    scenario = Scenario.from_dict({**plain, "flows": [{"algorithm": OURS, **flow} for flow in flows]})
    if all(scenario.flows[index].is_absent for index in scenario.agent_flows):
        raise ValueError("a path needs a flow without an algorithm that sends: the candidate's")
    for index, flow in enumerate(scenario.flows):
        if flow.algorithm != OURS:
            check_name("algorithm", flow.algorithm, registry.controllers(), of=f"flows[{index}]")
    check_measurable(scenario)
    return scenario
