"""`bbrgym break`: search a box of paths for those on which a controller fails (docs/break.md)."""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import yaml

from bbrgym.baselines import registry
from bbrgym.benchmark.breaking import report
from bbrgym.benchmark.breaking.failures import MOST, Failure, look, read_path, replay, run_for_real, settle
from bbrgym.benchmark.breaking.find import Found, find
from bbrgym.benchmark.breaking.judging import Judge, Trial, measure_job
from bbrgym.benchmark.breaking.properties import PROPERTIES, check_can_show, read_limits
from bbrgym.benchmark.breaking.space import Space
from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.sandbox import ConfinedJob, Sandbox
from bbrgym.checks import check_integer, check_name, check_number, read_groups, read_parameters
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.executors import ExecutorConfig, LocalConfig, TaskExecutor, make_executor
from bbrgym.files import check_file
from bbrgym.options import OptionParser
from bbrgym.output import is_quiet, tell
from bbrgym.terminal import make_console

_MINUTES: Final = 1.0
_SEARCHING: Final = 0.6
"""What part of the minutes is for the search; the rest is for shrinking."""


def break_parser() -> OptionParser:
    """Return the parser of `bbrgym break`."""
    parser = OptionParser("break")
    parser.add_argument("what", metavar="WHAT", help="as of `bbrgym score`")
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="NAME=VALUE",
        help="a parameter of an algorithm or a C file; space.FIELD=[LEAST,MOST], a line of the box of paths; "
        "executor=ray, executor.workers=2",
    )
    parser.add_argument("--property", action="append", metavar="NAME", help=f"{', '.join(PROPERTIES)}; all by default")
    parser.add_argument("--at-most", action="append", default=[], metavar="NAME=NUMBER", help="exit with 1 above it")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="decides what is drawn")
    parser.add_argument("--minutes", type=float, metavar="M", help="limit of the time (default: 1, if no --candidates)")
    parser.add_argument("--candidates", type=int, metavar="N", help="exact budget: how many paths are judged")
    parser.add_argument("--most", type=int, default=MOST, metavar="N", help="failures to print")
    parser.add_argument("--space", type=Path, metavar="FILE", help="a box of your own, in YAML")
    parser.add_argument("--no-shrink", action="store_true", help="print paths as they were found")
    parser.add_argument("--replay", metavar="PATH", help="judge given paths: a YAML file, or YAML itself")
    parser.add_argument("--confirm", metavar="ns3", help="run what was found in ns-3, too")
    parser.add_argument("--engine", default="native", metavar="native|linux", help="linux: replay in real time")
    parser.add_argument("--like", metavar="ALGORITHM", help="with --engine linux: what is searched in its place")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the page into a file")
    parser.add_argument("--pytest", type=Path, metavar="FILE", help="write a test per failure into a file")
    return parser


def run_break(arguments: list[str]) -> int:
    """Run the command.

    Returns:
        0; 1 if a failure above `--at-most` was found.
    """
    options = break_parser().parse_intermixed_args(arguments)
    began = time.monotonic()
    check_name("engine", options.engine, ("native", "linux"))
    if options.confirm is not None:
        check_name("engine of --confirm", options.confirm, ("ns3",))
    check_integer("--seed", options.seed, at_least=0, below=2**31)
    check_integer("--candidates", options.candidates, at_least=1, or_none=True)
    check_integer("--most", options.most, at_least=1)
    check_number("--minutes", options.minutes, above=0, or_none=True)
    for option, path in (("--html", options.html), ("--pytest", options.pytest)):
        if path is not None:
            check_file(option, path)
    if options.pytest is not None and options.engine == "linux":
        raise ValueError("--pytest writes tests of the engine native: give it without --engine linux")
    at_most = read_limits(options.at_most)
    names = options.property or list(PROPERTIES)
    for name in names:
        check_name("property", name, PROPERTIES)
    if at_most:
        at_most.setdefault("crash", PROPERTIES["crash"].limit)  # what crashes is within no limit
    judged = {*names, *at_most, "crash"}  # what crashes has nothing else to show
    limits = {name: at_most.get(name, PROPERTIES[name].limit) for name in PROPERTIES if name in judged}
    groups, rest = read_groups(options.settings, ("space", "executor"))
    searched, real = _candidates(options, read_parameters(rest))
    space, executor = Space.read(options.space, groups["space"]), ExecutorConfig.of(groups["executor"])
    paths = [] if options.replay is None else _read_paths(options.replay, options.seed)
    if options.replay is None:
        check_can_show(options.property or (), space)
    else:
        _check_show(options.property or (), paths)
    with ExitStack() as stack:
        running = _start_executor(searched, executor)
        stack.callback(running.shutdown, cancel_futures=True)
        _check_runs(searched, running)
        judge = Judge(searched, limits, running)
        if options.replay is None:
            findings = _search(options, judge, space, began)
        else:
            findings = _replay(judge, paths, options.seed, real)
        failures = list(findings.failures)
        if options.confirm is not None:
            failures = [replay(one, searched, judge, options.confirm) for one in failures]
        if real is not None and options.replay is None:
            failures = [replay(one, real, judge, "linux") for one in failures]
            findings = dataclasses.replace(findings, candidate=real, stand_in=searched, engine="linux")
        findings = dataclasses.replace(findings, failures=failures, seconds=time.monotonic() - began)
        report.print_findings(findings, make_console())
        if options.html is not None:
            report.write_page(findings, options.html, judge)
    if options.pytest is not None:
        report.write_tests(findings, options.pytest)
    return _end(options, findings, at_most)


def _check_show(names: Sequence[str], paths: Sequence[Trial]) -> None:
    """Check that each property can be seen on one of the given paths.

    Raises:
        ValueError: it cannot.
    """
    for name in names:
        if not any(PROPERTIES[name].applies(path.scenario) for path in paths):
            raise ValueError(f"no given path can show {name}: {PROPERTIES[name].definition}")


def _end(options: argparse.Namespace, findings: report.Findings, at_most: dict[str, float]) -> int:
    above = [one for one in findings.failures if one.name in at_most and findings.stays(one)]
    facts = [findings.headline, f"{findings.seconds:.0f} s"]
    if findings.first_s is not None:
        facts.append(f"the first after {findings.first_s:.1f} s")
    if at_most:
        facts.append(f"{len(above)} above --at-most")
    facts += [f"{name}: {path}" for name, path in (("page", options.html), ("tests", options.pytest)) if path]
    tell("; ".join(facts), findings.to_dict() | {"is_enough": not above})
    if findings.found is not None and not findings.found.is_complete:
        raise KeyboardInterrupt
    return 1 if above else 0


def _candidates(options: argparse.Namespace, parameters: dict[str, float]) -> tuple[Candidate, Candidate | None]:
    """Return what is searched, and what is replayed in real time, if so."""
    if options.engine == "native":
        if options.like is not None:
            raise ValueError("--like is for --engine linux: it says which algorithm is searched in place of WHAT")
        return Candidate.of(options.what, parameters), None
    real = Candidate.of(options.what, parameters, "linux")
    like = options.like or registry.COUNTERPARTS.get(options.what)
    if like is None and real.competitor.algorithm in registry.controllers():
        like = options.what
    if like is None and options.replay is not None:
        like = "cubic"  # which does not run: the paths are given
    if like is None:
        raise ValueError(f"say with --like which algorithm '{options.what}' is like: it is searched in its place")
    return Candidate.of(like, parameters if like == options.what else {}), real


def _check_runs(candidate: Candidate, executor: TaskExecutor) -> None:
    """Check that a C file is a controller, and takes its parameters; only its confined process can read it.

    Raises:
        ValueError: it is none, or does not take them.
    """
    if candidate.confinement != "c":
        return
    scenario = Trial(Scenario(rate_mbps=1, duration_s=0.1, flows=(Flow("agent"),)), 1).driven_by(candidate.competitor)
    job = ConfinedJob([scenario], [1], warmup=0.0, **candidate.in_job(seconds=2.0))
    reply = executor.submit(measure_job, job.to_dict()).result()
    if reply["is_refused"]:
        raise ValueError(reply["error"])


def _start_executor(candidate: Candidate, config: ExecutorConfig) -> TaskExecutor:
    """Return the executor of a search: a sandbox for code of unknown quality, else what the settings say."""
    is_confined = candidate.confinement != "none"
    if is_confined and not isinstance(config, LocalConfig):
        raise ValueError("code in C and in Python is confined on this machine: executor must be local")
    if isinstance(config, LocalConfig) and (is_confined or platform.system() == "Linux"):
        return Sandbox(config.workers)  # whose processes are warm
    return make_executor(config)


def _search(options: argparse.Namespace, judge: Judge, space: Space, began: float) -> report.Findings:
    minutes = options.minutes
    if minutes is None and options.candidates is None:
        minutes = _MINUTES
    first_s: list[float] = []

    def progress(found: Found) -> None:
        if found.first is not None and not first_s:
            first_s.append(time.monotonic() - began)
        if found.candidates % 240 == 0:
            _tell_progress(f"{found.candidates} paths, failures of {len(found.failures)} kinds")

    found = find(
        judge,
        space,
        options.seed,
        candidates=options.candidates,
        is_over=_after(began, None if minutes is None else 60 * minutes * _SEARCHING),
        tell=progress,
    )
    ends = _after(began, None if minutes is None else 60 * minutes)
    failures = settle(
        judge,
        found,
        most=options.most,
        shrinks=not options.no_shrink,
        is_over=lambda: not found.is_complete or ends(),
        tell=_tell_progress,
    )
    return report.Findings(
        candidate=judge.candidate,
        limits=judge.limits,
        seed=options.seed,
        found=found,
        failures=failures,
        first_s=first_s[0] if first_s else None,
        missing=judge.missing,
    )


def _tell_progress(text: str) -> None:
    if not is_quiet():
        print(f"{text} …", file=sys.stderr, flush=True)


def _after(began: float, seconds: float | None) -> Callable[[], bool]:
    """Return what says whether so many seconds have passed since; None: never."""
    return lambda: seconds is not None and time.monotonic() - began >= seconds


def _replay(judge: Judge, trials: Sequence[Trial], seed: int, real: Candidate | None) -> report.Findings:
    failures: list[Failure] = []
    passed = 0
    for trial in trials:
        if real is None:
            looked = [look(judge, name, trial) for name in judge.limits if PROPERTIES[name].applies(trial.scenario)]
            found = [one for one in looked if one is not None]
        else:
            found = run_for_real(real, judge, [trial])
        failures += found
        passed += not found
    return report.Findings(
        candidate=judge.candidate if real is None else real,
        limits=judge.limits,
        seed=seed,
        found=None,
        failures=sorted(failures, key=lambda one: -one.verdict.severity),
        missing=judge.missing,
        engine="native" if real is None else "linux",
        passed=passed,
    )


def _read_paths(given: str, seed: int) -> list[Trial]:
    """Return the paths of a YAML file, or of YAML; each can have a `seed`."""
    is_text = given.lstrip()[:1] in ("{", "[")
    if not is_text and not os.path.isfile(given):
        raise FileNotFoundError(f"--replay must be a YAML file or YAML in braces, and there is no file '{given}'")
    text = given if is_text else Path(given).read_text(encoding="utf-8")
    try:
        plain = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"--replay: {error}") from error
    entries = plain if isinstance(plain, list) else [plain]
    if not entries:
        raise ValueError("--replay must have a path, got none")
    trials = []
    for entry in entries:
        if not isinstance(entry, dict):
            raise ValueError(f"--replay must have paths, mappings of the fields of a scenario, got {entry!r}")
        fields = {name: value for name, value in entry.items() if name != "seed"}
        own_seed = check_integer("seed of a path", entry.get("seed", seed), at_least=0, below=2**31)
        scenario: Scenario = read_path(fields)
        trials.append(Trial(scenario, own_seed))
    return trials
