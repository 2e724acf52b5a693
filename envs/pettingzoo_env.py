"""The PettingZoo environment of several agent flows, which join and leave as agents."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import seeding

from bbrgym.checks import check_name
from bbrgym.envs.action import check_action
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.engine import OneThread, in_one_thread
from bbrgym.envs.episode import Episodes, StepResult
from bbrgym.envs.episode_spec import EpisodeSpec, check_spec
from bbrgym.envs.info import Info, Record
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

FLOW_STATE: Final[tuple[str, ...]] = ("path_rtt_ms", *FLOW_COLUMNS)
"""What the state has of each flow: its RTT without a queue, and its row of the step."""

LINK_STATE: Final[tuple[str, ...]] = ("buffer_packets", "loss", *LINK_COLUMNS)
"""What the state has of the link: its buffer, its probability of random loss, and its row of the step."""


class BottleneckParallelEnv(ParallelEnv):  # type: ignore[misc]  # PettingZoo has no types for others
    """Several agent flows on a shared bottleneck, each of them an agent.

    ## Agents

    `flow_<index>`, with the flow's index in the scenario. `possible_agents` are those of all scenarios that can be
    drawn. An agent is active in the steps in which its flow sends: from the step in which the flow starts to the one in
    which it ends. `inactive_agents` says what happens in the other steps. The active agents experience the same in both
    cases, bit for bit.

    **"neutral"**, the default, for libraries that need the same agents in every step: `agents` are always all
    `possible_agents`, and all of them leave with the episode. An inactive agent has a neutral observation and a reward
    of 0, and its action is ignored; `step` does not even need it. In its info `can_act` is False.

    **"absent"**: `agents` are only the active ones. An agent joins before the step in which its flow starts: it appears
    in the results of the `step` that ends there, with a neutral observation and a reward of 0, beside the results of
    the agents that have acted. It leaves with the step that terminates or truncates it, and does not return in the
    episode. Time in which no agent is active passes within `reset` or `step`.

    `agents` is empty only when the episode is over. The gains that an agent chose last apply to the packets that its
    sender may still send after it became inactive.

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
    (`flow_0.path_rtt_ms`, `flow_0.is_active`, …), then `LINK_STATE` of the link (`link.buffer_packets`,
    `link.queue_mean_ms`, …), all of the last step. It has room for the most flows that a scenario can have; missing
    values are 0. Every value x is stored as asinh(x), which is about x for small values and ln(2x) for large ones, so
    that packets, ms and shares can enter one network; `numpy.sinh` inverts it.

    ## Starting State

    As in `BottleneckEnv`. The same seed gives the same scenario, seed of the engine and trajectory as there, and as in
    the first engine of `SharedPolicyVecEnv`, whose environments these agents are while they are active.

    ## Episode End

    The episode is over when every agent flow has ended: its `size_bytes` are delivered, or its `stop_s` or the
    scenario's `duration_s` has passed. With "neutral", all agents then end together: *terminated* if every agent flow
    has delivered all its bytes, *truncated* otherwise. With "absent", each agent ends with its own flow: *terminated*
    if the flow has delivered all its bytes, *truncated* otherwise.

    ## Information

    As in `BottleneckEnv`, for each agent with its own flow's row, and `can_act`: whether the agent is active in the
    next step, so that its next action has an effect. `env.scenario` is the scenario of the episode.

    ## Arguments

        bbrgym.parallel_env(Scenario(…, flows=(Flow("agent"), Flow("agent", start_s=5))), engine="native")

    Args:
        spec: what the environment is made of.
        render_mode: None, "human" (each reset and step prints lines), "ansi" (`render` returns those lines), or
            "rgb_array" (a plot of the episode so far; needs matplotlib).
        inactive_agents: "neutral" or "absent": what agents are while their flows are inactive, see above.

    Raises:
        ValueError: an unknown render_mode or inactive_agents.

    ## Version History

    * v1: inactive agents are neutral by default; infos are flat and have `can_act`.
    * v0: first version. Inactive agents are absent.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  # declared so in pettingzoo.ParallelEnv
        "name": "bottleneck_v1",
        "render_modes": ["human", "ansi", "rgb_array"],
        "render_fps": 10,
        "is_parallelizable": True,
    }

    def __init__(self, spec: EpisodeSpec, render_mode: str | None = None, inactive_agents: str = "neutral") -> None:
        check_render_mode(render_mode, self.metadata["render_modes"])
        check_name("inactive_agents", inactive_agents, ("neutral", "absent"))
        self.render_mode = render_mode
        self.inactive_agents = inactive_agents
        self.episode_spec = check_spec(spec)
        self.agents: list[str] = []
        self._flows = {_name(flow): flow for flow in spec.distribution.agent_flows}
        self.possible_agents = list(self._flows)
        # A space for each agent, because a space samples from its own random numbers.
        self._observation_spaces = {agent: copy.deepcopy(spec.observation.space) for agent in self.possible_agents}
        self._action_spaces = {agent: copy.deepcopy(spec.action.space) for agent in self.possible_agents}
        self._neutral = spec.observation.neutral
        self._max_flows = spec.distribution.max_flows
        self.state_columns: tuple[str, ...] = (
            *(f"{_name(flow)}.{column}" for flow in range(self._max_flows) for column in FLOW_STATE),
            *(f"link.{column}" for column in LINK_STATE),
        )
        """Names of the state's values, in order."""
        self.state_space = spaces.Box(-math.inf, math.inf, (len(self.state_columns),), np.float32)
        self._one_thread = OneThread()
        self._episodes = Episodes(spec, 1)
        self._rng = seeding.np_random()[0]
        self._scenario: Scenario | None = None
        self._duration_s = 0.0
        self._rows: dict[str, int] = {}  # of the agents whose flows are an agent's in this episode, in order
        self._starts_ns = np.zeros(0, dtype=np.int64)
        self._step_ns = 0
        self._is_active = np.zeros(0, dtype=np.bool_)  # in the next step
        self._has_ended = np.zeros(0, dtype=np.bool_)
        self._actions = np.zeros((0, 2))  # the last one of each; one from before a flow's start has no effect
        self._drawn: list[list[Info]] = []  # of the whole episode if it is to be drawn, else of the last step

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy begins without an episode, as with Gymnasium's EzPickle: an engine does not pickle.
        return (BottleneckParallelEnv, (self.episode_spec, self.render_mode, self.inactive_agents))

    @property
    def scenario(self) -> Scenario:
        """The scenario of the episode.

        Raises:
            gymnasium.error.ResetNeeded: there was no reset, or none since the engine failed.
        """
        if self._scenario is None:
            raise gymnasium.error.ResetNeeded("no episode: call reset first")
        return self._scenario

    def observation_space(self, agent: str) -> spaces.Box[np.float32]:
        """Return the observation space of a possible agent, always the same object."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Box[np.float32]:
        """Return the action space of a possible agent, always the same object."""
        return self._action_spaces[agent]

    @in_one_thread
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
        self._episodes.finish_resets()  # its observations are neutral
        record = self._episodes.record()
        scenario: Scenario = record.scenarios[0]
        flows = [scenario.flows[index] for index in scenario.agent_flows]
        self._rows = {_name(index): row for row, index in enumerate(scenario.agent_flows)}
        self._starts_ns = np.array([round(flow.start_s * 1e9) for flow in flows], dtype=np.int64)
        self._step_ns = round(self.episode_spec.interval_ms(scenario) * 1e6)
        self._has_ended = np.array([flow.is_absent for flow in flows])
        self._actions = np.zeros((len(flows), 2))
        self._scenario = scenario
        self._duration_s = scenario.duration_s
        self._drawn = []
        self._keep_for_render(record)
        record = self._find_active(record)
        return {agent: self._neutral.copy() for agent in self.agents}, self._infos(self.agents, record)

    @in_one_thread
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
            actions: one for each active agent, shape (2,). Those of inactive `agents` are ignored and may be missing.

        Returns:
            Observations, rewards, terminated, truncated and infos of the `agents` before the step, and of those that
            have joined since.

        Raises:
            gymnasium.error.ResetNeeded: no episode is running.
            ValueError: an active agent without an action, an action without an agent, or one that is not two numbers.
            EngineError: the engine failed; the episode is lost, and `reset` starts afresh.
        """
        if not self.agents:
            raise gymnasium.error.ResetNeeded("no episode is running: call reset before step")
        self._actions = self._take(actions)
        agents, was_active = self.agents, self._is_active
        result = self._advance()
        has_terminated, was_truncated = self._episodes.flow_endings(result)
        self._has_ended |= was_active & (has_terminated | was_truncated)
        if self._episodes.is_running[0]:
            later = self._find_active(result.record)
        else:
            later, self.agents, self._is_active = result.record, [], np.zeros_like(was_active)
        joined = [agent for agent in self.agents if agent not in agents]
        observations, rewards = {}, {}
        for agent in (*agents, *joined):
            row = self._rows.get(agent)
            if row is not None and was_active[row]:
                observations[agent], rewards[agent] = result.observations[row], float(result.rewards[row])
            else:
                observations[agent], rewards[agent] = self._neutral.copy(), 0.0
        if self.inactive_agents == "neutral":  # all end together
            terminated = dict.fromkeys(agents, bool(result.terminated[0]))
            truncated = dict.fromkeys(agents, bool(result.truncated[0]))
        else:
            terminated = {agent: bool(has_terminated[self._rows[agent]]) for agent in agents}
            truncated = {agent: bool(was_truncated[self._rows[agent]]) for agent in agents}
        terminated |= dict.fromkeys(joined, False)
        truncated |= dict.fromkeys(joined, False)
        infos = self._infos(agents, result.record) | self._infos(joined, later)
        if result.flaws:
            for info in infos.values():
                info["engine_flaw"] = result.flaws[0]
        return observations, rewards, terminated, truncated, infos

    @in_one_thread
    def state(self) -> npt.NDArray[np.float32]:
        """Return the state of the whole simulation after the last step, for critics in training; see the class.

        Returns:
            A new array of the shape of `state_space`.

        Raises:
            gymnasium.error.ResetNeeded: there was no reset, or none since the engine failed.
        """
        scenario = self.scenario
        rows, link = self._episodes.rows(0)
        count = len(scenario.flows)
        flows = np.full((self._max_flows, len(FLOW_STATE)), math.nan)
        flows[:count, 0] = [flow.rtt_ms for flow in scenario.flows]
        flows[:count, 1:] = rows[:count]
        values = np.concatenate([flows.ravel(), [scenario.queue_packets, scenario.loss], link])
        return np.arcsinh(np.where(np.isfinite(values), values, 0.0)).astype(np.float32)

    def render(self) -> Any:
        """Return lines of text ("ansi"), a picture of shape (400, 600, 3), uint8 ("rgb_array"), or None."""
        if self.render_mode in (None, "human") or not self._drawn:
            return None
        if self.render_mode == "rgb_array":
            return draw_episode(list(self._rows), self._drawn, self._duration_s)
        return self._text()

    def _text(self) -> str:
        lines = [link_text(self._drawn[-1][0])]
        for name, info in zip(self._rows, self._drawn[-1], strict=True):
            if info["is_active"] or info["delivered_packets"]:
                lines.append(f"  {name}  {flow_text(info)}")
        return "\n".join(lines)

    @in_one_thread
    def close(self) -> None:
        """End the engine; calling it twice is fine."""
        self._scenario = None
        self.agents = []
        self._episodes.close()

    def _check_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(options, Mapping):
            raise ValueError(f"options must be a mapping, got {options!r}")
        for name in options:
            if name != "scenario":
                warnings.warn(f"unknown reset option {name!r} is ignored; known: scenario", stacklevel=4)
        if "scenario" not in options:
            return {}
        drawn = Distribution.of(options["scenario"])
        for flow in drawn.agent_flows:
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
        active = [agent for agent, row in self._rows.items() if self._is_active[row]]
        if not isinstance(actions, Mapping):
            raise ValueError(f"actions must be a mapping with an action of each of {active}, got {actions!r}")
        if not set(active) <= set(actions) <= set(self.agents):
            raise ValueError(f"actions must be for the agents {active}, got {list(actions)}")
        taken = self._actions.copy()
        for agent in active:
            taken[self._rows[agent]] = check_action(f"actions[{agent!r}]", actions[agent])
        return taken

    def _advance(self) -> StepResult:
        try:
            self._episodes.act(self._actions)
            result = self._episodes.finish_step()
        except BaseException:
            self._scenario = None  # the episode is lost
            self.agents = []
            raise
        self._keep_for_render(result.record)
        return result

    def _find_active(self, record: Record) -> Record:
        """Set `agents`, and which are active in the next step. Without neutral agents, wait until one is active."""
        while True:
            # Those whose flows start before the end of the next step. A running episode has one now or later: it ends
            # with its last agent flow, and every flow starts before its end.
            end_ns = round(float(record.time_s[0]) * 1e9) + self._step_ns
            self._is_active = (self._starts_ns < end_ns) & ~self._has_ended
            if self.inactive_agents == "neutral":
                self.agents = list(self.possible_agents)
            else:
                self.agents = [agent for agent, row in self._rows.items() if self._is_active[row]]
            if self.agents:
                return record
            record = self._advance().record

    def _infos(self, agents: Iterable[str], record: Record) -> dict[str, Info]:
        of_rows, infos = record.infos(), {}
        for agent in agents:
            row = self._rows.get(agent)  # None if the flow is not an agent's in this episode
            own = of_rows[0 if row is None else row]
            if row is None:
                own = own | _NO_FLOW | {"flow_index": np.int64(self._flows[agent])}
            infos[agent] = own | {"can_act": row is not None and bool(self._is_active[row])}
        return infos

    def _keep_for_render(self, record: Record) -> None:
        if self.render_mode != "rgb_array":
            self._drawn.clear()
        if self.render_mode is not None:
            self._drawn.append(record.infos())
        if self.render_mode == "human":
            print(self._text())


_NO_FLOW: Final = dict.fromkeys(FLOW_COLUMNS, np.float64(0.0))


def _name(flow: int) -> str:
    return f"flow_{flow}"
