"""Compare algorithms with what their authors and others claim of them: `python -m studies.rivals [--write FILE]`.

Each entry of `CLAIMS` has the claim, where it is made, what is measured in the native engine, and what the claim needs
it to be. Experiments that papers describe in detail belong to studies/papers; this list is for claims that one figure
can check. A new algorithm adds its entries here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.progress import track

from bbrgym import Engine, Flow, Scenario, Trace, make_engine, simulate
from bbrgym.benchmark.statistics import Estimate, estimate
from bbrgym.benchmark.verdicts import judge
from bbrgym.envs.scenario import HEADER_BYTES, Ecn, Queue
from bbrgym.envs.trace import Summary
from bbrgym.interruption import run_interruptible
from studies import page
from studies.agreement import neighbours

MARK: Final = "studies/rivals.py"
SEEDS: Final = 10
WARMUP: Final = 1 / 3
"""The part of a run that does not count."""
VERDICTS: Final = {"pass": "holds", "fail": "does not hold", "unclear": "unclear"}


@dataclass(frozen=True)
class Claim:
    """A claim about an algorithm, and the figure that checks it.

    Attributes:
        algorithm: what it is about.
        source: who claims it, and where.
        claim: what is claimed, in our words.
        figure: what is measured, with its unit.
        scenarios: what is simulated, each with every seed.
        measure: returns the figure of one run of all scenarios, given their summaries without the warm-up.
        at_least, at_most: between what the claim needs the figure to be.
    """

    algorithm: str
    source: str
    claim: str
    figure: str
    scenarios: tuple[Scenario, ...]
    measure: Callable[[Sequence[Summary]], float]
    at_least: float = -math.inf
    at_most: float = math.inf

    @property
    def needed(self) -> str:
        """Return what the claim needs, as text."""
        bounds = ((">=", self.at_least), ("<=", self.at_most))
        return " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if math.isfinite(bound))


def verdict(claim: Claim, measured: Estimate) -> str:
    """Return one of `VERDICTS`: whether the whole interval is what the claim needs, or none of it."""
    return VERDICTS[judge(measured, claim.at_least, claim.at_most)]


def check(claim: Claim, engine: Engine, seeds: int = SEEDS) -> Estimate:
    """Return the mean of a claim's figure over runs that differ by chance, with its 95 % interval.

    The runs have other seeds, and RTTs and starts that differ a little (`studies.agreement.neighbours`): without losses
    a run hardly depends on its seed.
    """
    summaries = [
        [_summary(simulate(scenario, engine, seed)) for scenario, seed in neighbours(scenario, seeds)]
        for scenario in claim.scenarios
    ]
    return estimate([claim.measure(of_run) for of_run in zip(*summaries, strict=True)])


def _summary(trace: Trace) -> Summary:
    return trace.summary(after_s=WARMUP * trace.scenario.duration_s)


# What is measured


def jain(summaries: Sequence[Summary]) -> float:
    """Return Jain's index of the flows' throughputs."""
    return summaries[0].link.jain


def utilisation(summaries: Sequence[Summary]) -> float:
    """Return the used share of the link."""
    return summaries[0].link.utilisation


def utilisation_ratio(summaries: Sequence[Summary]) -> float:
    """Return the utilisation in the first scenario over that in the second."""
    return summaries[0].link.utilisation / summaries[1].link.utilisation


def queue_ratio(summaries: Sequence[Summary]) -> float:
    """Return the mean queueing delay in the first scenario over that in the second."""
    return summaries[0].link.queue_mean_ms / summaries[1].link.queue_mean_ms


def retransmission_ratio(summaries: Sequence[Summary]) -> float:
    """Return the retransmitted share of the packets in the first scenario over that in the second."""
    first, second = (
        sum(flow.retransmissions for flow in summary.flows) / sum(flow.sent_packets for flow in summary.flows)
        for summary in summaries
    )
    return first / second


def queue_ms(summaries: Sequence[Summary]) -> float:
    """Return the mean queueing delay in ms."""
    return summaries[0].link.queue_mean_ms


def delay_of(algorithm: str) -> Callable[[Sequence[Summary]], float]:
    """Return what measures the mean RTT of an algorithm's first flow, less its base RTT and a transmission."""

    def delay_ms(summaries: Sequence[Summary]) -> float:
        flow = next(flow for flow in summaries[0].flows if flow.algorithm == algorithm)
        packet_ms = 8e-3 * (Scenario.packet_bytes + HEADER_BYTES) / summaries[0].link.rate_mbps
        return flow.rtt_mean_ms - flow.rtt_ms - packet_ms

    return delay_ms


def share_of(algorithm: str) -> Callable[[Sequence[Summary]], float]:
    """Return what measures the share of an algorithm's flows in the sum of all throughputs."""

    def share(summaries: Sequence[Summary]) -> float:
        throughputs = [(flow.algorithm, flow.throughput_mbps) for flow in summaries[0].flows]
        return sum(mbps for name, mbps in throughputs if name == algorithm) / sum(mbps for _, mbps in throughputs)

    return share


# Claims


def several(algorithm: str, buffer_bdp: float, count: int = 4) -> Scenario:
    """Return flows of one algorithm that start three seconds apart, on 40 Mbit/s and 30 ms for two minutes."""
    flows = tuple(Flow(algorithm, rtt_ms=30, start_s=3.0 * place) for place in range(count))
    return Scenario(rate_mbps=40, buffer_bdp=buffer_bdp, duration_s=120, flows=flows)


def duel(first: str, second: str, buffer_bdp: float, **parameters: float) -> Scenario:
    """Return two flows, the first with parameters, on 50 Mbit/s and 30 ms for two minutes: 25 Mbit/s for each."""
    flows = (Flow(first, 30, parameters=parameters), Flow(second, 30))
    return Scenario(rate_mbps=50, buffer_bdp=buffer_bdp, duration_s=120, flows=flows)


def l4s(*flows: tuple[str, float], queue: Queue = "dualpi2") -> Scenario:
    """Return flows with these algorithms and RTTs on 50 Mbit/s for two minutes: prague's L4S, the others classic."""
    kinds: dict[str, Ecn] = {"prague": "l4s"}
    return Scenario(
        rate_mbps=50,
        buffer_bdp=4,
        queue=queue,
        duration_s=120,
        flows=tuple(Flow(name, rtt_ms, ecn=kinds.get(name, "classic")) for name, rtt_ms in flows),
    )


def one_of_six(algorithm: str) -> Scenario:
    """Return a flow beside five of CUBIC, all with ECN, on 50 Mbit/s and 30 ms in a CoDel queue for two minutes."""
    flows = tuple(Flow(name, rtt_ms=30, ecn="classic") for name in (algorithm, *["cubic"] * 5))
    return Scenario(rate_mbps=50, buffer_bdp=2, queue="codel", duration_s=120, flows=flows)


def alone(algorithm: str, buffer_bdp: float, loss: float = 0.0) -> Scenario:
    """Return one flow on 50 Mbit/s and 60 ms for a minute."""
    return Scenario(rate_mbps=50, buffer_bdp=buffer_bdp, duration_s=60, loss=loss, flows=(Flow(algorithm, 60),))


def slow(algorithm: str, buffer_bdp: float) -> Scenario:
    """Return one flow on 10 Mbit/s, where a packet takes 0.83 ms, and 40 ms for four minutes."""
    return Scenario(rate_mbps=10, buffer_bdp=buffer_bdp, duration_s=240, flows=(Flow(algorithm, 40),))


BBR3: Final = "draft-ietf-ccwg-bbr-06"
SLIDES: Final = "Cardwell et al., BBRv3, IETF 117 (2023)"
VEGAS: Final = "Brakmo, Peterson, TCP Vegas, IEEE JSAC 13(8) (1995)"
COPA: Final = "Arun, Balakrishnan, Copa, NSDI 2018"
LEDBAT: Final = "RFC 6817"
L4S: Final = "Tabacaru, evaluation of L4S in ns-3, TU Delft repository, abstract"
VIVACE: Final = "Dong et al., PCC Vivace, NSDI 2018"
FAIR: Final = 0.95
"""Jain's index that counts as approximate fairness; of four flows, one with twice the others' share has 0.89."""
STARVING: Final = 0.25
"""The share of one of two flows that counts as starving."""

CLAIMS: Final = (
    *(
        Claim(
            "bbr3",
            f"{BBR3}, section 5.3.3.1",
            f"flows converge to approximately fair shares; buffer of {buffer_bdp:g} BDP",
            "Jain's index of 4 flows",
            (several("bbr3", buffer_bdp),),
            jain,
            at_least=FAIR,
        )
        for buffer_bdp in (0.5, 1, 2, 4)
    ),
    *(
        Claim(
            "bbr2",
            SLIDES,
            f"flows of BBRv2 do not converge so, because of bugs that BBRv3 fixes; buffer of {buffer_bdp:g} BDP",
            "Jain's index of 4 flows",
            (several("bbr2", buffer_bdp),),
            jain,
            at_most=FAIR,
        )
        for buffer_bdp in (0.5, 1, 2, 4)
    ),
    Claim(
        "bbr",
        "FreeBSD's tcp_bbr, commit 35c7bb34 (2019)",
        "flows of BBRv1 tend to unfairness in shallow buffers; 0.5 BDP",
        "Jain's index of 4 flows",
        (several("bbr", 0.5),),
        jain,
        at_most=FAIR,
    ),
    Claim(
        "bbr3",
        SLIDES,
        "retransmits 12 % less than BBRv1 (on Google's public traffic); buffer of 1 BDP",
        "retransmission rate over bbr's",
        (several("bbr3", 1), several("bbr", 1)),
        retransmission_ratio,
        at_most=0.88,
    ),
    *(
        Claim(
            "bbr3",
            f"{BBR3}, section 5.3.3.8",
            f"a {name} flow gets at least as much, up to 25 Mbit/s at 30 ms; buffer of {buffer_bdp:g} BDP",
            f"share of {name}",
            (duel("bbr3", rival, buffer_bdp),),
            share_of(rival),
            at_least=0.5,
        )
        for rival, name in (("cubic", "CUBIC"), ("newreno", "Reno"))
        for buffer_bdp in (1, 2)
    ),
    Claim(
        "bbr3",
        "BBRv3 in the public Internet: a boon or a bane?, ANRW 2024",
        "with ECN, a flow beside five of CUBIC can take more than about 99 %; CoDel",
        "share of bbr3",
        (one_of_six("bbr3"),),
        share_of("bbr3"),
        at_least=0.99,
    ),
    Claim(
        "bbr3",
        f"{BBR3}, abstract",
        "substantially more throughput than CUBIC with random losses; 1 %",
        "utilisation over CUBIC's",
        (alone("bbr3", 1, loss=0.01), alone("cubic", 1, loss=0.01)),
        utilisation_ratio,
        at_least=1.2,
    ),
    Claim(
        "bbr3",
        f"{BBR3}, abstract",
        "substantially more throughput than CUBIC in shallow buffers; 0.02 BDP",
        "utilisation over CUBIC's",
        (alone("bbr3", 0.02), alone("cubic", 0.02)),
        utilisation_ratio,
        at_least=1.2,
    ),
    Claim(
        "bbr3",
        f"{BBR3}, abstract",
        "substantially less queueing delay than CUBIC in deep buffers; 8 BDP",
        "mean queueing delay over CUBIC's",
        (alone("bbr3", 8), alone("cubic", 8)),
        queue_ratio,
        at_most=0.5,
    ),
    Claim(
        "bbr3",
        f"{BBR3}, section 5.3.3.8",
        "tolerates 1 % of losses per round trip",
        "utilisation",
        (alone("bbr3", 1, loss=0.01),),
        utilisation,
        at_least=0.9,
    ),
    Claim(
        "bbr3",
        f"{BBR3}, section 5.3.4.2",
        "ProbeRTT costs no more than about 2 % of the bandwidth (pacing leaves 1 %)",
        "utilisation",
        (alone("bbr3", 2),),
        utilisation,
        at_least=0.97,
    ),
    Claim(
        "vegas",
        VEGAS,
        "a flow alone keeps alpha to beta packets in the queue: 2 to 4, of 0.83 ms each",
        "mean queueing delay, in ms",
        (slow("vegas", 4),),
        queue_ms,
        at_least=1.66,
        at_most=3.33,
    ),
    *(
        Claim(
            "vegas",
            "Mo et al., Analysis and Comparison of TCP Reno and Vegas, INFOCOM 1999",
            f"it starves beside a flow that fills the buffer; buffer of {buffer_bdp:g} BDP",
            "share of vegas beside cubic",
            (duel("vegas", "cubic", buffer_bdp),),
            share_of("vegas"),
            at_most=STARVING,
        )
        for buffer_bdp in (1, 4)
    ),
    Claim(
        "vegas",
        VEGAS,
        "flows share fairly; buffer of 2 BDP",
        "Jain's index of 4 flows",
        (several("vegas", 2),),
        jain,
        at_least=FAIR,
    ),
    Claim(
        "copa",
        f"{COPA}, abstract",
        "similar throughput as CUBIC; buffer of 2 BDP",
        "utilisation over CUBIC's",
        (alone("copa", 2), alone("cubic", 2)),
        utilisation_ratio,
        at_least=0.95,
    ),
    Claim(
        "copa",
        f"{COPA}, abstract",
        "with much lower delay; buffer of 2 BDP",
        "mean queueing delay over CUBIC's",
        (alone("copa", 2), alone("cubic", 2)),
        queue_ratio,
        at_most=0.1,
    ),
    Claim(
        "copa",
        f"{COPA}, section 3",
        "several flows, too, empty the queue and do not compete; buffer of 2 BDP",
        "mean queueing delay of 4 flows over that of CUBIC's",
        (several("copa", 2), several("cubic", 2)),
        queue_ratio,
        at_most=0.1,
    ),
    Claim(
        "copa",
        f"{COPA}, abstract",
        "converges quickly to the correct fair rates; buffer of 2 BDP",
        "Jain's index of 4 flows",
        (several("copa", 2),),
        jain,
        at_least=FAIR,
    ),
    *(
        Claim(
            "copa",
            f"{COPA}, abstract",
            f"co-exists well with CUBIC, in competitive mode; buffer of {buffer_bdp:g} BDP",
            "share of copa",
            (duel("copa", "cubic", buffer_bdp),),
            share_of("copa"),
            at_least=0.33,
            at_most=0.67,
        )
        for buffer_bdp in (1, 2, 4)
    ),
    Claim(
        "copa",
        f"{COPA}, abstract",
        "without competitive mode it would get little beside CUBIC; buffer of 2 BDP",
        "share of copa",
        (duel("copa", "cubic", 2, has_competitive_mode=0),),
        share_of("copa"),
        at_most=STARVING,
    ),
    Claim(
        "copa",
        f"{COPA}, abstract",
        "is robust to losses without congestion; 5 %",
        "utilisation",
        (alone("copa", 1, loss=0.05),),
        utilisation,
        at_least=0.9,
    ),
    Claim(
        "ledbat",
        f"{LEDBAT}, section 2",
        "a flow alone holds the TARGET of 100 ms, if the buffer is larger",
        "mean queueing delay, in ms",
        (slow("ledbat", 8),),
        queue_ms,
        at_least=90,
        at_most=110,
    ),
    *(
        Claim(
            "ledbat",
            f"{LEDBAT}, section 1",
            f"it yields to standard TCP; buffer of {buffer_bdp:g} BDP, {30 * buffer_bdp:g} ms",
            "share of ledbat beside cubic",
            (duel("ledbat", "cubic", buffer_bdp),),
            share_of("ledbat"),
            at_most=0.1,
        )
        for buffer_bdp in (2, 8)
    ),
    Claim(
        "prague",
        L4S,
        "high throughput …; a flow alone in DualPI2",
        "utilisation",
        (l4s(("prague", 30)),),
        utilisation,
        at_least=0.95,
    ),
    *(
        Claim(
            "prague",
            L4S,
            f"… with a queueing delay below a millisecond; as many flows of CUBIC as of Prague, {count}, in DualPI2",
            "mean queueing delay of a prague flow, in ms",
            (l4s(*[("prague", 30.0), ("cubic", 30.0)] * count),),
            delay_of("prague"),
            at_most=1,
        )
        for count in (1, 4)
    ),
    *(
        Claim(
            "prague",
            "tc-dualpi2(8), description",
            f"{name} can be used in parallel with Prague in DualPI2, maintaining window fairness",
            "share of prague",
            (l4s(("prague", 30), (rival, 30)),),
            share_of("prague"),
            at_least=0.33,
            at_most=0.67,
        )
        for rival, name in (("cubic", "CUBIC"), ("newreno", "Reno"))
    ),
    Claim(
        "prague",
        L4S,
        "when CUBIC and Prague share a queue, Prague dominates; CoDel with ECN",
        "share of cubic",
        (l4s(("prague", 30), ("cubic", 30), queue="codel"),),
        share_of("cubic"),
        at_most=STARVING,
    ),
    Claim(
        "prague",
        "L4STeam/linux, tcp_prague.c, RTT_CONTROL_RATE",
        "flows with RTTs up to 25 ms achieve the same throughput; 5 and 20 ms in DualPI2",
        "Jain's index of 2 flows",
        (l4s(("prague", 5), ("prague", 20)),),
        jain,
        at_least=FAIR,
    ),
    *(
        Claim(
            "vivace",
            f"{VIVACE}, section 3",
            f"its utility grows with the rate up to a loss rate of 5 %; {100 * loss:g} %",
            "utilisation",
            (alone("vivace", 1, loss=loss),),
            utilisation,
            at_least=0.8,
        )
        for loss in (0.01, 0.03, 0.05)
    ),
    Claim(
        "vivace",
        f"{VIVACE}, section 3",
        "flows with this utility converge to fair shares; buffer of 2 BDP",
        "Jain's index of 4 flows",
        (several("vivace", 2),),
        jain,
        at_least=FAIR,
    ),
    Claim(
        "vivace",
        f"{VIVACE}, abstract",
        "alleviates bufferbloat; buffer of 2 BDP",
        "mean queueing delay over CUBIC's",
        (alone("vivace", 2), alone("cubic", 2)),
        queue_ratio,
        at_most=0.1,
    ),
)


def summarise(claims: Sequence[Claim], measured: Sequence[Estimate]) -> str:
    """Return the table of the page."""
    verdicts = [verdict(claim, of_claim) for claim, of_claim in zip(claims, measured, strict=True)]
    counts = ", ".join(f"{verdicts.count(one)} {one}" for one in VERDICTS.values() if one in verdicts)
    rows = [
        [claim.algorithm, page.cell(claim.source), page.cell(claim.claim), page.cell(claim.figure), claim.needed,
         of_claim.text(), result]
        for claim, of_claim, result in zip(claims, measured, verdicts, strict=True)
    ]  # fmt: skip
    head = ["algorithm", "source", "claim", "figure", "needed", "measured [95 %]", "verdict"]
    return f"{len(claims)} claims: {counts}.\n\n{page.table(head, rows)}"


def main(argv: Sequence[str] | None = None) -> int:
    """Check every claim and print the table; with --write, write it into the page."""
    options = page.parser(__doc__, MARK).parse_args(argv)
    console = Console(stderr=True)
    with closing(make_engine("native")) as engine:
        measured = [check(claim, engine) for claim in track(CLAIMS, "claims", console=console)]
    page.publish(summarise(CLAIMS, measured), MARK, options.write)
    return 0


if __name__ == "__main__":
    sys.exit(run_interruptible("rivals", main))
