"""ECN from end to end: the queue marks, the receiver reports, the sender answers (docs/scenarios.md).

The parts are tested alone: queues in test_queue_disciplines.py, the transport in test_transport.py, answers in
test_newreno.py and test_cubic.py.
"""

import contextlib
import dataclasses

import pytest
from marks import needs_ns3
from traces import flow_column, link_column

import bbrgym
from bbrgym import Engine, Flow, Scenario, Trace
from bbrgym.envs.engine import EngineError
from bbrgym.envs.scenario import Ecn, Queue

SEED = 2
CODEL = Scenario(rate_mbps=10, buffer_bdp=4, queue="codel", duration_s=8, flows=(Flow("newreno", rtt_ms=40),))
STEP = Scenario(rate_mbps=10, buffer_bdp=4, ce_threshold_ms=5.0, duration_s=8, flows=(Flow("newreno", rtt_ms=40),))


def with_ecn(scenario: Scenario, ecn: Ecn | None = "classic") -> Scenario:
    flows = tuple(dataclasses.replace(flow, ecn=ecn) for flow in scenario.flows)
    return dataclasses.replace(scenario, flows=flows)


def total(trace: Trace, column: str) -> float:
    return float((link_column if column in ("drops", "marks") else flow_column)(trace, column).sum())


@pytest.mark.parametrize(("queue", "algorithm"), [("codel", "newreno"), ("codel", "cubic"), ("fq_codel", "cubic")])
def test_codel_marks_what_it_would_drop(native: Engine, queue: Queue, algorithm: str) -> None:
    scenario = dataclasses.replace(CODEL, queue=queue).with_algorithm(algorithm)
    plain = bbrgym.simulate(scenario, native, SEED)
    marked = bbrgym.simulate(with_ecn(scenario), native, SEED)
    assert total(plain, "marks") == 0 < total(plain, "drops")
    assert total(marked, "drops") == 0 < total(marked, "marks")
    assert total(marked, "lost_packets") == total(marked, "retransmitted_packets") == 0
    # The last marks can be on their way back.
    assert total(marked, "marks") - 1 <= total(marked, "marked_packets") <= total(marked, "marks")
    for trace in (plain, marked):
        summary = trace.summary(after_s=3)
        assert summary.link.utilisation > 0.85
        assert summary.link.queue_mean_ms < 10


def test_what_is_not_ecn_capable_is_dropped_as_before(native: Engine) -> None:
    """Two flows share a queue: one is marked, the other's packets are dropped."""
    flows = (Flow("newreno", rtt_ms=40, ecn="classic"), Flow("newreno", rtt_ms=40))
    trace = bbrgym.simulate(dataclasses.replace(CODEL, flows=flows), native, SEED)
    lost, marked = (flow_column(trace, f"{name}_packets").sum(axis=0) for name in ("lost", "marked"))
    assert lost[0] == marked[1] == 0
    assert lost[1] == total(trace, "drops") > 0
    assert marked[0] == total(trace, "marks") > 0
    # Without an ECN-capable flow, a threshold changes nothing.
    hashes = {bbrgym.simulate(dataclasses.replace(STEP, ce_threshold_ms=ms), native, SEED).hash for ms in (None, 5.0)}
    assert len(hashes) == 1


@pytest.mark.parametrize("ecn", ["classic", "l4s", None])
@pytest.mark.parametrize("queue", ["droptail", "codel", "fq_codel"])
@pytest.mark.parametrize(("threshold_ms", "marks"), [(0.0, 8), (5.0, 2), (6.656, 0)])
def test_every_packet_above_the_threshold_is_marked(
    native: Engine, queue: Queue, ecn: Ecn | None, threshold_ms: float, marks: int
) -> None:
    """The initial window reaches an idle link at once: from the third on, each packet waits 0.832 ms longer."""
    flow = Flow("newreno", rtt_ms=40, size_bytes=10_000, ecn=ecn)
    scenario = dataclasses.replace(STEP, queue=queue, ce_threshold_ms=threshold_ms, flows=(flow,))
    trace = bbrgym.simulate(scenario, native, SEED)
    assert total(trace, "marks") == (0 if ecn is None else marks)


@needs_ns3
def test_ns3_refuses_what_it_cannot_mark(native: Engine) -> None:
    flow = Flow("newreno", rtt_ms=40, size_bytes=10_000, ecn="classic")
    pie = dataclasses.replace(STEP, queue="pie", ce_threshold_ms=2.0, flows=(flow,))
    assert total(bbrgym.simulate(pie, native, SEED), "marks") == 6
    for transport, scenario, message in (
        ("quic", pie, "ns-3 cannot run queue 'pie' with ce_threshold_ms"),
        ("tcp", with_ecn(CODEL), "transport tcp cannot run a flow with ecn"),
    ):
        engine = bbrgym.make_engine("ns3", transport=transport)
        with contextlib.closing(engine), pytest.raises(EngineError, match=message):
            engine.reset(scenario, SEED)
