"""The suites of the league: which benchmarks there are, and running them all."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.markup import escape

from bbrgym.benchmark.plan import Benchmark, Competitor
from bbrgym.benchmark.results import BenchmarkResult, load_benchmark
from bbrgym.benchmark.run import EngineFactory, run_benchmark
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.engine import describe_engine, make_engine
from bbrgym.envs.scenario import Scenario
from studies.experiments import compose_experiment
from studies.papers.published import Paper, load_paper

ALONE: Final = "alone"
"""The suite in which each victim of `friendliness` has the link to itself; also its only competitor's name."""

STOCK: Final = {"bbr-stock": "bbr", "cubic-stock": "cubic", "newreno-stock": "newreno"}
"""Algorithms that only ns-3 has, and which of the project's own takes their place elsewhere."""


@dataclass(frozen=True)
class OwnMetric:
    """What a paper's experiment is about.

    Attributes:
        metric: the paper's own, of `bbrgym.benchmark.tables.METRICS`, or of a flow.
        algorithm: the paper's own.
        others: all metrics of its published entries and figures.
    """

    metric: str
    algorithm: str
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, paper: Paper, metric: str, algorithm: str) -> OwnMetric:
        """Return it with the metrics that a paper names, except those of its figures over time."""
        named = [entry.metric for entry in paper.published]
        named += [metric for figure in paper.figures if figure.kind != "time" for metric in figure.y]
        return cls(metric, algorithm, tuple(dict.fromkeys(named)))


@dataclass(frozen=True)
class LeaguePlan:
    """Everything that a league consists of; studies/league/conf/experiment/league.yaml explains the fields.

    Attributes:
        name: the folder that its benchmarks are in.
        learned: the competitor that is compared with all others.
        yardsticks: competitors that no verdict is about.
        rival: whose harm to CUBIC the learned one's must not exceed.
        suites: by their names the configurations of the benchmarks, for `run_benchmark`.
        own: what the experiments of papers among the suites are about.
        training: the distribution that tells which scenarios of `generalisation` lie inside of it.
    """

    name: str
    learned: str
    rival: str
    yardsticks: tuple[str, ...] = ()
    suites: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    own: Mapping[str, OwnMetric] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> LeaguePlan:
        """From the whole plain configuration that `compose_league` returns.

        Raises:
            ValueError: naming the bad value and the good ones.
        """
        league, common = config["league"], dict(config["benchmark"])
        for key in league:
            if key not in _LEAGUE_KEYS:
                raise ValueError(f"a league has no field {key!r}; known: {', '.join(_LEAGUE_KEYS)}")
        name = str(config["name"])
        suites = {
            "generalisation": {
                "warmup": league["generalisation"]["warmup"],
                "scenarios": drawn_scenarios(league["generalisation"]["draws"]),
            },
            "friendliness": {**league["friendliness"], "roles": [0]},
            # No role is taken, so it does not matter by whom.
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
        }
        known = [*suites, *league["papers"]]
        for field_ in ("only", "subset"):
            for suite in league[field_] or ():
                if suite not in known:
                    raise ValueError(f"league.{field_} has no suite {suite!r}; known: {', '.join(known)}")
        subset, only = league["subset"], league["only"]
        # A victim is alone wherever it is beside a competitor.
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
                own[suite] = OwnMetric.of(paper, **league["papers"][suite])
            if subset is not None:
                plans[suite] = _reduced(suite, plans[suite], subset[suite])
        plan = cls(
            name=name,
            learned=league["learned"],
            rival=league["rival"],
            yardsticks=tuple(league["yardsticks"]),
            suites={suite: {**fields, "name": f"{name}/{suite}"} for suite, fields in plans.items()},
            own=own,
            training=league["training"],
        )
        plan._check()
        return plan

    def _check(self) -> None:
        for suite, config in self.suites.items():
            names = [competitor.name for competitor in Benchmark.from_dict(config).competitors]
            for name in (self.learned, self.rival, *self.yardsticks):
                if suite != ALONE and name not in names:
                    raise ValueError(f"the league has no competitor {name!r}; known: {', '.join(names)}")
            entry = self.own.get(suite)
            if entry is not None and entry.algorithm not in names:
                raise ValueError(f"{suite} has no competitor {entry.algorithm!r}; known: {', '.join(names)}")


_LEAGUE_KEYS: Final = (
    "learned", "yardsticks", "rival", "training", "only", "subset", "generalisation", "friendliness", "varying",
    "papers",
)  # fmt: skip


@dataclass(frozen=True)
class League:
    """The results of a league, as far as they are there.

    Attributes:
        plan: what it consists of.
        results: by the suites' names.
    """

    plan: LeaguePlan
    results: Mapping[str, BenchmarkResult]

    @property
    def failures(self) -> int:
        """How many runs failed."""
        return sum(len(result.failures) for result in self.results.values())

    def algorithms(self, suite: str) -> list[str]:
        """The hand-coded ones among a suite's competitors: neither learned nor yardsticks."""
        names = [entry["name"] for entry in self.results[suite].plan["config"]["competitors"]]
        return [name for name in names if name not in (self.plan.learned, *self.plan.yardsticks)]


def compose_league(overrides: Sequence[str] = (), experiment: str = "league") -> dict[str, Any]:
    """Return the whole plain configuration of the league, or of an experiment that changes it.

    Args:
        overrides: Hydra overrides.
        experiment: a file of studies/league/conf/experiment.

    Raises:
        HydraException: an override is not valid.
    """
    return compose_experiment(experiment, overrides, Path(__file__).parent / "conf")


def run_league(
    config: Mapping[str, Any],
    root: Path,
    console: Console | None = None,
    engine_factory: EngineFactory = make_engine,
    command: str | None = None,
) -> League:
    """Run what is not there yet of a league: one benchmark a suite, one after the other.

    A run that another benchmark in `root` has whole is not made again.

    Args:
        config: the whole plain configuration that `compose_league` returns.
        root: where the benchmarks go: `<root>/<name>/<suite>`.
        console: where progress is shown; None is standard output.
        engine_factory: as in `run_benchmark`.
        command: the command line, for the reports; None is that of this process.

    Raises:
        ValueError: of the configuration, naming the bad value and the good ones. Nothing has run then.
    """
    console = console or Console()
    plan = LeaguePlan.from_config(config)
    for count, (suite, benchmark) in enumerate(plan.suites.items(), start=1):
        console.print(f"[bold]{escape(suite)}[/bold] ({count} of {len(plan.suites)})", highlight=False)
        directory = root / plan.name / suite
        run_benchmark(benchmark, directory, console, engine_factory, beside=root, command=command, has_report=False)
    return _load(plan, root)


def load_league(config: Mapping[str, Any], root: Path) -> League:
    """The league of a configuration, as far as its benchmarks are there in `root`.

    Raises:
        ValueError: of the configuration.
    """
    return _load(LeaguePlan.from_config(config), root)


def _load(plan: LeaguePlan, root: Path) -> League:
    directories = {suite: root / plan.name / suite for suite in plan.suites}
    return League(
        plan,
        {suite: load_benchmark(path) for suite, path in directories.items() if (path / "benchmark.json").is_file()},
    )


def load_part(root: Path) -> League:
    """The part of the league that is for ns-3, as far as it is there in `root`."""
    return load_league(compose_league(["preset=ns3"]), root)


def drawn_scenarios(draws: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Scenarios drawn from distributions, `<name>-01` and so on, the same again with the same seed.

    Args:
        draws: by a name each {count, seed, scenario}, the last a distribution over scenarios.

    Raises:
        ValueError: of a distribution.
    """
    scenarios = {}
    for name, draw in draws.items():
        distribution = Distribution.from_dict(draw["scenario"])
        generator = np.random.default_rng(draw["seed"])
        for count in range(1, draw["count"] + 1):
            scenarios[f"{name}-{count:02d}"] = _rounded(distribution.sample(generator)).to_dict()
    return scenarios


def outside_of(scenario: Scenario, training: Mapping[str, Any]) -> list[str]:
    """In what a scenario lies outside of the ranges of a distribution: of rate, RTT, buffer, loss and flows.

    Of the flows only a larger number is outside. When they begin and end is not looked at, nor is what a training
    scenario has besides.
    """
    flows = training["flows"]
    counts = [len(choice) for choice in (flows["choice"] if isinstance(flows, Mapping) else [flows])]
    # A buffer is a whole number of packets: half a packet to either side is the same buffer.
    is_inside = {
        "rate": _lie_in(_numbers(training["rate_mbps"]), [scenario.rate_mbps]),
        "RTT": _lie_in(_numbers(_of_key(flows, "rtt_ms")), [flow.rtt_ms for flow in scenario.flows]),
        "buffer": _lie_in(
            _numbers(training["buffer_bdp"]),
            [scenario.queue_packets / scenario.bdp_packets],
            slack=0.5 / scenario.bdp_packets,
        ),
        "loss": _lie_in(_numbers(training["loss"]), [scenario.loss]),
        "flows": len(scenario.flows) <= max(counts),
    }
    return [name for name, is_so in is_inside.items() if not is_so]


def _lie_in(bounds: Sequence[float], values: Sequence[float], slack: float = 0.0) -> bool:
    return not bounds or (min(bounds) - slack <= min(values) and max(values) <= max(bounds) + slack)


def _numbers(node: Any) -> list[float]:
    """All numbers in a drawn value: its bounds and choices."""
    if isinstance(node, Mapping):
        return [number for value in node.values() for number in _numbers(value)]
    if isinstance(node, list | tuple):
        return [number for value in node for number in _numbers(value)]
    return [float(node)] if isinstance(node, int | float) else []


def _of_key(node: Any, key: str) -> list[Any]:
    """The values of a key, wherever it is in nested containers."""
    if isinstance(node, Mapping):
        return [found for name, value in node.items() for found in ([value] if name == key else _of_key(value, key))]
    return [found for value in node for found in _of_key(value, key)] if isinstance(node, list | tuple) else []


def _rounded(scenario: Scenario) -> Scenario:
    """With values that can be read: four significant figures, times to a tenth of a second."""

    def figures(value: float) -> float:
        return float(f"{value:.4g}")

    flows = tuple(
        dataclasses.replace(
            flow,
            rtt_ms=figures(flow.rtt_ms),
            start_s=round(flow.start_s, 1),
            stop_s=None if flow.stop_s is None else round(flow.stop_s, 1),
        )
        for flow in scenario.flows
    )
    return dataclasses.replace(
        scenario,
        rate_mbps=figures(scenario.rate_mbps),
        buffer_bdp=None if scenario.buffer_bdp is None else figures(scenario.buffer_bdp),
        loss=figures(scenario.loss),
        flows=flows,
    )


def _paper(experiment: str, common: Mapping[str, Any]) -> tuple[dict[str, Any], Paper]:
    """A paper's experiment with the competitors that it has, as it has them, and all others of the league."""
    config = compose_experiment(f"paper/{experiment}", ["preset=quick", "tracking=none"])["benchmark"]
    is_tcp_of_ns3 = _has_stock(common["engine"])
    competitors = [entry for entry in config["competitors"] if is_tcp_of_ns3 or _name(entry) not in STOCK]
    names = [_name(entry) for entry in competitors]
    competitors += [entry for entry in common["competitors"] if _name(entry) not in names]
    scenarios = config["scenarios"]
    paper = load_paper(
        f"paper/{experiment}",
        {name: Scenario.from_dict(scenario) for name, scenario in scenarios.items()},
        [_name(entry) for entry in (*config["competitors"], *competitors)],
    )
    if not is_tcp_of_ns3:
        scenarios = {
            name: {
                **scenario,
                "flows": [
                    {**flow, "algorithm": STOCK.get(flow["algorithm"], flow["algorithm"])}
                    if "algorithm" in flow
                    else flow
                    for flow in scenario["flows"]
                ],
            }
            for name, scenario in scenarios.items()
        }
    plan = {
        **common,
        "scenarios": scenarios,
        "competitors": competitors,
        "roles": config["roles"],
        "warmup": config["warmup"],
    }
    return plan, paper


def _has_stock(engine: str | Mapping[str, Any]) -> bool:
    plain = {"name": engine} if isinstance(engine, str) else engine
    return bool(describe_engine(**plain).comparators)


def _name(competitor: str | Mapping[str, Any]) -> str:
    return competitor if isinstance(competitor, str) else Competitor.from_dict(competitor).name


def _reduced(suite: str, config: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    for name in names:
        if name not in config["scenarios"]:
            raise ValueError(f"the subset of {suite} has no scenario {name!r}; known: {', '.join(config['scenarios'])}")
    return {**config, "scenarios": {name: config["scenarios"][name] for name in names}}
