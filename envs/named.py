"""Scenarios by name: those of conf/scenario (`duel`), and the ground of each paper (`paper/acw`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from bbrgym.checks import check_name
from bbrgym.conf import choices


@cache
def scenario_names() -> tuple[str, ...]:
    """Return the names of all scenarios; `paper/<paper>` is one for all experiments of a paper."""
    return tuple(choices("scenario"))


def named_scenario(name: str) -> dict[str, Any]:
    """Return the plain mapping of a scenario or of a distribution, for `Distribution.from_dict`.

    The ground of a paper is a choice of the scenarios of its experiments, all equally likely, with their first presets.
    An agent has the first flow, and BBR those whose algorithm the paper varies. The engines' own `cubic-stock` is
    `cubic`, which every engine has.

    Raises:
        ValueError: there is no such name; the message has the known ones.
    """
    check_name("scenario", name, scenario_names())
    group, _, paper = name.rpartition("/")
    if not group:
        own = _load(f"scenario/{name}")
        return own if "choice" in own else {**_load("scenario/fields/plain"), **own}
    stems = [stem for stem in choices("experiment/paper") if stem.split("-")[0] == paper]
    experiments = [_load("benchmark/paper", f"experiment/paper/{stem}")["benchmark"]["scenarios"] for stem in stems]
    return {"choice": [_with_agent(scenario) for scenarios in experiments for scenario in scenarios.values()]}


def _with_agent(scenario: Mapping[str, Any]) -> dict[str, Any]:
    first, *others = scenario["flows"]
    others = [flow | {"algorithm": flow.get("algorithm", "bbr").removesuffix("-stock")} for flow in others]
    return {**scenario, "flows": [first | {"algorithm": "agent"}, *others]}


@cache
def _load(*paths: str) -> dict[str, Any]:
    """Return the content of files of conf/, each of which changes those before."""
    from omegaconf import OmegaConf  # importing it takes long, compared with the package

    folder = resources.files("bbrgym.conf")
    files = [OmegaConf.create((folder / f"{path}.yaml").read_text(encoding="utf-8")) for path in paths]
    plain: Any = OmegaConf.to_container(OmegaConf.merge(*files), resolve=True)
    return {key: value for key, value in plain.items() if key != "defaults"}
