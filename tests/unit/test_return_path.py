"""The way back of a flow's ACKs: an RTT that changes, losses, aggregation and jitter, alone and in scenarios."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from bbrgym import Engine, Flow, Scenario, _testing
from bbrgym.envs import rtt_trace

MS = 1_000_000
SEED = 3


def arrivals_ms(sent_ms: list[float], seed: int = SEED, **path: Any) -> list[float | None]:
    """Return when ACKs sent at these times arrive; None for those that are lost."""
    names = ("forward_ms", "ahead_ns")
    flow = {name: value for name, value in path.items() if name not in names}
    options = {name: value for name, value in path.items() if name in names}
    arrivals = _testing.draw_arrivals(flow, seed, [round(ms * MS) for ms in sent_ms], **options)
    return [None if arrival is None else arrival / MS for arrival in arrivals]


# --- the path alone -------------------------------------------------------------------------------------------------


def test_an_ack_takes_the_rtt_of_its_time_and_does_not_overtake() -> None:
    changes = {"rtt_ms": 30.0, "rtt_schedule": [[0.1, 50.0], [0.2, 20.0]]}
    sent = [0, 99.999999, 100, 199, 200, 210, 228.5, 229.5, 300]
    assert arrivals_ms(sent, **changes) == [30, 129.999999, 150, 249, 249, 249, 249, 249.5, 320]
    # The first 10 ms of every RTT lie elsewhere.
    assert arrivals_ms(sent, forward_ms=10.0, **changes) == [20, 119.999999, 140, 239, 239, 239, 239, 239.5, 310]
    # A change that came before the first ACK, and several at once.
    assert arrivals_ms([250, 251], **changes) == [270, 271]


def test_schedule_and_releases_follow_the_receivers_clock() -> None:
    path = {"rtt_ms": 30.0, "rtt_schedule": [[0.1, 50.0]], "ahead_ns": 2 * MS}
    assert arrivals_ms([97.5, 98], **path) == [127.5, 148]
    assert arrivals_ms([5, 8], rtt_ms=30.0, ack_aggregation_ms=10.0, ahead_ns=2 * MS) == [38, 38]


def test_aggregated_acks_leave_together() -> None:
    path = {"rtt_ms": 30.0, "ack_aggregation_ms": 4.0}
    assert arrivals_ms([0, 0.000001, 3, 4, 4.5, 17], **path) == [30, 34, 34, 34, 38, 50]
    # They take the RTT of the time of their release.
    assert arrivals_ms([5, 9], **path, rtt_schedule=[[0.007, 60.0]]) == [68, 72]
    # Jitter delays each of them, and they keep their order.
    late = arrivals_ms([5, 6, 7] * 2, **path, jitter_ms=5.0)
    assert late == sorted(late)  # type: ignore[type-var]
    assert 38 <= min(late) < max(late) <= 43  # type: ignore[type-var]
    assert len(set(late)) > 1


def test_a_lost_ack_delays_no_other() -> None:
    sent = [float(ms) for ms in range(20_000)]
    arrivals = arrivals_ms(sent, rtt_ms=30.0, ack_loss=0.25)
    lost = np.array([arrival is None for arrival in arrivals])
    assert lost.mean() == pytest.approx(0.25, abs=4 * np.sqrt(0.25 * 0.75 / lost.size))
    assert all(arrival in (None, ms + 30) for arrival, ms in zip(arrivals, sent, strict=True))
    assert arrivals_ms(sent, seed=SEED + 1, rtt_ms=30.0, ack_loss=0.25) != arrivals
    # Of the others, jitter draws the same delays as if they were alone.
    jittery = arrivals_ms(sent, rtt_ms=30.0, ack_loss=0.25, jitter_ms=0.5)
    alone = arrivals_ms([ms for ms, is_lost in zip(sent, lost, strict=True) if not is_lost], rtt_ms=30.0, jitter_ms=0.5)
    assert [arrival for arrival in jittery if arrival is not None] == alone


# --- in the engines -------------------------------------------------------------------------------------------------


# The handshake reaches the queue after 10 ms of 40 and leaves it at 10.04. It reaches its receiver at 20.04, and its
# reply the sender, which sits at the queue, at 50.04. The data packet leaves the link at 51.08, and is at its receiver
# at 61.08: the flow is complete.
ONE_PACKET = Scenario(rate_mbps=8, duration_s=3, flows=(Flow("cubic", rtt_ms=40, size_bytes=1000),))


@pytest.mark.parametrize(
    ("path", "later_ms"),
    [
        ({}, 0),
        ({"rtt_schedule": ((0.02004, 60.0),)}, 20),
        ({"rtt_schedule": ((0.020041, 60.0),)}, 0),
        ({"ack_aggregation_ms": 8.0}, 3.96),
        ({"ack_aggregation_ms": 8.0, "rtt_schedule": ((0.021, 60.0),)}, 23.96),
    ],
)
def test_a_reply_arrives_when_its_path_says(native: Engine, path: dict[str, Any], later_ms: float) -> None:
    flow = dataclasses.replace(ONE_PACKET.flows[0], **path)
    native.reset(dataclasses.replace(ONE_PACKET, flows=(flow,)), SEED)
    assert native.step(3000).time_s * 1e3 == pytest.approx(61.08 + later_ms, abs=1e-9)


def test_a_lost_reply_is_asked_for_after_a_second(native: Engine) -> None:
    flow = dataclasses.replace(ONE_PACKET.flows[0], ack_loss=0.5)
    ends = set()
    for seed in range(20):
        native.reset(dataclasses.replace(ONE_PACKET, flows=(flow,)), seed)
        ends.add(round(native.step(3000).time_s * 1e3, 6))
    assert {61.08, 1061.08} <= ends <= {61.08, 1061.08, 3000}


# --- traces ---------------------------------------------------------------------------------------------------------


def test_a_ramp_is_linear_between_its_points() -> None:
    ramp = rtt_trace.from_config({"ramp": [[1, 40], [1.3, 70], [2, 70]], "step_ms": 100}, 9)
    assert [time for time, _ in ramp] == pytest.approx([1, 1.1, 1.2, 1.3])
    assert [rtt for _, rtt in ramp] == pytest.approx([40, 50, 60, 70])
    assert rtt_trace.from_config({"ramp": [[0, 9]]}, 9) == ((0.0, 9.0),)


def test_the_leo_trace_has_a_handover_every_15_s() -> None:
    times, rtts = np.array(rtt_trace.leo_trace(1, 60)).T
    assert times.tolist() == [step / 10 for step in range(600)]
    assert 20 <= rtts.min() < rtts.max() < 60
    assert np.abs(np.diff(rtts)).mean() == pytest.approx(6.7, abs=0.5)
    shortest = rtts.reshape(4, 150).min(axis=1)
    assert len(set(shortest)) > 1
    assert (rtts.reshape(4, 150).max(axis=1) <= shortest + 19).all()
    assert rtt_trace.leo_trace(1, 30) == rtt_trace.leo_trace(1, 60)[:300]
    assert rtt_trace.leo_trace(2, 60) != rtt_trace.leo_trace(1, 60)


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        (3, "rtt_trace must be a mapping"),
        ({}, "rtt_trace must have one of file, ramp, synthetic, got {}"),
        ({"synthetic": "geo"}, r"unknown rtt_trace\.synthetic 'geo'"),
        ({"ramp": [[0, 1]], "seed": 1}, "rtt_trace must have no seed beside ramp, got"),
        ({"ramp": 3}, r"rtt_trace\.ramp must be pairs of a time in s and an RTT in ms, got 3"),
        ({"ramp": [[2, 1], [1, 1]]}, r"rtt_trace\.ramp must have rising times >= 0, got \[\[2"),
        ({"ramp": [[0, 1], [1e9, 2]]}, r"rtt_trace\.ramp must have at most 1,000,000 steps, got 10,000,000,000"),
        ({"file": 3}, "rtt_trace must have a path as file, got"),
    ],
)
def test_a_bad_trace_is_refused(trace: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rtt_trace.from_config(trace, 9)


def test_a_trace_beside_a_schedule_is_refused() -> None:
    flow = {"rtt_schedule": [[0, 1]], "rtt_trace": {"synthetic": "leo"}}
    with pytest.raises(ValueError, match="give one of rtt_trace and rtt_schedule, got both: rtt_trace="):
        Scenario.from_dict({"flows": [flow]})
