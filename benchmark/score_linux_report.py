"""A score in real time as text in a terminal, as an HTML page without other files, and as plain types."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bbrgym.benchmark.score_linux import LinuxScore
from bbrgym.benchmark.score_report import html_table, write_html
from bbrgym.benchmark.tables import print_table

_HEADINGS: Final = ("section", "criterion", "verdict", "measured")

ONE_RUN: Final = (
    "Each criterion has one run of 12 s: a value close to its threshold can be on its other side in the next one. "
    "--full has three runs, and intervals."
)


def headline(score: LinuxScore) -> str:
    """Return the score in one line."""
    verdicts = list(score.by_suite.values())
    others = "".join(f", {verdicts.count(one)} {one}" for one in ("unclear", "not counted") if one in verdicts)
    counts = f"{verdicts.count('pass')} of {len(verdicts)} criteria pass in real time, {verdicts.count('fail')} fail"
    few = "" if score.value.value >= 0 else ": too few for a score"
    return f"{score.name}: {counts}{others}{few}"


def print_score(score: LinuxScore, console: Console) -> None:
    """Print everything, the line with the score last."""
    print_table(console, _HEADINGS, _rows(score))
    for note in notes(score):
        console.print(f"* {note}", markup=False, highlight=False, soft_wrap=True)
    console.print(headline(score), markup=False, highlight=False, style="bold", soft_wrap=True)


def to_dict(score: LinuxScore) -> dict[str, Any]:
    """Return the score as plain types, for JSON."""
    return {
        "candidate": score.candidate.what,
        "parameters": dict(score.candidate.competitor.parameters),
        "score": score.value._asdict(),
        "seeds": list(score.seeds),
        "seconds": round(score.seconds, 1),
        "criteria": {
            name: {
                "section": suite.section,
                "title": suite.title,
                "verdict": score.by_suite[name],
                "measured": [
                    {
                        "metric": one.criterion.label,
                        **one.measured._asdict(),
                        "needed": one.criterion.needed,
                        "verdict": one.verdict,
                    }
                    for one in score.judgements(name)
                ],
            }
            for name, suite in score.verdicts.suites.items()
        },
        "failures": dict(score.errors),
        "late": {f"{scenario} {competitor}": flaw for (scenario, competitor), flaw in score.late.items()},
        "missing": dict(score.missing),
    }


def notes(score: LinuxScore) -> list[str]:
    """Return what a reader of the score must know."""
    reasons = [*score.reasons()]
    if len(score.seeds) == 1:
        reasons.append(ONE_RUN)
    return reasons


def write_page(score: LinuxScore, path: Path) -> None:
    """Write the page, which needs no other file and no network."""
    competitor = score.candidate.competitor
    commands = "".join(
        f"<br><code>{html.escape(' '.join(one))}</code>" for one in (competitor.server, competitor.client)
    )
    parts = [
        f"<h1>{html.escape(headline(score))}</h1>",
        f"<p>{html.escape(score.candidate.what)}{commands if competitor.client else ''}</p>",
        f"<p>{score.seconds:.0f} s; {score.cached} runs of references from the cache.</p>",
        html_table(_HEADINGS, _rows(score), kind="words"),
        "".join(f"<p>{html.escape(note)}</p>" for note in notes(score)),
    ]
    write_html(path, score.name, parts)


def _rows(score: LinuxScore) -> list[list[str]]:
    return [
        [
            suite.section,
            suite.title,
            score.by_suite[name],
            "; ".join(
                f"{one.criterion.label} {one.text}, needed {one.criterion.needed}" for one in score.judgements(name)
            ),
        ]
        for name, suite in score.verdicts.suites.items()
    ]
