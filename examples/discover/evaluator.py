"""Judge controllers in C for a search: in hidden scenarios, with feedback in words (docs/discover.md)."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from pathlib import Path
from typing import Final

from bbrgym.baselines.controller_file import HEADER
from bbrgym.benchmark.board_entry import check_c_text
from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.feedback import Feedback
from bbrgym.benchmark.sandbox import Sandbox
from bbrgym.benchmark.score import fitness

PROGRAMS: Final = {path.stem: path.read_text() for path in Path(__file__).parents[1].rglob("*.c")}
"""What a search can begin with: `bare`, `five`, and the other examples."""

FACTS: Final = f"""Write a congestion controller for the Internet as one C99 file of at most 60 lines of 132 letters.
It may include bbrgym_controller.h and headers of C. All flows of a simulated path run it, and it knows nothing of the
path: 2 to 150 Mbit/s, RTTs of 5 to 200 ms, buffers of 0.25 to 10 BDP, random losses, jitter, ACKs in bursts, changing
rates and RTTs, one to eight flows. The score on a path is Jain's index x utilisation / (1 + queueing delay / RTT), over
that of the best of 19 known controllers there, at most 1. This is bbrgym_controller.h:

{HEADER.read_text()}"""
"""What a model must know, for its prompt."""


def hidden_seed() -> int:
    """Return the seed of this search: a random one, or DISCOVER_SEED of the environment, which its processes share."""
    return int(os.environ.setdefault("DISCOVER_SEED", str(secrets.randbelow(2**31))))


def without_marks(text: str) -> str:
    """Return a program without the lines that OpenEvolve and ShinkaEvolve want around it."""
    return re.sub(r"^.*EVOLVE-BLOCK-(?:START|END).*\n?", "", text, flags=re.MULTILINE)


class Evaluator:
    """Judges the texts of C files. Threads can share it.

    Args:
        seed: of the scenarios; by default `hidden_seed`.
        scenarios: how many, of all families.
        beside: how many more beside CUBIC and beside BBR each, for the harm.
        at_least: a candidate with a lower score in the first four scenarios does not run the others.
    """

    def __init__(self, seed: int | None = None, scenarios: int = 48, beside: int = 2, at_least: float = 0.35) -> None:
        self._seed = hidden_seed() if seed is None else seed
        self.scenarios, self.beside, self.at_least = scenarios, beside, at_least
        self._sandbox = Sandbox()

    def evaluate(self, text: str) -> Feedback:
        """Return the feedback on a candidate, whatever its text is."""
        text = without_marks(text)
        try:
            check_c_text(text)
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "candidate.c").write_text(text)
                candidate = Candidate.of(f"{folder}/candidate.c")
            first = self._run(candidate, text, scenarios=4)
            return first if first.value < self.at_least else self._run(candidate, text, self.scenarios, self.beside)
        except ValueError as refusal:
            return Feedback.of_refusal(refusal, text)

    def _run(self, candidate: Candidate, text: str, scenarios: int, beside: int = 0) -> Feedback:
        found = fitness(candidate, scenarios=scenarios, seed=self._seed, beside=beside, sandbox=self._sandbox)
        return Feedback.of(found, text)

    def close(self) -> None:
        """End the processes."""
        self._sandbox.close()
