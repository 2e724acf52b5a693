"""Search for the bad days of a policy: `python -m studies.adversary [--write PAGE]`.

Searches the distribution of the league's fresh draws for the scenarios in which the policy is furthest behind the best
of `BASELINES`, and compares what it finds with as many plain draws. What it found goes to a file in two parts:
`training`, and `held_out`, which no training may use and which the league takes as a suite:

    python -m studies.adversary --found runs/adversary.json
    python -m studies.league preset=quick name=found league.found=runs/adversary.json league.only=[found]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from bbrgym.agents.adversary import Adversary, Candidate, is_held_out, largest_gaps
from bbrgym.agents.policy import Agent, load_agent
from bbrgym.baselines.policy_file import SCRIPTED
from bbrgym.benchmark.statistics import estimate
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.engine import make_engine
from bbrgym.files import write_json
from bbrgym.interruption import run_interruptible
from studies import page
from studies.league.regret import MOST_REGRET
from studies.league.suites import compose_league

MARK: Final = "studies/adversary.py"
BASELINES: Final = (f"{SCRIPTED}backlog", "da-bbr", "bbr2", "cubic")
"""The best competitor of nearly all scenarios of the league is one of these or the policy."""
SUITE: Final = "fresh"


def search(agent: Agent | str, evaluations: int, searches: int) -> dict[str, list[list[Candidate]]]:
    """Return the candidates of each search of the adversary, and of as many plain draws."""
    draws = compose_league()["league"][SUITE]["draws"][SUITE]
    adversary = Adversary(Distribution.from_dict(draws["scenario"]), BASELINES, partial(make_engine, "native"))
    return {
        name: [
            # Not the generators of the league's draws: the suite is not searched itself.
            adversary.search(agent, evaluations, np.random.default_rng([seed, int(is_guided)]), is_guided)
            for seed in range(1, searches + 1)
        ]
        for name, is_guided in (("adversary", True), ("plain draws", False))
    }


def table(found: Mapping[str, Sequence[Sequence[Candidate]]]) -> str:
    """Return what each way of searching found: means over its searches, with intervals."""
    rows = []
    for name, searches in found.items():
        regrets = [sorted((candidate.gap for candidate in one), reverse=True) for one in searches]
        measures: tuple[tuple[list[float], str], ...] = (
            ([float(np.mean(one)) for one in regrets], ".3f"),
            ([float(np.mean(np.array(one) > MOST_REGRET)) for one in regrets], ".0%"),
            ([float(np.mean(one[:10])) for one in regrets], ".3f"),
            ([one[0] for one in regrets], ".3f"),
        )
        cells = [estimate(values).text(form) for values, form in measures]
        rows.append([name, f"{len(searches)} x {len(searches[0])}", *cells])
    headings = ["search", "scenarios", "mean regret", f"above {MOST_REGRET}", "mean of the ten largest", "largest"]
    return page.table(headings, rows, numbers=range(1, len(headings)))


def write_found(candidates: Sequence[Candidate], path: Path) -> None:
    """Write candidates to a file in two parts, each with names of its own."""
    parts: dict[str, dict[str, object]] = {"training": {}, "held_out": {}}
    for number, candidate in enumerate(candidates, start=1):
        part = "held_out" if is_held_out(candidate.scenario) else "training"
        parts[part][f"found-{number:03d}"] = candidate.to_dict()
    write_json(path, parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = page.parser(__doc__, MARK)
    parser.add_argument("--agent", help="a training run or an agent's folder; the shipped policy by default")
    parser.add_argument("--evaluations", type=int, default=160, help="scenarios of each search (default %(default)s)")
    parser.add_argument("--searches", type=int, default=2, help="searches with different seeds (default %(default)s)")
    parser.add_argument("--keep", type=int, default=50, help="scenarios of each search in the file, of largest regret")
    parser.add_argument("--found", type=Path, metavar="FILE", help="where to write the scenarios that were found")
    options = parser.parse_args(arguments)
    agent = "policy" if options.agent is None else load_agent(options.agent)
    found = search(agent, options.evaluations, options.searches)
    if options.found is not None:
        # As many of each search: different searches end in different places.
        kept = [each for one in found["adversary"] for each in largest_gaps(one, options.keep)]
        write_found(kept, options.found)
    page.publish(table(found), MARK, options.write)
    return 0


if __name__ == "__main__":
    sys.exit(run_interruptible("adversary", main))
