"""`bbrgym simulate`, and a trace in words."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hostile import write_hostile
from waiting import wait_for

from bbrgym import Flow, Scenario, Trace, simulate
from bbrgym.baselines.policy_file import REFERENCE
from bbrgym.cli import main
from bbrgym.envs.trace_file import load_trace
from bbrgym.lab import name_runs, plain_run, saved_runs
from bbrgym.simulation import (
    flow_texts,
    further_links,
    link_text,
    notes,
    plot_columns,
    read_scenario,
    simulate_parser,
    table,
)

pytestmark = pytest.mark.usefixtures("in_new_folder")

SHORT = ("--duration", "3")
EXAMPLES = Path(__file__).parents[2] / "examples"
COMMAND = (sys.executable, "-c", "import sys; from bbrgym.cli import main; sys.exit(main())")


def read(*words: str) -> tuple[Scenario, list[str]]:
    return read_scenario(simulate_parser().parse_intermixed_args(words))


def simulated(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["simulate", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["bbr"], Scenario(flows=(Flow("bbr"),))),
        (
            ["bbr", "cubic", "--rate", "20", "--rtt", "10,50"],
            Scenario(rate_mbps=20, flows=(Flow("bbr", rtt_ms=10), Flow("cubic", rtt_ms=50))),
        ),
        (["bbr", "--rtt", "10,50"], Scenario(flows=(Flow("bbr", rtt_ms=10), Flow("bbr", rtt_ms=50)))),
        (["bbr", "cubic", "--rtt", "10"], Scenario(flows=(Flow("bbr", rtt_ms=10), Flow("cubic", rtt_ms=10)))),
        (
            ["bbr", "bbr", "--buffer", "2.5", "--duration", "4", "queue=codel", "loss=1e-3"],
            Scenario(buffer_bdp=2.5, duration_s=4, queue="codel", loss=1e-3, flows=(Flow("bbr"), Flow("bbr"))),
        ),
        (
            ["cubic", "vegas", "buffer_packets=50", "ecn=classic", "flows.1.start_s=5", "flows.0.rtt_ms=20"],
            Scenario(
                buffer_packets=50,
                flows=(Flow("cubic", rtt_ms=20, ecn="classic"), Flow("vegas", start_s=5, ecn="classic")),
            ),
        ),
        (["vegas", "parameters.alpha_packets=3"], Scenario(flows=(Flow("vegas", parameters={"alpha_packets": 3}),))),
        (
            ["bbr", "rate_schedule=[[1,5],[2,20]]", "rtt_schedule=[[1,80]]"],
            Scenario(rate_schedule=((1, 5), (2, 20)), flows=(Flow("bbr", rtt_schedule=((1, 80),)),)),
        ),
        ([str(REFERENCE)], Scenario(flows=(Flow("policy", policy=str(REFERENCE.absolute())),))),
    ],
)
def test_a_scenario_of_words_and_fields(words: list[str], expected: Scenario) -> None:
    assert read(*words)[0] == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bbrr"], "did you mean 'bbr'"),
        (["bbr", "quee=3"], r"unknown field 'quee' \(did you mean 'queue'\?\)"),
        (["bbr", "rate_mbps=fast"], "rate_mbps must be a finite number"),
        (["bbr", "--rate", "5", "rate_mbps=6"], "give one of --rate and rate_mbps"),
        (["bbr", "cubic", "vegas", "--rtt", "10,50"], "one for each of the 3 flows, got 2"),
        (["bbr", "flows.3.start_s=1"], "unknown flow '3'; known: 0"),
        (["bbr", "flows.0=5"], "give a field of a flow as flows.0.FIELD=VALUE, got 5"),
        (["bbr", "flows=5"], "give flows as words"),
        (["bbr", "queue=[1"], r"queue=\[1"),
        (["queue=codel"], "give at least one algorithm"),
        (["json:loads"], "a Python callable"),
        (
            ["vegas", "alpha_packets=3"],
            r"give parameters\.alpha_packets=3, or flows\.0\.parameters\.alpha_packets=3 for",
        ),
        (["bbr", "vegas", "alpha_packets=3"], r"of vegas: give flows\.1\.parameters\.alpha_packets=3$"),
        (["vegas", "--rtt", "10,50", "flows.1.alpha_packets=3"], r"give flows\.1\.parameters\.alpha_packets=3$"),
        (["bbr", "vegas", "flows.0.alpha_packets=3"], "unknown field 'alpha_packets'"),
    ],
)
def test_a_mistake_is_named(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(*words)


def test_a_parameter_of_a_c_file_that_is_given_as_a_field_is_named() -> None:
    Path("mine.c").write_text((EXAMPLES / "five.c").read_text())
    with pytest.raises(ValueError, match=r"target is a parameter of mine\.c: give parameters\.target=4, or flows\.0"):
        read("mine.c", "target=4")
    with pytest.raises(ValueError, match="unknown field 'goal'"):
        read("mine.c", "goal=4")


def test_it_gives_what_the_same_scenario_gives_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    found = simulated(capsys, "bbr", "cubic", "--rtt", "10,50", *SHORT, "--seed", "7", "--after", "1")
    scenario = Scenario(duration_s=3, flows=(Flow("bbr", rtt_ms=10), Flow("cubic", rtt_ms=50)))
    summary = simulate(scenario, seed=7).summary(after_s=1)
    assert [flow["throughput_mbps"] for flow in found["flows"]] == [flow.throughput_mbps for flow in summary.flows]
    assert found["link"]["queue_p95_ms"] == summary.link.queue_p95_ms
    assert Scenario.from_dict(found["scenario"]) == scenario


def test_the_table_fits_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = Path("a-folder-whose-name-is-longer-than-the-column-of-names")
    long.symlink_to(REFERENCE)
    assert main(["simulate", str(long), "bbr-acd-ns3-published", "queue=dualpi2", "loss=0.001", *SHORT]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert sum("bbr-acd-ns3-published" in line for line in lines) == 1
    assert "Jain" in lines[-1]
    assert main(["simulate", "bbr", *SHORT]) == 0
    text = capsys.readouterr().out
    assert "Jain" not in text
    assert "active" not in text
    # Where flows come or go, throughputs are of less time than the link's numbers.
    assert main(["simulate", str(long), "bbr-acd-ns3-published", "flows.1.start_s=1", *SHORT]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert next(line for line in lines if line.startswith("bbr-acd")).split()[-1] == "2"


def test_it_says_what_the_table_does_not_show_of_flows() -> None:
    plain, moving = Flow("bbr"), Flow("bbr", rtt_schedule=((0, 30), (1, 40)), jitter_ms=3)
    assert flow_texts(Scenario(flows=(plain, plain))) == []
    assert flow_texts(Scenario(flows=(moving, moving))) == [f"each flow: {moving.describe()}"]
    assert flow_texts(Scenario(flows=(plain, moving))) == [f"flow 1: {moving.describe()}"]
    some = Scenario(flows=(moving, plain, moving, Flow("bbr", start_s=2)))
    assert flow_texts(some) == [f"flows 0, 2: {moving.describe()}", "flow 3: 50 ms from 2 s"]
    many = flow_texts(Scenario(flows=tuple(Flow("bbr", start_s=start) for start in range(10))))
    assert many[0] == "flow 1: 50 ms from 1 s"
    assert many[-1] == "and 3 more flows"
    assert flow_texts(Scenario(flows=(plain, *[moving] * 9))) == [f"9 flows: {moving.describe()}"]


def test_a_base_rtt_that_moves_is_a_range_in_the_table() -> None:
    flows = (Flow("bbr", rtt_schedule=((0, 30), (1, 40))), Flow("bbr", rtt_schedule=((1, 60),)), Flow("bbr"))
    scenario = Scenario(duration_s=2, flows=flows)
    lines = table(scenario, simulate(scenario).summary(), ["a", "b", "c"])
    assert [line.split()[1] for line in lines[2:]] == ["30-40", "50-60", "50"]


def test_marks_have_a_column_where_a_flow_has_ecn() -> None:
    flows = (Flow("prague", ecn="l4s", rtt_ms=20), Flow("cubic", rtt_ms=20, start_s=0.5))
    scenario = Scenario(rate_mbps=20, queue="dualpi2", duration_s=3, flows=flows)
    summary = simulate(scenario).summary()
    lines = table(scenario, summary, ["prague", "a-name-that-is-longer-than-its-column"])
    place = lines[0].split().index("marked") - len(lines[0].split())
    # Headings "base RTT" and "mean RTT" are two words, but no cell is.
    assert float(lines[2].split()[place]) == pytest.approx(100 * summary.flows[0].mark_rate, rel=0.01)
    assert lines[3].split()[place] == "-"
    assert max(map(len, lines)) <= 80
    assert "marked" not in table(Scenario(), simulate(Scenario(duration_s=1)).summary(), ["bbr"])[0]


def test_links_beside_the_bottleneck_have_their_own_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    scenario = Scenario(rate_mbps=4, second_rate_mbps=2, duration_s=5, flows=(Flow("cubic"),))
    trace = simulate(scenario)
    second = further_links(trace, after_s=2)["second"]
    queue_ms = trace.rows["link_second_queue_mean_ms"][20:]
    assert second["queue_mean_ms"] == pytest.approx(queue_ms.mean())
    assert second["queue_mean_ms"] > 10 * trace.summary(after_s=2).link.queue_mean_ms
    assert second["utilisation"] > 0.9
    assert "link_second_queue_mean_ms" in plot_columns(scenario)
    assert further_links(simulate(Scenario(duration_s=1)), after_s=0) == {}
    words = ("cubic", "--rate", "4", "second_rate_mbps=2", "reverse_rate_mbps=1", "--duration", "5")
    assert list(simulated(capsys, *words)["further_links"]) == ["second", "reverse"]
    assert main(["simulate", *words, "--plot", "links.png"]) == 0
    starts = [line.partition(" link:")[0] for line in capsys.readouterr().out.splitlines()]
    assert {"second", "reverse"} <= {*starts}


def test_it_explains_a_queues_time_where_the_rate_changes() -> None:
    falls = Scenario(duration_s=2, rate_schedule=((1, 0.1),))
    summary = simulate(falls).summary()
    assert len(notes(falls, summary)) == 1
    assert notes(Scenario(duration_s=2), summary) == []
    assert f"{summary.link.queue_p95_ms:.0f} ms" in link_text(summary)


def test_it_draws_and_saves(capsys: pytest.CaptureFixture[str]) -> None:
    files = ("--plot", "duel.png", "--save", "runs/simulate/duel.parquet")
    assert main(["simulate", "bbr", "cubic", *SHORT, *files]) == 0
    assert Path("duel.png").read_bytes().startswith(b"\x89PNG")
    saved = load_trace(Path("runs/simulate/duel.parquet"))
    assert saved.hash == simulate(saved.scenario).hash
    (path,) = saved_runs(Path())  # of `bbrgym lab`
    (run,) = name_runs([path], Path())
    assert (run.key, run.group) == ("simulate/duel.parquet", "simulate")
    assert main(["simulate", "bbr", "cubic", *SHORT, "--save", "duel.json"]) == 0
    assert json.loads(Path("duel.json").read_text()) == plain_run(path)
    capsys.readouterr()
    for option, name, good in (("--plot", "duel.jpg", ".png, .svg, .pdf"), ("--save", "duel.csv", ".parquet, .json")):
        assert main(["simulate", "bbr", option, name]) == 1
        assert f"{option}: the file must end with {good}, got '{name}'" in capsys.readouterr().err


def test_a_trace_in_words() -> None:
    flows = (Flow("bbr", rtt_ms=10), Flow("cubic", start_s=1.49), *[Flow("vegas")] * 9)
    trace = simulate(Scenario(rate_mbps=20, duration_s=1.5, flows=flows), seed=3)
    text = repr(trace)
    for part in ("native, seed 3, 1.5 s in 15 steps of 100 ms", "20 Mbit/s", "and 3 more flows"):
        assert part in text
        assert part in trace._repr_html_()
    lines = [line.split() for line in text.splitlines()]
    throughput = trace.summary().flows[0].throughput_mbps
    assert ["0", "bbr", "10", "ms", f"{throughput:.3g}", "Mbit/s"] == lines[3][:6]
    assert lines[4] == ["1", "cubic", "50", "ms", "0", "Mbit/s", "-"]  # nothing came back
    assert len(lines) == 12
    assert "<td>cubic</td>" in trace._repr_html_()
    assert "flaw: late" in repr(Trace(**{**vars(trace), "flaw": "late"}))


def test_what_a_file_prints_is_not_in_the_json() -> None:
    body = 'if (*(double *)state == 20000 && write(1, "hello", 5) < 0) abort(); *(double *)state = 19999;'
    path = write_hostile(Path(), body)
    done = subprocess.run([*COMMAND, "simulate", path, *SHORT, "--json"], capture_output=True, check=True)
    assert json.loads(done.stdout)["flows"][0]["name"] == "hostile"
    assert b"hello" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_file_that_never_returns_can_be_interrupted(number: signal.Signals) -> None:
    loops = 'close(open("began", O_CREAT | O_WRONLY, 0600)); for (;;) (void)*(volatile int *)state;'
    path = write_hostile(Path(), loops)
    process = subprocess.Popen([*COMMAND, "simulate", path])
    try:
        wait_for(lambda: Path("began").exists())
        process.send_signal(number)
        assert process.wait(60) == -number
    finally:
        process.kill()
        process.wait()
