"""`bbrgym break`: properties, the box of paths, the search, shrinking, and the command."""

import dataclasses
import itertools
import json
import runpy
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from bbrgym import Flow, Scenario, break_command, simulate
from bbrgym.benchmark.breaking import judging, report
from bbrgym.benchmark.breaking.failures import Repetition, look, plain_path, read_path, settle, shrunk
from bbrgym.benchmark.breaking.find import Entry, Found, _possible, find
from bbrgym.benchmark.breaking.judging import Judge, Trial
from bbrgym.benchmark.breaking.pinned import measure_property
from bbrgym.benchmark.breaking.properties import ALONE, PROPERTIES, Verdict, read_limits
from bbrgym.benchmark.breaking.shrink import NEEDED, holds, seeds_of, shrink, size
from bbrgym.benchmark.breaking.space import OURS, Genome, Space
from bbrgym.benchmark.breaking.words import kind_of, path_in_words
from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.run_facts import facts_of, run
from bbrgym.cli import main
from bbrgym.envs.columns import LINK_COLUMNS
from bbrgym.executors import LocalConfig, make_executor

LIMITS = {name: one.limit for name, one in PROPERTIES.items()}

SHAPED = """
#include "bbrgym_controller.h"
struct shaped { int64_t now; const double *p; };
enum { HIGH, LOW, BEGIN, END, PERIOD };
static void create(void *m, const struct bbrgym_connection *c) {
  ((struct shaped *)m)->p = c->parameters; ((struct shaped *)m)->now = 0;
}
static void on_ack(void *m, const struct bbrgym_ack *a) { ((struct shaped *)m)->now = a->now_ns; }
static void decision(const void *m, struct bbrgym_decision *d) {
  const struct shaped *s = m;
  double at = s->now / 1e9;
  int is_low = s->p[BEGIN] <= at && at < s->p[END];
  if (s->p[PERIOD] > 0) is_low = (int64_t)(at / s->p[PERIOD]) % 2;
  d->window = (is_low ? s->p[LOW] : s->p[HIGH]) * 1000;
  d->pacing_rate = is_low && s->p[LOW] == 0 ? 8000 / (s->p[END] - at + 0.01) : 0;
}
static const struct bbrgym_parameter parameters[] = {
  {"high", 100, -1, 1e6}, {"low", 0, 0, 1e6}, {"begin", 0, 0, 1e6}, {"end", 0, 0, 1e6}, {"period", 0, 0, 1e6},
  {NULL, 0, 0, 0}};
const struct bbrgym_controller bbrgym_controller = {
  1, sizeof(struct shaped), parameters, create, on_ack, 0, decision, 0};
"""
"""A window of `high` packets, of `low` ones from `begin` to `end`, or in turns of `period` s."""

LINK = Scenario(rate_mbps=10, buffer_bdp=10, duration_s=25, flows=(Flow(OURS, rtt_ms=40),))
BDP_PACKETS = 50


@pytest.fixture
def shaped(tmp_path: Path) -> Callable[..., Candidate]:
    path = tmp_path / "shaped.c"
    path.write_text(SHAPED)
    return lambda **parameters: Candidate.of(str(path), parameters)


@pytest.mark.parametrize(
    ("name", "scenario", "bad", "good"),
    [
        ("stalled", LINK, {"begin": 5, "end": 9}, {"begin": 5, "end": 7}),
        ("starved", LINK, {"begin": 5, "end": 17}, {"begin": 5, "end": 12}),
        ("bloated", dataclasses.replace(LINK, loss=0.02), {"high": 5 * BDP_PACKETS}, {"high": 2 * BDP_PACKETS}),
        ("unstable", LINK, {"high": 50, "low": 5, "period": 0.25}, {"high": 50, "low": 20, "period": 0.25}),
        ("regret", LINK, {"high": 10}, {"high": 50}),
        ("crash", LINK, {"high": -1}, {"high": 50}),
    ],
)
def test_a_property_has_two_sides(
    name: str, scenario: Scenario, bad: dict[str, float], good: dict[str, float], shaped: Callable[..., Candidate]
):
    for parameters, is_broken in ((bad, True), (good, False)):
        judge = Judge(shaped(**parameters), {name: LIMITS[name]})
        verdict = judge.judge([Trial(scenario, 1)])[0][name]
        assert verdict.is_broken == is_broken, (parameters, verdict)


def test_equal_flows_are_unfair_from_ten_to_one_on():
    flows = (Flow(OURS, rtt_ms=40), Flow(OURS, rtt_ms=40, start_s=1), Flow(OURS, rtt_ms=80))
    scenario = Scenario(duration_s=25, flows=flows)
    even: dict[str, Any] = {"throughputs_mbps": [4.0, 4.0, 4.0]}
    judge = PROPERTIES["unfair"].judge
    assert judge(scenario, {"throughputs_mbps": [11.0, 1.0, 0.1]}, {"bbr": even}, 10.0).is_broken
    assert not judge(scenario, {"throughputs_mbps": [9.0, 1.0, 0.1]}, {"bbr": even}, 10.0).is_broken
    alone = dataclasses.replace(scenario, flows=(flows[0], flows[2]))
    assert not PROPERTIES["unfair"].applies(alone)
    pair = tuple(dataclasses.replace(flows[0], start_s=start_s, stop_s=20) for start_s in (1, 20))
    absent = dataclasses.replace(scenario, flows=pair)
    assert not PROPERTIES["unfair"].applies(absent)


def test_harm_is_what_cubic_loses_beyond_what_cubic_takes():
    scenario = Scenario(duration_s=25, flows=(Flow(OURS, rtt_ms=40), Flow("cubic", rtt_ms=40)))
    others = {"cubic": {"throughputs_mbps": [5.0, 5.0]}, ALONE: {"throughputs_mbps": [10.0]}}
    judge = PROPERTIES["harmful"].judge
    verdict = judge(scenario, {"throughputs_mbps": [8.0, 2.0]}, others, 0.25)
    assert (verdict.value, verdict.is_broken) == (pytest.approx(0.3), True)
    assert not judge(scenario, {"throughputs_mbps": [7.0, 3.0]}, others, 0.25).is_broken


def test_a_rival_of_a_short_rtt_loses_more_than_a_fair_share():
    flows = (Flow(OURS, rtt_ms=100), Flow("cubic", rtt_ms=20))
    trial = Trial(Scenario(rate_mbps=20, duration_s=30, buffer_bdp=2, flows=flows), 1)
    (verdicts,) = Judge(Candidate.of("bbr"), {"harmful": 0.25}).judge([trial])
    assert verdicts["harmful"].is_broken
    (own,) = Judge(Candidate.of("bbr"), {}).own([trial])
    assert own["shares"][1] > 0.75


def test_a_path_on_which_no_yardstick_does_better_is_no_counterexample():
    own, others = {"stalled_s": [5.0]}, {"bbr": {"stalled_s": [4.0]}, "cubic": {"stalled_s": [3.5]}}
    assert not PROPERTIES["stalled"].judge(LINK, own, others, 3.0).is_broken
    assert PROPERTIES["stalled"].judge(LINK, own, {**others, "vegas": {"stalled_s": [0.5]}}, 3.0).is_broken


def test_a_slow_start_of_a_flow_is_no_swing():
    flows = (Flow("newreno", rtt_ms=197), Flow("newreno", rtt_ms=197, start_s=6.0))
    facts = facts_of(run(Scenario(rate_mbps=100, buffer_bdp=1, duration_s=25, flows=flows), 1, "native"))
    assert max(facts["swings"]) < 2


def test_an_outage_stalls_nobody():
    path = dataclasses.replace(LINK, rate_schedule=((5.0, 0.05), (9.0, 10.0)))
    facts = facts_of(run(path.with_agents_as("bbr"), 1, "native"))
    assert facts["stalled_s"][0] < 1


def test_fair_power_counts_what_a_policer_or_an_application_lets_through():
    for limited in (
        dataclasses.replace(LINK, policer_mbps=2.0),
        dataclasses.replace(LINK, flows=(Flow(OURS, rtt_ms=40, app_rate_mbps=2.0),)),
    ):
        facts = facts_of(run(limited.with_agents_as("bbr"), 1, "native"))
        assert facts["utilisation"] > 0.8


def test_every_kind_of_path_is_drawn_and_the_seed_decides_it():
    space = Space.read()
    drawn = []
    for _ in range(2):
        rng = np.random.default_rng(3)
        genomes = [space.draw(kind, rng) for kind in space.kinds for _ in range(3)]
        drawn.append([space.scenario(genome, rng)[1] for genome in genomes])
    assert drawn[0] == drawn[1]
    assert all(scenario.agent_flows for scenario in drawn[0])
    assert len({kind_of(scenario) for scenario in drawn[0]}) > 15


@pytest.mark.parametrize("is_file", [False, True])
def test_the_rate_of_a_path_with_a_trace_is_its_mean(is_file: bool, tmp_path: Path):
    changes: dict[str, Any] = {"rate_mbps": [1, 5], "duration_s": 20, "buffer_bdp": 2}
    if is_file:
        (tmp_path / "trace.csv").write_text("time_s,rate_mbps\n0,40\n5,80\n")
        changes["rate_traces"] = [str(tmp_path / "trace.csv")]
    space = Space.read(changes=changes)
    rng = np.random.default_rng(2)
    for _ in range(20):
        _, scenario = space.scenario(Genome(("rate_trace",), {}), rng)
        mean_mbps = simulate(scenario, seed=1).link[:, LINK_COLUMNS.index("rate_mbps")].mean()
        assert scenario.rate_mbps == pytest.approx(mean_mbps, rel=0.02)
        assert scenario.rate_mbps == 70 if is_file else 1 <= scenario.rate_mbps <= 5


def test_a_box_can_be_narrowed():
    space = Space.read(None, {"rate_mbps": [5, 6], "flows": 2, "kinds": ["loss", "alike"]})
    rng = np.random.default_rng(1)
    for kind in space.kinds * 5:
        _, scenario = space.scenario(space.draw(kind, rng), rng)
        assert 5 <= scenario.rate_mbps <= 6
        assert len(scenario.flows) == 2


def test_flows_often_start_at_once_and_never_before_the_box_says():
    rng = np.random.default_rng(2)
    for first_s in (0.0, 1.5):
        space = Space.read(None, {"start_s": [first_s, 5], "flows": [3, 5], "kinds": ["crowd", "alike"]})
        drawn = [space.scenario(space.draw(kind, rng), rng)[1] for kind in space.kinds * 20]
        starts = [[flow.start_s for flow in scenario.flows[1:]] for scenario in drawn]
        assert min(map(min, starts)) >= first_s
        assert 5 < sum(set(each) == {first_s} for each in starts) < 30


@pytest.mark.parametrize(
    "changes",
    [
        {"kinds": ["policer"], "packet_bytes": [64, 9000], "rate_mbps": [1, 5]},
        {"kinds": ["crowd"], "start_s": [0, 50], "stop_s": [1, 60]},
        {"kinds": ["burst_packets", "loss"], "burst_loss": [0.5, 0.9], "loss_burst_packets": [1, 20]},
        {"kinds": ["outage"], "outage_s": [0.01, 4]},
        {"duration_s": [0.2, 0.5], "change_s": [0, 3], "flows": [2, 5]},
        {"kinds": ["policer", "loss"], "packet_bytes": [64, 9000], "flows": [2, 3]},
    ],
)
def test_no_bounds_of_a_box_end_its_search(changes: dict[str, Any]):
    space = Space.read(None, changes)
    rng = np.random.default_rng(1)
    genome = None
    for place in range(300):
        drawn = space.draw(space.kinds[place % len(space.kinds)], rng)
        tried = drawn if genome is None or place % 2 else space.mutate(genome, rng)
        genome, scenario = _possible(space, tried, rng)
        assert space.scenario(genome, rng)[1] == scenario
        assert len(scenario.flows) >= space.ranges["flows"][0]
        assert not any(flow.is_absent for flow in scenario.flows)


@pytest.mark.parametrize(
    ("field", "names"),
    [("queues", ["codel", "bogus", "pie"]), ("rate_traces", ["redrawn", "bogus", "cellular"])],
)
def test_each_name_of_a_box_is_checked(field: str, names: list[str]):
    with pytest.raises(ValueError, match="'bogus'"):
        Space.read(None, {field: names})


def test_a_flow_that_would_stop_before_it_starts_stops_later():
    space = Space.read(None, {"kinds": ["crowd"], "flows": 2, "duration_s": 40, "start_s": [9, 10], "stop_s": [5, 20]})
    numbers = {"at_once": 1.0, "flow1.start": 0.5, "flow1.leaves": 0.0}
    for stop, stop_s in ((0.9, 18.5), (0.1, 20.0)):
        genome = Genome(("crowd",), {**numbers, "flow1.stop": stop})
        _, scenario = space.scenario(genome, np.random.default_rng(1))
        assert (scenario.flows[1].start_s, scenario.flows[1].stop_s) == (9.5, stop_s)


def test_a_fast_link_has_a_shorter_run_down_to_the_least_duration():
    rng = np.random.default_rng(1)
    space = Space.read(None, {"rate_mbps": [1, 200], "duration_s": [16, 40], "most_packets": 100_000})
    drawn = [space.scenario(space.draw("loss", rng), rng)[1] for _ in range(300)]
    packets = {one: one.rate_mbps * 125 * one.duration_s for one in drawn}
    assert max(one.duration_s for one in drawn) > 35
    assert {one.duration_s for one, many in packets.items() if many > 101_000} == {16.0}
    assert any(one.duration_s > 16 and many > 95_000 for one, many in packets.items())


def test_a_path_can_be_read_again():
    rng = np.random.default_rng(5)
    space = Space.read()
    for kind in space.kinds:
        _, scenario = space.scenario(space.draw(kind, rng), rng)
        assert read_path(yaml.safe_load(yaml.safe_dump(plain_path(scenario)))) == scenario


def test_a_search_depends_on_its_seed_alone():
    limits = {"regret": 0.3, "stalled": 3.0}
    space = Space.read(None, {"rate_mbps": [1, 4], "duration_s": 10})
    found = []
    for executor in (None, make_executor(LocalConfig(workers=2))):
        judge = Judge(Candidate.of("vegas"), limits, executor)
        found.append(find(judge, space, seed=2, candidates=130))
        if executor is not None:
            executor.shutdown()
    assert found[0].archive == found[1].archive
    assert found[0].candidates == 130
    assert found[0].failures


def test_ctrl_c_keeps_what_was_found():
    def interrupt(found: Any) -> None:
        if found.candidates >= 48:
            raise KeyboardInterrupt

    space = Space.read(None, {"rate_mbps": [1, 4], "duration_s": 10})
    found = find(Judge(Candidate.of("vegas"), {"regret": 0.3}), space, seed=2, tell=interrupt)
    assert not found.is_complete
    assert found.candidates == 48
    assert found.archive


def test_what_is_shrunk_is_smaller_and_still_fails():
    path = Scenario(
        rate_mbps=33.7,
        buffer_bdp=1.37,
        loss=0.0213,
        duration_s=20,
        reordering=0.0006,
        flows=(Flow(OURS, rtt_ms=187, jitter_ms=0.61), Flow(OURS, rtt_ms=187, jitter_ms=0.61, start_s=1.3)),
    )
    judge = Judge(Candidate.of("newreno"), {"regret": 0.3})
    trial = Trial(path, 7)
    smaller = shrunk(judge, "regret", trial)
    assert size(smaller) < size(path)
    assert len(smaller.flows) == 1
    assert smaller.reordering == 0
    assert holds(judge, "regret", [smaller], 7)[0] >= NEEDED
    assert smaller.duration_s >= PROPERTIES["regret"].least_s


class Holds(Judge):
    """Finds a property broken on paths that meet a condition, without a run, and keeps all that it judged."""

    def __init__(self, condition: Callable[[Scenario], bool]) -> None:
        super().__init__(Candidate.of("bbr"), {"crash": 0.0})
        self.condition = condition
        self.judged: list[Scenario] = []

    def judge(self, trials: Sequence[Trial]) -> list[dict[str, Verdict]]:
        self.judged += [trial.scenario for trial in trials]
        return [{"crash": Verdict(1.0, is_broken=self.condition(trial.scenario))} for trial in trials]


def test_a_trace_with_short_steps_is_shrunk():
    times = (5.0, 5.01, 5.4)
    path = dataclasses.replace(LINK, flows=(Flow(OURS, rtt_schedule=tuple((time, 40 + time) for time in times)),))
    smaller = shrink(Holds(lambda scenario: len(scenario.flows[0].rtt_schedule) == 3), "crash", Trial(path, 1))
    assert len(smaller.flows[0].rtt_schedule) == 3
    assert smaller.duration_s < path.duration_s


def test_no_flow_is_shrunk_away_in_part():
    path = dataclasses.replace(LINK, flows=(Flow(OURS, start_s=4.6, stop_s=5.4),))
    judge = Holds(lambda path: path.duration_s > 20 and any(flow.start_s > 4 and flow.stop_s for flow in path.flows))
    shrink(judge, "crash", Trial(path, 1))
    assert not any(flow.is_absent for scenario in judge.judged for flow in scenario.flows)


@pytest.mark.parametrize("broken", [NEEDED - 1, NEEDED])
def test_what_is_printed_holds_with_three_seeds_of_five(broken: int):
    path = Scenario(rate_mbps=20, buffer_bdp=1, loss=0.002, duration_s=10, flows=(Flow(OURS, rtt_ms=60),))
    first = Trial(path, 3)
    every = Judge(Candidate.of("newreno"), {"regret": 0.0}).judge([Trial(path, seed) for seed in seeds_of(first.seed)])
    values = sorted((of_trial["regret"].value for of_trial in every), reverse=True)
    judge = Judge(Candidate.of("newreno"), {"regret": (values[broken - 1] + values[broken]) / 2})
    entry = Entry(Genome(("loss",), {}), first, judge.judge([first])[0]["regret"], 1)
    printed = settle(judge, Found({("loss", "regret"): entry}), shrinks=False)
    assert [one.repeats for one in printed] == [NEEDED] * (broken == NEEDED)


def test_a_path_in_words():
    path = Scenario(
        rate_mbps=200, buffer_bdp=1, duration_s=12, flows=(Flow(OURS, rtt_ms=93, rtt_schedule=((5, 185),)),)
    )
    assert path_in_words(path) == "one flow, 200 Mbit/s, RTT 93 → 185 ms at 5 s, buffer 1 BDP, 12 s"
    beside = dataclasses.replace(path, loss=0.0025, flows=(Flow(OURS), Flow("cubic", start_s=2)))
    assert path_in_words(beside) == (
        "one flow beside cubic, 200 Mbit/s, RTT 50 ms, buffer 1 BDP, 0.25 % loss, later starts at 2 s, 12 s"
    )


SMALL = [
    "space.rate_mbps=[1,5]",
    "space.duration_s=10",
    "space.kinds=[alike,loss]",
    "--candidates",
    "48",
    "--most",
    "1",
    "--seed",
    "2",
    "--quiet",
]


def test_the_command_prints_what_replays_and_pins_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    written = ["--html", "page.html", "--pytest", "test_vegas.py"]
    arguments = ["break", "vegas", *SMALL[:-1], "--property", "regret", "--at-most", "regret=0.35", *written, "--json"]
    assert main(arguments) == 1
    found = json.loads(capsys.readouterr().out)
    first = found["failures"][0]
    assert first["value"] > 0.35
    assert first["size"][0] <= first["size_before"][0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "test_vegas.py"]
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == len(found["failures"])
    assert first["path"].split(",")[1].strip() in page

    value = measure_property("vegas", "regret", first["scenario"], first["seed"])
    assert value <= first["value"] + 1e-9  # by fewer yardsticks
    tests = runpy.run_path("test_vegas.py")
    (pinned, *_) = [test for name, test in tests.items() if name.startswith("test_")]
    with pytest.raises(AssertionError):
        pinned()

    words = shlex.split(first["command"])
    assert words[:2] == ["bbrgym", "break"]
    assert main([*words[1:], "--json"]) == 1
    again = json.loads(capsys.readouterr().out)["failures"][0]
    assert (again["value"], again["best"]) == (first["value"], first["best"])


def test_a_command_that_replays_a_failure_has_exact_parameters_its_limit_and_its_engine():
    candidate = Candidate.of("cubic", {"beta": 0.712345678901})
    failure = look(Judge(candidate, {"regret": 0.01}), "regret", Trial(dataclasses.replace(LINK, loss=0.02), 3))
    assert failure is not None
    for engine, limit in itertools.product(("native", "linux"), (0.01, LIMITS["regret"])):
        findings = report.Findings(candidate, {"regret": limit}, seed=1, found=None, failures=[failure], engine=engine)
        options = break_command.break_parser().parse_intermixed_args(shlex.split(findings.command(failure))[2:])
        assert options.settings == ["beta=0.712345678901"]
        assert options.engine == engine
        assert LIMITS | read_limits(options.at_most) == LIMITS | {"regret": limit}
        assert read_path(yaml.safe_load(options.replay)) == failure.trial.scenario


def test_what_only_a_stand_in_shows_is_no_failure_of_what_was_asked_for(tmp_path: Path):
    path = tmp_path / "stack.yaml"
    path.write_text("server: ['true']\nclient: ['true']\n")
    real = Candidate.of(str(path), engine="linux")
    failure = look(
        Judge(Candidate.of("cubic"), {"regret": 0.01}), "regret", Trial(dataclasses.replace(LINK, loss=0.02), 3)
    )
    assert failure is not None
    for stays in (True, False):
        replayed = dataclasses.replace(failure, elsewhere={"linux": Repetition(stays, "as it was")})
        findings = report.Findings(
            real,
            {"regret": 0.01},
            seed=1,
            found=Found(),
            failures=[replayed],
            engine="linux",
            stand_in=Candidate.of("cubic"),
        )
        assert findings.stays(replayed) == stays
        assert findings.headline.startswith("stack, searched as cubic: 1 failure")
        assert f"{int(stays)} of which" in findings.headline
        options = break_command.break_parser().parse_intermixed_args(shlex.split(findings.command(replayed))[2:])
        assert (options.what, options.engine) == (str(path), "linux")
        given = break_command.break_parser().parse_intermixed_args(["x", "--at-most", "regret=0.01"])
        assert break_command._end(given, findings, {"regret": 0.01}) == int(stays)


def test_a_judge_of_one_property_tells_what_is_not_contained(
    shaped: Callable[..., Candidate], monkeypatch: pytest.MonkeyPatch
):
    judge = Judge(shaped(high=50), {"regret": 0.1, "crash": 0.0})
    reply = {"error": None, "is_refused": False, "missing": ["memory"], "results": [{"error": "none"}]}
    monkeypatch.setattr(judging, "measure_job", lambda request: reply)
    judge.only("crash").own([Trial(LINK, 3)])
    assert judge.missing == ["memory"]


def test_without_a_failure_above_the_limit_the_status_is_0(capsys: pytest.CaptureFixture[str]):
    path = "{rate_mbps: 10, duration_s: 10, flows: [{rtt_ms: 40}]}"
    assert main(["break", "policy", "--at-most", "regret=0.5", "--replay", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["failures"] == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["break", "bbr9"], "'bbr9' is no file"),
        (["break", "bbr", "space.rate=3"], "unknown key 'rate' (did you mean 'rate_mbps'?)"),
        (["break", "bbr", "space.kinds=[]"], "the box is empty"),
        (["break", "bbr", "space.kinds=[alike]", "space.flows=1"], "the box is empty"),
        (["break", "bbr", "space.rate_mbps=[9,3]"], "space.rate_mbps must be a number or [least, most]"),
        (["break", "bbr", "space.rate_mbps=[1,20000]"], "rate_mbps must be <= 10000"),
        (["break", "bbr", "--space", "none.yaml"], "there is no file 'none.yaml'"),
        (["break", "bbr", "--property", "slow"], "unknown property 'slow'"),
        (["break", "bbr", "--property", "unfair", "space.flows=1"], "no path of this box can show unfair"),
        (["break", "bbr", "--at-most", "regret=much"], "--at-most regret must be a number, got 'much'"),
        (["break", "bbr", "--candidates", "0"], "--candidates must be"),
        (["break", "bbr", "--replay", "none.yaml"], "there is no file 'none.yaml'"),
        (["break", "bbr", "--replay", "{rate_mbps: 0}"], "rate_mbps must be in [0.01, 10000], got 0"),
        (["break", "bbr", "--replay", "{flows: [{algorithm: cubic}]}"], "the candidate's"),
        (["break", "bbr", "--replay", "{flows: [{start_s: 4, stop_s: 4}]}"], "the candidate's"),
        (
            ["break", "bbr", "--replay", "{flows: [{size_bytes: 1000000}]}"],
            "flows[0].size_bytes must be null, got 1000",
        ),
        (["break", "bbr", "--replay", "{flows: [{}, {algorithm: cubic, size_bytes: 9}]}"], "flows[1].size_bytes must"),
        (["break", "bbr", "--replay", "{workload: {load: 0.5}}"], "a path must have no workload"),
        (["break", "bbr", "--replay", "{duration_s: 0.1}"], "duration_s must be >= 0.2, got 0.1"),
        (["break", "bbr", "space.duration_s=[0.1,5]"], "duration_s must be >= 0.2, got 0.1"),
        (["break", "bbr", "--confirm", "ns9"], "unknown engine of --confirm 'ns9'"),
        (["break", "bbr", "--html", "nowhere/page.html"], "nowhere"),
        (["break", "examples/aimd.c", "executor=ray"], "executor must be local"),
        (["break", "examples/aimd.c", "targt=5", "--candidates", "1"], "unknown parameter 'targt'"),
        (["break", "bbr", "--replay", "[]"], "--replay must have a path"),
        (["break", "linux-cubic"], "runs in the Linux engine only"),
        (["break", "bbr", "--property", "harmful", "--replay", "{flows: [{}]}"], "no given path can show harmful"),
        (["break", "linux-cubic", "--engine", "linux", "--pytest", "test_x.py"], "without --engine linux"),
    ],
)
def test_bad_input_is_a_sentence_and_status_2(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]):
    assert main(arguments) == 2
    assert text in capsys.readouterr().err


def test_a_candidate_that_always_crashes_is_refused(
    shaped: Callable[..., Candidate], capsys: pytest.CaptureFixture[str]
):
    assert main(["break", shaped().what, "high=-1", *SMALL]) == 2
    assert "fails on every path" in capsys.readouterr().err


def test_a_callable_that_chooses_no_number_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("chooses_nan.py").write_text("def none(row):\n    return float('nan'), 1.0\n")
    judge = Judge(Candidate.of("chooses_nan:none"), {"crash": 0.0})
    assert judge.judge([Trial(dataclasses.replace(LINK, duration_s=2), 1)])[0]["crash"].is_broken


def test_a_path_that_cannot_be_measured_is_no_crash():
    judge = Judge(Candidate.of("bbr"), {"crash": 0.0})
    finite, short = (
        {"duration_s": 2, "flows": (Flow(OURS, size_bytes=1000),)},
        {"duration_s": 0.1, "flows": (Flow(OURS),)},
    )
    for changes in (finite, short):
        with pytest.raises(ValueError, match=r"endless|after_s"):
            judge.judge([Trial(dataclasses.replace(LINK, **changes), 1)])


@pytest.mark.parametrize(("at_most", "status"), [([], 0), (["--at-most", "regret=1"], 1)])
def test_a_crash_is_within_no_limit(
    at_most: list[str], status: int, shaped: Callable[..., Candidate], capsys: pytest.CaptureFixture[str]
):
    path = json.dumps({"rate_mbps": 10, "duration_s": 2, "flows": [{}]})
    given = ["break", shaped().what, "high=-1", "--replay", path, *at_most]
    assert main([*given, "--property", "regret"]) == status
    assert "crash" in capsys.readouterr().out


def test_a_box_of_ones_own_may_have_some_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    box = tmp_path / "box.yaml"
    box.write_text("kinds: [link]\nrate_mbps: 5\nduration_s: 10\n")
    arguments = ["break", "newreno", "--space", str(box), "--candidates", "24", "--no-shrink", "--json"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["scenario"]["rate_mbps"] for one in found["failures"]} <= {5.0}
    assert found["paths"] == 24


def test_a_link_of_the_playground_has_what_the_page_can_show():
    trial = Trial(dataclasses.replace(LINK, loss=0.02, duration_s=15), 3)
    judge = Judge(Candidate.of("newreno"), {"regret": 0.1})
    failure = look(judge, "regret", trial)
    assert failure is not None
    assert report.playground(judge.candidate, failure).startswith(report.LAB + "#%7B")
    beyond = dataclasses.replace(trial.scenario, reordering=0.01)
    hidden = dataclasses.replace(failure, trial=Trial(beyond, 3))
    assert report.playground(judge.candidate, hidden) == ""


def test_the_parser_has_every_option_of_its_page():
    page = (Path(__file__).parents[2] / "docs" / "break.md").read_text()
    options = {word for action in break_command.break_parser()._actions for word in action.option_strings}
    assert [one for one in options - {"-h", "--help"} if one not in page] == []
