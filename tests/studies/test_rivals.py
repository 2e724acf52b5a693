"""studies/rivals.py: claims about algorithms, and what is measured of them."""

from __future__ import annotations

import dataclasses
import math
from contextlib import closing
from pathlib import Path

import pytest

from bbrgym import controllers, make_engine
from bbrgym.benchmark.statistics import Estimate
from studies import page
from studies.rivals import CLAIMS, MARK, Claim, alone, check, duel, jain, share_of, summarise, utilisation, verdict

CLAIM = Claim("bbr", "source", "claim", "figure", (), jain)


@pytest.mark.parametrize(
    ("bounds", "interval", "expected"),
    [
        ({"at_least": 0.9}, (0.9, 1.0), "holds"),
        ({"at_least": 0.9}, (0.8, 1.0), "unclear"),
        ({"at_least": 0.9}, (0.7, 0.8), "does not hold"),
        ({"at_most": 0.9}, (0.8, 0.9), "holds"),
        ({"at_most": 0.9}, (0.91, 1.0), "does not hold"),
        ({"at_least": 0.4, "at_most": 0.6}, (0.5, 0.7), "unclear"),
    ],
)
def test_a_verdict_is_about_the_whole_interval(
    bounds: dict[str, float], interval: tuple[float, float], expected: str
) -> None:
    assert verdict(dataclasses.replace(CLAIM, **bounds), Estimate(0.0, *interval, 10)) == expected


def test_every_claim_has_a_bound_and_known_algorithms() -> None:
    for claim in CLAIMS:
        assert max(claim.at_least, -claim.at_most) > -math.inf, claim.claim
        assert claim.needed
        names = {flow.algorithm for scenario in claim.scenarios for flow in scenario.flows}
        assert claim.algorithm in names <= set(controllers())
    assert len({(claim.algorithm, claim.claim) for claim in CLAIMS}) == len(CLAIMS)


def test_a_claim_is_checked_by_runs_that_differ() -> None:
    short = dataclasses.replace(duel("newreno", "cubic", 1), duration_s=3, rate_mbps=5)
    claim = dataclasses.replace(CLAIM, scenarios=(short,), measure=share_of("cubic"))
    with closing(make_engine("native")) as engine:
        measured = check(claim, engine, seeds=3)
    assert measured.n == 3
    assert 0 < measured.low < measured.value < measured.high < 1


def test_the_table_has_what_is_needed_and_measured() -> None:
    claim = dataclasses.replace(CLAIM, scenarios=(alone("bbr", 1),), measure=utilisation, at_least=0.9, claim="a | b")
    text = summarise([claim], [Estimate(0.95, 0.94, 0.96, 10)])
    assert text.startswith("1 claims: 1 holds.")
    assert "| bbr | source | a \\| b | figure | >= 0.9 | 0.950 [0.940 0.960] | holds |" in text


def test_the_page_has_the_block_and_every_algorithm() -> None:
    path = Path(__file__).parents[2] / "docs" / "results" / "rivals.md"
    text = path.read_text(encoding="utf-8")
    page.with_block(text, MARK, "")
    for claim in CLAIMS:
        assert page.cell(claim.claim) in text, "make rivals writes the page"
