"""The command line, `bbrgym COMMAND`: the commands are in `COMMANDS`."""

from __future__ import annotations

import io
import itertools
import json
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata, resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bbrgym import ports
from bbrgym.addresses import with_pages
from bbrgym.agents.saved_runs import BENCHMARKS, LATEST, benchmark_plans, latest_training, trainings
from bbrgym.baselines import registry
from bbrgym.checks import check_integer, check_name, check_number, read_parameters
from bbrgym.conf import ENVIRONMENT_GROUPS, choices
from bbrgym.envs.engine import EngineError
from bbrgym.files import check_file, check_folder, is_local, open_folder
from bbrgym.hydra_task import Task, add_overrides, complete_with_hydra, run_explained, run_with_hydra
from bbrgym.interruption import SAME_COMMAND, resumed_by
from bbrgym.layout import name_table, wrap
from bbrgym.output import (
    OPTIONS,
    is_json,
    is_quiet,
    printing,
    run_program,
    tell,
)
from bbrgym.terminal import make_console

if TYPE_CHECKING:
    from argparse import Namespace

    from rich.console import Console

    from bbrgym.agents.curriculum import Breaks
    from bbrgym.agents.train import TrainResult
    from bbrgym.agents.yardsticks import Yardstick
    from bbrgym.benchmark.board import Submission
    from bbrgym.envs.episode_spec import EpisodeSpec
    from bbrgym.options import OptionParser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: what follows `bbrgym` on the command line; None reads them from there.

    Returns:
        The exit status: 0; 1 after an error with a message, or 2 where 1 is the command's verdict; 2 for an unknown
        command or option, 130 after Ctrl-C, 141 if nobody reads what it prints, 143 after SIGTERM.
    """
    return run_program("bbrgym", lambda: _main(arguments))


def _main(arguments: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["help"]:
        given = [*given[1:], "--help"]
    if not given or given[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if given[0] == "--version":
        print(f"bbrgym {metadata.version('bbrgym')}")
        return 0
    if (
        completion := next((i for i, a in enumerate(given[:2]) if a in ("-sc", "--shell-completion")), None)
    ) is not None:
        return run_explained(lambda: _complete(given[completion + 1 :]))
    try:
        check_name("command", given[0], COMMANDS)
    except ValueError as error:
        print(with_pages(f"bbrgym: {error}"), file=sys.stderr)
        return 2
    command = COMMANDS[given[0]]

    options = OPTIONS.keys() & given[1:] if command.has_output_options else set()
    rest = [argument for argument in given[1:] if argument not in options]

    def run() -> int:
        if any(argument in ("-h", "--help") for argument in rest):
            print(with_pages(help_text(given[0], rest)))
            return 0
        for place, argument in enumerate(rest):
            if (key := _key_of_latest(given[0], argument)) is not None:
                rest[place] = key + _latest(is_to_resume=key == "train.resume=")
        _check_experiments(given[0], rest)
        if "--json" in options and {"-m", "--multirun"}.intersection(rest):
            raise ValueError("--json is for one run, not for the jobs of -m")
        return command.run(rest)

    with printing(options):
        return run_explained(run, status=2 if command.has_verdict else 1)


_TAKES_RUNS = ("simulate", "score", "break", "certify", "export")
"""Commands whose words can be trainings."""
_TAKES_RUNS_ALONE = ("certify", "export")
"""Those that take nothing else."""
_RUN_KEYS = ("agent_path=", "benchmark.agent=", "train.resume=", "agent.tunes=")
"""Settings that are trainings."""


def _key_of_latest(command: str, argument: str) -> str | None:
    """Return what stands before `latest` in an argument that means the newest training; None in any other."""
    key = argument.removesuffix(LATEST)
    is_run = key in _RUN_KEYS or (not key and command in _TAKES_RUNS)
    return key if is_run and key != argument else None


def _latest(is_to_resume: bool) -> str:
    directory = latest_training(is_to_resume=is_to_resume)
    if not is_quiet():
        print(f"latest: {directory}", file=sys.stderr)
    return str(directory)


def _run_completions(command: str, word: str) -> list[str]:
    """Return the trainings that a word can become."""
    key = "" if command in _TAKES_RUNS else next((one for one in _RUN_KEYS if word.startswith(one)), None)
    return [] if key is None else [f"{key}{run}" for run in (LATEST, *trainings())]


def _atlas_completions(before: Sequence[str]) -> list[str]:
    """Return what can follow some words of `bbrgym atlas`."""
    words = [one for one in before if not one.startswith("-")]
    if not words:
        return [*import_module("bbrgym.atlas_command").ACTIONS]
    return import_module("bbrgym.benchmark.atlas.manifest").manifest_names() if len(words) == 1 else []


def _complete(arguments: list[str]) -> int:
    """Print a shell's completion, `install=bash`, or what can follow the line in COMP_LINE, `query=bash`.

    Hydra knows the overrides, and its scripts call this; the commands and their options are added here.
    """
    action, _, shell = "".join(arguments).partition("=")
    check_name("action of -sc", action, ("install", "uninstall", "query"))
    check_name("shell", shell, ("bash", "zsh", "fish"))
    if action != "query":
        complete_with_hydra("config", f"{action}={shell}")
        return 0
    line = os.environ.get("COMP_LINE", "")
    words = line.encode()[: int(os.environ.get("COMP_POINT", len(line.encode())))].decode(errors="ignore").split(" ")
    *before, word = [one for one in words[:-1] if one] + words[-1:]
    command = COMMANDS.get(before[1]) if len(before) > 1 else None
    found: list[str] = []
    if len(before) < 2:
        found = [*COMMANDS, "help", "--help", "--version"]
    elif before[1] == "help":
        found = [*COMMANDS]
    elif command is not None and word.startswith("-"):
        found = ["--help"]
        if command.parser is not None:
            found += re.findall(r"\[(--[\w-]+)", command.parser().format_usage())
        if command.has_output_options:
            found += OPTIONS
        if command.groups:
            found += ["--multirun", "--cfg", "--config-dir", "--hydra-help"]
    elif command is not None and (runs := _run_completions(before[1], word)):
        found = runs if before[1] in _TAKES_RUNS_ALONE or not command.parser else [*registry.controllers(), *runs]
    elif command is not None and before[1] == "list":
        found = [*import_module("bbrgym.listing").KINDS]
    elif command is not None and before[1] == "atlas":
        found = _atlas_completions(before[2:])
    elif command is not None and command.groups:
        # Without the options that are not Hydra's.
        os.environ["COMP_LINE"] = " ".join([*(one for one in before[1:] if one not in OPTIONS), word])
        with redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()) as printed:
            complete_with_hydra("evaluate" if before[1] == "evaluate" else "config", f"query={shell}")
        group, is_choice, _ = word.partition("=")
        nested = [f"{group}={choice}" for choice in choices(group)] if is_choice else []
        found = [*dict.fromkeys([*printed.getvalue().split(), *nested])]
    print(("\n" if shell == "fish" else " ").join(one for one in found if one.startswith(word)))
    return 0


@dataclass(frozen=True)
class Command:
    """A subcommand.

    Attributes:
        summary: what it does, in one line.
        run: takes the arguments after the command, and returns the exit status.
        text: more about it, for its help.
        parser: makes the parser of its arguments; None if Hydra reads them.
        groups: the groups of conf/ that it takes.
        settings: values that are often changed, `key=value` and a text. `{}` stands for the value of the configuration.
        examples: command lines.
        details: returns more lines of its help, which need imports.
        has_output_options: whether it takes `bbrgym.output.OPTIONS`.
        has_verdict: whether its exit status 1 says something of what was given, so that it is 2 after an error.
        config: the name of its configuration, and the overrides that it adds.
    """

    summary: str
    run: Callable[[list[str]], int]
    text: str
    parser: Callable[[], OptionParser] | None = None
    groups: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    details: Callable[[], str] | None = None
    has_output_options: bool = False
    has_verdict: bool = False
    config: tuple[str, ...] = ("config",)


def _train(arguments: list[str]) -> int:
    if resumed := [argument for argument in arguments if argument.startswith("train.resume=")]:
        from bbrgym.overrides import explaining, read_values

        with explaining("config", arguments):
            directory = read_values(resumed[-1:])["train.resume"]
        if directory:
            return _resume(Path(str(directory)), arguments)
    return run_with_hydra(
        Task("train", _train_once, partial(_call, "agents.train", "check_training")), "config", arguments
    )


def _train_once(config: dict[str, Any], directory: Path) -> float:
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from bbrgym.agents.checkpoint_names import saved_steps
    from bbrgym.overrides import command

    is_job = HydraConfig.get().mode is RunMode.MULTIRUN
    if is_job:
        from bbrgym.agents.sweep import train_in_sweep as train
    else:
        from bbrgym.agents.train import train

    def resumption() -> str:
        resuming = f"`{command('bbrgym train', {'train.resume': directory})}`"
        if not (saved := saved_steps(directory)):
            return f"{resuming} begins it anew: it has no checkpoint"
        return f"{resuming} resumes it after {saved[0]:,} steps"

    with resumed_by(resumption):
        console = make_console()
        result = train(config, directory, console, partial(_measure_yardsticks, console=console), _breaker(config))
    _report_training(result, is_job=is_job)
    return result.score


def _resume(directory: Path, arguments: list[str]) -> int:
    # Without Hydra: configuration and folder are those of the run.
    from bbrgym.agents.train import resume
    from bbrgym.overrides import explaining, read_values

    with explaining("config", arguments):
        changes = read_values([argument for argument in arguments if not argument.startswith("train.resume=")])
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    with resumed_by(SAME_COMMAND):
        console = make_console()
        measure = partial(_measure_yardsticks, console=console)
        result = resume(directory, changes, console, _composed(directory), measure, _breaker())
    _report_training(result)
    return 0


def _composed(directory: Path) -> dict[str, Any] | None:
    """Return Hydra's copy of a training's configuration, all that there is as long as run.json is missing."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        # Hydra writes hydra.yaml after config.yaml, which is complete then.
        made_by = OmegaConf.select(OmegaConf.load(directory / ".hydra" / "hydra.yaml"), "hydra.job.name")
        if made_by not in ("train", "demo"):
            return None
        settings = OmegaConf.load(directory / ".hydra" / "config.yaml")
    except (OSError, YAMLError, OmegaConfBaseException, TypeError):
        return None
    if not OmegaConf.is_dict(settings):
        return None
    OmegaConf.update(settings, "output_dir", str(directory))
    plain = OmegaConf.to_container(settings, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _measure_yardsticks(spec: EpisodeSpec, episodes: int, console: Console) -> Sequence[Yardstick]:
    from bbrgym.benchmark.yardsticks import measure_yardsticks

    return measure_yardsticks(spec, episodes, console)


def _breaker(config: Mapping[str, Any] | None = None) -> Breaks | None:
    """Return what breaks agents; None for a configuration without a curriculum."""
    if config is not None and not config.get("curriculum"):
        return None
    from bbrgym.benchmark.breaking.curriculum import Breaker

    return Breaker()


def _report_training(result: TrainResult, is_job: bool = False) -> None:
    """Print what a training reached, and what to do next; that of a sweep's job comes after all of them."""
    from bbrgym.baselines.policy_file import read_policy
    from bbrgym.overrides import command

    kept = read_policy(result.directory).training  # of the best agent; of the last one if no evaluation succeeded
    reward = kept.get("reward")
    lines = [
        f"{'Trained' if result.is_complete else 'Stopped early, after'} {result.steps} steps; "
        f"the best agent, with a score of {result.score:.3f}, is that after {kept['steps']} steps",
        *_beside_yardsticks(result, reward),
    ]
    if not is_job:
        lines += [
            "Judge it:",
            f"  {command('bbrgym evaluate', {'agent_path': result.directory})}",
            f"  {command('bbrgym benchmark experiment=rtt_fairness', {'benchmark.agent': result.directory})}",
            *_what_is_better(result, reward, str(kept["algorithm"])),
        ]
    yardsticks = {each.kind: {"what": each.what, "reward": each.reward} for each in result.yardsticks}
    tell(
        "\n".join(lines),
        vars(result)
        | {
            "directory": str(result.directory),
            "best_steps": kept["steps"],
            "reward": reward,
            "yardsticks": yardsticks,
        },
    )


def _beside_yardsticks(result: TrainResult, reward: float | None) -> list[str]:
    """Return what the best agent reached beside what is reached without training."""
    if reward is None or not result.yardsticks:
        return []
    shown = ", ".join(each.text for each in result.yardsticks)
    above = [each.kind for each in result.yardsticks if reward > each.reward]
    below = [each.kind for each in result.yardsticks if reward <= each.reward]
    if above and below:
        place = f"above {' and '.join(above)}, below {' and '.join(below)}"
    else:
        place = f"{'above' if above else 'below'} all of them"
    return [f"Reward per step: {reward:.3f}, {place}", f"  {shown}"]


def _what_is_better(result: TrainResult, reward: float | None, learner: str) -> list[str]:
    """Return which learner, or whether a longer training, would get above what is reached without training."""
    from bbrgym.agents.provenance import override_key
    from bbrgym.agents.sweep import job_overrides
    from bbrgym.agents.tracking import read_run
    from bbrgym.overrides import command

    below = {each.kind for each in result.yardsticks if reward is not None and reward <= each.reward}
    if not below:
        return []
    record = read_run(result.directory)
    agent = {} if record is None else record["params"].get("agent") or {}
    fitness = agent.get("fitness", "reward")
    if fitness == "reward" and ({"bbr", "best constant"}.isdisjoint(below) or agent.get("tunes")):
        resumed = command("bbrgym train", {"train.resume": result.directory})
        return ["Resume it for a longer training:", f"  {resumed} train.total_steps={2 * result.steps}"]
    better: dict[str, object] = {"agent": learner, "agent.fitness": "reward"}
    said = f"It has maximised {fitness.replace('_', ' ')}; with agent.fitness=reward it maximises the reward"
    if fitness == "reward":  # docs/results/learners.md and docs/distil.md have the reasons
        better["agent"] = "distil" if learner == "cma" else "cma"
        said = f"agent={better['agent']} usually gets further"
    if better["agent"] == "cma" and learner == "distil":
        better["agent.tunes"] = result.directory
    given = {override_key(one): one for one in job_overrides(result.directory)}
    if "experiment" in given:  # it may have settings of its learner
        return [f"{said}: docs/train.md"]
    replaced = ("agent", "train", "name", "output_dir")
    kept = [shlex.quote(one) for key, one in given.items() if key.partition(".")[0] not in replaced]
    return [f"{said}:", f"  {' '.join([command(f'bbrgym train{_config_dir()}', better), *kept])}"]


def _config_dir() -> str:
    """Return the option by which the user has given a folder of configuration files; nothing if there is none."""
    from hydra.core.hydra_config import HydraConfig

    if not HydraConfig.initialized():
        return ""
    folders = [one.path for one in HydraConfig.get().runtime.config_sources if one.provider == "command-line"]
    return "".join(f" --config-dir {shlex.quote(os.path.relpath(folder))}" for folder in folders)


def _evaluate(arguments: list[str]) -> int:
    return run_with_hydra(Task("evaluate", _evaluate_once, _check_evaluation), "evaluate", arguments)


def _check_evaluation(config: dict[str, Any], _: Path | None) -> None:
    from bbrgym.benchmark.evaluate import read_evaluation

    read_evaluation(config)


def _evaluate_once(config: dict[str, Any], directory: Path) -> None:
    from bbrgym.benchmark.evaluate import evaluate, mean_of_episodes

    results = evaluate(config, directory, make_console())
    facts = {"directory": str(directory), "results": str(directory / "results.json")}
    tell(f"Results: {directory}", facts | {"episodes": results["seed"].nunique(), "mean": mean_of_episodes(results)})


def _benchmark(arguments: list[str]) -> int:
    # The same folder at every start, so that the benchmark resumes.
    folder = f"output_dir={BENCHMARKS}/${{benchmark.name}}"
    task = Task("benchmark", _benchmark_once, _check_benchmark)
    return run_with_hydra(task, "config", add_overrides([folder], arguments))


def _check_benchmark(config: dict[str, Any], directory: Path | None) -> None:
    from bbrgym.benchmark.run import read_benchmark

    if "benchmark" not in config:
        raise ValueError("the configuration has no 'benchmark'")
    read_benchmark(config["benchmark"])
    if (where := config.get("directory")) is not None:
        _check_runs(open_folder(where), "choose another folder with directory=FOLDER")
    elif directory is not None:
        _check_runs(directory, "choose another folder with output_dir=FOLDER")


def _check_runs(directory: Path, way_out: str) -> None:
    """Check that the runs of a benchmark can be written."""
    if is_local(directory):
        check_folder(directory / "runs", way_out)


def _benchmark_once(config: dict[str, Any], directory: Path) -> None:
    from bbrgym.benchmark.run import run_benchmark
    from bbrgym.benchmark.tables import mean_table, print_repeated_runs, print_summary
    from bbrgym.benchmark.verdicts import Verdicts, print_verdicts

    console = make_console()
    where = config.get("directory")
    with resumed_by(SAME_COMMAND):
        result = run_benchmark(
            config["benchmark"], where or directory, console, beside=BENCHMARKS, log=directory if where else None
        )
    facts = {
        "directory": str(result.directory),
        "report": str(result.directory / "report.html"),
        "results": str(result.directory / "results.parquet"),
        "runs": len(result.plan["runs"]),
        "failed": len(result.failures),
        "left_out": len(result.flaws),
    }
    if result.plan["config"]["suites"]:
        verdicts = Verdicts.of(result)
        print_verdicts(verdicts, console)
        print_repeated_runs(result.results, console)
        facts["verdicts"] = {
            name: {one: verdicts.verdict(name, one) for one in verdicts.competitors} for name in verdicts.suites
        }
    else:
        print_summary(result.results, console)
        if is_json():
            facts["means"] = mean_table(result.results)
    if flaws := result.flaws:
        print(
            f"left out: {len(flaws)} of {len(result.plan['runs'])} runs, for example because "
            f"{next(iter(flaws.values()))}; the same command repeats them"
        )
    tell(f"Report: {facts['report']}", facts)
    if result.failures:
        raise EngineError(f"{len(result.failures)} runs failed; the same command repeats only those")


def _demo(arguments: list[str]) -> int:
    task = Task("demo", _demo_once, _check_demo)
    config_name, *added = COMMANDS["demo"].config
    return run_with_hydra(task, config_name, add_overrides(added, arguments))


def _check_demo(config: dict[str, Any], directory: Path | None) -> None:
    _call("agents.train", "check_training", config, directory)
    _check_benchmark({**config, "directory": None}, None)
    if not config["benchmark"].get("name"):
        raise ValueError("a benchmark must have a name, which is that of its folder")
    _check_runs(BENCHMARKS / config["benchmark"]["name"], "start it in another folder")


def _demo_once(config: dict[str, Any], directory: Path) -> None:
    from bbrgym.benchmark.demo import run_demo

    run_demo(config, directory, BENCHMARKS / config["benchmark"]["name"], make_console())


def _parser(command: str) -> OptionParser:
    """Return the parser of a command, still without arguments."""
    from bbrgym.options import OptionParser  # argparse takes a while, and `bbrgym --help` needs none

    return OptionParser(command)


def _score_parser() -> OptionParser:
    parser = _parser("score")
    parser.add_argument(
        "what",
        metavar="WHAT",
        help="the name of an algorithm, a training run, policy.npz, a model of Stable-Baselines3, CleanRL or ONNX, "
        "module:callable, or a C file; in linux also linux-cubic, or a YAML file of the two commands of a stack "
        "(docs/stacks.md)",
    )
    parser.add_argument("parameters", nargs="*", metavar="NAME=NUMBER", help="parameters of an algorithm or a C file")
    parser.add_argument("--engine", default="native", metavar="native|linux", help="linux: in real time")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="repeat the scenarios of a score; without it a new seed, in linux 1"
    )
    parser.add_argument("--only", metavar="NAME", help="replay one scenario; in linux: one criterion")
    parser.add_argument(
        "--full",
        action="store_true",
        help="twice the scenarios, and RFC 9743 as a whole; in linux: three runs of each",
    )
    parser.add_argument("--no-rfc9743", action="store_true", help="without RFC 9743")
    parser.add_argument("--at-least", type=float, metavar="SCORE", help="exit with 1 below this score, 0 to 1")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the page into a file")
    parser.add_argument(
        "--submit", type=Path, metavar="NAME.json", help="write an entry of the scoreboard (docs/results/board.md)"
    )
    parser.add_argument("--author", metavar="TEXT", help="of an entry: who hands it in")
    parser.add_argument("--licence", metavar="SPDX", help="of an entry: its licence, such as MIT")
    parser.add_argument("--made", metavar="TEXT", help="of an entry: the command that made it, or how else it was made")
    return parser


def _score(arguments: list[str]) -> int:
    options = _score_parser().parse_intermixed_args(arguments)
    check_name("engine of a score", options.engine, ("native", "linux"))
    check_integer("--seed", options.seed, at_least=0, below=2**31, or_none=True)
    if options.at_least is not None:
        check_number("--at-least", options.at_least, at_least=0, at_most=1)
    parameters = read_parameters(options.parameters)
    page = options.html
    if page is not None:
        check_file("--html", page)
    submission = None if options.submit is None else _submission(options)

    from bbrgym.benchmark.candidate import Candidate
    from bbrgym.benchmark.statistics import number_text

    candidate = Candidate.of(options.what, parameters, options.engine)
    if submission is not None:
        submission.entry_of(candidate)  # what the board refuses is refused before it is scored
    console = make_console()
    score: Any
    report: Any
    if options.engine == "linux":
        from bbrgym.benchmark import score_linux_report as report
        from bbrgym.benchmark.score_linux import score_on_linux

        if options.no_rfc9743:
            raise ValueError("--no-rfc9743 is of the engine native: in linux all criteria are those of RFC 9743")
        seed = 1 if options.seed is None else options.seed
        score = score_on_linux(candidate, seed, is_full=options.full, only=options.only, tell=_tell_progress)
    else:
        from bbrgym.benchmark import score_report as report
        from bbrgym.benchmark.score import score_candidate

        score = score_candidate(
            candidate,
            options.seed if submission is None else submission.seed,
            is_full=options.full,
            only=options.only,
            has_rfc9743=not options.no_rfc9743 and submission is None,
            tell=_tell_progress,
        )
    if options.only is not None and options.engine == "native":
        report.print_replay(score, console)
    else:
        report.print_score(score, console)
    if page is not None:
        report.write_page(score, page)
    if submission is not None:
        submission.write(score)
    is_enough = not score.has_failed and (options.at_least is None or score.value.value >= options.at_least)
    facts = [f"{score.seconds:.0f} s"]
    if options.at_least is not None:
        value = number_text(score.value.value, ".3f", beside=[options.at_least])
        facts.append(f"{value} is {'at least' if is_enough else 'below'} {options.at_least:.12g}")
    if score.has_failed:
        facts.append("it failed in every scenario")
    if page is not None:
        facts.append(f"page: {page}")
    if submission is not None:
        facts.append(f"entry: {submission.path}")
    files = {"page": page} if submission is None else {"page": page, "entry": submission.path}
    tell(
        "; ".join(facts),
        report.to_dict(score)
        | {"is_enough": is_enough}
        | {name: None if path is None else str(path) for name, path in files.items()},
    )
    return 0 if is_enough else 1


def _submission(options: Namespace) -> Submission:
    """Return what the options of a score say of an entry.

    Raises:
        ValueError: something is missing, or another option contradicts it.
    """
    from bbrgym.benchmark.board import Submission

    against = {"--engine linux": options.engine == "linux", "--only": options.only, "--full": options.full}
    for option, is_given in {**against, "--seed": options.seed is not None}.items():
        if is_given:
            raise ValueError(f"--submit is without {option}: an entry has the scenarios of this release")
    return Submission(path=options.submit, author=options.author, licence=options.licence, made=options.made)


def _board_parser() -> OptionParser:
    parser = _parser("board")
    parser.add_argument(
        "action", metavar="ACTION", help="check replays entries; tracks lists the tracks, their rules and the seed"
    )
    parser.add_argument("entries", nargs="*", type=Path, metavar="ENTRY.json", help="what to check")
    return parser


def _board(arguments: list[str]) -> int:
    options = _board_parser().parse_intermixed_args(arguments)
    check_name("action", options.action, ("check", "tracks"))
    if (options.action == "check") != bool(options.entries):
        raise ValueError("give entries to check, and none for their tracks: bbrgym board check entry.json")
    from bbrgym.benchmark.board import TRACKS, board_code, board_seed, check_entries

    if options.action == "tracks":
        rules = {name: track.rule for name, track in TRACKS.items()}
        print("\n".join(f"{name}: {rule}" for name, rule in rules.items()))
        release = metadata.version("bbrgym")
        text = f"release {release}, code {board_code()}: seed {board_seed()}"
        tell(text, {"tracks": rules, "release": release, "code": board_code(), "seed": board_seed()})
        return 0
    checks = []
    for check in check_entries(options.entries):
        print(check.line, flush=True)
        checks.append(check)
    equal = sum(check.is_equal for check in checks)
    tell(f"{equal} of {len(checks)} equal", {"entries": [{**vars(check), "path": str(check.path)} for check in checks]})
    return 0 if equal == len(checks) else 1


def _tell_progress(text: str) -> None:
    print(f"{text} …", file=sys.stderr, flush=True)


def _report_parser() -> OptionParser:
    parser = _parser("report")
    parser.add_argument(
        "folder", nargs="?", type=Path, metavar="FOLDER", help="without it the newest in runs/benchmark"
    )
    parser.add_argument(
        "--export",
        action="store_true",
        help="also write its tables as CSV and LaTeX and its plots as PDF, into FOLDER/paper",
    )
    return parser


def _report(arguments: list[str]) -> int:
    from bbrgym.benchmark.paper_files import write_paper_files
    from bbrgym.benchmark.report import write_report
    from bbrgym.benchmark.results import load_benchmark

    options = _report_parser().parse_intermixed_args(arguments)
    directory = options.folder
    if directory is None:
        newest = max(benchmark_plans(), key=lambda path: path.stat().st_mtime, default=None)
        if newest is None:
            raise FileNotFoundError(f"no benchmark in {BENCHMARKS}: run `bbrgym benchmark`, or give its folder")
        directory = newest.parent
    result = load_benchmark(directory)
    print(f"Report: {write_report(result)}")
    if options.export:
        print(f"Tables and plots: {write_paper_files(result)}")
    return 0


def _export_parser() -> OptionParser:
    parser = _parser("export")
    parser.add_argument("agent", metavar="RUN", help="a training run, or an agent's folder; latest is the newest run")
    parser.add_argument("file", type=Path, metavar="FILE", help="NAME.onnx or NAME.h")
    return parser


def _export(arguments: list[str]) -> int:
    options = _export_parser().parse_args(arguments)
    path: Path = options.file
    if path.suffix not in (".onnx", ".h"):
        raise ValueError(f"the file must end with .onnx or .h, got '{path}'")
    from bbrgym.agents.c_header import write_c_header
    from bbrgym.agents.export import state_names, write_onnx
    from bbrgym.baselines.policy_file import read_policy

    policy = read_policy(options.agent)
    if path.suffix == ".h":
        write_c_header(policy, path)
        features = policy.spec["observation"]["features"]
        print(f"{path}: {path.stem}_reset and {path.stem}_step, with {len(features)} features per step")
        return 0
    write_onnx(policy, path)
    states = " and ".join(state_names(policy.network))
    print(
        f"{path}: observations (N, {policy.network.inputs}) to actions (N, {policy.network.outputs})"
        + (f", with the states {states} in and out" if states else "")
    )
    return 0


def _import_parser() -> OptionParser:
    parser = _parser("import")
    parser.add_argument("model", type=Path, metavar="MODEL", help="a file of another library")
    parser.add_argument("directory", type=Path, metavar="FOLDER", help="the agent's folder, which is written")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="what the model was trained with; see below")
    parser.add_argument(
        "--statistics",
        type=Path,
        metavar="FILE.npz",
        help="mean and var that its observations were normalised with; without it the model's own, if it has any",
    )
    parser.add_argument(
        "--ignore-clipping",
        action="store_true",
        help="import it although normalised observations were clipped in training",
    )
    return parser


def _import(arguments: list[str]) -> int:
    options = _import_parser().parse_intermixed_args(arguments)
    if bad := [setting for setting in options.settings if "=" not in setting]:
        raise ValueError(
            f"give settings as key=value, got {bad[0]!r}: bbrgym import MODEL FOLDER observation.history=3"
        )
    from bbrgym.baselines.policy_file import FILES

    folder: Path = options.directory
    if folder.exists() and not all((folder / name).is_file() for name in FILES):
        raise ValueError(f"'{folder}' exists and is no agent's folder: give another one")
    if (folder.parent / "run.json").is_file():
        raise ValueError(f"'{folder}' is of the training in '{folder.parent}': give another folder")

    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    from bbrgym.agents.card import TRAINED_IN
    from bbrgym.agents.importers import import_model
    from bbrgym.overrides import command, explaining, read_environment

    with explaining("config", options.settings), initialize_config_module("bbrgym.conf", version_base="1.3"):
        composed = compose("config", options.settings)
        read_environment(composed)
    named = {re.split(r"\W", one.lstrip("+~"))[0] for one in options.settings}
    groups = [group for group in ENVIRONMENT_GROUPS if group in named or group not in TRAINED_IN]
    config = {group: OmegaConf.to_container(composed[group], resolve=True) for group in groups}
    agent = import_model(options.model, config, options.statistics, options.ignore_clipping)
    agent.save(folder)
    observation, action = agent.spec.observation, agent.spec.action
    print(
        f"{folder}: {agent.training['imported']}, observations of {len(observation.features)} features x "
        f"{observation.history} steps, cwnd_gain {action.cwnd_gain}, pacing_gain {action.pacing_gain}, steps of "
        f"{f'{agent.spec.step_ms:g} ms' if agent.spec.step_ms else f'{agent.spec.step_rtts:g} RTTs'}\n"
        f"  {command('bbrgym evaluate', {'agent_path': folder})}"
    )
    return 0


def _call(module: str, function: str, *arguments: Any) -> Any:
    """Call a function of a module of bbrgym, which is imported now."""
    return getattr(import_module(f"bbrgym.{module}"), function)(*arguments)


def _header(arguments: list[str]) -> int:
    from bbrgym.baselines.controller_file import HEADER

    _parser("header").parse_args(arguments)
    print(HEADER)
    return 0


def _server_parser(command: str, port: int) -> OptionParser:
    """Return the parser of a command that serves what a folder's runs/ has."""
    parser = _parser(command)
    parser.add_argument("--port", type=int, default=port, metavar="N", help="TCP port on this machine")
    parser.add_argument("--root", type=Path, default=Path(), metavar="FOLDER", help="folder that has runs/")
    return parser


def _served(command: str, arguments: list[str]) -> Namespace:
    parser = COMMANDS[command].parser
    assert parser is not None
    options = parser().parse_args(arguments)
    if not options.root.is_dir():
        raise ValueError(f"--root must be a folder that has runs/, and there is no '{options.root}'")
    ports.check_port(options.port)
    return options


def _ui(arguments: list[str]) -> int:
    options = _served("ui", arguments)
    from bbrgym.agents.mlflow_store import run_ui, ui_page

    print(f"MLflow: http://127.0.0.1:{options.port}/{ui_page(options.root)} (Ctrl-C ends it)", flush=True)
    return run_ui(options.root, options.port)


def _lab(arguments: list[str]) -> int:
    options = _served("lab", arguments)
    from bbrgym import lab

    with lab.make_server(root=options.root, port=options.port) as server:
        print(f"Playground: http://127.0.0.1:{server.server_port}/ (Ctrl-C ends it)", flush=True)
        server.serve_forever()
    return 0


def _check_experiments(command: str, arguments: Sequence[str]) -> None:
    """Refuse the experiment of another command: it would run with settings that the experiment never meant.

    Raises:
        ValueError: naming the command that it belongs to.
    """
    folders: list[Traversable] = [resources.files("bbrgym.conf")]
    for option, value in itertools.zip_longest(arguments, arguments[1:], fillvalue=""):
        name, _, given = option.partition("=")
        if name in ("--config-dir", "-cd"):
            folders.append(Path(given or value))
    names = [a.partition("=")[2].split(",") for a in arguments if re.match(r"\+?experiment=", a)]
    for name in itertools.chain.from_iterable(names):
        files = [file for folder in folders if (file := folder / "experiment" / f"{name}.yaml").is_file()]
        owners = _commands_of(files[-1].read_text(encoding="utf-8")) if files else []
        has_scenarios = command == "benchmark" and any("benchmark.scenarios" in a for a in arguments)
        if owners and command not in owners and not has_scenarios:
            raise ValueError(f"experiment={name} belongs to bbrgym {' and bbrgym '.join(owners)}, not to {command}")


def _commands_of(experiment: str) -> list[str]:
    """Return the commands that an experiment, in YAML, has settings for."""
    from omegaconf import OmegaConf

    keys = OmegaConf.to_container(OmegaConf.create(experiment))
    assert isinstance(keys, dict)
    builds_on_another = any(isinstance(default, str) and default != "_self_" for default in keys.get("defaults") or ())
    is_training = builds_on_another or any(group in keys for group in _TRAINING_GROUPS)
    if "benchmark" in keys:
        return ["train", "benchmark", "demo"] if is_training else ["benchmark"]
    return ["train"] if is_training else []


def _overview() -> str:
    width = max(map(len, COMMANDS))
    return "\n".join(
        [
            "bbrgym: a reinforcement-learning gym for congestion control on a shared bottleneck",
            "",
            "usage: bbrgym <command> [group=choice …] [key=value …]",
            "",
            *(f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()),
            "",
            "`bbrgym <command> --help` lists groups, settings and examples; `bbrgym --version` prints the version.",
            'Completion: eval "$(bbrgym -sc install=bash)" in bash, and in zsh after bashcompinit; in fish '
            "`bbrgym -sc install=fish | source`.",
        ]
    )


def help_text(name: str, arguments: Sequence[str] = ()) -> str:
    """Return the help of a command, with the values of the configuration that the arguments choose from groups."""
    command = COMMANDS[name]
    examples = ["", "examples:"] if command.examples else []
    for example in command.examples:
        examples += " \\\n".join(wrap(example, "  ", "      ", room=2)).split("\n")
    lines = [*wrap(f"bbrgym {name}: {command.summary}"), "", *wrap(command.text)]
    if command.parser is None:
        lines += examples  # first, because they are what most readers want
    else:
        parser = command.parser()
        parser.description = "\n".join(lines)
        if command.has_output_options:
            for option, meaning in OPTIONS.items():
                parser.add_argument(option, action="store_true", help=meaning)
        lines = [parser.format_help().rstrip()]
    if command.groups:
        lines += ["", "groups (group=choice):"]
        width = max(map(len, command.groups)) + 2
        for group in command.groups:
            lines += wrap(", ".join(choices(group)), f"  {group:<{width}}", " " * (width + 2))
    if command.details is not None:
        lines += ["", command.details()]
    if settings := _settings(command, arguments):
        lines += ["", "settings (key=value):", *name_table(settings)]
    if command.parser is not None:
        return "\n".join([*lines, *examples])
    if command.has_output_options:
        lines += ["", "options:", *name_table(OPTIONS.items())]
    if command.groups:
        lines += [
            "",
            *wrap(
                "--config-dir DIR adds your own groups and choices. --cfg job prints the configuration without "
                "running anything. -m runs every combination of key=a,b, with hydra/launcher=local several at a time "
                "(docs/sweeps.md). --hydra-help lists more. BBRGYM_DEBUG=1 shows tracebacks."
            ),
        ]
    return "\n".join(lines)


def _settings(command: Command, arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Return the settings of a command's help, with the values that they have by default, and what they mean."""
    composed: Any = None
    if any("{}" in entry for entry in command.settings):
        from hydra import compose, initialize_config_module
        from omegaconf import OmegaConf

        from bbrgym.overrides import store_papers

        config_name, *added = command.config
        pairs = ((one, *one.partition("=")[::2]) for one in arguments)
        chosen = [one for one, group, choice in pairs if group in command.groups and choice in choices(group)]
        store_papers(chosen)
        with initialize_config_module("bbrgym.conf", version_base="1.3"):
            composed = compose(config_name, [*added, *chosen])
    rows = []
    for entry in command.settings:
        setting, _, text = entry.partition(" ")
        key, _, value = setting.partition("=")
        if value == "{}":
            found = OmegaConf.select(composed, key)
            plain = OmegaConf.to_container(found) if OmegaConf.is_config(found) else found
            value = json.dumps(plain, separators=(",", ":"))
        rows.append((f"{key}={value}", text))
    return rows


_TRAINING_GROUPS = (*ENVIRONMENT_GROUPS, "agent", "train", "curriculum")

COMMANDS: dict[str, Command] = {
    "simulate": Command(
        "simulate flows on one link: a table, a picture, a trace",
        partial(_call, "simulation", "run_simulate"),
        "Run one flow per algorithm, or per RTT, and print what each flow got. Every field of docs/scenarios.md can be "
        "set. The same scenario and seed give the same numbers.",
        parser=partial(_call, "simulation", "simulate_parser"),
        examples=(
            "bbrgym simulate bbr cubic",
            "bbrgym simulate bbr cubic --rate 20 --rtt 10,50 --plot duel.png",
            "bbrgym simulate cubic --rtt 10,50 --buffer 5 queue=codel flows.1.start_s=5",
            "bbrgym simulate policy bbr3 --engine ns3 --save duel.parquet",
        ),
        has_output_options=True,
    ),
    "train": Command(
        "train an agent",
        _train,
        "Train an agent to choose cwnd_gain and pacing_gain in the environment that the groups define. Everything is "
        "written to runs/train/<date>_<time>_<name>: the best and the last agent, checkpoints, a log, a curve.",
        groups=(*_TRAINING_GROUPS, "tracking", "experiment"),
        settings=(
            "seed={} seed of everything random",
            "name=… name of the run",
            "train.total_steps={} decisions to learn from, rounded up to whole steps; depends on the agent",
            "train.max_minutes=10 time limit; none by default",
            "train.n_envs={} engines that run in parallel; depends on the agent",
            "train.resume=RUN resume a stopped run; latest is the newest one",
        ),
        examples=(
            "bbrgym train",
            "bbrgym train agent=sac scenario=single seed=7 train.total_steps=100000",
            "bbrgym train -m seed=1,2,3 agent=ppo,sac",
            "bbrgym train -m hydra/launcher=local hydra/sweeper=optuna 'agent.gamma=interval(0.9,0.999)'",
            "bbrgym train train.resume=runs/train/2026-01-31_12-00-00_ppo-1 train.total_steps=600000",
        ),
        has_output_options=True,
    ),
    "evaluate": Command(
        "run a trained agent in a scenario, and print the metrics of every flow",
        _evaluate,
        "Run one episode per seed, with the observation, action and step that the agent was trained with. Results and "
        "traces are written to runs/evaluate/<date>_<time>_<name>.",
        groups=("scenario", "engine", "tracking"),
        settings=(
            "agent_path=RUN a training run, or an agent's folder in it (RUN/final); latest is the newest run",
            "seeds={} one episode each",
            "warmup={} fraction of the duration that is not measured",
            "other_agents=bbr of several agents, only the first is driven, beside BBR; by default all are",
        ),
        examples=(
            "bbrgym evaluate agent_path=runs/train/2026-01-31_12-00-00_ppo-1 scenario=duel",
            "bbrgym evaluate agent_path=RUN scenario=single scenario.rate_mbps=50 seeds=[4,5]",
        ),
        has_output_options=True,
        config=("evaluate",),
    ),
    "benchmark": Command(
        "compare algorithms and agents: competitors x scenarios x seeds, a table and a report",
        _benchmark,
        "Runs are executed in parallel and stored in runs/benchmark/<name>. Finished runs are not repeated, so the "
        "same command resumes a benchmark that was stopped.",
        groups=("experiment", "engine", "tracking"),
        settings=(
            "benchmark.competitors=[bbr,cubic] all of the experiment's by default",
            "benchmark.agent=RUN add a trained agent as a competitor; latest is the newest run",
            "benchmark.seeds=[1,2] of every scenario and competitor; by default the experiment's",
            "benchmark.executor.workers=2 runs in parallel; one per core by default",
        ),
        examples=(
            "bbrgym benchmark experiment=rtt_fairness",
            "bbrgym benchmark experiment=friendliness benchmark.competitors=[bbr,bbr2] benchmark.agent=RUN",
            "bbrgym benchmark experiment=paper/acw-jain preset=quick",
            "bbrgym benchmark experiment=rfc9743 competitor=bbr3",
        ),
        has_output_options=True,
    ),
    "score": Command(
        "judge one algorithm, policy, model, Python callable or C file, in a minute",
        _score,
        "Run WHAT in 114 scenarios that are drawn for this run, beside every published algorithm, and judge it by "
        "twelve criteria of RFC 9743. Code in C and in Python runs in confined processes (docs/score.md). "
        "--engine linux judges it by twelve criteria in real time on this machine's network stack, in minutes.",
        parser=_score_parser,
        examples=(
            "bbrgym score examples/aimd.c",
            "bbrgym score bbr3 --seed 7 --html bbr3.html",
            "bbrgym score mine.c increase=2 --at-least 0.5 --json",
            "bbrgym score package.module:decide --no-rfc9743",
            "bbrgym score --engine linux stack.yaml --at-least 0.75",
            "bbrgym score mine.c --submit mine.json --author Me --licence MIT --made 'by hand'",
        ),
        has_output_options=True,
        has_verdict=True,
    ),
    "board": Command(
        "check entries of the scoreboard: replay them, and compare the scores bit by bit",
        _board,
        "An entry is what `bbrgym score WHAT --submit NAME.json` writes. Its code runs in confined processes with "
        "limits. The exit status is 1 if one is refused or not equal (docs/results/board.md).",
        parser=_board_parser,
        examples=("bbrgym board check mine.json", "bbrgym board tracks"),
        has_output_options=True,
        has_verdict=True,
    ),
    "list": Command(
        "list algorithms, ids, scenarios, features, rewards, experiments or saved runs",
        partial(_call, "listing", "run_list"),
        "Print the names of a kind and a line about each.",
        parser=partial(_call, "listing", "list_parser"),
        examples=("bbrgym list controllers", "bbrgym list ids", "bbrgym list runs --json"),
        has_output_options=True,
    ),
    "break": Command(
        "find the paths on which an algorithm, policy or C file fails, and shrink them to a line each",
        partial(_call, "break_command", "run_break"),
        "bbrgym break WHAT [name=number ...] searches a box of paths for a minute: regret, starved, stalled, bloated, "
        "unfair, harmful, unstable, crash. What it finds is shrunk to the smallest path that still shows it, and "
        "printed with the command that replays it (docs/break.md). WHAT is as of `bbrgym score`.",
        parser=partial(_call, "break_command", "break_parser"),
        examples=(
            "bbrgym break bbr3",
            "bbrgym break examples/aimd.c --at-most regret=0.4 --pytest test_aimd.py",
            "bbrgym break bbr3 space.rate_mbps=[1,50] space.flows=[2,4] --property unfair --candidates 200",
        ),
        has_output_options=True,
        has_verdict=True,
    ),
    "certify": Command(
        "prove or refute what a trained policy does, whatever it observes",
        partial(_call, "certify_command", "run_certify"),
        "Print bounds of its window and its pacing, whether the window grows while a queue builds, and what it asks "
        "for on an empty path. --property 'backlog >= 20, loss_rate = 0 -> cwnd_gain <= 2' asks for something else; "
        "? stands for the best number that can be proved (docs/certificates.md).",
        parser=partial(_call, "certify_command", "certify_parser"),
        examples=(
            "bbrgym certify runs/train/2026-01-31_12-00-00_ppo-1",
            "bbrgym certify RUN --where 'min_rtt >= 5, min_rtt <= 200' --episodes 64",
            "bbrgym certify RUN --property 'backlog >= ? -> cwnd_gain <= last'",
        ),
        has_output_options=True,
        has_verdict=True,
    ),
    "atlas": Command(
        "make, verify and list offline data sets: the same bits on every machine",
        partial(_call, "atlas_command", "run_atlas"),
        "A data set is a manifest: scenarios, seeds, what acts, and the hash of each shard. make simulates the shards "
        "that are not there yet, verify says which shard is wrong and why (docs/atlas.md).",
        parser=partial(_call, "atlas_command", "atlas_parser"),
        examples=(
            "bbrgym atlas list",
            "bbrgym atlas make families --shards 0-1",
            "bbrgym atlas make families --levels expert,yardsticks --minari executor.workers=8",
            "bbrgym atlas verify families",
            "bbrgym atlas verify families --shards 0 --again",
        ),
        has_output_options=True,
        has_verdict=True,
    ),
    "traces": Command(
        "list public sets of traces, or the traces of a folder; or write a synthetic set",
        partial(_call, "benchmark.trace_sets", "run_traces"),
        "Without a folder: where the public sets are, their formats and licences, and how to cite them. With one: what "
        "`bbrgym benchmark experiment=traces folder=FOLDER` reads, and why it leaves files out (docs/traces.md).",
        parser=partial(_call, "benchmark.trace_sets", "traces_parser"),
        examples=("bbrgym traces", "bbrgym traces mahimahi/traces", "bbrgym traces --synthetic synthetic --seed 3"),
    ),
    "papers": Command(
        "reproduce a figure of a paper: published and measured in one table and one picture",
        partial(_call, "benchmark.papers", "run_papers"),
        "Without a figure: all of them by paper, and about how long each takes. With one or several: run the "
        "experiment, print what was published and measured with two verdicts, order and value, and write "
        "runs/papers/FIGURE/ENGINE.png. Finished runs are kept. key=value changes a setting of the experiment "
        "(docs/reproduce.md).",
        parser=partial(_call, "benchmark.papers", "papers_parser"),
        examples=(
            "bbrgym papers",
            "bbrgym papers acw-jain",
            "bbrgym papers ablation/bbr-acw --engine ns3",
            "bbrgym papers acw-latency benchmark.seeds=[1] benchmark.competitors=[bbr,bbq]",
        ),
    ),
    "report": Command(
        "write the report of a benchmark again",
        _report,
        "The benchmark may be unfinished.",
        parser=_report_parser,
        examples=("bbrgym report", "bbrgym report runs/benchmark/rtt_fairness --export"),
    ),
    "export": Command(
        "write a trained agent as an ONNX model or a C header",
        _export,
        "The model maps observations to actions; the states of a recurrent agent are inputs and outputs. Its metadata "
        "describe observations and actions. The header (C99 and C++) maps what a sender measured to gains; its names "
        "begin with the file's. Both have the facts of the model card (docs/policy.md).",
        parser=_export_parser,
        examples=(
            "bbrgym export runs/train/2026-01-31_12-00-00_ppo-1 agent.onnx",
            "bbrgym export runs/train/2026-01-31_12-00-00_ppo-1 policy.h",
        ),
    ),
    "import": Command(
        "turn a model of another library into an agent: Stable-Baselines3, CleanRL, ONNX",
        _import,
        "Write the agent's folder, for evaluate, benchmark, export and Flow('policy'). Give the observation, the "
        "action and the step that the model was trained with, if they are not the defaults. Nothing in the file is "
        "executed (docs/import.md).",
        parser=_import_parser,
        groups=("observation", "action", "env"),
        settings=(
            "observation.features=[…] what it observes; observation.history=3",
            "action.cwnd_gain=[1.05,21] the bounds of its gains; action.pacing_gain",
            "action.cwnd_scale=excess what cwnd_gain scales; bounds of 1 and less need ratio or packets",
            "env.step_ms=100 time between decisions",
            "scenario=duel what it was trained on, else unknown; likewise reward.terms.delay=2, engine=ns3",
        ),
        examples=(
            "bbrgym import model.zip agents/sb3",
            "bbrgym import agent.cleanrl_model agents/cleanrl --statistics statistics.npz",
            "bbrgym import policy.onnx agents/onnx observation.history=3 env.step_ms=50",
            "bbrgym import model.zip agents/ratio action.cwnd_scale=ratio 'action.cwnd_gain=[0.5,4]'",
        ),
    ),
    "demo": Command(
        "train for a few minutes, then benchmark the agent: the whole project in one command",
        _demo,
        "The same as `bbrgym train experiment=demo` and `bbrgym benchmark experiment=demo benchmark.agent=…`.",
        groups=(*ENVIRONMENT_GROUPS, "agent", "tracking"),
        settings=(
            "train.max_minutes={} time limit of the training",
            "benchmark.competitors=[bbr,cubic] all, and backlog, by default",
            "benchmark.seeds={} of every scenario and competitor",
        ),
        examples=("bbrgym demo", "bbrgym demo train.max_minutes=30 tracking=none"),
        config=("config", "experiment=demo"),
    ),
    "send": Command(
        "send a flow with one of our algorithms to another machine",
        partial(_call, "envs.linux.commands", "run_send"),
        "Send zeros over UDP to `bbrgym receive` at HOST:PORT, or over TCP to any receiver, and print a line per "
        "interval, as iperf3 does. "
        "The transfer is what the receiver has acknowledged. The exit status is 1 if its report at the end is missing.",
        parser=partial(_call, "envs.linux.commands", "send_parser"),
        examples=(
            "bbrgym send 127.0.0.1:5201",
            "bbrgym send 192.0.2.1:5201 --algorithm bbr --seconds 30 --rows bbr.parquet",
            "bbrgym send [2001:db8::1]:5201 --policy runs/train/2026-01-31_12-00-00_ppo-1 --bytes 100000000 --json",
        ),
    ),
    "receive": Command(
        "receive the flows of `bbrgym send`",
        partial(_call, "envs.linux.commands", "run_receive"),
        "Receive one flow after another, and print a line per interval. Other senders are told that it is busy. "
        "Without --host, only this machine can send to it. A sender must prove its address first (docs/wire.md).",
        parser=partial(_call, "envs.linux.commands", "receive_parser"),
        examples=("bbrgym receive --once", "bbrgym receive --host 0.0.0.0 --port 5201"),
    ),
    "header": Command(
        "print where the header of controllers in C lies",
        _header,
        "A C file that defines what bbrgym_controller.h describes is a controller (docs/score.md). It is compiled with "
        'cc -I"$(dirname "$(bbrgym header)")".',
        parser=partial(_parser, "header"),
    ),
    "ns3": Command(
        "act as an ns3-gym simulation, for any agent that speaks its protocol",
        partial(_call, "envs.ns3gym.server", "serve"),
        "Connect to an ns3-gym agent that listens on this machine, and simulate one episode for it.",
        parser=partial(_call, "envs.ns3gym.server", "ns3_parser"),
        examples=("bbrgym ns3 --openGymPort=5555 --simSeed=1 --rate_mbps=20",),
        details=partial(_call, "envs.ns3gym.server", "describe_messages"),
    ),
    "ui": Command(
        "view tracked runs in MLflow, from this machine only",
        _ui,
        "Serve runs/mlflow.db.",
        parser=partial(_server_parser, "ui", 5000),
        examples=("bbrgym ui --port 5001",),
    ),
    "lab": Command(
        "open the playground on this machine, with its saved runs",
        _lab,
        "Serve the page that `make playground` built (docs/playground.md); wheels have it, too. It lists the "
        "traces of evaluations and benchmarks in runs/, and simulates the same scenarios beside them. Drop a saved "
        "trace, or a file of rates, on it.",
        parser=partial(_server_parser, "lab", ports.LAB),
        examples=("bbrgym lab --port 8001",),
    ),
}
"""The subcommands, in the order of their use."""


if __name__ == "__main__":
    from bbrgym import cli  # by its name, under which other processes import it

    sys.exit(cli.main())
