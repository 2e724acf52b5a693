"""The generated parts of the page of the papers' experiments: published and measured, and whether they agree."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bbrgym.benchmark.results import BenchmarkResult, load_benchmark
from bbrgym.benchmark.statistics import number_text
from bbrgym.benchmark.tables import summary_table
from bbrgym.envs.scenario import Scenario
from studies import page
from studies.papers.published import AXES, CLAIMS, VERDICTS, Paper, PublishedComparison, compare
from studies.papers.report import caption, drawn, paper_of, ratio

MARK: Final = "studies/papers"
"""What the names of the page's blocks begin with."""

MISLEADING: Final[Mapping[str, Mapping[str, str]]] = {
    "inorder_loss": {
        "arrived_mbps": "its throughput (Mbit/s)",
        "inorder_goodput_mbps": "its goodput (Mbit/s)",
        "throughput_mbps": "received by the application (Mbit/s)",
        "inorder_loss": "its loss",
        "true_loss": "lost in the network / sent",
    },
    "rtt_mean_ms[0]": {"rtt_mean_ms[0]": "RTT of flow 0 (ms)", "link_queue_mean_ms": "queueing delay (ms)"},
}
"""{a metric whose name in a paper suggests something else: {that and the plain metrics beside it: headings}}"""


def write_page(directories: Sequence[Path], path: Path, claims: Path = CLAIMS) -> None:
    """Write the blocks of the page from the finished runs of the papers' experiments and of the ablations.

    Equal results give equal files, so the page has no date. Figures go to a folder beside the page that has its name.

    Args:
        directories: benchmarks of `bbrgym benchmark`: `…/paper-<preset>/<experiment>` or
            `…/ablation-<preset>/<algorithm>`. A directory without a benchmark is on the page as missing.
        path: the page, in docs/results: its blocks link to `../../conf` and `../../studies`.
        claims: the folder of what the papers published.

    Raises:
        ValueError: a benchmark is not the experiment of a paper, two have the same name, or the page lacks marks.
    """
    experiments = [_Experiment.of(directory, claims) for directory in directories]
    names = [experiment.figure_name for experiment in experiments]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two of the directories are of {name!r}: give one preset per experiment")
    papers = [experiment for experiment in experiments if not experiment.is_ablation]
    ablations = [experiment for experiment in experiments if experiment.is_ablation]
    blocks = {
        "runs": _runs(experiments),
        "summary": [*_summary(papers), *(["Ablations, one per algorithm:", *_summary(ablations)] if ablations else [])],
        "experiments": [block for experiment in papers for block in _section(experiment, path)],
        "ablations": [block for experiment in ablations for block in _section(experiment, path)],
    }
    page.write_blocks(path, MARK, {name: "\n\n".join(block) for name, block in blocks.items()})


@dataclass(frozen=True)
class _Experiment:
    name: str
    group: str
    preset: str
    result: BenchmarkResult | None
    paper: Paper | None
    rows: Sequence[PublishedComparison]

    @classmethod
    def of(cls, directory: Path, claims: Path) -> _Experiment:
        group, _, preset = directory.resolve().parent.name.partition("-")
        name = directory.resolve().name
        try:
            result = load_benchmark(directory)
        except FileNotFoundError:
            return cls(name, group, preset, None, None, ())
        paper = paper_of(result, claims)
        return cls(name, group, preset, result, paper, compare(paper, result.results))

    @property
    def is_ablation(self) -> bool:
        return self.group == "ablation"

    @property
    def figure_name(self) -> str:
        return f"ablation-{self.name}" if self.is_ablation else self.name

    @property
    def title(self) -> str:
        return f"{self.name}: which part has the effect?" if self.is_ablation else self.name

    @property
    def command(self) -> str:
        preset = f" preset={self.preset}" if self.preset else ""
        return f"bbrgym benchmark experiment={self.group}/{self.name}{preset}"

    def state(self) -> str:
        """Return what is missing; empty if nothing is."""
        if self.result is None:
            return f"Missing: not run yet (`{self.command}`)."
        planned = len(self.result.plan["runs"])
        lost = len(self.result.missing) + len(self.result.failures)
        if not lost:
            return ""
        failed = f", {len(self.result.failures)} failed" if self.result.failures else ""
        return f"Unfinished: {planned - lost} of {planned} runs are done{failed}."


def _runs(experiments: Sequence[_Experiment]) -> list[str]:
    results = [experiment.result for experiment in experiments if experiment.result is not None]
    # Experiments share runs, each of which was simulated once.
    wall_s = {key: seconds for result in results for key, seconds in result.wall_s().items()}
    presets = sorted({experiment.preset for experiment in experiments if experiment.preset})
    seeds = sorted({", ".join(str(seed) for seed in result.plan["config"]["seeds"]) for result in results})
    return [
        f"Preset{'s' if len(presets) > 1 else ''} {' and '.join(presets) or 'none'}, seeds "
        f"{' and '.join(seeds) or 'none'}: {len(wall_s)} runs, {page.duration(sum(wall_s.values()))} of wall "
        "time, summed over the runs.",
        *page.provenance(result.plan for result in results),
    ]


def _summary(experiments: Sequence[_Experiment]) -> list[str]:
    rows = []
    for experiment in experiments:
        anchor = re.sub(r"[^\w\- ]", "", experiment.title.lower()).replace(" ", "-")  # as GitHub makes it
        link = f"[{experiment.name}](#{anchor})"
        if experiment.paper is None:
            rows.append([link, "", "", "", "", "", experiment.state()])
            continue
        found = [row.verdict for row in experiment.rows]
        counts = [str(found.count(name)) for name in VERDICTS]
        rows.append([link, _reference(experiment.paper), *counts, _largest_disagreement(experiment)])
    if not rows:
        return ["No experiment."]
    return [page.table(["experiment", "paper", *VERDICTS, "largest disagreement"], rows, numbers=range(2, 6))]


def _largest_disagreement(experiment: _Experiment) -> str:
    parts = [experiment.state()] if experiment.state() else []
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


def _section(experiment: _Experiment, path: Path) -> list[str]:
    blocks = [f"### {experiment.title}"]
    result, paper = experiment.result, experiment.paper
    if result is None or paper is None:
        return [*blocks, experiment.state()]
    blocks += [f"**{page.cell(paper.title)}** ({_reference(paper)}).", f"Settings: {_settings(result)}."]
    if state := experiment.state():
        blocks.append(f"**{state}**")
    if result.results.empty:
        return blocks
    blocks += _figure(experiment, path)
    if experiment.is_ablation:
        blocks.append(_ablation_table(result))
    if experiment.rows:
        rows = [
            [
                page.cell(row.what),
                page.cell(row.published + (f" (“{row.claim.wording}”)" if row.claim.wording else "")),
                page.cell(row.measured),
                page.cell(row.agreement),
                ratio(row),
            ]
            for row in experiment.rows
        ]
        blocks.append(page.table(["quantity", "published", "measured", "agrees", "ratio"], rows, numbers=(4,)))
        blocks += _reasons(experiment.rows)
    if not experiment.is_ablation:
        blocks += _plain_metrics(experiment)
    file = f"{experiment.group}/{experiment.name}.yaml"
    blocks.append(
        f"Reproduce: `{experiment.command}` ([configuration](../../conf/experiment/{file}), "
        f"[claims and assumptions](../../studies/papers/claims/{file}))."
    )
    return blocks


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


def _figure(experiment: _Experiment, path: Path) -> list[str]:
    """Return the link to one figure, which shows published numbers if the paper has such a figure."""
    assert experiment.result is not None
    assert experiment.paper is not None
    for figure in sorted(experiment.paper.figures, key=lambda figure: figure.kind == "time"):
        shown = drawn(figure, experiment.paper, experiment.result)
        if shown is not None:
            title = page.cell(figure.title).replace("[", "\\[").replace("]", "\\]")
            image = f"![{title}]({page.write_figure(shown, path, experiment.figure_name)})"
            return [image, caption(figure, experiment.result)] if figure.kind == "time" else [image]
    return []


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


def _plain_metrics(experiment: _Experiment) -> list[str]:
    """Return a table of the misleading metrics of an experiment and of the plain ones, if it has such metrics."""
    assert experiment.result is not None
    table = summary_table(experiment.result.results)
    of_claims = {row.claim.metric for row in experiment.rows}
    blocks = []
    for sign, headings_of in MISLEADING.items():
        if sign not in of_claims:
            continue
        columns = [metric for metric in headings_of if (metric, "mean") in table]
        rows = [
            [*map(page.cell, index), *(number_text(float(row[metric, "mean"])) for metric in columns)]
            for index, row in table.iterrows()
            if isinstance(index, tuple)
        ]
        headings = ["scenario", "competitor", *(headings_of[metric] for metric in columns)]
        blocks += [
            "The paper's metrics and the plain ones ([what they mean](#metrics-with-misleading-names)):",
            page.table(headings, rows, numbers=range(2, len(headings))),
        ]
    return blocks


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
