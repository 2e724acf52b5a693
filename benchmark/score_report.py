"""A score as text in a terminal, as an HTML page without other files, and as plain types."""

from __future__ import annotations

import html
import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bbrgym.benchmark.families import VICTIMS
from bbrgym.benchmark.score import WORST, Score
from bbrgym.benchmark.statistics import Estimate, estimate, number_text
from bbrgym.benchmark.tables import print_table
from bbrgym.benchmark.verdicts import short
from bbrgym.files import write_text

_HEADINGS: Final = (
    "",
    "score",
    "fair power",
    "Jain",
    "utilisation",
    "delay",
    "retransmitted",
    *(f"harm to {victim}" for victim in VICTIMS),
)
_FORMS: Final = {
    "fair_power": ".3f",
    "jain": ".3f",
    "utilisation": ".1%",
    "delay": ".2f",
    "retransmission_rate": ".2%",
}

BUDGET: Final = (
    "Yardsticks: published algorithms have the parameters of their papers. The constant is the best of a grid of gains "
    "on the training distribution of the shipped policy, which was evolved on it; bbr-backlog was made by hand with "
    "other draws of such families in view. docs/score.md has the budgets. None has seen the scenarios of this seed."
)


def headline(score: Score) -> str:
    """Return the score in one line."""
    count = len(score.ratios)
    failed = f"; it failed in {len(score.failures)} of {len(score.draws)}" if score.failures else ""
    return (
        f"{score.name}: {score.value.text('.3f')} of the best yardstick's fair power in {count} scenarios of seed "
        f"{score.seed}{failed}"
    )


def print_score(score: Score, console: Console) -> None:
    """Print everything, the line with the score last."""
    print_table(console, _HEADINGS, _rows(score, has_intervals=False))
    if score.rfc9743 is not None:
        print_table(console, ("RFC 9743", "criterion", "verdict", "measured"), _rfc_rows(score))
        console.print(f"RFC 9743: {score.rfc9743.counts('candidate')}", highlight=False)
    console.print("\nThe worst scenarios, each with the command that replays it:", highlight=False)
    for text, command in worst(score):
        console.print(f"  {text}\n    {command}", markup=False, highlight=False, soft_wrap=True)
    for note in notes(score):
        console.print(f"* {note}", markup=False, highlight=False, soft_wrap=True)
    console.print(headline(score), markup=False, highlight=False, style="bold", soft_wrap=True)


def print_replay(score: Score, console: Console) -> None:
    """Print one scenario flow by flow, the candidate and the best yardsticks."""
    draw, rows = score.draws[0], []
    power = {name: runs[0].get("fair_power", 0.0) for name, runs in score.runs.items()}
    others = [name for name in sorted(power, key=lambda one: -power[one]) if name != score.name]
    shown = [score.name, *others[:WORST]]
    for name in shown:
        run = score.runs[name][0]
        if "error" in run:
            console.print(f"{name}: {run['error']}", markup=False, highlight=False)
            continue
        for index, (throughput, rtt) in enumerate(zip(run["throughputs_mbps"], run["rtts_ms"], strict=True)):
            first = [name, f"{power[name]:.3f}"] if index == 0 else ["", ""]
            rows.append([*first, draw.scenario.flows[index].describe(), _text(throughput, ".2f"), _text(rtt, ".1f")])
    link = f"{draw.scenario.describe_link()}, {draw.scenario.duration_s:g} s"
    console.print(f"{draw.name}: {link}", markup=False, highlight=False, soft_wrap=True)
    print_table(console, ("", "fair power", "flow", "Mbit/s", "RTT, ms"), rows)


def to_dict(score: Score) -> dict[str, Any]:
    """Return the score as plain types, for JSON."""
    rfc9743 = None
    if score.rfc9743 is not None:
        rfc9743 = {name: score.rfc9743.verdict(name, "candidate") for name in score.rfc9743.suites}
    return {
        "candidate": score.candidate.what,
        "parameters": dict(score.candidate.competitor.parameters),
        "score": score.value._asdict(),
        "seed": score.seed,
        "seconds": round(score.seconds, 1),
        "is_repeatable": score.is_repeatable,
        "not_contained": list(score.missing),
        "failures": score.failures,
        "standings": {name: {column: _of(score, name, column)._asdict() for column in _FORMS} for name in score.runs},
        "harm": {
            victim: {name: estimate(values)._asdict() for name, values in of_victim.items()}
            for victim, of_victim in score.harms.items()
        },
        "regret": [
            {"scenario": one.scenario, "regret": one.regret.value, "best": one.best, "cause": one.cause}
            for one in score.regrets
        ],
        "worst": [{"text": text, "command": command} for text, command in worst(score)],
        "rfc9743": rfc9743,
    }


def worst(score: Score) -> Iterator[tuple[str, str]]:
    """Yield the scenarios with the largest regret: what happened, and the command that replays it."""
    scenarios = {draw.name: draw.scenario for draw in score.draws}
    own = score.candidate.competitor
    given = [f"{name}={value:g}" for name, value in own.parameters.items()]
    for one in score.regrets[:WORST]:
        failed = score.failures.get(one.scenario)
        reason = one.reason if failed is None else failed
        text = f"{one.scenario}: {scenarios[one.scenario].describe_link()}: {reason}"
        size = ["--full"] if score.is_full else []
        command = ["bbrgym", "score", score.candidate.what, *given, "--seed", str(score.seed), *size]
        yield text, shlex.join([*command, "--only", one.scenario])


def notes(score: Score) -> list[str]:
    """Return what a reader of the score must know."""
    found = [BUDGET]
    if not score.is_repeatable:
        found.append("Two runs of one scenario with one seed differ: the candidate has a clock, or draws of its own.")
    found += [f"Not contained on this system: {sentence}." for sentence in score.missing]
    causes = dict.fromkeys(score.failures.values())
    found += [f"It failed: {cause} ({list(score.failures.values()).count(cause)} scenarios)." for cause in causes]
    return found


def write_page(score: Score, path: Path) -> None:
    """Write the page, which needs no other file and no network."""
    parts = [
        f"<h1>{html.escape(headline(score))}</h1>",
        f"<p>Score: mean over the scenarios of the fair power over that of the best yardstick there, with the 95 % "
        f"interval. {score.seconds:.0f} s; {score.cached} of {len(score.runs) - 1} yardsticks from the cache.</p>",
        html_table(_HEADINGS, _rows(score)),
        "<h2>The worst scenarios</h2>",
        "".join(f"<p>{html.escape(text)}<br><code>{html.escape(command)}</code></p>" for text, command in worst(score)),
    ]
    if score.rfc9743 is not None:
        parts.append(f"<h2>RFC 9743: {html.escape(score.rfc9743.counts('candidate'))}</h2>")
        parts.append(html_table(("section", "criterion", "verdict", "measured"), _rfc_rows(score)))
    parts += [
        "<h2>Regret in every scenario</h2>",
        html_table(
            ("scenario", "regret", "best", "it lacks"),
            [[one.scenario, f"{one.regret.value:+.3f}", one.best, one.cause] for one in score.regrets],
        ),
        "<h2>Notes</h2>",
        "".join(f"<p>{html.escape(note)}</p>" for note in notes(score)),
    ]
    write_html(path, score.name, parts)


def write_html(path: Path, title: str, parts: Sequence[str]) -> None:
    """Write a page of these parts in HTML."""
    head = f"{_PAGE_BEGIN}<title>{html.escape(title)}</title>{_STYLE}"
    write_text(path, f"{head}<body>{''.join(parts)}</body></html>\n")


_PAGE_BEGIN: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
)
_STYLE: Final = (
    "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
    "h1{font-size:1.3rem}h2{font-size:1.1rem}table{border-collapse:collapse;display:block;overflow-x:auto}"
    "td,th{padding:.15rem .6rem;border-bottom:1px solid #ddd;text-align:left}.own{font-weight:bold}"
    "code{overflow-wrap:anywhere}</style>"
)


def _rows(score: Score, has_intervals: bool = True) -> list[list[str]]:
    """Return one row per competitor, the best first; fair power always has its interval."""

    def text(found: Estimate, form: str) -> str:
        return found.text(form) if has_intervals else number_text(found.value, form)

    power = {name: _of(score, name, "fair_power") for name in score.runs}
    return [
        [
            f"> {name}" if name == score.name else name,
            text(score.value, ".3f") if name == score.name else "",
            power[name].text(_FORMS["fair_power"]),
            *(text(_of(score, name, column), form) for column, form in _FORMS.items() if column != "fair_power"),
            *(text(estimate(score.harms[victim][name]), ".2f") if victim in score.harms else "-" for victim in VICTIMS),
        ]
        for name in sorted(power, key=lambda one: -power[one].value)
    ]


def _of(score: Score, name: str, column: str) -> Estimate:
    """Return the mean over the scenarios; the interval is over the scenarios."""
    return estimate(score.table[column].xs(name, level="competitor"))


def _rfc_rows(score: Score) -> list[list[str]]:
    assert score.rfc9743 is not None
    rows = []
    for name, suite in score.rfc9743.suites.items():
        found = [one for one in score.rfc9743.judgements if one.suite == name]
        bad = [one for one in found if one.verdict != "pass"]
        measured = "; ".join(
            f"{short(one.scenario)}: {one.criterion.label} {one.text}, needed {one.criterion.needed}" for one in bad
        )
        rows.append([suite.section, suite.title, score.rfc9743.verdict(name, "candidate"), measured])
    return rows


def html_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; a row that begins with `> ` is bold."""
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    body = "".join(
        f"<tr{' class=own' if row[0].startswith('> ') else ''}>"
        + "".join(f"<td>{html.escape(cell.removeprefix('> '))}</td>" for cell in row)
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _text(value: float | None, form: str) -> str:
    return "-" if value is None or math.isnan(value) else format(value, form)
