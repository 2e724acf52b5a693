"""Scenarios: one shared bottleneck and the flows on it, the same in every engine."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

from bbrgym.baselines import registry
from bbrgym.checks import as_python, check_integer, check_keys, explains_fields, is_number
from bbrgym.envs import rate_trace, rtt_trace, workload
from bbrgym.envs.fields import FLOW_FIELDS, SCENARIO_FIELDS, Field, check_fields, check_is_of_list
from bbrgym.envs.flow_command import DataFrom, check_commands

HEADER_BYTES = 40
"""IPv4 and TCP headers: what a data packet occupies on the link in addition to `packet_bytes`."""

MOST_FLOWS: Final = 1000
"""How many flows a scenario can have."""

Queue = Literal["droptail", "codel", "pie", "fq_codel", "dualpi2"]
"""How the bottleneck's queue decides what to drop or mark."""

Ecn = Literal["classic", "l4s"]
"""What a flow's ECN-capable packets carry: ECT(0) (RFC 3168), or ECT(1) (L4S, RFC 9331)."""

OnOff = Literal["fixed", "exponential"]
"""How long an application's on and off periods last: always the same, or exponentially distributed."""


Transport = Literal["ours", "kernel"]
"""Who sends a flow's packets: the engine's own transport, or the TCP of the kernel (docs/kernel.md)."""

_OF_KERNEL: Final = ("agent", "policy")
"""Controllers that can steer the kernel's TCP."""

Path = Literal["forward", "first", "second", "reverse"]
"""Which links the data of a flow crosses: all forward links, one hop of a parking lot, or the reverse link."""


@explains_fields
@dataclass(frozen=True, repr=False)
class Flow:
    """One sender and its receiver across the bottleneck. It takes no part if its `stop_s` equals its `start_s`.

    Args:
        algorithm: name of a congestion controller (`bbrgym.controllers()`), or of an engine's own comparator
            (`bbr-stock`, `cubic-stock`, `newreno-stock` in ns-3; `linux-cubic`, `linux-bbr`, … in linux), or `command`:
            any two programs (linux only).
        rtt_ms: base round-trip time without queueing and serialisation, in ms. With an `rtt_schedule` it is the nominal
            one, which defines the BDP. Must be in (0, 10000].
        start_s: when the flow starts to send, in s from the start of the episode. Must be >= 0.
        stop_s: when it stops sending, in s, or None for the end of the episode.
        size_bytes: how much it sends (payload), or None for an endless source. Must be in [1, 2**53).
        parameters: the controller's parameters that differ from its defaults.
        jitter_ms: upper limit of the random extra delay of each ACK on the return path, drawn uniformly from 0 to this,
            in ms. ACKs do not overtake each other, so those behind a late one arrive with it. Must be in [0, 10000].
        policy: for algorithm `policy`: the path of a training run or an agent's folder, read when an episode starts.
            None is the shipped policy, which is part of the package.
        file: for algorithm `file`: the path of a controller in C, which the engine compiles, loads and runs with the
            rights of this process (docs/score.md).
        ecn: `classic` or `l4s` if the flow is ECN-capable: queues mark its packets instead of dropping them, and the
            receiver reports the marks to the sender (docs/scenarios.md). None if it is not.
        rtt_schedule: changes of the base RTT, as pairs (time in s, RTT in ms) with rising times. They apply to the way
            back: an ACK takes the RTT of the time at which its receiver sends it, but does not overtake the one before.
            `from_dict` also makes a schedule of a trace. Values must be in (0, 10000].
        ack_loss: probability that an ACK is lost on the way back. Must be in [0, 1).
        ack_aggregation_ms: ACKs leave the receiver together, at multiples of this time, in ms; 0 if each leaves at
            once. Must be in [0, 10000].
        app_rate_mbps: rate of payload at which the application writes, in messages of `packet_bytes`
            (docs/scenarios.md). None if all there is to send is there at once. Must be in [0.001, 10000].
        on_s: length of the periods in which it writes, in s; None if it always does. Needs `app_rate_mbps`. Must be in
            [0.001, 1e+06].
        off_s: length of the periods between them, in s. Give both or none. Must be in [0, 1e+06].
        on_off: `fixed` if all periods are that long, or `exponential` if these are their means. The flow's seed in an
            episode draws them.
        path: which links its data crosses (docs/scenarios.md#topology): `forward`, all forward links; `first` or
            `second`, one of two; or `reverse`, the reverse link, while its ACKs cross the bottleneck.
        server: for algorithm `command`, and only there: the program and the arguments of the end that listens
            (docs/stacks.md).
        client: those of the end that connects. In both, `{address}`, `{port}`, `{seconds}` and `{bytes}` are replaced.
        data_from: which of them sends the data, `client` or `server`.
        transport: `ours`, or `kernel` for the kernel's TCP with the gains of an `agent` or a `policy` (linux only,
            docs/kernel.md). Without a `policy`, a flow `policy` then runs `KERNEL_REFERENCE`.

    Raises:
        ValueError: naming the bad value and the good ones.
    """

    algorithm: str = "bbr"
    rtt_ms: float = 50.0
    start_s: float = 0.0
    stop_s: float | None = None
    size_bytes: int | None = None
    parameters: Mapping[str, float] = field(default_factory=dict, hash=False)
    jitter_ms: float = 0.0
    policy: str | None = None
    file: str | None = None
    ecn: Ecn | None = None
    rtt_schedule: tuple[tuple[float, float], ...] = ()
    ack_loss: float = 0.0
    ack_aggregation_ms: float = 0.0
    app_rate_mbps: float | None = None
    on_s: float | None = None
    off_s: float | None = None
    on_off: OnOff = "fixed"
    path: Path = "forward"
    server: tuple[str, ...] = ()
    client: tuple[str, ...] = ()
    data_from: DataFrom = "client"
    transport: Transport = "ours"

    def __post_init__(self) -> None:
        registry.check_parameters(self.algorithm, self.parameters)
        object.__setattr__(self, "parameters", {name: as_python(value) for name, value in self.parameters.items()})
        check_fields(self, FLOW_FIELDS)
        _check(
            "stop_s", self.stop_s, f">= start_s={self.start_s:g}", self.stop_s is None or self.stop_s >= self.start_s
        )
        _check(
            "off_s", self.off_s, f"null if and only if on_s={self.on_s} is", (self.off_s is None) == (self.on_s is None)
        )
        _check(
            "app_rate_mbps",
            self.app_rate_mbps,
            f"a rate with on_s={self.on_s}",
            is_good=self.on_s is None or self.app_rate_mbps is not None,
        )
        for kind, path in (("policy", self.policy), (registry.FILE, self.file)):
            if path is not None:
                _check(kind, path, "a path or null", isinstance(path, str) and path != "")
                good = f"null with algorithm {self.algorithm!r} (only {kind!r} runs one)"
                _check(kind, path, good, is_good=self.algorithm == kind)
        _check(
            "file",
            self.file,
            f"a path with algorithm {registry.FILE!r}",
            is_good=self.algorithm != registry.FILE or self.file is not None,
        )
        commands = {"server": self.server, "client": self.client}
        check_commands(self.algorithm, commands, data_from=self.data_from, size_bytes=self.size_bytes, ecn=self.ecn)
        for name, command in commands.items():
            object.__setattr__(self, name, command)
        _check(
            "transport",
            self.transport,
            f"ours with algorithm {self.algorithm!r} (the kernel's TCP takes the gains of {' and '.join(_OF_KERNEL)})",
            is_good=self.transport == "ours" or self.algorithm in _OF_KERNEL,
        )

    def __repr__(self) -> str:
        """Return code that makes it: the algorithm, and what differs from the defaults."""
        return f"Flow({', '.join([repr(self.algorithm), *_said(self, ['algorithm'])])})"

    @property
    def is_absent(self) -> bool:
        """Whether it stops when it starts, and so takes no part."""
        return self.stop_s == self.start_s

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, as `Scenario.to_dict` has them of its flows."""
        return _plain(self, FLOW_FIELDS) | {"parameters": dict(self.parameters)}

    def describe(self) -> str:
        """Return the flow's path and times in words, without its algorithm: `50 ms from 2 s to 9 s, 3 MB`."""
        text = f"{self.rtt_ms:g} ms"
        if self.rtt_schedule:
            text += f", {_changes('RTT', self.rtt_schedule, 'ms')}"
        if self.start_s:
            text += f" from {self.start_s:g} s"
        if self.stop_s is not None:
            text += f" to {self.stop_s:g} s"
        if self.size_bytes is not None:
            text += f", {self.size_bytes / 1e6:g} MB"
        if self.jitter_ms:
            text += f", jitter of up to {self.jitter_ms:g} ms"
        if self.ecn is not None:
            text += f", {self.ecn} ECN"
        if self.ack_loss:
            text += f", {self.ack_loss:.2%} of ACKs lost"
        if self.ack_aggregation_ms:
            text += f", ACKs together every {self.ack_aggregation_ms:g} ms"
        if self.app_rate_mbps is not None:
            text += f", {self.app_rate_mbps:g} Mbit/s by the application"
        if self.on_s is not None:
            text += f" for {self.on_s:g} s, then {self.off_s:g} s off"
            text += " (means)" if self.on_off == "exponential" else ""
        if self.path != "forward":
            text += f", path {self.path}"
        if self.transport != "ours":
            text += f", transport {self.transport}"
        return text


CHECKED_TOGETHER: Final = (
    ("algorithm", "parameters", "policy", "file", "transport"),
    ("start_s", "stop_s"),
    ("app_rate_mbps", "on_s", "off_s"),
    ("duration_s", "flows"),
    ("duration_s", "rate_schedule"),
    ("duration_s", "rate_mbps", "packet_bytes", "workload"),
    ("sizes", "mean_bytes", "shape"),
    ("load", "arrivals_per_s"),
    ("second_rate_mbps", "reverse_rate_mbps", "flows"),
    ("buffer_bdp", "buffer_packets"),
    ("loss", "loss_burst_packets", "loss_burst_ms"),
    ("policer_mbps", "policer_burst_bytes", "packet_bytes"),
)
"""Fields of a scenario, a flow or a workload whose good values depend on each other."""

DRIVER: Final = ("algorithm", "parameters", "policy", "file", "server", "client", "data_from", "transport")
"""The fields of a flow that say who drives it; the others are about its path and its application."""


@explains_fields
@dataclass(frozen=True, repr=False)
class Scenario:
    """A dumbbell with one bottleneck that all flows share, unless it has a second or a reverse link.

    Args:
        rate_mbps: rate of the bottleneck link, in Mbit/s of bytes on the wire (payload and `HEADER_BYTES`). Must be in
            [0.01, 10000].
        buffer_bdp: size of its buffer in bandwidth-delay products of the flow with the longest RTT: rate x rtt / 8
            bytes, counted in packets of `packet_bytes`. 1 if neither buffer is given. Must be in (0, 10000].
        buffer_packets: the same in packets. Give at most one of the two. Must be in [1, 1e+07].
        queue: `droptail`, which drops packets that arrive at a full buffer; `codel` (RFC 8289), which also drops
            packets at the queue's head once delays have exceeded `codel_target_ms` for `codel_interval_ms`; `pie` (RFC
            8033), which also drops arriving packets with a probability that keeps the delay at `pie_target_ms`;
            `fq_codel` (RFC 8290), which serves the flows in turns and has a queue with CoDel for each; or `dualpi2`
            (RFC 9332), which has a short queue for L4S flows beside one that it keeps at `dualpi2_target_ms`. Instead
            of dropping packets, the last four mark those of ECN-capable flows.
        codel_target_ms: CoDel's TARGET, the acceptable standing queueing delay, in ms, also that of FQ-CoDel. Must be
            in [0.01, 10000].
        codel_interval_ms: CoDel's INTERVAL, about the longest RTT of the flows, in ms, also that of FQ-CoDel. Must be
            in [0.1, 100000].
        pie_target_ms: PIE's QDELAY_REF, the queueing delay that it keeps, in ms. Must be in [0.01, 10000].
        dualpi2_target_ms: DualPI2's target of the delay in the classic queue, in ms. Must be in [0.01, 10000].
        dualpi2_step_ms: how long an L4S packet may wait in DualPI2 before it is marked in any case, in ms. Must be in
            [0, 10000].
        dualpi2_coupling: DualPI2's coupling factor k: L4S packets are marked with k times the root of the probability
            with which classic ones are dropped. Must be in [1, 100].
        ce_threshold_ms: the queue, whatever its kind, marks every packet of an ECN-capable flow that has waited longer
            than this, in ms (step marking, as for DCTCP, RFC 8257); None for no such mark. Must be in [0, 10000].
        duration_s: length of the episode, in s. Must be in (0, 1e+06].
        packet_bytes: payload of a full data packet (the TCP segment size), in bytes. Must be in [64, 9000].
        loss: probability that a data packet is lost on the link at random, after the queue. Must be in [0, 1).
        loss_burst_packets: average number of packets lost in a row (Gilbert's model: a good state in which nothing is
            lost, a bad one in which everything is), or None. Without one of the two lengths, losses are independent.
            Time does not end such a burst: a lone flow that has stopped sends one packet per probe timeout, and each
            timeout is twice as long as the one before, so a burst can stop it for the rest of the run. For links whose
            fading ends by itself, use `loss_burst_ms`. Must be in [1, 1e+06].
        loss_burst_ms: average time for which everything is lost, in ms, at the share `loss` of the time, or None. Such
            a burst ends whether packets come or not. Must be in [0.01, 1e+06].
        rate_schedule: changes of the rate, as pairs (time in s, rate in Mbit/s) with rising times. A packet keeps the
            rate with which its transmission started. If the first time is 0, `rate_mbps` is never the link's rate, but
            still defines the buffer's BDP. `from_dict` also makes a schedule of a trace. Values must be in [0.01,
            10000].
        reordering: probability that a data packet is late behind the link, so that the packets behind it overtake it.
            Must be in [0, 1).
        reordering_ms: how much later it arrives, in ms. Must be in (0, 10000].
        policer_mbps: rate of a token-bucket policer in front of the queue, in Mbit/s of bytes on the wire, or None. It
            drops the packets of all flows for which its bucket has no tokens. Must be in [0.01, 10000].
        policer_burst_bytes: size of its bucket, in bytes on the wire. Must be in [1, 2**53).
        second_rate_mbps: rate of a second link behind the bottleneck (a parking lot of two hops), or None for none. See
            docs/scenarios.md#topology, also for the reverse link. Neither loses packets at random. Must be in [0.01,
            10000].
        second_buffer_packets: size of its droptail buffer, in packets. Must be in [1, 1e+07].
        reverse_rate_mbps: rate of a link in the other direction beside the bottleneck, in which ACKs queue, in Mbit/s
            of bytes on the wire (an ACK has `HEADER_BYTES`). None: the way back is uncongested. Must be in [0.01,
            10000].
        reverse_buffer_packets: size of its droptail buffer, in packets of any size. Must be in [1, 1e+07].
        flows: the flows, at least one.

    Raises:
        ValueError: naming the bad value and the good ones.
    """

    rate_mbps: float = 12.0
    buffer_bdp: float | None = None
    buffer_packets: int | None = None
    queue: Queue = "droptail"
    codel_target_ms: float = 5.0
    codel_interval_ms: float = 100.0
    pie_target_ms: float = 15.0
    dualpi2_target_ms: float = 15.0
    dualpi2_step_ms: float = 1.0
    dualpi2_coupling: float = 2.0
    ce_threshold_ms: float | None = None
    duration_s: float = 30.0
    packet_bytes: int = 1000
    loss: float = 0.0
    loss_burst_packets: float | None = None
    loss_burst_ms: float | None = None
    rate_schedule: tuple[tuple[float, float], ...] = ()
    reordering: float = 0.0
    reordering_ms: float = 10.0
    policer_mbps: float | None = None
    policer_burst_bytes: int = 100_000
    second_rate_mbps: float | None = None
    second_buffer_packets: int = 100
    reverse_rate_mbps: float | None = None
    reverse_buffer_packets: int = 100
    flows: tuple[Flow, ...] = field(default_factory=lambda: (Flow(),))

    def __post_init__(self) -> None:
        if is_number(self.rate_mbps) and self.rate_mbps > 10_000:
            good = f"<= 10000 (if it is in bit/s, give {self.rate_mbps / 1e6:g})"
            _check("rate_mbps", self.rate_mbps, good, is_good=False)
        check_fields(self, SCENARIO_FIELDS)
        if self.buffer_bdp is not None and self.buffer_packets is not None:
            raise ValueError(
                f"give one of buffer_bdp and buffer_packets, got {self.buffer_bdp:g} and {self.buffer_packets}"
            )
        if (burst := self.loss_burst_packets) is not None:
            good = f"null with loss_burst_packets={burst:g}"
            _check("loss_burst_ms", self.loss_burst_ms, good, is_good=self.loss_burst_ms is None)
            # Between two bursts there is one packet at least.
            most = burst / (burst + 1)
            good = f"<= {most:.6g} with loss_burst_packets={burst:g}"
            _check("loss", self.loss, good, is_good=self.loss <= most)
        if self.policer_mbps is not None:
            least = self.packet_bytes + HEADER_BYTES
            _check(
                "policer_burst_bytes",
                self.policer_burst_bytes,
                f">= {least}, a full packet with its headers",
                is_good=self.policer_burst_bytes >= least,
            )
        self._check_begin("rate_schedule", self.rate_schedule)
        is_list = isinstance(self.flows, Iterable) and not isinstance(self.flows, str | Mapping)
        _check("flows", self.flows, "a list, as [Flow('bbr', rtt_ms=50)]", is_list)
        object.__setattr__(self, "flows", tuple(self.flows))
        check_integer("the number of flows", len(self.flows), at_least=1, at_most=MOST_FLOWS)
        for index, flow in enumerate(self.flows):
            if not isinstance(flow, Flow):
                good = "a Flow, as Flow('bbr', rtt_ms=50) (Scenario.from_dict takes mappings)"
                raise ValueError(f"flows[{index}] must be {good}, got {flow!r}")
            _check(
                f"flows[{index}].start_s",
                flow.start_s,
                f"< duration_s={self.duration_s:g}",
                is_good=flow.start_s < self.duration_s,
            )
            self._check_begin(f"flows[{index}].rtt_schedule", flow.rtt_schedule)
            needed = {"first": "second", "second": "second", "reverse": "reverse"}.get(flow.path)
            if needed and getattr(self, f"{needed}_rate_mbps") is None:
                raise ValueError(f"flows[{index}]: path {flow.path!r} needs {needed}_rate_mbps, got null")
        self._warn_of_units()

    def _warn_of_units(self) -> None:
        """Warn of values that are hardly meant: in s instead of ms, or in ms instead of s."""
        if self.duration_s >= 10_000:  # hours
            _warn_once(
                "duration_s", self.duration_s, what=f"is {self.duration_s / 3600:.3g} hours", unit="ms", factor=1e-3
            )
        # RTTs of 2 ms to 1 s, in s, and shorter than the link needs for a packet; a data centre's link is faster.
        too_short_ms = min(1.0, self.packet_bytes * 8e-3 / self.fastest_mbps)
        for index, flow in enumerate(self.flows):
            if 0.002 <= flow.rtt_ms < too_short_ms and not flow.rtt_schedule:
                _warn_once(
                    f"flows[{index}].rtt_ms",
                    flow.rtt_ms,
                    what="is less than a packet takes on the link",
                    unit="s",
                    factor=1e3,
                )

    def _check_begin(self, name: str, schedule: Sequence[tuple[float, float]]) -> None:
        """Refuse a schedule of which nothing takes effect."""
        if schedule:
            first_s, _ = schedule[0]
            _check(
                f"the first time in {name}",
                first_s,
                f"< duration_s={self.duration_s:g}",
                is_good=first_s < self.duration_s,
            )

    @property
    def bdp_packets(self) -> float:
        """Bandwidth-delay product of the longest RTT, in packets of `packet_bytes`."""
        longest_rtt_s = max(flow.rtt_ms for flow in self.flows) / 1e3
        return self.rate_mbps * 1e6 * longest_rtt_s / 8 / self.packet_bytes

    @property
    def fastest_mbps(self) -> float:
        """The highest rate that the bottleneck link ever has, in Mbit/s."""
        return max([self.rate_mbps, *(rate for _, rate in self.rate_schedule)])

    @property
    def queue_packets(self) -> int:
        """Capacity of the bottleneck's buffer in packets, at least 1, from `buffer_packets` or `buffer_bdp`."""
        if self.buffer_packets is not None:
            return self.buffer_packets
        return max(1, round((1.0 if self.buffer_bdp is None else self.buffer_bdp) * self.bdp_packets))

    @property
    def has_ecn(self) -> bool:
        """Whether any flow is ECN-capable."""
        return any(flow.ecn is not None for flow in self.flows)

    def ideal_completion_ms(self, flow: int) -> float:
        """Return the least time in which a finite flow can complete on an empty path, in ms; NaN for an endless one.

        That is the handshake, half an RTT for the last byte, and all of its packets at the largest rate that the
        slowest link of its path ever has, with the shortest RTT of the flow; or the last packet alone, if the
        application writes it later than that. No congestion controller knows this rate beforehand: flows of more
        packets than the initial window have more round trips (slow start).
        """
        size_bytes = self.flows[flow].size_bytes
        if size_bytes is None:
            return math.nan
        packets = math.ceil(size_bytes / self.packet_bytes)
        path = self.flows[flow].path
        rates_mbps = [rate for _, rate in self.rate_schedule]
        if not self.rate_schedule or self.rate_schedule[0][0] > 0:  # otherwise the link never has `rate_mbps`
            rates_mbps.append(self.rate_mbps)
        bottleneck_mbps = max(rates_mbps)
        crossed = [
            bottleneck_mbps if path in ("forward", "first") else None,
            self.second_rate_mbps if path in ("forward", "second") else None,
            self.reverse_rate_mbps if path == "reverse" else None,
        ]
        slowest_mbps = min(rate for rate in crossed if rate is not None)
        shortest_rtt_ms = min([self.flows[flow].rtt_ms, *(rtt for _, rtt in self.flows[flow].rtt_schedule)])
        sending_ms = (size_bytes + packets * HEADER_BYTES) * 8e-3 / slowest_mbps
        app_rate_mbps = self.flows[flow].app_rate_mbps
        if app_rate_mbps is not None:
            earlier_bytes = (packets - 1) * self.packet_bytes
            last_ms = (size_bytes - earlier_bytes + HEADER_BYTES) * 8e-3 / slowest_mbps
            sending_ms = max(sending_ms, earlier_bytes * 8e-3 / app_rate_mbps + last_ms)
        return 1.5 * shortest_rtt_ms + sending_ms

    @property
    def agent_flows(self) -> tuple[int, ...]:
        """Indices of the flows whose algorithm is `agent`."""
        return tuple(i for i, flow in enumerate(self.flows) if flow.algorithm == "agent")

    @cached_property
    def digest(self) -> int:
        """A hash of all fields, in [0, 2**53): equal for equal scenarios, in every process and version of Python."""
        text = json.dumps(_with_floats(self.to_dict()), sort_keys=True)
        # 53 bits, so that software that stores it as float64 keeps it.
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 11

    def with_algorithm(self, algorithm: str, **parameters: float) -> Scenario:
        """Return the scenario with `algorithm` on every flow; `policy` is then the shipped policy."""
        driven = Flow(algorithm, parameters=parameters)
        driver = {name: getattr(driven, name) for name in DRIVER}
        return dataclasses.replace(self, flows=tuple(dataclasses.replace(flow, **driver) for flow in self.flows))

    def with_agents_as(self, algorithm: str) -> Scenario:
        """Return the scenario with `algorithm` and its default parameters in place of every agent."""
        others = self.with_algorithm(algorithm).flows
        agents = self.agent_flows
        flows = tuple(others[i] if i in agents else flow for i, flow in enumerate(self.flows))
        return dataclasses.replace(self, flows=flows)

    def describe(self) -> str:
        """Return one sentence that says what is simulated, without the algorithms of the flows."""
        shown = self.flows if len(self.flows) <= 32 else self.flows[:8]
        flows = [f"flow {index}: {flow.describe()}" for index, flow in enumerate(shown)]
        if len(shown) < len(self.flows):
            flows.append(f"{len(self.flows) - len(shown)} more flows")
        return f"{', '.join([self.describe_link(), f'{self.duration_s:g} s'])}; {'; '.join(flows)}."

    def describe_link(self) -> str:
        """Return the link in words: its rate, buffer, losses and changes of the rate, and links beside it."""
        # Then `rate_mbps` is never the link's rate.
        is_never_constant = len(self.rate_schedule) > _MOST_CHANGES and self.rate_schedule[0][0] == 0
        rate, at_rate = f"{self.rate_mbps:g} Mbit/s", ""
        if is_never_constant:
            rate, at_rate = _changes("rate", self.rate_schedule, "Mbit/s"), f" at {rate}"
        if self.buffer_packets is not None:
            buffer = f"{self.buffer_packets} packets"
        else:
            bdp = 1.0 if self.buffer_bdp is None else self.buffer_bdp
            buffer = f"{bdp:g} BDP{at_rate} ({self.queue_packets} packets)"
        codel = f"CoDel ({self.codel_target_ms:g} ms in {self.codel_interval_ms:g} ms)"
        queue = {
            "droptail": "droptail",
            "codel": codel,
            "pie": f"PIE ({self.pie_target_ms:g} ms)",
            "fq_codel": f"FQ-{codel}",
            "dualpi2": f"DualPI2 ({self.dualpi2_target_ms:g} and {self.dualpi2_step_ms:g} ms)",
        }[self.queue]
        parts = [rate, f"{queue} buffer of {buffer}"]
        if self.ce_threshold_ms is not None:
            parts.append(f"ECN marks above {self.ce_threshold_ms:g} ms")
        if self.loss:
            lengths = ((self.loss_burst_packets, "packets"), (self.loss_burst_ms, "ms"))
            bursts = [f" in bursts of {length:g} {unit}" for length, unit in lengths if length is not None]
            parts.append("".join([f"{self.loss:.2%} random loss", *bursts]))
        if self.reordering:
            parts.append(f"{self.reordering:.2%} of packets {self.reordering_ms:g} ms late")
        if self.policer_mbps is not None:
            parts.append(f"policer of {self.policer_mbps:g} Mbit/s with bursts of {self.policer_burst_bytes:,} bytes")
        if self.rate_schedule and not is_never_constant:
            parts.append(_changes("rate", self.rate_schedule, "Mbit/s"))
        if self.second_rate_mbps is not None:
            parts.append(
                f"second link of {self.second_rate_mbps:g} Mbit/s, buffer of {self.second_buffer_packets} packets"
            )
        if self.reverse_rate_mbps is not None:
            parts.append(
                f"reverse link of {self.reverse_rate_mbps:g} Mbit/s, buffer of {self.reverse_buffer_packets} packets"
            )
        return ", ".join(parts)

    def __repr__(self) -> str:
        """Return code that makes it: what differs from the defaults."""
        return f"Scenario({', '.join(_said(self))})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain types for JSON, YAML and the engines, of which `from_dict` makes an equal scenario.

        Fields of `LEFT_OUT` are left out if they have their default.
        """
        return _plain(self, SCENARIO_FIELDS) | {"flows": [flow.to_dict() for flow in self.flows]}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Scenario:
        """Make a scenario of plain types, as in a YAML file or a message; a flow can be a `Flow`, too.

        Instead of `rate_schedule` there can be `rate_trace`, a file or a synthetic trace
        (`bbrgym.envs.rate_trace.from_config`). The scenario then holds the trace's rates, but not its name. Instead of
        a flow's `rtt_schedule` there can be `rtt_trace` (`bbrgym.envs.rtt_trace.from_config`). Beside or instead of
        `flows` there can be a `workload`, finite flows that arrive at random
        (`bbrgym.envs.workload.flows_from_config`). The scenario then has these flows after the others.

        Raises:
            ValueError: naming the bad value and the good ones.
        """
        check_keys("scenario", plain, [*SCENARIO_FIELDS, "rate_trace", "workload"])
        arguments = {name: value for name, value in plain.items() if value is not None or name not in _LISTS}
        duration_s = arguments.get("duration_s", cls.duration_s)
        if "rate_trace" in arguments:
            arguments = resolve_trace("rate", arguments, lambda trace: rate_trace.from_config(trace, duration_s))
        for name in _LISTS:
            given = arguments.get(name, [])
            _check(name, given, "a list", isinstance(given, Sequence) and not isinstance(given, str))
        flows, arrivals = arguments.pop("flows", None), arguments.pop("workload", None)
        given = None if flows is None else _flows(flows, duration_s)
        if arrivals is None:
            if given is not None:
                arguments["flows"] = given
            return cls(**arguments)
        # The workload needs the checked rate and duration.
        alone = cls(**arguments, flows=given or (Flow(),))
        arriving = workload.flows_from_config(
            arrivals,
            rate_mbps=alone.rate_mbps,
            duration_s=alone.duration_s,
            packet_bytes=alone.packet_bytes,
            header_bytes=HEADER_BYTES,
            most=MOST_FLOWS - len(given or ()),
        )
        _flows([arrivals.get("flow") or {}], duration_s)  # refused even if no flow arrives
        return dataclasses.replace(alone, flows=(*(given or ()), *_flows(arriving, duration_s)))


_LISTS: Final = ("flows", "rate_schedule")
"""Fields that are lists; null is their default."""

_ALWAYS_SAID: Final = {
    *("rate_mbps", "buffer_bdp", "buffer_packets", "duration_s", "packet_bytes", "loss", "rate_schedule", "flows"),
    *("algorithm", "rtt_ms", "start_s", "stop_s", "size_bytes", "parameters"),
}
"""The fields of the first version."""

LEFT_OUT: Final = frozenset({*SCENARIO_FIELDS, *FLOW_FIELDS} - _ALWAYS_SAID)
"""Fields that were added later: while they have their defaults, older files and keys stay the same."""

for _kind, _fields in ((Scenario, SCENARIO_FIELDS), (Flow, FLOW_FIELDS)):
    check_is_of_list(_kind, _fields)


def resolve_trace(
    what: Literal["rate", "rtt"], plain: Mapping[str, Any], resolve: Callable[[Any], Any]
) -> dict[str, Any]:
    """Return the fields of a scenario (rate) or of a flow (rtt) with a schedule in place of a trace.

    The field `rate_schedule` is `resolve(rate_trace)`, `rtt_schedule` is `resolve(rtt_trace)`.

    Raises:
        ValueError: both are given, or the trace is a text.
    """
    arguments = dict(plain)
    trace = arguments.pop(f"{what}_trace", None)
    if trace is None:
        return arguments
    if isinstance(trace, str):
        raise ValueError(f"{what}_trace must be a mapping, got {trace!r}; {what}_trace.file={trace} reads a file")
    if arguments.get(f"{what}_schedule"):
        raise ValueError(f"give one of {what}_trace and {what}_schedule, got both: {what}_trace={trace!r}")
    return arguments | {f"{what}_schedule": resolve(trace)}


def _said(record: Scenario | Flow, but: Container[str] = ()) -> list[str]:
    """Return the arguments that differ from their defaults, as code."""
    said = []
    for each in dataclasses.fields(record):
        make, value = each.default_factory, getattr(record, each.name)
        default = each.default if make is dataclasses.MISSING else make()
        if each.name not in but and value != default:
            said.append(f"{each.name}={value!r}")
    return said


def _plain(record: Scenario | Flow, fields: Mapping[str, Field]) -> dict[str, Any]:
    return {
        name: _listed(value)
        for name, field in fields.items()
        if (value := getattr(record, name)) != field.default or name not in LEFT_OUT
    }


def _listed(value: Any) -> Any:
    """Return a schedule as the list of lists that it is in JSON."""
    return (
        [list(entry) if isinstance(entry, tuple) else entry for entry in value] if isinstance(value, tuple) else value
    )


_MOST_CHANGES: Final = 6
"""Of a schedule that words list."""


def _changes(what: str, schedule: Sequence[tuple[float, float]], unit: str) -> str:
    """Return the changes of a schedule in words, or how many they are."""
    if len(schedule) > _MOST_CHANGES:
        values = [value for _, value in schedule]
        return f"{len(values)} changes of the {what}, {min(values):g} to {max(values):g} {unit}"
    return f"{what} changes to {', '.join(f'{value:g} {unit} at {time:g} s' for time, value in schedule)}"


def _flows(plain: Sequence[Flow | Mapping[str, Any]], duration_s: Any) -> tuple[Flow, ...]:
    for flow in plain:
        if not isinstance(flow, Flow):
            check_keys("flow", flow, [*FLOW_FIELDS, "rtt_trace"])
    return tuple(
        flow
        if isinstance(flow, Flow)
        else Flow(**resolve_trace("rtt", flow, lambda trace: rtt_trace.from_config(trace, duration_s)))
        for flow in plain
    )


def _with_floats(node: Any) -> Any:
    """Return plain containers in which every number is a float: 12 and 12.0 are one rate."""
    if isinstance(node, dict):
        return {key: _with_floats(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_with_floats(value) for value in node]
    return node if node is None or isinstance(node, str) else float(node)


_warned: Final[set[str]] = set()
"""The units of which this process has warned."""


_are_units_known: Final = ContextVar("are_units_known", default=False)


@contextmanager
def known_units() -> Iterator[None]:
    """Within the block, do not warn of values that look as if they were in another unit: they were measured, say."""
    token = _are_units_known.set(True)
    try:
        yield
    finally:
        _are_units_known.reset(token)


def _warn_once(name: str, value: float, what: str, unit: str, factor: float) -> None:
    """Warn that a value looks as if it were in another unit, of which `factor` makes the field's."""
    if unit in _warned or _are_units_known.get():
        return
    _warned.add(unit)
    field_name = name.rpartition(".")[2]
    text = f"{name}={value:g} {what}. If it is in {unit}, give {field_name}={value * factor:g}."
    # Where the scenario is made: above __post_init__, __init__ and `explains_fields`.
    warnings.warn(text, stacklevel=6)


def _check(name: str, value: object, good: str, is_good: bool) -> None:
    if not is_good:
        raise ValueError(f"{name} must be {good}, got {value!r}")
