"""Data packets that are overtaken, and a policer in front of the queue: alone and in scenarios."""

import dataclasses
import random
from fractions import Fraction

import numpy as np
import pytest

from bbrgym import Engine, Flow, Scenario, _testing, simulate

US = 1_000
SEED = 3

# 40 ms of RTT: the handshake reaches the queue at 10 ms and leaves it at 10.04, its reply comes at 50.04, and the data
# packet, which is sent then, leaves the link at 51.08 and completes the flow.
ONE_PACKET = Scenario(rate_mbps=8, duration_s=1, flows=(Flow("cubic", rtt_ms=40, size_bytes=1000),))
NEARLY_ALWAYS = 1 - 1e-12


def end_ms(native: Engine, scenario: Scenario) -> float:
    """Return when all flows are complete."""
    native.reset(scenario, SEED)
    return native.step(scenario.duration_s * 1e3).time_s * 1e3


# --- reordering -----------------------------------------------------------------------------------------------------


def test_each_data_packet_is_late_with_the_same_probability() -> None:
    scenario = dataclasses.replace(ONE_PACKET, reordering=0.2, reordering_ms=5).to_dict()
    delays = np.array(_testing.draw_lateness(scenario, SEED, [1000] * 20_000))
    assert set(delays) == {0, 5000 * US}
    assert (delays > 0).mean() == pytest.approx(0.2, abs=4 * np.sqrt(0.2 * 0.8 / delays.size))
    # Packets without data are never late, and take no draw.
    between = _testing.draw_lateness(scenario, SEED, [1000, 0] * 20_000)
    assert between[::2] == delays.tolist()
    assert not any(between[1::2])
    assert _testing.draw_lateness(scenario, SEED + 1, [1000] * 20_000) != delays.tolist()
    # The losses draw from another stream.
    assert _testing.draw_losses(Scenario(loss=0.2).to_dict(), SEED, 20_000) != (delays > 0).tolist()


def test_a_late_packet_arrives_as_late_as_the_scenario_says(native: Engine) -> None:
    on_time = end_ms(native, ONE_PACKET)
    late = dataclasses.replace(ONE_PACKET, reordering=NEARLY_ALWAYS, reordering_ms=5)
    assert end_ms(native, late) - on_time == pytest.approx(5, abs=1e-9)


@pytest.mark.parametrize("algorithm", ["newreno", "cubic", "vegas", "bbr", "bbr2", "bbr3"])
def test_a_flow_whose_packets_are_late_and_not_lost_fills_the_link(algorithm: str) -> None:
    path = Scenario(duration_s=8, flows=(Flow(algorithm, rtt_ms=40),), reordering=0.01, reordering_ms=10)
    assert simulate(path, seed=SEED).summary(after_s=3).link.utilisation > 0.8


# --- the policer ----------------------------------------------------------------------------------------------------


def policed(packets: list[tuple[int, int]], mbps: float, burst_bytes: int) -> list[bool]:
    scenario = Scenario(policer_mbps=mbps, policer_burst_bytes=burst_bytes)
    return _testing.police(scenario.to_dict(), packets)


def test_a_packet_passes_if_its_bucket_has_the_tokens() -> None:
    """At 8 Mbit/s a token comes each microsecond, up to 3000."""
    assert policed([(0, 1040)] * 4, 8, 3000) == [True, True, False, False]
    rest = [(0, 1040), (0, 1040), (120 * US - 1, 1040), (120 * US, 1040), (1000 * US, 881), (1000 * US, 880)]
    assert policed(rest, 8, 3000) == [True, True, False, True, False, True]
    full = [(10**12, 3000), (10**12, 1), (10**12 + US, 1), (10**12 + US, 1)]
    assert policed(full, 8, 3000) == [True, False, True, False]


def test_the_policer_is_a_token_bucket() -> None:
    """With 2**-10 tokens per ns all sums are exact."""
    rng = random.Random(SEED)
    packets, now = [], 0
    for _ in range(5000):
        now += rng.choice([0, 100 * US, 1000 * US, 9000 * US])
        packets.append((now, rng.choice([40, 1040, 5000])))
    tokens, last, expected = Fraction(10_000), 0, []
    for now, size in packets:
        tokens, last = min(Fraction(10_000), tokens + Fraction(now - last, 1024)), now
        expected.append(tokens >= size)
        tokens -= size * expected[-1]
    assert policed(packets, 8000 / 1024, 10_000) == expected
    assert 0.1 < np.mean(expected) < 0.9


def test_what_exceeds_the_policer_is_dropped_and_counted(native: Engine) -> None:
    """The bucket holds one packet: of three that are sent at once, one passes."""
    scenario = dataclasses.replace(
        ONE_PACKET, policer_mbps=1, policer_burst_bytes=1040, flows=(Flow("cubic", rtt_ms=40, size_bytes=3000),)
    )
    native.reset(scenario, SEED)
    rows = native.step(70)
    assert rows.link_row()["drops"] == 2
    assert rows.flow(0)["arrived_bytes"] == 1000
    assert rows.link_row()["queue_max_packets"] == 0
