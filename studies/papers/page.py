"""The generated parts of the page of the papers' experiments: published and measured, and whether they agree."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.tables import summary_table
from bbrgym.envs.scenario import Scenario
from studies import page
from studies.papers.figures import paper_figure
from studies.papers.published import AXES, VERDICTS, Paper, PublishedComparison
from studies.papers.run import Experiment

MARK: Final = "studies/papers"
"""What the names of the page's blocks begin with."""


def write_page(experiments: Sequence[Experiment], path: Path) -> None:
    """Write the blocks of the page from the finished runs of the papers' experiments and of the ablations.

    Equal results give equal files, so the page has no date. Figures go to a folder beside the page that has its name.
    """
    papers = [experiment for experiment in experiments if not experiment.is_ablation]
    ablations = [experiment for experiment in experiments if experiment.is_ablation]
    summary = _summary(papers)
    if ablations:
        summary = [*summary, "Ablations, one per algorithm:", *_summary(ablations)]
    blocks = {
        "runs": _runs(experiments),
        "summary": summary,
        "experiments": [block for experiment in papers for block in _section(experiment, path)],
        "ablations": [block for experiment in ablations for block in _section(experiment, path)],
    }
    page.write_blocks(path, MARK, blocks)


def _runs(experiments: Sequence[Experiment]) -> list[str]:
    results = [experiment.result for experiment in experiments]
    # Experiments share runs, each of which was simulated once.
    wall_s = {key: seconds for result in results for key, seconds in result.wall_s().items()}
    duration = page.duration(sum(wall_s.values()))
    return [
        f"{len(wall_s)} runs, {duration} of wall time, summed over the runs.",
        *page.provenance(result.plan for result in results),
    ]


def _title(experiment: Experiment) -> str:
    return f"{experiment.name}: which part has the effect?" if experiment.is_ablation else experiment.name


def _state(experiment: Experiment) -> str:
    """Return how many runs failed; empty if none did."""
    failures, planned = len(experiment.result.failures), len(experiment.result.plan["runs"])
    return f"{failures} of {planned} runs failed." if failures else ""


def _summary(experiments: Sequence[Experiment]) -> list[str]:
    rows = []
    for experiment in experiments:
        anchor = re.sub(r"[^\w\- ]", "", _title(experiment).lower()).replace(" ", "-")  # as GitHub makes it
        found = [row.verdict for row in experiment.rows]
        counts = [str(found.count(name)) for name in VERDICTS]
        link = f"[{experiment.name}](#{anchor})"
        rows.append([link, _reference(experiment.paper), *counts, _largest_disagreement(experiment)])
    return [page.table(["experiment", "paper", *VERDICTS, "largest disagreement"], rows, numbers=range(2, 6))]


def _largest_disagreement(experiment: Experiment) -> str:
    parts = [_state(experiment)] if _state(experiment) else []
    wrong = [row for row in experiment.rows if row.agrees is False]
    if wrong:
        # An order has no ratio: it ranks behind all entries that have one.
        worst = max(wrong, key=lambda row: abs(math.log(row.ratio)) if 0 < row.ratio < math.inf else -1.0)
        parts.append(f"{worst.what}: published {worst.published}, measured {worst.measured}")
    elif any(row.agrees for row in experiment.rows):
        parts.append("none")
    else:
        parts.append("nothing could be judged")
    return page.cell(" ".join(parts))


def _section(experiment: Experiment, path: Path) -> list[str]:
    result = experiment.result
    blocks = [f"### {_title(experiment)}", f"{_settings(result)}."]
    if state := _state(experiment):
        blocks.append(f"**{state}**")
    if result.results.empty:
        return blocks
    blocks += _figure(experiment, path)
    if experiment.is_ablation:
        blocks.append(_ablation_table(result))
    rows = [
        [
            page.cell(row.what),
            page.cell(row.published + (f" (“{row.claim.wording}”)" if row.claim.wording else "")),
            page.cell(row.measured),
            page.cell(row.agreement),
            f"{row.ratio:.2f}" if math.isfinite(row.ratio) else "-",
        ]
        for row in experiment.rows
    ]
    blocks.append(page.table(["quantity", "published", "measured", "agrees", "ratio"], rows, numbers=(4,)))
    return blocks + _reasons(experiment.rows)


def _reasons(rows: Sequence[PublishedComparison]) -> list[str]:
    """Return why entries disagree: one line per reason, and one for the entries without a known reason."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.because:
            reasons.setdefault(row.because, []).append(row.what)
    lines = [f"* {page.cell('; '.join(what))}: {page.cell(_sentence(text))}" for text, what in reasons.items()]
    unexplained = list(dict.fromkeys(row.what for row in rows if row.agrees is False and not row.because))
    if unexplained:
        lines.append(f"* The cause is not isolated yet: {page.cell('; '.join(unexplained))}.")
    return ["\n".join(lines)] if lines else []


def _figure(experiment: Experiment, path: Path) -> list[str]:
    """Return the link to the figure, which shows published numbers too."""
    figure, result = experiment.paper.figure, experiment.result
    if figure is None:
        return []
    scenarios = {name: Scenario.from_dict(plain) for name, plain in result.plan["config"]["scenarios"].items()}
    if figure.scenario is not None and not (result.results["scenario"] == figure.scenario).any():
        return []
    shown = paper_figure(figure, result.results, scenarios, experiment.paper.published)
    title = page.cell(figure.title).replace("[", "\\[").replace("]", "\\]")
    name = f"ablation-{experiment.name}" if experiment.is_ablation else experiment.name
    return [f"![{title}]({page.write_figure(shown, path, name)})"]


def _ablation_table(result: BenchmarkResult) -> str:
    """Return a table of the competitors: their parameters, and fairness and queue in each scenario."""
    table = summary_table(result.results)
    names = [str(name) for name in table.index.unique("scenario")]
    rows = []
    for entry in result.plan["config"]["competitors"]:
        what = f"`{entry['algorithm']}`" if "algorithm" in entry else "a trained agent"
        parameters = ", ".join(f"`{name}={value:g}`" for name, value in entry["parameters"].items())
        cells = []
        for name in names:
            row = table.loc[(name, entry["name"])] if (name, entry["name"]) in table.index else None
            cells.append(
                "-" if row is None else f"{row['link_jain', 'mean']:.2f}, {row['link_queue_mean_ms', 'mean']:.1f} ms"
            )
        rows.append([page.cell(entry["name"]), what + (f" with {parameters}" if parameters else ""), *cells])
    text = page.table(["competitor", "algorithm", *map(page.cell, names)], rows, numbers=range(2, 2 + len(names)))
    return f"Jain's index and mean queueing delay in each scenario:\n\n{text}"


def _settings(result: BenchmarkResult) -> str:
    """Return what all scenarios together are, in one line: `Scenario.describe` would need a line for each."""
    config = result.plan["config"]
    scenarios = [Scenario.from_dict(plain) for plain in config["scenarios"].values()]
    parts = []
    for name in ("rate_mbps", "n_flows", "rtt_ratio", "rtt_long_ms", "buffer_bdp", "loss"):
        values = sorted({AXES[name].value(scenario) for scenario in scenarios})
        if (name, values) not in (("loss", [0.0]), ("rtt_ratio", [1.0])):
            parts.append(AXES[name].text(*values))
    durations = ", ".join(f"{duration_s:g}" for duration_s in sorted({s.duration_s for s in scenarios}))
    warmup = f", the first {100 * config['warmup']:g} % not measured" if config["warmup"] else ""
    seeds = ", ".join(str(seed) for seed in config["seeds"])
    parts += [f"{durations} s{warmup}", f"seeds {seeds}", f"engine {config['engine']['name']}"]
    return page.cell("; ".join(parts))


def _reference(paper: Paper) -> str:
    reference = page.cell(paper.reference or paper.title)
    if re.fullmatch(r"https?://[^\s()<>|]+", paper.url):
        reference = f"[{reference}]({paper.url})"
    return f"{reference}, {page.cell(paper.where)}" if paper.where else reference


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
