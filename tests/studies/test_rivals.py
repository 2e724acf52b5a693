"""studies/rivals.py: claims about algorithms, and what is measured of them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bbrgym import controllers
from bbrgym.benchmark.statistics import Estimate
from studies.rivals import MEASURES, Claim, ClaimRun, load_claims, summarise, work

PATH = {"rate_mbps": 5, "duration_s": 3, "flows": [{"rtt_ms": 30}, {"rtt_ms": 30}]}


def claim(**values: Any) -> Claim:
    usual = {"algorithm": "cubic", "source": "source", "claim": "claim", "figure": "figure", "measure": "share"}
    return Claim(**{**usual, "path": PATH, "at_least": 0.5, **values})


def test_a_claim_holds_if_the_whole_interval_is_what_it_needs() -> None:
    found = [Estimate(0.5, *ends, 10) for ends in ((0.5, 0.7), (0.4, 0.6), (0.1, 0.4), (0.6, 0.9))]
    claims = [claim(), claim(), claim(), claim(at_most=0.8)]
    head, *rows = [line.split(" | ") for line in summarise(claims, found).splitlines() if line.startswith("| cubic")]
    assert [row[-1] for row in (head, *rows)] == ["holds |", "unclear |", "does not hold |", "unclear |"]
    assert claims[-1].needed == ">= 0.5 and <= 0.8"


def test_every_claim_is_about_known_algorithms() -> None:
    claims = load_claims()
    assert len({(one.algorithm, one.claim) for one in claims}) == len(claims)
    for one in claims:
        names = {flow.algorithm for flow in one.scenarios[0].flows}
        assert {one.algorithm, one.of or one.algorithm} <= names <= set(controllers())


def test_flows_take_algorithms_in_turn_and_a_buffer_makes_a_claim(tmp_path: Path) -> None:
    file = tmp_path / "claims.yaml"
    entry = (
        "algorithm: vegas, source: s, claim: c, figure: f, measure: jain, over: bbr, flows: [vegas, cubic], at_most: 1"
    )
    file.write_text(f"claims: [{{{entry}, path: {{flows: [{{}}, {{algorithm: copa}}, {{}}]}}, buffers_bdp: [0.5, 2]}}]")
    first, second = load_claims(file)
    assert (first.claim, second.claim) == ("c; buffer of 0.5 BDP", "c; buffer of 2 BDP")
    assert [scenario.buffer_bdp for scenario in second.scenarios] == [2, 2]
    own, compared = ([flow.algorithm for flow in scenario.flows] for scenario in first.scenarios)
    assert (own, compared) == (["vegas", "copa", "vegas"], ["bbr", "copa", "bbr"])
    file.write_text(f"claims: [{{{entry.replace('jain', 'jane')}, path: {{flows: [{{}}]}}}}]")
    with pytest.raises(ValueError, match=r"the claim 'c': unknown measure 'jane' \(did you mean 'jain'\?\)"):
        load_claims(file)


def test_a_claim_is_checked_by_runs_that_differ() -> None:
    runs = [ClaimRun(claim(flows=("newreno", "cubic")), seed) for seed in range(1000, 1003)]
    figures = [work(run)[0]["figure"] for run in runs]
    assert 0 < min(figures) < max(figures) < 1


def test_the_hash_of_a_run_is_of_its_scenarios_and_its_figure() -> None:
    claims = [claim(), claim(measure="jain"), claim(over="bbr"), claim(path=PATH | {"rate_mbps": 6})]
    codes = [ClaimRun(one, seed).code for one in claims for seed in (1, 2)]
    assert len(set(codes)) == len(codes)
    assert ClaimRun(claim(at_least=0.1, claim="in other words"), 1).code == codes[0]


def test_figures_of_a_run() -> None:
    def flow(algorithm: str, mbps: float, rtt_ms: float) -> SimpleNamespace:
        return SimpleNamespace(
            algorithm=algorithm,
            throughput_mbps=mbps,
            rtt_ms=30.0,
            rtt_mean_ms=rtt_ms,
            retransmissions=mbps,
            sent_packets=100,
        )

    flows = [flow("bbr", 1, 50), flow("cubic", 3, 40), flow("cubic", 4, 60)]
    summary: Any = SimpleNamespace(flows=flows, link=SimpleNamespace(rate_mbps=8.32, queue_mean_ms=7.0))
    figures = {name: MEASURES[name](summary, "cubic") for name in ("share", "delay_ms", "retransmission_rate")}
    # A packet of 1040 bytes takes 1 ms.
    assert figures == pytest.approx({"share": 7 / 8, "delay_ms": 40 - 30 - 1, "retransmission_rate": 8 / 300})
    slow: Any = SimpleNamespace(link=SimpleNamespace(queue_mean_ms=2.0))
    assert claim(measure="queue_ms", over="bbr").measured([summary, slow]) == 3.5
