"""The native engine's transport over ns-3's UDP: its packets on the wire, and the native engine's numbers.

Transport and controllers are the same object code on both sides, so only the network differs: events that the native
engine does not have (a packet's time on an access link, an ACK's on the return path, 2 bytes of PPP around a packet
without data), and what these ten microseconds grow into when flows compete.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
from traces import flow_column, link_column

import bbrgym
from bbrgym import Engine, Flow, Scenario
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.ns3.engine import TRANSPORTS
from bbrgym.envs.scenario import HEADER_BYTES, Path

_ns3 = pytest.importorskip("bbrgym._ns3", reason="ns-3 is not installed")

Floats = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, Engine]]:
    """The native engine, and ns-3 with each transport."""
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(contextlib.closing(engine))
            for name, engine in (
                ("native", bbrgym.make_engine("native")),
                *((transport, bbrgym.make_engine("ns3", transport=transport)) for transport in TRANSPORTS),
            )
        }


@pytest.fixture
def quic(engines: dict[str, Engine]) -> Engine:
    return engines["quic"]


def test_the_extension_refuses_what_it_cannot_run() -> None:
    with pytest.raises(ValueError, match=f"unknown transport 'sctp'; known: {', '.join(TRANSPORTS)}"):
        _ns3.Simulation("sctp")
    policed = Scenario(policer_mbps=9, reverse_rate_mbps=1, flows=(Flow(), Flow(path="reverse")))
    with pytest.raises(ValueError, match="ns-3 cannot run policer_mbps with a flow of path reverse"):
        _ns3.Simulation("quic").reset(policed.to_dict(), 1)
    with pytest.raises(ValueError, match="bbr-stock"):
        _ns3.Simulation("quic").reset(Scenario(flows=(Flow("bbr-stock"),)).to_dict(), 1)


# --- sizes and times on the wire ------------------------------------------------------------------------------------


@pytest.mark.parametrize("packet_bytes", [64, 1000, 1460, 1461, 9000])
def test_packets_are_as_long_as_the_scenario_says(engines: dict[str, Engine], packet_bytes: int) -> None:
    """Measured in the queue, where bytes are time. Packets of 1461 bytes and more were once fragmented."""
    scenario = Scenario(
        rate_mbps=5, buffer_packets=50, packet_bytes=packet_bytes, duration_s=2, flows=(Flow("cubic", rtt_ms=20),)
    )
    for name, engine in engines.items():
        trace = bbrgym.simulate(scenario, engine)
        packets, ms = (link_column(trace, f"queue_mean_{unit}")[2:] for unit in ("packets", "ms"))
        assert packets.min() > 0, name
        assert ms / packets * 5e3 / 8 == pytest.approx(packet_bytes + HEADER_BYTES, rel=1e-6), name
        received = flow_column(trace, "received_bytes")[2:].sum()
        seconds = link_column(trace, "utilisation")[2:].sum() * 0.1
        wire_bytes = received / packet_bytes * (packet_bytes + HEADER_BYTES)
        # Except for what is not in order yet, and what was sent twice.
        assert wire_bytes / seconds * 8e-6 == pytest.approx(5, rel=0.04), name


def test_the_packet_on_the_wire_does_not_count_as_queue(engines: dict[str, Engine]) -> None:
    idle = Scenario(rate_mbps=2, buffer_packets=30, duration_s=2, flows=(Flow("bbr", rtt_ms=1, size_bytes=1),))
    for name in ("native", "quic"):  # in TCP the packet waits for the handshake's last ACK
        engines[name].reset(idle, 1)
        rows = engines[name].step(2000).link_row()
        assert rows["utilisation"] > 0, name
        assert rows["queue_max_packets"] == rows["queue_mean_packets"] == 0, name


@pytest.mark.parametrize("buffer", [{"buffer_packets": 30}, {"buffer_bdp": 0.5}, {}, {"buffer_bdp": 2.5}], ids=str)
def test_a_full_queue_is_the_buffer_and_the_packet_in_the_device(
    engines: dict[str, Engine], buffer: dict[str, float]
) -> None:
    flows = (Flow("newreno", rtt_ms=30), Flow("cubic", rtt_ms=50))
    scenario = Scenario(rate_mbps=8, duration_s=3, flows=flows, **buffer)  # type: ignore[arg-type]
    for name, engine in engines.items():
        trace = bbrgym.simulate(scenario, engine)
        full = scenario.queue_packets + 1
        assert link_column(trace, "drops").sum() > 0, name
        assert link_column(trace, "queue_max_packets").max() == full, name
        assert link_column(trace, "queue_max_ms").max() == pytest.approx(full * 1040 * 8 / 8e3), name


def first_sent_ms(engine: Engine, scenario: Scenario, step_ms: float, after_ms: float = 0.0) -> Floats:
    """Return when the first packet of each flow left: the end of its step, on the engine's clock; infinity if never."""
    sent = FLOW_COLUMNS.index("sent_packets")
    rows = engine.reset(scenario, 1)
    times = np.full(len(scenario.flows), np.inf)
    if after_ms > 0:
        rows = engine.step(after_ms)
    while not rows.is_over and np.isinf(times).any():
        times[np.isinf(times) & (rows.flows[:, sent] > 0)] = rows.time_s * 1e3
        rows = engine.step(step_ms)
    return times


def test_a_flow_starts_after_a_round_trip_as_tcps(engines: dict[str, Engine]) -> None:
    scenario = Scenario(rate_mbps=20, duration_s=0.3, flows=(Flow("bbr", rtt_ms=40), Flow("bbr", 60, start_s=0.03)))
    for name in ("tcp", "quic"):
        assert first_sent_ms(engines[name], scenario, 0.2) == pytest.approx([40.1, 90.1], abs=0.11), name
    # In the native engine a sender is at the queue, so its clock is late by the delay to the queue.
    assert first_sent_ms(engines["native"], scenario, 0.2) == pytest.approx([50.1, 110.1], abs=0.11)


def test_a_handshake_that_is_lost_is_tried_again_after_a_second(engines: dict[str, Engine]) -> None:
    late = tuple(Flow("newreno", rtt_ms=20, start_s=2 + 0.05 * i) for i in range(12))
    greedy = tuple(Flow("bbr", rtt_ms=20) for _ in range(4))
    scenario = Scenario(rate_mbps=2, buffer_packets=2, duration_s=12, flows=(*greedy, *late))
    for name, engine in engines.items():
        delays = first_sent_ms(engine, scenario, 10)[4:] / 1e3 - [flow.start_s for flow in late]
        delays = delays[np.isfinite(delays)]  # all tries of a flow can be lost
        assert len(delays) > len(late) / 2, name
        tries = np.floor(delays)
        assert set(tries) <= {0, 1, 3, 7}, (name, delays)  # the timeout doubles with every try
        assert 1 <= (tries > 0).sum() < len(tries), (name, delays)
        assert (delays - tries < 0.1).all(), (name, delays)


# --- agreement with the native engine -------------------------------------------------------------------------------


def alone(algorithm: str = "cubic", path: dict[str, Any] | None = None, **link: Any) -> Scenario:
    flow = Flow(algorithm, rtt_ms=50, **path or {})
    return Scenario(**{"rate_mbps": 20, "duration_s": 4} | link, flows=(flow,))


FURTHER: dict[str, Any] = {
    "second_rate_mbps": 13.7,
    "second_buffer_packets": 40,
    "reverse_rate_mbps": 12.3,
    "reverse_buffer_packets": 30,
}
CELLULAR = {"duration_s": 4, "rate_trace": {"synthetic": "cellular"}, "flows": [{"algorithm": "bbr", "rtt_ms": 50}]}
EXACT: dict[str, tuple[Scenario, int]] = {
    "bbr": (alone("bbr", buffer_bdp=5), 1),
    "cubic": (alone(), 1),
    "newreno, loss": (alone("newreno", loss=0.01), 1),
    "bbr2, loss": (alone("bbr2", loss=0.01), 1),
    "bursts by packets": (alone(loss=0.02, loss_burst_packets=5.0), 1),
    "bursts by time": (alone("bbr", loss=0.02, loss_burst_ms=8.0), 1),
    "rates": (alone("bbr", rate_schedule=((0.51, 3.0), (0.97, 11.0))), 1),
    "cellular": (Scenario.from_dict(CELLULAR), 1),
    "threshold": (alone("prague", {"ecn": "l4s"}, ce_threshold_ms=2.0), 2),
    "reordering": (alone("bbr", reordering=0.02, reordering_ms=8.0), 2),
    "application": (alone(path={"app_rate_mbps": 8.0, "on_s": 0.2, "off_s": 0.1}), 1),
    "jitter": (alone("bbr", {"jitter_ms": 5.0}), 1),
    "lost ACKs": (alone(path={"ack_loss": 0.2}), 1),
    "way back": (
        alone("bbr", {"rtt_schedule": ((1.5, 70.0),), "ack_loss": 0.1, "ack_aggregation_ms": 3.0, "jitter_ms": 2.0}),
        1,
    ),
    # The packet of the handshake is 2 bytes longer, and so is an ACK on a link, which is for two packets.
    **{f"{path} of further links": (alone(path={"path": path}, **FURTHER), 2) for path in get_args(Path)},
}
"""Scenarios, and how many packets may fall into the next step."""

CLOSE: dict[str, tuple[Scenario, float]] = {
    "rtt": (alone(path={"rtt_schedule": ((1.0, 80.0), (2.0, 30.0), (2.5, 44.0))}), 0.01),
    "aggregation": (alone("bbr", {"ack_aggregation_ms": 5.0}), 0.01),
    "policer": (alone("bbr", policer_mbps=6.0, policer_burst_bytes=15_000), 0.02),
    "codel": (alone(queue="codel", buffer_bdp=4), 0.02),
    "codel, marks": (alone("newreno", {"ecn": "classic"}, queue="codel", buffer_bdp=4), 0.02),
    "fq_codel": (alone(queue="fq_codel", buffer_bdp=4), 0.02),
    "pie": (alone(queue="pie", buffer_bdp=4), 0.15),
}
"""Scenarios in which nanoseconds decide, or the engines draw differently, and which share of the packets may differ."""


@pytest.mark.parametrize("name", EXACT)
def test_without_time_on_access_links_not_a_packet_differs(engines: dict[str, Engine], name: str) -> None:
    """The ten microseconds come from the access links: a packet takes 8 to the router of the dumbbell."""
    scenario, late = EXACT[name]
    sent, differences = compare(engines["native"], scenario)
    assert sent > 500
    assert abs(differences).max() <= late
    assert (differences != 0).mean() < 0.02 * late
    assert (differences[-1] == 0).all()


@pytest.mark.parametrize("name", CLOSE)
def test_where_nanoseconds_decide_few_packets_differ(engines: dict[str, Engine], name: str) -> None:
    scenario, share = CLOSE[name]
    sent, differences = compare(engines["native"], scenario)
    assert sent > 500
    assert abs(differences).max() <= share * sent


def compare(native: Engine, scenario: Scenario) -> tuple[float, Floats]:
    """Return how much the flow has sent, and by how much its counts differ after each step."""
    # How much later the native engine's sender does everything.
    shift_ms = 1e-6 if scenario.flows[0].path == "reverse" else scenario.flows[0].rtt_ms / 4
    counts = ("sent", "delivered", "lost", "retransmitted", "marked")
    indices = [FLOW_COLUMNS.index(column) for column in (*(f"{count}_packets" for count in counts), "rto_count")]
    native.reset(scenario, 1)
    totals = [native.step(shift_ms).flows[0, indices]]
    totals_ns3 = [np.zeros(len(indices))]
    simulation = _ns3.Simulation("quic", access_mbps=1e7)
    simulation.reset(scenario.to_dict(), 1)
    for _ in range(39):
        totals.append(totals[-1] + native.step(100).flows[0, indices])
        simulation.step(100_000_000)
        row = np.array(simulation.rows()[3 + len(LINK_COLUMNS) :])
        totals_ns3.append(totals_ns3[-1] + row[indices])
    return totals[-1][0], np.array(totals) - totals_ns3
