"""The score of a candidate in real time, on this machine's network stack: twelve criteria (docs/stacks.md)."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import resources
from typing import Any, Final, Literal

import yaml

from bbrgym.baselines.registry import LINUX_PREFIX, linux_controls
from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.ledger import CacheLedger, Rows, measure_each
from bbrgym.benchmark.metrics import measure
from bbrgym.benchmark.plan import Benchmark, Run
from bbrgym.benchmark.single_run import EngineFactory, attempts
from bbrgym.benchmark.statistics import Estimate
from bbrgym.benchmark.verdicts import NOT_RUN, NOT_TESTED, Judgement, Verdicts
from bbrgym.checks import check_name
from bbrgym.envs.engine import EngineError, EngineUnavailableError, make_engine
from bbrgym.envs.trace import Trace, simulate
from bbrgym.executors import TaskExecutor
from bbrgym.processes import ProcessExecutor

CriterionVerdict = Literal["pass", "fail", "unclear", "not counted"]

OWN: Final = "candidate"
"""The candidate's name in its benchmark, so that it can be one of the references."""

FULL_SEEDS: Final = 3
"""How many runs a criterion has in a full score, whose means have intervals."""

MOST_FAILURES: Final = 3
"""After so many scenarios in which the candidate's programs fail, the others are not run."""

_IS_SLOW: Final = "did not listen"
"""Of the engine's error about a server that did not start in time: on a busy machine an interpreter may not."""

_TIMEOUT_S: Final = 30.0
"""How long the worker may take for an answer: both programs start and end within it."""


@dataclass(frozen=True)
class LinuxScore:
    """A candidate's score in real time.

    Attributes:
        candidate: what was judged.
        verdicts: what the criteria say, without runs that are in `late` or `errors`.
        seeds: one run of a criterion each.
        late: what was wrong with runs whose numbers cannot be trusted, {(scenario, competitor): the flaw}.
        errors: why runs of the candidate's programs have no result, {scenario: text}.
        missing: what this machine lacks, {suite: text}.
        cached: how many runs of references were not run, because they had been before.
        seconds: how long it took.
    """

    candidate: Candidate
    verdicts: Verdicts
    seeds: Sequence[int]
    late: Mapping[tuple[str, str], str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    cached: int = 0
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """The candidate's name."""
        return self.candidate.competitor.name

    @cached_property
    def by_suite(self) -> dict[str, CriterionVerdict]:
        """The verdict of each criterion. One whose run was late is not counted; one whose run failed has failed."""
        return {name: self._verdict(name) for name in self.verdicts.suites}

    @cached_property
    def value(self) -> Estimate:
        """The share of the counted criteria that pass; NaN if fewer than half of all are counted."""
        found = list(self.by_suite.values())
        counted = len(found) - found.count("not counted")
        share = found.count("pass") / counted if counted >= len(found) / 2 else math.nan
        return Estimate(share, math.nan, math.nan, counted)

    @property
    def has_failed(self) -> bool:
        """Whether its programs failed in every scenario that has run."""
        has_run = [competitor for _, competitor in self.late] + [one.competitor for one in self.verdicts.judgements]
        return bool(self.errors) and OWN not in has_run

    def judgements(self, suite: str) -> list[Judgement]:
        """Return what was measured for the criteria of a suite."""
        return [one for one in self.verdicts.judgements if one.suite == suite]

    def reasons(self) -> Iterator[str]:
        """Yield why criteria are not counted, and what the candidate's programs said that failed."""
        for (scenario, competitor), flaw in self.late.items():
            whose = "" if competitor == OWN else f" (with {competitor})"
            yield f"{scenario}{whose}: not counted: {flaw}"
        yield from (f"{suite}: not counted: {text}" for suite, text in self.missing.items())
        yield from (f"{scenario}: {text}" for scenario, text in self.errors.items())

    def _verdict(self, name: str) -> CriterionVerdict:
        scenarios = self.verdicts.suites[name].scenarios
        errors = [self.errors[scenario] for scenario in scenarios if scenario in self.errors]
        if errors:
            return "not counted" if any(_IS_SLOW in error for error in errors) else "fail"
        found = self.verdicts.verdict(name, OWN)
        if found in (NOT_RUN, NOT_TESTED) or any(scenario in scenarios for scenario, _ in self.late):
            return "not counted"
        if found == "pass":
            return "pass"
        return "fail" if found == "fail" else "unclear"


def score_on_linux(
    candidate: Candidate,
    seed: int = 1,
    *,
    is_full: bool = False,
    only: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
    engine_factory: EngineFactory = make_engine,
    make_executor: Callable[[int], TaskExecutor] = ProcessExecutor,
) -> LinuxScore:
    """Judge a candidate by the suites of conf/experiment/linux_score.yaml, one run after the other, in real time.

    Args:
        candidate: what is judged.
        seed: of the first run of each criterion.
        is_full: whether each criterion has `FULL_SEEDS` runs.
        only: the only criterion; None for all.
        tell: is told which run begins.
        engine_factory: makes the engine; it can be pickled.
        make_executor: makes what runs one task at a time.

    Raises:
        EngineUnavailableError: this machine cannot run the engine.
        ValueError: there is no criterion called `only`, or the kernel lacks its rival.
    """
    began = time.monotonic()
    seeds = tuple(range(seed, seed + (FULL_SEEDS if is_full else 1)))
    plain, missing = _read(only)
    own = dataclasses.replace(candidate.competitor, name=OWN)
    benchmark = Benchmark.from_dict({**plain, "seeds": seeds, "competitors": ["policy"]})
    benchmark = dataclasses.replace(benchmark, competitors=(own,))
    runs: dict[str, Run] = {}
    for run in benchmark.runs():
        runs.setdefault(run.key, run)  # the candidate may be its own reference
    ledger = CacheLedger("score")
    known = ledger.load(run for run in runs.values() if run.competitor != OWN)
    measured = {key: _result(known[run.name].rows) for key, run in runs.items() if run.name in known}
    todo = [run for key, run in runs.items() if key not in measured]
    late: dict[tuple[str, str], str] = {}
    errors: dict[str, str] = {}
    work = partial(
        measure_in_real_time,
        engine={**benchmark.engine, "timeout_s": _TIMEOUT_S},
        warmup=benchmark.warmup,
        retries=benchmark.retries,
        engine_factory=engine_factory,
    )

    def tell_of(number: int) -> None:
        for run in todo[number : number + 1]:  # none after the last one
            name = candidate.competitor.name if run.competitor == OWN else run.competitor
            tell(f"{len(runs) - len(todo) + number + 1}/{len(runs)} {run.scenario_name}: {name}")

    ended: set[str] = set()
    executor = make_executor(1)
    results = measure_each(work, todo, ledger, executor, chunk_s=0, is_kept=_is_kept)
    try:
        tell_of(0)
        for number, result in enumerate(results, 1):
            run = result.task
            ended.add(run.key)
            tell_of(number)
            if result.error is not None:
                raise EngineError(result.error)
            found = result.value[0]
            if "unavailable" in found:
                raise EngineUnavailableError(found["unavailable"])
            if "flaw" in found:
                late[run.scenario_name, run.competitor] = found["flaw"]
            elif "error" in found:
                # What a command did is about the candidate; all else is about this machine.
                if not (own.client and "flows[" in found["error"]):
                    raise EngineError(found["error"])
                errors[run.scenario_name] = found["error"]
                if len(errors) >= MOST_FAILURES:
                    break
            else:
                measured[run.key] = _result(result.value)
    finally:
        results.close()
        executor.shutdown(cancel_futures=True)
    if len(errors) >= MOST_FAILURES:
        why = f"not run, after {MOST_FAILURES} others: {next(iter(errors.values()))}"
        for run in todo:
            if run.key not in ended:
                errors.setdefault(run.scenario_name, why)
    return LinuxScore(
        candidate,
        Verdicts.of_runs(benchmark, measured),
        seeds,
        late=late,
        errors=errors,
        missing=missing,
        cached=len(known),
        seconds=time.monotonic() - began,
    )


def measure_in_real_time(
    run: Run, engine: Mapping[str, Any], warmup: float, retries: int, engine_factory: EngineFactory
) -> Rows:
    """Return the rows of a run with its `trace_hash`; or one row that has its `flaw`, its `error` or `unavailable`.

    A run that was late is repeated up to `retries` times, and one that failed once.
    """

    def attempt() -> Trace:
        with closing(engine_factory(**engine)) as simulator:
            return simulate(run.scenario, simulator, run.seed, run.step_ms)

    error = ""
    for _ in range(2):
        try:
            *_, trace = attempts(attempt, retries)
        except EngineUnavailableError as unavailable:
            return [{"unavailable": str(unavailable)}]
        except EngineError as failed:  # programs that failed once may have been late, too
            error = str(failed)
            continue
        if trace.flaw is not None:
            return [{"flaw": trace.flaw}]
        rows = measure(trace, after_s=warmup * run.scenario.duration_s)
        return [{"trace_hash": trace.hash, **row} for row in rows]
    return [{"error": error}]


def _is_kept(run: Run, rows: Rows) -> bool:
    """Return whether the user's cache has a run: a reference's, if nothing is wrong with it."""
    return run.competitor != OWN and "trace_hash" in rows[0]


def _result(rows: Rows) -> dict[str, Any]:
    """Return the rows as a benchmark has them."""
    return {"trace_hash": rows[0]["trace_hash"], "rows": rows}


def _read(only: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the benchmark without competitors, in plain types, and the suites that the kernel lacks a rival for."""
    text = (resources.files("bbrgym.conf") / "experiment" / "linux_score.yaml").read_text(encoding="utf-8")
    plain = yaml.safe_load(text)
    suites: dict[str, Any] = plain["benchmark"]["suites"]
    if only is not None:
        check_name("criterion", only, suites)
        suites = {only: suites[only]}
    missing = {}
    for name, suite in suites.items():
        named = [flow.get("algorithm") for scenario in suite["scenarios"].values() for flow in scenario["flows"]]
        named += [criterion.get("than") for criterion in suite["criteria"]]
        kernels = {str(one).removeprefix(LINUX_PREFIX) for one in named if str(one).startswith(LINUX_PREFIX)}
        if lacking := sorted(kernels - {*linux_controls()}):
            missing[name] = f"the kernel has no {lacking[0]}: modprobe tcp_{lacking[0]}, as root"
            if name == only:
                raise ValueError(missing[name])
            suites = suites | {name: {**suite, "scenarios": [], "criteria": [], "needs": missing[name]}}
    engine = {"name": "linux", **plain["engine"]}
    return {"name": "linux_score", "suites": suites, "engine": engine, "warmup": plain["benchmark"]["warmup"]}, missing
