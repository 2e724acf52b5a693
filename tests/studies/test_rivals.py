"""studies/rivals.py: claims about algorithms, and what is measured of them."""

import math
from pathlib import Path
from typing import Any

import pytest

from bbrgym import controllers
from bbrgym.benchmark.claims import Claim
from studies.rivals import SEEDS, ClaimRun, RivalClaim, judge, load_claims, summarise, work

PATH = {"rate_mbps": 5, "duration_s": 3, "flows": [{"rtt_ms": 30}, {"rtt_ms": 30}]}


def rival(path: dict[str, Any] = PATH, flows: tuple[str, ...] = (), **values: Any) -> RivalClaim:
    usual = {"competitor": "cubic", "source": "source", "wording": "claim", "metric": "share[0]", "at_least": 0.5}
    claim = Claim.from_dict({**usual, **values}, controllers())
    return RivalClaim(Claim(**{**vars(claim), "scenarios": (claim.wording,)}), "figure", path, flows)


def results_of(*claims: tuple[RivalClaim, dict[str, list[float]]]) -> dict[str, Any]:
    """Results of claims by competitor; the values are those of the seeds in turn."""
    return {
        ClaimRun(one, seed).name: [
            {"competitor": name, "value": values[place % len(values)]} for name, values in of.items()
        ]
        for one, of in claims
        for place, seed in enumerate(SEEDS)
    }


def test_a_claim_holds_if_the_whole_interval_is_what_it_needs() -> None:
    values = ([0.6, 0.7], [0.2, 0.9], [0.1, 0.2], [0.7, 1.0])
    claims = [rival(wording=str(place), at_most=0.8 if place == 3 else None) for place in range(4)]
    found = judge(claims, results_of(*((one, {"cubic": of}) for one, of in zip(claims, values, strict=True))))
    head, *rows = [line.split(" | ") for line in summarise(claims, found).splitlines() if line.startswith("| cubic")]
    assert [row[-1] for row in (head, *rows)] == ["holds |", "unclear |", "does not hold |", "unclear |"]
    assert claims[-1].claim.needed_as("") == ">= 0.5 and <= 0.8"


def test_a_claim_may_be_about_the_quotient_of_runs_with_the_same_seed() -> None:
    one = rival(metric="link_queue_mean_ms", than="bbr")
    (found,) = judge([one], results_of((one, {"cubic": [1, 9], "bbr": [2, 3]})))
    assert found.measured.estimate.value == pytest.approx((1 / 2 + 9 / 3) / 2)
    (found,) = judge([one], results_of((one, {"cubic": [1, 9], "bbr": [0, 3]})))
    assert (found.verdict, found.measured.estimate.value) == ("unclear", 3)  # a quotient without a value
    assert not math.isnan(found.measured.estimate.low)


def test_every_claim_is_about_known_algorithms() -> None:
    claims = load_claims()
    assert len({(one.claim.competitor, one.claim.wording) for one in claims}) == len(claims)
    for one in claims:
        competitor = str(one.claim.competitor)
        names = {flow.algorithm for flow in one.scenarios[competitor].flows}
        assert {competitor} <= names <= set(controllers())


def test_flows_take_algorithms_in_turn_and_a_buffer_makes_a_claim(tmp_path: Path) -> None:
    file = tmp_path / "claims.yaml"
    entry = (
        "competitor: vegas, source: s, wording: c, figure: f, metric: link_jain, than: bbr, flows: [vegas, cubic], "
        "at_most: 1"
    )
    file.write_text(f"claims: [{{{entry}, path: {{flows: [{{}}, {{algorithm: copa}}, {{}}]}}, buffers_bdp: [0.5, 2]}}]")
    first, second = load_claims(file)
    assert (first.claim.wording, second.claim.wording) == ("c; buffer of 0.5 BDP", "c; buffer of 2 BDP")
    assert [scenario.buffer_bdp for scenario in second.scenarios.values()] == [2, 2]
    own, compared = ([flow.algorithm for flow in scenario.flows] for scenario in first.scenarios.values())
    assert (own, compared) == (["vegas", "copa", "vegas"], ["bbr", "copa", "bbr"])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("metric: link_jane, at_most: 1", r"unknown metric 'link_jane' \(did you mean 'link_jain'\?\)"),
        ('metric: "share[1]", at_most: 1', r"the claim 'c' has 'share\[1\]', but the flows of its scenario are 0 to 0"),
        ("metric: link_jain, value: 1", "the claim 'c' must have at_least or at_most"),
        ("metric: link_jain, at_most: 1, source: ''", "the claim 'c' has no source"),
        ("metric: link_jain, at_most: 1, measure: jain", "a claim: unknown key 'measure'"),
    ],
)
def test_a_mistake_is_refused_by_name(entry: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "claims.yaml"
    source = "" if "source" in entry else "source: s, "
    file.write_text(f"claims: [{{competitor: vegas, {source}wording: c, figure: f, path: {{flows: [{{}}]}}, {entry}}}]")
    with pytest.raises(ValueError, match=message):
        load_claims(file)


def test_a_claim_is_checked_by_runs_that_differ() -> None:
    runs = [ClaimRun(rival(flows=("newreno", "cubic")), seed) for seed in range(1000, 1003)]
    figures = [work(run)[0]["value"] for run in runs]
    assert 0 < min(figures) < max(figures) < 1


def test_the_hash_of_a_run_is_of_its_scenarios_and_its_metric() -> None:
    claims = [rival(), rival(metric="link_jain"), rival(than="bbr"), rival(path=PATH | {"rate_mbps": 6})]
    codes = [ClaimRun(one, seed).code for one in claims for seed in (1, 2)]
    assert len(set(codes)) == len(codes)
    assert ClaimRun(rival(at_least=0.1, wording="in other words"), 1).code == codes[0]
