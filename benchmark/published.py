"""What papers published about their experiments, and whether measurements agree."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import pandas as pd
from omegaconf import OmegaConf

from bbrgym.benchmark.claims import Claim, check_flow, check_metric, find_scenarios
from bbrgym.benchmark.statistics import number_text
from bbrgym.benchmark.verdicts import ClaimRuns, Finding, Measured, judge_claims
from bbrgym.checks import check_name, read_fields
from bbrgym.envs.scenario import Scenario

CLAIMS: Final = Path(__file__).with_name("paper_claims")
"""What papers published, as `<group>/<experiment>.yaml`: the names of the experiments in conf/experiment.

With `paper: <name>`, `<name>.yaml` has what the experiments of a paper share: their `stated` and `inferred` follow it.
"""
VERDICTS: Final = ("agrees", "disagrees", "unclear", "not judged")


@dataclass(frozen=True)
class Axis:
    """A quantity in which the scenarios of an experiment differ."""

    label: str
    form: str
    value: Callable[[Scenario], float]

    def numbers(self, *values: float) -> list[str]:
        """Return values as an axis has them: a percentage of a loss rate, three digits."""
        scaled = [100 * value if self.form.startswith("{} %") else value for value in values]
        return [f"{value:.0f}" if value == round(value) else f"{value:.3g}" for value in scaled]

    def text(self, *values: float) -> str:
        """Return one value or several with what they are: `5, 15 Mbit/s`."""
        text = self.form.format(", ".join(self.numbers(*values)))
        return "1 flow" if text == "1 flows" else text


def _rtts_ms(scenario: Scenario) -> list[float]:
    return [flow.rtt_ms for flow in scenario.flows]


def _buffer_bdp(scenario: Scenario) -> float:
    if scenario.buffer_packets is not None:
        return scenario.queue_packets / scenario.bdp_packets
    return 1.0 if scenario.buffer_bdp is None else scenario.buffer_bdp


AXES: Final = {
    "rtt_ratio": Axis("longest over shortest RTT", "RTT ratio {}", lambda s: max(_rtts_ms(s)) / min(_rtts_ms(s))),
    "rtt_long_ms": Axis("longest RTT (ms)", "longest RTT {} ms", lambda s: max(_rtts_ms(s))),
    "loss": Axis("random loss (%)", "{} % random loss", lambda s: s.loss),
    "buffer_bdp": Axis("buffer (BDP of the longest RTT)", "buffer of {} BDP", _buffer_bdp),
    "buffer_packets": Axis("buffer (packets)", "buffer of {} packets", lambda s: s.queue_packets),
    "rate_mbps": Axis("rate (Mbit/s)", "{} Mbit/s", lambda s: s.rate_mbps),
    "n_flows": Axis("flows", "{} flows", lambda s: len(s.flows)),
}


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper, to be drawn from measurements.

    Attributes:
        title: which figure, and what it shows.
        y: metrics of `run_table`.
        x: one of `AXES`: a line per competitor, a panel per metric. None: a panel per scenario with a row per
            competitor and a bar per metric.
        y_label: label of the y-axis, with its unit.
        scenario: the only scenario shown; None for all.
        panel: for lines, one of `AXES`, with a panel per value; None for a single panel.
    """

    title: str
    y: tuple[str, ...]
    x: str | None = None
    y_label: str = ""
    scenario: str | None = None
    panel: str | None = None

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], scenarios: Mapping[str, Scenario]) -> PaperFigure:
        """Return the figure of a plain mapping; `scenarios` are those of the experiment."""
        figure = cls(**read_fields(cls, "a figure", plain))
        what = f"the figure {figure.title!r}"
        for key, axis in (("x", figure.x), ("panel", figure.panel)):
            if axis is not None:
                check_name(key, axis, AXES, of=what)
        shown = find_scenarios(what, () if figure.scenario is None else (figure.scenario,), scenarios, or_all=True)
        for name in figure.y:
            check_metric(what, name, has_derived=False)
            check_flow(what, name, [scenarios[one] for one in shown])
        return figure


@dataclass(frozen=True)
class Paper:
    """The experiment of a paper: where it is, its setting, and its results.

    Attributes:
        title: title of the paper.
        reference: journal, year, number.
        url: link to the paper.
        where: section, figure or table.
        stated: what the paper says about the setting, for readers of the file.
        inferred: what the paper leaves open and how it is read here, with reasons, for readers of the file.
        figure: what is drawn.
        published: its numbers and statements, each over all of its scenarios.
    """

    title: str
    reference: str = ""
    url: str = ""
    where: str = ""
    stated: tuple[str, ...] = ()
    inferred: tuple[str, ...] = ()
    figure: PaperFigure | None = None
    published: tuple[Claim, ...] = ()

    @classmethod
    def from_dict(
        cls, plain: Mapping[str, Any], scenarios: Mapping[str, Scenario], competitors: Collection[str]
    ) -> Paper:
        """Return the paper of a plain mapping, as a file of `CLAIMS` has it."""
        arguments = read_fields(cls, "a paper", plain)
        claims = [Claim.from_dict(entry, competitors, scenarios) for entry in arguments.get("published", ())]
        for claim in claims:
            check_metric(f"the claim about {claim.metric}", claim.metric, has_derived=False)
        arguments["published"] = tuple(
            dataclasses.replace(part, reason=_reasons().get(part.reason, part.reason))
            for claim in claims
            for part in claim.parts()
        )
        if "figure" in arguments:
            arguments["figure"] = PaperFigure.from_dict(arguments["figure"], scenarios)
        return cls(**arguments)


def load_paper(
    experiment: str, scenarios: Mapping[str, Scenario], competitors: Collection[str], claims: Path = CLAIMS
) -> Paper:
    """Load what a paper published about an experiment."""
    path = claims / f"{experiment}.yaml"
    if not path.is_file():
        raise ValueError(f"{experiment!r} is not the experiment of a paper: {path} does not exist")
    plain: Any = OmegaConf.to_container(OmegaConf.load(path))
    if "paper" in plain:
        shared: Any = OmegaConf.to_container(OmegaConf.load(claims / f"{plain.pop('paper')}.yaml"))
        lists = {key: [*shared.get(key, ()), *plain.get(key, ())] for key in ("stated", "inferred")}
        plain = shared | plain | lists
    return Paper.from_dict(plain, scenarios, competitors)


@dataclass(frozen=True)
class PublishedComparison:
    """A published entry beside what was measured: a row of a table.

    Attributes:
        claim: the published entry.
        what: the quantity, as `throughput_mbps[0] of bbr, 5bdp`.
        published: as `8.9`, `above 0.92`, `bbr < bbq < da-bbr`.
        measured: as `7.30 [7.02 7.58]`, `bbr 0.601 < bbq 0.624` in the measured order, `never`, or `-` for nothing.
        value: what was measured; infinity for `never`; NaN for an order, and where nothing was measured.
        ratio: measured over published value; NaN if one of them is missing.
        agrees: None if it cannot be judged.
        agreement: `yes`, `no`, `5 of 6 pairs`, `unclear`, or `-` if nothing can be judged.
        because: the claim's reason for a disagreement; empty if it agrees or nothing was measured.
    """

    claim: Claim
    what: str
    published: str
    measured: str
    value: float
    ratio: float
    agrees: bool | None
    agreement: str
    because: str


def compare(paper: Paper, results: pd.DataFrame) -> list[PublishedComparison]:
    """Compare everything that a paper published about an experiment with the measurements.

    `bbrgym.benchmark.verdicts.judge_claims` judges it. Of a value without others to compare it with, the ratio says how
    close it is.

    Returns:
        One row per entry of `paper.published`, in that order.
    """
    return [_row(finding) for finding in judge_claims(paper.published, ClaimRuns.of_tables(results))]


def _row(finding: Finding) -> PublishedComparison:
    claim, measured = finding.claim, finding.measured
    text = _order_text(finding.values) if claim.order else _measured_text(measured)
    claimed = numbers_of(claim)
    value = measured.estimate.value
    first = next(iter(claimed.values()), 0.0)
    return PublishedComparison(
        claim=claim,
        what=_what(claim),
        published=" < ".join(claim.order)
        or " and ".join(
            f"{number:g}" if bound == "about" else f"{bound} {number:g}" for bound, number in claimed.items()
        ),
        measured=text,
        value=value,
        ratio=value / first if first else math.nan,
        agrees={"pass": True, "fail": False}.get(finding.verdict or ""),
        agreement=_agreement(finding),
        because="" if finding.verdict == "pass" or text == "-" else claim.reason,
    )


def numbers_of(claim: Claim) -> dict[str, float]:
    """Return the numbers of a claim: what it is `about`, or what it is `above` and `below`; none for an order."""
    found = {"about": claim.value, "above": claim.at_least, "below": claim.at_most}
    return {bound: number for bound, number in found.items() if number is not None}


def _agreement(finding: Finding) -> str:
    if finding.verdict is None:
        return "-"
    agreeing, pairs = finding.pairs
    if finding.verdict == "fail" and agreeing:
        return f"{agreeing} of {pairs} pairs"
    return {"pass": "yes", "fail": "no", "unclear": "unclear"}[finding.verdict]


def _measured_text(measured: Measured) -> str:
    value, n_reached = measured.estimate.value, round(measured.estimate.n)
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return f"never in {measured.runs - n_reached} of {measured.runs} runs" if n_reached else "never"
    few = f" ({n_reached} of {measured.runs} runs)" if n_reached < measured.runs else ""
    return measured.estimate.text(_form(value)) + few


def _order_text(values: Mapping[str, float]) -> str:
    """Return what was measured, the lowest first; `-` for nothing."""
    ranked = sorted(values, key=lambda name: values[name])
    text = f"{ranked[0]} {_number(values[ranked[0]])}" if ranked else "-"
    for before, name in itertools.pairwise(ranked):
        text += f" {'=' if values[before] == values[name] else '<'} {name} {_number(values[name])}"
    return text


def _what(claim: Claim) -> str:
    text = claim.metric
    if claim.competitor is not None:
        text += f" of {claim.competitor}"
    if claim.quantity == "reduction":
        text = f"reduction of {text} against {claim.other}"
    if claim.quantity == "ratio":
        text = f"{text} over that of {claim.other}"
    if len(claim.scenarios) > 1:
        text = {"mean": "mean ", "min": "smallest ", "max": "largest "}[claim.over] + text
    return f"{text}, {', '.join(claim.scenarios)}"


def _number(value: float) -> str:
    return "never" if value == math.inf else number_text(value, _form(value))


def _form(value: float) -> str:
    """Return the format of three significant digits, for numbers from 0.00001: a reduction or ratio is no metric."""
    decimals = min(7, max(0, 2 - math.floor(math.log10(abs(value))))) if value and math.isfinite(value) else 0
    return f".{decimals}f"


@cache
def _reasons() -> dict[str, str]:
    return cast(dict[str, str], OmegaConf.to_container(OmegaConf.load(CLAIMS / "reasons.yaml")))
