"""Claims: what somebody says of competitors, as data that `bbrgym.benchmark.verdicts` judges by runs.

A criterion of RFC 9743 (conf/experiment/rfc9743.yaml), what a paper published about its experiment
(benchmark/paper_claims) and what others say of an algorithm (studies/rivals.yaml) are claims. This module imports no
tables, so that a worker starts quickly.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bbrgym.benchmark.derived_metrics import DERIVED
from bbrgym.benchmark.metrics import FLOW_METRICS, METRICS, Metric, find_metric
from bbrgym.checks import check_name, read_fields
from bbrgym.envs.scenario import Scenario

QUANTITIES: Final = ("value", "ratio", "reduction")
OVER: Final = ("each", "mean", "min", "max")
KEYS: Final = {"scenarios": "scenario", "quantity": "as"}
"""What fields are called in files, if they have another name there."""


@dataclass(frozen=True)
class Claim:
    """What a metric of a competitor is: between bounds, about a value, or higher than that of others.

    Attributes:
        metric: a column of `bbrgym.benchmark.tables.run_table`, or one of `DERIVED`.
        scenarios: the scenarios that it is about; `scenario` in files, which can be left out if there is only one.
        competitor: whom it is about; None for an order, and for a criterion, which every competitor must meet.
        than: a competitor. The metric is compared with that of its run with the same scenario and seed.
        against: a competitor. The mean over the seeds is compared with the mean of its runs in the same scenario.
        quantity: what is compared: the metric's `value` x itself; the `ratio` x / y, where y is the metric of `than` or
            `against`; or the `reduction` 1 - x / y. Called `as` in files. By default a ratio if there is a y.
        over: how several scenarios are taken: `each` for itself, or the `mean`, `min` or `max` over them.
        order: competitors, the one with the lowest metric first.
        at_least: what the quantity must at least be.
        at_most: what it must at most be.
        value: about what it is. It is judged by its order among the values that other claims of the same kind have.
        wording: the claim in words.
        source: who claims it, and where.
        because: why the bounds are these, with the source.
        reason: why measurements disagree, in a sentence.
    """

    metric: str
    scenarios: tuple[str, ...] = ()
    competitor: str | None = None
    than: str | None = None
    against: str | None = None
    quantity: str = "value"
    over: str = "mean"
    order: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    value: float | None = None
    wording: str = ""
    source: str = ""
    because: str = ""
    reason: str = ""

    @classmethod
    def from_dict(
        cls,
        plain: Mapping[str, Any],
        competitors: Collection[str],
        scenarios: Mapping[str, Scenario] | None = None,
    ) -> Claim:
        """Return the claim of a plain mapping.

        Args:
            plain: its fields.
            competitors: whom it can name.
            scenarios: what it can be about; None if whoever reads it sets its scenarios.

        Raises:
            ValueError: the message names the bad key or value, and what is valid.
        """
        claim = cls(**read_fields(cls, "a claim", plain, KEYS))
        what = f"the claim about {claim.metric}"
        check_metric(what, claim.metric)
        if claim.other is not None and not plain.get("as"):
            claim = dataclasses.replace(claim, quantity="ratio")
        check_name("as", claim.quantity, QUANTITIES, of=what)
        check_name("over", claim.over, OVER, of=what)
        for name in (*claim.order, claim.competitor, claim.than, claim.against):
            if name is not None:
                check_name("competitor", name, competitors, of=what)
        if claim.than is not None and claim.against is not None:
            raise ValueError(f"{what} must have either than or against, got {claim.than!r} and {claim.against!r}")
        if (claim.quantity == "value") != (claim.other is None):
            raise ValueError(f"{what}: a ratio and a reduction need than or against, and a value has neither")
        kinds = [bool(claim.thresholds), claim.value is not None, bool(claim.order)]
        if sum(kinds) != 1:
            raise ValueError(f"{what} must have at_least or at_most, or a value, or an order, got {dict(plain)!r}")
        if len(claim.thresholds) == 2 and claim.thresholds[0] > claim.thresholds[1]:
            raise ValueError(f"{what}: at_least must be <= at_most, got {claim.needed}")
        if claim.order and (claim.competitor is not None or claim.other is not None or len(set(claim.order)) < 2):
            raise ValueError(
                f"{what}: an order must be of two competitors or more, the lowest first, and of nothing else"
            )
        if claim.value is not None and claim.competitor is None:
            raise ValueError(f"{what} must name the competitor that has the value {claim.value:g}")
        if scenarios is not None:
            shown = find_scenarios(what, claim.scenarios, scenarios)
            check_flow(what, claim.metric, [scenarios[name] for name in shown])
            claim = dataclasses.replace(claim, scenarios=shown)
        return claim

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, of which `from_dict` makes an equal claim."""
        fields = {field.name: (getattr(self, field.name), field.default) for field in dataclasses.fields(self)}
        return {
            KEYS.get(name, name): list(value) if isinstance(value, tuple) else value
            for name, (value, default) in fields.items()
            if value != default
        }

    def parts(self) -> list[Claim]:
        """Return a claim per scenario if it is about `each` of them, and otherwise itself."""
        if self.over != "each":
            return [self]
        return [dataclasses.replace(self, scenarios=(name,), over="mean") for name in self.scenarios]

    @property
    def other(self) -> str | None:
        """The competitor that it compares with: `than` or `against`."""
        return self.against if self.than is None else self.than

    @property
    def described(self) -> Metric:
        """The metric's label, unit and format, before it is compared."""
        metric = DERIVED[self.metric].metric if self.metric in DERIVED else find_metric(self.metric)
        assert metric is not None
        return metric

    @property
    def label(self) -> str:
        """`link utilisation over that with newreno`, with the unit if there is one."""
        name = self.described.label
        if self.metric.endswith("]"):
            name += f" of flow {self.metric[self.metric.find('[') + 1 : -1]}"
        if self.quantity == "ratio":
            return f"{name} over that with {self.other}"
        if self.quantity == "reduction":
            return f"reduction of {name} against {self.other}"
        return f"{name} ({self.described.unit})" if self.described.unit else name

    @property
    def form(self) -> str:
        """How values are written, for `bbrgym.benchmark.statistics.number_text`."""
        return self.described.form if self.quantity == "value" else ""

    @property
    def thresholds(self) -> list[float]:
        """What the quantity must be at least and at most."""
        return [bound for bound in (self.at_least, self.at_most) if bound is not None]

    @property
    def needed(self) -> str:
        """`>= 0.95`."""
        return self.needed_as(self.form)

    def needed_as(self, form: str) -> str:
        """Return `>= 95%` or `>= 0.95`, as values of a format are written."""
        bounds = ((">=", self.at_least), ("<=", self.at_most))
        return " and ".join(
            f"{sign} {100 * bound:.12g}%" if form.endswith("%") else f"{sign} {bound:.12g}"
            for sign, bound in bounds
            if bound is not None
        )


def find_scenarios(what: str, named: tuple[str, ...], known: Collection[str], or_all: bool = False) -> tuple[str, ...]:
    """Return the named scenarios; the only one, or all if that is allowed, if none is named.

    Raises:
        ValueError: one is not known, or none is named and there are several.
    """
    if not named and len(known) != 1 and not or_all:
        raise ValueError(f"{what} names no scenario, and there are several: {', '.join(known)}")
    for name in named:
        check_name("scenario", name, known, of=what)
    return named or tuple(known)


def check_flow(what: str, metric: str, scenarios: Collection[Scenario]) -> None:
    """Check that all scenarios have the flow of a metric as `share[1]`."""
    flow, flows = re.search(r"\[(\d+)\]$", metric), min(len(scenario.flows) for scenario in scenarios)
    if flow is not None and int(flow[1]) >= flows:
        raise ValueError(f"{what} has {metric!r}, but the flows of its scenario are 0 to {flows - 1}")


def check_metric(what: str, name: str, has_derived: bool = True) -> None:
    """Check that there is a metric of this name, a column of a table or one of `DERIVED`."""
    derived = DERIVED if has_derived else ()
    if name not in derived and find_metric(name) is None:
        check_name("metric", name, [*METRICS, *derived, *(f"{metric}[0]" for metric in FLOW_METRICS)], of=what)
