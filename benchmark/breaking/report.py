"""What `bbrgym break` has found: a table, plain types, a page with pictures, and a file of tests."""

from __future__ import annotations

import html
import json
import math
import re
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import yaml
from rich.console import Console

from bbrgym import ports
from bbrgym.baselines import registry
from bbrgym.benchmark import plots
from bbrgym.benchmark.breaking.failures import Failure, plain_path
from bbrgym.benchmark.breaking.find import Found
from bbrgym.benchmark.breaking.judging import Judge
from bbrgym.benchmark.breaking.properties import PROPERTIES
from bbrgym.benchmark.breaking.shrink import size
from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.report import svg
from bbrgym.benchmark.score_report import html_table, write_html
from bbrgym.benchmark.tables import print_table
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.files import write_text

LAB: Final = f"http://127.0.0.1:{ports.LAB}/"
"""Where `bbrgym lab` serves the playground."""

_ON_THE_PAGE: Final = ("rate_mbps", "buffer_bdp", "queue", "loss", "duration_s", "packet_bytes", "rate_schedule")
_OF_ITS_FLOWS: Final = ("algorithm", "rtt_ms", "start_s", "jitter_ms", "rtt_schedule")
"""What a link of the playground can have (playground/link.js)."""

_HEADINGS: Final = ("property", "value", "best", "path", "what happens", "seeds")


@dataclass(frozen=True)
class Findings:
    """What came of `bbrgym break`.

    Attributes:
        candidate: what was asked for.
        limits: {property: above which it is broken}.
        seed: of the search.
        found: the search; None if paths were given.
        failures: the worst first.
        seconds: how long it took.
        first_s: when the first failure was found; None without one.
        missing: what this system does not contain of the candidate, one sentence each.
        engine: where the candidate ran.
        passed: how many of the paths that were given show no failure.
        stand_in: what was searched in the candidate's place, which then ran where that fails; None if it was searched
            itself.
    """

    candidate: Candidate
    limits: Mapping[str, float]
    seed: int
    found: Found | None
    failures: Sequence[Failure]
    seconds: float = 0.0
    first_s: float | None = None
    missing: Sequence[str] = field(default_factory=tuple)
    engine: str = "native"
    passed: int = 0
    stand_in: Candidate | None = None

    @property
    def searched(self) -> Candidate:
        """What was searched for failures."""
        return self.stand_in or self.candidate

    def stays(self, failure: Failure) -> bool:
        """Return whether a failure is one of the candidate, and not of its stand-in alone."""
        return self.stand_in is None or failure.elsewhere[self.engine].stays

    @property
    def headline(self) -> str:
        """What was found, in one line."""
        count = len(self.failures)
        what = f"{count} failure{'s' * (count != 1)}" if count else "no failure"
        name = self.candidate.competitor.name
        if self.stand_in is not None:
            name += f", searched as {self.stand_in.competitor.name}"
        text = f"{name}: {what}"
        if self.found is not None:
            text += f" on {self.found.candidates} paths of seed {self.seed}"
            if self.stand_in is not None and count:
                text += f", {sum(map(self.stays, self.failures))} of which stay in real time"
        elif self.passed:
            text += f"; {self.passed} of the given paths show none"
        return text

    @property
    def sizes(self) -> str:
        """The median size of what is printed, before and after shrinking; "" without failures."""
        if not self.failures:
            return ""
        parts = []
        for place, unit in enumerate(("flows", "fields")):
            before, after = (
                statistics.median(size(scenario)[place] for scenario in scenarios)
                for scenarios in ([f.before for f in self.failures], [f.trial.scenario for f in self.failures])
            )
            parts.append(f"{before:g} → {after:g} {unit}")
        return f"shrunk, in the median: {', '.join(parts)}"

    def command(self, failure: Failure) -> str:
        """Return the command that replays a failure."""
        words = ["bbrgym", "break", *self.candidate.words, "--property", failure.name]
        if (limit := self.limits[failure.name]) != PROPERTIES[failure.name].limit:
            words += ["--at-most", f"{failure.name}={limit!r}"]
        if self.engine != "native":
            words += ["--engine", self.engine]
        return shlex.join([*words, "--seed", str(failure.trial.seed), "--replay", path_text(failure)])

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, for JSON."""
        return {
            "candidate": self.candidate.what,
            "searched": self.searched.what,
            "parameters": dict(self.searched.competitor.parameters),
            "seed": self.seed,
            "paths": None if self.found is None else self.found.candidates,
            "is_complete": self.found is None or self.found.is_complete,
            "first_failure": None if self.found is None else self.found.first,
            "first_failure_s": self.first_s,
            "seconds": round(self.seconds, 1),
            "limits": dict(self.limits),
            "not_contained": list(self.missing),
            "failures": [
                one.to_dict() | {"command": self.command(one), "playground": playground(self.searched, one)}
                for one in self.failures
            ],
        }


def print_findings(findings: Findings, console: Console) -> None:
    """Print the table, and below it each failure with what replays it."""
    if findings.failures:
        print_table(console, _HEADINGS, [_row(one) for one in findings.failures])
    for number, one in enumerate(findings.failures, start=1):
        lines = [f"{number}. {one.path}: {one.outcome}", f"   {findings.command(one)}"]
        lines += [f"   {engine}: {found.text}" for engine, found in one.elsewhere.items()]
        if link := playground(findings.searched, one):
            lines.append(f"   {link}")
        console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    for note in notes(findings):
        console.print(f"* {note}", markup=False, highlight=False, soft_wrap=True)


def notes(findings: Findings) -> list[str]:
    """Return what a reader must know."""
    found = []
    if findings.found is not None and (sizes := findings.sizes):
        found.append(sizes[0].upper() + sizes[1:] + ".")
    if findings.found is not None and not findings.found.is_complete:
        found.append("The search was interrupted: this is what it had found.")
    found += [f"Not contained on this system: {sentence}." for sentence in findings.missing]
    return found


def _row(failure: Failure) -> list[str]:
    verdict, unit = failure.verdict, PROPERTIES[failure.name].unit
    value = "" if failure.name == "crash" else _amount(verdict.value, unit)
    best = verdict.best
    if best and not math.isnan(verdict.best_value):
        best += f" {_amount(verdict.best_value, unit)}"
    return [failure.name, value, best, failure.path, failure.outcome, f"{failure.repeats} of {failure.seeds}"]


def _amount(value: float, unit: str) -> str:
    if unit == "fair power":
        return f"{value:.2f}"
    if unit.startswith("of "):
        return f"{value:.0%}"
    return f"{value:.1f}{'' if unit.startswith(':') else ' '}{unit}".replace(": 1", " : 1")


def path_text(failure: Failure) -> str:
    """Return the path in one line of YAML."""
    plain = plain_path(failure.trial.scenario)
    return yaml.safe_dump(plain, default_flow_style=True, sort_keys=False, width=10**9).strip()


def playground(candidate: Candidate, failure: Failure) -> str:
    """Return the link that opens a failure in the playground of `bbrgym lab`; "" if the page cannot have it."""
    scenario = failure.trial.scenario
    own = candidate.competitor
    is_shipped = own.algorithm == "policy" and own.policy is None
    if own.parameters or not (is_shipped or own.algorithm in _page_algorithms()):
        return ""
    settings = _settings(scenario, own.algorithm, failure.verdict.best)
    return "" if settings is None else f"{LAB}#{quote(json.dumps({**settings, 'seed': failure.trial.seed}), safe='')}"


def _page_algorithms() -> list[str]:
    return [name for name in registry.controllers() if name not in (registry.FILE, registry.COMMAND, "agent")]


def _settings(scenario: Scenario, algorithm: str, best: str) -> dict[str, Any] | None:
    default, of_flow = Scenario(), Flow()
    others = [name for name in Scenario.__dataclass_fields__ if name not in (*_ON_THE_PAGE, "flows", "buffer_packets")]
    beyond = [name for name in Flow.__dataclass_fields__ if name not in _OF_ITS_FLOWS]
    is_there = all(getattr(scenario, name) == getattr(default, name) for name in others) and all(
        getattr(flow, name) == getattr(of_flow, name) for flow in scenario.flows for name in beyond
    )
    buffer_bdp = scenario.queue_packets / scenario.bdp_packets
    is_there &= len(scenario.flows) <= 8 and min(flow.rtt_ms for flow in scenario.flows) >= 1
    is_there &= 5 <= scenario.duration_s <= 300 and 0.1 <= scenario.rate_mbps <= 1000 and 0.01 <= buffer_bdp <= 100
    if not is_there:
        return None
    versus = best if best in _page_algorithms() else None
    flows = []
    for flow in scenario.flows:
        name = flow.algorithm if flow.algorithm != "agent" else algorithm
        other = versus if flow.algorithm == "agent" and versus else name
        plain = {"rtt_ms": flow.rtt_ms, "start_s": flow.start_s, "jitter_ms": flow.jitter_ms}
        schedule = [list(pair) for pair in flow.rtt_schedule]
        flows.append({"algorithm": name, "versus": other, **plain, "rtt_schedule": schedule})
    return {
        "isComparing": versus is not None,
        "rate_mbps": scenario.rate_mbps,
        "buffer_bdp": scenario.buffer_bdp or (1.0 if scenario.buffer_packets is None else buffer_bdp),
        "queue": scenario.queue,
        "loss": scenario.loss,
        "duration_s": scenario.duration_s,
        "packet_bytes": scenario.packet_bytes,
        "rate_schedule": [list(pair) for pair in scenario.rate_schedule],
        "flows": flows,
    }


def write_page(findings: Findings, path: Path, judge: Judge) -> None:
    """Write the page, which needs no other file and no network; each failure has its picture."""
    parts = [
        f"<h1>{html.escape(findings.headline)}</h1>",
        f"<p>{findings.seconds:.0f} s. Limits: "
        + html.escape(", ".join(f"{name} {limit:g} {PROPERTIES[name].unit}" for name, limit in findings.limits.items()))
        + "</p>",
        html_table(_HEADINGS, [_row(one) for one in findings.failures]),
    ]
    for number, one in enumerate(findings.failures, start=1):
        parts.append(f"<h2>{number}. {html.escape(f'{one.path}: {one.outcome}')}</h2>")
        parts.append(f"<p>{html.escape(PROPERTIES[one.name].definition)}.</p>")
        parts.append(_picture(judge, one))
        parts += [f"<p>{html.escape(engine)}: {html.escape(found.text)}</p>" for engine, found in one.elsewhere.items()]
        parts.append(f"<p><code>{html.escape(findings.command(one))}</code></p>")
        if link := playground(findings.searched, one):
            parts.append(f'<p><a href="{html.escape(link, quote=True)}">in the playground</a> of `bbrgym lab`</p>')
    parts += ["<h2>Notes</h2>", *(f"<p>{html.escape(note)}</p>" for note in notes(findings))]
    parts.append("<h2>What counts as broken</h2>")
    rows = [[one.name, f"{one.limit:g} {one.unit}", one.definition, one.source] for one in PROPERTIES.values()]
    parts.append(html_table(("property", "limit", "definition", "source"), rows))
    write_html(path, findings.headline, parts)


def _picture(judge: Judge, failure: Failure) -> str:
    trace = judge.trace(failure.trial)
    if trace is None:
        return "<p>No picture: the run has no end.</p>"
    names = [
        judge.candidate.competitor.name if flow.algorithm == "agent" else flow.algorithm
        for flow in failure.trial.scenario.flows
    ]
    window_s = min(1.0, failure.trial.scenario.duration_s / 20)
    figure = plots.over_time({"": trace}, ("throughput_mbps", "link_queue_mean_ms"), names=names, window_s=window_s)
    for at_s in events(failure.trial.scenario):
        for axes in figure.axes:
            axes.axvline(at_s, color="#b00020", linewidth=0.9, linestyle="--")
    return str(svg(figure, f"{failure.path}: throughput and queue over time; dashed: what changes"))


def events(scenario: Scenario) -> list[float]:
    """Return when something changes on a path, in s; none of a trace with many changes."""
    times = {at for at, _ in scenario.rate_schedule}
    for flow in scenario.flows:
        times |= {at for at, _ in flow.rtt_schedule} | {flow.start_s, flow.stop_s or 0.0}
    found = sorted(at for at in times if 0 < at < scenario.duration_s)
    return found if len(found) <= 8 else []


def write_tests(findings: Findings, path: Path) -> None:
    """Write a file of tests for pytest, one per failure. Each fails as long as the failure stays."""
    lines = [
        f'"""Failures of {findings.candidate.what} that `bbrgym break` found (seed {findings.seed}).',
        "",
        "Each fails as long as the controller is broken there; pytest.mark.xfail(strict=True) would expect that.",
        '"""',
        "",
        "from bbrgym.benchmark.breaking.pinned import measure_property",
        "",
    ]
    parameters = dict(findings.candidate.competitor.parameters)
    for number, one in enumerate(findings.failures, start=1):
        name = re.sub(r"\W+", "_", f"{findings.candidate.competitor.name}_{one.name}_{one.kind}")
        arguments = f"{findings.candidate.what!r}, {one.name!r}, path, seed={one.trial.seed}"
        arguments += f", parameters={parameters}" if parameters else ""
        text = f"{one.path}: {one.outcome}".replace("\\", "/").replace('"', "'")
        lines += [
            "",
            f"def test_{name}_{number}():",
            f'    """{text}."""',
            f"    path = {plain_path(one.trial.scenario)!r}",
            f"    assert measure_property({arguments}) <= {findings.limits[one.name]!r}",
            "",
        ]
    write_text(path, "\n".join(lines))
