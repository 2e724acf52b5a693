"""The Gymnasium environment of one agent flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec

from bbrgym.baselines import registry
from bbrgym.checks import check_name, check_number
from bbrgym.envs.action import check_action
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.engine import OneThread, Rows, in_one_thread
from bbrgym.envs.episode import Episodes
from bbrgym.envs.episode_spec import AnyScenario, EpisodeSpec, to_plain
from bbrgym.envs.info import Info
from bbrgym.envs.render import agent_text, check_render_mode, draw_agent
from bbrgym.envs.reward import Reward, fair_share_mbps
from bbrgym.envs.scenario import Flow, Scenario

RewardFunction = Callable[[Rows, Scenario], float]
"""A reward in Python: of the rows of a step and the scenario of the episode."""

_DELIVERY_RATE: Final = FLOW_COLUMNS.index("delivery_rate_mbps")

DEFAULT_SCENARIO: Final = Scenario(
    rate_mbps=12.0, buffer_bdp=1.0, duration_s=20.0, flows=(Flow("agent", rtt_ms=50.0), Flow("bbr", rtt_ms=50.0))
)
"""The default of the environments of one agent: it and a BBR flow of the same RTT on a 12 Mbit/s link, for 20 s."""


class HasSpec:
    """An environment with a Gymnasium specification in plain types, so that `spec.to_json()` works.

    Its `max_episode_steps` is that of the scenario and the step that the environment has.
    """

    _episodes: Episodes
    _spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """What `gymnasium.make` or `make_vec` made it of."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if spec is not None:
            spec.kwargs = {name: to_plain(value) for name, value in spec.kwargs.items()}
            limits = (spec.kwargs.pop("max_episode_steps", None), self._episodes.spec.max_episode_steps)
            spec.max_episode_steps = min((limit for limit in limits if limit is not None), default=None)
        self._spec = spec


class BottleneckEnv(HasSpec, gymnasium.Env[npt.NDArray[np.float32], npt.NDArray[np.float32]]):
    """One agent flow on a shared bottleneck.

    ## Description

    The agent is the slow half of a congestion controller. In its flow, BBR's model of the path and its states run with
    every ACK. Once per step the agent chooses two gains:

        cwnd = cwnd_gain x max_bandwidth x min_rtt         pacing_rate = pacing_gain x max_bandwidth

    They are in force in ProbeBW, until the next step. There nothing is added to the two or caps them; the window is
    at least two packets. In Startup, Drain and ProbeRTT BBR's own gains are in force, and an action has no effect.
    `max_bandwidth` is the largest delivery rate of the last 300 ms, of two to ten round trips; `min_rtt` is
    BBR's, the lowest RTT of ten seconds. With `action={"model": "bbr"}` the model is BBR's own, whose `max_bandwidth`
    is of ten round trips. docs/algorithms/agent.md has all states and options. The other flows of the scenario are
    driven by hand-coded controllers.

    ## Action Space

    `Box(-1, 1, (2,), float32)`, mapped geometrically to the bounds of `action` (`bbrgym.envs.action.Action`). By
    default:

    | index | gain        | -1   | 0    | 1    | means                                               |
    |-------|-------------|------|------|------|-----------------------------------------------------|
    | 0     | cwnd_gain   | 1.05 | 2.0  | 21   | congestion window in bandwidth-delay products       |
    | 1     | pacing_gain | 1.0  | 1.1  | 1.21 | pacing rate in multiples of the estimated bandwidth |

    The action (0, -1) is what BBR does while it cruises. The first entry is geometric in cwnd_gain - 1.

    ## Observation Space

    `Box(low, high, (history x number of features,), float32)`, the features of `observation` with their bounds
    (`baselines/cc/policy/features.cc` has the formulas), with the oldest step of the history first. All are of the
    agent's own flow, and known to its sender. By default, of the last step only:

    | index | feature                 | low | high | means                                              |
    |-------|-------------------------|-----|------|----------------------------------------------------|
    | 0     | log_delivery_rate_ratio | -5  | 1    | log2(delivery_rate / max_bandwidth)                |
    | 1     | send_rate_ratio         | 0   | 4    | send_rate / delivery_rate                          |
    | 2     | log_rtt_ratio           | 0   | 5    | log2(rtt_mean / min_rtt)                           |
    | 3     | log_rtt_last_ratio      | 0   | 5    | log2(rtt_last / min_rtt)                           |
    | 4     | log_cwnd_ratio          | -4  | 4    | log2(cwnd / bdp)                                   |
    | 5     | log_backlog             | 0   | 12   | log2(1 + packets of the flow in the queue)         |
    | 6     | log_standing_backlog    | 0   | 12   | the same with the lowest RTT since the flow began  |
    | 7     | log_stale_rtt_ratio     | 0   | 5    | log2(min_rtt / lowest RTT)                         |
    | 8     | log_rate_decline        | 0   | 7    | log2(highest bandwidth / delivery_rate)            |
    | 9     | log_queueing_delay      | -2  | 4    | log10(rtt_mean - min_rtt in ms)                    |
    | 10    | log_loss_rate           | -4  | 0    | log10(lost / sent packets)                         |
    | 11    | log_bdp                 | -1  | 6    | log10(bdp in packets)                              |
    | 12    | log_min_rtt             | -1  | 4    | log10(min_rtt in ms)                               |
    | 13    | log_delivery_rate       | -3  | 4    | log10(delivery_rate in Mbit/s)                     |
    | 14    | log_cwnd_gain           | -4  | 5    | log2 of the cwnd_gain chosen last                  |
    | 15    | log_pacing_gain         | -4  | 4    | log2 of the pacing_gain chosen last                |
    | 16    | is_probe_bw             | 0   | 1    | 1 in ProbeBW, where the gains are in force, else 0 |

    A feature without a value (no packet was acknowledged, say) has its neutral value. All features do while the flow
    has not started or has ended.

    ## Rewards

    The weighted sum of `reward`'s terms (`bbrgym.envs.reward.TERMS`), by default

        mean(ln(rate / fair_share)) - 0.5 * (rtt_mean - base_rtt) / longest_base_rtt - lost / sent

    with the mean over all flows of the link, and delay and losses of the agent's own flow. The first part is in
    [-3, 0], the second in [-2, 0], the third in [-1, 0]. 0 is a full link that is shared equally, without queue and
    loss. Steps in which the agent's flow takes no part have reward 0.

    ## Starting State

    An idle link at time 0. If `scenario` is a distribution, `reset` draws from it. `reset(seed=…)` decides the draw,
    everything random in the engine, and both in the resets without a seed that follow.
    `reset(options={"scenario": …})` simulates the given scenario instead, in this episode.

    ## Episode End

    *Termination*: the agent's flow is finite (`size_bytes`) and has delivered all its bytes.
    *Truncation*: the scenario's `duration_s` has passed, or the flow's `stop_s`. `spec.max_episode_steps` is the number
    of steps of `duration_s`, or None if it is drawn.

    ## Information

    A flat dict of NumPy numbers, always with the same keys (`bbrgym.envs.info.INFO_KEYS`): the raw row of the agent's
    flow (`rtt_mean_ms`, …; `bbrgym.envs.columns` has the units), that of the link (`link_queue_mean_ms`, …), 0
    where there is no value; `time_s`; `flow_index`; `seed`: the engine's; `scenario_hash`. At the end of an episode in
    real time whose numbers cannot be trusted, `engine_flaw` says why. The attribute `scenario` is the `Scenario` of the
    episode. With `has_details=True` there are also `reward_terms` (each term of the reward times its weight, by name),
    `fair_share_mbps` and `rates_mbps` (the delivery rates of all flows of the link, in the scenario's order), which no
    sender knows.

    ## Arguments

        gymnasium.make("bbrgym/Bottleneck-v1", scenario=Scenario(…), step_ms=50)

    Args:
        scenario: what is simulated. The agent is the first flow whose algorithm is `agent`.
        other_agents: the algorithm of the further ones, with its default parameters; None refuses scenarios with
            several.
        reward: a `Reward` or the plain mapping of its arguments; or a Python callable `(rows, scenario) -> float`,
            which takes the `bbrgym.envs.engine.Rows` of each step (docs/rewards.md). A callable is slow, and only for
            this form.
        has_details: whether infos have what is above under Information, which takes time.
        render_mode: None, "human" (each reset and step prints a line), "ansi" (`render` returns that line), or
            "rgb_array" (a plot of the episode so far; needs matplotlib).
        parts: the other arguments of `bbrgym.envs.episode_spec.EpisodeSpec`: `observation`, `action`, `step_ms`,
            `step_rtts`, `engine`, `engine_options`.

    Raises:
        ValueError: an argument is bad; the message names the bad value and the good ones.

    ## Version History

    * v1: the gains alone decide the window and the rate in ProbeBW.
    * v0: the window and the rate were corrected by other mechanisms, too.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  # declared so in gymnasium.Env
        "render_modes": ["human", "ansi", "rgb_array"],
        "render_fps": 10,
    }

    def __init__(
        self,
        scenario: AnyScenario = DEFAULT_SCENARIO,
        *,
        reward: Reward | Mapping[str, Any] | RewardFunction | None = None,
        has_details: bool = False,
        render_mode: str | None = None,
        other_agents: str | None = "bbr",
        **parts: Any,
    ) -> None:
        check_render_mode(render_mode, self.metadata["render_modes"])
        self.render_mode = render_mode
        self._reward_function = reward if callable(reward) else None
        self._has_details = has_details
        given = {} if reward is None or callable(reward) else {"reward": reward}
        spec = one_agent_spec(scenario, other_agents, **given, **parts)
        weights = spec.reward.terms if has_details and not callable(reward) else {}
        self._terms = {name: Reward({name: weight}) for name, weight in weights.items() if weight}
        self._other_agents = other_agents
        self.action_space = spec.action.space
        self.observation_space = spec.observation.space
        self._one_thread = OneThread()
        self._episodes = Episodes(spec, 1)
        self._infos: list[Info] = []  # of the whole episode if it is to be drawn, else of the last step

    @classmethod
    def from_spec(cls, spec: EpisodeSpec, render_mode: str | None = None) -> BottleneckEnv:
        """Make the environment of a specification with one agent flow.

        Raises:
            ValueError: the specification has several.
        """
        return cls(**spec.arguments(), render_mode=render_mode, other_agents=None)

    @property
    def scenario(self) -> Scenario:
        """The scenario of the episode.

        Raises:
            gymnasium.error.ResetNeeded: there was no reset.
        """
        return self._episodes.scenarios[0]

    @in_one_thread
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], Info]:
        """Start an episode; see the class.

        Raises:
            ValueError: an unknown option.
            EngineError: the engine could not start it.
        """
        super().reset(seed=seed)
        self._episodes.begin_resets(
            np.zeros(1, dtype=np.intp), [self.np_random], [one_agent_options(options, self._other_agents)]
        )
        observations = self._episodes.finish_resets()
        self._infos = self._episodes.record().infos()
        self._infos[0] |= self._details()
        if self.render_mode == "human":
            print(agent_text(self._infos[-1]))
        return observations[0], self._infos[0]

    @in_one_thread
    def step(self, action: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float32], float, bool, bool, Info]:
        """Simulate a step with the gains that the action means; see the class.

        Raises:
            gymnasium.error.ResetNeeded: no episode is running.
            ValueError: the action is not two numbers.
            EngineError: the engine failed; the episode is lost, and `reset` starts afresh.
        """
        try:
            self._episodes.act(np.asarray(action)[np.newaxis])
        except (TypeError, ValueError):
            check_action("action", action)  # else it is something else
            raise
        result = self._episodes.finish_step()
        (info,) = result.record.infos()
        info |= self._details()
        reward = float(result.rewards[0])
        if self._reward_function is not None:
            reward = self._reward_function(self._episodes.last_rows(0), self.scenario)
            check_number("the reward that the function returns", reward)
        if result.flaws:
            info["engine_flaw"] = result.flaws[0]
        if self.render_mode != "rgb_array":
            self._infos.clear()
        self._infos.append(info)
        if self.render_mode == "human":
            print(agent_text(self._infos[-1]))
        return (
            result.observations[0],
            float(reward),
            bool(result.terminated[0]),
            bool(result.truncated[0]),
            info,
        )

    def _details(self) -> Info:
        """Return what only infos with details have, of the last step."""
        if not self._has_details:
            return {}
        rows, scenario, flows = self._episodes.last_rows(0), self.scenario, self.scenario.agent_flows
        terms = {
            name: term.over_steps(scenario, flows, rows.flows[np.newaxis], rows.link[np.newaxis])[0, 0]
            for name, term in self._terms.items()
        }
        return {
            "reward_terms": terms,
            "fair_share_mbps": np.float64(fair_share_mbps(scenario, rows)),
            "rates_mbps": np.nan_to_num(rows.flows[:, _DELIVERY_RATE]),
        }

    def render(self) -> Any:
        """Return a line of text ("ansi"), a picture of shape (400, 600, 3), uint8 ("rgb_array"), or None."""
        if self.render_mode in (None, "human") or not self._infos:
            return None
        if self.render_mode == "ansi":
            return agent_text(self._infos[-1])
        return draw_agent(self._infos, self.scenario.duration_s)

    @in_one_thread
    def close(self) -> None:
        """End the engine; calling it twice is fine."""
        self._episodes.close()


def one_agent_spec(scenario: AnyScenario, other_agents: str | None, **parts: Any) -> EpisodeSpec:
    """Return `EpisodeSpec(scenario, **parts)`.

    Raises:
        ValueError: a bad argument, or a scenario that has not exactly one agent flow.
    """
    if other_agents is not None:
        check_name("other_agents", other_agents, registry.controllers())
        scenario = Distribution.of(scenario).with_one_agent(other_agents)
    spec = EpisodeSpec(scenario, **parts)
    if spec.agents != 1:
        algorithms = ", ".join(flow.algorithm for flow in spec.distribution.example.flows)
        raise ValueError(
            f"this form has exactly one agent flow, got {spec.agents} ({algorithms}). Give the others an algorithm "
            "(other_agents='bbr'). For several agents, use bbrgym.envs.sb3_env.SharedPolicyVecEnv, in which each is an "
            "environment, or bbrgym.parallel_env, in which each is an agent"
        )
    return spec


def one_agent_options(options: Mapping[str, Any] | None, other_agents: str | None) -> Mapping[str, Any] | None:
    """Return the options of a reset, with one agent in their scenario; see `one_agent_spec`."""
    if other_agents is None or not isinstance(options, Mapping) or "scenario" not in options:
        return options
    return {**options, "scenario": Distribution.of(options["scenario"]).with_one_agent(other_agents)}
