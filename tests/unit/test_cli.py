"""The command line, from `--help` to a benchmark with a trained agent."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from hydra import compose, initialize_config_module
from in_process import ExecutorInThisProcess
from omegaconf import OmegaConf
from training import SMALL, Killed, kill

import bbrgym
from bbrgym.agents import mlflow_store
from bbrgym.agents.tracking import Tracker, read_run
from bbrgym.baselines.policy_file import REFERENCE
from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.cli import COMMANDS, main
from bbrgym.conf import choices
from bbrgym.files import sqlite_url
from bbrgym.hydra_task import run_explained

pytestmark = pytest.mark.usefixtures("in_new_folder", "no_figures")


def only_run(folder: str) -> Path:
    (found,) = Path("runs", folder).iterdir()
    return found


def test_without_arguments_it_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    assert [name for name in COMMANDS if f"  {name}" not in text] == []
    assert main(["trian"]) == 2
    assert "unknown command 'trian' (did you mean 'train'?)" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_its_groups(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([name, "-h"]) == 0
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert main(["help", name]) == 0
    assert capsys.readouterr().out == text
    assert [group for group in COMMANDS[name].groups if f"  {group}" not in text] == []
    for group in set(COMMANDS[name].groups) & {"agent", "experiment"}:
        assert [choice for choice in choices(group) if choice not in text] == []


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.parser])
def test_help_shows_the_default_of_every_option(name: str) -> None:
    parse = COMMANDS[name].parser
    assert parse is not None
    parser = parse()
    text = " ".join(parser.format_help().split())
    needed = {
        "simulate": ["x"],
        "atlas": ["x"],
        "board": ["x"],
        "break": ["x"],
        "certify": ["x"],
        "list": ["x"],
        "score": ["x"],
        "export": ["x", "y"],
        "import": ["x", "y"],
        "send": ["x"],
    }.get(name, [])
    for option, value in vars(parser.parse_args(needed)).items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            assert f"(default: {value})" in text, option


@pytest.mark.parametrize(
    ("arguments", "config_name"),
    [
        (["train"], "config"),
        (["train", "agent=sac"], "config"),
        (["train", "agent=cma"], "config"),
        (["demo"], "config"),
        (["evaluate"], "evaluate"),
    ],
)
def test_help_shows_the_values_that_the_command_uses(
    arguments: list[str], config_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--help"]) == 0
    shown = dict(re.findall(r"^  ([\w.]+)=(\S+)", capsys.readouterr().out, re.MULTILINE))
    overrides = ["experiment=demo"] if arguments == ["demo"] else arguments[1:]
    with initialize_config_module("bbrgym.conf", version_base="1.3"):
        composed = compose(config_name, overrides)
    defaults = {"train": ["seed", "train.total_steps", "train.n_envs"], "evaluate": ["seeds", "warmup"]}
    for key in defaults.get(arguments[0], ["train.max_minutes", "benchmark.seeds"]):
        assert json.loads(shown[key]) == OmegaConf.select(composed, key), key


def test_version_of_the_module() -> None:
    done = subprocess.run([sys.executable, "-m", "bbrgym.cli", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"bbrgym {bbrgym.__version__}\n")


def test_help_and_training_without_mlflow_load_nothing_heavy() -> None:
    code = (
        "import sys, pathlib; from bbrgym.cli import main; main(['train', '--help']); import bbrgym.agents.train\n"
        "from bbrgym.agents.tracking import Tracker\n"
        "with Tracker.start(pathlib.Path('run'), 'e', 'n', {}, config={'backend': 'none'}) as tracker:\n"
        "    tracker.log_metrics({'x': 1.0})\n"
        "sys.exit(', '.join({'torch', 'mlflow', 'matplotlib', 'stable_baselines3'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


CLOSED = """
import io, os, sys
from bbrgym.cli import COMMANDS, main
def run(*arguments):
    reader, writer = os.pipe()
    os.close(reader)  # as `| head` does after its lines
    os.dup2(writer, 1)
    os.close(writer)
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False))
    status = main(arguments)
    sys.stdout.close()
    print(status, *arguments[:2], file=sys.stderr)
for name in COMMANDS:
    run(name, "--help")
for arguments in ([], ["--version"], ["traces"], ["traces", "--synthetic", "made"], ["header"], ["report", "nowhere"]):
    run(*arguments)
small = sys.argv[1:]
run("train", *small, "output_dir=first")
run("train", *small, "output_dir=second", "--json")
run("train", "-m", *small, "seed=1,2")
run("benchmark", "experiment=demo", "benchmark.competitors=[bbr]", "benchmark.seeds=[1]", "tracking=none",
    "benchmark.engine=native", "benchmark.scenarios.duel_20mbps_5bdp.duration_s=2", "benchmark.executor.workers=1")
"""


def test_a_command_whose_output_nobody_reads_ends_without_a_traceback() -> None:
    search = ["agent=cma", "agent.population=4", "agent.scenarios=1", "scenario=single", "scenario.duration_s=2"]
    search += ["train.total_steps=64", "train.eval_episodes=1", "tracking=none"]
    done = subprocess.run([sys.executable, "-c", CLOSED, *search], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Broken pipe" not in done.stderr
    statuses = [
        line for line in done.stderr.splitlines() if line[:4] in ("141 ", "1 re", "0 tr", "1 tr", "0 be", "1 be")
    ]
    assert [line for line in statuses if not line.startswith("141")] == ["1 report nowhere"]  # it printed nothing
    assert len(statuses) == len(COMMANDS) + 6 + 4 - 1


def test_the_end_of_another_pipe_is_not_taken_for_that_of_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise BrokenPipeError("of a worker")

    assert run_explained(fail) == 1
    assert "of a worker" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_of_any_encoding_gets_tables(encoding: str) -> None:
    code = (
        "import sys; from bbrgym.cli import main; from bbrgym.output import prepare_output\n"
        "prepare_output()\nprint('µ … ─ 本')\nsys.exit(main(['traces', '--synthetic', 'made']))"
    )
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env)
    assert done.returncode == 0, done.stderr
    first, *table = done.stdout.decode(encoding).splitlines()
    plain = {"ascii": "u ... - ?", "latin-1": "µ ... - ?", "utf-8": "µ … ─ 本"}
    assert first == plain[encoding]
    assert any("leo.csv" in line for line in table)
    assert ("─" in "".join(table)) == (encoding == "utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "scenario=single", "sede=1"], "bbrgym: unknown key 'sede' (did you mean seed?)"),
        (["train", "-m", "scenario=single", "agent=sca,ppo"], "bbrgym: unknown agent 'sca' (did you mean 'sac'?)"),
        (["train", "train.resume=nowhere"], "'nowhere' holds no training"),
        (["evaluate"], "missing: agent_path=…"),
        (["evaluate", "agent_path=nowhere"], "no trained agent in 'nowhere'"),
        (["train", *SMALL[:4], "agent=sac", "agent.batch_size=many"], "agent.batch_size must be an integer, got"),
        (["train", "-m", *SMALL, "hydra/launcher=local", "hydra.launcher.workers=0", "seed=1,2"], "workers must"),
        (["benchmark", "scenario=single"], "a benchmark needs scenarios"),
        (["ui", "--root", "nowhere"], "there is no 'nowhere'"),
        (["train", "-m", "experiment=demo,paper/acw-jain"], "experiment=paper/acw-jain belongs to bbrgym benchmark"),
        (["train", "scenario=single", "~agent"], "~agent deletes agent.algorithm, which hydra.run.dir needs"),
        (["train", "scenario=single", "tracking=none", "seed=${oc.env:NO_SUCH}"], "no environment variable 'NO_SUCH'"),
        (["benchmark", "~benchmark"], "~benchmark deletes benchmark.name, which hydra.run.dir needs"),
        (["demo", "scenario=single", "tracking=none", "~benchmark.name"], "a benchmark must have a name"),
        (["report"], "no benchmark in runs/benchmark"),
        (["report", "nowhere"], "nowhere is not a benchmark"),
        (["export", str(REFERENCE), "nowhere/x.h"], "bbrgym: 'nowhere/x.h': No such file or directory\n"),
    ],
)
def test_a_mistake_gets_one_message_and_no_traceback_and_leaves_nothing(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not list(Path().iterdir())


@pytest.mark.parametrize("command", [["import", "a.zip"], ["score"], ["break"], ["atlas"], ["board"]])
def test_what_can_be_missing_is_not_called_required(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(command)
    *usage, error = capsys.readouterr().err.splitlines()
    required = error.rpartition("required: ")[2].split(", ")
    assert len(required) == 1
    assert not [name for name in required if f"[{name} " in " ".join(usage)]


SHORT = ["scenario=single", "scenario.duration_s=1", "tracking=none"]
FRIENDLY = ["experiment=friendliness", "benchmark.competitors=[bbr]", "benchmark.seeds=[1]", "tracking=none"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", f"agent_path={REFERENCE}", *SHORT], "'runs' is not a folder; choose .* output_dir=FOLDER"),
        (["evaluate", f"agent_path={REFERENCE}", *SHORT, "output_dir=/proc/x"], "proc/x': .*; choose another folder"),
        (["evaluate", f"agent_path={REFERENCE}", *SHORT, "seeds=[1],[2]", "-m"], "'runs' is not .* hydra.sweep.dir=FO"),
        (["benchmark", *FRIENDLY], "'runs' is not a folder; choose another folder with output_dir=FOLDER"),
        (["benchmark", *FRIENDLY, "output_dir=o", "directory=/proc/x"], "'/proc/x/runs': .* with directory=FOLDER"),
        (["train", *SMALL], "'runs' is not a folder; choose another folder with output_dir=FOLDER"),
        (["demo", *SHORT, "output_dir=o"], "'runs/benchmark/demo/runs': 'runs' is not a folder"),
        (
            ["send", "127.0.0.1:1", "--rows", "runs/x.parquet"],
            "'runs/x.parquet': there is no folder 'runs'",
        ),
    ],
)
def test_outputs_are_tried_before_the_work(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("runs").write_text("a file")
    assert main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(f"bbrgym: .*cannot write .*{message}", line)
    assert [path.name for path in Path().iterdir()] == ["runs"]


def test_an_environment_variable_is_a_number_in_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SEED": "5", "STEPS": "64", "ACTIVATION": "relu"}.items():
        monkeypatch.setenv(name, value)
    given = ["seed=${oc.env:SEED}", "train.total_steps=${oc.env:STEPS}", "agent.activation_fn=${oc.env:ACTIVATION}"]
    assert main(["train", *SMALL, *given]) == 0
    record = read_run(only_run("train"))
    assert record is not None
    params = record["params"]
    assert (params["seed"], params["train"]["total_steps"], params["agent"]["activation_fn"]) == (5, 64, "relu")
    monkeypatch.setenv("STEPS", "96")
    monkeypatch.setenv("RUN", str(only_run("train")))
    assert main(["train", "train.resume=${oc.env:RUN}", "train.total_steps=${oc.env:STEPS}"]) == 0
    record = read_run(only_run("train"))
    assert record is not None
    assert record["params"]["train"]["total_steps"] == 96


def test_debugging_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BBRGYM_DEBUG", "1")
    with pytest.raises(FileNotFoundError, match="no benchmark in runs/benchmark"):
        main(["report"])
    with pytest.raises(FileNotFoundError, match="no trained agent in 'nowhere'"):
        main(["evaluate", "agent_path=nowhere"])


def test_a_training_that_was_killed_before_it_wrote_run_json_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Tracker, "start", kill)
        with pytest.raises(Killed):
            main(["train", *SMALL, "name=mine", "seed=5"])
    run = only_run("train")
    assert sorted(path.name for path in run.iterdir()) == [".hydra", ".lock", "train.log"]
    assert main(["train", f"train.resume={run}", "train.eval_episodes=2"]) == 0
    record = read_run(run)
    assert record is not None
    assert (record["status"], record["params"]["seed"], record["params"]["name"]) == ("FINISHED", 5, "mine")
    assert record["params"]["train"]["eval_episodes"] == 2


def test_a_configuration_of_others_executes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("evil/.hydra").mkdir(parents=True)
    for file in ("hydra.yaml", "config.yaml"):
        Path("evil/.hydra/hydra.yaml").write_text("hydra: {job: {name: train}}\n")
        Path("evil/.hydra", file).write_text("x: !!python/object/apply:os.mkdir [executed]\n")
        assert main(["train", "train.resume=evil"]) == 1
        assert "'evil' holds no training: it has no run.json of one" in capsys.readouterr().err
        assert not Path("executed").exists()
    for settings in ("[]", "3", "[{hydra: {job: {name: train}}}]"):
        for odd in ("hydra.yaml", "config.yaml"):
            Path("evil/.hydra/hydra.yaml").write_text("hydra: {job: {name: train}}\n")
            Path("evil/.hydra", odd).write_text(settings)
            assert main(["train", "train.resume=evil"]) == 1
            assert "'evil' holds no training: it has no run.json of one" in capsys.readouterr().err


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
    assert only_run("train") == run  # resumed in its own folder

    arguments = ["agent_path=" + str(run), "engine.name=fake", "scenario.duration_s=2", "tracking=none", "seeds=[4]"]
    assert main(["evaluate", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "Scenario default in fake: 12 Mbit/s, " in shown
    assert "Mean of 1 episodes" in shown
    assert main(["evaluate", *arguments, "--json", "output_dir=again"]) == 0
    printed = capsys.readouterr()
    assert "Mean of 1 episodes" in printed.err
    facts = json.loads(printed.out)
    assert (facts["directory"], facts["results"], facts["episodes"]) == ("again", "again/results.json", 1)
    assert facts["mean"].keys() == {"reward", "utilisation", "jain", "queue_mean_ms"}
    assert pd.read_parquet(only_run("evaluate") / "results.parquet")["seed"].tolist() == [4, 4]


def test_a_training_prints_json_or_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *SMALL, "--json", "--quiet", "output_dir=mine"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {
        "directory": "mine",
        "steps": 64,
        "best_steps": 64,
        "score": pytest.approx(-1, abs=10),
        "reward": pytest.approx(-1, abs=10),
        "is_complete": True,
        "yardsticks": {},  # of another engine than native
    }
    assert printed.err == ""
    assert main(["train", "--quiet", "train.resume=mine", "train.total_steps=96"]) == 0
    assert tuple(capsys.readouterr()) == ("", "")
    assert main(["train", "-m", "--json", "seed=1,2"]) == 1
    assert "--json is for one run" in capsys.readouterr().err


def test_a_shell_completes_commands_options_and_overrides() -> None:
    lines = {
        "bbrgym trai": ["train"],
        "bbrgym train --q": ["--quiet"],
        "bbrgym help sco": ["score"],
        "bbrgym send --tr": ["--transport"],
        "bbrgym score --at": ["--at-least"],
        "bbrgym atlas v": ["verify"],
        "bbrgym atlas make fam": ["families"],
        "bbrgym atlas make families --lev": ["--levels"],
        "bbrgym train --json agent=s": ["agent=sac"],
        "bbrgym evaluate agent_p": ["agent_path="],
        "bbrgym benchmark experiment=paper/acw-j": ["experiment=paper/acw-jain"],
    }
    complete = """
        COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=($1) COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
        $(complete -p bbrgym | sed 's/.*-F //; s/ .*//')
        echo "${COMPREPLY[@]}"
    """
    script = f'eval "$(bbrgym -sc install=bash)"\ntry() {{ {complete} }}\n'
    script += "".join(f"try '{line}'\n" for line in lines)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env={**os.environ, "PATH": path})
    assert done.stderr == ""
    assert [line.split() for line in done.stdout.splitlines()] == list(lines.values())


def test_a_job_that_fails_in_a_multirun_does_not_end_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *SMALL, "train.total_steps=0,32", "-m"]) == 1  # -m may come last; elsewhere it comes first
    error = capsys.readouterr().err
    assert "train.total_steps must be an integer >= 1, got 0" in error
    assert "Traceback" not in error
    record = read_run(only_run("multirun") / "1")
    assert record is not None
    assert (record["status"], record["params"]["train"]["total_steps"]) == ("FINISHED", 32)
    assert not Path("runs/train").exists()


def test_cfg_prints_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("mine/scenario")  # a user's own choices
    folder.mkdir(parents=True)
    (folder / "tiny.yaml").write_text("rate_mbps: 3\nflows: [{algorithm: agent, rtt_ms: 30}]\n")
    assert main(["train", "--config-dir", "mine", "--cfg", "job", "agent=sac", "scenario=tiny"]) == 0
    printed = capsys.readouterr().out
    assert "algorithm: sac" in printed
    assert "rate_mbps: 3\n" in printed
    assert not Path("runs").exists()


def test_an_experiment_of_trainings_is_no_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("mine/experiment")
    folder.mkdir(parents=True)
    (folder / "long.yaml").write_text("# @package _global_\ntrain: {total_steps: 1000000}\n")
    assert main(["benchmark", "--config-dir", "mine", "experiment=long"]) == 1
    assert "experiment=long belongs to bbrgym train, not to benchmark" in capsys.readouterr().err


def test_a_file_that_is_no_yaml_is_a_sentence_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("mine/scenario")
    folder.mkdir(parents=True)
    for number, content in enumerate(("flows:\n  - {algorithm: agent\n", "loss: 0\nloss: 0\n")):
        (folder / f"no{number}.yaml").write_text(content)
        assert main(["train", "--config-dir", "mine", f"scenario=no{number}"]) == 1
        error = capsys.readouterr().err
        assert re.search(rf"no{number}\.yaml', line \d", error)
        assert "Traceback" not in error


def test_a_demonstration_from_training_to_the_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = ["benchmark.competitors=[bbr]", "benchmark.seeds=[1]", "benchmark.executor.workers=1", "tracking=none"]
    runs += ["benchmark.engine=native", "benchmark.scenarios.duel_20mbps_5bdp.duration_s=2"]
    monkeypatch.setattr("bbrgym.benchmark.run.make_executor", ExecutorInThisProcess)
    training = ["scenario=duel", "scenario.duration_s=2", "scenario.rate_mbps=5", "agent.population=4"]
    training += ["agent.scenarios=1", "train.total_steps=64", "train.eval_episodes=1"]
    assert main(["demo", *training, *runs]) == 0
    text = capsys.readouterr().out
    assert "it is a demonstration, not a result" in text
    results = pd.read_parquet("runs/benchmark/demo/results.parquet")
    assert set(results["competitor"]) == {"agent", "bbr"}
    report = Path("runs/benchmark/demo/report.html")
    assert "<svg" in report.read_text()
    # The same benchmark on its own has nothing left to run. Its report has the same figures, which take seconds.
    monkeypatch.setattr("bbrgym.benchmark.report.write_report", write_plan)
    for arguments, printed in (
        (["benchmark", "experiment=demo", *runs], "1 of 1 runs are already done"),
        (["report"], f"Report: {report}\n"),
    ):
        report.unlink()
        assert main(arguments) == 0
        assert printed in capsys.readouterr().out
        assert report.read_text() == "demo"
    assert main(["benchmark", "experiment=demo", *runs, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["report"], facts["runs"], facts["failed"], facts["left_out"]) == (str(report), 1, 0, 0)
    assert set(facts["means"]["duel_20mbps_5bdp"]) == {"bbr"}


def write_plan(result: BenchmarkResult, *_: object) -> Path:
    """Take the place of `write_report`."""
    path = result.directory / "report.html"
    path.write_text(result.plan["config"]["name"])
    return path


def test_the_ui_is_started_for_this_machine_only(mlflow_database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def start(command: list[str]) -> Ended:
        started.append(command)
        return Ended()

    monkeypatch.setattr(mlflow_store, "ChildProcess", start)
    monkeypatch.setattr(mlflow_store, "wait", lambda fds: None)
    root = mlflow_database.parents[1]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    assert main(["ui", "--port", port, "--root", str(root)]) == 1  # it ends by itself after an error only
    given = ["--backend-store-uri", sqlite_url(mlflow_database), "--host", "127.0.0.1", "--port", port]
    assert started[0][4:-2] == given


@pytest.mark.parametrize("command", ["ui", "lab"])
def test_a_port_that_is_taken_is_refused_before_anything_starts(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mlflow_store, "ChildProcess", None)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main([command, "--port", str(port)]) == 1
    assert f"--port {port} is taken by another program: give another one" in capsys.readouterr().err
    assert main([command, "--port", "65536"]) == 1
    assert "--port must be an integer in [0, 2**16), got 65536" in capsys.readouterr().err
    assert not list(Path().iterdir())


class Ended:
    """A process that is over."""

    fds: tuple[int, ...] = ()

    def end(self) -> None:
        pass
