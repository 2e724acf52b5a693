"""The suites of the league: their benchmarks, and how to run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pandas as pd
from rich.console import Console
from rich.markup import escape

from bbrgym.benchmark.draws import drawn_scenarios
from bbrgym.benchmark.plan import Benchmark, Competitor, find_competitors
from bbrgym.benchmark.results import BenchmarkResult, load_benchmark
from bbrgym.benchmark.run import run_benchmark
from bbrgym.benchmark.scores import scores
from bbrgym.checks import check_keys, check_name
from bbrgym.envs.engine import EngineDescription, describe_engine
from bbrgym.envs.scenario import Scenario
from studies.experiments import STAND_INS, compose_experiment
from studies.papers.published import Paper, load_paper

ALONE: Final = "alone"
"""The suite in which each victim of `friendliness` has the link to itself, and the name of its only competitor."""

DRAWN: Final = ("generalisation", "fresh", "wireless")
"""The suites whose scenarios are drawn."""

REDRAWN: Final = "redrawn"
"""The suite of that name of experiment=responsiveness."""

CHANGING: Final = (REDRAWN, "paths")
"""The suites of one flow whose path changes."""

OF_ONE_KIND: Final = (*DRAWN, "varying", *CHANGING)
"""The suites in which all flows have the same competitor."""


@dataclass(frozen=True)
class OwnMetric:
    """The main metric and the algorithm of a paper's experiment.

    Attributes:
        metric: the paper's main metric: in `bbrgym.benchmark.metrics.METRICS`, or of a flow.
        algorithm: the paper's algorithm.
        others: all metrics of its published entries and its figure.
    """

    metric: str
    algorithm: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class LeaguePlan:
    """The settings of a league; studies/league/conf/experiment/league.yaml explains the fields.

    Attributes:
        name: the folder of its benchmarks.
        learned: the competitor that is compared with all others.
        rival: the competitor whose harm to CUBIC the learned competitor must not exceed.
        yardsticks: competitors that are not judged.
        suites: configurations for `run_benchmark`, by name.
        own: main metrics of the papers' experiments among the suites.
    """

    name: str
    learned: str
    rival: str
    yardsticks: tuple[str, ...] = ()
    suites: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    own: Mapping[str, OwnMetric] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> LeaguePlan:
        """Return the plan of the whole plain configuration that `compose_league` returns."""
        league, common = config["league"], dict(config["benchmark"])
        common["competitors"] = _expanded(common["competitors"], common["engine"])
        check_keys("a league", league, _LEAGUE_KEYS)
        name = str(config["name"])
        suites = {
            **{
                suite: {"warmup": league[suite]["warmup"], "scenarios": drawn_scenarios(league[suite]["draws"])}
                for suite in DRAWN
            },
            "friendliness": {**league["friendliness"], "roles": [0]},
            # The competitor takes no flow, so any will do.
            ALONE: {
                "warmup": league["friendliness"]["warmup"],
                "scenarios": {
                    name: {**scenario, "flows": scenario["flows"][1:]}
                    for name, scenario in league["friendliness"]["scenarios"].items()
                },
                "roles": [],
                "competitors": [{"name": ALONE, "algorithm": "cubic"}],
            },
            "varying": league["varying"],
            REDRAWN: {**league[REDRAWN], "scenarios": _redrawn()},
            "paths": league["paths"],
        }
        known = [*suites, *league["papers"]]
        for field_ in ("only", "subset"):
            for suite in league[field_] or ():
                check_name(f"suite in league.{field_}", suite, known)
        subset, only = league["subset"], league["only"]
        # Each run of `friendliness` needs the run in which its victim is alone.
        if subset is not None:
            subset = {**subset, ALONE: subset.get("friendliness", [])}
        if only is not None and "friendliness" in only:
            only = [*only, ALONE]
        chosen = [suite for suite in known if (subset is None or subset.get(suite)) and (only is None or suite in only)]
        plans, own = {}, {}
        for suite in chosen:
            if suite in suites:
                plans[suite] = {**common, **suites[suite]}
            else:
                plans[suite], paper = _paper(suite, common)
                named = [entry.metric for entry in paper.published] + list(paper.figure.y if paper.figure else ())
                own[suite] = OwnMetric(**league["papers"][suite], others=tuple(dict.fromkeys(named)))
            if subset is not None:
                plans[suite] = _reduced(suite, plans[suite], subset[suite])
        plan = cls(
            name=name,
            learned=league["learned"],
            rival=league["rival"],
            yardsticks=tuple(league["yardsticks"]),
            suites={suite: {**fields, "name": f"{name}/{suite}"} for suite, fields in plans.items()},
            own=own,
        )
        plan._check()
        return plan

    def _check(self) -> None:
        for suite, config in self.suites.items():
            names = [competitor.name for competitor in Benchmark.from_dict(config).competitors]
            for name in (self.learned, self.rival, *self.yardsticks):
                if suite != ALONE:
                    check_name("competitor of the league", name, names)
            if suite in self.own:
                check_name(f"competitor of {suite}", self.own[suite].algorithm, names)


_LEAGUE_KEYS: Final = (
    "learned", "yardsticks", "rival", "only", "subset", *OF_ONE_KIND, "friendliness", "papers",
)  # fmt: skip


@dataclass(frozen=True)
class League:
    """The results of a league, finished or not."""

    plan: LeaguePlan
    results: Mapping[str, BenchmarkResult]

    @property
    def failures(self) -> int:
        """The number of failed runs."""
        return sum(len(result.failures) for result in self.results.values())

    def has_runs(self, suite: str) -> bool:
        """Whether a suite has finished runs."""
        return suite in self.results and not self.results[suite].results.empty

    @cached_property
    def scores(self) -> dict[str, pd.DataFrame]:
        """The scores (`bbrgym.benchmark.scores`) of the suites in which all flows are of one kind, if they ran."""
        return {suite: scores(self.results[suite]) for suite in OF_ONE_KIND if self.has_runs(suite)}

    def algorithms(self, suite: str) -> list[str]:
        """Return the hand-coded algorithms among a suite's competitors: neither learned nor yardsticks."""
        names = [entry["name"] for entry in self.results[suite].plan["config"]["competitors"]]
        return [name for name in names if name not in (self.plan.learned, *self.plan.yardsticks)]


def compose_league(overrides: Sequence[str] = (), experiment: str = "league") -> dict[str, Any]:
    """Return the whole plain configuration of the league, or of an experiment that changes it."""
    return compose_experiment(experiment, overrides, Path(__file__).parent / "conf")


def run_league(config: Mapping[str, Any], root: Path, console: Console, command: str | None = None) -> League:
    """Run the missing runs of a league: one benchmark per suite, one after the other.

    Finished runs of other benchmarks in `root` are linked, not repeated.
    """
    plan = LeaguePlan.from_config(config)
    for count, (suite, benchmark) in enumerate(plan.suites.items(), start=1):
        console.print(f"[bold]{escape(suite)}[/bold] ({count} of {len(plan.suites)})", highlight=False)
        directory = root / plan.name / suite
        run_benchmark(benchmark, directory, console, beside=root, command=command, has_report=False)
    return _load(plan, root)


def load_league(config: Mapping[str, Any], root: Path) -> League:
    """Return the league of a configuration with the benchmarks that are in `root`."""
    return _load(LeaguePlan.from_config(config), root)


def _load(plan: LeaguePlan, root: Path) -> League:
    directories = {suite: root / plan.name / suite for suite in plan.suites}
    return League(
        plan,
        {suite: load_benchmark(path) for suite, path in directories.items() if (path / "benchmark.json").is_file()},
    )


def load_part(root: Path) -> League:
    """Return the part of the league for ns-3 with the benchmarks that are in `root`."""
    return load_league(compose_league(["preset=ns3"]), root)


def _redrawn() -> dict[str, dict[str, Any]]:
    suites = compose_experiment("responsiveness")["benchmark"]["suites"]
    return dict(suites[REDRAWN]["scenarios"])


def _paper(experiment: str, common: Mapping[str, Any]) -> tuple[dict[str, Any], Paper]:
    """Return a paper's experiment with its own competitors and all others of the league."""
    config = compose_experiment(f"paper/{experiment}", ["preset=quick", "tracking=none"])["benchmark"]
    has_stock = bool(_described(common["engine"]).comparators)
    competitors = [entry for entry in config["competitors"] if has_stock or _name(entry) not in STAND_INS]
    names = [_name(entry) for entry in competitors]
    competitors += [entry for entry in common["competitors"] if _name(entry) not in names]
    scenarios = config["scenarios"]
    paper = load_paper(
        f"paper/{experiment}",
        {name: Scenario.from_dict(scenario) for name, scenario in scenarios.items()},
        [_name(entry) for entry in (*config["competitors"], *competitors)],
    )
    if not has_stock:
        scenarios = {
            name: {**scenario, "flows": [_with_stand_in(flow) for flow in scenario["flows"]]}
            for name, scenario in scenarios.items()
        }
    own = {"scenarios": scenarios, "competitors": competitors, "roles": config["roles"], "warmup": config["warmup"]}
    return {**common, **own}, paper


def _with_stand_in(flow: Mapping[str, Any]) -> dict[str, Any]:
    return {**flow, **({"algorithm": STAND_INS[flow["algorithm"]]} if flow.get("algorithm") in STAND_INS else {})}


def _expanded(entries: Sequence[Any], engine: str | Mapping[str, Any]) -> list[Any]:
    """Return the competitors with the names that queries stand for."""
    described = _described(engine)
    names = [[c.name for c in find_competitors([e], described)] if isinstance(e, str) else [e] for e in entries]
    return [name for of_entry in names for name in of_entry]


def _described(engine: str | Mapping[str, Any]) -> EngineDescription:
    return describe_engine(**({"name": engine} if isinstance(engine, str) else engine))


def _name(competitor: str | Mapping[str, Any]) -> str:
    return competitor if isinstance(competitor, str) else Competitor.from_dict(competitor).name


def _reduced(suite: str, config: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    for name in names:
        check_name(f"scenario in the subset of {suite}", name, config["scenarios"])
    return {**config, "scenarios": {name: config["scenarios"][name] for name in names}}
