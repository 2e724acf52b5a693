"""Without an optional package every command names the extra that has it, and nothing shows a traceback."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from policies import make_agent

from bbrgym import cli, parallel_env
from bbrgym.envs.gym_env import BottleneckEnv
from bbrgym.envs.trace_file import load_trace
from bbrgym.extras import extra_of, optional, require

SMALL = ["engine=native", "scenario=single", "scenario.duration_s=1", "tracking=none"]
TRAIN = ["train", *SMALL, "train=default", "train.total_steps=64", "train.eval_episodes=1", "agent.n_steps=32"]
SAC = [*TRAIN[:-1], "agent=sac"]
RUNS = ["benchmark.engine=native", "benchmark.competitors=[bbr]", "benchmark.seeds=[1]", "benchmark.executor.workers=1"]
COMMANDS: dict[str, tuple[list[str], set[str]]] = {
    "train": (TRAIN, {"torch", "filelock"}),
    "train, SAC": (SAC, {"stable_baselines3"}),
    "train, Optuna": ([*TRAIN, "hydra/sweeper=optuna", "agent.gamma=choice(0.9)", "-m"], {"optuna"}),
    "train, Ray": ([*TRAIN, "hydra/launcher=ray_local", "-m"], {"ray"}),
    "train, SLURM": ([*TRAIN, "hydra/launcher=slurm", "-m"], {"submitit"}),
    "evaluate": (["evaluate", "agent_path=mine", *SMALL, "seeds=[1]"], {"pyarrow"}),
    "benchmark": (
        ["benchmark", "experiment=demo", "tracking=none", *RUNS, "benchmark.scenarios.duel_20mbps_5bdp.duration_s=1"],
        {"pyarrow", "matplotlib", "jinja2"},
    ),
    "report": (["report", "mine"], {"matplotlib", "jinja2"}),
    "export": (["export", "mine", "mine.onnx"], {"onnx", "google.protobuf"}),  # which onnx needs, too
    "atlas": (["atlas", "make", "shared"], {"pyarrow"}),
    "atlas, Minari": (["atlas", "make", "shared", "--minari"], {"minari", "h5py"}),
    "demo": (["demo", *SMALL, *RUNS], {"cma", "pyarrow"}),
    "ui": (["ui"], {"mlflow", "filelock"}),
    "ns3": (["ns3", "--openGymPort=5555"], {"zmq", "google.protobuf"}),
    "ns3, help": (["ns3", "--help"], {"zmq"}),
    "evaluate, Linux": (["evaluate", "agent_path=mine", *SMALL, "engine=linux"], {"zmq", "google.protobuf"}),
}
"""Command lines, and the optional packages without which they do nothing."""

FORK = """
import os, sys
import bbrgym.agents.sweep, bbrgym.agents.mlflow_store, bbrgym.agents.train, bbrgym.benchmark.demo, hydra
from bbrgym.cli import main
for line in sys.stdin:
    package, *arguments = line.split()
    print(">", flush=True)
    if (child := os.fork()) == 0:
        sys.modules[package] = None
        print(main(arguments), flush=True)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
"""
"""Runs commands without a package. Each is a child, so that what it imports is gone for the next."""


@pytest.mark.usefixtures("in_new_folder")
@pytest.mark.parametrize("most", [1, pytest.param(None, marks=pytest.mark.slow)], ids=["one package", "all packages"])
def test_every_command_names_the_extra(most: int | None) -> None:
    make_agent().save(Path("mine"))
    cases = [
        (package, command)
        for command, packages in COMMANDS.values()
        for package in sorted(packages, reverse=True)[:most]  # torch, pyarrow: what the other packages need
    ]
    done = subprocess.run(
        [sys.executable, "-c", FORK],
        input="".join(" ".join([package, *command]) + "\n" for package, command in cases),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "BBRGYM_DEBUG": "0", "HYDRA_FULL_ERROR": "0"},
    )
    answers = done.stdout.split(">\n")[1:]
    assert len(answers) == len(cases)
    for (package, command), answer in zip(cases, answers, strict=True):
        assert f"needs {package}: pip install 'bbrgym[{extra_of(package)}]'" in answer, (package, command, answer)
        assert answer.splitlines()[-1] == ("2" if cli.COMMANDS[command[0]].has_verdict else "1")
        assert "Traceback" not in answer, (package, command, answer)


def test_every_optional_package_has_its_extra() -> None:
    extras = set(metadata.metadata("bbrgym").get_all("Provides-Extra") or ()) - {"all"}
    without_command = {"ns3", "multi", "dask", "storage", "postgresql"}  # engines, environments, settings
    assert {extra_of(package) for _, packages in COMMANDS.values() for package in packages} == extras - without_command
    assert (extra_of("pettingzoo"), extra_of("stable_baselines3"), extra_of("numpy")) == ("multi", "train", None)
    assert extra_of("upath") == "storage"


def test_an_environment_that_draws_needs_matplotlib_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"rgb_array' needs matplotlib: pip install 'bbrgym\[report\]'"):
        BottleneckEnv(engine="native", render_mode="rgb_array")
    BottleneckEnv(engine="native", render_mode="ansi").close()


def test_imports_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match=r"a trace file needs pyarrow: pip install 'bbrgym\[report\]'"):
        load_trace(Path("trace.parquet"))
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    monkeypatch.delitem(sys.modules, "bbrgym.envs.pettingzoo_env", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"needs pettingzoo: pip install 'bbrgym\[multi\]'"):
        parallel_env()
    with pytest.raises(ModuleNotFoundError, match="a game needs nosuchpackage: pip install 'nosuchpackage'"):
        require("a game", "numpy", "nosuchpackage")
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'bbrgym.nothing'"), optional("a bug"):
        import bbrgym.nothing  # type: ignore[import-not-found]  # noqa: F401
