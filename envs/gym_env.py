"""The Gymnasium environment of one agent flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import gymnasium
import numpy as np
import numpy.typing as npt

from bbrgym.envs.action import Action
from bbrgym.envs.engine import Engine
from bbrgym.envs.episode import AnyScenario, Episodes, EpisodeSpec
from bbrgym.envs.info import Info
from bbrgym.envs.observation import Observation
from bbrgym.envs.reward import Reward
from bbrgym.envs.scenario import Flow, Scenario

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT_SCENARIO: Final = Scenario(
    rate_mbps=12.0, buffer_bdp=1.0, duration_s=20.0, flows=(Flow("agent", rtt_ms=50.0), Flow("bbr", rtt_ms=50.0))
)
"""An agent beside one BBR flow of the same RTT on a link of 12 Mbit/s, for 20 s."""


class BottleneckEnv(gymnasium.Env[npt.NDArray[np.float32], npt.NDArray[np.float32]]):
    """One agent flow on a shared bottleneck.

    ## Description

    The agent is the slow half of a congestion controller. In its flow, BBR's model of the path (`max_bandwidth`,
    `min_rtt`) and its Startup, Drain and ProbeRTT run with every ACK; once a step the agent chooses the two gains that
    turn the model into a pacing rate and a congestion window, in force in ProbeBW until the next step. The BDP is that
    of `base_rtt`, the lowest RTT of twenty seconds, where `min_rtt` is that of ten. The other flows of the scenario are
    driven by hand-coded controllers. What is simulated, by what and for how long is the arguments'.

    ## Action Space

    `Box(-1, 1, (2,), float32)`, mapped geometrically to the bounds of `action`. By default:

    | index | gain        | -1   | 0    | 1    | means                                               |
    |-------|-------------|------|------|------|-----------------------------------------------------|
    | 0     | cwnd_gain   | 0.25 | 1.0  | 4.0  | congestion window in bandwidth-delay products       |
    | 1     | pacing_gain | 0.75 | 1.15 | 1.75 | pacing rate in multiples of the estimated bandwidth |

    ## Observation Space

    `Box(low, high, (history x number of features,), float32)`, the features of `observation` with their bounds
    (`baselines/cc/policy/features.cc` has the formulas), steps of history from the oldest to the latest. All are of
    the agent's own flow, such as a sender knows. By default, of the last step only:

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
    | 14    | log_cwnd_gain           | -4  | 4    | log2 of the cwnd_gain chosen last                  |
    | 15    | log_pacing_gain         | -4  | 4    | log2 of the pacing_gain chosen last                |
    | 16    | is_probe_bw             | 0   | 1    | 1 in ProbeBW, where the gains are in force, else 0 |

    A feature that has no value (no packet was acknowledged, say) is at its neutral value, and all of them are while
    the flow has not started or has ended.

    ## Rewards

    The weighted sum of `reward`'s terms (`bbrgym.envs.reward.TERMS`), by default

        mean(ln(rate / fair_share)) - 0.5 * (rtt_mean - base_rtt) / longest_base_rtt - lost / sent

    with the mean over all flows of the link, and the first part in [-3, 0], the second in [-2, 0], the third in
    [-1, 0]: 0 is a full link, shared equally, without queue and loss. In steps in which the agent's flow takes no part
    the reward is 0.

    ## Starting State

    An idle link at time 0. If `scenario` is a distribution, `reset` draws from it; `reset(seed=…)` decides the draw
    and everything random in the engine, and the resets without a seed that follow it too.
    `reset(options={"scenario": …})` simulates the given scenario instead, in this episode.

    ## Episode End

    *Termination*: the agent's flow is finite (`size_bytes`) and has delivered all its bytes.
    *Truncation*: the scenario's `duration_s` has passed, or the flow's `stop_s`.

    ## Information

    `flow` and `link`: the raw rows of the step, {column: value} (`bbrgym.envs.columns`), without the columns that have
    no value, made when they are looked at; `flow_index`; `time_s`; `scenario`: the `Scenario`; `seed`: the engine's.

    ## Arguments

        gymnasium.make("bbrgym/Bottleneck-v0", scenario=Scenario(…), step_ms=50)

    Args:
        scenario: a `Scenario`, a `Distribution`, or the plain mapping of either; with exactly one flow whose algorithm
            is `agent`.
        observation: what the agent sees.
        action: the bounds of its gains.
        reward: what it is rewarded for.
        engine: an engine's name ("ns3", the reference, or "native", hundreds of times faster), or a callable that
            makes one. It is made with the first reset.
        engine_options: arguments for making it.
        step_ms: length of a step, in ms.
        step_rtts: length of a step in base RTTs of the agent's flow, with `step_ms=None`.
        render_mode: None, "ansi" (a line about the last step), or "rgb_array" (a plot of the episode so far; needs
            matplotlib).

    Raises:
        ValueError: of any argument, naming the bad value and the good ones.

    ## Version History

    * v0: first version.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  # declared so in gymnasium.Env
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 10,
    }

    def __init__(
        self,
        scenario: AnyScenario = DEFAULT_SCENARIO,
        observation: Observation | None = None,
        action: Action | None = None,
        reward: Reward | None = None,
        engine: str | Callable[..., Engine] = "ns3",
        engine_options: Mapping[str, Any] | None = None,
        step_ms: float | None = 100.0,
        step_rtts: float | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"no render_mode {render_mode!r}; known: None, {', '.join(self.metadata['render_modes'])}")
        self.render_mode = render_mode
        spec = spec_of_one_agent(scenario, observation, action, reward, engine, engine_options, step_ms, step_rtts)
        self.action_space = spec.action.space
        self.observation_space = spec.observation.space
        self._episodes = Episodes(spec, 1)
        self._seen: list[Info] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], Info]:
        """Begin an episode; see the class.

        Raises:
            ValueError: an unknown option.
            EngineError: the engine could not begin it.
        """
        super().reset(seed=seed)
        self._episodes.begin_resets(np.zeros(1, dtype=np.intp), [self.np_random], [options])
        observations = self._episodes.finish_resets()
        (info,) = self._episodes.record().infos()
        self._seen = [info]
        return observations[0], info

    def step(self, action: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float32], float, bool, bool, Info]:
        """Simulate a step with the gains that the action means; see the class.

        Raises:
            gymnasium.error.ResetNeeded: no episode is running.
            ValueError: the action is not two numbers.
            EngineError: the engine failed; the episode is lost, and `reset` begins afresh.
        """
        self._episodes.begin_step(np.asarray(action)[np.newaxis])
        outcome = self._episodes.finish_step()
        (info,) = outcome.record.infos()
        self._see(info)
        return (
            outcome.observations[0],
            float(outcome.rewards[0]),
            bool(outcome.terminated[0]),
            bool(outcome.truncated[0]),
            info,
        )

    def render(self) -> Any:
        """A line of text ("ansi"), a picture of shape (400, 600, 3), uint8 ("rgb_array"), or None."""
        if self.render_mode is None or not self._seen:
            return None
        return _line(self._seen[-1]) if self.render_mode == "ansi" else _picture(self._seen)

    def close(self) -> None:
        """End the engine; calling it twice is fine."""
        self._episodes.close()

    def _see(self, info: Info) -> None:
        if self.render_mode == "rgb_array":
            self._seen.append(info)
        else:
            self._seen = [info]


def spec_of_one_agent(
    scenario: AnyScenario,
    observation: Observation | None,
    action: Action | None,
    reward: Reward | None,
    engine: str | Callable[..., Engine],
    engine_options: Mapping[str, Any] | None,
    step_ms: float | None,
    step_rtts: float | None,
) -> EpisodeSpec:
    """The specification with these arguments of `BottleneckEnv`.

    Raises:
        ValueError: of any argument, and if the scenario has not exactly one agent flow.
    """
    spec = EpisodeSpec(
        scenario=scenario,
        observation=observation or Observation(),
        action=action or Action(),
        reward=reward or Reward(),
        step_ms=step_ms,
        step_rtts=step_rtts,
        engine=engine,
        engine_options=engine_options or {},
    )
    if spec.agents != 1:
        algorithms = ", ".join(flow.algorithm for flow in spec.distribution.example.flows)
        raise ValueError(
            f"bbrgym/Bottleneck-v0 is for exactly one agent flow; the scenario has {spec.agents} ({algorithms}). For "
            "several, EpisodeSpec(scenario, …).make_vec_env() makes each of them an environment of a Stable-Baselines3 "
            "VecEnv, and bbrgym.parallel_env(scenario, …) each an agent of a PettingZoo environment"
        )
    return spec


def _line(info: Info) -> str:
    flow, link = info["flow"], info["link"]
    parts = [
        f"{info['time_s']:7.2f} s",
        f"{flow['throughput_mbps']:8.2f} Mbit/s",
        f"RTT {flow['rtt_mean_ms']:6.1f} ms" if "rtt_mean_ms" in flow else "RTT      - ms",
        f"lost {flow['lost_packets']:4.0f}",
        f"queue {link['queue_mean_ms']:6.1f} ms",
        f"link {link['utilisation']:4.0%}",
    ]
    if "cwnd_gain" in flow:
        parts.append(f"gains {flow['cwnd_gain']:.2f} {flow['pacing_gain']:.2f}")
    return "  ".join(parts)


def _picture(seen: list[Info]) -> npt.NDArray[np.uint8]:
    # The object interface: pyplot would keep the figure in a global list, and could open a window.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Figure = Figure(figsize=(6, 4), dpi=100, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    steps = seen[1:]  # the reset has measured nothing
    time_s = [info["time_s"] for info in steps]
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(time_s, [info["link"]["rate_mbps"] for info in steps], color="0.6", label="link")
    above.plot(time_s, [info["flow"]["throughput_mbps"] for info in steps], color="#0072b2", label="agent's flow")
    above.set(ylabel="throughput [Mbit/s]", ylim=(0, None))
    below.plot(time_s, [info["flow"].get("rtt_mean_ms", np.nan) for info in steps], color="#0072b2", label="RTT")
    below.plot(time_s, [info["link"]["queue_mean_ms"] for info in steps], color="#d55e00", label="queueing delay")
    below.set(xlabel="time [s]", ylabel="delay [ms]", ylim=(0, None), xlim=(0, seen[0]["scenario"].duration_s))
    for axes in (above, below):
        axes.legend(loc="upper right", fontsize="small")
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
