"""A folder of trace files as a benchmark, what public sets there are, and the synthetic set."""

import logging
import re
from pathlib import Path

import pytest

from bbrgym.benchmark.plan import Benchmark
from bbrgym.benchmark.trace_sets import SYNTHETIC, statistics_of, write_synthetic
from bbrgym.benchmark.traces import read_folder
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


def test_the_command_lists_the_public_sets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["traces"]) == 0
    sets = capsys.readouterr().out.strip().split("\n\n")
    assert all(re.fullmatch(r".+\n  where:   .+\n  format:  .+\n  licence: .+\n  cite:    .+", one) for one in sets)


def test_the_command_lists_a_folder(tmp_path: Path, synthetic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["traces", str(folder(tmp_path))]) == 0
    printed = capsys.readouterr().out
    assert "Mbit/s" in printed
    assert "left out: line 2" in printed
    assert main(["traces", "--synthetic"]) == 1
    assert "--synthetic needs a folder" in capsys.readouterr().err
