"""Controllers in one C file: `Flow("file", file=…)`."""

import contextlib
import math
import os
import shlex
import subprocess
import time
from pathlib import Path

import pytest

import bbrgym
from bbrgym import Flow, Scenario
from bbrgym.baselines import controller_file
from bbrgym.baselines.controller_file import HEADER, compile_controller
from bbrgym.benchmark.plan import Benchmark
from bbrgym.cli import main
from bbrgym.envs.engine import EngineError, EngineUnavailableError, make_engine
from bbrgym.envs.native.engine import NativeBatch

EXAMPLES = Path(__file__).parents[2] / "examples"

CONSTANT = """
#include "bbrgym_controller.h"
#include <math.h>
static void create(void *state, const struct bbrgym_connection *connection) { (void)state; (void)connection; }
static void on_ack(void *state, const struct bbrgym_ack *ack) { *(int64_t *)state = ack->now_ns; }
static void decision(const void *state, struct bbrgym_decision *chosen) {
  chosen->window = *(const int64_t *)state > 1000000000 ? %s : 20000;
  chosen->pacing_rate = *(const int64_t *)state > 1000000000 ? %s : 0;
}
const struct bbrgym_controller bbrgym_controller = {%s, %s, 0, create, on_ack, 0, decision, 0};
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(folder: Path, window: str = "30000", rate: str = "0", version: str = "1", state: str = "8") -> str:
    path = folder / "mine.c"
    path.write_text(CONSTANT % (window, rate, version, state))
    return str(path)


def link(file: str, **parameters: float) -> Scenario:
    flow = Flow("file", rtt_ms=20, file=file, parameters=parameters)
    return Scenario(rate_mbps=12, duration_s=3, flows=(flow,))


def test_a_constant_window_is_delivered_once_per_round_trip(tmp_path: Path):
    flow = bbrgym.simulate(link(write(tmp_path, window="10000"))).summary(after_s=1.5).flows[0]
    assert flow.throughput_mbps == pytest.approx(10_000 * 8e-6 / 0.0207, rel=0.05)  # 0.7 ms: a packet's transmission


def test_a_pacing_rate_is_kept(tmp_path: Path):
    flow = bbrgym.simulate(link(write(tmp_path, window="1e15", rate="5e6"))).summary(after_s=1.5).flows[0]
    assert flow.throughput_mbps == pytest.approx(5.0, rel=0.01)


@pytest.mark.parametrize(
    ("window", "rate", "text"),
    [
        ("NAN", "0", "chose window nan at 1.0"),
        ("1e300", "0", "chose window 1e[+]300 at 1.0"),
        ("1000", "NAN", "chose pacing_rate nan at 1.0"),
    ],
)
def test_a_bad_decision_is_an_error_that_names_controller_time_and_value(
    tmp_path: Path, window: str, rate: str, text: str
):
    with pytest.raises(EngineError, match=rf"flows\[0\]: controller 'mine' {text}.* s: it must be in \[0, 1e[+]15\]"):
        bbrgym.simulate(link(write(tmp_path, window, rate)))


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ("int shared[100];", "shared"),
        ("int next(void) { static int count; return ++count; }", "count"),
        ("int next(void) { static __thread int count = 3; return ++count; }", "count"),
        ("static double table[] = {1, 2}; double next(void) { return table[0]++; }", "table"),
        ("static const double table[] = {1, 2}; double next(int i) { return table[i]; }", None),
        ('static const char *const names[] = {"a", "b"}; const char *next(int i) { return names[i]; }', None),
    ],
)
def test_what_all_flows_would_share_is_refused_by_its_name(tmp_path: Path, more: str, kept: str | None):
    path = Path(write(tmp_path))
    path.write_text(path.read_text() + more)
    if kept is None:
        assert compile_controller(path).is_file()
    else:
        with pytest.raises(ValueError, match=f"variables that all flows share: {kept}[.]"):
            compile_controller(path)


def test_a_bad_decision_fails_its_own_scenario_of_a_batch(tmp_path: Path):
    good, bad = link(str(EXAMPLES / "aimd.c")), link(write(tmp_path, window="NAN"))
    batch = NativeBatch(3, 1, 2)
    batch.begin_resets(range(3), [good, bad, good], [1, 1, 1], [3000.0] * 3)
    batch.begin_steps()
    assert {index: "NAN" in str(error).upper() for index, error in batch.finish().items()} == {1: True}
    assert batch.flows[0, 0] == pytest.approx(batch.flows[2, 0], nan_ok=True)


def test_a_window_of_nothing_sends_one_packet_per_round_trip(tmp_path: Path):
    flow = bbrgym.simulate(link(write(tmp_path, window="0"))).summary(after_s=1.5).flows[0]
    # A lone packet is acknowledged after 40 ms (RFC 1122, section 4.2.3.2).
    assert flow.throughput_mbps == pytest.approx(1000 * 8e-6 / 0.0607, rel=0.02)


def test_the_state_of_a_flow_is_zeroed(tmp_path: Path):
    # What is not zero would be what flows have left in memory before.
    path = tmp_path / "mine.c"
    path.write_text("""
        #include "bbrgym_controller.h"
        struct state { unsigned char bytes[4000]; double window; };
        static void create(void *memory, const struct bbrgym_connection *c) {
          struct state *s = memory;
          s->window = (double)c->initial_window;
          for (int i = 0; i < 4000; i++) if (s->bytes[i] != 0) s->window = -1;
          for (int i = 0; i < 4000; i++) s->bytes[i] = 255;
        }
        static void on_ack(void *memory, const struct bbrgym_ack *ack) { (void)memory; (void)ack; }
        static void decision(const void *memory, struct bbrgym_decision *chosen) {
          chosen->window = ((const struct state *)memory)->window;
        }
        const struct bbrgym_controller bbrgym_controller = {
          1, sizeof(struct state), 0, create, on_ack, 0, decision, 0};
    """)
    for seed in range(1, 6):
        bbrgym.simulate(link(str(path)), seed=seed)


def test_who_takes_a_reduction_back_after_reordering_still_learns_of_losses():
    """Otherwise it takes back the answer to each loss, and sends many times what the link carries."""
    flow = Flow("file", rtt_ms=2.25, file=str(Path(__file__).parents[1] / "defects" / "loss.c"))
    path = Scenario(rate_mbps=88, buffer_bdp=7.69, duration_s=2, reordering=0.00286, reordering_ms=1.62, flows=(flow,))
    assert bbrgym.simulate(path).summary().flows[0].retransmission_rate < 0.5


def test_the_same_file_in_many_flows_and_episodes_gives_equal_rows():
    flows = tuple(Flow("file", rtt_ms=rtt, jitter_ms=0.5, file=str(EXAMPLES / "vegas.c")) for rtt in (10, 40))
    scenario = Scenario(rate_mbps=20, duration_s=4, flows=flows)
    first, second = (bbrgym.simulate(scenario, seed=3) for _ in range(2))
    assert first.hash == second.hash
    assert bbrgym.simulate(scenario, seed=4).hash != first.hash


@pytest.mark.parametrize("example", [path.stem for path in EXAMPLES.glob("*.c")])
def test_an_example_fills_the_link_fairly(example: str):
    flows = (Flow("file", rtt_ms=40, jitter_ms=0.5, file=str(EXAMPLES / f"{example}.c")),) * 2
    found = bbrgym.simulate(Scenario(rate_mbps=12, duration_s=30, flows=flows)).summary(after_s=10).link
    assert found.utilisation > 0.95
    assert found.jain > 0.8
    assert found.queue_mean_ms < (40 if example == "aimd" else 10)


def test_parameters_are_the_files_own():
    def queue_ms(alpha: float) -> float:
        flow = Flow("file", rtt_ms=40, file=str(EXAMPLES / "vegas.c"), parameters={"alpha": alpha, "beta": alpha + 2})
        return (
            bbrgym.simulate(Scenario(rate_mbps=12, duration_s=10, flows=(flow,))).summary(after_s=5).link.queue_mean_ms
        )

    assert queue_ms(20) > queue_ms(2) + 5
    vegas = str(EXAMPLES / "vegas.c")
    with pytest.raises(ValueError, match="unknown parameter 'gamma' of algorithm 'vegas'; known: alpha, beta"):
        bbrgym.simulate(link(vegas, gamma=1))
    with pytest.raises(ValueError, match=r"parameter alpha of algorithm 'vegas' must be in \[0.1, 1000\], got -1"):
        bbrgym.simulate(link(vegas, alpha=-1))
    with pytest.raises(ValueError, match=r"parameter alpha of algorithm 'vegas' must be in \[0.1, 1000\], got nan"):
        bbrgym.simulate(link(vegas, alpha=math.nan))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"version": "2"}, "controller 'mine' has version 2 of the header, must be 1"),
        ({"state": "2000000"}, "has a state of 2000000 bytes, must be at most 1048576"),
    ],
)
def test_what_the_header_does_not_describe_is_refused(tmp_path: Path, changes: dict[str, str], text: str):
    with pytest.raises(ValueError, match=text):
        bbrgym.simulate(link(write(tmp_path, **changes)))


def test_a_file_that_is_no_controller_is_refused(tmp_path: Path):
    path = tmp_path / "other.c"
    with pytest.raises(FileNotFoundError, match="there is no file"):
        compile_controller(path)
    path.write_text("int main(void) { return 0 }")
    with pytest.raises(ValueError, match=r"cannot be compiled:\n(.|\n)*other.c:1:.* expected"):
        compile_controller(path)
    path.write_text("int f(void) { return 0; }")
    with pytest.raises(ValueError, match="controller 'other' defines no `bbrgym_controller`"):
        bbrgym.simulate(link(str(path)))
    with pytest.raises(ValueError, match=r"must be C and end with \.c"):
        compile_controller(tmp_path / "other.py")


def test_a_file_is_compiled_once_for_each_content(tmp_path: Path):
    path = write(tmp_path)
    first = compile_controller(path)
    made = first.stat().st_mtime_ns
    assert compile_controller(path) == first
    assert first.stat().st_mtime_ns == made
    write(tmp_path, window="40000")
    assert compile_controller(path) != first


PARAMETERS = """
static const struct bbrgym_parameter own[] = {%s, {NULL, 0, 0, 0}};
"""


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ('{"alpha", 5, 0, 1}', r"describes parameter 'alpha' with a default that must be in \[0, 1\], got 5"),
        ('{"alpha", NAN, 0, 1}', r"describes parameter 'alpha' with a default that must be in \[0, 1\], got -?nan"),
        ('{"alpha", 1, NAN, 1}', r"describes parameter 'alpha' with bounds in which no value is: \[-?nan, 1\]"),
        ('{"alpha", 1, 0, NAN}', r"describes parameter 'alpha' with bounds in which no value is: \[0, -?nan\]"),
        ('{"alpha", 1, 2, 0}', r"describes parameter 'alpha' with bounds in which no value is: \[2, 0\]"),
        ('{"alpha", 1, 0, 1}, {"beta", 1, 0, 1}, {"alpha", 1, 0, 1}', "describes parameter 'alpha' twice"),
    ],
)
def test_parameters_that_make_no_sense_are_refused_by_name(tmp_path: Path, entries: str, text: str):
    path = Path(write(tmp_path))
    body = path.read_text().replace("8, 0, create", "8, own, create")
    controller = "const struct bbrgym_controller bbrgym_controller"
    path.write_text(body.replace(controller, PARAMETERS % entries + controller))
    for parameters in ({}, {"beta": 0.5}):
        with pytest.raises(ValueError, match=f"'mine' {text}"):
            bbrgym.simulate(link(str(path), **parameters))


def test_the_compiler_has_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    compiler = tmp_path / "prints-its-limits"
    compiler.write_text("#!/bin/sh\nulimit -t >&2\nulimit -v >&2\nulimit -f >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(ValueError, match=r"cannot be compiled:\n30\n2097152\n\d+$"):
        compile_controller(write(tmp_path))


def test_a_large_table_is_not_compiled(tmp_path: Path):
    path = Path(write(tmp_path))
    path.write_text(f"double table[10000000] = {{1}};\n{path.read_text()}")
    with pytest.raises(ValueError, match=r"may write 32 MiB: tables in the file are too large"):
        compile_controller(path)
    assert not list(Path(os.environ["XDG_CACHE_HOME"]).rglob("*mine.so*"))


def test_equal_files_give_equal_shared_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path)
    first = compile_controller(path).read_bytes()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert compile_controller(path).read_bytes() == first


def test_the_cache_drops_what_has_not_been_used_for_longest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def compiled(window: int) -> Path:
        return compile_controller(write(tmp_path, window=str(window)))

    old, newer = compiled(1), compiled(2)
    for age, library in ((200, old), (100, newer)):
        os.utime(library, (time.time() - age,) * 2)
    monkeypatch.setattr(controller_file, "_CACHE_BYTES", 2.5 * old.stat().st_size)
    assert compiled(1) == old  # so that it is the newest one
    newest = compiled(3)
    assert [path.is_file() for path in (old, newer, newest)] == [True, False, True]
    assert not newer.parent.exists()
    assert compiled(2) == newer
    monkeypatch.setattr(controller_file, "_CACHE_BYTES", 0)
    assert compiled(4).is_file()


@pytest.mark.parametrize("command", ["{0} cc", "{0} -O1 'cc'", "env X='1 2' cc"])
def test_cc_can_be_a_command_with_arguments(tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "with blank"
    folder.mkdir()
    wrapper = folder / "wrapper"  # as ccache is one
    wrapper.write_text('#!/bin/sh\n[ "$1" != -O1 ] || shift\nexec "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", command.format(shlex.quote(str(wrapper))))
    assert bbrgym.simulate(link(write(tmp_path))).summary().flows[0].throughput_mbps > 0
    wrapper.write_text('#!/bin/sh\nexec cc "$@"\n')
    monkeypatch.setenv("CC", str(wrapper))  # a path with a blank
    assert compile_controller(write(tmp_path, window="7")).is_file()
    for bad, text in (("no-compiler gcc", "there is no 'no-compiler'"), ("'cc", "CC must be the command of")):
        monkeypatch.setenv("CC", bad)
        with pytest.raises(ValueError, match=text):
            compile_controller(write(tmp_path, window="8"))


def test_a_flow_has_a_file_if_and_only_if_its_algorithm_says_so():
    with pytest.raises(ValueError, match="file must be a path with algorithm 'file', got None"):
        Flow("file")
    with pytest.raises(ValueError, match="only 'file' runs one"):
        Flow("bbr", file="mine.c")
    assert Scenario.from_dict(link("mine.c").to_dict()) == link("mine.c")


@pytest.mark.parametrize("name", ["native", "ns3", "linux"])
def test_every_engine_runs_files_and_reports_a_bad_decision(tmp_path: Path, name: str):
    options = {} if name == "native" else {"timeout_s": 60, "start_limit_s": 60}
    with contextlib.closing(make_engine(name, **options)) as engine:
        try:
            trace = bbrgym.simulate(link(write(tmp_path, window="10000")), engine)
        except EngineUnavailableError as error:
            pytest.skip(str(error))
        # The window moves once per round trip, which a busy machine makes longer in real time.
        most = 10_000 * 8e-6 / 0.02
        least = 0.1 if name == "linux" else 0.9 * most
        assert least < trace.summary(after_s=1.5).flows[0].throughput_mbps < 1.05 * most
        with pytest.raises(EngineError, match=r"flows\[0\]: controller 'mine' chose window nan"):
            bbrgym.simulate(link(write(tmp_path, window="NAN")), engine)
        with pytest.raises((EngineError, ValueError), match=r"unknown parameter|has no parameter"):
            engine.reset(link(write(tmp_path), speed=3.0), 1)


def test_a_benchmark_takes_a_file_as_a_competitor(tmp_path: Path):
    path = write(tmp_path)
    plain = {
        "competitors": ["cubic", {"name": "mine", "algorithm": "file", "file": path}],
        "scenarios": {"one": {"flows": [{"rtt_ms": 20}]}},
        "seeds": [1],
    }
    benchmark = Benchmark.from_dict(plain)
    assert Benchmark.from_dict(benchmark.to_dict()) == benchmark
    key = benchmark.runs()[1].key
    assert benchmark.runs()[1].scenario.flows[0].file == path
    write(tmp_path, window="40000")
    assert benchmark.runs()[1].key != key  # its content decides it


def test_the_header_is_valid_c99_and_cxx_and_a_page_long():
    assert len(HEADER.read_text().splitlines()) <= 100
    for command in (["cc", "-std=c99"], ["c++", "-std=c++20"]):
        language = "c" if command[0] == "cc" else "c++"
        subprocess.run(
            [*command, "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-x", language, HEADER], check=True
        )


def test_the_command_prints_where_the_header_is(capsys: pytest.CaptureFixture[str]):
    assert main(["header"]) == 0
    assert Path(capsys.readouterr().out.strip()).read_text() == HEADER.read_text()
