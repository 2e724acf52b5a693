"""bbrgym: a reinforcement-learning gym for congestion control on a shared bottleneck.

    import bbrgym
    from bbrgym import Flow, Scenario

    trace = bbrgym.simulate(Scenario(rate_mbps=12, flows=(Flow("bbr", rtt_ms=10), Flow("cubic", rtt_ms=50))))
    trace.summary(after_s=15)

Importing it registers the Gymnasium environments `bbrgym/…`; none of torch, mlflow, pandas, matplotlib and pettingzoo
is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from bbrgym.baselines.registry import controllers
from bbrgym.envs import parallel_env, register_engines, register_environments
from bbrgym.envs.engine import Engine, EngineError, Rows, make_engine, register_engine
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.envs.trace import Trace, simulate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bbrgym.benchmark.candidate import Candidate
    from bbrgym.benchmark.score import Fitness

__version__ = "0.2.0"
__all__ = [
    "Engine",
    "EngineError",
    "Flow",
    "Rows",
    "Scenario",
    "Trace",
    "controllers",
    "make_engine",
    "parallel_env",
    "register_engine",
    "score",
    "simulate",
]


@overload
def score(
    what: str | Path | Candidate,
    parameters: Mapping[str, float] | None = None,
    *,
    scenarios: int = 16,
    seed: int = 0,
    details: Literal[False] = False,
) -> float: ...
@overload
def score(
    what: str | Path | Candidate,
    parameters: Mapping[str, float] | None = None,
    *,
    scenarios: int = 16,
    seed: int = 0,
    details: Literal[True],
) -> Fitness: ...
def score(
    what: str | Path | Candidate,
    parameters: Mapping[str, float] | None = None,
    *,
    scenarios: int = 16,
    seed: int = 0,
    details: bool = False,
) -> float | Fitness:
    """Return the score of a candidate on a few scenarios: the value of `bbrgym.benchmark.score.fitness`.

    With `details`, return a `Fitness`, which says for each scenario what the candidate lacks, or why it failed.
    """
    from bbrgym.benchmark.score import fitness  # imports pandas

    found = fitness(what, parameters, scenarios=scenarios, seed=seed)
    return found if details else found.value


register_engines()
register_environments()
