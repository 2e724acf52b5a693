"""What is said of a candidate to whoever writes the next one, a person or a program: plain data, and a text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bbrgym.benchmark.breaking.words import lacking, path_in_words
from bbrgym.benchmark.score import Fitness, Harm, ScenarioScore

MOST_ERRORS: Final = 5
"""How many errors of a compiler are told: later ones often follow from the first."""


@dataclass(frozen=True)
class Feedback:
    """What a search learns of a candidate. It names no seed.

    Attributes:
        value: its score, from 0 to 1.
        scenarios: in how many it ran.
        error: why it has no score, with the line of its file where one is known; "" if it has one.
        families: the score by family of scenarios.
        worst: the scenarios with the lowest scores, in words, and what it lacks there, the worst first.
        harms: what others lose beside it, in words.
    """

    value: float
    scenarios: int = 0
    error: str = ""
    families: Mapping[str, float] = field(default_factory=dict)
    worst: tuple[str, ...] = ()
    harms: tuple[str, ...] = ()

    @classmethod
    def of(cls, found: Fitness, source: str = "", worst: int = 3) -> Feedback:
        """Return the feedback on what was measured.

        Args:
            found: what `bbrgym.benchmark.score.fitness` returns.
            source: the text of a C file, whose lines are quoted where it failed.
            worst: how many scenarios to describe.
        """
        if all(one.has_failed for one in found.scenarios):
            error = _with_line(found.scenarios[0].reason, source)
            return cls(0.0, len(found.scenarios), error, found.families)
        return cls(
            value=found.value,
            scenarios=len(found.scenarios),
            families=found.families,
            worst=tuple(_scenario_in_words(one, source) for one in found.scenarios[:worst]),
            harms=tuple(map(_harm_in_words, found.harms)),
        )

    @classmethod
    def of_refusal(cls, refusal: ValueError, source: str) -> Feedback:
        """Return the feedback on a C file that was refused or does not compile.

        It has the compiler's errors with the lines that they are about. What a compiler prints of other files, which
        the file may have included, is left out.

        Args:
            refusal: as `Candidate.of` or `bbrgym.benchmark.board_entry.check_c_text` raises it.
            source: the text of the file.
        """
        errors = [_with_line(f"{text} in line {line}", source) for line, text in _ERROR.findall(str(refusal))]
        return cls(0.0, error="; ".join(errors[:MOST_ERRORS]) or str(refusal).splitlines()[0])

    def __str__(self) -> str:
        """Return it as a text."""
        if self.error:
            return f"score 0: {self.error}"
        families = ", ".join(f"{family} {value:.2f}" for family, value in self.families.items())
        head = f"score {self.value:.3f} in {self.scenarios} scenarios ({families})"
        return "\n".join([head, "worst:", *(f"- {text}" for text in self.worst), *self.harms])


_ERROR: Final = re.compile(r"^[^\s/:]+\.c:(\d+):\d+: (?:fatal )?error: (.*)$", re.MULTILINE)
"""An error of gcc or clang in the file itself, which has no folder."""


def _with_line(reason: str, source: str) -> str:
    """Return a reason that ends with the number of a line, and that line."""
    lines = source.splitlines()
    if missing := re.search(r"undefined symbol: (\w+)", reason):
        uses = [number for number, line in enumerate(lines, start=1) if re.search(rf"\b{missing[1]}\b", line)]
        reason = f"nothing defines {missing[1]}, in line {uses[0]}" if uses else f"nothing defines {missing[1]}"
    found = re.search(r"in line (\d+)$", reason)
    if found is None or not 0 < int(found[1]) <= len(lines):
        return reason
    return f"{reason}: `{lines[int(found[1]) - 1].strip()}`"


def _scenario_in_words(one: ScenarioScore, source: str) -> str:
    if one.has_failed:
        return f"{path_in_words(one.path)}: {_with_line(one.reason, source)}"
    return f"{path_in_words(one.path)}: {lacking(one.best, one.own, one.other)}"


def _harm_in_words(harm: Harm) -> str:
    name = harm.victim.upper()
    if math.isnan(harm.value):
        return f"harm to {name}: not known, because it failed there"
    loses = f"loses {harm.value:.0%} of what it has alone"
    return f"harm to {name}: a flow of it {loses}; {harm.of_own_kind:.0%} beside another flow of {name}"
