"""A failure as a test: what `bbrgym break --pytest FILE` writes calls this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bbrgym.benchmark.breaking.failures import read_path
from bbrgym.benchmark.breaking.judging import Judge, Trial
from bbrgym.benchmark.breaking.properties import PROPERTIES
from bbrgym.benchmark.candidate import Candidate
from bbrgym.checks import check_integer, check_name


def measure_property(
    what: str, name: str, path: Mapping[str, Any], seed: int, parameters: Mapping[str, float] | None = None
) -> float:
    """Return the value of a property of a candidate on a path, in the engine native.

    Args:
        what: as of `bbrgym break`.
        name: of the property, as `regret`.
        path: the fields of a scenario. Flows without an algorithm are the candidate's.
        seed: of the run.
        parameters: of an algorithm or a C file.

    Returns:
        The value, in the unit of docs/break.md; more is worse. 0 where the candidate is far from the limit.

    Raises:
        FileNotFoundError, ValueError: there is no such candidate or property, or the path is not valid.
        RuntimeError: the candidate crashes, and `crash` is not what is measured.
    """
    check_name("property", name, PROPERTIES)
    check_integer("seed", seed, at_least=0, below=2**31)
    # A limit of 0 runs the yardsticks in any case.
    judge = Judge(Candidate.of(what, parameters), {name: 0.0})
    trial = Trial(read_path(path), seed)
    if not PROPERTIES[name].applies(trial.scenario):
        raise ValueError(f"no run of this path can show {name}: {PROPERTIES[name].definition}")
    (own,) = judge.own([trial])
    if name == "crash":
        return float("error" in own)
    if "error" in own:
        raise RuntimeError(f"{what} fails: {own['error']}")
    return judge.judge([trial])[0][name].value
