"""`bbrgym list KIND`: the names that commands take, with a line about each."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bbrgym import conf
from bbrgym.agents.saved_runs import RUNS, benchmark_plans, trainings
from bbrgym.agents.sweep import best_score
from bbrgym.agents.tracking import read_run
from bbrgym.baselines import registry
from bbrgym.checks import check_name
from bbrgym.envs import environment_ids
from bbrgym.envs.named import scenario_names
from bbrgym.envs.observation import DEFAULT_FEATURES, FEATURES
from bbrgym.envs.reward import DEFAULT_TERMS, TERMS
from bbrgym.files import DAMAGES
from bbrgym.layout import name_table, wrap
from bbrgym.options import OptionParser
from bbrgym.output import tell

Rows = list[tuple[str, str]]


def list_parser() -> OptionParser:
    """Return the parser of `bbrgym list`."""
    parser = OptionParser("list")
    parser.add_argument("kind", metavar="KIND", help=f"one of {', '.join(KINDS)}")
    return parser


def run_list(arguments: list[str]) -> int:
    """Print the names of a kind."""
    kind = list_parser().parse_args(arguments).kind
    check_name("kind", kind, KINDS)
    rows, usage = KINDS[kind][0](), KINDS[kind][1]
    lines = [*name_table(rows, indent=""), "", *wrap(usage)] if rows else wrap(_NO_RUNS)
    tell("\n".join(lines), {kind: [{"name": name, "text": text} for name, text in rows]})
    return 0


def _controllers() -> Rows:
    return [*registry.controllers().items(), *registry.COMPARATORS.items()]


def _ids() -> Rows:
    return [(id, _scenario(arguments.get("scenario"))) for id, arguments in environment_ids().items()]


def _scenarios() -> Rows:
    return [(name, _scenario(name)) for name in scenario_names()]


def _scenario(name: str | None) -> str:
    if name is None:
        return conf.description("scenario", "default")
    if name.startswith("paper/"):
        return f"One of the scenarios of the experiments {name}-…, drawn anew in each episode."
    return conf.description("scenario", name)


def _features() -> Rows:
    return [(one.name, _marked(one.meaning, one.name in DEFAULT_FEATURES)) for one in FEATURES.values()]


def _rewards() -> Rows:
    return [(name, _marked(term.meaning, name in DEFAULT_TERMS)) for name, term in TERMS.items()]


def _marked(text: str, is_default: bool) -> str:
    return f"{text} (default)" if is_default else text


def _experiments() -> Rows:
    return [(name, conf.description("experiment", name)) for name in conf.choices("experiment")]


def _runs() -> Rows:
    evaluations = (
        (path.parent, read_run(path.parent)) for path in sorted(RUNS.glob("evaluate/*/run.json"), reverse=True)
    )
    return [
        *((str(path), _training(path, record)) for path, record in trainings().items()),
        *((str(path), _evaluation(record)) for path, record in evaluations if record is not None),
        *((str(path.parent), _benchmark(path)) for path in benchmark_plans()),
    ]


def _training(directory: Path, record: dict[str, Any]) -> str:
    best = best_score(directory)
    score = "" if math.isnan(best) else f", best score {best:.3f}"
    return f"{record['run_name'].partition(' (')[0]}: {_state(record)}{score}"


def _evaluation(record: dict[str, Any]) -> str:
    return f"{record['run_name']}: {_state(record)}, of {record['params'].get('agent_path', 'an unknown agent')}"


def _state(record: dict[str, Any]) -> str:
    when = str(record.get("ended") or record["started"])[:16].replace("T", " ")
    return f"{record['status'].lower()} {when}"


def _benchmark(path: Path) -> str:
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
        return f"benchmark of {', '.join(dict.fromkeys(run['competitor'] for run in plan['runs']))}"
    except DAMAGES:
        return "a benchmark that cannot be read"


KINDS: Final[dict[str, tuple[Callable[[], Rows], str]]] = {
    "controllers": (_controllers, "bbrgym simulate NAME … runs one; docs/algorithms has a page of each."),
    "ids": (_ids, "gymnasium.make(NAME) makes one, after `import bbrgym`."),
    "scenarios": (_scenarios, "bbrgym train scenario=NAME trains in one."),
    "features": (_features, "bbrgym train observation.features=[NAME,…] chooses them."),
    "rewards": (_rewards, "bbrgym train ++reward.terms.NAME=WEIGHT weighs one; docs/rewards.md: your own."),
    "experiments": (
        _experiments,
        "bbrgym benchmark experiment=NAME runs one; those of trainings are for bbrgym train.",
    ),
    "runs": (_runs, "bbrgym evaluate agent_path=NAME, or latest, drives flows with a training's agent."),
}
"""What can be listed: the rows, and how a name is used."""

_NO_RUNS: Final = f"None in {RUNS} yet: bbrgym train, evaluate and benchmark write them there."
