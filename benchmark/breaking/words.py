"""A path and a failure in words, one line each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bbrgym.benchmark.breaking.properties import ALONE, Verdict
from bbrgym.benchmark.regret import Regret
from bbrgym.benchmark.run_facts import Facts
from bbrgym.benchmark.run_scores import SCORE
from bbrgym.benchmark.statistics import estimate
from bbrgym.envs.scenario import Flow, Scenario

_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
_QUEUES = {"codel": "CoDel", "pie": "PIE", "fq_codel": "FQ-CoDel", "dualpi2": "DualPI2"}


def path_in_words(scenario: Scenario) -> str:
    """Return a path in one line: `one flow, 200 Mbit/s, RTT 93 → 185 ms at 5 s, buffer 1 BDP`."""
    flows = [scenario.flows[index] for index in scenario.agent_flows] or list(scenario.flows)
    others = [flow for flow in scenario.flows if flow not in flows]
    first = flows[0]
    parts = [f"{_count(flows)} flow{'s' * (len(flows) > 1)}"]
    if others:
        parts[0] += f" beside {' and '.join(flow.algorithm for flow in others)}"
    parts.append(_changing(f"{scenario.rate_mbps:g}", scenario.rate_schedule, "Mbit/s"))
    rtts_ms = list(dict.fromkeys(flow.rtt_ms for flow in scenario.flows))
    parts.append("RTT " + _changing(" and ".join(f"{rtt:g}" for rtt in rtts_ms), first.rtt_schedule, "ms"))
    parts.append(
        f"buffer {scenario.buffer_packets} packets"
        if scenario.buffer_packets is not None
        else f"buffer {1 if scenario.buffer_bdp is None else scenario.buffer_bdp:g} BDP"
    )
    parts += _of_link(scenario)
    parts += _of_flow(first)
    starts = [f"{flow.start_s:g}" for flow in scenario.flows if flow.start_s]
    if starts:
        parts.append(f"later starts at {' and '.join(starts)} s")
    stops = [f"{flow.stop_s:g}" for flow in scenario.flows if flow.stop_s is not None]
    if stops:
        parts.append(f"{_count(stops)} leave{'s' * (len(stops) == 1)} at {' and '.join(stops)} s")
    parts.append(f"{scenario.duration_s:g} s")
    return ", ".join(parts)


def _count(what: Sequence[object]) -> str:
    return _COUNTS[len(what)] if len(what) < len(_COUNTS) else str(len(what))


def failure_in_words(name: str, verdict: Verdict, own: Facts, best: Facts | None) -> str:
    """Return what happens on a path, beside the best yardstick: `7 % of the link; bbr 93 %`."""
    if name == "crash":
        return str(own["error"])
    value, of_best = verdict.value, verdict.best_value
    beside = f"; {verdict.best} {{}}" if verdict.best else ""
    if name == "regret" and best is not None:
        return lacking(verdict.best, own, best)
    if name == "starved":
        return f"a flow below a tenth of its fair share for {value:.0f} s" + beside.format(f"{of_best:.0f} s")
    if name == "stalled":
        return f"nothing delivered for {value:.1f} s" + beside.format(f"{of_best:.1f} s")
    if name == "bloated":
        return f"a mean queue of {value:.1f} BDP" + beside.format(f"{of_best:.1f} BDP")
    if name == "unfair":
        return f"equal flows share {value:.0f} : 1" + beside.format(f"{of_best:.1f} : 1")
    if name == "harmful":
        return f"takes {value:.0%} of what CUBIC has alone, beyond what CUBIC takes"
    if name == "unstable":
        return f"the sending rate swings {value:.1f} : 1 within 20 RTTs" + beside.format(f"{of_best:.1f} : 1")
    return f"{value:g}"


def lacking(name: str, own: Facts, best: Facts) -> str:
    """Return what a run lacks most beside the best yardstick's: `7 % of the link; bbr 93 %`."""
    regret = regret_of(name, own, best)
    if regret.cause == "utilisation":
        return f"{own['utilisation']:.0%} of the link; {name} {best['utilisation']:.0%}"
    if regret.cause == "fairness":
        return f"Jain's index {own['jain']:.2f}; {name} {best['jain']:.2f}"
    return f"a queueing delay of {own['delay']:.1f} RTTs; {name} {best['delay']:.1f}"


def regret_of(name: str, own: Facts, best: Facts) -> Regret:
    """Return the regret of a run beside that of the best yardstick."""
    return Regret(scenario="", best=name, regret=estimate([best[SCORE] - own[SCORE]]), own=own, other=best)


def kind_of(scenario: Scenario) -> str:
    """Return the kinds of what a path has, as the box calls them."""
    first = scenario.flows[0]
    rates = [rate for _, rate in scenario.rate_schedule]
    bursts = scenario.loss_burst_ms is not None, scenario.loss_burst_packets is not None
    found = {
        "loss": scenario.loss > 0 and not any(bursts),
        "bursts": scenario.loss > 0 and bursts[0],
        "burst_packets": scenario.loss > 0 and bursts[1],
        "jitter": first.jitter_ms > 0,
        "aggregation": first.ack_aggregation_ms > 0,
        "ack_loss": first.ack_loss > 0,
        "reordering": scenario.reordering > 0,
        "rate": bool(rates),
        "rtt": bool(first.rtt_schedule),
        "aqm": scenario.queue != "droptail",
        "ecn": scenario.ce_threshold_ms is not None,
        "policer": scenario.policer_mbps is not None,
        "reverse": scenario.reverse_rate_mbps is not None,
        "second": scenario.second_rate_mbps is not None,
        "application": first.app_rate_mbps is not None,
        "rival": len(scenario.agent_flows) < len(scenario.flows),
        "crowd": len(scenario.agent_flows) > 1 and len({flow.rtt_ms for flow in scenario.flows}) > 1,
    }
    names = [name for name, has in found.items() if has]
    if len(scenario.agent_flows) > 1 and "crowd" not in names:
        names.append("alike")
    return " + ".join(names) or "link"


def best_of(verdict: Verdict, others: Mapping[str, Facts]) -> Facts | None:
    """Return the facts of the best yardstick."""
    found = others.get(verdict.best)
    return None if found is None or "error" in found or verdict.best == ALONE else found


def _changing(first: str, schedule: Sequence[tuple[float, float]], unit: str) -> str:
    if not schedule:
        return f"{first} {unit}"
    if len(schedule) > 4:
        levels = [level for _, level in schedule]
        return f"{first} {unit}, then {len(levels)} changes from {min(levels):g} to {max(levels):g} {unit}"
    steps = " ".join(f"→ {level:g}" for _, level in schedule)
    times = " and ".join(f"{at:g}" for at, _ in schedule)
    return f"{first} {steps} {unit} at {times} s"


def _of_link(scenario: Scenario) -> list[str]:
    parts = []
    if scenario.loss:
        burst_ms, burst_packets = scenario.loss_burst_ms, scenario.loss_burst_packets
        burst = f" in bursts of {burst_ms:g} ms" if burst_ms is not None else ""
        burst += f" in bursts of {burst_packets:g} packets" if burst_packets is not None else ""
        parts.append(f"{_percent(scenario.loss)} loss{burst}")
    if scenario.reordering:
        parts.append(f"{_percent(scenario.reordering)} of packets {scenario.reordering_ms:g} ms late")
    if scenario.queue != "droptail":
        parts.append(_QUEUES[scenario.queue])
    if scenario.ce_threshold_ms is not None:
        parts.append(f"marks above {scenario.ce_threshold_ms:g} ms")
    if scenario.policer_mbps is not None:
        burst_ms = scenario.policer_burst_bytes / scenario.policer_mbps / 125
        parts.append(f"policer of {scenario.policer_mbps:g} Mbit/s with {burst_ms:.3g} ms of burst")
    if scenario.second_rate_mbps is not None:
        packets = scenario.second_buffer_packets
        parts.append(f"a second link of {scenario.second_rate_mbps:g} Mbit/s with {packets} packets")
    if scenario.reverse_rate_mbps is not None:
        parts.append(f"a way back of {scenario.reverse_rate_mbps:g} Mbit/s")
    return parts


def _of_flow(flow: Flow) -> list[str]:
    parts = []
    if flow.jitter_ms:
        parts.append(f"jitter {flow.jitter_ms:g} ms")
    if flow.ack_loss:
        parts.append(f"{_percent(flow.ack_loss)} of ACKs lost")
    if flow.ack_aggregation_ms:
        parts.append(f"ACKs every {flow.ack_aggregation_ms:g} ms")
    if flow.ecn is not None:
        parts.append(f"{flow.ecn} ECN")
    if flow.app_rate_mbps is not None:
        text = f"application of {flow.app_rate_mbps:g} Mbit/s"
        if flow.on_s is not None:
            text += f" for {flow.on_s:g} s, then {flow.off_s:g} s off"
        parts.append(text)
    return parts


def _percent(share: float) -> str:
    digits = max(0, 1 - math.floor(math.log10(share * 100))) if share < 0.1 else 0
    return f"{100 * share:.{digits}f}".rstrip("0").rstrip(".") + " %" if digits else f"{100 * share:.0f} %"
