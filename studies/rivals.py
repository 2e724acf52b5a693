"""Compare algorithms with what their authors and others claim of them.

`studies/rivals.yaml` has each claim, where it is made, what is measured in the native engine, and what the claim needs
it to be. A new algorithm adds its entries there.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from omegaconf import OmegaConf

from bbrgym import Scenario, Trace, make_engine, simulate
from bbrgym.benchmark.code import code_hash, metrics_hash
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.statistics import Estimate, estimate
from bbrgym.benchmark.verdicts import judge
from bbrgym.envs.scenario import HEADER_BYTES
from bbrgym.envs.trace import Summary
from studies import page
from studies.agreement import neighbour
from studies.records import check_one_of, read_record

CLAIMS: Final = Path(__file__).with_suffix(".yaml")
SEEDS: Final = range(1000, 1010)
WARMUP: Final = 1 / 3
"""The part of a run that does not count."""
VERDICTS: Final = {"pass": "holds", "fail": "does not hold", "unclear": "unclear"}


def _delay_ms(summary: Summary, algorithm: str) -> float:
    """Return the mean RTT of an algorithm's first flow, less its base RTT and a transmission."""
    flow = next(flow for flow in summary.flows if flow.algorithm == algorithm)
    packet_ms = 8e-3 * (Scenario.packet_bytes + HEADER_BYTES) / summary.link.rate_mbps
    return flow.rtt_mean_ms - flow.rtt_ms - packet_ms


def _retransmission_rate(summary: Summary, algorithm: str) -> float:
    """Return the retransmitted share of all flows' packets."""
    return sum(flow.retransmissions for flow in summary.flows) / sum(flow.sent_packets for flow in summary.flows)


def _share(summary: Summary, algorithm: str) -> float:
    """Return the share of an algorithm's flows in the sum of all throughputs."""
    throughputs = [(flow.algorithm, flow.throughput_mbps) for flow in summary.flows]
    return sum(mbps for name, mbps in throughputs if name == algorithm) / sum(mbps for _, mbps in throughputs)


MEASURES: Final[dict[str, Callable[[Summary, str], float]]] = {
    "jain": lambda summary, _: summary.link.jain,
    "utilisation": lambda summary, _: summary.link.utilisation,
    "queue_ms": lambda summary, _: summary.link.queue_mean_ms,
    "delay_ms": _delay_ms,
    "retransmission_rate": _retransmission_rate,
    "share": _share,
}
"""What is measured of a run, some of it of an algorithm."""


@dataclass(frozen=True)
class Claim:
    """A claim about an algorithm, and the figure that checks it.

    Attributes:
        algorithm: what it is about.
        source: who claims it, and where.
        claim: what is claimed, in our words.
        figure: what is measured, with its unit.
        measure: the same as one of `MEASURES`.
        path: what is simulated, as for `Scenario.from_dict`.
        flows: the algorithms of the path's flows that have none, in turn; the claim's for all if it is empty.
        of: the algorithm whose flows are measured; None for the claim's.
        over: an algorithm with which all flows run too: the figure is the quotient of both runs.
        at_least, at_most: between what the claim needs the figure to be.
    """

    algorithm: str
    source: str
    claim: str
    figure: str
    measure: str
    path: Mapping[str, Any] = field(default_factory=dict)
    flows: tuple[str, ...] = ()
    of: str | None = None
    over: str | None = None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def needed(self) -> str:
        """Return what the claim needs, as text."""
        bounds = ((">=", self.at_least), ("<=", self.at_most))
        return " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)

    @property
    def thresholds(self) -> list[float]:
        """What the figure must be at least and at most."""
        return [bound for bound in (self.at_least, self.at_most) if bound is not None]

    @property
    def scenarios(self) -> list[Scenario]:
        """What is simulated, each with every seed: the flows of the claim, and those that they are compared with."""
        runs = [self.flows or (self.algorithm,)]
        if self.over is not None:
            runs.append((self.over,))
        return [
            Scenario.from_dict(
                {
                    **self.path,
                    "flows": [
                        {"algorithm": name, **flow} for flow, name in zip(self.path["flows"], names, strict=False)
                    ],
                }
            )
            for names in map(itertools.cycle, runs)
        ]

    def measured(self, summaries: Sequence[Summary]) -> float:
        """Return the figure of one run of all scenarios, given their summaries without the warm-up."""
        values = [MEASURES[self.measure](summary, self.of or self.algorithm) for summary in summaries]
        return values[0] if self.over is None else values[0] / values[1]


def load_claims(path: Path = CLAIMS) -> list[Claim]:
    """Return the claims of a file. One with `buffers_bdp` is made once for each buffer."""
    plain: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    claims = []
    for entry in plain["claims"]:
        buffers_bdp = entry.pop("buffers_bdp", None)
        claim = Claim(**read_record(Claim, "a claim", entry))
        check_one_of(f"the claim {claim.claim!r}", "measure", claim.measure, MEASURES)
        if not claim.needed:
            raise ValueError(f"the claim {claim.claim!r} must have at_least or at_most")
        if buffers_bdp is None:
            claims.append(claim)
            continue
        for bdp in buffers_bdp:
            text = f"{claim.claim}; buffer of {bdp:g} BDP"
            claims.append(dataclasses.replace(claim, claim=text, path={**claim.path, "buffer_bdp": bdp}))
    return claims


@dataclass(frozen=True)
class ClaimRun:
    """The runs with one seed that check a claim."""

    claim: Claim
    seed: int

    @property
    def scenarios(self) -> list[Scenario]:
        """What is simulated.

        RTTs and starts differ a little between seeds: without losses a run hardly depends on its seed.
        """
        return [neighbour(scenario, self.seed) for scenario in self.claim.scenarios]

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return f"{self.claim.algorithm}/{self.claim.claim}/{self.seed}"

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        scenarios = [scenario.to_dict() for scenario in self.scenarios]
        return code_hash("native", also=json.dumps([scenarios, self.claim.measure, self.claim.of, metrics_hash()]))


def jobs() -> list[ClaimRun]:
    """Return the runs of all claims."""
    return [ClaimRun(claim, seed) for claim in load_claims() for seed in SEEDS]


def work(job: ClaimRun) -> Rows:
    """Simulate, and return the claim's figure."""
    with closing(make_engine("native")) as engine:
        summaries = [_summary(simulate(scenario, engine, job.seed)) for scenario in job.scenarios]
    return [{"figure": job.claim.measured(summaries)}]


def _summary(trace: Trace) -> Summary:
    return trace.summary(after_s=WARMUP * trace.scenario.duration_s)


def view(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
    """Return the table of the page."""
    claims = load_claims()
    measured = [estimate([results[ClaimRun(claim, seed).name][0]["figure"] for seed in SEEDS]) for claim in claims]
    return {"claims": summarise(claims, measured)}


def summarise(claims: Sequence[Claim], measured: Sequence[Estimate]) -> str:
    """Return a table of claims: one holds if the whole interval is what it needs."""
    verdicts = [
        VERDICTS[judge(found, claim.at_least, claim.at_most)] for claim, found in zip(claims, measured, strict=True)
    ]
    counts = ", ".join(f"{verdicts.count(one)} {one}" for one in VERDICTS.values() if one in verdicts)
    rows = [
        [
            claim.algorithm,
            page.cell(claim.source),
            page.cell(claim.claim),
            page.cell(claim.figure),
            claim.needed,
            found.text(beside=claim.thresholds),
            verdict,
        ]
        for claim, found, verdict in zip(claims, measured, verdicts, strict=True)
    ]
    head = ["algorithm", "source", "claim", "figure", "needed", "measured [95 %]", "verdict"]
    return f"{len(claims)} claims: {counts}.\n\n{page.table(head, rows)}"
