"""Compare algorithms with what their authors and others claim of them.

`studies/rivals.yaml` has each claim, where it is made, what is measured in the native engine, and what the claim needs
it to be. A new algorithm adds its entries there.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
from omegaconf import OmegaConf

from bbrgym import Scenario, controllers, make_engine, simulate
from bbrgym.benchmark.claims import Claim, check_flow
from bbrgym.benchmark.code import code_hash, metrics_hash
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.metrics import measure
from bbrgym.benchmark.verdicts import RUN, ClaimRuns, Finding, judge_claims, metrics_of_runs
from bbrgym.checks import read_fields
from studies import page
from studies.agreement import neighbour
from studies.experiments import tables_code

CLAIMS: Final = Path(__file__).with_suffix(".yaml")
SEEDS: Final = range(1000, 1010)
WARMUP: Final = 1 / 3
"""The part of a run that does not count."""
VERDICTS: Final = {"pass": "holds", "fail": "does not hold", "unclear": "unclear"}


@dataclass(frozen=True)
class RivalClaim:
    """A claim about an algorithm, and the figure that checks it.

    Attributes:
        claim: who claims it, what it is, and what it needs; its scenario is called as its wording.
        figure: what is measured, with its unit.
        path: what is simulated, as for `Scenario.from_dict`.
        flows: the algorithms of the path's flows that have none, in turn; the claim's for all if it is empty. With
            `than`, these flows all have that algorithm in the runs that the claim is compared with.
    """

    claim: Claim
    figure: str
    path: Mapping[str, Any]
    flows: tuple[str, ...] = ()

    @property
    def scenarios(self) -> dict[str, Scenario]:
        """What is simulated with every seed, by the competitor that has the flows: the claim's, and that of `than`."""
        assert self.claim.competitor is not None
        runs = {self.claim.competitor: self.flows or (self.claim.competitor,)}
        if self.claim.than is not None:
            runs[self.claim.than] = (self.claim.than,)
        return {
            competitor: Scenario.from_dict(
                {
                    **self.path,
                    "flows": [
                        {"algorithm": name, **flow}
                        for flow, name in zip(self.path["flows"], itertools.cycle(names), strict=False)
                    ],
                }
            )
            for competitor, names in runs.items()
        }


def load_claims(path: Path = CLAIMS) -> list[RivalClaim]:
    """Return the claims of a file. One with `buffers_bdp` is made once for each buffer."""
    plain: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    claims = []
    for entry in plain["claims"]:
        own = {name: entry.pop(name, None) for name in ("figure", "path", "flows", "buffers_bdp")}
        claim = Claim.from_dict(entry, controllers())
        what = f"the claim {claim.wording!r}"
        if not claim.thresholds or claim.against is not None or claim.quantity == "reduction":
            raise ValueError(f"{what} must have at_least or at_most, of a value or of its ratio to `than`")
        for name in ("competitor", "wording", "source"):
            if not getattr(claim, name):
                raise ValueError(f"{what} has no {name}")
        for bdp in own.pop("buffers_bdp") or [None]:
            of_buffer = dict(own)
            wording = claim.wording
            if bdp is not None:
                wording = f"{wording}; buffer of {bdp:g} BDP"
                of_buffer["path"] = {**own["path"], "buffer_bdp": bdp}
            named = dataclasses.replace(claim, wording=wording, scenarios=(wording,))
            rival = RivalClaim(**read_fields(RivalClaim, what, {"claim": named, **of_buffer}))
            check_flow(what, claim.metric, list(rival.scenarios.values()))
            claims.append(rival)
    return claims


@dataclass(frozen=True)
class ClaimRun:
    """The runs with one seed that check a claim."""

    rival: RivalClaim
    seed: int

    @property
    def scenarios(self) -> dict[str, Scenario]:
        """What is simulated, by competitor.

        RTTs and starts differ a little between seeds: without losses a run hardly depends on its seed.
        """
        return {name: neighbour(scenario, self.seed) for name, scenario in self.rival.scenarios.items()}

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return f"{self.rival.claim.competitor}/{self.rival.claim.wording}/{self.seed}"

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        scenarios = [scenario.to_dict() for scenario in self.scenarios.values()]
        return code_hash(
            "native", also=json.dumps([scenarios, self.rival.claim.metric, metrics_hash(), *tables_code()])
        )


def jobs() -> list[ClaimRun]:
    """Return the runs of all claims."""
    return [ClaimRun(rival, seed) for rival in load_claims() for seed in SEEDS]


def work(job: ClaimRun) -> Rows:
    """Simulate, and return the claim's metric: a row for each competitor that has the flows."""
    rows = []
    with closing(make_engine("native")) as engine:
        for competitor, scenario in job.scenarios.items():
            trace = simulate(scenario, engine, job.seed)
            names = {"scenario": "path", "competitor": competitor, "seed": job.seed}
            flows = pd.DataFrame([{**names, **row} for row in measure(trace, after_s=WARMUP * scenario.duration_s)])
            metric = job.rival.claim.metric
            value = metrics_of_runs(flows, [metric], {"path": scenario})[metric].iloc[0]
            rows.append({"competitor": competitor, "value": float(value)})
    return rows


def view(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
    """Return the table of the page."""
    rivals = load_claims()
    return {"claims": summarise(rivals, judge(rivals, results))}


def judge(rivals: Sequence[RivalClaim], results: Mapping[str, Rows]) -> list[Finding]:
    """Judge claims by the results of their runs, which all differ."""
    rows = [
        {
            "scenario": rival.claim.wording,
            "seed": seed,
            "competitor": row["competitor"],
            rival.claim.metric: row["value"],
        }
        for rival in rivals
        for seed in SEEDS
        for row in results[ClaimRun(rival, seed).name]
    ]
    table = pd.DataFrame(rows).set_index(RUN)
    return judge_claims(
        [rival.claim for rival in rivals],
        ClaimRuns(table, {(scenario, competitor) for scenario, competitor, _ in table.index}),
    )


def summarise(rivals: Sequence[RivalClaim], findings: Sequence[Finding]) -> str:
    """Return a table of claims: one holds if the whole interval is what it needs."""
    verdicts = [VERDICTS[finding.verdict or "unclear"] for finding in findings]
    counts = ", ".join(f"{verdicts.count(one)} {one}" for one in VERDICTS.values() if one in verdicts)
    rows = [
        [
            str(rival.claim.competitor),
            page.cell(rival.claim.source),
            page.cell(rival.claim.wording),
            page.cell(rival.figure),
            rival.claim.needed_as(""),
            finding.measured.estimate.text(beside=rival.claim.thresholds),
            verdict,
        ]
        for rival, finding, verdict in zip(rivals, findings, verdicts, strict=True)
    ]
    head = ["algorithm", "source", "claim", "figure", "needed", "measured [95 %]", "verdict"]
    return f"{len(rivals)} claims: {counts}.\n\n{page.table(head, rows)}"
