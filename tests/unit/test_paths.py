"""What lies between the hosts of the Linux engine, with a clock moved by hand: to the ns as in the native engine."""

import dataclasses
import itertools
import math
from typing import Any

import pytest
from traces import flow_column

import bbrgym
from bbrgym import Engine, Flow, Scenario, _testing
from bbrgym.envs.columns import LINK_COLUMNS

MS = 1_000_000
SEED = 3
PACKET = 1000
STOP_S = 1.5
DURATION_S = 3.0
"""Long enough for all packets to arrive after the senders have stopped."""


class Hosts:
    """Senders and receivers of a scenario around its paths, in simulated time. All flows stop at STOP_S."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.paths = _testing.Paths(scenario.to_dict(), SEED)
        self.senders: list[_testing.Sender | None] = [None] * len(scenario.flows)
        self.receivers = [_testing.Receiver() for _ in scenario.flows]
        self.numbers = itertools.count()
        self.contents: dict[int, Any] = {}
        self.lost: list[tuple[int, int]] = []

    def run(self) -> None:
        for index, flow in enumerate(self.scenario.flows):
            assert (flow.start_s, flow.stop_s) == (0, STOP_S)
            self.send(0, index, 0, ("hello", 0))
        stop = int(STOP_S * 1e9)
        now = 0
        while True:
            timers = [sender.next_timer() for sender in self.senders if sender and now < stop]
            due = [receiver.ack_due() for receiver in self.receivers]
            events = [time for time in (self.paths.next_event(), *timers, *due) if time is not None]
            if now < stop:
                events.append(stop)
            if not events or min(events) > DURATION_S * 1e9:
                return
            now = min(events)
            for _, index, number, is_data, is_marked in self.paths.advance(now):
                if is_data:
                    self.receive(now, index, self.contents.pop(number), is_marked)
                else:
                    self.answer(now, index, self.contents.pop(number))
            self.lost += self.paths.take_lost()
            for index, receiver in enumerate(self.receivers):
                if (receiver.ack_due() or math.inf) <= now:
                    self.reply(now, index, receiver.write_ack())
            for index, sender in enumerate(self.senders):
                if sender is None:
                    continue
                if now == stop:
                    sender.stop()
                elif (sender.next_timer() or math.inf) <= now:
                    sender.on_timer(now)
                self.pump(now, index, sender)

    def pump(self, now: int, index: int, sender: _testing.Sender) -> None:
        while packet := sender.next_packet(now):
            self.send(now, index, packet[2], packet)

    def send(self, now: int, index: int, payload: int, content: Any) -> None:
        number = next(self.numbers)
        self.contents[number] = content
        self.paths.send(now, index, number, payload)

    def reply(self, now: int, index: int, content: Any) -> None:
        number = next(self.numbers)
        self.contents[number] = content
        self.paths.reply(now, index, number)

    def receive(self, now: int, index: int, content: Any, is_marked: bool) -> None:
        if content[0] == "hello":
            self.reply(now, index, content)
            return
        number, segment, payload, _ = content
        if self.receivers[index].on_packet(now, number, segment, bytes=payload, is_marked=is_marked):
            self.reply(now, index, self.receivers[index].write_ack())

    def answer(self, now: int, index: int, content: Any) -> None:
        if content[0] == "hello":
            self.senders[index] = _testing.Sender(self.scenario.flows[index].algorithm, now - content[1])
            return
        sender = self.senders[index]
        assert sender is not None
        sender.on_ack(now, content)
        self.pump(now, index, sender)


def flow(path: str, rtt_ms: float, algorithm: str = "newreno", **given: Any) -> Flow:
    return Flow(algorithm, rtt_ms=rtt_ms, stop_s=STOP_S, path=path, **given)


PLAIN = Scenario(
    rate_mbps=7, buffer_packets=12, duration_s=DURATION_S, flows=(flow("forward", 41), flow("forward", 30))
)
PARKING_LOT = dataclasses.replace(
    PLAIN,
    second_rate_mbps=6.1,
    second_buffer_packets=9,
    flows=(flow("forward", 41), flow("first", 30), flow("second", 53)),
)
TWO_WAYS = dataclasses.replace(
    PLAIN,
    reverse_rate_mbps=0.9,
    reverse_buffer_packets=8,
    flows=(flow("forward", 41), flow("forward", 30, "cubic"), flow("reverse", 37)),
)
ALL = dataclasses.replace(
    PARKING_LOT, reverse_rate_mbps=0.7, reverse_buffer_packets=11, flows=(*PARKING_LOT.flows, flow("reverse", 37))
)


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(PLAIN, id="one link"),
        pytest.param(PARKING_LOT, id="parking lot"),
        pytest.param(TWO_WAYS, id="two ways"),
        pytest.param(ALL, id="all links"),
        pytest.param(
            dataclasses.replace(
                ALL,
                queue="fq_codel",
                loss=0.01,
                reordering=0.02,
                reordering_ms=7.3,
                policer_mbps=6.5,
                rate_schedule=((0.51, 3.0), (0.97, 11.0)),
                flows=(
                    *(flow(path, 31, ack_loss=0.1, jitter_ms=3.0) for path in ("forward", "first")),
                    flow("second", 47, rtt_schedule=((0.61, 33.0), (1.13, 71.0))),
                    flow("reverse", 37, ack_aggregation_ms=2.3),
                ),
            ),
            id="all links and impairments",
        ),
    ],
)
def test_every_packet_goes_as_in_the_native_engine(scenario: Scenario, native: Engine) -> None:
    hosts = Hosts(scenario)
    hosts.run()
    assert set(hosts.contents) == {number for _, number in hosts.lost}  # each packet has arrived or is named as lost
    row = dict(zip(LINK_COLUMNS, hosts.paths.row(int(DURATION_S * 1e9)), strict=True))
    trace = bbrgym.simulate(scenario, native, SEED, step_ms=DURATION_S * 1e3)
    theirs = dict(zip(LINK_COLUMNS, trace.link[0], strict=True))
    assert row == pytest.approx(theirs, rel=1e-9, nan_ok=True)
    for index, (sender, receiver) in enumerate(zip(hosts.senders, hosts.receivers, strict=True)):
        assert sender is not None
        assert sender.counts()["sent_packets"] == flow_column(trace, "sent_packets")[0, index] > 50
        assert receiver.counts()["arrived"] == flow_column(trace, "arrived_bytes")[0, index]
        assert sender.counts()["delivered_bytes"] == PACKET * flow_column(trace, "delivered_packets")[0, index]
        assert sender.counts()["last_rtt"] / MS == pytest.approx(flow_column(trace, "rtt_last_ms")[0, index], abs=1e-5)


def test_a_mark_of_the_bottleneck_goes_on_over_the_second_link() -> None:
    """At 8 Mbit/s a packet takes 1.04 ms: so long the third one waits until the device takes it from the queue."""
    scenario = Scenario(rate_mbps=8, second_rate_mbps=20, ce_threshold_ms=1, flows=(Flow(rtt_ms=20, ecn="classic"),))
    paths = _testing.Paths(scenario.to_dict(), SEED)
    for number in range(4):
        paths.send(0, 0, number, PACKET, ecn=2)
    arrivals = paths.advance(100 * MS)
    times = [10 * MS + (number + 1) * 1_040_000 + 416_000 for number in range(4)]
    assert arrivals == [(time, 0, number, True, number >= 2) for number, time in enumerate(times)]
