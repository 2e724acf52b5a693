"""Mahimahi's traces as schedules of rates."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bbrgym import Scenario
from bbrgym.envs import mahimahi
from bbrgym.envs.named import named_scenario


def trace(path: Path, *times_ms: int) -> Path:
    path.write_text("".join(f"{time}\n" for time in times_ms))
    return path


def by_hand(times_ms: list[int], bins: int, bin_ms: float) -> list[int]:
    """Opportunities in each bin, one after the other."""
    counts = [0] * bins
    for begin in range(0, int(bins * bin_ms) + 1, times_ms[-1]):
        for time in times_ms:
            index = max(0, int(-(-(begin + time) // bin_ms)) - 1)
            if index < bins:
                counts[index] += 1
    return counts


def in_full(schedule: tuple[tuple[float, float], ...], bins: int, bin_ms: float) -> list[float]:
    """The rate of each bin."""
    rates, changes = [], dict(schedule)
    for index in range(bins):
        rates.append(changes.pop(index * bin_ms / 1e3, rates[-1] if rates else None))
    assert not changes
    assert None not in rates
    return rates


def test_one_line_is_a_constant_rate(tmp_path: Path) -> None:
    assert mahimahi.rate_schedule(trace(tmp_path / "a", 1), duration_s=10) == ((0.0, 12.0),)
    assert mahimahi.rate_schedule(trace(tmp_path / "a", 5), duration_s=10) == ((0.0, 2.4),)
    assert mahimahi.rate_schedule(trace(tmp_path / "a", 1, 1, 1), duration_s=10, bin_ms=7) == ((0.0, 36.0),)


@pytest.mark.parametrize("bin_ms", [1, 10, 33, 100, 250])
def test_bins_count_opportunities_and_the_trace_repeats(tmp_path: Path, bin_ms: float) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        times = sorted(int(time) for time in rng.integers(0, 700, size=int(rng.integers(2, 200))))
        times[-1] += 1
        bins = int(np.ceil(3000 / bin_ms))
        schedule = mahimahi.rate_schedule(trace(tmp_path / "a", *times), duration_s=3, bin_ms=bin_ms, lowest_mbps=0.05)
        expected = [max(0.05, count * 12 / bin_ms) for count in by_hand(times, bins, bin_ms)]
        assert in_full(schedule, bins, bin_ms) == pytest.approx(expected)


@pytest.mark.parametrize("from_s", [0, 0.1, 0.35, 2.6, 1000.05])
def test_a_schedule_can_begin_anywhere_in_a_trace(tmp_path: Path, from_s: float) -> None:
    times = sorted(int(time) for time in np.random.default_rng(3).integers(1, 701, size=90))
    path = trace(tmp_path / "a", *times)
    begin = round(from_s * 1e3)
    opportunities = [turn + time for turn in range(0, begin + 4000, times[-1]) for time in times]
    counts = [sum(begin + 50 * bin < time <= begin + 50 * (bin + 1) for time in opportunities) for bin in range(60)]
    schedule = mahimahi.rate_schedule(path, duration_s=3, bin_ms=50, lowest_mbps=0.05, from_s=from_s)
    assert in_full(schedule, 60, 50) == pytest.approx([max(0.05, count * 0.24) for count in counts])
    given = {"rate_trace": {"file": str(path), "bin_ms": 50, "lowest_mbps": 0.05, "from_s": from_s}, "duration_s": 3}
    assert Scenario.from_dict(given).rate_schedule == schedule


def test_marks_of_the_byte_order_and_other_line_ends_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf1\r\n2\r\n")
    assert mahimahi.read_trace(tmp_path / "a").tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n2\nx3\n", r"a\.trace:3: .*, got 'x3'"),
        ("5\n9\n8\n", r"a\.trace:3: times must not fall, got 8 after 9"),
        ("", r"a\.trace:1: "),
        ("0\n0\n", r"a\.trace:2: the last time must be > 0"),
        ("1\n\xff\x00\n", r"a\.trace:2: "),
    ],
)
def test_bad_files_are_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "a.trace"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=message):
        mahimahi.rate_schedule(file, duration_s=10)
    with pytest.raises(ValueError, match=message):
        Scenario.from_dict({"rate_trace": {"file": str(file)}})


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([], "the last time must be > 0, got no times"),
        ([0, 0], "the last time must be > 0, got 0"),
        ([5, 3, 1], r"trace\[1\]: times must not fall, got 3 after 5"),
        ([-5, 10], r"trace\[0\] must be an integer of ms in \[0, 1e\+12\], got -5"),
        ([1, 2, 3.7], r"trace\[2\] must be an integer .*, got 3\.7"),
        ([1, np.nan], r"trace\[1\] must be an integer .*, got nan"),
        ([1, 10**13], r"trace\[1\] must be an integer .*, got 10000000000000"),
        ([1, 10**30], r"trace must be a path or the times of a trace, .*, got \[1, 10{30}\]"),
        ([[1, 2]], r"trace must be .*, got \[\[1, 2\]\]"),
        (["1", "2"], r"trace must be .*, got \['1', '2'\]"),
        (7, r"trace must be .*, got 7"),
    ],
)
def test_bad_times_are_refused_by_their_place(times: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mahimahi.rate_schedule(times, duration_s=0.3)


@pytest.mark.parametrize("seed", range(10))
def test_times_are_taken_and_refused_as_those_of_a_file_are(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = [int(time) for time in rng.integers(1, 700, size=60).cumsum()]
    path = trace(tmp_path / "a", *times)
    expected = mahimahi.rate_schedule(path, duration_s=3)
    for given in (times, tuple(times), np.array(times), np.array(times, np.uint16), [float(time) for time in times]):
        assert mahimahi.rate_schedule(given, duration_s=3) == expected
    place, change = int(rng.integers(1, 60)), int(rng.choice([-(10**6), 10**13]))
    times[place] += change
    with pytest.raises(ValueError, match=rf"a:{place + 1}: "):
        mahimahi.rate_schedule(trace(path, *times), duration_s=3)
    with pytest.raises(ValueError, match=rf"trace\[{place}\]"):
        mahimahi.rate_schedule(times, duration_s=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bin_ms": 0}, "bin_ms must be"),
        ({"from_s": -1}, "from_s must be"),
        ({"duration_s": 1e6, "bin_ms": 1}, "at most 1,000,000 bins of bin_ms=1, got 1,000,000,000"),
    ],
)
def test_bad_arguments_are_refused_by_name(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mahimahi.rate_schedule(trace(tmp_path / "a", 1), **{"duration_s": 10} | arguments)
    with pytest.raises(FileNotFoundError):
        mahimahi.rate_schedule(tmp_path / "none", duration_s=1)


@pytest.mark.parametrize(
    ("duration_s", "digest"),
    [
        (30, "ca0a91851700da679af6535c5e5ca81a4fde983803fba50d285678f351b75138"),
        (75, "70aded2c2812cc059c0f86c2bef1ee4bb539ebc4ceed6ced008d070a0d180eba"),
    ],
)
def test_the_schedule_of_the_cellular_scenario_stays_what_it_was(duration_s: float, digest: str) -> None:
    scenario = Scenario.from_dict(named_scenario("cellular") | {"duration_s": duration_s})
    assert hashlib.sha256(repr(scenario.rate_schedule).encode()).hexdigest() == digest
