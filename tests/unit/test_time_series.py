"""Files of rates and RTTs over time, in the formats of public data sets."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recipe import ROOT

from bbrgym import Scenario
from bbrgym.envs import rate_trace, rtt_trace, time_series

Read = Callable[..., Any]

NORWAY = """1289406399 549692 59.851754 10.781778 248069 1008
1289406400 550772 59.851864 10.781833 191698 1080
1289406401 551773 59.851964 10.781901 280579 1001
1289406402 552893 59.85206  10.781969 248971 1120
"""
"""The example on the data set's page: https://datasets.simula.no/hsdpa-tcp-logs."""
GHENT = """1453121790686 39287 51.0386528885778 3.73220785642186 2493100 1000
1453121791687 40288 51.0386532820580 3.73222847166054 2763504 1001
1453121792686 41287 51.0386553301824 3.73225142858955 2728896 0999
"""
"""The example on the data set's page: https://users.ugent.be/~jvdrhoof/dataset-4g."""
LENS = """timestamp,rtt,uplink,downlink
1705744800616897349,0,0,-1
1705744800626565141,120.126123,72.439368,47.68675
1705744800636737402,-1,0,0
1705744800646307744,100.411714,52.731855,47.679937
"""
"""From the example in the README of https://github.com/clarkzjw/LENS."""
IRTT = {
    "round_trips": [
        {"timestamps": {"client": {"send": {"wall": 1707277440772833721, "monotonic": 22211105}}},
         "delay": {"receive": -10470921269, "rtt": 17291970, "send": 10488213200}},
        {"timestamps": {"client": {"send": {"wall": 1707277441773479264, "monotonic": 1022856655}}}, "delay": {}},
        {"timestamps": {"client": {"send": {"wall": 1707277442772652035, "monotonic": 2022029432}}},
         "delay": {"rtt": 16064572}},
    ]
}  # fmt: skip
"""The entries that are read of an example in the same README; the second packet is lost."""


@pytest.fixture
def rates(tmp_path: Path) -> Read:
    return _reader(tmp_path, rate_trace.from_config)


@pytest.fixture
def rtts(tmp_path: Path) -> Read:
    return _reader(tmp_path, rtt_trace.from_config)


def _reader(folder: Path, from_config: Callable[[Any, float], Any]) -> Read:
    def read(content: str | bytes, duration_s: float = 10, **options: Any) -> Any:
        (folder / "file").write_bytes(content if isinstance(content, bytes) else content.encode())
        return from_config({"file": str(folder / "file"), **options}, duration_s)

    return read


@pytest.mark.parametrize(
    "text",
    [
        "0 1.5\n2 3\n2.5 0.5\n",
        "0\t1.5\r\n2\t3\r\n2.5\t0.5",
        "0,1.5\n2,3\n2.5,5e-1\n\n",
        "0, 1.5\n2 ,3\n  2.5 , 0.5\n",
        "0;1.5\n2; 3\n2.5;0.5\n",
        "\ufefftime_s,throughput_mbps\n0,1.5\n2,3\n2.5,0.5\n",
        "# t/s rate/Mbps\n0 1.5\n2 3\n2.5 0.5\n",
        "loss,Time (ms),Throughput (kbit/s)\n0,0,1500\n0,2000,3000\n1,2500,500\n",
        "Time [ms];Bandwidth [MB/s]\n0;0.1875\n2000;0.375\n2500;0.0625\n",
    ],
)
def test_a_rate_holds_from_its_time_on_whatever_separates_the_columns(text: str, rates: Read) -> None:
    stated = {} if any(letter in text for letter in "tT") else {"time_unit": "s"}
    assert rates(text, **stated) == ((0.0, 1.5), (2.0, 3.0), (2.5, 0.5))


def test_units_are_said_by_the_header_or_the_configuration_and_never_guessed(rates: Read, rtts: Read) -> None:
    assert rates("0 500\n1000 700\n", time_unit="ms", unit="kbit/s") == ((0.0, 0.5), (1.0, 0.7))
    assert rtts("0 0.04\n1 0.05\n", time_unit="s", unit="s") == ((0.0, 40.0), (1.0, 50.0))
    for text, options, message in (
        ("0 5\n1000 7\n", {}, "file:1: .*rate_trace.time_unit of the first one, s, "),
        ("time,rate_mbps\n0,5\n", {}, "file:1: the unit of column 1 'time'"),
        ("time_s,rate (MBps)\n0,5\n", {}, r"file:1: the unit of column 2 'rate \(MBps\)'"),
        ("time_s,rate_mbps\n0,5\n", {"time_unit": "ms"}, "unit of column 1 'time_s'"),
        ("0 5\n", {"time_unit": "min"}, r"rate_trace\.time_unit 'min'.*; known: s, "),
    ):
        with pytest.raises(ValueError, match=message):
            rates(text, **options)


def test_pensieve_takes_the_rate_of_the_time_before_a_line_and_repeats(rates: Read) -> None:
    assert rates("0.5\t9\n1.5\t2\n2.5\t3\n", duration_s=4, format="pensieve") == (
        *((0.0, 2.0), (1.0, 3.0)),
        *((2.0, 2.0), (3.0, 3.0)),
    )


def test_logs_of_bytes_and_milliseconds(rates: Read) -> None:
    assert rates(NORWAY, duration_s=5) == (
        (0.0, pytest.approx(248069 * 8e-3 / 1008)),
        (1.008, pytest.approx(191698 * 8e-3 / 1080)),
        (2.088, pytest.approx(280579 * 8e-3 / 1001)),
        (3.089, pytest.approx(248971 * 8e-3 / 1120)),
        (4.209, pytest.approx(248069 * 8e-3 / 1008)),  # it repeats
    )
    assert [time for time, _ in rates(GHENT, duration_s=3)] == [0.0, 1.0, 2.001]


def test_a_value_per_line_repeats(rates: Read, rtts: Read) -> None:
    assert rates("4\n4\n6\n", duration_s=0.5, step_ms=100) == ((0.0, 4.0), (0.2, 6.0), (0.3, 4.0))
    assert rtts("rtt_ms\n40\n55.5\n", duration_s=0.3) == ((0.0, 40.0), (0.1, 55.5), (0.2, 40.0))


def test_one_way_delays_are_doubled(rtts: Read) -> None:
    """LeoCC's files: a delay of each way in ms per line, for 10 ms each."""
    assert rtts("12\n12\n16\n", duration_s=0.04, step_ms=10, one_way=True) == ((0.0, 24.0), (0.02, 32.0), (0.03, 24.0))
    assert rtts("time_s,owd_ms\n0,20\n", one_way=True) == ((0.0, 40.0),)
    with pytest.raises(ValueError, match=r"rtt_trace must have no one_way with the format irtt"):
        rtts(LENS, one_way=True)
    with pytest.raises(ValueError, match=r"rtt_trace\.one_way must be true or false, got 2"):
        rtts("1\n", one_way=2)


def test_irtt(rtts: Read) -> None:
    """Losses have no RTT. The CSV's times are of 19 digits, which a float has to 256 ns."""
    assert rtts(LENS) == ((0.0, 120.126123), (pytest.approx(0.019742603, abs=1e-6), 100.411714))
    assert rtts(json.dumps(IRTT)) == ((0.0, 17.29197), (1.999818327, 16.064572))
    for trip in IRTT["round_trips"]:
        trip["timestamps"]["client"]["send"].pop("monotonic")  # type: ignore[index]
    assert rtts(json.dumps(IRTT)) == ((0.0, 17.29197), (pytest.approx(1.999818327, abs=1e-3), 16.064572))


def test_the_table_of_formats_has_each_with_a_line_that_is_read(rates: Read, rtts: Read) -> None:
    text = (ROOT / "docs" / "traces.md").read_text()
    table = re.findall(r"^\| `(\w+)` \| [^|]* \| `([^`]*)` \| (rates|RTTs|both) \|$", text, re.MULTILINE)
    found = {name: quantities for name, _, quantities in table}
    assert {name for name in found if found[name] != "RTTs"} == set(time_series.RATE.formats)
    assert {name for name in found if found[name] != "rates"} == set(time_series.RTT.formats)
    before = {"pensieve": "0\t1\n", "irtt": "timestamp,rtt,uplink,downlink\n"}
    for name, line, quantities in table:
        options = {"format": name} | ({"time_unit": "s"} if name == "series" else {})
        content = before.get(name, "") + line.replace("<tab>", "\t")
        for read in {"rates": [rates], "RTTs": [rtts], "both": [rates, rtts]}[quantities]:
            assert read(content, **options)


def test_a_scenario_can_begin_anywhere_in_a_file(rates: Read, rtts: Read) -> None:
    ping = "timestamp,rtt\n1705744800.5,91.8\n1705744801,96.5\n1705744803.5,100\n"
    units = {"time_unit": "s", "unit": "ms"}
    assert rtts(ping, **units, from_s=1705744800) == ((0.5, 91.8), (1.0, 96.5), (3.5, 100.0))
    assert rtts(ping, **units, from_s=1705744802, duration_s=1.5) == ((0.0, 96.5),)
    assert rates("1\n2\n", step_ms=1000, from_s=1.5, duration_s=2) == ((0.0, 2.0), (0.5, 1.0), (1.5, 2.0))
    for from_s in (0, 1705744804):
        with pytest.raises(ValueError, match=r"file is from 1705744800\.5 to 1705744803\.5 s, so that from_s=.* must"):
            rtts(ping, **units, from_s=from_s)


def test_a_schedule_beyond_the_duration_is_refused(rates: Read) -> None:
    with pytest.raises(ValueError, match="is from 40 to 50 s, so that from_s=0 and duration_s=10 must overlap it"):
        rates("40 6\n50 7\n", time_unit="s")
    with pytest.raises(ValueError, match=r"the first time in rate_schedule must be < duration_s=30, got 30"):
        Scenario.from_dict({"rate_schedule": [[30, 5]]})
    with pytest.raises(ValueError, match=r"the first time in flows\[1\]\.rtt_schedule must be < duration_s=5, got 7"):
        Scenario.from_dict({"duration_s": 5, "flows": [{}, {"rtt_trace": {"ramp": [[7, 9], [9, 20]]}}]})
    assert Scenario.from_dict({"duration_s": 5, "rate_schedule": [[4, 5], [9, 7]]}).rate_schedule[1] == (9, 7)


def test_every_file_can_be_compressed(rates: Read, rtts: Read) -> None:
    assert rates(gzip.compress(b"1\n2\n3\n")) == rates("1\n2\n3\n") == ((0.0, 12.0),)  # of Mahimahi
    assert rtts(gzip.compress(json.dumps(IRTT).encode())) == rtts(json.dumps(IRTT))
    for read in (rates, rtts):
        with pytest.raises(ValueError, match=r"file' cannot be read: its gzip is damaged: "):
            read(gzip.compress(b"1\n")[:-3])


def test_outages_get_the_lowest_rate(rates: Read) -> None:
    assert rates("0 5\n1 0\n2 0.001\n", time_unit="s") == ((0.0, 5.0), (1.0, 0.01), (2.0, 0.01))
    assert rates("0 5\n1 0\n", time_unit="s", lowest_mbps=0.12) == ((0.0, 5.0), (1.0, 0.12))


SECONDS = {"time_unit": "s"}


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "file:1: .*at least one line of numbers"),
        ("time_s,what\n0,1\n", {}, "file:1: the name of one column .*, got time_s, what"),
        ("t_s,rate_mbps,bw_mbps,rtt_ms,delay_ms\n0,1,2,3,4\n", {}, "file:1: the name of one column"),
        (b"0 1\n1 \xff\n", SECONDS, "file:2: column 2 must be a number"),
        ("0 1\n1 2 3\n", SECONDS, r"file:2: .*2 column\(s\), got 3"),
        ("0 1\n1 -2\n", SECONDS, "file:2: column 2, .*, got -2"),
        ("-1 1\n", SECONDS, "file:1: column 1, .*, got -1"),
        ("0 1\n2 2\n2 3\n", SECONDS, "file:3: times must rise"),
        ("0 20,5\n", SECONDS, "file:1: column 2 .*'20,5': a decimal comma must be a point"),
        ("20,5\n21,5\n", {}, r"file:1: the columns have no names, .* \(a decimal comma"),
        ("1\n", {"format": "csv"}, r"_trace\.format 'csv'"),
        ("1\n", {"step_ms": 100, **SECONDS}, "no time_unit with the format steps"),
        ("1\n2\n", {"step_ms": 1, "duration_s": 1e6}, "at most 1,000,000 samples"),
    ],
)
def test_a_broken_file_is_refused_by_line_and_column(
    text: str | bytes, options: dict[str, Any], message: str, rates: Read, rtts: Read
) -> None:
    for read in (rates, rtts):
        with pytest.raises(ValueError, match=message):
            read(text, **options)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("0 1\n", {"format": "pensieve"}, "file:1: .*pensieve must have at least two lines"),
        ("1 2 3 4 5 0\n", {}, "file:1: column 6, a time in s, must be .*, got 0"),
        ("1 20 3 4 5 6\n1 26 3 4 x 6\n", {}, "file:2: column 5 must be a number, got 'x'"),
        (LENS, {}, "file: a rate must not be of the format irtt"),
        ("0 1\n", {"bin_ms": 100, **SECONDS}, "no bin_ms beside the format series"),
    ],
)
def test_a_broken_file_of_rates_is_refused(text: str, options: dict[str, Any], message: str, rates: Read) -> None:
    with pytest.raises(ValueError, match=message):
        rates(text, **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "file: this is no JSON of irtt"),
        ("{}", "file: this is no JSON of irtt: it has no 'round_trips'"),
        ('{"round_trips": 3}', "file: this is no JSON of irtt: its content has another layout"),
        ('{"round_trips": []}', "file: a file of the format irtt must have at least one RTT"),
        ('{"round_trips": [{"timestamps": {"client": {"send": {}}}, "delay": {"rtt": 5}}]}',
         r"file: round_trips\[0\]: its time in ns must be a finite number >= 0, got None"),
        ('{"round_trips": [{"timestamps": {"client": {"send": {"wall": 5}}}, "delay": {"rtt": "5"}}]}',
         r"file: round_trips\[0\]: its RTT in ns must be a finite number in .*, got '5'"),
        ("timestamp,rtt,uplink,downlink\n1,0,0,-1\n", "file: a file of the format irtt must have at least one RTT"),
        ("timestamp,rtt,uplink,downlink\n1,2,3\n", r"file:2: a line must have 4 column\(s\), got 3"),
    ],
)  # fmt: skip
def test_a_broken_file_of_rtts_is_refused(text: str, message: str, rtts: Read) -> None:
    with pytest.raises(ValueError, match=message):
        rtts(text)
