"""What acts in the episodes of a data set: an action, a policy or an algorithm, and what it does there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bbrgym._controllers import PolicyNetwork
from bbrgym.baselines import registry
from bbrgym.baselines.policy_file import REFERENCE, Network, StoredPolicy, content_hash, read_policy
from bbrgym.checks import check_keys, check_name, check_number
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.engine import EngineError
from bbrgym.envs.episode import Episodes
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.observation import preference, tabulate
from bbrgym.envs.scenario import Scenario

Pair = tuple[float, float]

SHIPPED: Final = ("reference", "linear")
"""Policies of the package whose actions are in packets above one BDP."""


@dataclass(frozen=True)
class Behaviour:
    """What drives all agent flows of an episode: one of `action`, `policy` and `algorithm`.

    Noise is uniform, because it is then made of additions and multiplications alone.

    Args:
        action: the same in every step.
        policy: the name of a shipped policy (`SHIPPED`), or a policy's folder, relative to that of the manifest.
        algorithm: of `bbrgym.controllers()`: it runs in the place of the agents (`run_algorithm`).
        noise: largest difference from the action in a step, of each of its two numbers, drawn in every step.
        offset: the same, drawn once per flow and episode. What lasts changes the queue and the shares of flows;
            noise of single steps hardly does.

    Raises:
        ValueError: not one of the three is given, or a value is not valid.
    """

    action: Pair | None = None
    policy: str | None = None
    algorithm: str | None = None
    noise: Pair = (0.0, 0.0)
    offset: Pair = (0.0, 0.0)

    def __post_init__(self) -> None:
        given = [name for name in ("action", "policy", "algorithm") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of action, policy and algorithm, got {', '.join(given) or 'none'}")
        for name, least, most in (("action", -1.0, 1.0), ("noise", 0.0, 2.0), ("offset", 0.0, 2.0)):
            if (value := getattr(self, name)) is not None or name != "action":
                object.__setattr__(self, name, _pair(name, value, least=least, most=most))
        if not isinstance(self.policy or "", str):
            raise ValueError(f"policy must be a name or a folder, got {self.policy!r}")
        if self.algorithm is not None:
            check_name("algorithm", self.algorithm, [name for name in registry.controllers() if name != "agent"])
            if self.noise != (0.0, 0.0) or self.offset != (0.0, 0.0):
                raise ValueError(f"noise and offset are for an action or a policy, not for {self.algorithm}")

    @classmethod
    def of(cls, what: str, plain: object) -> Behaviour:
        """Make one of a mapping; errors begin with `what`."""
        check_keys(what, plain, [field.name for field in dataclasses.fields(cls)])
        assert isinstance(plain, Mapping)
        try:
            return cls(**plain)
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from None

    @property
    def text(self) -> str:
        """What it is called in tables: `bbr`, `reference`, `(0.25, 0)`; noise follows."""
        base = self.algorithm or self.policy or "({:g}, {:g})".format(*(self.action or ()))
        parts = [
            f"{name} {value[0]:g}" if value[0] == value[1] else f"{name} {value[0]:g}, {value[1]:g}"
            for name, value in (("noise", self.noise), ("offset", self.offset))
            if any(value)
        ]
        return " ± ".join([base, *parts])

    def network(self, spec: EpisodeSpec, folder: Path) -> Network | None:
        """Return what maps observations to actions; None for an algorithm.

        Args:
            spec: of the environment, whose observation has at least the features of the policy.
            folder: that of the manifest.

        Raises:
            FileNotFoundError: there is no such policy.
            ValueError: the policy has another action, step or history, or features that `spec` lacks.
        """
        inputs = len(spec.observation.features)
        if self.action is not None:
            return Network(((np.zeros((2, inputs), np.float32), np.array(self.action, np.float32)),))
        if self.policy is None:
            return None
        stored = read_policy(REFERENCE.with_name(self.policy) if self.policy in SHIPPED else folder / self.policy)
        own = EpisodeSpec.from_config(stored.spec)
        for name in ("action", "step_ms", "step_rtts"):
            if getattr(own, name) != getattr(spec, name):
                raise ValueError(
                    f"policy {self.policy!r} has another {name} than the data set: {getattr(own, name)!r} "
                    f"and {getattr(spec, name)!r}"
                )
        lacking = [name for name in own.observation.features if name not in spec.observation.features]
        if lacking or own.observation.history != 1:
            missing = f"observes {', '.join(lacking)}" if lacking else f"has a history of {own.observation.history}"
            raise ValueError(f"policy {self.policy!r} {missing}, which the data set lacks")
        places = [spec.observation.features.index(name) for name in own.observation.features]
        return stored.network.widened(places, inputs)


@dataclass(frozen=True)
class Driver:
    """A behaviour that is ready to run anywhere, without files.

    Attributes:
        behaviour: what it is.
        network: see `Behaviour.network`.
    """

    behaviour: Behaviour
    network: Network | None

    def identity(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return what decides what it does: plain types, with the content hash of a policy in place of its path."""
        plain = dataclasses.asdict(self.behaviour)
        if self.behaviour.policy is not None:
            assert self.network is not None
            plain["policy"] = content_hash(spec, self.network.kind, self.network.to_arrays())
        return plain


@dataclass(frozen=True)
class Episode:
    """What was measured in an episode of T steps with K agent flows, F flows in all.

    Attributes:
        scenario: with agents.
        rows: of all flows, shape (T, F, `FLOW_COLUMNS`).
        link: shape (T, `LINK_COLUMNS`).
        observations: before each step and after the last, shape (T + 1, K, features), float32.
        actions: in [-1, 1], shape (T, K, 2), float32; NaN where an algorithm has none.
    """

    scenario: Scenario
    rows: npt.NDArray[np.float64]
    link: npt.NDArray[np.float64]
    observations: npt.NDArray[np.float32]
    actions: npt.NDArray[np.float32]


def run(
    driver: Driver, spec: EpisodeSpec, draws: Sequence[np.random.Generator], noises: Sequence[np.random.Generator]
) -> list[Episode]:
    """Run a driver in some episodes.

    Args:
        driver: what acts.
        spec: of the environment.
        draws: one per episode: draws its scenario and its engine's seed (`EpisodeSpec.draw`).
        noises: one per episode, for noise.

    Raises:
        EngineError: an engine failed.
    """
    if driver.behaviour.algorithm is not None:
        return run_algorithm(driver.behaviour.algorithm, spec, draws)
    assert driver.network is not None
    compiled = PolicyNetwork(StoredPolicy(spec.policy_config(), driver.network).to_bytes())
    with closing(Episodes(spec, len(draws))) as env:
        env.begin_resets(np.arange(len(draws)), draws)
        env.finish_resets()
        noise = [_noise(driver.behaviour, rng, env.most_steps, spec.agents) for rng in noises]
        rollout = env.begin_rollout(np.concatenate(noise, axis=1))
        env.run(rollout, compiled)
        scenarios = env.scenarios
    arrays = rollout.arrays
    found = []
    for index, scenario in enumerate(scenarios):
        made, flows = int(arrays.next_steps[index]), slice(index * spec.agents, (index + 1) * spec.agents)
        found.append(
            Episode(
                scenario=scenario,
                rows=arrays.flows[:made, index, : len(scenario.flows)],
                link=arrays.link[:made, index],
                observations=arrays.observations[: made + 1, flows],
                actions=np.clip(arrays.actions[:made, flows], -1.0, 1.0),
            )
        )
    return found


def run_algorithm(algorithm: str, spec: EpisodeSpec, draws: Sequence[np.random.Generator]) -> list[Episode]:
    """Run an algorithm in the place of the agents; the arguments are those of `run`.

    The observations are what an agent would have seen with the gains that were in force. The action of a step is the
    one for the gains in force at its end, or the nearest within the bounds.

    Raises:
        EngineError: an engine failed.
    """
    scenarios = [spec.draw(rng) for rng in draws]
    count = len(scenarios)
    with closing(spec.make_engine_batch(count)) as engines:
        engines.begin_resets(
            indices=range(count),
            scenarios=[scenario.with_agents_as(algorithm) for scenario, _ in scenarios],
            seeds=[seed for _, seed in scenarios],
            steps_ms=[spec.interval_ms(scenario) for scenario, _ in scenarios],
        )
        _check(engines.finish())
        rows, links = [], []
        steps = np.zeros(count, np.int64)
        running = np.arange(count)
        while len(running):
            engines.begin_steps(running)
            _check(engines.finish())
            rows.append(engines.flows.copy())
            links.append(engines.link.copy())
            steps[running] += 1
            running = running[~engines.is_over[running]]
    of_flows, of_links = np.array(rows), np.array(links)
    return [
        _as_agent(spec, scenario, of_flows[:made, index, : len(scenario.flows)], of_links[:made, index])
        for index, ((scenario, _), made) in enumerate(zip(scenarios, steps, strict=True))
    ]


def _as_agent(
    spec: EpisodeSpec, scenario: Scenario, rows: npt.NDArray[np.float64], link: npt.NDArray[np.float64]
) -> Episode:
    """Return an episode of an algorithm with observations and actions of an agent."""
    agents = list(scenario.agent_flows)
    steps, flows = len(rows), len(agents)
    own = np.ascontiguousarray(rows[:, agents]).reshape(steps * flows, -1)
    gains = own[:, _GAINS].T.copy()
    bdp = own[:, _BDP].copy()
    has_action = np.isfinite(gains).all(axis=0) & (gains > 0).all(axis=0) & np.isfinite(bdp)
    actions = np.full((steps * flows, 2), np.nan, np.float32)
    if has_action.any():
        actions[has_action] = spec.action.all_actions(gains[:, has_action], bdp[has_action])
    preferences = np.tile([preference(scenario, flow) for flow in agents], steps)
    seen = spec.observation.evaluate(tabulate(own, gains, preferences)).reshape(steps, flows, -1)
    first = np.tile(spec.observation.neutral, (1, flows, 1))
    return Episode(
        scenario=scenario,
        rows=rows,
        link=link,
        observations=np.concatenate([first, seen]),
        actions=actions.reshape(steps, flows, 2),
    )


def _noise(behaviour: Behaviour, rng: np.random.Generator, steps: int, agents: int) -> npt.NDArray[np.float32]:
    """Return what is added to the actions of an episode, shape (steps, agents, 2)."""
    of_flows = (2.0 * rng.random((1, agents, 2)) - 1.0) * behaviour.offset
    of_steps = (2.0 * rng.random((steps, agents, 2)) - 1.0) * behaviour.noise
    return (of_flows + of_steps).astype(np.float32)


def _check(errors: Mapping[int, EngineError]) -> None:
    for error in errors.values():
        raise error


def _pair(name: str, value: object, *, least: float, most: float) -> Pair:
    """Return one number for both gains, or two, as two."""
    values = [value, value] if isinstance(value, int | float) else value
    if not isinstance(values, list | tuple) or len(values) != 2:
        raise ValueError(f"{name} must be a number or two, got {value!r}")
    for one in values:
        check_number(name, one, at_least=least, at_most=most)
    return float(values[0]), float(values[1])


_GAINS: Final = [FLOW_COLUMNS.index("cwnd_gain"), FLOW_COLUMNS.index("pacing_gain")]
_BDP: Final = FLOW_COLUMNS.index("bdp_packets")
