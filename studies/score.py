"""The scores of all yardsticks and examples, beside the league's: `python -m studies.score [--seed N] [--write PAGE]`.

A yardstick's score is against the others. The league's fair power is what docs/results/league.md has for its suite
`generalisation`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.markdown import cell, table
from bbrgym.benchmark.sandboxed import Sandbox
from bbrgym.benchmark.score import Score, score_candidate
from bbrgym.benchmark.statistics import estimate, number_text
from studies import page

MARK: Final = "studies/score.py"
EXAMPLES: Final = Path(__file__).parents[1] / "examples"
LEAGUE: Final = Path(__file__).parents[1] / "docs" / "results" / "league.md"
SEED: Final = 11


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    parser = page.parser(__doc__, MARK)
    parser.add_argument("--seed", type=int, default=SEED, help="of the scenarios")
    options = parser.parse_args(arguments)
    with Sandbox() as sandbox:
        scores = [
            score_candidate(Candidate.of(str(path)), options.seed, has_rfc9743=False, sandbox=sandbox)
            for path in sorted(EXAMPLES.glob("*.c"))
        ]
    page.publish(block(scores, league_power(LEAGUE.read_text(encoding="utf-8"))), MARK, options.write)
    return 0


def block(scores: Sequence[Score], league: Mapping[str, float]) -> str:
    """Return the table, the best first, and the rank correlation with the league."""
    power = scores[0].table["fair_power"].droplevel("seed").unstack("competitor").drop(columns=scores[0].name)
    own = {str(name): estimate(_ratios(power, str(name))) for name in power}
    for score in scores:
        own[score.candidate.what.rpartition("/")[2]] = score.value
    order = sorted(own, key=lambda name: -own[name].value)
    rows = [[cell(name), own[name].text(".3f"), number_text(league.get(name, np.nan), ".3f")] for name in order]
    shared = [name for name in order if name in league]
    ranks = pd.DataFrame({"score": [own[name].value for name in shared], "league": [league[name] for name in shared]})
    correlation = ranks["score"].rank().corr(ranks["league"].rank())
    return "\n\n".join(
        [
            table(["", "score", "fair power in the league"], rows, numbers=(1, 2)),
            f"Seed {scores[0].seed}. Rank correlation (Spearman) with the league over the {len(shared)} that both "
            f"have: {correlation:.2f}.",
        ]
    )


def league_power(document: str) -> dict[str, float]:
    """Return the fair power in the suite `generalisation` of a page of the league, by competitor."""
    _, _, rest = document.partition("<!-- begin: studies/league generalisation -->")
    rows = re.findall(r"^\| \d+ \| (\S+) \| ([\d.]+)", rest.partition("<!-- end")[0], re.MULTILINE)
    return {name: float(value) for name, value in rows}


def _ratios(power: pd.DataFrame, name: str) -> pd.Series:
    """Return a yardstick's ratios to the best of the others."""
    return (power[name] / power.drop(columns=name).max(axis=1)).clip(upper=1.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
