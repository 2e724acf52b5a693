"""A page on all experiments of the papers: what was published, what was measured, and whether they agree."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bbrgym.benchmark.run import BenchmarkResult, load_benchmark
from bbrgym.benchmark.statistics import number_text
from bbrgym.benchmark.tables import HEADINGS, SORTED_BY, cells, summary_table
from bbrgym.envs.scenario import Scenario
from studies import markdown
from studies.papers.published import CLAIMS, Paper, PublishedComparison, compare
from studies.papers.report import caption, drawn, paper_of, ratio

VERDICTS: Final = ("agrees", "disagrees", "unclear", "not judged")


def write_page(directories: Sequence[Path], path: Path, claims: Path = CLAIMS) -> None:
    """Write the page of what is there of the papers' experiments and of the ablations, with a figure of each.

    Equal results give equal files: there is no date on the page. Figures go to a folder beside the page that has its
    name, `docs/benchmark/<experiment>.svg` for `docs/results/papers.md`.

    Args:
        directories: of benchmarks, as `bbrgym benchmark` makes them: `…/paper-<preset>/<experiment>`, or
            `…/ablation-<preset>/<algorithm>`. One that has no benchmark is on the page as missing.
        path: where the page goes; `docs/results/papers.md`, for it has links to `../conf`.
        claims: the folder of what the papers published.

    Raises:
        ValueError: a benchmark is not one of a paper, or two have the same name.
    """
    experiments = [_Experiment.of(directory, claims) for directory in directories]
    names = [experiment.figure_name for experiment in experiments]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two of the directories are of {name!r}: give one preset of an experiment")
    papers = [experiment for experiment in experiments if not experiment.is_ablation]
    ablations = [experiment for experiment in experiments if experiment.is_ablation]
    place = path.with_suffix("")
    place.mkdir(parents=True, exist_ok=True)
    blocks = [
        "# Published and measured",
        *_introduction(experiments),
        "## Summary",
        *_summary(papers),
        *(["Ablations, one an algorithm:", *_summary(ablations)] if ablations else []),
        "## Metrics whose names mislead",
        *_misleading_metrics(),
        "## Experiments",
        *(block for experiment in papers for block in _section(experiment, place)),
    ]
    if ablations:
        blocks += ["## Does the central claim hold?", *_introduction_to_ablations()]
        blocks += [block for experiment in ablations for block in _section(experiment, place)]
    markdown.write_blocks(blocks, path)


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
    def command(self) -> str:
        preset = f" preset={self.preset}" if self.preset else ""
        return f"bbrgym benchmark experiment={self.group}/{self.name}{preset}"

    def costs(self) -> dict[str, tuple[float, float]]:
        """Of each run that is done, by its key: wall time and simulated time in s."""
        if self.result is None or self.result.results.empty:
            return {}
        scenarios = self.result.plan["config"]["scenarios"]
        runs = self.result.results.drop_duplicates("key")
        return {
            str(key): (float(wall_s), float(scenarios[scenario]["duration_s"]))
            for key, scenario, wall_s in zip(runs["key"], runs["scenario"], runs["wall_s"], strict=True)
        }

    def verdicts(self) -> dict[str, int]:
        """How many of the published entries agree, and so on."""
        found = [verdict(row) for row in self.rows]
        return {name: found.count(name) for name in VERDICTS}

    def state(self) -> str:
        """What is missing, empty if nothing is."""
        if self.result is None:
            return f"Missing: not run yet (`{self.command}`)."
        planned = len(self.result.plan["runs"])
        lost = len(self.result.missing) + len(self.result.failures)
        if not lost:
            return ""
        failed = f", {len(self.result.failures)} failed" if self.result.failures else ""
        return f"Unfinished: {planned - lost} of {planned} runs are done{failed}."


def verdict(row: PublishedComparison) -> str:
    """One of `VERDICTS`."""
    if row.agrees is not None:
        return "agrees" if row.agrees else "disagrees"
    return "unclear" if row.agreement == "unclear" else "not judged"


@dataclass(frozen=True)
class _Misleading:
    """Metrics of a paper whose names say something else than what they measure.

    Attributes:
        text: what is what.
        signs: metrics by which one sees that an experiment has them.
        columns: what is shown in that experiment: the paper's column and the plain ones beside it.
    """

    text: str
    signs: tuple[str, ...]
    columns: Mapping[str, str]


MISLEADING: Final = (
    _Misleading(
        "**BBR-ACD's throughput, goodput and loss.** Its *throughput* counts every data packet that reaches a "
        "receiver, duplicates included (`arrived_mbps`). Its *goodput* counts a packet only if it is the next one that "
        "the receiver expects when it arrives (`inorder_goodput_mbps`): what has to wait until a gap before it is "
        "filled never counts, though the application receives it. Its *loss* is one minus the ratio of the two "
        "(`inorder_loss`), so it has packets in it that arrived, behind a gap. Beside them stand what the application "
        "receives (`throughput_mbps`) and what the network lost of the packets sent (`true_loss`).",
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
        "**BBR-ACW's queueing delay.** The text says that BBR-ACW's average *queueing delay* is 54 % below that of "
        "BBR. These are the 54 % from 35 to 16 ms of the figure, for a flow with a base RTT of 10 ms: it is the RTT of "
        "that flow (`rtt_mean_ms[0]`). Beside it stands the queueing delay of the bottleneck (`link_queue_mean_ms`).",
        ("rtt_mean_ms[0]",),
        {"rtt_mean_ms[0]": "RTT of flow 0 (ms)", "link_queue_mean_ms": "queueing delay (ms)"},
    ),
)


def _introduction(experiments: Sequence[_Experiment]) -> list[str]:
    # A run that several experiments have in common was made once.
    runs = {key: cost for experiment in experiments for key, cost in experiment.costs().items()}
    wall_s, simulated_s = (sum(cost[place] for cost in runs.values()) for place in (0, 1))
    results = [experiment.result for experiment in experiments if experiment.result is not None]
    presets = sorted({experiment.preset for experiment in experiments if experiment.preset})
    seeds = sorted({", ".join(str(seed) for seed in result.plan["config"]["seeds"]) for result in results})
    return [
        "The experiments of the papers in which the algorithms were published, made again, each with the paper's own "
        "numbers beside the measured ones. Nothing on this page is written by hand: it is made of the results.",
        "    python -m studies.papers    # all of them; preset=full: as long and as often as the papers say\n"
        "    bbrgym benchmark experiment=paper/<experiment>\n"
        "    bbrgym benchmark experiment=ablation/<algorithm>",
        "The report of each, with all its figures, is `report.html` in its folder of `runs/benchmark`.",
        "What comes out of the papers' experiments in the native engine, and how far that is from this: "
        "[agreement.md](agreement.md#the-papers-experiments).",
        f"This page is of the preset{'s' if len(presets) > 1 else ''} {_listed(presets) or 'none'}, with the seeds "
        f"{_listed(seeds) or 'none'}: {len(runs)} runs, {markdown.duration(simulated_s)} of simulated time in "
        f"{markdown.duration(wall_s)} of wall time (summed over the runs, several of which run at once).",
        *markdown.made_with(result.plan for result in results),
        "Measured are means over the seeds with [95 % bootstrap intervals] (none where the seed changes nothing). "
        "Orders come first: a published number *agrees* if it is in the published order among the other published "
        "numbers of its quantity, a bound if the mean keeps it (*unclear* if it lies in the interval), an order if all "
        "its pairs are so. What has nothing to be compared with is *not judged*: the ratio, measured over published, "
        "says how near it is. With less than ten seeds an interval is too narrow to rest a claim on. In the figures "
        "hollow diamonds are the paper's numbers, hollow triangles its bounds, pointing to where the values should be.",
    ]


def _summary(experiments: Sequence[_Experiment]) -> list[str]:
    rows = []
    for experiment in experiments:
        link = f"[{experiment.name}](#{_anchor(experiment)})"
        if experiment.paper is None:
            rows.append([link, "", "", "", "", "", experiment.state()])
            continue
        counts = [str(count) for count in experiment.verdicts().values()]
        rows.append([link, _reference(experiment.paper), *counts, _verdict_of_all(experiment)])
    if not rows:
        return ["No experiment."]
    return [markdown.table(["experiment", "paper", *VERDICTS, "largest disagreement"], rows, numbers=range(2, 6))]


def _verdict_of_all(experiment: _Experiment) -> str:
    parts = [experiment.state()] if experiment.state() else []
    wrong = [row for row in experiment.rows if row.agrees is False]
    if wrong:
        # An order has no ratio: it comes after all that has one.
        worst = max(wrong, key=lambda row: abs(math.log(row.ratio)) if 0 < row.ratio < math.inf else -1.0)
        parts.append(f"{worst.what}: published {worst.published}, measured {worst.measured}")
    elif any(row.agrees for row in experiment.rows):
        parts.append("none")
    else:
        parts.append("nothing could be judged")
    return markdown.cell(" ".join(parts))


def _misleading_metrics() -> list[str]:
    return [
        "Two papers use words of the field for something else. What they name is measured as they measure it, to "
        "compare with their numbers, and in these experiments a table has the plain metric beside it.",
        "\n".join(f"* {entry.text}" for entry in MISLEADING),
    ]


def _introduction_to_ablations() -> list[str]:
    return [
        "The algorithm, BBR, and the algorithm with parts of it turned off or on, where its paper sees its effect.",
    ]


def _section(experiment: _Experiment, place: Path) -> list[str]:
    blocks = [f"### {_title(experiment)}"]
    result, paper = experiment.result, experiment.paper
    if result is None or paper is None:
        return [*blocks, experiment.state()]
    blocks += [f"**{markdown.cell(paper.title)}** ({_reference(paper)}).", f"Settings: {_settings(result)}."]
    if paper.inferred:
        readings = "\n".join(f"* {markdown.cell(line)}" for line in paper.inferred)
        summary = "What the paper leaves open, and how it is read here"
        blocks.append(f"<details><summary>{summary}</summary>\n\n{readings}\n\n</details>")
    if state := experiment.state():
        blocks.append(f"**{state}**")
    if result.results.empty:
        return blocks
    blocks += _figure(experiment, place)
    if experiment.is_ablation:
        blocks += [_competitors(result), *_leagues(result)]
    if experiment.rows:
        rows = [
            [
                markdown.cell(row.what),
                markdown.cell(row.published + (f" (“{row.claim.wording}”)" if row.claim.wording else "")),
                markdown.cell(row.measured),
                markdown.cell(row.agreement),
                ratio(row),
            ]
            for row in experiment.rows
        ]
        headings = ["quantity", "published", "measured", "agrees", "ratio"]
        blocks.append(markdown.table(headings, rows, numbers=(4,)))
        blocks += _reasons(experiment.rows)
    blocks += _plain_metrics(experiment)
    costs = experiment.costs().values()
    wall_s, simulated_s = (sum(cost[place] for cost in costs) for place in (0, 1))
    blocks.append(
        f"Cost: {len(costs)} runs, {markdown.duration(wall_s)} of wall time in sum, "
        f"{number_text(simulated_s / wall_s) if wall_s else '-'} simulated s/s. "
        f"Again: `{experiment.command}`, "
        f"[its configuration](../conf/experiment/{experiment.group}/{experiment.name}.yaml)."
    )
    return blocks


def _reasons(rows: Sequence[PublishedComparison]) -> list[str]:
    """Why entries disagree, one sentence for all that have the same reason, and of which it is not known."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.because:
            reasons.setdefault(row.because, []).append(row.what)
    lines = [f"* {markdown.cell('; '.join(what))}: {markdown.cell(_sentence(text))}" for text, what in reasons.items()]
    unexplained = list(dict.fromkeys(row.what for row in rows if row.agrees is False and not row.because))
    if unexplained:
        lines.append(f"* The cause is not isolated yet: {markdown.cell('; '.join(unexplained))}.")
    return ["\n".join(lines)] if lines else []


def _figure(experiment: _Experiment, place: Path) -> list[str]:
    """One figure, in which the published numbers are if the paper has such a figure, in a file beside the page."""
    assert experiment.result is not None
    assert experiment.paper is not None
    chosen = sorted(experiment.paper.figures, key=lambda figure: figure.kind == "time")
    for figure in chosen:
        shown = drawn(figure, experiment.paper, experiment.result)
        if shown is not None:
            file = markdown.write_figure(shown, place / experiment.figure_name)
            title = markdown.cell(figure.title).replace("[", "\\[").replace("]", "\\]")
            image = f"![{title}]({place.name}/{file.name})"
            return [image, caption(figure, experiment.result)] if figure.kind == "time" else [image]
    return []


def _competitors(result: BenchmarkResult) -> str:
    """What each competitor is: its algorithm, and the parameters that differ from the defaults."""
    lines = []
    for entry in result.plan["config"]["competitors"]:
        what = f"`{entry['algorithm']}`" if "algorithm" in entry else "a trained agent"
        parameters = ", ".join(f"`{name}={value:g}`" for name, value in entry["parameters"].items())
        lines.append(f"* {markdown.cell(entry['name'])}: {what}{' with ' + parameters if parameters else ' as it is'}")
    return "\n".join(lines)


def _leagues(result: BenchmarkResult) -> list[str]:
    table = summary_table(result.results)
    blocks = []
    for name in table.index.unique("scenario"):
        scenario = Scenario.from_dict(result.plan["config"]["scenarios"][name])
        rows = [
            [markdown.cell(competitor), *(markdown.cell(text) for text in cells(row))]
            for competitor, row in table.loc[name].iterrows()
        ]
        setting = f"{scenario.rate_mbps:g} Mbit/s, {_flows([scenario], result)}, buffer of {_buffers([scenario])}"
        blocks += [
            f"{markdown.cell(name)}: {setting}",
            markdown.table(["competitor", *HEADINGS], rows, numbers=range(1, 1 + len(HEADINGS))),
        ]
    return [*blocks, f"Throughput of each flow in Mbit/s, queueing delay and RTT in ms; {SORTED_BY}."]


def _plain_metrics(experiment: _Experiment) -> list[str]:
    """Of an experiment with misleading metrics: these and the plain ones, side by side."""
    assert experiment.result is not None
    table = summary_table(experiment.result.results)
    of_claims = {row.claim.metric for row in experiment.rows}
    blocks = []
    for entry in MISLEADING:
        if not of_claims & set(entry.signs):
            continue
        columns = [metric for metric in entry.columns if (metric, "mean") in table]
        rows = [
            [
                *(markdown.cell(name) for name in index),
                *(markdown.number(float(row[metric, "mean"])) for metric in columns),
            ]
            for index, row in table.iterrows()
            if isinstance(index, tuple)
        ]
        headings = ["scenario", "competitor", *(entry.columns[metric] for metric in columns)]
        blocks += [
            "As the paper measures it, and plainly ([what is what](#metrics-whose-names-mislead)):",
            markdown.table(headings, rows, numbers=range(2, len(headings))),
        ]
    return blocks


def _settings(result: BenchmarkResult) -> str:
    """In one line what is simulated, over all scenarios."""
    config = result.plan["config"]
    scenarios = [Scenario.from_dict(plain) for plain in config["scenarios"].values()]
    parts = [
        f"{_values((s.rate_mbps for s in scenarios), 'Mbit/s')}",
        _flows(scenarios, result),
        f"{' and '.join(sorted({s.queue for s in scenarios}))} buffer of {_buffers(scenarios)}",
    ]
    if any(s.loss for s in scenarios):
        parts.append(f"random loss of {_values((100 * s.loss for s in scenarios), '%')}")
    if any(s.rate_schedule for s in scenarios):
        parts.append("with changes of the rate")
    parts += [
        f"packets of {_values((s.packet_bytes for s in scenarios), 'bytes')}",
        f"{_values((s.duration_s for s in scenarios), 's')}, the first {100 * config['warmup']:g} % not measured"
        if config["warmup"]
        else _values((s.duration_s for s in scenarios), "s"),
        f"seeds {', '.join(str(seed) for seed in config['seeds'])}",
        f"engine {config['engine']['name']}",
    ]
    return markdown.cell("; ".join(parts))


def _flows(scenarios: Sequence[Scenario], result: BenchmarkResult) -> str:
    """`flows of 10 ms and 20, 30, 50 ms`; a flow that no competitor takes has its algorithm's name."""
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
    """`10, 50, 100 Mbit/s`, or `1 to 9 s` of many."""
    known = sorted(set(values))
    numbers = [f"{value:.6g}" for value in known]
    return f"{', '.join(numbers) if len(numbers) <= 6 else f'{numbers[0]} to {numbers[-1]}'} {unit}"


def _title(experiment: _Experiment) -> str:
    return f"{experiment.name}: which part does it?" if experiment.is_ablation else experiment.name


def _anchor(experiment: _Experiment) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", _title(experiment).lower()).replace(" ", "-")


def _reference(paper: Paper) -> str:
    reference = markdown.cell(paper.reference or paper.title)
    if re.fullmatch(r"https?://[^\s()<>|]+", paper.url):
        reference = f"[{reference}]({paper.url})"
    return f"{reference}, {markdown.cell(paper.where)}" if paper.where else reference


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _listed(texts: Iterable[str]) -> str:
    return " and ".join(texts)
