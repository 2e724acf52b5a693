"""An engine for tests: a deterministic fluid model of the bottleneck that needs milliseconds per episode.

It passes the contract of engines and reacts to gains as a real path does (queue, loss, shares, RTTs), and is otherwise
as simple as possible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from bbrgym.baselines.registry import COMPARATORS
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.engine import Engine, EngineDescription, EngineError, Rows, register_engine
from bbrgym.envs.scenario import HEADER_BYTES, Flow, Scenario

TICK_US = 10_000  # the model's time step
PROBE_GAINS = (1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)  # what a flow does that nobody steers


class FakeEngine(Engine):
    """A fluid bottleneck, registered as engine "fake".

    Args:
        fail_at_step: raise EngineError in this step of every episode (1 is the first), or never.
        timeout_s: as of engine ns3; has no effect.
        transport: as of engine ns3; has no effect.
    """

    description = EngineDescription(title="fake", comparators=tuple(COMPARATORS))

    def __init__(self, fail_at_step: int | None = None, timeout_s: float = 10.0, transport: str = "tcp") -> None:
        self.fail_at_step = fail_at_step
        self.is_closed = False
        self.resets: list[tuple[Scenario, int]] = []
        self._run: _Run | None = None
        self._step_us: int | None = None

    def _begin_reset(self, scenario: Scenario, seed: int, policies: Mapping[int, bytes]) -> None:
        self.resets.append((scenario, seed))
        self._run = _Run(scenario, seed)
        self._step_us = None

    def _begin_step(self, duration_ns: int) -> None:
        self._step_us = max(1, round(duration_ns / 1e3))

    def _finish_request(self, scenario: Scenario) -> Rows:
        assert self._run is not None
        if self._step_us is None:
            return self._run.rows(0.0)
        self._run.steps += 1
        if self._run.steps == self.fail_at_step:
            raise EngineError(f"the fake engine fails in step {self.fail_at_step}, as it was told to")
        return self._run.step(self._step_us)

    def _steer(self, flow: int, cwnd_gain: float, pacing_gain: float) -> None:
        assert self._run is not None
        self._run.flows[flow].gains = (cwnd_gain, pacing_gain)

    def _release(self) -> None:
        self._run = None

    def close(self) -> None:
        super().close()
        self.is_closed = True


register_engine("fake", "fake_engine:FakeEngine")


class _Sender:
    def __init__(self, flow: Flow, packet_bytes: int) -> None:
        self.flow = flow
        self.bits = packet_bytes * 8
        self.base_s = flow.rtt_ms / 1e3
        self.gains = (flow.parameters.get("cwnd_gain", 2.0), flow.parameters.get("pacing_gain", 1.0))
        self.bandwidth = 10.0 / self.base_s  # packets/s; the initial window of ten
        self.rate = 0.0  # delivered packets/s in the last tick
        self.rtt_s = math.nan
        self.queue = 0.0
        self.total = 0.0
        self.is_full_pipe = False
        self.clear()

    def clear(self) -> None:
        self.sent = self.delivered = self.lost = 0.0
        self.rtts: list[float] = []

    def is_active(self, time_s: float) -> bool:
        stop_s = math.inf if self.flow.stop_s is None else self.flow.stop_s
        return self.flow.start_s <= time_s < stop_s and not self.is_complete

    @property
    def is_complete(self) -> bool:
        return self.flow.size_bytes is not None and self.total * self.bits / 8 >= self.flow.size_bytes - 1e-6

    @property
    def bdp(self) -> float:
        return self.bandwidth * self.base_s

    def demand(self, time_s: float, tick_s: float) -> float:
        """Packets that it sends in a tick."""
        cwnd_gain, pacing_gain = self.in_force(time_s)
        room = max(0.0, cwnd_gain * self.bdp + 3.0 - self.queue - self.rate * self.base_s)
        left = math.inf
        if self.flow.size_bytes is not None:
            left = self.flow.size_bytes * 8 / self.bits - self.total - self.queue
        return max(0.0, min(pacing_gain * self.bandwidth * tick_s, room, left))

    def in_force(self, time_s: float) -> tuple[float, float]:
        if not self.is_full_pipe:
            return 2.885, 2.885
        if self.flow.algorithm == "agent":
            return self.gains
        phase = int((time_s - self.flow.start_s) / max(self.base_s, 0.02)) % len(PROBE_GAINS)
        return 2.0, PROBE_GAINS[phase]

    def row(self, time_s: float, duration_s: float) -> list[float]:
        mbps = self.bits / 1e6 / duration_s if duration_s else 0.0
        cwnd_gain, pacing_gain = self.in_force(time_s)
        known = {
            "is_active": float(self.is_active(time_s - 1e-9 if duration_s else time_s)),
            "sent_packets": self.sent,
            "delivered_packets": self.delivered,
            "lost_packets": self.lost,
            "retransmitted_packets": self.lost,
            "rto_count": 0.0,
            "received_bytes": self.delivered * self.bits / 8,
            "arrived_bytes": self.delivered * self.bits / 8,
            "inorder_bytes": self.delivered * self.bits / 8,
            "send_rate_mbps": self.sent * mbps,
            "delivery_rate_mbps": self.delivered * mbps,
            "throughput_mbps": self.delivered * mbps,
            "rtt_min_ms": min(self.rtts, default=math.nan) * 1e3,
            "rtt_mean_ms": float(np.mean(self.rtts)) * 1e3 if self.rtts else math.nan,
            "rtt_last_ms": self.rtt_s * 1e3,
            "in_flight_packets": self.queue + self.rate * self.base_s,
            "cwnd_packets": cwnd_gain * self.bdp + 3.0,
            "pacing_rate_mbps": pacing_gain * self.bandwidth * self.bits / 1e6,
            "is_buffer_limited": 0.0,
            "mode": 2.0 if self.is_full_pipe else 0.0,
            "max_bandwidth_mbps": self.bandwidth * self.bits / 1e6,
            "min_rtt_ms": self.base_s * 1e3 if self.rtt_s == self.rtt_s else math.nan,
            "bdp_packets": self.bdp if self.rtt_s == self.rtt_s else math.nan,
            "cwnd_gain": cwnd_gain,
            "pacing_gain": pacing_gain,
            "is_full_pipe": float(self.is_full_pipe),
        }
        return [known.get(column, math.nan) for column in FLOW_COLUMNS]


class _Run:
    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.random = np.random.default_rng(seed)
        self.flows = [_Sender(flow, scenario.packet_bytes) for flow in scenario.flows]
        self.now_us = 0
        self.end_us = round(scenario.duration_s * 1e6)
        self.steps = 0
        self.clear()

    def clear(self) -> None:
        self.left = self.could = self.drops = self.losses = 0.0
        self.queues: list[float] = []
        for flow in self.flows:
            flow.clear()

    def step(self, duration_us: int) -> Rows:
        self.clear()
        begin_us, until_us = self.now_us, min(self.now_us + duration_us, self.end_us)
        while self.now_us < until_us:
            self.tick(min(TICK_US, until_us - self.now_us))
        return self.rows((self.now_us - begin_us) / 1e6)

    def tick(self, tick_us: int) -> None:
        time_s, tick_s = self.now_us / 1e6, tick_us / 1e6
        capacity = self.link_rate() * tick_s
        active = [flow for flow in self.flows if flow.is_active(time_s)]
        for flow in active:
            sent = flow.demand(time_s, tick_s)
            flow.sent += sent
            flow.queue += sent
        total = sum(flow.queue for flow in self.flows)
        served = min(1.0, capacity / total) if total > 0 else 0.0
        loss = self.scenario.loss * (0.5 + self.random.random())
        for flow in self.flows:
            out = flow.queue * served
            flow.queue -= out
            lost, out = out * loss, out * (1 - loss)
            self.losses += lost
            flow.lost += lost
            flow.delivered += out
            flow.total += out
            flow.rate = out / tick_s
            self.left += out + lost
        queue = total * (1 - served)
        over = max(0.0, 1.0 - self.scenario.queue_packets / queue) if queue > 0 else 0.0
        for flow in self.flows:
            self.drops += flow.queue * over
            flow.lost += flow.queue * over
            flow.queue *= 1 - over
        queue *= 1 - over
        for flow in active:
            if flow.rate > 0:
                flow.rtt_s = flow.base_s + queue / self.link_rate()
                flow.rtts.append(flow.rtt_s)
                flow.is_full_pipe |= flow.rtt_s > 1.25 * flow.base_s
            flow.bandwidth = max(flow.rate, flow.bandwidth * math.exp(-tick_s / 1.0), 1.0 / flow.base_s)
        self.could += capacity
        self.queues.append(queue)
        self.now_us += tick_us

    def link_rate(self) -> float:
        """Packets a second."""
        rate = self.scenario.rate_mbps
        for at_s, changed in self.scenario.rate_schedule:
            rate = changed if self.now_us >= at_s * 1e6 else rate
        return rate * 1e6 / 8 / (self.scenario.packet_bytes + HEADER_BYTES)

    def rows(self, duration_s: float) -> Rows:
        rate = self.link_rate()
        time_s = self.now_us / 1e6
        queues = self.queues or [0.0]
        link = {
            "rate_mbps": rate * 8 * (self.scenario.packet_bytes + HEADER_BYTES) / 1e6,
            "utilisation": self.left / self.could if self.could else 0.0,
            "queue_mean_packets": float(np.mean(queues)),
            "queue_max_packets": max(queues),
            "queue_mean_ms": float(np.mean(queues)) / rate * 1e3,
            "queue_max_ms": max(queues) / rate * 1e3,
            "drops": self.drops,
            "random_losses": self.losses,
        }
        is_complete = all(flow.is_complete for flow in self.flows)
        return Rows(
            time_s=time_s,
            flows=np.array([flow.row(time_s, duration_s) for flow in self.flows]),
            link=np.array([link[column] for column in LINK_COLUMNS]),
            is_over=is_complete or self.now_us >= self.end_us,
            is_complete=is_complete,
        )
