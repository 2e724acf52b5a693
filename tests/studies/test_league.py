"""The league: every competitor in the scenarios of a score, and its tables."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bbrgym.baselines import registry
from bbrgym.benchmark.families import Draw, draw_scenarios
from bbrgym.benchmark.plan import Competitor
from studies import league
from studies.league import LeagueRun


def test_every_algorithm_and_everything_simple_competes() -> None:
    names = [one.name for one in league.competitors()]
    assert len(set(names)) == len(names)
    assert set(registry.controllers()) - {"agent", *registry.PROGRAMS} <= set(names)
    assert {"constant", "backlog", "bbr-backlog", "linear", "policy", "five.c"} <= set(names)


def test_the_hash_of_a_run_is_of_what_runs_and_not_of_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = draw_scenarios(1)[0]
    named = {one.name: one for one in league.competitors()}
    codes = {name: LeagueRun(draw, one).code for name, one in named.items()}
    assert len(set(codes.values())) == len(codes)
    parameters = {**named["constant"].parameters, "backlog_packets": 5}
    assert LeagueRun(draw, dataclasses.replace(named["constant"], parameters=parameters)).code != codes["constant"]
    monkeypatch.chdir(league.ROOT / "examples")
    assert LeagueRun(draw, dataclasses.replace(named["five.c"], file="five.c")).code == codes["five.c"]
    assert LeagueRun(draw_scenarios(1)[1], named["bbr"]).code != codes["bbr"]


@pytest.mark.parametrize("name", ["bbr", "backlog", "linear", "aimd.c"])
def test_what_is_kept_of_a_run_is_how_its_flows_share(name: str) -> None:
    draw = draw_scenarios(1)[0]
    short = dataclasses.replace(draw, scenario=dataclasses.replace(draw.scenario, duration_s=12.0))
    competitor = next(one for one in league.competitors() if one.name == name)
    (row,) = league.work(LeagueRun(short, competitor))
    assert 0 < row["fair_power"] <= row["jain"] * row["utilisation"]
    assert len(row["throughputs_mbps"]) == len(draw.scenario.flows)


def row(power: float, *mbps: float) -> list[dict[str, Any]]:
    scores = {"fair_power": power, "jain": power, "utilisation": 1.0, "delay": 0.0, "retransmission_rate": 0.0}
    return [scores | {"throughputs_mbps": list(mbps)}]


def test_scores_harm_and_regret_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = draw_scenarios(1)[0].scenario
    draws = (
        Draw("typical-01", scenario, seed=1),
        Draw("wide-01", scenario, seed=2),
        Draw("cubic-01", scenario, seed=3, roles=(0,), victim="cubic"),
        Draw("bbr-01", scenario, seed=4, roles=(0,), victim="bbr"),
    )
    monkeypatch.setattr(league, "draws", lambda: draws)
    monkeypatch.setattr(league, "competitors", lambda: [Competitor(name, name) for name in ("policy", "bbr", "vegas")])
    results = {
        "typical-01/policy": row(0.8),
        "typical-01/bbr": row(0.4),
        "typical-01/vegas": row(0.5),
        "wide-01/policy": row(0.3),
        "wide-01/bbr": row(0.6),
        "wide-01/vegas": row(0.5),
        **{f"{victim}-01/alone": row(1.0, 10.0) for victim in ("cubic", "bbr")},
        **{f"cubic-01/{name}": row(1.0, 5.0, 5.0) for name in ("policy", "bbr")},
        "cubic-01/vegas": row(1.0, 1.0, 9.0),
        **{f"bbr-01/{name}": row(1.0, 2.0, 8.0) for name in ("policy", "bbr", "vegas")},
    }
    table = league.scores_of(results)
    power = table["fair_power"].droplevel("seed").unstack("competitor")
    assert league.ratio_to_best(pd.DataFrame(power), "policy").tolist() == [1.0, 0.5]
    np.testing.assert_allclose(league.harm(results, "vegas", "cubic"), [0.1])
    view = league.view(results, lambda name, draw: name)
    lines = [line.split(" | ") for line in str(view["standings"]).splitlines()]
    assert [line[0].removeprefix("| ") for line in lines[2:]] == ["bbr", "policy", "vegas"]
    assert lines[3][3:] == ["0.800", "0.300", "0.50", "0.20 |"]
    assert "| wide | 0 of 1 | 0.300" in str(view["regret"])
    assert "| typical | 1 of 1 | 0.000" in str(view["regret"])
    assert "| wide-01 |" in str(view["worst"]).splitlines()[2]
