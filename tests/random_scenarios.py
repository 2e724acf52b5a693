"""Random scenarios of every kind, and what must be true of any run."""

import dataclasses
import math
import random
from typing import Any

import numpy as np
from traces import flow_column, link_column

from bbrgym import Flow, Scenario, Trace
from bbrgym.baselines.registry import NS3_COMPARATORS, controllers
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.scenario import HEADER_BYTES


def random_scenario(rng: random.Random, engine: str = "native") -> Scenario:
    """Return a scenario; those for ns-3 last longer and leave out what takes it minutes."""
    is_native = engine == "native"
    rate_mbps = rng.choice([0.5, 2.0, 8.0, *[20.0, 100.0] * is_native])
    if not is_native:
        duration_s = rng.uniform(2, 5)
    elif rate_mbps < 50:
        duration_s = rng.uniform(0.3, 3)
    else:
        duration_s = rng.uniform(0.05, 0.3)
    # ns-3 takes a minute for some scenarios of 24,000 packets a second.
    packet_bytes = rng.choice([64 if is_native or rate_mbps < 10 else 476, 476, 1000, 1448, *[9000] * is_native])
    # Further links are up to ten times slower or twice as fast.
    second_mbps, reverse_mbps = (
        rate_mbps * rng.uniform(0.1, 2) if is_native and rng.random() < 0.2 else None for _ in range(2)
    )
    paths = ["forward", *(["first", "second"] if second_mbps else []), *(["reverse"] if reverse_mbps else [])]
    flows = []
    for _ in range(rng.choice([1, 1, 2, 3, 5, *[9] * is_native])):
        start_s = rng.choice([0.0, 0.0, rng.uniform(0, duration_s * 0.8)])
        size_bytes = packet_bytes * rng.randint(1, 500) if is_native else rng.randint(1, 500_000)
        flows.append(
            Flow(
                rng.choice([*controllers(), *(() if is_native else NS3_COMPARATORS)]),
                rtt_ms=rng.choice([1, 5, 20, 60, 200, *[0.001] * is_native]),
                start_s=start_s,
                stop_s=rng.choice([None, None, start_s + rng.uniform(0.001, duration_s)]),
                size_bytes=rng.choice([None, None, size_bytes]),
                jitter_ms=rng.choice([0, 0, 0.3, 30]),
                ecn=rng.choice([None, "classic", "l4s"]) if is_native else None,
                rtt_schedule=rng.choice([(), (), tuple((start_s + i / 10, rng.uniform(1, 90)) for i in range(9))]),
                ack_loss=rng.choice([0, 0, 0.02, 0.5]),
                ack_aggregation_ms=rng.choice([0, 0, 0.1, 20]),
                **rng.choice([{}, {}, _application(rng, rate_mbps)]),
                path=rng.choice(paths) if is_native else "forward",
            )
        )
    loss = rng.choice([0, 0, 0.01, 0.06, 0.3, *[0.95] * is_native])
    walk = tuple((bin_ / 10, max(0.05, rate_mbps * rng.uniform(-0.2, 1))) for bin_ in range(int(10 * duration_s)))
    steps = ((duration_s / 3, rate_mbps / 4), (duration_s / 2, rate_mbps * (2 if is_native else 0.5)))
    scenario = Scenario(
        rate_mbps=rate_mbps,
        duration_s=duration_s,
        packet_bytes=packet_bytes,
        queue=rng.choice(["droptail", "droptail", "codel", "pie", "fq_codel", *["dualpi2"] * is_native]),
        codel_target_ms=rng.choice([0.01, 5.0, 50.0]),
        codel_interval_ms=rng.choice([1.0, 100.0]),
        pie_target_ms=rng.choice([0.01, 15.0]),
        dualpi2_target_ms=rng.choice([0.01, 15.0]),
        dualpi2_coupling=rng.choice([1.0, 2.0]),
        ce_threshold_ms=rng.choice([None, 0.0, 2.0]) if is_native else None,
        loss=loss,
        loss_burst_packets=rng.choice([None, None, 1, 20] if loss < 0.5 else [None, 20]),
        flows=tuple(flows),
        reordering=rng.choice([0, 0, 0.01, 0.5]),
        reordering_ms=rng.choice([0.1, 5, 40]),
        policer_mbps=rng.choice([None, None, 0.7 * rate_mbps, 3 * rate_mbps]),
        policer_burst_bytes=rng.choice([10_000, 50_000]),
        rate_schedule=rng.choice([(), steps, walk]),
        second_rate_mbps=second_mbps,
        second_buffer_packets=rng.choice([1, 20]) if is_native else 100,
        reverse_rate_mbps=reverse_mbps,
        reverse_buffer_packets=rng.choice([1, 20]) if is_native else 100,
        **rng.choice([{"buffer_bdp": 0.25}, {"buffer_bdp": 1}, {"buffer_bdp": 8}, {"buffer_packets": 1}]),
    )
    # By the digest, so that the other scenarios remain what they were.
    if scenario.digest % 4:
        return scenario
    burst_ms = (0.01, 5, 300)[scenario.digest // 4 % 3]
    return dataclasses.replace(scenario, loss_burst_packets=None, loss_burst_ms=burst_ms)


def _application(rng: random.Random, rate_mbps: float) -> dict[str, Any]:
    periods = {"on_s": rng.uniform(0.01, 1), "off_s": rng.choice([0, 0.05, 1])}
    return {
        "app_rate_mbps": max(0.01, rate_mbps * rng.choice([0.05, 0.5, 1.1])),
        **rng.choice([{}, periods, periods | {"on_off": "exponential"}]),
    }


def assert_possible(trace: Trace) -> None:
    """Check what holds for the rows of any run in any engine."""
    counts = trace.flows[:, :, : FLOW_COLUMNS.index("throughput_mbps") + 1]
    links = {"second": trace.scenario.second_rate_mbps, "reverse": trace.scenario.reverse_rate_mbps}
    known = [links.get(column.partition("_")[0], 1) is not None for column in LINK_COLUMNS]
    for numbers in (counts, trace.link[:, known]):
        assert np.isfinite(numbers).all()
        assert (numbers >= 0).all()
    assert flow_column(trace, "is_active").max() <= 1
    assert np.nanmax([link_column(trace, f"{link}utilisation") for link in ("", "second_", "reverse_")]) <= 1 + 1e-9
    assert flow_column(trace, "delivered_packets").sum() <= flow_column(trace, "sent_packets").sum()


def assert_adds_up(trace: Trace) -> None:
    """Check that no packet appears or vanishes in the native engine, and that its times fit."""
    scenario, packet = trace.scenario, trace.scenario.packet_bytes
    # The handshake uses the link too, again after 1, 3, 7, … s if it is dropped.
    handshakes = sum(math.floor(math.log2(1 + max(0, scenario.duration_s - f.start_s))) + 1 for f in scenario.flows)
    # Every packet that was sent has arrived, was dropped, was lost, or is in the buffer.
    sent, delivered, lost = (flow_column(trace, f"{name}_packets").sum() for name in ("sent", "delivered", "lost"))
    arrived = flow_column(trace, "arrived_bytes").sum() / packet
    random_losses = link_column(trace, "random_losses").sum()
    drops = np.nansum([link_column(trace, f"{link}drops") for link in ("", "second_", "reverse_")])
    waiting = sent - arrived - drops - random_losses
    highest_mbps = max([scenario.rate_mbps, *(rate for _, rate in scenario.rate_schedule)])
    late = scenario.reordering_ms * highest_mbps * 1e3 / 8 / (packet + HEADER_BYTES) + 2 if scenario.reordering else 0
    assert waiting == round(waiting)
    has_one_link = scenario.second_rate_mbps is scenario.reverse_rate_mbps is None
    room = scenario.queue_packets + 2 + late
    room += 0 if scenario.second_rate_mbps is None else scenario.second_buffer_packets + 2
    if scenario.reverse_rate_mbps is None:
        assert -handshakes <= waiting <= room
    else:  # acknowledgements are dropped too, and data is under way behind the reverse link
        assert sent >= arrived + random_losses
    # What the receiver reports as marked was marked, and not lost.
    assert flow_column(trace, "marked_packets").sum() <= link_column(trace, "marks").sum()
    # The sender's own counts add up too.
    assert sent - delivered - lost >= flow_column(trace, "in_flight_packets")[-1].sum()
    arrived_bytes = flow_column(trace, "arrived_bytes").sum(axis=0)
    assert (flow_column(trace, "delivered_packets").sum(axis=0) * packet < arrived_bytes + 1).all()
    received_bytes = flow_column(trace, "received_bytes").sum(axis=0)
    for name in ("received_bytes", "inorder_bytes"):
        assert (flow_column(trace, name).sum(axis=0) < arrived_bytes + 1).all()
    for index, flow in enumerate(scenario.flows):
        assert received_bytes[index] <= (flow.size_bytes or math.inf)
        shortest_ms = min([flow.rtt_ms, *(rtt for _, rtt in flow.rtt_schedule)])
        assert not (flow_column(trace, "rtt_min_ms")[:, index] < shortest_ms - 1e-5).any()
    # The busy time of the link is the time its packets need (not if the rate changes while one is sent).
    if has_one_link and not scenario.rate_schedule:
        busy_s = (link_column(trace, "utilisation") * np.diff(trace.time_s, prepend=0.0)).sum()
        sent_s = (arrived + random_losses) * (packet + HEADER_BYTES) * 8e-6 / scenario.rate_mbps
        others_s = ((1 + late) * (packet + HEADER_BYTES) + handshakes * HEADER_BYTES) * 8e-6 / scenario.rate_mbps
        assert sent_s - 1e-6 <= busy_s <= sent_s + others_s + 1e-6
