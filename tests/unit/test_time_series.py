"""Files of rates and RTTs over time, in the formats of public data sets."""

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recipe import ROOT

from bbrgym import Scenario
from bbrgym.envs import rate_trace, rtt_trace, text_lines, time_series, trace_units

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
        {
            "timestamps": {"client": {"send": {"wall": 1707277440772833721, "monotonic": 22211105}}},
            "delay": {"receive": -10470921269, "rtt": 17291970, "send": 10488213200},
        },
        {"timestamps": {"client": {"send": {"wall": 1707277441773479264, "monotonic": 1022856655}}}, "delay": {}},
        {
            "timestamps": {"client": {"send": {"wall": 1707277442772652035, "monotonic": 2022029432}}},
            "delay": {"rtt": 16064572},
        },
    ]
}
"""The entries that are read of an example in the same README; the second packet is lost."""
IPERF3 = {
    "start": {"version": "iperf 3.12"},
    "intervals": [
        {"streams": [{"rtt": 900}], "sum": {"start": 0, "end": 1, "bits_per_second": 5e6, "omitted": True}},
        {"streams": [{"rtt": 30123}, {"rtt": 40123}], "sum": {"start": 0, "end": 1.0625, "bits_per_second": 12345678}},
        {"streams": [{"rtt": 0}, {"rtt": 55001}], "sum": {"start": 1.0625, "end": 2, "bits_per_second": 2e6}},
        {"streams": [{"rtt": None}], "sum": {"start": 2, "end": 2, "bits_per_second": 0}},
    ],
    "end": {},
}
"""The entries that are read. The first interval is one of `-O`; the last one is empty."""


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


@pytest.mark.parametrize(
    "text",
    [
        "time_s,net,throughput_mbps\n0,T Mobile,1.5\n2,Three,3\n2.5,T Mobile,0.5\n",
        '"time_s","net","throughput, in Mbit/s"\n0,"a, ""b"" c",1.5\n2,"two\nlines",3\n2.5,,0.5\n',
        'net;"time (s)";"rate\n(kbit/s)"\n"a;b";0;1500\n"""";"2";3000\n;2.5;5e2\n',
        '"time (s)" "rate (Mbit/s)" net\n0 1.5 "T Mobile"\n2 3 x\n2.5   0.5 ""\n',
        "time_s\trate, Mbit/s\tnet\n0\t1.5\ta, b\n2\t3\tc d\n2.5\t0.5\t.\n",
        "net\ttime_s\trate_mbps\tcell\nThree\t0\t1.5\t\n\t2\t3\t\n\t2.5\t0.5\t7\n",
        "time_s,rate_mbps\n0,1.5,\n2,3,\n2.5 , 0.5 ,\n  \n",
        "time_s,rate_mbps\r0,1.5\r2,3\r2.5,0.5\r",
        "\ufefftime_s,rate_mbps\n0,1.5\n2,3\n2.5,0.5\n".encode("utf-16"),
    ],
)
def test_the_header_decides_what_separates_the_columns_and_quotes_may_hold_anything(
    text: str | bytes, rates: Read
) -> None:
    assert rates(text) == ((0.0, 1.5), (2.0, 3.0), (2.5, 0.5))


def test_a_name_of_several_words_is_one_column_where_lines_have_one(rates: Read) -> None:
    assert rates("Throughput (kbit/s)\n1500\n3000\n", duration_s=0.2) == ((0.0, 1.5), (0.1, 3.0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('time_s,rate_mbps\n0,"1.5\n2,3\n', "file:2: "),
        ('time_s,rate_mbps\n0,"1"5\n2,3\n', "file:2: "),
        ('time_s,net,rate_mbps\n0,"a\nb",1\n2,c,x\n', "file:4: column 3 must be a number, got 'x'"),
        ("time_s,rate_mbps\n0,1\n\n2,3\n", "file:3: "),
        ('"time_s,rate_mbps\n' + "0,1\n" * 100_000, "file:1: "),
    ],
)
def test_broken_quotes_are_refused_by_line(text: str, message: str, rates: Read) -> None:
    with pytest.raises(ValueError, match=message):
        rates(text)


DATES = [
    ("2023-04-12T10:40:20Z", "2023-04-12T10:40:21.5Z"),
    ("2023-04-12 10:40:20 CDT", "2023-04-12 10:40:21.5 CDT"),
    ("2023-04-12 23:59:59+00:00", "2023-04-13T01:00:00.500+0100"),
    ("2023-04-12T10:40:20,000000", "2023-04-12T10:40:21,500000000"),
    ("2019.12.16_13.40.59", "2019.12.16_13.41.00.5"),
    ("20230412T104020Z", "20230412T104021.5Z"),
    ("2024-02-28T23:59:59", "2024-02-29T00:00:00.5"),
    ("2023/4/12 1:40:59 PM", "2023/4/12 1:41:00.5 PM"),
    ("Wed, 12 Apr 2023 10:40:20 GMT", "Wed, 12 Apr 2023 12:40:21.5 +0200"),
    ("12 April 2023 11:59:59 PM", "13 Apr 2023 12:00:00.5 AM"),
    ("Apr 12, 2023 10:40:20", "Apr 12, 2023 10:40:21.5"),
    ("Wed Apr 12 10:40:20 UTC 2023", "Wed Apr 12 10:40:21.5 UTC 2023"),
    ("10:40:20", "10:40:21.5"),
]


@pytest.mark.parametrize("dates", DATES)
def test_dates_are_seconds_since_the_first_one(dates: tuple[str, str], rates: Read, rtts: Read) -> None:
    quoted = [f'"{date}"' for date in dates]
    lines = [f"{quoted[0]},5.25", f"{quoted[1]},7"]
    for text in ("\n".join(lines), "\n".join(['Date,"rate_mbps or rtt_ms"', *lines])):
        assert rates(text, column=2) == rtts(text, column=2) == ((0.0, 5.25), (1.5, 7.0))
    assert rates("\n".join(lines)) == ((0.0, 5.25), (1.5, 7.0))
    assert rates("\n".join(lines), from_s=1, duration_s=1) == ((0.0, 5.25), (0.5, 7.0))


def test_dates_keep_nanoseconds_and_the_last_value_of_a_time(rates: Read) -> None:
    text = "time,rate_mbps\n2023-04-12T10:40:20.123456788Z,5\n2023-04-12T10:40:20.123456789Z,6\n"
    assert rates(text) == ((0.0, 5.0), (1e-9, 6.0))
    text = "Timestamp,rate_mbps\n2019.12.16_13.40.04,5\n2019.12.16_13.40.05,6\n2019.12.16_13.40.05,7\n"
    assert rates(text) == ((0.0, 5.0), (1.0, 7.0))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("12/04/2023 10:40:20,5", {}, "file:1: column 1 .* day and month .*'12/04/2023 10:40:20'"),
        ("time,rate_mbps\n12.04.2023,5", {}, "file:2: column 1 .* day and month"),
        ("2023-02-30 10:40:20,5", {}, "file:1: column 1 .* exists"),
        ("2023-04-12 10:40:20,5\n2023-04-12 10:40:99,5", {}, "file:2: column 1 .* exists"),
        ("2023-04-12 10:40:20,5\n7,5", {}, "file:2: column 1 must be a number or a time .*, got '7'"),
        ("0,5\n2023-04-12 10:40:20,5", {"time_unit": "s"}, "file:2: column 1 must be a number"),
        ("2023-04-12 10:40:20,5\n2023-04-12 10:40:19,5", {}, "file:2: times must rise"),
        ("2023-10-29 02:40:20 CEST,5\n2023-10-29 02:40:21 CET,5", {}, "file:2: .* time zone, got 'CET' after 'CEST'"),
        ("2023-04-12 10:40:20,5\n2023-04-12 10:40:21Z,5", {}, "file:2: .* time zone, got 'UTC' after 'none'"),
        ("2023-04-12 10:40:20,5", {"time_unit": "s"}, "file:1: there must be no rate_trace.time_unit"),
    ],
)
def test_dates_that_leave_a_doubt_are_refused(text: str, options: dict[str, Any], message: str, rates: Read) -> None:
    with pytest.raises(ValueError, match=message):
        rates(text, **options)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (  # cellular in Cork: https://github.com/MTU-Insectt/Measurements5G
            "Time,rsrp(dBm),Sent Bytes,RATE(MBit/s)\n"
            "Wed Dec 15 16:05:11 UTC 2021,-110,2944844,7.5\nWed Dec 15 16:05:14 UTC 2021,-110,6162548,8.25\n",
            {},
        ),
        (  # Starlink by car: https://github.com/Starlink-Project/Satellite-vs-Cellular
            "time,throughput,speed,latitude,longtitu,area_type\n"
            "2023-04-28 16:02:11 CDT,7.5,25,45.0,-93.2,suburban\n2023-04-28 16:02:14 CDT,8.25,25,45.0,-93.2,urban\n",
            {"unit": "Mbit/s"},
        ),
        (  # 5G of three operators: https://lumos5g.umn.edu
            "run_num,seq_num,latitude,nrStatus,Throughput,mobility_mode\n"
            "1,1,44.9,NOT_RESTRICTED,7.5,walking\n1,2,44.9,CONNECTED,8.25,walking\n",
            {"unit": "Mbit/s", "step_ms": 3000},
        ),
        (  # Puffer: https://puffer.stanford.edu/data-description
            "time (ns GMT),session_id,format,min_rtt,rtt,delivery_rate\n"
            "1611619200000000000,a+/=,1280x720-23,30000,40000,937500\n"
            "1611619203000000000,a+/=,1280x720-23,30000,40000,1031250\n",
            {"unit": "B/s", "from_s": 1611619200},
        ),
    ],
)
def test_files_with_the_columns_of_public_sets_are_read(text: str, options: dict[str, Any], rates: Read) -> None:
    assert rates(text, **options, duration_s=4) == ((0.0, 7.5), (3.0, 8.25))


IRISH = """Timestamp,Longitude,NetworkMode,DL_bitrate,UL_bitrate,PINGAVG
2019.12.16_13.40.04,-8.39,5G,40000,1200,-
2019.12.16_13.40.05,-8.39,5G,52500,1300,-
"""
"""Columns of the Irish 5G set, with values of our own: https://github.com/uccmisl/5Gdataset."""


def test_one_of_two_columns_is_chosen_by_name_or_number(rates: Read) -> None:
    with pytest.raises(
        ValueError, match=r"file:1: the columns DL_bitrate and UL_bitrate .* rate_trace\.column, by .*4 or 5"
    ):
        rates(IRISH, unit="kbit/s")
    for column in ("DL_bitrate", 4):
        assert rates(IRISH, unit="kbit/s", column=column) == ((0.0, 40.0), (1.0, 52.5))
    assert rates(IRISH, unit="kbit/s", column="UL_bitrate", step_ms=500, duration_s=1) == ((0.0, 1.2), (0.5, 1.3))
    two = "time_s,t,rate_mbps\n0,5,1\n1,6,2\n"
    with pytest.raises(ValueError, match=r"columns time_s and t .* rate_trace\.time_column"):
        rates(two)
    assert rates(two, time_column="t", time_unit="s", from_s=5) == rates(two, time_column=1) == ((0.0, 1.0), (1.0, 2.0))
    assert rates("x 1 0\ny 2 1000\n", column=2, time_column=3, time_unit="ms") == ((0.0, 1.0), (1.0, 2.0))
    for column, message in (("DL", r"unknown rate_trace\.column 'DL'.*DL_bitrate"), (7, r"in \[1, 6\], got 7")):
        with pytest.raises(ValueError, match=message):
            rates(IRISH, column=column)
    with pytest.raises(ValueError, match="no column beside the format mahimahi"):
        rates("1\n2\n", column=1, format="mahimahi")


def test_units_are_said_by_the_header_or_the_configuration_and_never_guessed(rates: Read, rtts: Read) -> None:
    assert rates("0 500\n1000 700\n", time_unit="ms", unit="kbit/s") == ((0.0, 0.5), (1.0, 0.7))
    assert rtts("0 0.04\n1 0.05\n", time_unit="s", unit="s") == ((0.0, 40.0), (1.0, 50.0))
    for text, options, message in (
        ("0 5\n1000 7\n", {}, "file:1: .*rate_trace.time_unit of the first one, s, "),
        ("time,rate_mbps\n0,5\n", {}, "file:1: the unit of column 1 'time'"),
        ("time_s,rate (mps)\n0,5\n", {}, r"file:1: the unit of column 2 'rate \(mps\)'"),
        ("0 5\n", {"time_unit": "s", "unit": "mB"}, r"rate_trace\.unit 'mB'.*; known: bit/s, "),
        ("time_s,rate (MBps)\n0,5\n", {}, r"file:1: the unit of column 2 'rate \(MBps\)'"),
        ("time_s,rate_mbps\n0,5\n", {"time_unit": "ms"}, "unit of column 1 'time_s'"),
        ("0 5\n", {"time_unit": "min"}, r"rate_trace\.time_unit 'min'.*; known: s, "),
    ):
        with pytest.raises(ValueError, match=message):
            rates(text, **options)


@pytest.mark.parametrize(
    ("spellings", "mbps"),
    [
        ("bit/s bits/s b/s bps bits/sec Bits/Second", 1e-6),
        ("kbit/s Kbit/s kbits/s Kbits/sec kb/s kbps Kbps KBit/s", 1e-3),
        ("Mbit/s MBit/s mbit/s Mbits/s Mbits/sec Mb/s Mbps mbps MBit/sec", 1),
        ("Gbit/s Gbits/s gbit/s Gbps gbps", 1e3),
        ("B/s bytes/s Byte/s bytes/second", 8e-6),
        ("kB/s KB/s KBytes/s kbytes/sec", 8e-3),
        ("MB/s MBytes/sec", 8),
        ("GB/s", 8e3),
        ("KiB/s kiB/s", 1024 * 8e-6),
        ("MiB/s", 1024 * 1024 * 8e-6),
    ],
)
def test_units_of_rates_are_read_as_people_write_them(spellings: str, mbps: float, rates: Read) -> None:
    for unit in spellings.split():
        assert rates("1\n", step_ms=100, unit=unit, lowest_mbps=0.01) == ((0.0, max(mbps, 0.01)),)
        assert rates(f"rate ({unit})\n1.25\n") == ((0.0, pytest.approx(max(1.25 * mbps, 0.01))),)


def test_units_of_times_are_read_as_people_write_them(rtts: Read) -> None:
    assert rtts("bits,time (seconds),RTT_MS\n1,0,5\n1,1,7\n") == ((0.0, 5.0), (1.0, 7.0))
    assert rtts("time [msec],rtt [µs]\n0,5000\n1000,7000\n") == ((0.0, 5.0), (1.0, 7.0))
    assert rates_in_words() == "Mbit/s"


def rates_in_words() -> str | None:
    (found,) = {trace_units.name_of_rate(word) for word in trace_units.units_in("Mbits_per_second")} - {None}
    return found


VALUES = st.one_of(st.floats(0.001, 10_000), st.decimals("0.001", "10000", places=6), st.integers(1, 10_000)).map(
    lambda value: Decimal(str(value))
)
"""From 0.001 to 10,000, as decimal numbers."""


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(VALUES, min_size=2, max_size=8, unique_by=float),
    power=st.sampled_from([0, 3, -3, 6, -6]),
    separator=st.sampled_from([",", ";", "\t"]),
    text=st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8),
)
def test_a_series_that_is_written_is_read_exactly(
    values: list[Decimal], power: int, separator: str, text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("series") / "file"
    rate_unit = {0: "Mbit/s", 3: "kbit/s", -3: "Gbit/s", 6: "bit/s"}.get(power)
    rtt_unit = {0: "ms", 3: "us", -3: "s", 6: "ns"}.get(power)
    written = io.StringIO()
    writer = csv.writer(written, delimiter=separator)
    writer.writerow(["time_s", "text", "value"])
    for index, value in enumerate(values):
        writer.writerow([index / 8, text, value.scaleb(power)])
    path.write_text(written.getvalue(), encoding="utf-8", newline="")
    expected = [(index / 8, float(value)) for index, value in enumerate(values)]
    if rtt_unit:
        trace = {"file": str(path), "column": "value", "unit": rtt_unit}
        assert Scenario.from_dict({"flows": [{"rtt_trace": trace}]}).flows[0].rtt_schedule == tuple(expected)
    if rate_unit:
        trace = {"file": str(path), "column": "value", "unit": rate_unit}
        assert time_series.read(trace, time_series.RATE, 30) == expected


def test_pensieve_takes_the_rate_of_the_time_before_a_line_and_repeats(rates: Read) -> None:
    assert rates("0.5\t9\n1.5\t2\n2.5\t3\n", duration_s=4, format="pensieve") == (
        (0.0, 2.0),
        (1.0, 3.0),
        (2.0, 2.0),
        (3.0, 3.0),
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


def test_iperf3(rates: Read, rtts: Read) -> None:
    """What is omitted or empty has no rate. The RTT is the mean of the streams that have one."""
    assert rates(json.dumps(IPERF3), duration_s=3) == ((0.0, 12.345678), (1.0625, 2.0), (2.0, 12.345678))
    assert rtts(json.dumps(IPERF3, indent=1), duration_s=2) == ((0.0, 35.123), (1.0625, 55.001))
    sorted_text = json.dumps(IPERF3, sort_keys=True)
    assert rates(sorted_text) == rates(json.dumps(IPERF3)) == rates(sorted_text.encode("utf-16"))
    events = [{"event": "start", "data": {}}, *({"event": "interval", "data": one} for one in IPERF3["intervals"])]
    assert rates("\n".join(map(json.dumps, events))) == rates(sorted_text)


def test_one_of_two_directions_of_iperf3_is_chosen(rates: Read, rtts: Read) -> None:
    totals = {
        "sum": {"start": 0, "end": 1, "bits_per_second": 5e6},
        "sum_bidir_reverse": {"start": 0, "end": 1, "bits_per_second": 9e6},
    }
    text = json.dumps({"intervals": [{"streams": [{"rtt": 30000}, {}], **totals}]})
    with pytest.raises(ValueError, match=r"file: sum and sum_bidir_reverse are alike: .* rate_trace\.column"):
        rates(text)
    assert rates(text, column="sum") == ((0.0, 5.0),)
    assert rates(text, column="sum_bidir_reverse") == ((0.0, 9.0),)
    assert rtts(text) == ((0.0, 30.0),)
    with pytest.raises(ValueError, match=r"unknown rate_trace\.column 'sum_bidir_reverse'.*; known: sum"):
        rates(json.dumps(IPERF3), column="sum_bidir_reverse")


def test_rtts_of_iperf3_repeat_after_its_last_interval(rtts: Read) -> None:
    intervals = [
        {"streams": [{"rtt": rtt}], "sum": {"start": start, "end": start + 1, "bits_per_second": 1}}
        for start, rtt in enumerate((20000, 30000, None))
    ]
    assert rtts(json.dumps({"intervals": intervals}), duration_s=4) == ((0.0, 20.0), (1.0, 30.0), (3.0, 20.0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"intervals": []}', "file: .* iperf3 must have at least one interval with its rate"),
        ('{"intervals": [], "error": "unable to connect"}', "file: .* it says 'unable to connect'"),
        ('{"intervals": 3}', "file: this is no JSON of iperf3: "),
        (
            '{"intervals": [{"streams": [], "sum": {"start": 0, "end": 1, "bits_per_second": "x"}}]}',
            r"file: intervals\[0\]: its bits per second must be a finite number >= 0, got 'x'",
        ),
        (
            '{"intervals": [{"streams": [], "sum": {"start": 1, "end": 0, "bits_per_second": 1}}]}',
            r"file: intervals\[0\]: its end in s must be",
        ),
        (json.dumps(IPERF3) * 2, "file: a file must have the JSON of one measurement, got 2"),
        ('{"event": "interval"}', "file: this is no JSON of irtt or iperf3"),
    ],
)
def test_a_broken_file_of_iperf3_is_refused(text: str, message: str, rates: Read) -> None:
    with pytest.raises(ValueError, match=message):
        rates(text)


@pytest.mark.parametrize(
    "text",
    [
        "0 8 51.5 -0.1 40 1000\n1 9 51.5 -0.1 40 1000\n",  # ms and the time since the line before do not agree
        "1289406400 550772 59.85 10.78 191698.5 1080\n",
        "1289406400 550772 59.85 10.78 191698 1080\n1289406401 550771 59.85 10.78 191698 1080\n",
        "1289406400 550772 591 10.78 191698 1080\n",
        "0,8.5,1,1,1,1\n1,9.5,1,1,1,1\n",
        "0,8,1,x,1,1\n",
        "0,8,1,1,inf,1\n",
        "0,nan,1,1,1,1\n",
    ],
)
def test_six_columns_that_are_no_log_of_bytes_are_refused(text: str, rates: Read) -> None:
    with pytest.raises(ValueError, match=r"file:1: six columns without names .* format: hsdpa"):
        rates(text)
    with pytest.raises(ValueError, match=r"file:1: "):  # and not taken for something else
        rates(text, time_unit="s")


def test_six_columns_are_a_series_where_the_trace_says_which(rates: Read) -> None:
    text = "0 8 51.5 -0.1 40 1000\n1 9 51.5 -0.1 40 1000\n"
    assert rates(text, time_unit="s", column=2) == ((0.0, 8.0), (1.0, 9.0))


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


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "Zstandard": lambda content: pa.compress(content, "zstd", asbytes=True),
}


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_every_file_can_be_compressed(name: str, rates: Read, rtts: Read) -> None:
    compress = COMPRESSIONS[name]
    assert rates(compress(b"1\n2\n3\n")) == rates("1\n2\n3\n") == ((0.0, 12.0),)  # of Mahimahi
    assert rtts(compress(json.dumps(IRTT).encode())) == rtts(json.dumps(IRTT))
    for read in (rates, rtts):
        with pytest.raises(ValueError, match=rf"file' cannot be read: its {name} is damaged: "):
            read(compress(b"1\n")[:-3])


def test_a_path_can_begin_with_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for text in ("1\n", "rate_mbps\n12\n"):
        (tmp_path / "file").write_text(text)
        assert rate_trace.from_config({"file": "~/file"}, 10) == ((0.0, 12.0),)


@pytest.mark.parametrize("head", [b"\xd4\xc3\xb2\xa1\x02\0\x04\0", b"PK\3\4", b"\x89PNG\r\n\x1a\n", b"1\n2\n"])
def test_a_file_that_is_no_text_is_refused_at_once(head: bytes, tmp_path: Path, rates: Read, rtts: Read) -> None:
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.write(head)
        file.truncate(1 << 33)
    tracemalloc.start()
    for from_config in (rate_trace.from_config, rtt_trace.from_config):
        with pytest.raises(ValueError, match=r"huge:\d+: this is no text file"):
            from_config({"file": str(path)}, 10)
        with pytest.raises(ValueError, match=r"huge:\d+: this is no text file"):
            from_config({"file": str(path), "format": "steps"}, 10)
    assert tracemalloc.get_traced_memory()[1] < 2e6
    tracemalloc.stop()


def test_a_file_has_a_limit_also_when_decompressed(rates: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_lines, "MOST_BYTES", 150_000)
    text = "rate_mbps\n" + "5\n" * 74_000
    assert rates(text) == rates(gzip.compress(text.encode())) == ((0.0, 5.0),)
    for content in (
        (text + text[10:]).encode(),
        gzip.compress((text + text[10:]).encode()),
        json.dumps(IPERF3).encode() + b" " * 150_000,
    ):
        with pytest.raises(ValueError, match=r"file: a file must have at most 0\.15 MB when decompressed"):
            rates(content)
    with pytest.raises(ValueError, match="file:1: a line must have at most 65,536 characters"):
        rates("5" * 140_000)


def test_outages_get_the_lowest_rate(rates: Read) -> None:
    assert rates("0 5\n1 0\n2 0.001\n", time_unit="s") == ((0.0, 5.0), (1.0, 0.01), (2.0, 0.01))
    assert rates("0 5\n1 0\n", time_unit="s", lowest_mbps=0.12) == ((0.0, 5.0), (1.0, 0.12))


SECONDS = {"time_unit": "s"}


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "file:1: .*at least one line of numbers"),
        ("time_s,what\n0,1\n", {}, "file:1: the name of one column .*, got time_s, what"),
        ("t_s,rate_mbps,bw_mbps,rtt_ms,delay_ms\n0,1,2,3,4\n", {}, "file:1: the columns .* and .*_trace.column"),
        (b"0 1\n1 \xff\n", SECONDS, "file:2: column 2 must be a number"),
        ("0 1\n1 2 3\n", SECONDS, r"file:2: .*2 column\(s\), got 3"),
        ("0 1\n1 -2\n", SECONDS, "file:2: column 2, .*, got -2"),
        ("-1 1\n", SECONDS, "file:1: column 1, .*, got -1"),
        ("0 1\n2 2\n2 3\n", SECONDS, "file:3: times must rise"),
        ("0 20,5\n", SECONDS, "file:1: column 2 .*'20,5': a decimal comma must be a point"),
        ("20,5\n21,5\n", {}, r"file:1: the columns have no names, .* \(a decimal comma"),
        ("1\n", {"format": "csv"}, r"_trace\.format 'csv'"),
        ("1\n", {"step_ms": 100, **SECONDS}, "no time_unit with the format steps"),
        ("{}", {"format": "steps"}, "file:1: a file of the format steps must not be JSON"),
        ("{}", {"format": "series"}, "file:1: a file of the format series must not be JSON"),
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
        ("1 2 3 4 5 0\n", {"format": "hsdpa"}, "file:1: column 6, a time in s, must be .*, got 0"),
        ("1 20 3 4 5 6\n1 26 3 4 x 6\n", {"format": "hsdpa"}, "file:2: column 5 must be a number, got 'x'"),
        ("1 20 3 4 5.5 6\n", {"format": "hsdpa"}, "file:1: column 5 must be a whole number of bytes, got '5.5'"),
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
        ("{}", "file: this is no JSON of irtt or iperf3: it has no 'round_trips'"),
        ('{"round_trips": 3}', "file: this is no JSON of irtt: its content has another layout"),
        ('{"round_trips": []}', "file: a file of the format irtt must have at least one RTT"),
        (
            '{"round_trips": [{"timestamps": {"client": {"send": {}}}, "delay": {"rtt": 5}}]}',
            r"file: round_trips\[0\]: its time in ns must be a finite number >= 0, got None",
        ),
        (
            '{"round_trips": [{"timestamps": {"client": {"send": {"wall": 5}}}, "delay": {"rtt": "5"}}]}',
            r"file: round_trips\[0\]: its RTT in ns must be a finite number in .*, got '5'",
        ),
        ("timestamp,rtt,uplink,downlink\n1,0,0,-1\n", "file: a file of the format irtt must have at least one RTT"),
        ("timestamp,rtt,uplink,downlink\n1,2,3\n", r"file:2: a line must have 4 column\(s\), got 3"),
    ],
)
def test_a_broken_file_of_rtts_is_refused(text: str, message: str, rtts: Read) -> None:
    with pytest.raises(ValueError, match=message):
        rtts(text)
