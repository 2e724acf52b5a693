"""qlog, the log of a QUIC stack (draft-ietf-quic-qlog-main-schema): its windows, RTTs and states as columns of a trace.

Both forms are read: JSON (`.qlog`) and JSON text sequences (`.sqlog`, RFC 7464).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.trace import Trace

_METRICS: Final = {
    "cwnd": "cwnd_bytes",  # aioquic's name
    "congestion_window": "cwnd_bytes",
    "bytes_in_flight": "in_flight_bytes",
    "latest_rtt": "rtt_ms",
    "min_rtt": "min_rtt_ms",
    "ssthresh": "ssthresh_bytes",
    "pacing_rate": "pacing_rate_bps",
}
"""Our names of the values in `metrics_updated`."""

_MODES: Final = {
    "startup": 0,
    "drain": 1,
    "probe_bw": 2,
    "probe_rtt": 3,
    "slow_start": 4,
    "congestion_avoidance": 5,
    "application_limited": 5,
    "recovery": 6,
}
"""States of `congestion_state_updated` as the column `mode` has them."""

_RECORD_SEPARATOR: Final = "\x1e"


@dataclass(frozen=True)
class Qlog:
    """What a sender logged.

    Attributes:
        metrics: per name (`cwnd_bytes`, `in_flight_bytes`, `rtt_ms`, `min_rtt_ms`, `ssthresh_bytes`,
            `pacing_rate_bps`): pairs of a time in s and a value, in order.
        states: pairs of a time in s and the name of the congestion controller's state.
        lost_s: when packets were marked lost, in s.
        first_sent_s: when the first packet was sent, in s: all times count from the same moment, which stacks choose.
    """

    metrics: Mapping[str, list[tuple[float, float]]]
    states: list[tuple[float, str]]
    lost_s: list[float]
    first_sent_s: float


def read_qlog(path: str | Path) -> Qlog:
    """Read a qlog file with one trace.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not qlog, has no packet that was sent, or several traces.
    """
    metrics: dict[str, list[tuple[float, float]]] = {name: [] for name in _METRICS.values()}
    states: list[tuple[float, str]] = []
    lost_s: list[float] = []
    first_sent_s = math.inf
    try:
        for time_s, name, data in _events(Path(path).read_text(encoding="utf-8")):
            match name:
                case "packet_sent":
                    first_sent_s = min(first_sent_s, time_s)
                case "packet_lost":
                    lost_s.append(time_s)
                case "congestion_state_updated":
                    states.append((time_s, str(data["new"])))
                case "metrics_updated":
                    for key in _METRICS.keys() & data.keys():
                        metrics[_METRICS[key]].append((time_s, float(data[key])))
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a qlog file: {type(error).__name__}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if first_sent_s == math.inf:
        raise ValueError(f"{path} must have an event packet_sent, and has none")
    return Qlog(metrics, states, lost_s, first_sent_s)


def find_qlog(folder: str | Path) -> Path:
    """Return the largest qlog file of a folder: stacks name them after connection ids.

    Raises:
        FileNotFoundError: there is none.
    """
    found = [path for pattern in ("*.qlog", "*.sqlog") for path in Path(folder).glob(pattern)]
    if not found:
        raise FileNotFoundError(f"{folder} must have a file *.qlog or *.sqlog, and has none")
    return max(found, key=lambda path: path.stat().st_size)


def add_qlog(trace: Trace, flow: int, qlog: Qlog) -> Trace:
    """Return a run with what the stack of a flow `command` knows in the columns that the engine cannot fill.

    These are `cwnd_packets`, `in_flight_packets`, `pacing_rate_mbps`, `ssthresh_packets`, `min_rtt_ms`, `mode` and the
    RTTs, as far as the log has them, and `lost_packets`: what the sender marked lost, instead of what the link lost.
    Bytes become packets of the scenario's `packet_bytes`.

    The times of both are aligned at the first packet: the log's is as old as the middle of the first step in which the
    flow sent.

    Args:
        trace: a run.
        flow: index of the flow.
        qlog: the log of its sender.

    Raises:
        ValueError: the flow sent nothing.
    """
    column = FLOW_COLUMNS.index
    has_sent = np.flatnonzero(trace.flows[:, flow, column("sent_packets")] > 0)
    if has_sent.size == 0:
        raise ValueError(f"flow {flow} must have sent a packet for its log to be aligned, and has not")
    ends = trace.time_s
    starts = np.concatenate([[0.0], ends[:-1]])
    offset_s = float(starts[has_sent[0]] + ends[has_sent[0]]) / 2 - qlog.first_sent_s
    rows = trace.flows.copy()
    packet_bytes = trace.scenario.packet_bytes
    for name, target, scale in (
        ("cwnd_bytes", "cwnd_packets", 1 / packet_bytes),
        ("in_flight_bytes", "in_flight_packets", 1 / packet_bytes),
        ("ssthresh_bytes", "ssthresh_packets", 1 / packet_bytes),
        ("pacing_rate_bps", "pacing_rate_mbps", 1e-6),
        ("min_rtt_ms", "min_rtt_ms", 1.0),
        ("rtt_ms", "rtt_last_ms", 1.0),
    ):
        rows[:, flow, column(target)] = _at_ends(qlog.metrics[name], offset_s, ends) * scale
    modes = [(time_s, float(_MODES.get(state.lower(), math.nan))) for time_s, state in qlog.states]
    rows[:, flow, column("mode")] = _at_ends(modes, offset_s, ends)
    lost_s = np.array(qlog.lost_s) + offset_s
    rtts = np.array(qlog.metrics["rtt_ms"]).reshape(-1, 2)
    for step, (start, end) in enumerate(zip(starts, ends, strict=True)):
        rows[step, flow, column("lost_packets")] = np.count_nonzero((start < lost_s) & (lost_s <= end))
        of_step = rtts[(start < rtts[:, 0] + offset_s) & (rtts[:, 0] + offset_s <= end), 1]
        if of_step.size:
            for name, value in (("min", of_step.min()), ("max", of_step.max()), ("mean", of_step.mean())):
                rows[step, flow, column(f"rtt_{name}_ms")] = value
    return dataclasses.replace(trace, flows=rows)


def _at_ends(samples: list[tuple[float, float]], offset_s: float, ends: np.ndarray) -> np.ndarray:
    """Return the latest value at the end of each step; NaN before the first."""
    if not samples:
        return np.full(len(ends), math.nan)
    times, values = np.array(samples).T
    latest = np.searchsorted(times + offset_s, ends, side="right") - 1
    return np.where(latest >= 0, values[np.maximum(latest, 0)], math.nan)


def _records(text: str) -> Iterator[Any]:
    """Yield the records of a JSON text sequence; the last may be cut off, by a kill (RFC 7464, section 2.3)."""
    *whole, last = (record for record in text.split(_RECORD_SEPARATOR) if record.strip())
    yield from map(json.loads, whole)
    with contextlib.suppress(json.JSONDecodeError):
        yield json.loads(last)


_TIME_FORMATS: Final = {
    "absolute": False,
    "relative": False,
    "relative_to_epoch": False,
    "delta": True,
    "relative_to_previous_event": True,
}
"""Of the drafts of qlog's main schema: whether a time is that since the event before."""

_MS: Final = {"ms": 1.0, "us": 1e-3}
"""Units of earlier drafts, in ms."""


def _events(text: str) -> Iterator[tuple[float, str, Mapping[str, Any]]]:
    """Yield the time in s, the name without its category, and the data of each event."""
    if text.lstrip(" \r\n\t").startswith(_RECORD_SEPARATOR):
        header, *events = _records(text)
        trace = header["trace"]
    else:
        document = json.loads(text)
        traces = document["traces"]
        if len(traces) != 1:
            raise ValueError(f"a qlog file must have one trace, got {len(traces)}")
        trace = traces[0]
        events = trace["events"]
    common = trace.get("common_fields") or {}
    time_format = common.get("time_format", "absolute")
    unit = common.get("time_units") or (trace.get("configuration") or {}).get("time_units", "ms")
    for name, given, good in (("time_format", time_format, _TIME_FORMATS), ("time_units", unit, _MS)):
        if given not in good:
            raise ValueError(f"{name} of a qlog file must be one of {', '.join(good)}, got {given!r}")
    is_relative, unit_ms = _TIME_FORMATS[time_format], _MS[unit]
    time_ms = 0.0
    for event in events:
        time_ms = float(event["time"]) * unit_ms + (time_ms if is_relative else 0.0)
        # "recovery:metrics_updated", in later drafts "quic:recovery_metrics_updated".
        name = event["name"].rpartition(":")[2].removeprefix("recovery_")
        yield time_ms / 1e3, name, event.get("data") or {}
