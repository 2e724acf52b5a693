"""Policies for tests: small agents with made-up weights, controllers that run one, and what these must do."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from ack_path import MS, PACKET

from bbrgym import _testing as cc
from bbrgym.agents.policy import Agent
from bbrgym.baselines.policy_file import Network
from bbrgym.baselines.registry import defaults
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.observation import PREFERENCE, History, tabulate

PINNED: dict[str, Any] = {
    "action": {"cwnd_gain": [0.5, 4.0], "pacing_gain": [0.75, 1.75], "cwnd_scale": "ratio"},
    "env": {"step_ms": 100.0, "step_rtts": None},
}
"""Whatever the defaults become."""


def make_agent(
    seed: int = 1,
    widths: tuple[int, ...] = (8,),
    lstm: tuple[int, ...] = (),
    activation: str = "tanh",
    output: str = "clip",
    scale: float = 0.5,
    has_skip: bool = False,
    **config: Any,
) -> Agent:
    """An agent whose weights are drawn: layers of these widths and then the actions, after LSTM layers of those.

    With `has_skip` the observation adds to the actions too.

    `config`: `observation`, `action` and `env` as conf/ has them.
    """
    random = np.random.default_rng(seed)

    def draw(*shape: int) -> Any:
        return random.normal(0, scale, shape).astype(np.float32)

    scenario = {"flows": [{"algorithm": "agent"}]}
    spec = EpisodeSpec.from_config({"scenario": scenario, "engine": {"name": "native"}} | config)
    width = int(np.prod(spec.observation.space.shape))
    memory, layers = [], []
    for hidden in lstm:
        memory.append((draw(4 * hidden, width), draw(4 * hidden, hidden), draw(4 * hidden)))
        width = hidden
    for outputs in (*widths, 2):
        layers.append((draw(outputs, width), draw(outputs)))
        width = outputs
    skip = draw(2, int(np.prod(spec.observation.space.shape))) if has_skip else None
    return Agent(spec, Network(tuple(layers), tuple(memory), activation, output, skip))


def networks() -> dict[str, Agent]:
    """Return an agent for each kind of network."""
    return {
        "tanh": make_agent(widths=(64, 64), observation={"history": 3}),
        "relu, squashed": make_agent(widths=(64, 32), activation="relu", output="tanh", scale=0.2),
        "one layer": make_agent(widths=()),
        "LSTM": make_agent(widths=(16,), lstm=(16, 8)),
        "LSTM and skip": make_agent(widths=(), lstm=(16,), scale=0.3, has_skip=True),
        "layers and skip": make_agent(
            widths=(8, 4), observation={"history": 2}, output="tanh", scale=0.2, has_skip=True
        ),
        "packets": make_agent(action={"cwnd_scale": "packets"}),
        "saturated": make_agent(widths=(16,), lstm=(16,), scale=3.0),
    }


def careful_agent(**config: Any) -> Agent:
    """An agent that answers queues and losses by smaller gains, smoothly: what it does says what it sees."""
    features = ["log_rtt_ratio", "loss_rate", "delivery_rate_ratio", "in_flight_ratio", "log_cwnd_gain"]
    observation = {"features": features, "history": 1}
    spec = make_agent(observation=observation, **PINNED | config).spec
    weight = np.array([[-0.8, -1.0, 0.2, -0.05, 0.1], [-0.5, -1.0, 0.1, -0.02, 0.0]], np.float32)
    return Agent(spec, Network(((weight, np.array([0.3, 0.1], np.float32)),)))


def _fixed_policy() -> bytes:
    # Weights of whole numbers and no tanh: the same on every machine and with every version of NumPy.
    observation = {"features": list(FEATURES_OF_THE_GOLDEN_TRACE), "history": 2}
    agent = make_agent(activation="relu", observation=observation, **PINNED)

    def whole(*shape: int) -> Any:
        count = int(np.prod(shape))
        return ((np.arange(count) * 7919 % 2001 - 1000) / 4000).reshape(shape).astype(np.float32)

    length = agent.network.inputs
    return Agent(agent.spec, Network(((whole(8, length), whole(8)), (whole(2, 8), whole(2))), (), "relu")).to_bytes()


FEATURES_OF_THE_GOLDEN_TRACE = (
    "delivery_rate_ratio",
    "send_rate_ratio",
    "log_rtt_ratio",
    "rtt_last_ratio",
    "in_flight_ratio",
    "cwnd_ratio",
    "loss_rate",
    "log_bdp",
    "log_min_rtt",
    "log_cwnd_gain",
    "log_pacing_gain",
    "is_probe_bw",
)
FIXED = _fixed_policy()


def make_controller(
    name: str,
    parameters: dict[str, float],
    packet_bytes: int = 1000,
    initial_cwnd: int = 10_000,
    initial_rtt: int = 0,
    seed: int = 1,
) -> cc.Controller:
    """`cc.make`, with a policy for the controller that runs one."""
    policy = FIXED if name == "policy" else None
    return cc.make(
        name,
        parameters,
        packet_bytes=packet_bytes,
        initial_cwnd=initial_cwnd,
        initial_rtt=initial_rtt,
        seed=seed,
        policy=policy,
    )


class ByHand:
    """A policy's decisions computed in Python from its ACKs, by the definitions of a row's columns."""

    def __init__(self, agent: Agent, controller: cc.PolicyController) -> None:
        self.agent, self.controller = agent, controller
        self.history = History(agent.spec.observation, 1)
        self.gains = (2.0, 1.0)
        self.times: list[int] = []
        first = {"is_active": 1.0, "sent_packets": 0.0, "delivered_packets": 0.0, "lost_packets": 0.0}
        first |= {"send_rate_mbps": 0.0, "delivery_rate_mbps": 0.0, "in_flight_packets": 0.0}
        self.observation = self.history.add(agent.spec.observation.evaluate(self.table(first)))
        self.decide()
        self.begin = self.due = -1
        self.sent = self.delivered = self.lost = 0
        self.rtts: list[int] = []

    def table(self, row: dict[str, float]) -> npt.NDArray[np.float64]:
        values = [[row.get(column, math.nan) for column in FLOW_COLUMNS]]
        return tabulate(np.array(values), np.array([[self.gains[0]], [self.gains[1]]]), defaults("policy")[PREFERENCE])

    def decide(self) -> None:
        np.testing.assert_allclose(self.controller.observation, self.observation[0], rtol=1e-6, atol=1e-6)
        bdp = self.controller.metrics().get("bdp_packets", math.nan)
        self.gains = self.agent.spec.action.gains(self.agent.predict(self.observation)[0], bdp)

    def interval(self) -> int:
        if self.agent.spec.step_rtts is None:
            assert self.agent.spec.step_ms is not None
            return int(self.agent.spec.step_ms * MS)
        return int(self.agent.spec.step_rtts * round(self.controller.metrics()["min_rtt_ms"] * MS))

    def on_ack(self, ack: cc.AckEvent) -> None:
        self.lost += ack.bytes_lost
        self.rtts += [ack.rtt] if ack.rtt else []
        if self.due < 0:
            self.begin = ack.now - ack.rtt
            self.due = self.begin + self.interval()
        if ack.now < self.due:
            return
        seconds = (ack.now - self.begin) / 1e9
        sent, delivered = ack.sent - self.sent, ack.delivered - self.delivered
        row = self.controller.metrics() | {
            "is_active": 1.0,
            "sent_packets": sent / PACKET,
            "delivered_packets": delivered / PACKET,
            "lost_packets": self.lost / PACKET,
            "send_rate_mbps": sent * 8e-6 / seconds,
            "delivery_rate_mbps": delivered * 8e-6 / seconds,
            "rtt_min_ms": min(self.rtts) / MS,
            "rtt_max_ms": max(self.rtts) / MS,
            "rtt_mean_ms": sum(self.rtts) / len(self.rtts) / MS,
            "rtt_jitter_ms": float(np.abs(np.diff(self.rtts)).mean()) / MS if len(self.rtts) > 1 else math.nan,
            "rtt_last_ms": self.rtts[-1] / MS,
            "in_flight_packets": ack.prior_in_flight / PACKET,
            "cwnd_packets": self.controller.decision().cwnd / PACKET,
        }
        self.observation = self.history.add(self.agent.spec.observation.evaluate(self.table(row)))
        self.decide()
        self.times.append(ack.now)
        self.begin, self.sent, self.delivered, self.lost, self.rtts = ack.now, ack.sent, ack.delivered, 0, []
        while self.due <= ack.now:
            self.due += self.interval()
