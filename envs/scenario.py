"""What is simulated: one shared bottleneck and the flows on it, the same in every engine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any

from bbrgym.baselines import registry

HEADER_BYTES = 40
"""IPv4 and TCP headers of a data packet: a packet of `packet_bytes` occupies the link for this much more."""


@dataclass(frozen=True)
class Flow:
    """One sender and its receiver across the bottleneck.

    Args:
        algorithm: name of a congestion controller (`bbrgym.controllers()`), or of an engine's own comparator
            (`bbr-stock`, `cubic-stock`, `newreno-stock` in ns-3).
        rtt_ms: base round-trip time without queueing and serialisation, in ms, above 0.
        start_s: when the flow begins to send, in s from the start of the episode.
        stop_s: when it stops sending, or None for the end of the episode.
        size_bytes: how much it sends (payload), or None for an endless source.
        parameters: the controller's parameters that differ from its defaults.

    Raises:
        ValueError: naming the bad value and the good ones.
    """

    algorithm: str = "bbr"
    rtt_ms: float = 50.0
    start_s: float = 0.0
    stop_s: float | None = None
    size_bytes: int | None = None
    parameters: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_types(self, numbers=("rtt_ms", "start_s", "stop_s"), whole=("size_bytes",))
        registry.check_parameters(self.algorithm, self.parameters)
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))
        _check("rtt_ms", self.rtt_ms, "in (0, 10000]", 0 < self.rtt_ms <= 10_000)
        _check("start_s", self.start_s, "at least 0", 0 <= self.start_s < math.inf)
        if self.stop_s is not None:
            _check("stop_s", self.stop_s, f"after the flow's start_s={self.start_s:g}", self.stop_s > self.start_s)
        if self.size_bytes is not None:
            _check("size_bytes", self.size_bytes, "at least 1, or none for endless", self.size_bytes >= 1)

    def __hash__(self) -> int:
        return hash((self.algorithm, self.rtt_ms, self.start_s, self.stop_s, self.size_bytes))

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy does not pickle.
        arguments = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        arguments["parameters"] = dict(self.parameters)
        return (_make_flow, (arguments,))


@dataclass(frozen=True)
class Scenario:
    """A dumbbell with one bottleneck that all flows share. The receivers' link back is uncongested.

    Args:
        rate_mbps: rate of the bottleneck link, in Mbit/s of bytes on the wire (payload and `HEADER_BYTES`).
        buffer_bdp: size of its droptail buffer in bandwidth-delay products of the flow with the longest RTT:
            rate x rtt / 8 bytes, counted in packets of `packet_bytes`. 1 if neither buffer is given.
        buffer_packets: the same in packets. Give at most one of the two.
        duration_s: length of the episode, in s.
        packet_bytes: payload of a full data packet (the TCP segment size), in bytes.
        loss: probability that a data packet is lost on the link at random, after the queue.
        rate_schedule: changes of the rate, as pairs (time in s, rate in Mbit/s) with rising times.
        flows: the flows, at least one.

    Raises:
        ValueError: naming the bad value and the good ones.
    """

    rate_mbps: float = 12.0
    buffer_bdp: float | None = None
    buffer_packets: int | None = None
    duration_s: float = 30.0
    packet_bytes: int = 1000
    loss: float = 0.0
    rate_schedule: tuple[tuple[float, float], ...] = ()
    flows: tuple[Flow, ...] = field(default_factory=lambda: (Flow(),))

    def __post_init__(self) -> None:
        _check_types(self, ("rate_mbps", "buffer_bdp", "duration_s", "loss"), ("buffer_packets", "packet_bytes"))
        _check("rate_mbps", self.rate_mbps, "in [0.01, 10000]", 0.01 <= self.rate_mbps <= 10_000)
        if self.buffer_bdp is not None and self.buffer_packets is not None:
            raise ValueError(
                f"buffer_bdp={self.buffer_bdp:g} and buffer_packets={self.buffer_packets} are both given: give one"
            )
        if self.buffer_bdp is not None:
            _check("buffer_bdp", self.buffer_bdp, "above 0", 0 < self.buffer_bdp <= 10_000)
        if self.buffer_packets is not None:
            _check("buffer_packets", self.buffer_packets, "at least 1", 1 <= self.buffer_packets <= 10_000_000)
        _check("duration_s", self.duration_s, "above 0", 0 < self.duration_s <= 1e6)
        _check("packet_bytes", self.packet_bytes, "in [64, 9000]", 64 <= self.packet_bytes <= 9000)
        _check("loss", self.loss, "in [0, 1)", 0 <= self.loss < 1)
        object.__setattr__(self, "rate_schedule", tuple((float(t), float(r)) for t, r in self.rate_schedule))
        times = [t for t, _ in self.rate_schedule]
        _check("rate_schedule", list(self.rate_schedule), "pairs with rising times above 0",
               all(a < b for a, b in zip([0.0, *times], times, strict=False)))  # fmt: skip
        for _, rate in self.rate_schedule:
            _check("rate_schedule", rate, "rates in [0.01, 10000]", 0.01 <= rate <= 10_000)
        object.__setattr__(self, "flows", tuple(self.flows))
        _check("flows", len(self.flows), "1 to 1000 flows", 1 <= len(self.flows) <= 1000)
        for index, flow in enumerate(self.flows):
            _check(f"flows[{index}]", flow, "a Flow", isinstance(flow, Flow))
            _check(f"flows[{index}].start_s", flow.start_s, f"before duration_s={self.duration_s:g}",
                   flow.start_s < self.duration_s)  # fmt: skip

    @property
    def bdp_packets(self) -> float:
        """Bandwidth-delay product of the longest RTT in packets of `packet_bytes`."""
        longest_rtt_s = max(flow.rtt_ms for flow in self.flows) / 1e3
        return self.rate_mbps * 1e6 * longest_rtt_s / 8 / self.packet_bytes

    @property
    def queue_packets(self) -> int:
        """Capacity of the bottleneck's buffer in packets, whichever way it was given; at least 1."""
        if self.buffer_packets is not None:
            return self.buffer_packets
        return max(1, round((1.0 if self.buffer_bdp is None else self.buffer_bdp) * self.bdp_packets))

    @property
    def agent_flows(self) -> tuple[int, ...]:
        """Indices of the flows whose gains come from outside."""
        return tuple(i for i, flow in enumerate(self.flows) if flow.algorithm == "agent")

    def with_algorithm(self, algorithm: str, **parameters: float) -> Scenario:
        """The same scenario with `algorithm` on every flow."""
        flows = tuple(dataclasses.replace(f, algorithm=algorithm, parameters=parameters) for f in self.flows)
        return dataclasses.replace(self, flows=flows)

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, for JSON, YAML and the engines; `from_dict` makes the scenario again."""
        plain: dict[str, Any] = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain["rate_schedule"] = [list(pair) for pair in self.rate_schedule]
        plain["flows"] = [
            {f.name: getattr(flow, f.name) for f in dataclasses.fields(flow)} | {"parameters": dict(flow.parameters)}
            for flow in self.flows
        ]
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Scenario:
        """From plain types, as a YAML file or the wire has them; an unknown key is refused by name."""
        arguments = dict(plain)
        flows = arguments.pop("flows", None)
        _check_keys("scenario", arguments, cls)
        if flows is not None:
            for flow in flows:
                _check_keys("flow", flow, Flow)
            arguments["flows"] = tuple(Flow(**flow) for flow in flows)
        return cls(**arguments)


def _make_flow(arguments: dict[str, Any]) -> Flow:
    return Flow(**arguments)


def _check(name: str, value: object, good: str, is_good: bool) -> None:
    if not is_good:
        raise ValueError(f"{name}={value!r} is not possible: {name} must be {good}")


def _check_types(record: object, numbers: tuple[str, ...], whole: tuple[str, ...]) -> None:
    for name in (*numbers, *whole):
        value = getattr(record, name)
        is_optional = getattr(type(record), name, 0) is None
        good = "a whole number" if name in whole else "a number"
        kinds = Integral if name in whole else Real  # numpy's numbers too
        is_good = (value is None and is_optional) or (isinstance(value, kinds) and not isinstance(value, bool))
        _check(name, value, f"{good}{', or none' if is_optional else ''}", is_good)


def _check_keys(what: str, given: Mapping[str, Any], cls: type) -> None:
    known = [f.name for f in dataclasses.fields(cls)]
    for key in given:
        if key not in known:
            raise ValueError(f"a {what} has no field {key!r}; known: {', '.join(known)}")
