"""The PettingZoo environment of several agent flows, which join and leave as agents."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import seeding

from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.episode import Episodes, EpisodeSpec, StepResult
from bbrgym.envs.info import Info
from bbrgym.envs.render import check_render_mode, draw_episode, flow_text, link_text
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.extras import optional

with optional("the environment of several agents"):
    from pettingzoo import ParallelEnv  # type: ignore[import-untyped]

Array = npt.NDArray[np.float64]

TWO_AGENTS_SCENARIO: Final = Scenario(
    rate_mbps=12.0,
    buffer_bdp=1.0,
    duration_s=20.0,
    flows=(Flow("agent", rtt_ms=50.0), Flow("agent", rtt_ms=50.0, start_s=5.0, stop_s=15.0), Flow("bbr", rtt_ms=50.0)),
)
"""The default: an agent and a BBR flow of the same RTT on a 12 Mbit/s link for 20 s; another agent from 5 s to 15 s."""

FLOW_STATE: Final[tuple[str, ...]] = ("base_rtt_ms", *FLOW_COLUMNS)
"""What the state has of each flow: its RTT without a queue, and its row of the step."""

LINK_STATE: Final[tuple[str, ...]] = ("buffer_packets", "loss", *LINK_COLUMNS)
"""What the state has of the link: its buffer, its probability of random loss, and its row of the step."""


class BottleneckParallelEnv(ParallelEnv):  # type: ignore[misc]  # PettingZoo has no types for others
    """Several agent flows on a shared bottleneck, each of them an agent.

    ## Agents

    `flow_<index>`, with the flow's index in the scenario. `possible_agents` are those of all scenarios that can be
    drawn; `agents` are the active ones. An agent joins before the step in which its flow starts, and so chooses the
    gains of every step in which the flow sends. Agents whose flows start with the episode are active after `reset`. A
    later one appears in the results of the `step` that ends where its flow starts, with a neutral observation, a reward
    of 0 and its info, beside the results of the agents that have acted. An agent leaves with the step that terminates
    or truncates it, and does not return in the episode; the gains that it chose last apply to the packets that its
    sender may still send. `step` needs an action for each of `agents` and no other.

    Time in which no agent is active passes within `reset` or `step`. `agents` is empty only when the episode is over.

    ## Action Space

    As in `BottleneckEnv`, for each agent: its cwnd_gain and its pacing_gain.

    ## Observation Space

    As in `BottleneckEnv`, for each agent: features of its own flow, known to its own sender. Other flows show only in
    what they do to this flow's packets, so a policy that acts on these observations can run anywhere.

    ## Rewards

    As in `BottleneckEnv`, for each agent.

    ## State

    What a critic may know in training, and no sender at run time: `state()`, of the shape of `state_space`, with the
    names in `state_columns`. It has `FLOW_STATE` of every flow of the scenario, hand-coded ones too
    (`flow_0.base_rtt_ms`, `flow_0.is_active`, …), then `LINK_STATE` of the link (`link.buffer_packets`,
    `link.queue_mean_ms`, …), all of the last step. It has room for the most flows that a scenario can have; missing
    values are 0. Every value x is stored as asinh(x), which is about x for small values and ln(2x) for large ones, so
    that packets, ms and shares can enter one network; `numpy.sinh` inverts it.

    ## Starting State

    As in `BottleneckEnv`. The same seed gives the same scenario, seed of the engine and trajectory as there, and as in
    the first engine of `SharedPolicyVecEnv`, whose environments these agents are while they are active.

    ## Episode End

    *Termination* of an agent: its flow is finite (`size_bytes`) and has delivered all its bytes. *Truncation*: the
    flow's `stop_s` or the scenario's `duration_s` has passed. The episode is over with its last agent.

    ## Information

    As in `BottleneckEnv`, for each agent with its own flow's row.

    ## Arguments

        bbrgym.parallel_env(Scenario(…, flows=(Flow("agent"), Flow("agent", start_s=5))), engine="native")

    Args:
        spec: what the environment is made of.
        render_mode: None, "ansi" (lines about the last step), or "rgb_array" (a plot of the episode so far; needs
            matplotlib).

    Raises:
        ValueError: an unknown render_mode.

    ## Version History

    * v0: first version.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  # declared so in pettingzoo.ParallelEnv
        "name": "bottleneck_v0",
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 10,
        "is_parallelizable": True,
    }

    def __init__(self, spec: EpisodeSpec, render_mode: str | None = None) -> None:
        check_render_mode(render_mode, self.metadata["render_modes"])
        self.render_mode = render_mode
        self.episode_spec = spec
        self.agents: list[str] = []
        self.possible_agents = [_name(flow) for flow in _agent_flows(spec.distribution)]
        # A space for each agent, because a space samples from its own random numbers.
        self._observation_spaces = {agent: copy.deepcopy(spec.observation.space) for agent in self.possible_agents}
        self._action_spaces = {agent: copy.deepcopy(spec.action.space) for agent in self.possible_agents}
        self._max_flows = spec.distribution.max_flows
        self.state_columns: tuple[str, ...] = (
            *(f"{_name(flow)}.{column}" for flow in range(self._max_flows) for column in FLOW_STATE),
            *(f"link.{column}" for column in LINK_STATE),
        )
        """Names of the state's values, in order."""
        self.state_space = spaces.Box(-math.inf, math.inf, (len(self.state_columns),), np.float32)
        self._episodes = Episodes(spec, 1)
        self._rng = seeding.np_random()[0]
        self._scenario: Scenario | None = None
        self._names: list[str] = []  # of all K agents of this episode
        self._starts_ns = np.zeros(0, dtype=np.int64)
        self._step_ns = 0
        self._has_left = np.zeros(0, dtype=np.bool_)
        self._actions = np.zeros((0, 2))  # the last one of each; one from before an agent's first has no effect
        self._infos: list[list[Info]] = []  # of the whole episode if it is to be drawn, else of the last step

    def observation_space(self, agent: str) -> spaces.Box[np.float32]:
        """Return the observation space of a possible agent, always the same object."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Box[np.float32]:
        """Return the action space of a possible agent, always the same object."""
        return self._action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, npt.NDArray[np.float32]], dict[str, Info]]:
        """Start an episode; see the class.

        Args:
            seed: decides everything, also in the resets without a seed that follow.
            options: `{"scenario": …}` simulates this scenario instead of a draw, in this episode. Other options are
                ignored with a warning, because PettingZoo requires that they are accepted.

        Returns:
            Observations and infos of the agents.

        Raises:
            ValueError: a scenario with another number of agent flows, with one that is not in `possible_agents`, or
                with more flows than the state has room for.
            EngineError: the engine could not start it.
        """
        if seed is not None:
            self._rng = seeding.np_random(seed)[0]
        given = self._check_options(options or {})
        self._scenario = None
        self.agents = []
        self._episodes.begin_resets(np.zeros(1, dtype=np.intp), [self._rng], [given])
        observations = self._episodes.finish_resets()
        record = self._episodes.record()
        scenario: Scenario = record.scenarios[0]
        flows = [scenario.flows[index] for index in scenario.agent_flows]
        self._names = [_name(index) for index in scenario.agent_flows]
        self._starts_ns = np.array([round(flow.start_s * 1e9) for flow in flows], dtype=np.int64)
        self._step_ns = round(self.episode_spec.interval_ms(scenario) * 1e6)
        self._has_left = np.zeros(len(flows), dtype=np.bool_)
        self._actions = np.zeros((len(flows), 2))
        self._scenario = scenario
        infos = record.infos()
        self._infos = [infos]
        observations, infos = self._wait_for_agents(observations, infos)
        rows = {agent: self._names.index(agent) for agent in self.agents}
        return (
            {agent: observations[row] for agent, row in rows.items()},
            {agent: infos[row] for agent, row in rows.items()},
        )

    def step(
        self, actions: Mapping[str, npt.ArrayLike]
    ) -> tuple[
        dict[str, npt.NDArray[np.float32]],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, Info],
    ]:
        """Simulate a step with the gains that the actions mean; see the class.

        Args:
            actions: one for each of `agents`, shape (2,).

        Returns:
            Observations, rewards, terminated, truncated and infos of the agents that acted, and of those that have
            joined since, with a reward of 0.

        Raises:
            gymnasium.error.ResetNeeded: no episode is running.
            ValueError: an agent without an action, an action without an agent, or one that is not two numbers.
            EngineError: the engine failed; the episode is lost, and `reset` starts afresh.
        """
        if not self.agents:
            raise gymnasium.error.ResetNeeded("no episode is running: call reset before step")
        self._actions = self._take(actions)
        result, infos = self._advance()
        have_terminated, have_been_truncated = self._episodes.flow_endings(result)
        acted = {agent: self._names.index(agent) for agent in self.agents}
        observations = {agent: result.observations[row] for agent, row in acted.items()}
        rewards = {agent: float(result.rewards[row]) for agent, row in acted.items()}
        terminated = {agent: bool(have_terminated[row]) for agent, row in acted.items()}
        truncated = {agent: bool(have_been_truncated[row]) for agent, row in acted.items()}
        infos_of = {agent: infos[row] for agent, row in acted.items()}
        for agent, row in acted.items():
            self._has_left[row] = terminated[agent] or truncated[agent]
        if self._episodes.is_running[0]:
            first, infos = self._wait_for_agents(result.observations, infos)
            for agent in self.agents:
                if agent not in acted:
                    row = self._names.index(agent)
                    observations[agent], infos_of[agent] = first[row], infos[row]
                    rewards[agent], terminated[agent], truncated[agent] = 0.0, False, False
        else:
            self.agents = []
        return observations, rewards, terminated, truncated, infos_of

    def state(self) -> npt.NDArray[np.float32]:
        """Return the state of the whole simulation after the last step, for critics in training; see the class.

        Returns:
            A new array of the shape of `state_space`.

        Raises:
            gymnasium.error.ResetNeeded: there was no reset, or none since the engine failed.
        """
        if self._scenario is None:
            raise gymnasium.error.ResetNeeded("state() without an episode: call reset first")
        rows, link = self._episodes.rows(0)
        count = len(self._scenario.flows)
        flows = np.full((self._max_flows, len(FLOW_STATE)), math.nan)
        flows[:count, 0] = [flow.rtt_ms for flow in self._scenario.flows]
        flows[:count, 1:] = rows[:count]
        values = np.concatenate([flows.ravel(), [self._scenario.queue_packets, self._scenario.loss], link])
        return np.arcsinh(np.where(np.isfinite(values), values, 0.0)).astype(np.float32)

    def render(self) -> Any:
        """Return lines of text ("ansi"), a picture of shape (400, 600, 3), uint8 ("rgb_array"), or None."""
        if self.render_mode is None or not self._infos:
            return None
        if self.render_mode == "rgb_array":
            return draw_episode(self._names, self._infos)
        lines = [link_text(self._infos[-1][0])]
        for name, info in zip(self._names, self._infos[-1], strict=True):
            if info["flow"]["is_active"] or info["flow"]["delivered_packets"]:
                lines.append(f"  {name}  {flow_text(info)}")
        return "\n".join(lines)

    def close(self) -> None:
        """End the engine; calling it twice is fine."""
        self._scenario = None
        self.agents = []
        self._episodes.close()

    def _check_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        for name in options:
            if name != "scenario":
                warnings.warn(f"unknown reset option {name!r} is ignored; known: scenario", stacklevel=3)
        if "scenario" not in options:
            return {}
        drawn = Distribution.of(options["scenario"])
        for flow in _agent_flows(drawn):
            if _name(flow) not in self.possible_agents:
                raise ValueError(
                    f"options['scenario'] must have agents of possible_agents ({', '.join(self.possible_agents)}), got "
                    f"{_name(flow)}"
                )
        if drawn.max_flows > self._max_flows:
            raise ValueError(
                f"options['scenario'] must have at most {self._max_flows} flows, the room of the state, "
                f"got {drawn.max_flows}"
            )
        return {"scenario": drawn}

    def _take(self, actions: Mapping[str, npt.ArrayLike]) -> Array:
        if set(actions) != set(self.agents):
            raise ValueError(f"actions must be for the agents {self.agents}, got {list(actions)}")
        taken = self._actions.copy()
        for agent, action in actions.items():
            values = np.asarray(action, dtype=np.float64)
            if values.shape != (2,) or np.isnan(values).any():
                raise ValueError(
                    f"actions[{agent!r}] must be two numbers in [-1, 1], for cwnd_gain and pacing_gain, got {action!r}"
                )
            taken[self._names.index(agent)] = values
        return taken

    def _advance(self) -> tuple[StepResult, list[Info]]:
        try:
            self._episodes.begin_step(self._actions)
            result = self._episodes.finish_step()
        except BaseException:
            self._scenario = None  # the episode is lost
            self.agents = []
            raise
        infos = result.record.infos()
        if self.render_mode != "rgb_array":
            self._infos.clear()
        self._infos.append(infos)
        return result, infos

    def _wait_for_agents(
        self, observations: npt.NDArray[np.float32], infos: list[Info]
    ) -> tuple[npt.NDArray[np.float32], list[Info]]:
        """Set `agents`, after as many steps as it takes until there is one.

        Args:
            observations: of the last step, shape (K, length of an observation).
            infos: of the last step.

        Returns:
            Both of the step after which there are agents: the given one, or a later one.
        """
        while True:
            # Those whose flows start before the end of the next step. A running episode has one now or later: it ends
            # with its last agent, and every flow starts before its end.
            end_ns = round(infos[0]["time_s"] * 1e9) + self._step_ns
            self.agents = [self._names[row] for row in np.flatnonzero((self._starts_ns < end_ns) & ~self._has_left)]
            if self.agents:
                return observations, infos
            result, infos = self._advance()
            observations = result.observations


def _name(flow: int) -> str:
    return f"flow_{flow}"


def _agent_flows(distribution: Distribution) -> list[int]:
    """Return the indices of the flows that are an agent's in some scenario of the distribution."""
    # Only a choice between whole lists of flows can move agents: their number is always the same, so a choice at one
    # place of a list is between agents, or between other flows.
    lists = [
        Distribution({**scenario, "flows": flows})
        for scenario in _options(distribution.plain)
        for flows in _options(scenario.get("flows", [{}]))
    ]
    return sorted({flow for one in lists for flow in one.example.agent_flows})


def _options(node: Any) -> Iterator[Any]:
    if isinstance(node, Mapping) and "choice" in node:
        for option in node["choice"]:
            yield from _options(option)
    else:
        yield node
