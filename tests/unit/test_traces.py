"""A folder of trace files as a benchmark, what public sets there are, and the synthetic set."""

import logging
import math
import re
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bbrgym.benchmark.plan import Benchmark
from bbrgym.benchmark.trace_sets import SYNTHETIC, statistics_of, write_synthetic
from bbrgym.benchmark.traces import rates_of, read_folder
from bbrgym.cli import main

TEMPLATE = {"rate_mbps": 20, "buffer_bdp": 4, "duration_s": 4, "flows": [{"rtt_ms": 50}]}
FILES = {
    "cell/a.mahimahi": "1\n2\n3\n4\n",
    "rates.csv": "time_s,throughput_mbps\n0,4\n2,8\n",
    "ping.csv": "time_ms,rtt_ms\n0,40\n2000,60\n",
    "delay_1.txt": "24\n18\n",
    "bad.txt": "1\nx\n",
    "README": "hello\n",
    "empty": "",
    "image.png": "\x89PNG\0\1\2",
    ".hidden": "1\n",
    "traces.yaml": '"delay_*.txt": {rtt_trace: {step_ms: 10, one_way: true}}\n',
}


def folder(tmp_path: Path, *names: str) -> Path:
    for name in names or FILES:
        path = tmp_path / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FILES[name], encoding="latin-1")
    return tmp_path / "folder"


def test_every_file_is_a_trace_or_has_a_reason(tmp_path: Path) -> None:
    files = {file.name: file for file in read_folder(folder(tmp_path), TEMPLATE)}
    assert {name: file.kind for name, file in files.items() if file.kind} == {
        "cell/a.mahimahi": "rate_trace",
        "rates.csv": "rate_trace",
        "ping.csv": "rtt_trace",
        "delay_1.txt": "rtt_trace",
    }
    assert files["bad.txt"].reason == "line 2: a line must be an integer of ms in [0, 1e+12], got 'x'"
    assert all(files[name].reason for name in ("README", "empty", "image.png"))
    assert len(files) == 8


def test_a_trace_sets_the_mean_of_its_scenario(tmp_path: Path) -> None:
    found = {file.name: file.scenario for file in read_folder(folder(tmp_path), TEMPLATE)}
    rates, ping, delay = found["rates.csv"], found["ping.csv"], found["delay_1.txt"]
    assert rates is not None
    assert (rates.rate_mbps, rates.rate_schedule) == (6.0, ((0.0, 4.0), (2.0, 8.0)))
    assert ping is not None
    assert (ping.rate_mbps, ping.flows[0].rtt_ms, ping.flows[0].rtt_schedule) == (20, 50.0, ((0.0, 40.0), (2.0, 60.0)))
    assert delay is not None
    assert delay.flows[0].rtt_schedule[:2] == ((0.0, 48.0), (0.01, 36.0))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rtt_ms=st.floats(0.001, 10_000), rate_mbps=st.floats(0.01, 10_000))
def test_a_constant_trace_sets_exactly_its_value(rtt_ms: float, rate_mbps: float, tmp_path: Path) -> None:
    (tmp_path / "rtt.csv").write_text(f"time_s,rtt_ms\n0,{rtt_ms!r}\n")
    (tmp_path / "rate.csv").write_text(f"time_s,rate_mbps\n0,{rate_mbps!r}\n")
    rate, rtt = read_folder(tmp_path, TEMPLATE)
    assert rate.scenario is not None
    assert (rate.scenario.rate_mbps, rate.scenario.rate_schedule) == (rate_mbps, ((0.0, rate_mbps),))
    assert rtt.scenario is not None
    assert (rtt.scenario.flows[0].rtt_ms, rtt.scenario.flows[0].rtt_schedule) == (rtt_ms, ((0.0, rtt_ms),))


def test_short_rtts_are_taken_and_set_the_bdp(tmp_path: Path) -> None:
    for name, rtt_ms in (("a.csv", 0.04), ("b.csv", 0.14)):
        (tmp_path / name).write_text(f"time_s,rtt_ms\n0,{rtt_ms}\n2,{rtt_ms * 2}\n")
    bdps = [file.scenario.bdp_packets for file in read_folder(tmp_path, TEMPLATE) if file.scenario is not None]
    assert bdps == pytest.approx([20e6 * 60e-6 / 8000, 20e6 * 210e-6 / 8000], rel=1e-12)


def test_a_trace_of_short_steps_sets_the_mean_of_all_of_them(tmp_path: Path) -> None:
    # 100 Mbit/s in one of ten steps of 10 ms, 1 in the others.
    rates = "".join(f"{place / 100:.2f},{100 if place % 10 == 0 else 1}\n" for place in range(200))
    (tmp_path / "short.csv").write_text("time_s,rate_mbps\n" + rates)
    (file,) = read_folder(tmp_path, {"duration_s": 2})
    assert file.scenario is not None
    assert file.scenario.rate_mbps == pytest.approx(10.9)
    assert rates_of(file.scenario, "rate_trace") == pytest.approx(10.9)


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [
        ("time_s,rate_mbps\n0,5\n", 20),
        ("time_s,rate_mbps\n0,0.14\n", 20),
        ("time_s,rate_mbps\n0,5\n19,6\n", 20),  # all but the last second are alike
        ("time_s,rtt_ms\n0,0.04\n", 20),
        ("time_s,rate_mbps\n0,5\n", 1),
        ("time_s,rate_mbps\n0,5\n", 0.2),
    ],
)
def test_a_constant_trace_has_no_correlation_and_no_warning(text: str, duration_s: float, tmp_path: Path) -> None:
    (tmp_path / "constant.csv").write_text(text)
    (file,) = read_folder(tmp_path, {"duration_s": duration_s})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert math.isnan(statistics_of(file).memory)


def test_the_command_prints_no_nan_and_no_zero_for_what_is_small(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lan.csv").write_text("time_s,rtt_ms\n0,0.04\n")
    assert main(["traces", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "nan" not in printed
    assert "0.04 ms" in printed


def test_two_columns_are_named_and_the_folder_says_which(tmp_path: Path) -> None:
    path = tmp_path / "5g.csv"
    path.write_text("Timestamp,DL_bitrate,UL_bitrate\n2019.12.16_13.40.04,5000,100\n2019.12.16_13.40.05,6000,100\n")
    (file,) = read_folder(tmp_path, TEMPLATE)
    assert "DL_bitrate and UL_bitrate" in file.reason
    assert "rate_trace.column" in file.reason
    (tmp_path / "traces.yaml").write_text('"*.csv": {rate_trace: {column: DL_bitrate, unit: kbit/s}}\n')
    (file,) = read_folder(tmp_path, TEMPLATE)
    assert file.scenario is not None
    assert file.scenario.rate_schedule == ((0.0, 5.0), (1.0, 6.0))


@pytest.mark.parametrize(("text", "kind"), [("time_s,rate_mbps", "rate"), ("time_s,rtt_ms", "RTT")])
def test_a_file_that_begins_later_begins_with_its_first_sample(text: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "late.csv").write_text(f"{text}\n30,40\n50,7\n")
    (file,) = read_folder(tmp_path, {"duration_s": 40})
    assert file.scenario is not None
    schedule = file.scenario.rate_schedule if kind == "rate" else file.scenario.flows[0].rtt_schedule
    assert schedule == ((0.0, 40.0), (20.0, 7.0))
    assert (file.scenario.rate_mbps if kind == "rate" else file.scenario.flows[0].rtt_ms) == 23.5


def test_a_benchmark_leaves_out_bad_files_and_names_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    traces = {"folder": str(folder(tmp_path)), "scenario": TEMPLATE}
    with caplog.at_level(logging.WARNING):
        benchmark = Benchmark.from_dict({"name": "traces", "traces": traces, "competitors": ["bbr"]})
        Benchmark.from_dict({"name": "traces", "traces": traces, "competitors": ["bbr"]})
    assert [*benchmark.scenarios] == ["cell/a.mahimahi", "delay_1.txt", "ping.csv", "rates.csv"]
    assert sum("bad.txt is left out: line 2: " in text for text in caplog.messages) <= 1
    assert Benchmark.from_dict(benchmark.to_dict()) == benchmark


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("bad.txt",), r"no file in .* can be read as a trace\n  bad.txt: line 2: "),
        ((), r"benchmark\.traces\.folder must be a folder of trace files: folder=PATH"),
    ],
)
def test_a_folder_without_traces_is_refused(tmp_path: Path, names: tuple[str, ...], message: str) -> None:
    where = str(folder(tmp_path, *names)) if names else None
    with pytest.raises(ValueError, match=message):
        Benchmark.from_dict({"traces": {"folder": where, "scenario": TEMPLATE}})


def test_bad_options_of_a_folder_are_refused(tmp_path: Path) -> None:
    where = folder(tmp_path, "rates.csv")
    (where / "traces.yaml").write_text('"*": {rate: {}}\n')
    with pytest.raises(ValueError, match=r"traces\.yaml: \*: unknown key 'rate'; known: rate_trace, rtt_trace"):
        read_folder(where, TEMPLATE)
    with pytest.raises(ValueError, match="there is no folder"):
        read_folder(tmp_path / "none", TEMPLATE)


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("synthetic")
    write_synthetic(where, 1)
    return where


def test_the_synthetic_set_has_the_statistics_that_it_states(synthetic: Path) -> None:
    found = {file.name: statistics_of(file) for file in read_folder(synthetic, {"duration_s": 300})}
    assert found.keys() == {*SYNTHETIC, "leo.csv"}
    for name, (wanted, _) in SYNTHETIC.items():
        assert found[name].mean_mbps == pytest.approx(wanted.mean_mbps, rel=0.05)
        assert found[name].variation == pytest.approx(wanted.variation, rel=0.08)
        assert found[name].outage == pytest.approx(wanted.outage, abs=0.02)
        assert found[name].memory == pytest.approx(wanted.memory, abs=0.1)


def test_the_synthetic_set_follows_from_its_seed(synthetic: Path, tmp_path: Path) -> None:
    for seed, is_equal in ((1, True), (2, False)):
        write_synthetic(tmp_path / str(seed), seed)
        for path in synthetic.iterdir():
            assert ((tmp_path / str(seed) / path.name).read_bytes() == path.read_bytes()) is is_equal


def test_the_synthetic_set_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "subway.csv").write_text("mine\n")
    assert main(["traces", "--synthetic", str(tmp_path)]) == 1
    assert "subway.csv already" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("subway.csv", "mine\n")]
    assert main(["traces", "--synthetic", str(tmp_path / "subway.csv")]) == 1
    assert "subway.csv' cannot be written: " in capsys.readouterr().err


def test_the_command_lists_the_public_sets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["traces"]) == 0
    sets = capsys.readouterr().out.strip().split("\n\n")
    assert all(re.fullmatch(r".+\n  where:   .+\n  format:  .+\n  licence: .+\n  cite:    .+", one) for one in sets)


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_list_of_a_folder_fits_at_any_width(
    width: int, synthetic: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["traces", str(synthetic)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    assert any("lte-fading.mahimahi" in line for line in lines)


def test_the_command_lists_a_folder(tmp_path: Path, synthetic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["traces", str(folder(tmp_path))]) == 0
    printed = capsys.readouterr().out
    assert "Mbit/s" in printed
    assert "left out: line 2" in printed
    assert main(["traces", "--synthetic"]) == 1
    assert "--synthetic needs a folder" in capsys.readouterr().err
