"""The fitness of candidates of a search: policies that drive all agent flows of scenarios."""

from __future__ import annotations

import dataclasses
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from bbrgym._native import took_part
from bbrgym.agents.config import FitnessConfig
from bbrgym.envs.engine import EngineError, whole_nanoseconds
from bbrgym.envs.engine_batch import EngineBatch, RolloutBatch
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.reward import CONDITIONS, RewardContext, conditions_of
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.sharing import Sharing
from bbrgym.envs.sharing_meter import SharingMeter
from bbrgym.executors import ExecutorConfig, TaskExecutor, make_executor, run_in_chunks

Array = npt.NDArray[np.float64]

_AT_ONCE: Final = 256
"""Runs at once in this process: enough for many cores, and little memory."""
LEAST_BEST: Final = 0.1
"""What a yardstick counts as, at least."""


class Runs(ABC):
    """Runs every candidate in every scenario.

    Args:
        config: its `fitness` and `warmup` are used, and in `measure` its `tail` and `tail_weight`.
        windows: parts of the same length of each episode, whose outcomes are apart. There is no warm-up then. 1: the
            outcome of the whole episode.
    """

    def __init__(self, config: FitnessConfig, windows: int = 1) -> None:
        self._config = config
        self._windows = windows

    def measure(
        self,
        candidates: Sequence[bytes],
        scenarios: Sequence[Scenario],
        seeds: Sequence[int],
        best: Array | None = None,
    ) -> tuple[Array, int]:
        """Run the candidates.

        Args:
            candidates: policies as C++ runs them.
            scenarios: with agent flows, which run the policies.
            seeds: of the scenarios, the same for every candidate.
            best: what the yardstick reaches in each scenario (`relative`); None for the outcome itself.

        Returns:
            The fitness of each candidate over the scenarios (`over_scenarios`), and how many decisions they made
            together.
        """
        order = _fast_first(scenarios)
        outcomes, decisions = self._run(
            candidates, [scenarios[index] for index in order], [seeds[index] for index in order]
        )
        outcomes = outcomes[..., 0]
        if best is not None:
            outcomes = relative(outcomes, best[order, np.newaxis])
        return over_scenarios(outcomes, self._config), decisions

    def outcomes(self, candidates: Sequence[bytes], scenarios: Sequence[Scenario], seeds: Sequence[int]) -> Array:
        """Return the outcome of each candidate in each scenario, shape (scenarios, candidates, windows)."""
        order = _fast_first(scenarios)
        found, _ = self._run(candidates, [scenarios[index] for index in order], [seeds[index] for index in order])
        outcomes = np.empty_like(found)
        outcomes[order] = found
        return outcomes

    @abstractmethod
    def close(self) -> None:
        """End the engines, or the workers."""

    @abstractmethod
    def _run(
        self, candidates: Sequence[bytes], scenarios: Sequence[Scenario], seeds: Sequence[int]
    ) -> tuple[Array, int]:
        """Return the outcomes, shape (scenarios, candidates, windows), and how many decisions were made."""


class CandidateRuns(Runs):
    """All runs at once on all cores of this machine: episodes without a step of Python.

    Args:
        spec: of the environment, with the engine "native".
        config: see `Runs`.
        runs: how many there are at most in a call.
        windows: see `Runs`.
    """

    def __init__(self, spec: EpisodeSpec, config: FitnessConfig, runs: int, windows: int = 1) -> None:
        super().__init__(config, windows)
        self._spec = spec
        engines = spec.make_engine_batch(runs)
        assert isinstance(engines, RolloutBatch)  # FitnessConfig.check_measures
        self._engines: RolloutBatch = engines

    def close(self) -> None:
        """See `Runs`."""
        self._engines.close()

    def _run(
        self, candidates: Sequence[bytes], scenarios: Sequence[Scenario], seeds: Sequence[int]
    ) -> tuple[Array, int]:
        drawn, count = scenarios, len(candidates)
        meter = self._make_meter(drawn, count)
        engines = self._engines
        engines.begin_resets(
            indices=range(len(drawn) * count),
            scenarios=[scenario for scenario in map(_with_policies, drawn) for _ in candidates],
            seeds=[seed for seed in seeds for _ in candidates],
            steps_ms=[step_ms for step_ms in map(meter.step_ms, drawn) for _ in candidates],
            policies=[dict.fromkeys(scenario.agent_flows, policy) for scenario in drawn for policy in candidates],
        )
        engines.finish()
        running = np.arange(len(drawn) * count)
        while len(running):
            engines.begin_steps(running)
            engines.finish()
            meter.read(engines, running)
            running = running[~engines.is_over[running]]
        intervals_s = np.array([whole_nanoseconds(self._spec.interval_ms(scenario)) / 1e9 for scenario in drawn])
        times_s = engines.time_s[: len(drawn) * count]
        steps = np.ceil(times_s / intervals_s.repeat(count) - 1e-6)  # as an environment counts them
        return meter.fitness().reshape(-1, count, self._windows), int(steps.sum()) * self._spec.agents

    def _make_meter(self, scenarios: Sequence[Scenario], repeats: int) -> _Meter:
        if self._config.fitness == "reward":
            return _RewardMeter(scenarios, repeats, self._spec, self._windows)
        meter = _HeldPowerMeter if self._config.fitness == "held_power" else _FairPowerMeter
        repeated = [one for one in scenarios for _ in range(repeats)]
        if self._windows == 1:
            return meter(repeated, self._config.warmup)
        edges = np.linspace(0.0, 1.0, self._windows + 1).tolist()
        return _Windows([meter(repeated, begin, end) for begin, end in itertools.pairwise(edges)])


class ExecutorRuns(Runs):
    """Scenarios on the workers of an executor (`bbrgym.executors`), each of which has one core.

    Args:
        spec: of the environment, with the engine "native".
        config: see `Runs`; its `executor` is started by the first call.
        windows: see `Runs`.
    """

    def __init__(self, spec: EpisodeSpec, config: FitnessConfig, windows: int = 1) -> None:
        super().__init__(config, windows)
        self._spec = dataclasses.replace(spec, engine_options={**spec.engine_options, "threads": 1})
        self._executor: TaskExecutor | None = None

    def close(self) -> None:
        """See `Runs`."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def each(
        self, candidates: Sequence[bytes], scenarios: Sequence[Scenario], seeds: Sequence[int]
    ) -> Generator[tuple[int, list[list[float]], int]]:
        """Yield the index of each scenario once it has been run, its outcomes, and how many decisions were made.

        Outcomes have the shape (candidates, windows).

        Raises:
            EngineError: a scenario could not be run.
        """
        config = ExecutorConfig.of(self._config.executor)
        if self._executor is None:
            self._executor = make_executor(config)
        work = _Work(self._spec, dataclasses.replace(self._config, executor=None), tuple(candidates), self._windows)
        tasks = list(zip(range(len(scenarios)), scenarios, seeds, strict=True))
        results = run_in_chunks(work, tasks, self._executor, cost_s=_cost_s, chunk_s=config.chunk_s)
        with closing(results):
            for result in results:
                if result.error is not None:
                    raise EngineError(f"a scenario could not be run on the executor: {result.error}")
                yield result.task[0], *result.value

    def _run(
        self, candidates: Sequence[bytes], scenarios: Sequence[Scenario], seeds: Sequence[int]
    ) -> tuple[Array, int]:
        outcomes, decisions = np.empty((len(scenarios), len(candidates), self._windows)), 0
        with closing(self.each(candidates, scenarios, seeds)) as results:
            for index, row, made in results:
                outcomes[index] = row
                decisions += made
        return outcomes, decisions


_Task = tuple[int, Scenario, int]
"""An index, a scenario and its seed."""


@dataclass(frozen=True)
class _Work:
    """Runs a scenario with each candidate, on a worker."""

    spec: EpisodeSpec
    config: FitnessConfig
    candidates: tuple[bytes, ...]
    windows: int

    def __call__(self, task: _Task) -> tuple[list[list[float]], int]:
        _, scenario, seed = task
        with closing(CandidateRuns(self.spec, self.config, len(self.candidates), self.windows)) as runs:
            outcomes, decisions = runs._run(self.candidates, [scenario], [seed])
        return outcomes[0].tolist(), decisions


def _cost_s(task: _Task) -> float:
    _, scenario, _ = task
    return 1e-3 * scenario.rate_mbps * scenario.duration_s


def _fast_first(scenarios: Sequence[Scenario]) -> list[int]:
    """Return the order in which no thread waits long for the last one: fast links have the most packets."""
    return sorted(range(len(scenarios)), key=lambda i: -scenarios[i].rate_mbps * scenarios[i].duration_s)


def each_outcome(
    spec: EpisodeSpec,
    config: FitnessConfig,
    candidates: Sequence[bytes],
    scenarios: Sequence[Scenario],
    seeds: Sequence[int],
    windows: int,
) -> Generator[tuple[int, Array]]:
    """Yield the index of each scenario once it has been run, and its outcomes, shape (candidates, windows).

    Raises:
        EngineError: a scenario could not be run.
    """
    if config.executor is not None:
        with (
            closing(ExecutorRuns(spec, config, windows)) as there,
            closing(there.each(candidates, scenarios, seeds)) as results,
        ):
            for index, row, _ in results:
                yield index, np.array(row)
        return
    at_once = max(1, _AT_ONCE // len(candidates))
    for first in range(0, len(scenarios), at_once):
        part = slice(first, first + at_once)
        with closing(CandidateRuns(spec, config, len(scenarios[part]) * len(candidates), windows)) as runs:
            yield from enumerate(runs.outcomes(candidates, scenarios[part], seeds[part]), first)


def make_runs(spec: EpisodeSpec, config: FitnessConfig, runs: int) -> Runs:
    """Return what runs at most so many candidates times scenarios in a call, where the configuration says."""
    return CandidateRuns(spec, config, runs) if config.executor is None else ExecutorRuns(spec, config)


def relative(outcomes: Array, best: Array) -> Array:
    """Return outcomes in relation to what a yardstick reaches.

    Where it reaches next to nothing, so that the ratio would say nothing either, it counts as `LEAST_BEST`.
    """
    return outcomes / np.maximum(best, LEAST_BEST)


def over_scenarios(outcomes: Array, config: FitnessConfig) -> Array:
    """Return the fitness of candidates from their outcomes, shape (scenarios, candidates).

    It is the mean over the scenarios, and `tail_weight` times the mean over the worst of them, of which there are the
    fraction `tail`: the conditional value at risk (Rockafellar and Uryasev 2000).
    """
    mean: Array = outcomes.mean(axis=0)
    return mean + config.tail_weight * worst(outcomes, config.tail) if config.tail_weight else mean


def worst(outcomes: Array, tail: float) -> Array:
    """Return the mean of each candidate over the worst fraction of its scenarios, at least one."""
    count = max(1, math.ceil(tail * len(outcomes) - 1e-9))
    mean: Array = np.sort(outcomes, axis=0)[:count].mean(axis=0)
    return mean


def delay_weight(scenario: Scenario) -> float:
    """Return how often the delay counts in the fair power of a scenario: the mean of its agents' weights in rewards."""
    agents = [flow for flow in scenario.agent_flows if not scenario.flows[flow].is_absent]
    return float(conditions_of(scenario, agents)[:, _DELAY_WEIGHT].mean())


def _with_policies(scenario: Scenario) -> Scenario:
    """Return the scenario in which policies drive the agent flows, which keep everything else that they have."""
    flows = (
        dataclasses.replace(flow, algorithm="policy") if flow.algorithm == "agent" else flow for flow in scenario.flows
    )
    return dataclasses.replace(scenario, flows=tuple(flows))


class _Meter(Protocol):
    """Measures the fitness of runs: each scenario so often, one run after the other."""

    def step_ms(self, scenario: Scenario) -> float:
        """Return how often it reads the rows of a scenario, in ms."""
        ...

    def read(self, engines: EngineBatch, running: npt.NDArray[np.intp]) -> None:
        """Read the rows of the last step of these runs."""
        ...

    def fitness(self) -> Array:
        """Return the fitness of each run, when all are over, shape (runs,), or (runs, windows)."""
        ...


class _FairPowerMeter(SharingMeter):
    """Fair power (`Sharing.fair_power`) of all flows of the link, competitors included.

    The delay counts as the agents prefer (`delay_weight`), once by default.
    """

    def __init__(self, scenarios: Sequence[Scenario], warmup: float, until: float = 1.0) -> None:
        super().__init__(scenarios, warmup, until)
        weights = {scenario: delay_weight(scenario) for scenario in dict.fromkeys(scenarios)}
        self._delay_weights = [weights[scenario] for scenario in scenarios]

    def fitness(self) -> Array:
        return np.array([self._judge(index, run) for index, run in enumerate(self.sharings())])

    def _judge(self, index: int, run: Sharing) -> float:
        """Return the fitness of the run of this index."""
        return run.fair_power_at(self._delay_weights[index])


class _HeldPowerMeter(_FairPowerMeter):
    """Fair power times the least share of an agent, in fair shares, at most 1.

    Jain's index hardly falls while a flow loses the first tenth of its share; this does, and only for agents.
    """

    def __init__(self, scenarios: Sequence[Scenario], warmup: float, until: float = 1.0) -> None:
        super().__init__(scenarios, warmup, until)
        masks = {
            scenario: np.isin(np.flatnonzero(~np.isnan(fair.mbps)), scenario.agent_flows)
            for scenario, fair in dict(zip(scenarios, self._shares, strict=True)).items()
        }
        self._agents = [masks[scenario] for scenario in scenarios]

    def _judge(self, index: int, run: Sharing) -> float:
        return super()._judge(index, run) * float(run.shares[self._agents[index]].min(initial=1.0))


class _Windows(_Meter):
    """One meter per window, from the first on."""

    def __init__(self, meters: Sequence[_FairPowerMeter]) -> None:
        self._meters = meters

    def step_ms(self, scenario: Scenario) -> float:
        return 1e3 * scenario.duration_s / len(self._meters)

    def read(self, engines: EngineBatch, running: npt.NDArray[np.intp]) -> None:
        for meter in self._meters:
            meter.read(engines, running)

    def fitness(self) -> Array:
        return np.stack([meter.fitness() for meter in self._meters], axis=1)


class _RewardMeter(_Meter):
    """The mean reward per step of the agent flows, over all steps in which they take part."""

    def __init__(self, scenarios: Sequence[Scenario], repeats: int, spec: EpisodeSpec, windows: int) -> None:
        self._spec = spec
        self._windows_s = np.repeat([scenario.duration_s / windows for scenario in scenarios], repeats)
        self._flows = np.array([each.agent_flows for each in scenarios], dtype=np.int64).repeat(repeats, axis=0)
        conditions = (conditions_of(each, each.agent_flows) for each in scenarios)
        self._conditions = np.concatenate([of_flows for each in conditions for of_flows in [each] * repeats])
        self._total, self._count = np.zeros((2, len(self._flows), windows))

    def step_ms(self, scenario: Scenario) -> float:
        return self._spec.interval_ms(scenario)

    def read(self, engines: EngineBatch, running: npt.NDArray[np.intp]) -> None:
        flows = self._flows
        context = RewardContext(engines.flows, engines.link, flows.ravel(), self._conditions)
        rewards = self._spec.reward.evaluate(context).reshape(flows.shape)
        part = np.take_along_axis(took_part(engines.flows), flows, axis=1)
        ends = np.ceil(engines.time_s[running] / self._windows_s[running] - 1e-6).astype(np.int64)
        window = np.clip(ends - 1, 0, self._total.shape[1] - 1)
        self._total[running, window] += (rewards * part).sum(axis=1)[running]
        self._count[running, window] += part.sum(axis=1)[running]

    def fitness(self) -> Array:
        return self._total / np.maximum(self._count, 1)


_DELAY_WEIGHT = CONDITIONS.index("delay_weight")
