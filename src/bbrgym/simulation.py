"""`bbrgym simulate`: flows on one link as a table, a picture and a saved trace."""

from __future__ import annotations

import dataclasses
import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from bbrgym.baselines import registry
from bbrgym.checks import check_name, check_number
from bbrgym.envs.engine import DEFAULT_ENGINE, ENGINES
from bbrgym.envs.scenario import DRIVER, Flow, Scenario
from bbrgym.envs.trace import Summary, Trace, simulate
from bbrgym.extras import optional
from bbrgym.files import check_file, write_json
from bbrgym.interruption import ending_at_once
from bbrgym.layout import columns, wrap
from bbrgym.options import OptionParser
from bbrgym.output import diverting_c, tell
from bbrgym.waiting import announcing

PICTURES: Final = (".png", ".svg", ".pdf")
"""Suffixes of the files that --plot writes."""
TRACES: Final = (".parquet", ".json")
"""Suffixes of the files that --save writes."""
_SHORT: Final = {"rate": "rate_mbps", "buffer": "buffer_bdp", "duration": "duration_s", "rtt": "rtt_ms"}
"""Options that are short for a field."""
_OF_SCENARIO: Final = (*(field.name for field in dataclasses.fields(Scenario)), "rate_trace", "workload")
_OF_FLOWS: Final = (*(field.name for field in dataclasses.fields(Flow) if field.name != "algorithm"), "rtt_trace")
_LONGEST_NAME: Final = 24


def simulate_parser() -> OptionParser:
    """Return the parser of `bbrgym simulate`."""
    parser = OptionParser("simulate")
    parser.add_argument(
        "what",
        nargs="+",
        metavar="WHAT",
        help="one flow each: an algorithm (`bbrgym list controllers`), a training run, an agent's folder, or a C file, "
        "which runs with the rights of this process; and any field of the scenario or of all its flows as FIELD=VALUE, "
        "with its name in YAML: queue=codel, loss=0.01, start_s=5, or of one flow: flows.1.start_s=5",
    )
    defaults = Scenario()
    parser.add_argument(
        "--rate", metavar="MBPS", help=f"rate of the link, in Mbit/s: rate_mbps (default: {defaults.rate_mbps:g})"
    )
    parser.add_argument(
        "--rtt",
        metavar="MS,MS",
        help=f"base RTT of all flows, or of each, in ms: rtt_ms (default: {Flow().rtt_ms:g}). One algorithm with "
        "several RTTs has a flow for each",
    )
    parser.add_argument(
        "--buffer",
        metavar="BDP",
        help="buffer, in BDPs of the longest RTT: buffer_bdp (default: 1; or buffer_packets=N)",
    )
    parser.add_argument(
        "--duration", metavar="S", help=f"simulated time, in s: duration_s (default: {defaults.duration_s:g})"
    )
    parser.add_argument("--after", type=float, default=0.0, metavar="S", help="leave out what is before, in s")
    parser.add_argument("--engine", default=DEFAULT_ENGINE, metavar="|".join(ENGINES), help="what simulates")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="decides everything random")
    parser.add_argument("--step", type=float, default=100.0, metavar="MS", help="time between rows of the trace, in ms")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help=f"draw throughput and queue over time: {', '.join(PICTURES)}"
    )
    parser.add_argument(
        "--save",
        type=Path,
        metavar="FILE",
        help="keep the trace: .parquet for bbrgym.envs.trace_file.load_trace, and in runs/simulate also for `bbrgym "
        "lab`; .json for the playground",
    )
    return parser


def run_simulate(arguments: list[str]) -> int:
    """Simulate what the arguments say, and print it."""
    options = simulate_parser().parse_intermixed_args(arguments)
    check_name("engine", options.engine, ENGINES)
    _check_output("--plot", options.plot, PICTURES)
    if options.save is not None and options.save.parent == Path("runs/simulate"):
        options.save.parent.mkdir(parents=True, exist_ok=True)
    _check_output("--save", options.save, TRACES)
    scenario, names = read_scenario(options)
    check_number("--after", options.after, at_least=0, below=scenario.duration_s)
    if options.plot is not None:
        with optional("--plot"):
            from bbrgym.benchmark.plots import over_time
    with announcing(f"the engine {options.engine}"), ExitStack() as stack:
        if any(flow.algorithm == registry.FILE for flow in scenario.flows):  # somebody else's code
            stack.enter_context(diverting_c())
            stack.enter_context(ending_at_once())
        trace = simulate(scenario, engine=options.engine, seed=options.seed, step_ms=options.step)
    summary = trace.summary(after_s=options.after)
    lines = [*wrap(_sentence(trace, options.after)), "", *table(summary, names), "", *wrap(link_text(summary))]
    if options.plot is not None:
        figure = over_time(
            {"": trace},
            ("throughput_mbps", "link_queue_mean_ms"),
            title=f"{scenario.describe_link()}; {options.engine}",
            names=names,
        )
        figure.savefig(options.plot, dpi=150)
        lines.append(f"Picture: {options.plot}")
    if options.save is not None:
        save(trace, options.save)
        lines.append(f"Trace: {options.save}")
    tell("\n".join(lines), facts(trace, summary, names))
    return 0


def read_scenario(options: Namespace) -> tuple[Scenario, list[str]]:
    """Return the scenario of a command line, and the names of its flows.

    Raises:
        ValueError: naming the bad value and the good ones.
    """
    words = [word for word in options.what if "=" not in word]
    if not words:
        raise ValueError("give at least one algorithm: bbrgym simulate bbr cubic")
    given = _fields([word for word in options.what if "=" in word])
    for option, name in _SHORT.items():
        if (text := getattr(options, option)) is None:
            continue
        if name in given:
            raise ValueError(f"give one of --{option} and {name}, which are the same")
        given[name] = text.split(",") if option == "rtt" else text
    of_single = given.pop("flows", {})
    if not isinstance(of_single, Mapping):
        raise ValueError("give flows as words, and a field of one of them as flows.0.FIELD=VALUE")
    of_link = {name: _plain_number(value) for name, value in given.items() if name in _OF_SCENARIO}
    of_flows = {name: value for name, value in given.items() if name not in of_link}
    rtts = of_flows.pop("rtt_ms", [])
    rtts = [_plain_number(rtt) for rtt in (rtts if isinstance(rtts, list) else [rtts])]
    count = max(len(words), len(rtts))
    for what, found in (("algorithm", words), ("RTT", rtts)):
        if len(found) not in (0, 1, count):
            raise ValueError(f"give one {what}, or one for each of the {count} flows, got {len(found)}")
    drivers = [_driver(word) for word in (words if len(words) == count else words * count)]
    flows = [dict(driver) | of_flows for _, driver in drivers]
    for flow, rtt in zip(flows, rtts if len(rtts) == count else rtts * count, strict=False):
        flow["rtt_ms"] = rtt
    for key, fields in of_single.items():
        check_name("flow", str(key), [str(index) for index in range(count)])
        flows[int(key)] |= _known(fields, _OF_FLOWS)
    scenario = Scenario.from_dict({**of_link, "flows": flows})
    names = [name for name, _ in drivers]
    return scenario, names + [flow.algorithm for flow in scenario.flows[count:]]


def _fields(settings: Sequence[str]) -> dict[str, Any]:
    """Return settings as nested plain values, read as YAML."""
    try:
        plain = OmegaConf.to_container(OmegaConf.from_dotlist(list(settings)), resolve=True)
    except (OmegaConfBaseException, YAMLError) as error:
        raise ValueError(f"{' '.join(settings)}: {error}") from error
    assert isinstance(plain, dict)
    return _known(plain, (*_OF_SCENARIO, *_OF_FLOWS))


def _known(fields: Any, known: Sequence[str]) -> dict[str, Any]:
    if not isinstance(fields, Mapping):
        raise ValueError(f"give a field of a flow as flows.0.FIELD=VALUE, got {fields!r}")
    for name in fields:
        check_name("field", name, known)
    return {str(name): value for name, value in fields.items()}


def _plain_number(value: Any) -> Any:
    """Return the number that a text is; anything else as it is, for the scenario to judge."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _driver(word: str) -> tuple[str, dict[str, Any]]:
    """Return a name and the fields that say what drives a flow."""
    if word in registry.controllers() or word in registry.COMPARATORS:
        return word, {"algorithm": word}
    from bbrgym.benchmark.candidate import STACKS, Candidate

    candidate = Candidate.of(word, engine="linux" if word.endswith(STACKS) else "native")
    if candidate.function is not None:
        raise ValueError(f"'{word}' is a Python callable: `bbrgym score` judges it, simulate takes none")
    competitor = candidate.competitor
    fields = {name: getattr(competitor, name) for name in DRIVER if hasattr(competitor, name)}
    return competitor.name, {name: value for name, value in fields.items() if value}


def _check_output(option: str, path: Path | None, suffixes: Sequence[str]) -> None:
    if path is None:
        return
    if path.suffix not in suffixes:
        raise ValueError(f"{option}: the file must end with {', '.join(suffixes)}, got '{path}'")
    check_file(option, path)


def _sentence(trace: Trace, after_s: float) -> str:
    scenario = trace.scenario
    since = f", measured from {after_s:g} s on" if after_s else ""
    return f"{scenario.describe_link()}; {scenario.duration_s:g} s in {trace.engine}, seed {trace.seed}{since}"


def table(summary: Summary, names: Sequence[str]) -> list[str]:
    """Return the flows in lines that fit 80 columns."""
    total = sum(flow.received_bytes for flow in summary.flows)
    rows: list[tuple[str, ...]] = [
        ("flow", "base RTT", "throughput", "share", "mean RTT", "loss", "active"),
        ("", "ms", "Mbit/s", "%", "ms", "%", "s"),
    ]
    for name, flow in zip(names, summary.flows, strict=True):
        share = 100 * flow.received_bytes / total if total else math.nan
        cells = (flow.rtt_ms, flow.throughput_mbps, share, flow.rtt_mean_ms, 100 * flow.loss_rate, flow.active_s)
        rows.append((_short(name), *map(_digits, cells)))
    if _are_always_active(summary):
        rows = [row[:-1] for row in rows]
    return columns(rows)


def link_text(summary: Summary) -> str:
    """Return what the link's columns say; Jain's index only of several flows."""
    link = summary.link
    text = (
        f"link: {_digits(100 * link.utilisation)} % used; queue mean {_digits(link.queue_mean_ms)} ms, "
        f"p95 {_digits(link.queue_p95_ms)} ms"
    )
    if len(summary.flows) > 1:
        text += f"; Jain's index {link.jain:.3f}"
    if not _are_always_active(summary):
        text += ". A flow's throughput is over the time in which it is active"
    return text


def _are_always_active(summary: Summary) -> bool:
    return all(flow.active_s > summary.link.duration_s - 1e-6 for flow in summary.flows)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _digits(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def facts(trace: Trace, summary: Summary, names: Sequence[str]) -> dict[str, Any]:
    """Return the same for a program, with all columns of the summary."""
    return {
        "engine": trace.engine,
        "seed": trace.seed,
        "scenario": trace.scenario.to_dict(),
        "flows": [{"name": name, **vars(flow)} for name, flow in zip(names, summary.flows, strict=True)],
        "link": vars(summary.link),
        "flaw": trace.flaw,
    }


def save(trace: Trace, path: Path) -> None:
    """Write a trace as Parquet, or as the JSON that the playground reads."""
    if path.suffix == ".json":
        from bbrgym.lab import plain_trace

        write_json(path, plain_trace(trace))
    else:
        from bbrgym.envs.trace_file import save_trace

        save_trace(trace, path)
