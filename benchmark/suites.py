"""Suites of a benchmark: scenarios, and criteria that a competitor must meet in each of them.

It imports no tables, so that a worker starts quickly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bbrgym.baselines import registry
from bbrgym.benchmark.claims import Claim
from bbrgym.checks import check_integer, check_keys


@dataclass(frozen=True)
class Suite:
    """Scenarios and the criteria that a competitor must meet in them.

    Attributes:
        title: what the suite is about.
        section: of the document that demands it.
        asks: what the document demands, in our words.
        roles: indices of the flows that the competitor takes; None for all.
        scenarios: names of the benchmark's scenarios: `<suite>/<scenario>`.
        criteria: what must hold of every competitor in the scenarios, by default in each.
        needs: what is missing to test it, if there are no scenarios.
        is_pooled: whether the scenarios are a sample: a criterion is then about the mean over them, and its interval
            comes from resampling them instead of the seeds.
    """

    title: str
    section: str
    asks: str
    roles: tuple[int, ...] | None = None
    scenarios: tuple[str, ...] = ()
    criteria: tuple[Claim, ...] = ()
    needs: str | None = None
    is_pooled: bool = False

    @classmethod
    def from_dict(cls, name: str, plain: Mapping[str, Any]) -> tuple[Suite, dict[str, Any]]:
        """Make a suite of plain types; `scenarios` are names, or {name: scenario}.

        Returns:
            The suite, and the given scenarios by their names in the benchmark.
        """
        check_keys(f"suite {name!r}", plain, [f.name for f in dataclasses.fields(cls)])
        fields = {"title": name, "section": "", "asks": ""} | dict(plain)
        given = fields.get("scenarios") or []
        own = {f"{name}/{key}": value for key, value in given.items()} if isinstance(given, Mapping) else {}
        fields["scenarios"] = tuple(own) if own else tuple(given)
        fields["criteria"] = tuple(_read_criterion(one) for one in fields.get("criteria") or ())
        fields["roles"] = read_roles(fields.get("roles"))
        suite = cls(**fields)
        if bool(suite.scenarios and suite.criteria) == (suite.needs is not None):
            raise ValueError(f"suite {name!r} must have either scenarios and criteria, or `needs`")
        return suite, own

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, of which `from_dict` makes an equal suite."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)} | {
            "roles": write_roles(self.roles),
            "scenarios": list(self.scenarios),
            "criteria": [criterion.to_dict() for criterion in self.criteria],
        }

    @property
    def references(self) -> tuple[str, ...]:
        """The controllers that competitors are compared with."""
        return tuple(dict.fromkeys(criterion.other for criterion in self.criteria if criterion.other is not None))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the criteria."""
        return tuple(dict.fromkeys(criterion.metric for criterion in self.criteria))

    def claims(self, name: str) -> list[tuple[str, Claim, Claim]]:
        """Return what must hold of whoever is judged; the suite's name is given.

        Returns:
            Triples: a scenario, or `<suite>/all` for all scenarios; the criterion; and the claim about the scenario.
        """
        return [
            (f"{name}/all" if self.is_pooled or criterion.over != "each" else claim.scenarios[0], criterion, claim)
            for criterion in self.criteria
            for claim in self._parts(dataclasses.replace(criterion, scenarios=self.scenarios))
        ]

    def _parts(self, claim: Claim) -> list[Claim]:
        return [dataclasses.replace(claim, over="mean")] if self.is_pooled else claim.parts()


def _read_criterion(plain: Mapping[str, Any]) -> Claim:
    """Return a claim that is about whoever is judged, in the scenarios of its suite."""
    if isinstance(plain, Mapping):
        plain = {"over": "each", **plain}
    criterion = Claim.from_dict(plain, [*registry.controllers(), *registry.COMPARATORS])
    if not criterion.thresholds:
        raise ValueError(f"a criterion must have at_least or at_most, got {dict(plain)!r}")
    if criterion.competitor is not None or criterion.scenarios:
        raise ValueError(f"a criterion holds for all competitors and scenarios, so it names none, got {dict(plain)!r}")
    if not criterion.because:
        raise ValueError(f"a criterion must say in `because` why it has its threshold, got {dict(plain)!r}")
    return criterion


def read_roles(roles: Any) -> tuple[int, ...] | None:
    """Return the flows of the competitor; None for `all`."""
    if not (roles in (None, "all") or isinstance(roles, list | tuple)):
        raise ValueError(f"roles must be all or a list of flows, got {roles!r}")
    return None if roles in (None, "all") else tuple(check_integer("each of roles", role) for role in roles)


def write_roles(roles: tuple[int, ...] | None) -> list[int] | str:
    """Return plain types, of which `read_roles` makes equal roles."""
    return "all" if roles is None else list(roles)
