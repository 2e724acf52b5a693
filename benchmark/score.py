"""The score of a candidate: fair power over many drawn scenarios, beside yardsticks (docs/score.md)."""

from __future__ import annotations

import atexit
import dataclasses
import hashlib
import inspect
import json
import math
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pandas as pd

from bbrgym.benchmark import families, score_measures
from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.code import code_hash, metrics_hash
from bbrgym.benchmark.families import VICTIMS, WARMUP, Draw, alone, draw_scenarios
from bbrgym.benchmark.ledger import CacheLedger, measure, unmeasured
from bbrgym.benchmark.plan import Benchmark, Competitor, Run, find_competitors
from bbrgym.benchmark.quick_rfc9743 import read_quick_rfc9743
from bbrgym.benchmark.regret import Regret, regrets
from bbrgym.benchmark.run_scores import SCORE
from bbrgym.benchmark.sandbox import (
    SECONDS,
    ConfinedJob,
    NamedJob,
    Reply,
    Sandbox,
    measure_confined,
    trace_of,
)
from bbrgym.benchmark.score_measures import SHARING, Measured
from bbrgym.benchmark.statistics import Estimate, estimate
from bbrgym.benchmark.verdicts import Verdicts
from bbrgym.checks import check_integer
from bbrgym.envs import sharing, sharing_meter
from bbrgym.envs.engine import describe_engine, identity_of
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.trace import Trace

T = TypeVar("T")

CONSTANT: Final = Competitor(
    "constant",
    "bbr-backlog",
    {"backlog_packets": 4, "correction_rounds": 0, "ignored_delay_ms": 0, "fills_free_link": 0},
)
"""Gains that never change: the best of a grid in scenarios of `families` (studies/learned.py)."""

WORST: Final = 3
"""How many of the worst scenarios a score shows."""

_CHUNK: Final = 8
"""How many scenarios of a candidate a process runs: a crash costs the others a second run, one by one."""

_SECONDS_ALONE: Final = 2.0
"""How much processor time one of these may take: eighty times what it needs."""

_SECONDS_RFC9743: Final = 6.0
"""How much three runs of RFC 9743 may take: forty times what they need."""

_MOST_FAILURES: Final = 3
"""After so many scenarios that end the process, the candidate's others are not run."""


@dataclass(frozen=True)
class Score:
    """A candidate's score.

    Attributes:
        candidate: what was judged.
        seed: decides the scenarios.
        draws: the scenarios.
        runs: {competitor: what each draw measured, in their order}; the candidate's are the first.
        harms: {victim: {competitor: the harm to its throughput in each scenario}}.
        missing: what this system does not contain of the candidate, one sentence each.
        is_repeatable: whether two runs of one scenario with one seed are equal.
        rfc9743: the verdicts of the quick form of RFC 9743; None if it was left out.
        seconds: how long it took.
        cached: how many yardsticks were not run, because they had been before.
        is_full: whether it has twice the scenarios.
    """

    candidate: Candidate
    seed: int
    draws: Sequence[Draw]
    runs: Mapping[str, Sequence[Measured]]
    missing: Sequence[str] = ()
    is_repeatable: bool = True
    rfc9743: Verdicts | None = None
    harms: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    seconds: float = 0.0
    cached: int = 0
    is_full: bool = False

    @property
    def name(self) -> str:
        """The candidate's name in tables."""
        return next(iter(self.runs))

    @cached_property
    def table(self) -> pd.DataFrame:
        """`SHARING` of all runs in scenarios of one kind, index (scenario, competitor, seed); failed ones have 0."""
        rows = [
            (draw.name, name, draw.seed, *(_value(run, column) for column in SHARING))
            for name, runs in self.runs.items()
            for draw, run in zip(self.draws, runs, strict=True)
            if draw.roles is None
        ]
        table = pd.DataFrame(rows, columns=["scenario", "competitor", "seed", *SHARING])
        return table.set_index(["scenario", "competitor", "seed"])

    @cached_property
    def ratios(self) -> pd.Series:
        """Per scenario of flows of one kind: the candidate's fair power over that of the best yardstick, at most 1."""
        if self.table.empty:  # a single scenario, beside a victim
            return pd.Series(dtype=np.float64)
        power = self.table[SCORE].droplevel("seed").unstack("competitor")
        best = power.drop(columns=self.name).max(axis=1)
        return (power[self.name] / best).clip(upper=1.0).reindex([d.name for d in self.draws if d.roles is None])

    @cached_property
    def value(self) -> Estimate:
        """The score: the mean of `ratios`."""
        return estimate(self.ratios)

    def value_of(self, name: str) -> Estimate:
        """Return what the score of a competitor is; a yardstick is compared with itself, too."""
        if self.table.empty:
            return estimate([])
        power = self.table[SCORE].droplevel("seed").unstack("competitor")
        return estimate((power[name] / power.drop(columns=self.name).max(axis=1)).clip(upper=1.0))

    @cached_property
    def regrets(self) -> list[Regret]:
        """The candidate's regret in each scenario, the largest first."""
        return regrets(self.table, self.name)

    @cached_property
    def failures(self) -> dict[str, str]:
        """What went wrong with the candidate, by the scenario's name."""
        return {
            draw.name: str(run["error"])
            for draw, run in zip(self.draws, self.runs[self.name], strict=True)
            if "error" in run
        }

    @property
    def has_failed(self) -> bool:
        """Whether it failed in every scenario."""
        return len(self.failures) == len(self.draws)


def score_candidate(
    candidate: Candidate,
    seed: int | None = None,
    *,
    is_full: bool = False,
    only: str | None = None,
    has_rfc9743: bool = True,
    sandbox: Sandbox | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Score:
    """Score a candidate.

    Raises:
        ValueError: there is no scenario called `only`, or a C file does not take its parameters.
        EngineError: a process of the sandbox has died. What the candidate's code does raises nothing.
    """
    began = time.monotonic()
    seed = int.from_bytes(os.urandom(3), "big") if seed is None else seed
    draws = draw_scenarios(seed, 2 if is_full else 1)
    if only is not None:
        draws = [draw for draw in draws if draw.name == only] or _unknown(only, draws)
    with _started(sandbox) as running:
        tell(f"{candidate.competitor.name}: {len(draws)} scenario{'s' if len(draws) != 1 else ''}")
        own, missing, is_repeatable = _run_candidate(running, candidate, draws)
        tell("yardsticks")
        others, cached = _run_yardsticks(running, draws, tell)
        verdicts = None
        if has_rfc9743 and only is None:
            has_run = any("error" not in run for run in own)
            if has_run:
                tell("RFC 9743")
            verdicts = _judge_rfc9743(running, candidate, is_full, has_run)
        harms = _harms(running, draws, {_own_name(candidate, others): own, **others})
    return Score(
        candidate=candidate,
        seed=seed,
        draws=draws,
        runs={_own_name(candidate, others): own, **others},
        missing=missing,
        is_repeatable=is_repeatable,
        rfc9743=verdicts,
        harms=harms,
        seconds=time.monotonic() - began,
        cached=cached,
        is_full=is_full,
    )


def worst_traces(score: Score) -> tuple[Draw, dict[str, Trace]]:
    """Run the scenario with the largest regret again, with the candidate and with the best yardstick there.

    Returns:
        The scenario, and the traces by competitor; a run that fails is left out.

    Raises:
        EngineError: a process of the sandbox has died.
    """
    place = 0
    if score.regrets:
        place = [draw.name for draw in score.draws].index(score.regrets[0].scenario)
    draw = score.draws[place]
    power = {name: _value(runs[place], SCORE) for name, runs in score.runs.items() if name != score.name}
    best = next((one for one in yardsticks() if one.name == max(power, key=power.__getitem__)), None)
    competitors = {score.name: score.candidate.competitor} | ({} if best is None else {best.name: best})
    jobs = [
        ConfinedJob(
            scenarios=[competitor.takes(draw.scenario, draw.roles)],
            seeds=[draw.seed],
            warmup=WARMUP,
            measure="trace",
            **(score.candidate.in_job(_SECONDS_ALONE) if name == score.name else {}),
        )
        for name, competitor in competitors.items()
    ]
    traces = {}
    with Sandbox(1) as sandbox:
        replies = sandbox.run(jobs)
    for name, job, reply in zip(competitors, jobs, replies, strict=True):
        if (trace := trace_of(job, reply)) is not None:
            traces[name] = trace
    return draw, traces


def yardsticks() -> list[Competitor]:
    """Return what candidates are compared with: published algorithms, `bbr-backlog`, the policy and the constant."""
    published = find_competitors(["published"], describe_engine("native"))
    return [*published, *(Competitor(name, name) for name in ("bbr-backlog", "policy")), CONSTANT]


@dataclass(frozen=True)
class ScenarioScore:
    """How a candidate did in a scenario.

    Attributes:
        scenario: its name.
        family: what it was drawn from.
        path: the scenario itself.
        link: what the link is like.
        value: the fair power over that of the best yardstick, at most 1; 0 if the candidate failed.
        fair_power: of the candidate.
        best: the best yardstick.
        best_fair_power: of this one.
        own: `SHARING` of the candidate; `error` if it failed.
        other: `SHARING` of the best yardstick.
        reason: why the value is below 1: what failed, or what the candidate lacks; "" if it is 1.
        has_failed: whether the candidate crashed, took too long or decided nonsense.
    """

    scenario: str
    family: str
    path: Scenario
    link: str
    value: float
    fair_power: float
    best: str
    best_fair_power: float
    own: Measured
    other: Measured
    reason: str
    has_failed: bool


@dataclass(frozen=True)
class Harm:
    """What a flow beside a candidate loses.

    Attributes:
        victim: its algorithm.
        value: the fraction of the throughput that it has alone, mean over the scenarios; NaN if the candidate failed.
        of_own_kind: what it loses beside another flow of its own algorithm.
    """

    victim: str
    value: float
    of_own_kind: float


@dataclass(frozen=True)
class Fitness:
    """The fitness of a candidate, and what it is made of.

    Attributes:
        value: the mean over the scenarios.
        scenarios: each of them, the lowest value first.
        harms: one per victim, where scenarios beside victims were asked for.
    """

    value: float
    scenarios: tuple[ScenarioScore, ...]
    harms: tuple[Harm, ...] = ()

    @property
    def families(self) -> dict[str, float]:
        """The mean of the values in each family of scenarios."""
        found: dict[str, list[float]] = {}
        for one in sorted(self.scenarios, key=lambda one: one.scenario):
            found.setdefault(one.family, []).append(one.value)
        return {family: statistics.fmean(values) for family, values in found.items()}

    def __float__(self) -> float:
        """Return the value."""
        return self.value


def fitness(
    what: str | Path | Candidate,
    parameters: Mapping[str, float] | None = None,
    *,
    scenarios: int = 16,
    seed: int = 0,
    beside: int = 0,
    sandbox: Sandbox | None = None,
) -> Fitness:
    """Return the score of a candidate on a few scenarios, as the fitness of a search.

    Equal seeds give equal scenarios to every candidate (common random numbers). The yardsticks run once per seed, and
    are then read from the user's cache. This process keeps a sandbox's process for later calls.

    Args:
        what: as of `Candidate.of`, or a candidate.
        parameters: of an algorithm or of a C file; None keeps those of a candidate.
        scenarios: how many, of all families of flows of one kind; all 98 if more.
        seed: decides them.
        beside: how many more, beside each of `VICTIMS`, for the harm that the candidate does; at most eight.
        sandbox: its processes run all; by default this process keeps one of a single process for later calls. Threads
            that share it judge several candidates at once.

    Returns:
        The mean over the scenarios of the fair power over that of the best yardstick, in [0, 1], and what the candidate
        lacks in each scenario, or why it failed there. A scenario in which it fails counts 0. Those beside victims are
        no part of the mean.

    Raises:
        FileNotFoundError, ValueError: there is no such candidate, or it does not take these parameters.
    """
    scenarios = check_integer("scenarios", scenarios, at_least=1)
    seed = check_integer("seed", seed, at_least=0)
    beside = check_integer("beside", beside, at_least=0, at_most=8)
    if not isinstance(parameters, Mapping | None):
        raise ValueError(f"parameters must be a mapping of numbers by name, got {parameters!r}")
    if isinstance(what, Candidate):
        candidate = what if parameters is None else what.with_parameters(parameters)
    elif isinstance(what, str | Path):
        candidate = Candidate.of(str(what), parameters)
    else:
        raise ValueError(f"give a path, the name of an algorithm, or a callable as 'module:name', got {what!r}")
    running = _own_sandbox() if sandbox is None else sandbox
    draws, others = _few(running, scenarios, seed, beside)
    own, _, _ = _run_candidate(running, candidate, draws, is_first_repeated=False)
    of_draws = []
    for place, (draw, run) in enumerate(zip(draws, own, strict=True)):
        best = max(others, key=lambda name: _value(others[name][place], SCORE))
        if draw.roles is None and _value(others[best][place], SCORE) > 0:
            of_draws.append(_scenario_score(draw, run, best, others[best][place]))
    harms = _harms(running, draws, {"": own, **others})
    return Fitness(
        value=statistics.fmean(one.value for one in of_draws),
        scenarios=tuple(sorted(of_draws, key=lambda one: one.value)),
        harms=tuple(
            Harm(victim, value=statistics.fmean(of[""]), of_own_kind=statistics.fmean(of[victim]))
            for victim, of in harms.items()
        ),
    )


def _scenario_score(draw: Draw, run: Measured, best: str, of_best: Measured) -> ScenarioScore:
    power, most = _value(run, SCORE), _value(of_best, SCORE)
    value = min(1.0, power / most)
    reason = ""
    if "error" in run:
        reason = str(run["error"])
    elif value < 1:
        regret = estimate([most - power])
        reason = Regret(scenario=draw.name, best=best, regret=regret, own=run, other=of_best).reason
    return ScenarioScore(
        scenario=draw.name,
        family=draw.name.rpartition("-")[0],
        path=draw.scenario,
        link=draw.scenario.describe_link(),
        value=value,
        fair_power=power,
        best=best,
        best_fair_power=most,
        own=run,
        other=of_best,
        reason=reason,
        has_failed="error" in run,
    )


def _few(sandbox: Sandbox, scenarios: int, seed: int, beside: int) -> tuple[list[Draw], dict[str, list[Measured]]]:
    """Return some draws of all families, `beside` more of each victim, and {yardstick: what each draw measures}."""
    key = (scenarios, seed, beside)
    if key not in _FEW:
        every = draw_scenarios(seed)
        of_one_kind = [draw for draw in every if draw.roles is None]
        few = min(scenarios, len(of_one_kind))
        draws = [of_one_kind[index * len(of_one_kind) // few] for index in range(few)]
        for victim in VICTIMS:
            draws += [draw for draw in every if draw.victim == victim][:beside]
        _FEW[key] = draws, _run_yardsticks(sandbox, draws)[0]
    return _FEW[key]


_FEW: Final[dict[tuple[int, int, int], tuple[list[Draw], dict[str, list[Measured]]]]] = {}
"""What `_few` has returned: a search asks for the same scenarios all the time."""


@cache
def _sandbox_of(process: int) -> Sandbox:
    sandbox = Sandbox(1)
    atexit.register(sandbox.close)
    return sandbox


def _own_sandbox() -> Sandbox:
    """Return this process's sandbox; a fork has its own."""
    return _sandbox_of(os.getpid())


@contextmanager
def _started(sandbox: Sandbox | None) -> Iterator[Sandbox]:
    if sandbox is not None:
        yield sandbox
        return
    with Sandbox() as own:
        yield own


def _unknown(only: str, draws: Sequence[Draw]) -> list[Draw]:
    raise ValueError(f"there is no scenario {only!r}; known: {', '.join(draw.name for draw in draws)}")


def _own_name(candidate: Candidate, others: Mapping[str, Any]) -> str:
    name = candidate.competitor.name
    return f"{name} (candidate)" if name in others else name


def _value(run: Measured, column: str) -> float:
    """Return what was measured; nothing was delivered in a run that failed."""
    if "error" not in run:
        value = run[column]
        return math.nan if value is None else float(value)
    return 0.0 if column in (SCORE, "jain", "utilisation") else math.nan


def _job(candidate: Candidate, draws: Sequence[Draw], seconds: float) -> ConfinedJob:
    return ConfinedJob(
        [candidate.competitor.takes(draw.scenario, draw.roles) for draw in draws],
        [draw.seed for draw in draws],
        WARMUP,
        **candidate.in_job(seconds),
    )


def _run_candidate(
    sandbox: Sandbox, candidate: Candidate, draws: Sequence[Draw], is_first_repeated: bool = True
) -> tuple[list[Measured], list[str], bool]:
    """Return what the candidate measures in each draw, what the system does not contain, and whether it is repeatable.

    The first draw runs alone, so that a candidate that always fails costs little; a second run among others shows
    whether it is repeatable. Draws that fail together run again, each in a process of its own.

    Raises:
        ValueError: a C file does not take its parameters, or there is no such callable.
    """
    found: dict[int, Measured] = {}
    missing: list[str] = []

    def run(alone: Sequence[int], together: Sequence[Sequence[int]], failed: int = 0) -> int:
        def job(places: Sequence[int]) -> ConfinedJob:
            return _job(candidate, [draws[place] for place in places], _SECONDS_ALONE if len(places) == 1 else SECONDS)

        for places, reply in _run_apart(sandbox, job, alone, together, failed):
            _check_refusal(candidate, reply)
            missing.extend(reply.missing)
            if reply.error is None:
                found.update(zip(places, reply.results, strict=True))
            else:
                found[places[0]] = {"error": reply.error}
                failed += 1
        return failed

    failed = run([0], [])
    first = found[0]
    rest = range(0 if is_first_repeated and not failed else 1, len(draws))
    few = rest[: _MOST_FAILURES - 1] if failed else rest[:0]  # perhaps it fails everywhere: these show it
    rest = rest[len(few) :]
    run(few, [rest[place : place + _CHUNK] for place in range(0, len(rest), _CHUNK)], failed)
    own = [found.get(place, {"error": _NOT_RUN}) for place in range(len(draws))]
    is_repeatable = "error" in first or json.dumps(own[0]) == json.dumps(first)
    return own, list(dict.fromkeys(missing)), is_repeatable


def _run_apart(
    sandbox: Sandbox,
    job: Callable[[Sequence[T]], ConfinedJob],
    alone: Iterable[T],
    together: Iterable[Sequence[T]],
    failed: int = 0,
) -> Iterator[tuple[Sequence[T], Reply]]:
    """Run what a candidate is to do, and what fails together once more, one by one.

    Args:
        sandbox: where it runs.
        job: of things that run in one process.
        alone: what has a process of its own, before all others.
        together: what shares one.
        failed: how many have failed before. After `_MOST_FAILURES` that fail alone, the others are not run.

    Yields:
        What ran, and the reply; with an error of one thing alone.
    """
    single, groups = deque(alone), deque(together)
    while (single or groups) and failed < _MOST_FAILURES:
        if single:
            some: list[Sequence[T]] = [[single.popleft()] for _ in range(min(len(single), _MOST_FAILURES - failed))]
        else:
            some = [groups.popleft() for _ in range(min(len(groups), sandbox.workers))]
        for things, reply in zip(some, sandbox.run([job(things) for things in some]), strict=True):
            if reply.error is not None and len(things) > 1:
                single += things
                continue
            failed += reply.error is not None
            yield things, reply


def _check_refusal(candidate: Candidate, reply: Reply) -> None:
    """Raise a ValueError if code cannot be run as it was asked for; only its confined process can read it."""
    if candidate.confinement != "none" and reply.is_refused:
        raise ValueError(reply.error)


_NOT_RUN: Final = f"not run: it failed in {_MOST_FAILURES} scenarios before"


def _run_yardsticks(
    sandbox: Sandbox, draws: Sequence[Draw], tell: Callable[[str], None] = lambda text: None
) -> tuple[dict[str, list[Measured]], int]:
    """Return {yardstick: what each draw measures}, and how many of them were in the cache."""
    everyone = yardsticks()
    jobs = {
        one.name: ConfinedJob(
            scenarios=[one.takes(draw.scenario, draw.roles) for draw in draws],
            seeds=[draw.seed for draw in draws],
            warmup=WARMUP,
            seconds=600,
        )
        for one in everyone
    }
    found: dict[str, list[Measured]] = {}
    cached = 0
    names, some = list(jobs), 2 * sandbox.workers
    for place in range(0, len(names), some):
        of_some, were_cached = _run_cached(sandbox, {name: jobs[name] for name in names[place : place + some]})
        found |= of_some
        cached += were_cached
        if were_cached < len(of_some):
            tell(f"yardsticks: {len(found)} of {len(names)}")
    return found, cached


def _run_cached(sandbox: Sandbox, jobs: Mapping[str, ConfinedJob]) -> tuple[dict[str, list[Any]], int]:
    """Run jobs of the project's own code, but for those whose results are in the user's cache."""
    ledger = CacheLedger("score")
    named = [NamedJob(name, _key(job), job) for name, job in jobs.items()]
    left = unmeasured(named, ledger.load(named))
    found = measure(measure_confined, named, ledger, sandbox, chunk_s=0)
    return {name: found[name] for name in jobs}, len(named) - len(left)


def _key(job: ConfinedJob) -> str:
    """Return the hash of everything that decides the results of a job."""
    plain = job.to_dict()
    decisive = {name: plain[name] for name in ("seeds", "warmup", "measure")}
    text = json.dumps([decisive, [identity_of(scenario) for scenario in job.scenarios], _code_hash()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@cache
def _code_hash() -> str:
    sources = [inspect.getsource(module) for module in (families, score_measures, sharing, sharing_meter)]
    return code_hash("native", also=json.dumps([*sources, metrics_hash(), sys.version_info[:2]]))


def _harms(
    sandbox: Sandbox, draws: Sequence[Draw], runs: Mapping[str, Sequence[Measured]]
) -> dict[str, dict[str, list[float]]]:
    """Return the harm to each victim's throughput: the fraction that it loses of what it has alone (HotNets 2019)."""
    found: dict[str, dict[str, list[float]]] = {}
    for victim in VICTIMS:
        places = [place for place, draw in enumerate(draws) if draw.victim == victim]
        if not places:
            continue
        some = [draws[place] for place in places]
        job = ConfinedJob([alone(draw) for draw in some], [draw.seed for draw in some], WARMUP, seconds=600)
        free = [run["throughputs_mbps"][0] for run in _run_cached(sandbox, {victim: job})[0][victim]]
        found[victim] = {
            name: [
                1 - of_name[place]["throughputs_mbps"][1] / most if "error" not in of_name[place] else math.nan
                for place, most in zip(places, free, strict=True)
            ]
            for name, of_name in runs.items()
        }
    return found


def _judge_rfc9743(sandbox: Sandbox, candidate: Candidate, is_full: bool, has_run: bool) -> Verdicts:
    """Return the verdicts of RFC 9743 on the candidate. Its references are in the cache after the first time.

    Nothing is run for a candidate that has not run in any scenario before.
    """
    own = dataclasses.replace(candidate.competitor, name="candidate")
    benchmark = dataclasses.replace(
        Benchmark.from_dict({**read_quick_rfc9743(is_full), "competitors": ["bbr"]}), competitors=(own,)
    )
    if not has_run:
        return Verdicts.of_runs(benchmark, {})
    runs = benchmark.runs()
    ours = [run for run in runs if run.competitor == "candidate"]
    measured: dict[str, Any] = {}

    def job(some: Sequence[Run]) -> ConfinedJob:
        return ConfinedJob(
            scenarios=[run.scenario for run in some],
            seeds=[run.seed for run in some],
            warmup=benchmark.warmup,
            measure="rows",
            **candidate.in_job(_SECONDS_RFC9743 if len(some) > 1 else _SECONDS_ALONE),
        )

    for some, reply in _run_apart(sandbox, job, [], [ours[place : place + 3] for place in range(0, len(ours), 3)]):
        replies = [{"error": reply.error}] if reply.error is not None else reply.results
        measured |= {run.key: result for run, result in zip(some, replies, strict=True)}
    references = [run for run in runs if run.competitor != "candidate"]
    by_name: dict[str, list[Any]] = {}
    for run in references:
        by_name.setdefault(run.competitor, []).append(run)
    cached, _ = _run_cached(
        sandbox,
        {
            name: ConfinedJob(
                scenarios=[run.scenario for run in some],
                seeds=[run.seed for run in some],
                warmup=benchmark.warmup,
                measure="rows",
                seconds=600,
            )
            for name, some in by_name.items()
        },
    )
    for name, some in by_name.items():
        measured |= {run.key: result for run, result in zip(some, cached[name], strict=True)}
    return Verdicts.of_runs(benchmark, measured)
