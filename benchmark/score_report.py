"""A score as text in a terminal, as an HTML page without other files, and as plain types."""

from __future__ import annotations

import html
import math
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bbrgym.benchmark import page
from bbrgym.benchmark.families import VICTIMS
from bbrgym.benchmark.score import WORST, Score, worst_traces
from bbrgym.benchmark.statistics import Estimate, estimate, number_text
from bbrgym.benchmark.tables import WIDE, Heading, print_left_out, print_table
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
_PRINTED: Final = (
    Heading("", kind="name"),
    Heading("score", rank=1),
    Heading("fair power"),
    Heading("Jain"),
    Heading("link used"),
    Heading("delay"),
    Heading("resent", rank=2),
    *(Heading(f"harm to {victim}") for victim in VICTIMS),
)
"""The same in a terminal."""

_FORMS: Final = {
    "fair_power": ".3f",
    "jain": ".3f",
    "utilisation": ".1%",
    "delay": ".2f",
    "retransmission_rate": ".2%",
}

BUDGET: Final = (
    "Yardsticks: published algorithms have the parameters of their papers. The constant is the best of a grid of "
    "backlogs in other draws of such families; bbr-backlog was made by hand with other draws in view. docs/score.md "
    "has the budgets. None has seen the scenarios of this seed."
)


def headline(score: Score) -> str:
    """Return the score in one line."""
    count = len(score.ratios)
    failed = f"; it failed in {len(score.failures)} of {len(score.draws)}" if score.failures else ""
    if not count:
        return f"{score.name}: no score: {score.draws[0].name} of seed {score.seed} has flows of two kinds{failed}"
    scenarios = f"{count} scenario{'s' if count != 1 else ''}"
    return (
        f"{score.name}: {score.value.text('.3f')} of the best yardstick's fair power in {scenarios} of seed "
        f"{score.seed}{failed}"
    )


def print_score(score: Score, console: Console) -> None:
    """Print everything, the line with the score last."""
    left_out = print_table(console, _PRINTED, _rows(score, intervals="fair_power" if console.width >= WIDE else ""))
    print_left_out(console, left_out, "--html FILE has them")
    if score.rfc9743 is not None:
        print_table(
            console,
            (Heading("RFC 9743", kind="name"), "criterion", Heading("verdict", kind="name"), "measured"),
            _rfc_rows(score),
        )
        console.print(f"RFC 9743: {score.rfc9743.counts('candidate')}\n", highlight=False)
    console.print("The worst scenarios, each with the command that replays it:", highlight=False)
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
            flow = draw.scenario.flows[index].describe()
            if draw.roles is not None and index not in draw.roles:
                flow = f"{draw.victim}: {flow}"
            rows.append([*first, flow, _text(throughput, ".2f"), _text(rtt, ".1f")])
    link = f"{draw.scenario.describe_link()}, {draw.scenario.duration_s:g} s"
    console.print(f"{draw.name}: {link}", markup=False, highlight=False, soft_wrap=True)
    headings: list[str | Heading] = [
        Heading("", kind="name"),
        Heading("fair power"),
        Heading("flow", kind="words"),
        "Mbit/s",
        "RTT (ms)",
    ]
    print_table(console, headings, rows)


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
    for one in score.regrets[:WORST]:
        failed = score.failures.get(one.scenario)
        reason = one.reason if failed is None else failed
        text = f"{one.scenario}: {scenarios[one.scenario].describe_link()}: {reason}"
        size = ["--full"] if score.is_full else []
        command = ["bbrgym", "score", *score.candidate.words, "--seed", str(score.seed), *size]
        yield text, shlex.join([*command, "--only", one.scenario])


def notes(score: Score) -> list[str]:
    """Return what a reader of the score must know."""
    found = [BUDGET]
    if not score.is_repeatable:
        found.append("Two runs of one scenario with one seed differ: the candidate has a clock, or draws of its own.")
    found += [f"Not contained on this system: {sentence}." for sentence in score.missing]
    causes = dict.fromkeys(score.failures.values())
    found += [f"It failed: {cause} ({list(score.failures.values()).count(cause)} scenarios)." for cause in causes]
    if score.rfc9743 is not None:
        found += [f"It failed in {scenario} of RFC 9743: {why}." for (scenario, _), why in score.rfc9743.errors.items()]
    return found


def write_page(score: Score, path: Path) -> None:
    """Write the page, which needs no other file and no network.

    Raises:
        EngineError: a process of the sandbox has died.
    """
    draws = len(score.ratios)
    parts = [
        f"<h1>{html.escape(headline(score))}</h1>",
        f'<p class="headline">{html.escape(_place(score))}</p>' if draws else "",
        f"<p>{score.seconds:.0f} s; {score.cached} of {len(score.runs) - 1} yardsticks from the cache.</p>",
        f"<p>Score: mean over {draws} scenario{'s' if draws != 1 else ''} of the fair power over that of the best "
        f"yardstick there, with the 95 % interval.</p>"
        if draws
        else "",
        *_figures(score),
        *(("<h2>Beside the yardsticks</h2>", _standings(score)) if draws else ()),
        f"<h2>The worst scenario{'s' if draws > 1 else ''}</h2>" if draws else "",
        "".join(f"<p>{html.escape(text)}<br><code>{html.escape(command)}</code></p>" for text, command in worst(score)),
    ]
    if score.rfc9743 is not None:
        parts.append(f"<h2>RFC 9743: {html.escape(score.rfc9743.counts('candidate'))}</h2>")
        parts.append(html_table(("section", "criterion", "verdict", "measured"), _rfc_rows(score), kind="words"))
    if score.regrets:
        regret = [[one.scenario, f"{one.regret.value:+.3f}", one.best, one.cause] for one in score.regrets]
        parts.append("<h2>Regret in every scenario</h2>")
        parts.append(html_table(("scenario", "regret", "best", "it loses by"), regret))
    parts += ["<h2>Notes</h2>", *(f"<p>{html.escape(note)}</p>" for note in notes(score))]
    write_html(path, score.name, parts)


def _standings(score: Score) -> str:
    """Return the table of all competitors; without the harm, where no scenario has a victim."""
    columns = len(_HEADINGS) if score.harms else len(_HEADINGS) - len(VICTIMS)
    return html_table(_HEADINGS[:columns], [row[:columns] for row in _rows(score)])


def _place(score: Score) -> str:
    """Return how the candidate stands among the yardsticks, in a sentence."""
    power = {name: _of(score, name, "fair_power").value for name in score.runs}
    order = sorted(power, key=lambda one: -power[one])
    best = next(name for name in order if name != score.name)
    lacks = Counter(one.cause for one in score.regrets if one.regret.value > 0).most_common(1)
    where = ""
    if lacks:
        cause, count = lacks[0]
        many = f"most often loses by {cause}, in {count} of {len(score.regrets)} scenarios"
        where = f" It {many if len(score.regrets) > 1 else f'loses by {cause}'}."
    return (
        f"By fair power it is number {order.index(score.name) + 1} of {len(order)}, with "
        f"{power[score.name]:.3f}; the best yardstick, {best}, has {power[best]:.3f}.{where}"
    )


def _figures(score: Score) -> list[str]:
    """Return the pictures of a page, each with a heading and a caption; without matplotlib, why there are none."""
    try:
        from bbrgym.benchmark import score_figures
        from bbrgym.benchmark.report import svg
    except ModuleNotFoundError as error:
        return [f"<p>No pictures: {html.escape(str(error))}.</p>"]
    marks = score_figures.marks_of_score(score)
    draw, traces = worst_traces(score)
    drawn = []
    if len(score.draws) > 1:
        drawn = [
            (
                "Utilisation against delay",
                score_figures.utilisation_against_delay(score, marks),
                f"Means over {len(score.ratios)} scenarios; better is up and to the right. The candidate is larger.",
            ),
            (
                "Regret by scenario",
                score_figures.regret_by_scenario(score),
                "A row per family, a mark per scenario. The three worst have their names.",
            ),
        ]
    if traces:
        roles = range(len(draw.scenario.flows)) if draw.roles is None else draw.roles
        drawn.append(
            (
                f"{'The worst scenario' if len(score.draws) > 1 else 'The scenario'}: {draw.name}",
                score_figures.over_time(traces, marks, roles),
                f"{draw.scenario.describe_link()}. Throughput of each flow, means over 1 s, and the queueing delay"
                + (f": {' beside '.join(traces)}." if len(traces) > 1 else "."),
            )
        )
    return [
        f"<h2>{html.escape(title)}</h2><figure>{svg(figure, title)}"
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        for title, figure, caption in drawn
    ]


def write_html(path: Path, title: str, parts: Sequence[str]) -> None:
    """Write a page of these parts in HTML."""
    head = f"{_PAGE_BEGIN}<title>{html.escape(title)}</title><style>{page.STYLE}</style>"
    write_text(path, f"{head}<body>{''.join(parts)}<script>{page.SCRIPT}</script></body></html>\n")


_PAGE_BEGIN: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
)


def _rows(score: Score, intervals: str = "all") -> list[list[str]]:
    """Return one row per competitor, the best first; `intervals` are of `all` columns, of one of them, or of none."""

    def text(found: Estimate, form: str, column: str) -> str:
        return found.text(form) if intervals in ("all", column) else number_text(found.value, form)

    power = {name: _of(score, name, "fair_power") for name in score.runs}
    return [
        [
            f"> {name}" if name == score.name else name,
            text(score.value_of(name), ".3f", "score"),
            *(text(_of(score, name, column), form, column) for column, form in _FORMS.items()),
            *(
                text(estimate(score.harms[victim][name]), ".2f", "harm") if victim in score.harms else "-"
                for victim in VICTIMS
            ),
        ]
        for name in sorted(power, key=lambda one: -power[one].value)
    ]


def _of(score: Score, name: str, column: str) -> Estimate:
    """Return the mean over the scenarios; the interval is over the scenarios."""
    return estimate([] if score.table.empty else score.table[column].xs(name, level="competitor"))


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


def html_table(headings: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    """Return a table that sorts by a click; a row that begins with `> ` is bold, the kind `words` has long texts."""
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    body = "".join(
        f"<tr{' class=own' if row[0].startswith('> ') else ''}>"
        + "".join(f"<td>{html.escape(cell.removeprefix('> '))}</td>" for cell in row)
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide"><table class="sortable {kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _text(value: float | None, form: str) -> str:
    return "-" if value is None or math.isnan(value) else format(value, form)
