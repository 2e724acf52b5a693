"""The native engine's transport over ns-3's UDP: its packets on the wire, and the native engine's numbers.

Transport and controllers are the same object code on both sides, so only the network differs: events that the native
engine does not have (a packet's time on an access link, an ACK's on the return path, 2 bytes of PPP around a packet
without data), and what these ten microseconds grow into when flows compete.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from traces import flow_column, link_column

import bbrgym
from bbrgym import Engine, Flow, Scenario
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.ns3.engine import TRANSPORTS
from bbrgym.envs.scenario import HEADER_BYTES

_ns3 = pytest.importorskip("bbrgym._ns3", reason="ns-3 is not installed")

Floats = npt.NDArray[np.float64]

TWO = Scenario(rate_mbps=20, buffer_bdp=5, duration_s=10, flows=(Flow("bbr", rtt_ms=10), Flow("bbr", rtt_ms=50)))


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


def test_random_loss_takes_data_and_nothing_else(quic: Engine) -> None:
    scenario = Scenario(rate_mbps=12, buffer_bdp=4, duration_s=5, loss=0.1, flows=(Flow("bbr", rtt_ms=40),))
    trace = bbrgym.simulate(scenario, quic)
    sent, arrived = (flow_column(trace, name).sum() for name in ("sent_packets", "arrived_bytes"))
    lost = link_column(trace, "random_losses").sum() + link_column(trace, "drops").sum()
    on_the_way = sent - lost - arrived / scenario.packet_bytes
    assert 0 <= on_the_way <= flow_column(trace, "in_flight_packets")[-1, 0] + 1
    assert lost / sent == pytest.approx(0.1, abs=0.015)
    # What a lost ACK covers stays in flight until the next ACK; the ACK of a probe until a timeout.
    assert flow_column(trace, "rto_count").sum() <= 2
    assert trace.summary(after_s=2).link.utilisation > 0.9


def test_the_extension_refuses_what_it_cannot_run() -> None:
    with pytest.raises(ValueError, match=f"unknown transport 'sctp'; known: {', '.join(TRANSPORTS)}"):
        _ns3.Simulation("sctp")
    policed = Scenario(policer_mbps=9, reverse_rate_mbps=1, flows=(Flow(), Flow(path="reverse")))
    with pytest.raises(ValueError, match="ns-3 cannot run policer_mbps with a flow of path reverse"):
        _ns3.Simulation("quic").reset(policed.to_dict(), 1)
    with pytest.raises(ValueError, match="bbr-stock"):
        _ns3.Simulation("quic").reset(Scenario(flows=(Flow("bbr-stock"),)).to_dict(), 1)


# --- the benchmark --------------------------------------------------------------------------------------------------


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


def test_a_handshake_waits_in_the_queue_as_all_others(engines: dict[str, Engine]) -> None:
    flows = (Flow("cubic", rtt_ms=20), Flow("bbr", rtt_ms=20, start_s=3.0))
    scenario = Scenario(rate_mbps=5, buffer_packets=60, duration_s=3.5, flows=flows)
    times = {name: first_sent_ms(engine, scenario, 1, after_ms=3000)[1] for name, engine in engines.items()}
    assert times["tcp"] > 3060  # some 40 packets of 1.7 ms, and 20 ms
    assert times["quic"] == pytest.approx(times["tcp"], abs=3)
    assert times["native"] - 5 == pytest.approx(times["quic"], abs=3)


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


@pytest.mark.parametrize(
    ("algorithm", "buffer_bdp", "loss"), [("bbr", 5, 0.0), ("cubic", 1, 0.0), ("newreno", 1, 0.01), ("bbr2", 1, 0.01)]
)
def test_without_time_on_access_links_not_a_packet_differs(
    engines: dict[str, Engine], algorithm: str, buffer_bdp: float, loss: float
) -> None:
    """The ten microseconds come from the access links: a packet takes 8 to the router of the dumbbell."""
    flow = Flow(algorithm, rtt_ms=50)
    same_packets(engines, Scenario(rate_mbps=20, buffer_bdp=buffer_bdp, loss=loss, duration_s=4, flows=(flow,)))


@pytest.mark.parametrize("path", ["forward", "first", "second", "reverse"])
def test_nor_over_further_links(engines: dict[str, Engine], path: str) -> None:
    flow = Flow("cubic", rtt_ms=50, path=path)
    further = {
        "second_rate_mbps": 13.7,
        "second_buffer_packets": 40,
        "reverse_rate_mbps": 12.3,
        "reverse_buffer_packets": 30,
    }
    same_packets(engines, Scenario(rate_mbps=20, duration_s=4, flows=(flow,), **further), late=2)


def same_packets(engines: dict[str, Engine], scenario: Scenario, late: int = 1) -> None:
    """Compare the first flow's counts; so many packets may fall into the next step."""
    # How much later the native engine's sender does everything.
    shift_ms = 1e-6 if scenario.flows[0].path == "reverse" else scenario.flows[0].rtt_ms / 4
    columns = ["sent_packets", "delivered_packets", "lost_packets", "retransmitted_packets", "rto_count"]
    indices = [FLOW_COLUMNS.index(column) for column in columns]
    native = engines["native"]
    native.reset(scenario, 1)
    totals = [native.step(shift_ms).flows[0, indices]]
    totals_ns3 = [np.zeros(len(columns))]
    simulation = _ns3.Simulation("quic", access_mbps=1e7)
    simulation.reset(scenario.to_dict(), 1)
    for _ in range(39):
        totals.append(totals[-1] + native.step(100).flows[0, indices])
        simulation.step(100_000_000)
        row = np.array(simulation.rows()[3 + len(LINK_COLUMNS) :])
        totals_ns3.append(totals_ns3[-1] + row[indices])
    differences = np.array(totals) - totals_ns3
    assert totals[-1][0] > 1000
    # The packet of the handshake is 2 bytes longer, and so is an ACK on a link, which is for two packets.
    assert abs(differences).max() <= late
    assert (differences != 0).mean() < 0.02 * late
    assert (differences[-1] == 0).all()


@pytest.mark.parametrize("loss", [0.0, 0.01])
def test_lossy_shares_and_queues_are_close(engines: dict[str, Engine], loss: float) -> None:
    scenario = Scenario(rate_mbps=10, buffer_bdp=1, loss=loss, duration_s=6, flows=TWO.flows)

    def mean(name: str) -> Floats:
        runs = [bbrgym.simulate(scenario, engines[name], seed).summary(after_s=1.5) for seed in (1, 2, 3)]
        rates = np.array([[flow.throughput_mbps for flow in run.flows] for run in runs])
        of_link = np.array([[run.link.utilisation, run.link.queue_mean_ms] for run in runs])
        return np.array([(rates[:, 0] / rates.sum(axis=1)).mean(), *of_link.mean(axis=0)])

    native, quic = mean("native"), mean("quic")
    assert native[0] == pytest.approx(quic[0], abs=0.03)
    assert native[1] == pytest.approx(quic[1], abs=0.01)
    assert native[2] == pytest.approx(quic[2], rel=0.1)
