"""Shards in memory: the steps of flows, cut out of episodes, and their hash."""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bbrgym._native import took_part
from bbrgym.benchmark.atlas.behaviour import Driver, Episode, run
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.episode_spec import EpisodeSpec

AT_ONCE: Final = 16
"""Episodes that run side by side; their rows take a few megabytes each."""

_SCENARIOS, _NOISE = range(2)
"""What random numbers are for: the second entry of a generator's seed, after the seed of the data set."""

Digests = Mapping[str, str]
"""SHA-256 of each array of a shard, by its name."""


@dataclass(frozen=True)
class Trajectories:
    """A shard of a level: N flows, one after the other, with S steps in all.

    A flow that takes T steps has T + 1 observations, the last one after its last step.

    Attributes:
        episodes: of each flow: which episode of the data set, shape (N,). It has the same scenario in all levels.
        flows: which flow of the scenario, shape (N,).
        behaviours: which behaviour of the level, shape (N,).
        first_steps: the step of its episode with which it begins, shape (N,).
        lengths: how many steps it takes, shape (N,).
        observations: shape (S + N, features), float32.
        actions: in [-1, 1], shape (S, 2), float32.
        rewards: shape (S,), float64.
        terminated: whether the flow had delivered all its bytes in this step, shape (S,).
        truncated: whether it ended in this step otherwise: by its `stop_s` or with the episode, shape (S,).
    """

    episodes: npt.NDArray[np.int64]
    flows: npt.NDArray[np.int64]
    behaviours: npt.NDArray[np.int64]
    first_steps: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    observations: npt.NDArray[np.float32]
    actions: npt.NDArray[np.float32]
    rewards: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return its arrays by their names."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True)
class Yardsticks:
    """A shard of the yardsticks: E scenarios, and what each of Y behaviours reaches in them.

    Attributes:
        episodes: which episodes of the data set, shape (E,).
        seeds: of the engine, shape (E,).
        scenarios: as JSON, E texts.
        rewards: mean reward per decision of the agent flows, shape (E, Y), float64.
    """

    episodes: npt.NDArray[np.int64]
    seeds: npt.NDArray[np.int64]
    scenarios: tuple[str, ...]
    rewards: npt.NDArray[np.float64]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return its arrays by their names, and the scenarios as bytes."""
        text = "\n".join(self.scenarios).encode()
        return {
            "episodes": self.episodes,
            "seeds": self.seeds,
            "scenarios": np.frombuffer(text, np.uint8),
            "rewards": self.rewards,
        }


def digests(shard: Trajectories | Yardsticks) -> Digests:
    """Return the hash of each array: of its name, type, shape and little-endian bytes, whatever file it is in."""
    found = {}
    for name, array in shard.arrays().items():
        plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        digest = hashlib.sha256(f"{name} {plain.dtype.str} {plain.shape}\n".encode())
        digest.update(plain.tobytes())
        found[name] = digest.hexdigest()
    return found


def shard_hash(of_arrays: Digests) -> str:
    """Return the hash of a shard from those of its arrays."""
    text = "".join(f"{name} {digest}\n" for name, digest in sorted(of_arrays.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def make_trajectories(
    spec: EpisodeSpec, kind: str, drivers: Sequence[Driver], seed: int, episodes: Sequence[int], least_steps: int
) -> Trajectories:
    """Make a shard of a level.

    Args:
        spec: of the environment.
        kind: the level, which decides the noise.
        drivers: what acts; they take turns from episode to episode.
        seed: of the data set.
        episodes: which episodes.
        least_steps: flows with fewer steps are left out.

    Raises:
        EngineError: an engine failed.
        ValueError: an algorithm has no actions.
    """
    parts: dict[int, list[_Part]] = {}
    for turn, driver in enumerate(drivers):
        own = [index for index in episodes if index % len(drivers) == turn]
        for index, one in _run(spec, kind, driver, seed, own):
            parts[index] = _cut(spec, one, least_steps, index, turn)
            if driver.behaviour.algorithm is not None and np.isnan(one.actions).all():
                raise ValueError(
                    f"level {kind}: {driver.behaviour.algorithm} has no gains over a model of the path, so no actions; "
                    "it can be a yardstick"
                )
    return _join([part for index in episodes for part in parts[index]], len(spec.observation.features))


def make_yardsticks(
    spec: EpisodeSpec, drivers: Sequence[Driver], seed: int, episodes: Sequence[int], least_steps: int
) -> Yardsticks:
    """Make a shard of the yardsticks; the arguments are those of `make_trajectories`.

    Raises:
        EngineError: an engine failed.
    """
    drawn = [spec.draw(_rng(seed, _SCENARIOS, index)) for index in episodes]
    rewards = np.full((len(episodes), len(drivers)), np.nan)
    for column, driver in enumerate(drivers):
        for row, (_, one) in enumerate(_run(spec, "yardsticks", driver, seed, episodes)):
            rewards[row, column] = mean_reward(spec, one, least_steps)
    return Yardsticks(
        episodes=np.array(episodes, np.int64),
        seeds=np.array([engine_seed for _, engine_seed in drawn], np.int64),
        scenarios=tuple(json.dumps(scenario.to_dict(), sort_keys=True) for scenario, _ in drawn),
        rewards=rewards,
    )


def mean_reward(spec: EpisodeSpec, one: Episode, least_steps: int) -> float:
    """Return the mean reward over all steps of all agent flows of an episode that are not left out; NaN without one."""
    rewards = _rewards(spec, one)
    spans = list(_spans(one, least_steps))
    steps = sum(span.end - span.first for span in spans)
    # Rounded once, so that the order of the sum, which is the processor's, is no part of it.
    total = math.fsum(value for span in spans for value in rewards[span.first : span.end, span.agent].tolist())
    return total / steps if steps else float("nan")


class _Span(NamedTuple):
    """The steps in which an agent flow takes part."""

    agent: int
    first: int
    end: int


def _spans(one: Episode, least_steps: int) -> Iterator[_Span]:
    part = took_part(np.ascontiguousarray(one.rows))
    for agent, flow in enumerate(one.scenario.agent_flows):
        steps = np.flatnonzero(part[:, flow])
        if len(steps) and steps[-1] + 1 - steps[0] >= least_steps:
            yield _Span(agent, int(steps[0]), int(steps[-1]) + 1)


class _Part(NamedTuple):
    """What one flow adds to a shard."""

    episode: int
    flow: int
    behaviour: int
    first_step: int
    observations: npt.NDArray[np.float32]
    actions: npt.NDArray[np.float32]
    rewards: npt.NDArray[np.float64]
    is_complete: bool


def _cut(spec: EpisodeSpec, one: Episode, least_steps: int, episode: int, behaviour: int) -> list[_Part]:
    rewards = _rewards(spec, one)
    parts = []
    for agent, first, end in _spans(one, least_steps):
        flow = one.scenario.agent_flows[agent]
        has_action = ~np.isnan(one.actions[first:end, agent]).any(axis=1)
        if not has_action.all():  # of an algorithm, until it knows the path
            first += end - first if not has_action.any() else int(np.flatnonzero(~has_action)[-1]) + 1
            if end - first < least_steps:
                continue
        size_bytes = one.scenario.flows[flow].size_bytes
        received = float(one.rows[:, flow, _RECEIVED].sum())
        parts.append(
            _Part(
                episode=episode,
                flow=flow,
                behaviour=behaviour,
                first_step=first,
                observations=one.observations[first : end + 1, agent].copy(),
                actions=one.actions[first:end, agent].copy(),
                rewards=rewards[first:end, agent].copy(),
                is_complete=size_bytes is not None and received >= size_bytes,
            )
        )
    return parts


def _join(parts: Sequence[_Part], features: int) -> Trajectories:
    lengths = np.array([len(part.rewards) for part in parts], np.int64)
    ends = lengths.cumsum() - 1
    is_complete = np.array([part.is_complete for part in parts], np.bool_)
    terminated, truncated = np.zeros((2, int(lengths.sum())), np.bool_)
    terminated[ends], truncated[ends] = is_complete, ~is_complete
    nothing = np.zeros((0, features), np.float32)
    return Trajectories(
        episodes=np.array([part.episode for part in parts], np.int64),
        flows=np.array([part.flow for part in parts], np.int64),
        behaviours=np.array([part.behaviour for part in parts], np.int64),
        first_steps=np.array([part.first_step for part in parts], np.int64),
        lengths=lengths,
        observations=np.concatenate([nothing, *(part.observations for part in parts)]),
        actions=np.concatenate([np.zeros((0, 2), np.float32), *(part.actions for part in parts)]),
        rewards=np.concatenate([np.zeros(0), *(part.rewards for part in parts)]),
        terminated=terminated,
        truncated=truncated,
    )


def _run(
    spec: EpisodeSpec, kind: str, driver: Driver, seed: int, episodes: Sequence[int]
) -> Iterator[tuple[int, Episode]]:
    """Yield episodes, a few of which are in memory at a time."""
    for begin in range(0, len(episodes), AT_ONCE):
        some = episodes[begin : begin + AT_ONCE]
        draws = [_rng(seed, _SCENARIOS, index) for index in some]
        noises = [_rng(seed, _NOISE, index, zlib.crc32(kind.encode())) for index in some]
        yield from zip(some, run(driver, spec, draws, noises), strict=True)


def _rewards(spec: EpisodeSpec, one: Episode) -> npt.NDArray[np.float64]:
    """Return the rewards of the agent flows in every step, shape (T, K)."""
    return spec.reward.over_steps(one.scenario, one.scenario.agent_flows, one.rows, one.link)


def _rng(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


_RECEIVED: Final = FLOW_COLUMNS.index("received_bytes")
