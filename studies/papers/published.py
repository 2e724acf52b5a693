"""What papers published about their experiments, and whether measurements agree."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
from omegaconf import OmegaConf

from bbrgym.benchmark.metrics import FLOW_METRICS, METRICS, find_metric
from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.statistics import Estimate, bootstrap_interval, number_text
from bbrgym.benchmark.tables import run_table
from bbrgym.checks import check_name
from bbrgym.envs.scenario import Scenario
from studies.records import check_one_of, read_record

CLAIMS: Final = Path(__file__).parent / "claims"
"""What papers published, as `<group>/<experiment>.yaml`: the names of the experiments in conf/experiment.

With `paper: <name>`, `<name>.yaml` has what the experiments of a paper share: their `stated` and `inferred` follow it.
"""
VERDICTS: Final = ("agrees", "disagrees", "unclear", "not judged")
BOUNDS: Final = ("about", "above", "below")
OVER: Final = ("mean", "min", "max")
FORMS: Final = ("value", "reduction", "ratio")


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
        figure = cls(**read_record(cls, "a figure", plain))
        what = f"the figure {figure.title!r}"
        for key, axis in (("x", figure.x), ("panel", figure.panel)):
            if axis is not None:
                check_one_of(what, key, axis, AXES)
        shown = _scenarios(what, () if figure.scenario is None else (figure.scenario,), scenarios, or_all=True)
        for name in figure.y:
            _check_metric(name, [scenarios[one] for one in shown])
        return figure


@dataclass(frozen=True)
class Published:
    """A number, a bound or an order that a paper states.

    Attributes:
        metric: a metric of `run_table`.
        scenarios: the scenarios to which it applies.
        competitor: the competitor to which it applies; None for an order.
        value: the number; None for an order.
        bound: `about` if the value is a number; `above` or `below` if it is a bound. Called `is` in the files.
        over: `mean`, `min` or `max` over several scenarios. In files, `each` is one entry per scenario.
        form: `value`: the metric x itself; `reduction`: 1 - x / y with the metric y of `against`; `ratio`: x / y.
            Called `as` in the files.
        against: the competitor that a reduction or a ratio compares with; None for a value.
        order: competitors, the one with the lowest metric first; empty for a number.
        wording: the paper's words.
        because: why the measurement disagrees, in a sentence. Files may also name an entry of claims/reasons.yaml.
    """

    metric: str
    scenarios: tuple[str, ...] = ()
    competitor: str | None = None
    value: float | None = None
    bound: str = "about"
    over: str = "mean"
    form: str = "value"
    against: str | None = None
    order: tuple[str, ...] = ()
    wording: str = ""
    because: str = ""

    @classmethod
    def from_dict(
        cls, plain: Mapping[str, Any], scenarios: Mapping[str, Scenario], competitors: Collection[str]
    ) -> Published:
        """Return the entry of a plain mapping; scenarios and competitors are those of the experiment."""
        keys = {"scenarios": "scenario", "bound": "is", "form": "as"}
        claim = cls(**read_record(cls, "a published entry", plain, keys))
        what = f"the published {claim.metric}"
        check_one_of(what, "as", claim.form, FORMS)
        check_one_of(what, "is", claim.bound, BOUNDS)
        check_one_of(what, "over", claim.over, OVER)
        for name in (*claim.order, claim.competitor, claim.against):
            if name is not None:
                check_one_of(what, "competitor", name, competitors)
        is_value = claim.value is not None and claim.competitor is not None and not claim.order
        is_order = len(set(claim.order)) > 1 and claim.value is None and claim.competitor is None
        if not is_value and not (is_order and claim.form == "value" and claim.bound == "about"):
            raise ValueError(
                f"{what} needs either a value of a competitor or an order of competitors, the lowest first"
            )
        if (claim.form == "value") != (claim.against is None):
            raise ValueError(f"{what}: a reduction and a ratio are against a competitor, a value is not")
        shown = _scenarios(what, claim.scenarios, scenarios)
        _check_metric(claim.metric, [scenarios[name] for name in shown])
        return dataclasses.replace(claim, scenarios=shown, because=_reasons().get(claim.because, claim.because))


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
        published: its numbers and statements.
    """

    title: str
    reference: str = ""
    url: str = ""
    where: str = ""
    stated: tuple[str, ...] = ()
    inferred: tuple[str, ...] = ()
    figure: PaperFigure | None = None
    published: tuple[Published, ...] = ()

    @classmethod
    def from_dict(
        cls, plain: Mapping[str, Any], scenarios: Mapping[str, Scenario], competitors: Collection[str]
    ) -> Paper:
        """Return the paper of a plain mapping, as a file of `CLAIMS` has it."""
        arguments = read_record(cls, "a paper", plain)
        entries = []
        for entry in arguments.get("published", ()):
            if entry.get("over") == "each":
                entries += [entry | {"scenario": name, "over": None} for name in entry["scenario"]]
            else:
                entries.append(entry)
        arguments["published"] = tuple(Published.from_dict(entry, scenarios, competitors) for entry in entries)
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


def paper_of(result: BenchmarkResult, claims: Path = CLAIMS) -> Paper:
    """Return the paper whose experiment a benchmark is, by the benchmark's name `<group>-<preset>/<experiment>`."""
    config = result.plan["config"]
    group, _, name = config["name"].partition("/")
    scenarios = {name: Scenario.from_dict(plain) for name, plain in config["scenarios"].items()}
    competitors = [entry["name"] for entry in config["competitors"]]
    return load_paper(f"{group.rpartition('-')[0]}/{name}", scenarios, competitors, claims)


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

    claim: Published
    what: str
    published: str
    measured: str
    value: float
    ratio: float
    agrees: bool | None
    agreement: str
    because: str

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        if self.agrees is not None:
            return "agrees" if self.agrees else "disagrees"
        return "unclear" if self.agreement == "unclear" else "not judged"


def compare(paper: Paper, results: pd.DataFrame) -> list[PublishedComparison]:
    """Compare everything that a paper published about an experiment with the measurements.

    Quantities are computed from means over the seeds: a reduction is 1 - mean / mean, a `min` over scenarios the lowest
    mean. Only seeds that all runs of a quantity have count, so that the same seeds are compared. The interval comes
    from resampling these seeds; there is none if the seeds change no trace.

    A time to reach something is the mean of the runs that reach it, and `never` if more than half of them do not.

    * An order agrees if the means of all pairs of its competitors have that order.
    * A bound agrees if the mean keeps it; it is unclear if the interval contains the bound.
    * A value is judged by its order among the paper's other values of the same quantity: those of other competitors,
      and for a metric of one flow those of the competitor's other flows. Equal published values have no order. Without
      such values it is not judged; the ratio says how close it is.

    Returns:
        One row per entry of `paper.published`, in that order.
    """
    runs = _Runs(results)
    measured = {claim: runs.measure(claim) for claim in paper.published if claim.competitor is not None}
    rows = []
    for claim in paper.published:
        if claim.order:
            rows.append(_compare_order(claim, runs))
        elif claim.bound == "about":
            rows.append(_compare_value(claim, measured))
        else:
            rows.append(_compare_bound(claim, measured[claim]))
    return rows


TIMES_TO_REACH: Final = ("convergence_s", "equilibrium_s")
"""Metrics whose missing value means that the state is never reached."""


@dataclass(frozen=True)
class _Quantity:
    text: str = "-"
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan


class _Runs:
    """The metrics of all runs, and the quantities of claims."""

    def __init__(self, results: pd.DataFrame) -> None:
        self._runs = None if results.empty else run_table(results)
        self._traces: dict[Any, int] = (
            {} if results.empty else results.groupby(["scenario", "competitor"])["trace_hash"].nunique().to_dict()
        )

    def measure(self, claim: Published) -> _Quantity:
        """Return the quantity of a claim; its text is `-` if it was not measured."""
        if self._runs is None or claim.metric not in self._runs:
            return _Quantity()
        # After unstacking, NaN is a missing run and infinity a run without a value.
        table = self._runs[claim.metric].fillna(math.inf).unstack(["scenario", "competitor"])
        groups = [
            (scenario, name)
            for name in (claim.competitor, claim.against)
            if name is not None
            for scenario in claim.scenarios
        ]
        if not set(groups) <= set(table.columns):
            return _Quantity()
        known = table[groups].dropna().to_numpy(dtype=np.float64)  # (seeds, groups)
        reached = known[np.isfinite(known).all(axis=1)]
        if claim.metric in TIMES_TO_REACH and claim.form == "value" and 2 * len(reached) < len(known):
            never = f"never in {len(known) - len(reached)} of {len(known)} runs" if len(reached) else "never"
            return _Quantity(never, math.inf)
        if not len(reached):
            return _Quantity()
        value = float(_quantity(claim, reached.mean(axis=0)))
        is_sample = any(self._traces[group] > 1 for group in groups)
        low, high = bootstrap_interval(
            np.arange(len(reached)) if is_sample else [],
            lambda drawn, axis: _quantity(claim, reached[drawn.astype(np.intp)].mean(axis=axis)),
        )
        if math.isnan(value):
            return _Quantity()
        text = Estimate(value, low, high, len(reached)).text(_form(value))
        if len(reached) < len(known):
            text += f" ({len(reached)} of {len(known)} runs)"
        return _Quantity(text, value, low, high)


def _quantity(claim: Published, means: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the quantity of means, shape (…, groups): the competitor in each scenario, then the one it is against."""
    own = means[..., : len(claim.scenarios)]
    if claim.form != "value":
        others = means[..., len(claim.scenarios) :]
        own = own / np.where(others == 0, math.nan, others)
        own = 1 - own if claim.form == "reduction" else own
    reduce: dict[str, Callable[..., npt.NDArray[np.float64]]] = {"mean": np.mean, "min": np.min, "max": np.max}
    return reduce[claim.over](own, axis=-1)


def _compare_value(claim: Published, measured: Mapping[Published, _Quantity]) -> PublishedComparison:
    own = measured[claim]
    pairs = [
        np.sign(other.value - own.value) == np.sign(partner.value - claim.value)
        for partner, other in measured.items()
        if partner.value is not None and claim.value is not None and _is_partner(partner, claim)
        if not math.isnan(other.value) and not math.isnan(own.value)
    ]
    return _row(claim, own, *_of_pairs(pairs))


def _is_partner(other: Published, claim: Published) -> bool:
    def quantity(entry: Published) -> tuple[object, ...]:
        return entry.bound, entry.scenarios, entry.over, entry.form, entry.against

    if quantity(other) != quantity(claim) or other.value == claim.value:
        return False
    if other.metric == claim.metric:
        return other.competitor != claim.competitor
    is_other_flow = "[" in claim.metric and other.metric.split("[")[0] == claim.metric.split("[")[0]
    return is_other_flow and "[" in other.metric and other.competitor == claim.competitor


def _compare_bound(claim: Published, own: _Quantity) -> PublishedComparison:
    assert claim.value is not None
    if math.isnan(own.value):
        return _row(claim, own, None, "-")
    if own.low <= claim.value <= own.high:
        return _row(claim, own, None, "unclear")
    agrees = own.value > claim.value if claim.bound == "above" else own.value < claim.value
    return _row(claim, own, agrees, "yes" if agrees else "no")


def _compare_order(claim: Published, runs: _Runs) -> PublishedComparison:
    values = {name: runs.measure(dataclasses.replace(claim, competitor=name)).value for name in claim.order}
    if any(math.isnan(value) for value in values.values()):
        return _row(claim, _Quantity(), None, "-")
    pairs = [values[low] < values[high] for place, low in enumerate(claim.order) for high in claim.order[place + 1 :]]
    ranked = sorted(values, key=lambda name: values[name])
    text = ranked[0] + " " + _number(values[ranked[0]])
    for before, name in itertools.pairwise(ranked):
        text += f" {'=' if values[before] == values[name] else '<'} {name} {_number(values[name])}"
    return _row(claim, _Quantity(text), *_of_pairs(pairs))


def _of_pairs(pairs: Sequence[Any]) -> tuple[bool | None, str]:
    if not pairs:
        return None, "-"
    agreeing = sum(map(bool, pairs))
    if agreeing == len(pairs):
        return True, "yes"
    return False, f"{agreeing} of {len(pairs)} pairs" if agreeing else "no"


def _row(claim: Published, measured: _Quantity, agrees: bool | None, agreement: str) -> PublishedComparison:
    if claim.order:
        published = " < ".join(claim.order)
    else:
        published = f"{claim.value:g}" if claim.bound == "about" else f"{claim.bound} {claim.value:g}"
    return PublishedComparison(
        claim=claim,
        what=_what(claim),
        published=published,
        measured=measured.text,
        value=measured.value,
        ratio=measured.value / claim.value if claim.value else math.nan,
        agrees=agrees,
        agreement=agreement,
        because="" if agrees or measured.text == "-" else claim.because,
    )


def _what(claim: Published) -> str:
    text = claim.metric
    if claim.competitor is not None:
        text += f" of {claim.competitor}"
    if claim.form == "reduction":
        text = f"reduction of {text} against {claim.against}"
    if claim.form == "ratio":
        text = f"{text} over that of {claim.against}"
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


def _check_metric(name: str, scenarios: Sequence[Scenario]) -> None:
    if find_metric(name) is None:
        check_name("metric", name, [*METRICS, *(f"{metric}[0]" for metric in FLOW_METRICS)])
    flow, flows = re.search(r"\[(\d+)\]$", name), min(len(scenario.flows) for scenario in scenarios)
    if flow is not None and int(flow[1]) >= flows:
        raise ValueError(f"the paper has {name!r}, but the flows of its scenario are 0 to {flows - 1}")


def _scenarios(what: str, named: tuple[str, ...], known: Collection[str], or_all: bool = False) -> tuple[str, ...]:
    """Return the named scenarios; the only one, or all if that is allowed, if none is named."""
    if not named and len(known) != 1 and not or_all:
        raise ValueError(f"{what} names no scenario, and there are several: {', '.join(known)}")
    for name in named:
        check_one_of(what, "scenario", name, known)
    return named or tuple(known)
