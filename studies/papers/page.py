"""Write the page of the papers' experiments: published and measured results, and whether they agree."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bbrgym.benchmark.results import BenchmarkResult, load_benchmark
from bbrgym.benchmark.statistics import number_text
from bbrgym.benchmark.tables import summary_table
from bbrgym.envs.scenario import Scenario
from studies import page
from studies.papers.published import CLAIMS, VERDICTS, Paper, PublishedComparison, compare
from studies.papers.report import caption, drawn, paper_of, ratio


def write_page(directories: Sequence[Path], path: Path, claims: Path = CLAIMS) -> None:
    """Write the page from the finished runs of the papers' experiments and of the ablations.

    Equal results give equal files, so the page has no date. Figures go to a folder beside the page that has its name.

    Args:
        directories: benchmarks of `bbrgym benchmark`: `…/paper-<preset>/<experiment>` or
            `…/ablation-<preset>/<algorithm>`. A directory without a benchmark is on the page as missing.
        path: the page, in docs/results: it links to `../../conf` and `../../studies`.
        claims: the folder of what the papers published.

    Raises:
        ValueError: a benchmark is not the experiment of a paper, or two have the same name.
    """
    experiments = [_Experiment.of(directory, claims) for directory in directories]
    names = [experiment.figure_name for experiment in experiments]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two of the directories are of {name!r}: give one preset per experiment")
    papers = [experiment for experiment in experiments if not experiment.is_ablation]
    ablations = [experiment for experiment in experiments if experiment.is_ablation]
    blocks = [
        "# Published and measured",
        *_introduction(experiments),
        "## Summary",
        *_summary(papers),
        *(["Ablations, one per algorithm:", *_summary(ablations)] if ablations else []),
        "## Metrics with misleading names",
        *_misleading_metrics(),
        "## Experiments",
        *(block for experiment in papers for block in _section(experiment, path)),
    ]
    if ablations:
        blocks += [
            "## Ablations",
            "Each algorithm, BBR, and the algorithm with parts turned off or on, in the setting in which its paper "
            "sees the effect.",
        ]
        blocks += [block for experiment in ablations for block in _section(experiment, path)]
    page.write_page(blocks, path)


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

    def costs(self) -> dict[str, tuple[float, float]]:
        """Return wall time and simulated time in s of each finished run, by its key."""
        if self.result is None or self.result.results.empty:
            return {}
        scenarios = self.result.plan["config"]["scenarios"]
        runs = self.result.results.drop_duplicates("key")
        wall_s = self.result.wall_s()
        return {
            str(key): (wall_s[str(key)], float(scenarios[scenario]["duration_s"]))
            for key, scenario in zip(runs["key"], runs["scenario"], strict=True)
        }

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


@dataclass(frozen=True)
class _Misleading:
    """Metrics of a paper whose names suggest something else than what they measure.

    Attributes:
        text: what each name means.
        signs: metrics that only an experiment with such names has.
        columns: the paper's metrics and the plain ones beside them, with their headings.
    """

    text: str
    signs: tuple[str, ...]
    columns: Mapping[str, str]


MISLEADING: Final = (
    _Misleading(
        "**BBR-ACD's throughput, goodput and loss.** *Throughput* counts every data packet that reaches a receiver, "
        "including duplicates (`arrived_mbps`). *Goodput* counts a packet only if it is the next one that the receiver "
        "expects on arrival (`inorder_goodput_mbps`). A packet behind a gap never counts, although the application "
        "receives it later. *Loss* is one minus the ratio of the two (`inorder_loss`), so it includes packets that "
        "arrived behind a gap. The plain metrics are what the application receives (`throughput_mbps`) and the "
        "fraction of sent packets that the network lost (`true_loss`).",
        ("arrived_mbps", "inorder_goodput_mbps", "inorder_loss"),
        {
            "arrived_mbps": "its throughput (Mbit/s)",
            "inorder_goodput_mbps": "its goodput (Mbit/s)",
            "throughput_mbps": "received by the application (Mbit/s)",
            "inorder_loss": "its loss",
            "true_loss": "lost in the network / sent",
        },
    ),
    _Misleading(
        "**BBR-ACW's queueing delay.** The text says that BBR-ACW's average *queueing delay* is 54 % below BBR's. "
        "These 54 % are the step from 35 to 16 ms in the figure, for a flow with a base RTT of 10 ms: the metric is "
        "the RTT of that flow (`rtt_mean_ms[0]`). The plain metric is the queueing delay of the bottleneck "
        "(`link_queue_mean_ms`).",
        ("rtt_mean_ms[0]",),
        {"rtt_mean_ms[0]": "RTT of flow 0 (ms)", "link_queue_mean_ms": "queueing delay (ms)"},
    ),
)


def _introduction(experiments: Sequence[_Experiment]) -> list[str]:
    # Experiments share runs, each of which was simulated once.
    runs = {key: cost for experiment in experiments for key, cost in experiment.costs().items()}
    wall_s, simulated_s = (sum(cost[place] for cost in runs.values()) for place in (0, 1))
    results = [experiment.result for experiment in experiments if experiment.result is not None]
    presets = sorted({experiment.preset for experiment in experiments if experiment.preset})
    seeds = sorted({", ".join(str(seed) for seed in result.plan["config"]["seeds"]) for result in results})
    return [
        "The experiments of the papers that introduced the algorithms, reproduced, with the published numbers beside "
        "the measured ones. This page is generated from the results.",
        "    python -m studies.papers    # all experiments; preset=full: durations and repeats of the papers\n"
        "    bbrgym benchmark experiment=paper/<experiment>\n"
        "    bbrgym benchmark experiment=ablation/<algorithm>",
        "Each experiment has a report with all figures: `report.html` in its folder of `runs/benchmark`. "
        "[agreement.md](agreement.md#the-papers-experiments) compares these results with those of the native engine.",
        f"Preset{'s' if len(presets) > 1 else ''} {_listed(presets) or 'none'}, seeds {_listed(seeds) or 'none'}: "
        f"{len(runs)} runs, {page.duration(simulated_s)} of simulated time in {page.duration(wall_s)} of wall time, "
        "summed over the runs.",
        *page.provenance(result.plan for result in results),
        "Measured values are means over the seeds with [95 % bootstrap intervals], without an interval where the seed "
        "changes nothing. A published number *agrees* if it has the published order among the other published numbers "
        "of its quantity, a bound if the mean keeps it (*unclear* if the interval contains it), an order if all its "
        "pairs have that order. An entry without anything to compare with is *not judged*; its ratio, measured over "
        "published, says how close it is. With fewer than ten seeds, intervals are too narrow to rest a claim on. In "
        "the figures, hollow diamonds are published numbers, and hollow triangles are published bounds that point to "
        "where the values should be.",
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


def _misleading_metrics() -> list[str]:
    return [
        "Two papers use established words for something else. Such a metric is measured as the paper measures it, to "
        "compare with its numbers; a table in these experiments has the plain metric beside it.",
        "\n".join(f"* {entry.text}" for entry in MISLEADING),
    ]


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
    costs = experiment.costs().values()
    wall_s, simulated_s = (sum(cost[place] for cost in costs) for place in (0, 1))
    file = f"{experiment.group}/{experiment.name}.yaml"
    blocks.append(
        f"Cost: {len(costs)} runs, {page.duration(wall_s)} of wall time in total, "
        f"{number_text(simulated_s / wall_s) if wall_s else '-'} simulated s/s. Reproduce: `{experiment.command}` "
        f"([configuration](../../conf/experiment/{file}), "
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
    for entry in MISLEADING:
        if not of_claims & set(entry.signs):
            continue
        columns = [metric for metric in entry.columns if (metric, "mean") in table]
        rows = [
            [*map(page.cell, index), *(number_text(float(row[metric, "mean"])) for metric in columns)]
            for index, row in table.iterrows()
            if isinstance(index, tuple)
        ]
        headings = ["scenario", "competitor", *(entry.columns[metric] for metric in columns)]
        blocks += [
            "The paper's metrics and the plain ones ([what they mean](#metrics-with-misleading-names)):",
            page.table(headings, rows, numbers=range(2, len(headings))),
        ]
    return blocks


def _settings(result: BenchmarkResult) -> str:
    """Return what all scenarios together are, in one line: `Scenario.describe` would need a line for each."""
    config = result.plan["config"]
    scenarios = [Scenario.from_dict(plain) for plain in config["scenarios"].values()]
    parts = [
        f"{_values((s.rate_mbps for s in scenarios), 'Mbit/s')}",
        _flows(scenarios, result),
        f"{' and '.join(sorted({s.queue for s in scenarios}))} buffer of {_buffers(scenarios)}",
    ]
    if any(s.loss for s in scenarios):
        parts.append(f"random loss of {_values((100 * s.loss for s in scenarios), '%')}")
    parts += [
        f"packets of {_values((s.packet_bytes for s in scenarios), 'bytes')}",
        f"{_values((s.duration_s for s in scenarios), 's')}, the first {100 * config['warmup']:g} % not measured"
        if config["warmup"]
        else _values((s.duration_s for s in scenarios), "s"),
        f"seeds {', '.join(str(seed) for seed in config['seeds'])}",
        f"engine {config['engine']['name']}",
    ]
    return page.cell("; ".join(parts))


def _flows(scenarios: Sequence[Scenario], result: BenchmarkResult) -> str:
    """Return `flows of 10 ms and 20, 30, 50 ms`, with the algorithm of a flow that no competitor takes."""
    roles = result.plan["config"]["roles"]
    counts = sorted({len(s.flows) for s in scenarios})
    starts = {flow.start_s for s in scenarios for flow in s.flows}
    when = f", starting at {min(starts):g} to {max(starts):g} s" if len(starts) > 1 else ""
    rtts = {flow.rtt_ms for s in scenarios for flow in s.flows}
    if len(counts) > 1 or counts[0] > 3:
        count = f"{', '.join(map(str, counts))} flow{'' if counts == [1] else 's'}"
        return f"{count} with an RTT of {_values(rtts, 'ms')}{when}"
    flows = []
    for index in range(counts[0]):
        text = _values((s.flows[index].rtt_ms for s in scenarios), "ms")
        if roles != "all" and index not in roles:
            text += f" ({', '.join(sorted({s.flows[index].algorithm for s in scenarios}))})"
        flows.append(text)
    return f"{'flows' if len(flows) > 1 else 'a flow'} with an RTT of {' and '.join(flows)}{when}"


def _buffers(scenarios: Sequence[Scenario]) -> str:
    in_packets = [s.buffer_packets for s in scenarios if s.buffer_packets is not None]
    in_bdp = [1.0 if s.buffer_bdp is None else s.buffer_bdp for s in scenarios if s.buffer_packets is None]
    parts = [_values(in_bdp, "BDP")] if in_bdp else []
    return " and ".join(parts + ([_values(in_packets, "packets")] if in_packets else []))


def _values(values: Iterable[float], unit: str) -> str:
    """Return `10, 50, 100 Mbit/s`."""
    return f"{', '.join(f'{value:.6g}' for value in sorted(set(values)))} {unit}"


def _reference(paper: Paper) -> str:
    reference = page.cell(paper.reference or paper.title)
    if re.fullmatch(r"https?://[^\s()<>|]+", paper.url):
        reference = f"[{reference}]({paper.url})"
    return f"{reference}, {page.cell(paper.where)}" if paper.where else reference


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _listed(texts: Iterable[str]) -> str:
    return " and ".join(texts)
