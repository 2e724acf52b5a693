"""The table of scores beside the league's."""

from bbrgym import Flow, Scenario
from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.families import Draw
from bbrgym.benchmark.score import Score
from studies.score import LEAGUE, block, league_power


def run(power: float) -> dict[str, object]:
    return {"fair_power": power, "jain": 1.0, "utilisation": 1.0, "delay": 0.0, "retransmission_rate": 0.0}


def test_a_yardstick_is_scored_against_the_others():
    draws = [Draw(f"typical-0{number}", Scenario(flows=(Flow(),)), number) for number in (1, 2)]
    runs = {
        "vegas (candidate)": [run(0.4), run(0.4)],
        "bbr": [run(0.5), run(0.8)],
        "cubic": [run(0.25), run(0.4)],
        "vegas": [run(0.4), run(0.4)],
    }
    text = block([Score(Candidate.of("vegas"), 3, draws, runs)], {"bbr": 0.9, "cubic": 0.2, "vegas": 0.1})
    assert "| bbr | 1.000 [1.000 1.000] | 0.900 |" in text
    assert "| cubic | 0.500 [0.500 0.500] | 0.200 |" in text
    assert "| vegas | 0.650 [0.500 0.800] | 0.100 |" in text
    assert "Spearman) with the league over the 3 that both have: 0.50." in text


def test_the_leagues_page_is_read():
    power = league_power(LEAGUE.read_text(encoding="utf-8"))
    assert len(power) > 15
    assert power["cubic"] < power["da-bbr"] < 1
