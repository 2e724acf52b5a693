"""Code of unknown quality in confined forks: what it does is the text of its reply, and nothing else happens."""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hostile import CONSTRUCTOR, CRASHES, HOSTILE, write_hostile
from test_processes import until_told
from waiting import wait_for

from bbrgym import Flow, Scenario
from bbrgym.baselines.controller_file import compile_controller
from bbrgym.benchmark.sandbox import ConfinedJob, Reply, Sandbox
from bbrgym.benchmark.score_measures import measure_rows, measure_sharing
from bbrgym.envs.engine import EngineError

EXAMPLES = Path(__file__).parents[2] / "examples"
CALL = "made a system call that a controller may not make"

SAYS = {
    "endless loop": "took longer than 2 s",
    "fork bomb": CALL,
    "10 GB": "crashed (SIGSEGV)",
    "reads a file": CALL,
    "writes beside": CALL,
    "kills its parent": CALL,
    "NaN": "flows[0]: controller 'hostile' chose window nan at ",
    "negative": "flows[0]: controller 'hostile' chose window -1 at ",
    "huge": "flows[0]: controller 'hostile' chose window 1e+300 at ",
    "random": None,
    "null pointer": "crashed (SIGSEGV)",
    "abort": CALL,
    "exit": "ended its process with the exit status 0",
    "closes every descriptor": "ended its process with the exit status 0",
    "writes to every descriptor": "wrote something else than its results",
}


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        with Sandbox(1) as sandbox:
            reply = run(sandbox, str(EXAMPLES / "aimd.c"))
            assert reply.error is None
            if reply.missing:
                pytest.skip(f"this system does not contain everything: {'; '.join(reply.missing)}")
            yield sandbox


def run(sandbox: Sandbox, path: str, seconds: float = 20.0) -> Reply:
    library = str(compile_controller(path))
    scenario = Scenario(rate_mbps=12, duration_s=2, flows=(Flow("file", rtt_ms=20, file=library),))
    return sandbox.run([ConfinedJob([scenario], [1], 0.25, confinement="c", library=library, seconds=seconds)])[0]


@pytest.mark.parametrize("kind", [*HOSTILE, *CRASHES])
def test_what_a_hostile_file_does_is_the_text_of_its_reply(sandbox: Sandbox, tmp_path: Path, kind: str):
    path = write_hostile(tmp_path, {**HOSTILE, **CRASHES}[kind])
    reply = run(sandbox, path, seconds=2.0 if kind == "endless loop" else 20.0)
    text = reply.error or (reply.results[0].get("error") if reply.results else None)
    assert text is None if SAYS[kind] is None else text is not None and text.startswith(SAYS[kind])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["hostile.c"]
    assert run(sandbox, str(EXAMPLES / "aimd.c")).results[0]["fair_power"] > 0.3  # the next one is not affected


@pytest.mark.parametrize(
    ("on_ack", "more", "cause"),
    [
        ("(void)ack;\n*(volatile int *)8 = 1; /* here */", "", "crashed (SIGSEGV)"),
        (
            "memset((void *)8, 1, 9999); /* here */\n*(double *)state = 20000;",
            "void *memset(void *, int, size_t);",
            "crashed (SIGSEGV)",
        ),
        (
            "*(double *)state = deep(1);",
            "int deep(int n) {\nreturn n ? deep(n + 1) + deep(n) : n; /* here */\n}",
            "crashed (SIGSEGV)",
        ),
        ("__builtin_trap(); /* here */", "", "crashed (SIGILL)"),
        ("for (volatile int n = 0;; ++n)\nn = 0; /* here */", "", "took longer than 1 s"),
    ],
    ids=["null pointer", "in the C library", "recursion", "trap", "endless loop"],
)
def test_a_fault_names_the_line_of_the_file(sandbox: Sandbox, tmp_path: Path, on_ack: str, more: str, cause: str):
    if shutil.which("addr2line") is None:
        pytest.skip("lines need addr2line")
    path = tmp_path / "hostile.c"
    text = Path(write_hostile(tmp_path, on_ack)).read_text()
    path.write_text(text.replace("static void create", f"{more}\nstatic void create", 1))
    lines = path.read_text().splitlines()
    here = next(number for number, line in enumerate(lines, start=1) if "/* here */" in line)
    error = run(sandbox, str(path), seconds=1.0).error
    assert error is not None
    assert error.startswith(cause)
    found = re.search(r", in line (\d+)$", error)
    assert found is not None
    assert int(found[1]) in (here, here - 1)  # a statement of two lines has either


def test_what_a_file_writes_in_place_of_a_fault_is_no_result(sandbox: Sandbox, tmp_path: Path):
    for fault in ('{\\"signal\\": 99, \\"place\\": 1}', '{\\"signal\\": 11, \\"place\\": -5}', '{\\"signal\\": []}'):
        size = len(fault.replace("\\", ""))
        body = f'for (int i = 3; i < 20; ++i) if (write(i, "{fault}", {size}) < 0) continue; _exit(0);'
        reply = run(sandbox, write_hostile(tmp_path, body))
        assert reply.results == []
        assert reply.error is not None
        assert re.match(r"wrote something else|crashed \(SIGSEGV\)$", reply.error)


def test_code_that_runs_when_the_file_is_loaded_is_confined_too(sandbox: Sandbox, tmp_path: Path):
    reply = run(sandbox, write_hostile(tmp_path, "", CONSTRUCTOR))
    assert reply.error is not None
    assert reply.error.startswith(CALL)
    assert not (tmp_path / "beside.txt").exists()


def test_a_confined_run_measures_the_same(sandbox: Sandbox):
    library = str(compile_controller(EXAMPLES / "vegas.c"))
    flows = (Flow("file", rtt_ms=20, jitter_ms=0.5, file=library), Flow("cubic", rtt_ms=20, jitter_ms=0.5))
    scenario = Scenario(rate_mbps=12, duration_s=4, flows=flows)
    jobs = [
        ConfinedJob([scenario], [3], 0.25, measure, confinement="c", library=library) for measure in ("sharing", "rows")
    ]
    sharing, rows = sandbox.run(jobs)
    assert sharing.results == measure_sharing([scenario], [3], 0.25)
    found, (here,) = rows.results[0], measure_rows([scenario], [3], 0.25)
    assert found["trace_hash"] == here["trace_hash"]
    (measured,) = measure_sharing([scenario], [3], 0.25)
    assert measured["throughputs_mbps"] == pytest.approx([row["throughput_mbps"] for row in here["rows"]])
    # Longer rows, other weights.
    assert measured["rtts_ms"] == pytest.approx([row["rtt_mean_ms"] for row in here["rows"]], rel=0.01)


QUICK = ConfinedJob([Scenario(duration_s=1, flows=(Flow("bbr"),))], [1], 0.25)


def test_a_worker_that_dies_while_it_is_idle_costs_no_job(sandbox: Sandbox):
    with Sandbox(1) as own:
        assert own.run([QUICK])[0].error is None
        process = own._idle[0].process
        os.kill(process.pid, signal.SIGKILL)
        wait_for(process.is_over)
        assert own.run([QUICK])[0].error is None


def test_a_worker_that_is_gone_is_an_error_of_the_call_that_needs_it_alone(sandbox: Sandbox, tmp_path: Path):
    """The other thread's task runs in the process that has answered the first job of the call that fails."""
    with Sandbox(2) as own, ThreadPoolExecutor(1) as thread:
        assert [reply.error for reply in own.run([QUICK] * 3)] == [None] * 3
        failing = thread.submit(own.run, [QUICK, endless(tmp_path)])
        wait_for(lambda: len(own._busy) == 1 and forks_of(own._busy[0].process.pid))
        (busy,) = own._busy
        other = own.submit(until_told, tmp_path)
        wait_for((tmp_path / "begun").exists)
        os.kill(busy.process.pid, signal.SIGKILL)
        error = failing.exception()
        (tmp_path / "end").touch()
        assert other.result() != busy.process.pid
        assert isinstance(error, EngineError)
        assert str(error) == "a process of the sandbox was lost: its process was killed by SIGKILL"
        assert own.run([QUICK])[0].error is None  # another one has taken its place


def forks_of(process: int) -> list[str]:
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


def endless(folder: Path) -> ConfinedJob:
    library = str(compile_controller(write_hostile(folder, HOSTILE["endless loop"])))
    scenario = Scenario(duration_s=1, flows=(Flow("file", file=library),))
    return ConfinedJob([scenario], [1], 0.25, confinement="c", library=library, seconds=3600)


ENDLESS = """
import json, os, signal, sys
from bbrgym.benchmark.sandbox import ConfinedJob, Sandbox
from bbrgym.envs.scenario import Scenario
given = json.loads(sys.argv[1])
job = ConfinedJob(**given | {"scenarios": [Scenario.from_dict(plain) for plain in given["scenarios"]]})
with Sandbox(1) as sandbox:
    sandbox.run([ConfinedJob(job.scenarios[:0], [], 0.25, measure="rows")])
    print(sandbox._idle[0].process.pid, flush=True)
    try:
        sandbox.run([job])
    except KeyboardInterrupt:
        (reply,) = sandbox.run([ConfinedJob(job.scenarios[:0], [], 0.25, measure="rows")])
        print("interrupted", reply.error, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_and_the_end_of_its_process_end_an_endless_job(tmp_path: Path, number: signal.Signals):
    plain = {name: value for name, value in endless(tmp_path).to_dict().items() if name != "folder"}
    command = [sys.executable, "-c", ENDLESS, json.dumps(plain)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        while not (forks := forks_of(worker)):
            time.sleep(0.01)
        ends = [os.pidfd_open(worker), os.pidfd_open(int(forks[0]))]
        process.send_signal(number)
        printed, _ = process.communicate(timeout=120)
    assert printed.strip() == ("interrupted None" if number == signal.SIGINT else "")
    for end in ends:
        assert select.select([end], [], [], 120)[0], "a process is left"
        os.close(end)


def test_a_python_callable_steers_and_writes_no_file(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "def gains(row):\n    return 2.0, 1.0\n"
        "class Window:\n"
        "    def __call__(self, row):\n        return {'cwnd_packets': 30.0, 'pacing_rate_mbps': 9.0}\n"
        "def writes(row):\n    open('beside.txt', 'w')\n"
        "def bad(row):\n    return float('nan'), 1.0\n"
    )
    scenario = Scenario(rate_mbps=10, duration_s=3, flows=(Flow("agent", rtt_ms=20),))

    def result(name: str) -> Reply:
        return sandbox.run([ConfinedJob([scenario], [1], 0.25, confinement="python", function=f"mine:{name}")])[0]

    assert result("gains").results[0]["utilisation"] > 0.9
    assert result("Window").results[0]["utilisation"] > 0.7
    assert "Permission denied" in str(result("writes").error)
    assert "the callable chose (nan, 1.0) at 0 s" in result("bad").results[0]["error"]
    other = result("other")
    assert other.is_refused
    assert "there is no callable 'mine:other'" in str(other.error)
    assert not Path("beside.txt").exists()


def test_the_page_has_what_hostile_files_get():
    page = (EXAMPLES.parent / "docs" / "score.md").read_text(encoding="utf-8")
    for kind in HOSTILE:
        said = (SAYS[kind] or "none").removeprefix("flows[0]: ").removesuffix(" at ")
        assert f"| {kind} | {said}" in page
