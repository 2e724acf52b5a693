"""The command line, from `--help` to a league with a trained agent in it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

import bbrgym
import bbrgym.benchmark.run  # here, for what is imported first inside of a test keeps the toy engine's name
from bbrgym.agents.tracking import read_run
from bbrgym.cli import COMMANDS, main

SMALL = [
    *("engine.name=fake", "scenario=single", "scenario.duration_s=2", "tracking=none", "agent.n_steps=32"),
    *("agent.batch_size=32", "agent.n_epochs=1", "train.total_steps=64", "train.eval_episodes=1"),
]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BBRGYM_DEBUG", raising=False)
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)


def only_run(folder: str) -> Path:
    (found,) = Path("runs", folder).iterdir()
    return found


def test_without_arguments_it_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"  {name}" in text
        assert command.summary in text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_that_fits_a_terminal(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"bbrgym {name}: ")
    assert "examples:" in text
    assert max(map(len, text.splitlines())) <= 110
    for group in COMMANDS[name].groups:
        assert f"  {group}" in text


def test_help_names_the_choices(capsys: pytest.CaptureFixture[str]) -> None:
    main(["train", "-h"])
    text = capsys.readouterr().out
    assert "ppo, recurrent_ppo, sac, td3" in text
    assert "demo, friendliness, reference, rtt_fairness" in text
    assert "paper/acw-jain, " in " ".join(text.split())  # in a folder of its group


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"bbrgym {bbrgym.__version__}\n"


def test_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert "unknown command 'trian' (did you mean 'train'?); known: train, evaluate" in capsys.readouterr().err


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from bbrgym.cli import main; main(['train', '--help']); import bbrgym.agents.train\n"
        "sys.exit(', '.join({'torch', 'mlflow', 'matplotlib', 'stable_baselines3'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "scenario.rate_mbps=-1"], "rate_mbps=-1 is not possible: rate_mbps must be in"),
        (["train", "train.n_envs=0"], "train.n_envs must be an integer >= 1, got 0"),
        (["train", "agent=dqn"], "Could not find 'agent/dqn'"),
        (["train", "sede=1"], "Could not override 'sede'"),
        (["train", "seed"], "seed"),
        (["train", "train.resume=nowhere"], "'nowhere' holds no training"),
        (["evaluate"], "missing: agent_path=… (see bbrgym evaluate --help)"),
        (["evaluate", "agent_path=nowhere"], "no trained agent in 'nowhere'"),
        (["benchmark"], "a benchmark needs scenarios"),
        (["report"], "no benchmark in runs/benchmark"),
        (["report", "nowhere"], "nowhere holds no benchmark"),
        (["report", "a", "b"], "give at most one folder"),
    ],
)
def test_a_mistake_gets_one_message_and_no_traceback(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_debugging_shows_the_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BBRGYM_DEBUG", "1")
    with pytest.raises(FileNotFoundError, match="no benchmark in runs/benchmark"):
        main(["report"])
    assert main(["evaluate", "agent_path=nowhere"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_train_resume_evaluate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *SMALL, "name=mine", "seed=5"]) == 0
    run = only_run("train")
    assert run.name.endswith("_mine-5")
    assert f"bbrgym evaluate agent_path={run}" in capsys.readouterr().out
    record = read_run(run)
    assert record is not None
    assert (record["status"], record["params"]["seed"], record["params"]["output_dir"]) == ("FINISHED", 5, str(run))
    assert (run / ".hydra" / "config.yaml").is_file()

    assert main(["train", f"train.resume={run}", "train.total_steps=128"]) == 0
    assert "Trained 128 steps" in capsys.readouterr().out
    assert only_run("train") == run  # it went on where it was

    arguments = ["agent_path=" + str(run), "engine.name=fake", "scenario.duration_s=2", "tracking=none", "seeds=[4]"]
    assert main(["evaluate", *arguments]) == 0
    assert "Mean of 1 episodes" in capsys.readouterr().out
    assert pd.read_parquet(only_run("evaluate") / "results.parquet")["seed"].tolist() == [4, 4]


@pytest.mark.parametrize("where", ["first", "last"])
def test_multirun(where: str) -> None:
    arguments = [*SMALL, "train.total_steps=32", "seed=1,2"]
    assert main(["train", "-m", *arguments] if where == "first" else ["train", *arguments, "-m"]) == 0
    sweep = only_run("multirun")
    seeds = [json.loads((sweep / job / "run.json").read_text())["params"]["seed"] for job in ("0", "1")]
    assert seeds == [1, 2]
    assert not Path("runs/train").exists()


def test_a_job_that_fails_in_a_multirun_does_not_end_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "-m", *SMALL, "train.total_steps=0,32"]) == 1
    error = capsys.readouterr().err
    assert "train.total_steps must be an integer >= 1, got 0" in error
    assert "Traceback" not in error
    record = read_run(only_run("multirun") / "1")
    assert record is not None
    assert record["status"] == "FINISHED"


def test_a_users_own_folder_of_choices() -> None:
    folder = Path("mine/scenario")
    folder.mkdir(parents=True)
    (folder / "tiny.yaml").write_text("rate_mbps: 3\nduration_s: 1\nflows: [{algorithm: agent, rtt_ms: 30}]\n")
    small = [a for a in SMALL if not a.startswith("scenario")]
    assert main(["train", "--config-dir", "mine", *small, "scenario=tiny", "output_dir=here"]) == 0
    record = read_run(Path("here"))
    assert record is not None
    assert record["params"]["scenario"]["rate_mbps"] == 3


def test_cfg_prints_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--cfg", "job", "agent=sac"]) == 0
    assert "algorithm: sac" in capsys.readouterr().out
    assert not Path("runs").exists()


@pytest.mark.skipif(find_spec("bbrgym._ns3") is None, reason="ns-3 is not installed")
def test_a_demonstration_from_training_to_the_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()  # the worker processes of a benchmark know no toy engine
    monkeypatch.chdir(tmp_path)
    arguments = [
        *("scenario=duel", "scenario.duration_s=2", "scenario.rate_mbps=5", "tracking=none", "agent.n_steps=16"),
        *("agent.batch_size=32", "train.max_minutes=2"),
        *("train.total_steps=64", "train.eval_episodes=1", "benchmark.competitors=[bbr]", "benchmark.seeds=[1]"),
        *("benchmark.scenarios.duel_20mbps_5bdp.duration_s=2", "benchmark.processes=2"),
    ]
    assert main(["demo", *arguments]) == 0
    text = capsys.readouterr().out
    assert "it is a demonstration, not a result" in text
    results = pd.read_parquet("runs/benchmark/demo/results.parquet")
    assert set(results["competitor"]) == {"agent", "bbr"}
    assert Path("runs/benchmark/demo/report.html").is_file()
    Path("runs/benchmark/demo/report.html").unlink()
    assert main(["report"]) == 0
    assert Path("runs/benchmark/demo/report.html").is_file()
    # What is done is not done again.
    assert main(["benchmark", *arguments[3:4], "experiment=demo", *arguments[-4:]]) == 0
    assert "1 of 1 runs are there already" in capsys.readouterr().out


def test_the_ui_is_for_this_machine_only() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = f"import sys; from bbrgym.cli import main; sys.exit(main(['ui', '--port', '{port}']))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 90
        answer = None
        while answer is None and time.monotonic() < deadline and process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as response:
                    answer = response.read()
            except OSError:
                time.sleep(0.3)
        assert answer == b"OK"
        assert Path("runs/mlflow.db").is_file()
        assert _listening_addresses(port) == {"0100007F"}  # 127.0.0.1
    finally:
        process.terminate()
        process.wait(timeout=30)


def _listening_addresses(port: int) -> set[str]:
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    local = [fields[1].split(":") for fields in lines if fields[3] == "0A"]
    return {address for address, listening in local if int(listening, 16) == port}


def test_it_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bbrgym.cli", "--version"], capture_output=True, text=True, env=dict(os.environ)
    )
    assert done.stdout.startswith("bbrgym ")
