"""`bbrgym simulate`: flows on one link as a table, a picture and a saved trace."""

from __future__ import annotations

import dataclasses
import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from bbrgym.baselines import registry
from bbrgym.checks import check_name, check_number
from bbrgym.envs.columns import LINK_COLUMNS
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
_WIDEST: Final = 80
"""Of the table, in columns; where flows have many numbers, names have less room."""
_MOST_DESCRIBED: Final = 6
"""Paths of flows that a header says, and flows that it says to have the same one."""


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
    further = further_links(trace, options.after)
    texts = (link_text(summary), *further_texts(further), *notes(scenario, summary))
    lines = [*wrap(_sentence(trace, options.after)), "", *table(scenario, summary, names), ""]
    lines += [line for text in texts for line in wrap(text)]
    if options.plot is not None:
        figure = over_time(
            {"": trace},
            plot_columns(scenario),
            title="; ".join([scenario.describe_link(), *flow_texts(scenario), options.engine]),
            names=names,
        )
        figure.savefig(options.plot, dpi=150)
        lines.append(f"Picture: {options.plot}")
    if options.save is not None:
        save(trace, options.save)
        lines.append(f"Trace: {options.save}")
    tell("\n".join(lines), facts(trace, summary, names) | {"further_links": further})
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
    _check_fields(given, (*_OF_SCENARIO, *_OF_FLOWS), dict(enumerate(words)))
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
        if not isinstance(fields, Mapping):
            raise ValueError(f"give a field of a flow as flows.0.FIELD=VALUE, got {fields!r}")
        _check_fields(fields, _OF_FLOWS, {int(key): words[int(key) % len(words)]}, is_of_one=True)
        flows[int(key)] |= fields
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
    return {str(name): value for name, value in plain.items()}


def _check_fields(
    fields: Mapping[str, Any], known: Sequence[str], words: Mapping[int, str], is_of_one: bool = False
) -> None:
    """Refuse unknown fields, and say where one belongs that is a parameter of the flows' algorithms.

    Args:
        fields: as given.
        known: the names of fields.
        words: what drives flows, by the number of the flow.
        is_of_one: the fields are those of this one flow.
    """
    for name, value in fields.items():
        having = [flow for flow, word in words.items() if name not in known and _has_parameter(word, name)]
        if having:
            setting = f"parameters.{name}={value}"
            of_one = f"flows.{having[0]}.{setting}"
            is_of_all = len(having) == len(words) and not is_of_one
            give = f"{setting}, or {of_one} for one flow" if is_of_all else of_one
            raise ValueError(f"{name} is a parameter of {words[having[0]]}: give {give}")
        check_name("field", name, known)


def _has_parameter(word: str, name: str) -> bool:
    """Return whether an algorithm or a C file has the parameter; a file whose text has the name in quotes."""
    path = Path(word).expanduser()
    if path.suffix == ".c":
        return path.is_file() and f'"{name}"' in path.read_text(encoding="utf-8", errors="replace")
    return word in registry.controllers() and name in registry.defaults(word)


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
    run = f"{scenario.duration_s:g} s in {trace.engine}, seed {trace.seed}{since}"
    return "; ".join([scenario.describe_link(), *flow_texts(scenario), run])


def flow_texts(scenario: Scenario) -> list[str]:
    """Return what the flows' paths and times are, of those that have more to say than their base RTT."""
    flows_of: dict[str, list[int]] = {}
    for index, flow in enumerate(scenario.flows):
        text = flow.describe()
        if text != f"{flow.rtt_ms:g} ms":
            flows_of.setdefault(text, []).append(index)
    texts = [f"{_which(flows, len(scenario.flows))}: {text}" for text, flows in flows_of.items()]
    left_out = sum(map(len, [*flows_of.values()][_MOST_DESCRIBED:]))
    return texts[:_MOST_DESCRIBED] + [f"and {left_out} more flows"] * bool(left_out)


def _which(flows: Sequence[int], count: int) -> str:
    """Return which of so many flows these are, in words."""
    if len(flows) == count:
        return "flow" if count == 1 else "each flow"
    if len(flows) > _MOST_DESCRIBED:
        return f"{len(flows)} flows"
    return f"flow{'s' * (len(flows) > 1)} {', '.join(map(str, flows))}"


def plot_columns(scenario: Scenario) -> list[str]:
    """Return what is drawn over time: also the RTTs where base RTTs change, and the queue of every link."""
    has_moving_rtt = any(flow.rtt_schedule for flow in scenario.flows)
    return [
        "throughput_mbps",
        *(["rtt_mean_ms"] if has_moving_rtt else []),
        "link_queue_mean_ms",
        *(f"link_{name}_queue_mean_ms" for name in _further_names(scenario)),
    ]


def _further_names(scenario: Scenario) -> list[str]:
    rates = {"second": scenario.second_rate_mbps, "reverse": scenario.reverse_rate_mbps}
    return [name for name, rate_mbps in rates.items() if rate_mbps is not None]


def table(scenario: Scenario, summary: Summary, names: Sequence[str]) -> list[str]:
    """Return the flows in lines that fit 80 columns."""
    total = sum(flow.received_bytes for flow in summary.flows)
    has_marks = not all(math.isnan(flow.mark_rate) for flow in summary.flows)
    rows: list[tuple[str, ...]] = [
        ("base RTT", "throughput", "share", "mean RTT", "loss", *["marked"] * has_marks, "active"),
        ("ms", "Mbit/s", "%", "ms", "%", *["%"] * has_marks, "s"),
    ]
    for given, flow in zip(scenario.flows, summary.flows, strict=True):
        share = 100 * flow.received_bytes / total if total else math.nan
        marked = [100 * flow.mark_rate] * has_marks
        cells = (flow.throughput_mbps, share, flow.rtt_mean_ms, 100 * flow.loss_rate, *marked, flow.active_s)
        rows.append((_base_rtt(given), *map(_digits, cells)))
    if _are_always_active(summary):
        rows = [row[:-1] for row in rows]
    taken = sum(2 + max(map(len, column)) for column in zip(*rows, strict=True))
    shown = [_short(name, min(_LONGEST_NAME, _WIDEST - taken)) for name in names]
    return columns([(name, *row) for name, row in zip(["flow", "", *shown], rows, strict=True)])


def _base_rtt(flow: Flow) -> str:
    """Return the base RTT in ms, or the lowest and the highest one if it changes."""
    values = [value for _, value in flow.rtt_schedule]
    if not values or flow.rtt_schedule[0][0] > 0:  # otherwise it is never `rtt_ms`
        values.append(flow.rtt_ms)
    return "-".join(dict.fromkeys([_digits(min(values)), _digits(max(values))]))


def link_text(summary: Summary) -> str:
    """Return what the link's columns say; Jain's index only of several flows."""
    link = summary.link
    text = (
        f"link: {_digits(100 * link.utilisation)} % used; queue mean {_digits(link.queue_mean_ms)} ms, "
        f"p95 {_digits(link.queue_p95_ms)} ms"
    )
    if len(summary.flows) > 1:
        text += f"; Jain's index {link.jain:.3f}"
    return text


def further_links(trace: Trace, after_s: float) -> dict[str, dict[str, float]]:
    """Return what the columns of the second and the reverse link say of the time from `after_s` on, by link.

    They have the names that `LinkSummary` gives to those of the first bottleneck.
    """
    starts = np.concatenate(([0.0], trace.time_s[:-1]))
    kept = starts >= after_s - 1e-9
    durations = (trace.time_s - starts)[kept]
    found = {}
    for name in _further_names(trace.scenario):
        used, queue_ms, drops = (
            trace.link[kept, LINK_COLUMNS.index(f"{name}_{column}")]
            for column in ("utilisation", "queue_mean_ms", "drops")
        )
        found[name] = {
            "utilisation": float(np.average(used, weights=durations)),
            "queue_mean_ms": float(np.average(queue_ms, weights=durations)),
            "queue_p95_ms": float(np.percentile(queue_ms, 95)),
            "drops": float(drops.sum()),
        }
    return found


def further_texts(links: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return what `further_links` found as lines below that of the link."""
    return [
        f"{name} link: {_digits(100 * link['utilisation'])} % used; queue mean {_digits(link['queue_mean_ms'])} ms, "
        f"p95 {_digits(link['queue_p95_ms'])} ms"
        for name, link in links.items()
    ]


def notes(scenario: Scenario, summary: Summary) -> list[str]:
    """Return sentences about numbers that could be misread."""
    found = []
    if scenario.rate_schedule:
        found.append(
            "A queue's time is its length over the link's rate at that moment: after the rate has fallen, it can be "
            "longer than any packet waits"
        )
    if not _are_always_active(summary):
        found.append("A flow's throughput is over the time in which it is active")
    return found


def _are_always_active(summary: Summary) -> bool:
    return all(flow.active_s > summary.link.duration_s - 1e-6 for flow in summary.flows)


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


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
