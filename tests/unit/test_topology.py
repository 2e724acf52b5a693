"""A second and a reverse link (docs/scenarios.md#topology): moments to the ns, conservation, and what theory says."""

import dataclasses

import pytest
from traces import flow_column, link_column

import bbrgym
from bbrgym import Engine, Flow, Scenario

# 1, 2 and 100 us per byte.
PLAIN = Scenario(rate_mbps=8, duration_s=2, flows=(Flow("newreno", rtt_ms=40, size_bytes=3000),))
TWO_HOPS = dataclasses.replace(PLAIN, second_rate_mbps=4)
TWO_WAYS = dataclasses.replace(PLAIN, reverse_rate_mbps=4)


def on(path: str, scenario: Scenario) -> Scenario:
    flows = tuple(dataclasses.replace(flow, path=path) for flow in scenario.flows)
    return dataclasses.replace(scenario, flows=flows)


@pytest.mark.parametrize(
    ("scenario", "complete_ms"),
    [
        # The hello reaches the queue at 10 ms, takes 0.04, and its answer 40; three packets take 1.04 each.
        (PLAIN, 10 + 0.04 + 40 + 3 * 1.04),
        (on("first", TWO_HOPS), 10 + 0.04 + 40 + 3 * 1.04),
        # The second link is the slower one: only the first packet waits for the first link.
        (TWO_HOPS, 10 + 0.04 + 0.08 + 40 + 1.04 + 3 * 2.08),
        (on("second", TWO_HOPS), 10 + 0.08 + 40 + 3 * 2.08),
        # The answer to the hello queues, data does not.
        (TWO_WAYS, 10 + 0.04 + 0.08 + 40 + 3 * 1.04),
        # The reverse link's clock is 10 ms late, and 20 ms lie between its end and the receiver.
        (on("reverse", TWO_WAYS), 0.08 + 20 + 0.04 + 20 + 3 * 2.08 + 20),
        (dataclasses.replace(TWO_HOPS, reverse_rate_mbps=0.08), 10 + 0.04 + 0.08 + 4 + 40 + 1.04 + 3 * 2.08),
        (on("second", dataclasses.replace(TWO_HOPS, reverse_rate_mbps=0.08)), 10 + 0.08 + 40 + 3 * 2.08),
    ],
)
def test_the_last_byte_arrives_to_the_ns(native: Engine, scenario: Scenario, complete_ms: float) -> None:
    native.reset(scenario, 1)
    rows = native.step(2000)
    assert rows.is_complete
    # The clock of a dumbbell is that of its link, 10 ms before the receiver. The run ends when the last byte is there.
    arrival_ms = 0 if scenario.flows[0].path == "reverse" else 10
    assert round(rows.time_s * 1e9) == round((complete_ms + arrival_ms) * 1e6)
    assert rows.flow(0)["completion_time_ms"] == pytest.approx(rows.time_s * 1e3)


def test_acknowledgements_wait_for_the_reverse_link_to_the_ns(native: Engine) -> None:
    """At 0.08 Mbit/s an ACK takes 4 ms. The first packet is acknowledged at once, then every second one."""
    native.reset(Scenario(rate_mbps=8, reverse_rate_mbps=0.08, duration_s=1, flows=(Flow("newreno", rtt_ms=40),)), 1)
    opened = 10 + 0.04 + 4 + 40
    first = opened + 1.04 + 4 + 40
    row = native.step(first + 0.001).flow(0)
    assert (row["delivered_packets"], row["rtt_last_ms"]) == (1, pytest.approx(45.04, abs=1e-9))
    row = native.step(4 - 0.002).flow(0)  # the next ACK is 2.08 ms younger and waited for it
    assert row["delivered_packets"] == 0
    row = native.step(0.002).flow(0)
    assert (row["delivered_packets"], row["rtt_last_ms"]) == (2, pytest.approx(49.04, abs=1e-9))


@pytest.mark.parametrize("algorithm", ["newreno", "bbr"])
def test_acknowledgements_limit_the_forward_rate(native: Engine, algorithm: str) -> None:
    """RFC 3449, section 3.2: rate x data bytes / ACK bytes x packets for each ACK, here 0.08 x 1000 / 40 x 2 Mbit/s."""
    scenario = Scenario(
        rate_mbps=100,
        reverse_rate_mbps=0.08,
        reverse_buffer_packets=100_000,
        duration_s=6,
        flows=(Flow(algorithm, rtt_ms=40),),
    )
    trace = bbrgym.simulate(scenario, native, 1)
    assert link_column(trace, "reverse_utilisation")[20:] == pytest.approx(1)
    assert flow_column(trace, "delivery_rate_mbps")[20:, 0].mean() == pytest.approx(4, rel=0.01)
    few = bbrgym.simulate(dataclasses.replace(scenario, reverse_buffer_packets=5), native, 1)
    # Where ACKs are dropped, each of the others acknowledges more.
    assert flow_column(few, "delivery_rate_mbps")[20:, 0].mean() > 5
