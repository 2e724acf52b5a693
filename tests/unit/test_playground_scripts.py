"""The playground's scripts without its module: links in Node.js, and the page as one file."""

import dataclasses
import json
import random
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from bbrgym import Flow, Scenario
from bbrgym.benchmark.breaking import report
from bbrgym.benchmark.breaking.failures import look
from bbrgym.benchmark.breaking.judging import Judge, Trial
from bbrgym.benchmark.candidate import Candidate
from bbrgym.envs import rate_trace
from studies import playground

DATA = playground.data() | {"linear": {"weights": [0.0] * 16}}
PRESETS = [preset["name"] for preset in DATA["presets"]]
DEEP = "[" * 100_000

CALLS = """
import { readFileSync } from 'node:fs';
import { fromHash, toHash } from './link.js';
import { readTrace } from './trace.js';
import { scenariosOf, settingsOf, settingsOfSaved } from './scenario.js';

const { call, data, values } = JSON.parse(readFileSync(0, 'utf8'));
const calls = {
  open: (hash) => {
    const { settings, problem } = fromHash(hash, data);
    return { settings, problem, usual: settingsOf(data.presets[0]) };
  },
  link: (settings) => toHash(settings, data),
  preset: (name) => settingsOf(data.presets.find((preset) => preset.name === name)),
  saved: (saved) => settingsOfSaved(saved, data.presets[0]),
  scenarios: (settings) => scenariosOf(settings),
  trace: ({ bytes, name, duration_s }) => {
    try {
      return { schedule: readTrace(Uint8Array.from(bytes), name, duration_s) };
    } catch (error) {
      return { error: error.message };
    }
  },
};
console.log(JSON.stringify(values.map(calls[call])));
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts in a folder where Node.js takes them for modules."""
    folder = tmp_path_factory.mktemp("scripts")
    for path in playground.SOURCE.glob("*.js"):
        shutil.copy(path, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "calls.js").write_text(CALLS)
    return folder


def run(folder: Path, call: str, values: Sequence[Any]) -> list[Any]:
    """Return what a function of `CALLS` gives for each value, in one process."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is missing")
    given = json.dumps({"call": call, "data": DATA, "values": values})
    ran = subprocess.run([node, "calls.js"], cwd=folder, input=given, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return list(json.loads(ran.stdout))


def test_links_of_the_scoreboard_open_their_entries(folder: Path) -> None:
    page = (playground.SOURCE.parent / "docs" / "results" / "board.md").read_text()
    links = re.findall(r"playground\.md(#%7B[^)]+)\)", page)
    opened = run(folder, "open", links)
    assert len(opened) > 15
    assert {each["problem"] for each in opened} == {""}
    assert {flow["algorithm"] for each in opened for flow in each["settings"]["flows"]} >= {"bbr3", "policy", "linear"}


def test_a_link_of_a_failure_opens_its_path(folder: Path) -> None:
    flow = Flow("agent", rtt_ms=40, rtt_schedule=((4, 90),))
    path = Scenario(rate_mbps=10, buffer_packets=30, loss=0.02, duration_s=15, flows=(flow,))
    judge = Judge(Candidate.of("newreno"), {"regret": 0.1})
    failure = look(judge, "regret", Trial(path, 3))
    assert failure is not None
    link = report.playground(judge.candidate, failure)
    (opened,) = run(folder, "open", [link[link.index("#") :]])
    assert opened["problem"] == ""
    ((own, best),) = run(folder, "scenarios", [opened["settings"]])
    assert [own["flows"][0]["algorithm"], best["flows"][0]["algorithm"]] == ["newreno", failure.verdict.best]
    shown = Scenario.from_dict(own)
    assert shown.queue_packets == 30
    expected = dataclasses.replace(path.with_agents_as("newreno"), buffer_packets=None, buffer_bdp=shown.buffer_bdp)
    assert shown == expected


BAD_LINKS = {
    "null": "null",
    "5": "5",
    "[]": "[]",
    '"text"': '"text"',
    "true": "true",
    "{": "#",
    DEEP: "#",
    '{"flows": 5}': "flows must be a list of 1 to 8 entries, got 5",
    '{"flows": null}': "flows",
    '{"flows": {"length": 2}}': "flows",
    '{"flows": []}': "flows",
    '{"flows": [null]}': "flows[0]",
    '{"flows": [[]]}': "flows[0]",
    '{"flows": [{}, 7]}': "flows[1]",
    json.dumps({"flows": [{}] * 9}): "flows",
    '{"flows": [{"algorithm": "bbr9"}]}': "flows[0].algorithm",
    '{"flows": [{"algorithm": ["bbr"]}]}': "flows[0].algorithm",
    '{"flows": [{"versus": null}]}': "flows[0].versus",
    '{"flows": [{"rtt_ms": 0}]}': "flows[0].rtt_ms must be a number from 1 to 10000, got 0",
    '{"flows": [{"rtt_ms": "40"}]}': 'got "40"',
    '{"flows": [{"rtt_ms": 1e999}]}': "got Infinity",
    '{"flows": [{"start_s": -1}]}': "flows[0].start_s",
    '{"flows": [{"jitter_ms": null}]}': "flows[0].jitter_ms",
    '{"flows": [{"preference": 1.1}]}': "flows[0].preference",
    '{"flows": [{"policy": "/etc/passwd"}]}': '"policy" in flows[0]',
    '{"flows": [{"rtt_schedule": [[0, 0]]}]}': "flows[0].rtt_schedule[0][1]",
    '{"preset": "nothing"}': '"nothing"',
    '{"preset": "__proto__"}': "__proto__",
    '{"preset": null}': "preset",
    '{"seed": 1.5}': "seed must be a whole number",
    '{"seed": -1}': "seed",
    '{"seed": 2147483648}': "seed",
    '{"isComparing": 1}': "isComparing",
    '{"isComparing": "false"}': "isComparing",
    '{"rate_mbps": 0}': "rate_mbps must be a number from 0.1 to 1000, got 0",
    '{"rate_mbps": -1e999}': "got -Infinity",
    '{"rate_mbps": [20]}': "rate_mbps",
    '{"rate_mbps": {"valueOf": 20}}': "rate_mbps",
    '{"buffer_bdp": 101}': "buffer_bdp",
    '{"loss": 1}': "loss",
    '{"duration_s": 301}': "duration_s",
    '{"packet_bytes": 1}': "packet_bytes",
    '{"queue": "red"}': "queue must be one of droptail",
    '{"queue": "toString"}': "toString",
    '{"rate_schedule": null}': "rate_schedule",
    '{"rate_schedule": "no list"}': "rate_schedule",
    '{"rate_schedule": {"length": 1, "0": [0, 1]}}': "rate_schedule",
    '{"rate_schedule": [5]}': "rate_schedule[0]",
    '{"rate_schedule": [[0]]}': "rate_schedule[0]",
    '{"rate_schedule": [[0, 1, 2]]}': "rate_schedule[0]",
    '{"rate_schedule": [[0, 1], [0, 2]]}': "rate_schedule[1][0] must be later",
    '{"rate_schedule": [[2, 1], [1, 2]]}': "rate_schedule[1][0] must be later",
    '{"rate_schedule": [[-1, 1]]}': "rate_schedule[0][0]",
    '{"rate_schedule": [[0, 1e999]]}': "rate_schedule[0][1]",
    '{"rate_schedule": [[0, null]]}': "rate_schedule[0][1]",
    '{"rate_schedule": [["0", 1]]}': "rate_schedule[0][0]",
    json.dumps({"rate_schedule": [[i / 100, 1] for i in range(10_001)]}): "rate_schedule",
    '{"weights": []}': "weights must be a list of 16 entries",
    json.dumps({"weights": [0] * 15 + ["1"]}): "weights[15]",
    json.dumps({"weights": [0] * 15 + [1e6]}): "weights[15]",
    '{"rate": 20}': 'unknown setting "rate"',
    '{"__proto__": {"rate_mbps": 5}}': "__proto__",
    '{"constructor": 1}': "constructor",
    '{"toString": 1}': "toString",
}


def test_a_bad_link_gives_a_sentence_and_the_first_experiment(folder: Path) -> None:
    hashes = [*("#" + quote(text) for text in BAD_LINKS), "#%", "#%FF", "#controls"]
    opened = run(folder, "open", hashes)
    wanted = [*BAD_LINKS.values(), "#", "#", "#"]
    for hash, found, part in zip(hashes, opened, wanted, strict=True):
        assert part in found["problem"], hash[:80]
        assert len(found["problem"]) < 400
        assert found["settings"] == found["usual"], hash[:80]


@pytest.mark.parametrize("hash", ["", "#"])
def test_no_link_is_no_problem(folder: Path, hash: str) -> None:
    (found,) = run(folder, "open", [hash])
    assert found["problem"] == ""
    assert found["settings"] == found["usual"]


def test_links_restore_what_the_controls_can_set(folder: Path) -> None:
    settings = run(folder, "preset", PRESETS)
    changed = settings[0] | {
        "seed": 2**31 - 1,
        "rate_mbps": 0.1,
        "loss": 0.9,
        "queue": "dualpi2",
        "rate_schedule": [[0, 0.01], [299.5, 1000]],
        "weights": [0.5] * 16,
        "flows": [settings[0]["flows"][0] | {"algorithm": "linear", "versus": "prague", "start_s": 299}] * 8,
    }
    wanted = [*settings, changed]
    opened = run(folder, "open", ["#" + hash for hash in run(folder, "link", wanted)])
    assert [found["problem"] for found in opened] == [""] * len(wanted)
    assert [found["settings"] for found in opened] == wanted


def test_what_a_link_leaves_out_is_usual(folder: Path) -> None:
    (found,) = run(folder, "open", ["#" + quote('{"flows": [{"algorithm": "cubic"}], "rate_mbps": 7}')])
    assert found["problem"] == ""
    assert found["settings"]["flows"][0] | {"algorithm": "cubic", "rtt_ms": 40} == found["settings"]["flows"][0]
    assert found["settings"] | {"rate_mbps": 7, "preset": PRESETS[0], "seed": 1} == found["settings"]


ODD = (None, True, -1, 0, 0.5, 1, 3, 1e5, 1e308, "", "1", "bbr", "droptail", [], [[]], [[0, 1]], {}, {"0": 1})


@pytest.mark.parametrize("seed", range(3))
def test_any_link_opens_with_settings_that_it_may_have(folder: Path, seed: int) -> None:
    """Whatever a value is replaced by, the page starts with settings that a link could restore."""
    draw = random.Random(seed)
    links = []
    for settings in run(folder, "preset", [draw.choice(PRESETS) for _ in range(300)]):
        at: Any = settings
        while True:
            place = draw.choice([*at] if isinstance(at, dict) else range(len(at)))
            if not (at[place] and isinstance(at[place], dict | list)) or draw.random() < 0.2:
                break
            at = at[place]
        at[place] = draw.choice(ODD)
        links.append("#" + quote(json.dumps(settings)))
    opened = run(folder, "open", links)
    assert 0 < sum(bool(found["problem"]) for found in opened) < len(links)
    assert None not in run(folder, "link", [found["settings"] for found in opened])


SAVED = Scenario(
    rate_mbps=33,
    buffer_packets=77,
    packet_bytes=1448,
    loss=0.01,
    loss_burst_ms=20,
    queue="codel",
    rate_schedule=((1, 5), (2, 10)),
    duration_s=600,
    flows=(
        Flow("vegas", rtt_ms=25, parameters={"alpha_packets": 4}, ecn="classic", stop_s=9),
        Flow("policy", rtt_ms=0.5, start_s=1, jitter_ms=2, parameters={"preference": 0.75}),
        Flow("cubic", rtt_schedule=((0, 10), (3, 20)), size_bytes=10_000),
    ),
)


def saved(scenario: Scenario) -> dict[str, Any]:
    plain = scenario.to_dict()
    flows = [{"jitter_ms": 0, "rtt_schedule": []} | flow for flow in plain["flows"]]
    return {"scenario": plain | {"flows": flows}, "seed": 7}


def test_the_controls_have_all_that_a_saved_run_had(folder: Path) -> None:
    (settings,) = run(folder, "saved", [saved(SAVED)])
    assert settings["seed"] == 7
    for name in ("rate_mbps", "loss", "queue", "duration_s", "packet_bytes"):
        assert settings[name] == getattr(SAVED, name)
    assert settings["buffer_bdp"] == pytest.approx(77 / SAVED.bdp_packets)
    assert [flow["algorithm"] for flow in settings["flows"]] == ["vegas", "policy", "cubic"]
    assert [flow["preference"] for flow in settings["flows"]] == [0.25, 0.75, 0.25]
    # And they run the same scenario again, with what has no control.
    ((plain,),) = run(folder, "scenarios", [settings])
    assert plain["flows"][1].pop("policy") == "reference"
    again = Scenario.from_dict(plain)
    assert again.queue_packets == 77
    assert again.to_dict() | {"buffer_bdp": None, "buffer_packets": 77} == SAVED.to_dict()


def test_another_algorithm_does_not_get_the_parameters_of_a_saved_one(folder: Path) -> None:
    (settings,) = run(folder, "saved", [saved(SAVED)])
    settings["flows"][0]["algorithm"] = "bbr"
    ((plain,),) = run(folder, "scenarios", [settings])
    assert plain["flows"][0]["parameters"] == {}
    assert plain["flows"][0]["ecn"] == "classic"


def test_settings_beyond_the_bounds_of_links_have_none(folder: Path) -> None:
    plain = Scenario(duration_s=20, flows=(Flow("bbr"), Flow("cubic")))
    hash, none = run(folder, "link", run(folder, "saved", [saved(plain), saved(SAVED)]))
    assert hash is not None
    assert none is None


def test_the_page_is_one_file_that_names_no_other(tmp_path: Path) -> None:
    module = tmp_path / "engine.wasm"
    module.write_bytes(b"\0asm</script>")
    playground.build(tmp_path)
    page = (tmp_path / "index.html").read_text()
    markup = re.sub(r"<(script|style)\b[^>]*>.*?</\1>", r"<\1>", page, flags=re.DOTALL)
    assert re.findall(r'(?:src|href)="(?!data:)[^"]*', markup) == []
    assert markup.count("<script>") == 3
    assert "Permission is hereby granted" in page  # uPlot's licence
    scripts = re.findall(r'<script type="module">(.*?)</script>', page, flags=re.DOTALL)
    assert re.findall(r"from '(?!data:)[^']*'|\bfetch\('(?!saved)", scripts[0]) == []


def test_a_script_that_would_end_its_element_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    shutil.copytree(playground.SOURCE, source)
    (source / "score.js").write_text("'</script>'")
    (source / "index.html").write_text('<script src="score.js" type="module"></script>')
    monkeypatch.setattr(playground, "SOURCE", source)
    with pytest.raises(ValueError, match=r"score\.js"):
        playground.one_file(tmp_path / "engine.wasm")


RATE_FILES: dict[str, str | bytes] = {
    "every ms": "1\n",
    "mahimahi": "0\n0\n3\n100\n101\n240\n240\n240\n",
    "mahimahi, longer than the run": "".join(f"{7 * line}\n" for line in range(1, 9000)),
    "mahimahi of Windows": "5\r\n17\r\n",
    "an outage": "100\n200\n5000\n",
    "falls": "5\n4\n",
    "negative": "5\n-4\n",
    "nothing but 0": "0\n0\n",
    "empty": "",
    "a blank line": "4\n\n5\n",
    "text": "4\nit's\n",
    "series": "time_s,throughput (kbit/s)\n0,1000\n1.5,12500\n2.25,140\n",
    "series in ms": "time_ms;loss;bw_mbps\n100;0;3.3\n400;1;3.3\n900;0;0\n",
    "series of bytes": "# t [s]\trate [MiB/s]\n0\t1\n3\t0.3\n",
    "series by words": "time in seconds,rate in bits per second\n0,4e6\n1,1.4e6\n2,0.1e6,\n",
    "quoted": '"time_s","rate ""x"" Mbit/s"\n"0","3"\n1, "4"\n',
    "BOM": "\ufefftime_s,rate_mbps\n0,1\n".encode(),
    "UTF-16": "time_s,rate_mbps\n0,1\n1,2\n".encode("utf-16"),
    "steps": "throughput_mbps\n3\n3\n8.5\n1e-9\n",
    "steps in kbps": "goodput kbps\n3000\n140\n",
    "late": "time_s,rate_mbps\n50,1\n60,2\n",
    "times fall": "time_s,rate_mbps\n2,1\n1.25,2\n",
    "a negative time": "time_s,rate_mbps\n-2,1\n",
    "no number": "time_s,rate_mbps\n0,1\n1,x\n",
    "a decimal comma": "time_s;rate_mbps\n0;1\n1;2,5\n",
    "too few columns": "time_s,rate_mbps\n0,1\n1\n",
    "too fast": "time_s,rate_mbps\n0,1\n1,20000\n",
    "negative rate": "time_s,rate_mbps\n0,-0.5\n",
    "NaN": "time_s,rate_mbps\n0,nan\n",
    "no unit": "time_s,rate\n0,1\n",
    "two units": "time_s,rate_mbps_kbps\n0,1\n",
    "MBps": "time_s,rate MBps\n0,1\n",
    "no time": "when_s,rate_mbps\n0,1\n",
    "alike": "time_s,dl_bitrate_kbps,ul_bitrate_kbps\n0,1,2\n",
    "no names": "0,1\n1,2\n",
    "only names": "time_s,rate_mbps\n",
    "blank between": "time_s,rate_mbps\n0,1\n\n1,2\n",
    "control character": "time_s,rate_mbps\n0,\x01\n",
    "irtt": "timestamp,rtt,uplink,downlink\n1,2,3,4\n",
    "a long line": "1" * 70_000 + "\n",
}


@pytest.mark.parametrize("duration_s", [5, 30])
def test_a_file_of_rates_is_read_as_python_reads_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, duration_s: int
) -> None:
    monkeypatch.chdir(tmp_path)
    here, given = [], []
    for name, content in RATE_FILES.items():
        content = content.encode() if isinstance(content, str) else content
        Path(name).write_bytes(content)
        given.append({"bytes": list(content), "name": name, "duration_s": duration_s})
        try:
            here.append({"schedule": [list(pair) for pair in rate_trace.from_config({"file": name}, duration_s)]})
        except ValueError as error:
            here.append({"error": str(error)})
    assert sum("schedule" in one for one in here) > 12
    for name, expected, found in zip(RATE_FILES, here, run(folder, "trace", given), strict=True):
        assert found == expected, name


@pytest.mark.parametrize(
    "content",
    [
        b'{"intervals": []}',
        b"\x1f\x8b1234",
        b"1289406400 550772 59.85 10.78 191698 1080\n",
        b"time,rate_mbps\n2024-01-02 10:00:00,3\n",
    ],
)
def test_a_file_that_only_python_reads_is_said(folder: Path, content: bytes) -> None:
    (found,) = run(folder, "trace", [{"bytes": list(content), "name": "my file", "duration_s": 5}])
    assert found["error"].startswith("my file")
    assert "rate_trace" in found["error"]
