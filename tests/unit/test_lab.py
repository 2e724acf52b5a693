"""The server of `bbrgym lab`: saved runs by their keys and names, and who may ask for them."""

import json
import os
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet
import pytest
from in_process import ExecutorInThisProcess

from bbrgym import Flow, Scenario, lab, simulate
from bbrgym.benchmark.run import run_benchmark
from bbrgym.envs.trace_file import save_trace


class Lab:
    """A server of runs in a folder."""

    def __init__(self, server: Any, root: Path) -> None:
        self.port = server.server_port
        self.root = root

    def ask(self, path: str, method: str = "GET", hosts: tuple[str, ...] | None = None) -> tuple[HTTPResponse, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(method, path, skip_host=hosts is not None)
        for host in hosts or ():
            connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer, body

    def runs(self) -> list[dict[str, str]]:
        return list(json.loads(self.ask("/saved/")[1])["runs"])

    def run(self, key: str) -> Any:
        return json.loads(self.ask(f"/saved/{quote(key)}")[1])

    def save(self, seed: int, folder: str = "evaluate/one/traces", at_s: int = 0) -> Path:
        """Save a run that was made at a time."""
        path = self.root / "runs" / folder / f"seed_{seed}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        flows = (Flow("bbr"), Flow("cubic"))
        save_trace(simulate(Scenario(rate_mbps=seed, duration_s=1, flows=flows), seed=seed), path)
        os.utime(path, (at_s, at_s))
        return path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Lab]:
    page = tmp_path / "page"
    page.mkdir()
    (page / "index.html").write_text("the page")
    with lab.make_server(page, tmp_path) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Lab(server, tmp_path)
        finally:
            server.shutdown()
            thread.join()


def test_a_key_means_the_same_run_when_others_are_saved(served: Lab) -> None:
    served.save(7, at_s=100)
    (first,) = served.runs()
    served.save(9, at_s=200)
    assert [run["title"] for run in served.runs()] == [
        "bbr + cubic, 9 Mbit/s, seed 9, native",
        "bbr + cubic, 7 Mbit/s, seed 7, native",
    ]
    assert [served.run(run["key"])["seed"] for run in served.runs()] == [9, 7]
    assert served.run(first["key"])["scenario"]["rate_mbps"] == 7


def test_a_benchmarks_runs_have_the_names_and_the_order_of_its_plan(
    served: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bbrgym.benchmark.run.make_executor", ExecutorInThisProcess)
    served.save(7, at_s=100)
    config = {
        "name": "mine",
        "competitors": ["cubic", "bbr"],
        "scenarios": {"slow": {"rate_mbps": 4, "duration_s": 1}, "fast": {"rate_mbps": 8, "duration_s": 1}},
        "seeds": [2, 1],
        "roles": [0],
        "engine": {"name": "native"},
    }
    run_benchmark(config, served.root / "runs" / "benchmark" / "mine", has_report=False)
    runs = served.runs()
    names = [(run["group"], run["title"]) for run in runs]
    mine = [(group, title) for group, title in names if "mine" in group]
    for scenario in ("slow", "fast"):
        titles = [title for group, title in mine if group == f"benchmark mine: {scenario}"]
        assert sorted(titles) == ["bbr, seed 1", "bbr, seed 2", "cubic, seed 1", "cubic, seed 2"]
        assert titles.index("cubic, seed 1") < titles.index("bbr, seed 1")
    assert names[len(mine) :] == [("evaluate one", "bbr + cubic, 7 Mbit/s, seed 7, native")]
    for run in runs[: len(mine)]:
        found = served.run(run["key"])
        assert found["scenario"]["rate_mbps"] == {"slow": 4, "fast": 8}[run["group"].split()[-1]]
        assert run["title"] == f"{found['scenario']['flows'][0]['algorithm']}, seed {found['seed']}"


@pytest.mark.parametrize("plan", ["[]", '{"runs": 5}', '{"runs": [{"key": "k"}]}', "no JSON"])
def test_runs_of_a_damaged_plan_are_described(served: Lab, plan: str) -> None:
    saved = served.save(7, "benchmark/mine/runs/key")
    saved.rename(saved.with_name("trace.parquet"))
    (saved.parents[2] / "benchmark.json").write_text(plan)
    (run,) = served.runs()
    assert run["group"].startswith("benchmark mine")
    assert run["title"] == "bbr + cubic, 7 Mbit/s, seed 7, native"


def test_the_list_has_the_newest_runs_and_says_how_many_there_are(served: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "_MOST_RUNS", 2)
    for seed in (1, 2, 3):
        served.save(seed, at_s=seed)
    content = json.loads(served.ask("/saved/")[1])
    assert content["count"] == 3
    assert [run["key"] for run in content["runs"]] == [f"evaluate/one/traces/seed_{seed}.parquet" for seed in (3, 2)]
    # One that is in a list of before can still be asked for.
    assert served.run("evaluate/one/traces/seed_1.parquet")["seed"] == 1


@pytest.mark.parametrize("origin", [None, "", "null", "5", "{}", '{"scenario": {}}', '{"scenario": {"flows": [{}]}}'])
def test_a_file_that_is_no_trace_is_named(served: Lab, origin: str | None) -> None:
    path = served.save(7)
    if origin is None:
        path.write_bytes(b"no Parquet")
    else:
        table = pyarrow.parquet.read_table(path)
        pyarrow.parquet.write_table(table.replace_schema_metadata({"bbrgym": origin}), path)
    (run,) = served.runs()
    assert "seed_7" in run["title"]
    assert "seed_7" in served.run(run["key"])["error"]


@pytest.mark.parametrize(
    "key",
    ["0", "evaluate/one/traces/seed_8.parquet", "../outside.parquet", "evaluate/../../outside.parquet", "/etc/passwd"],
)
def test_only_saved_runs_can_be_asked_for(served: Lab, key: str) -> None:
    served.save(7).rename(served.root / "outside.parquet")
    served.save(9)
    for path in (f"/saved/{key}", f"/saved/{quote(key, safe='')}"):
        answer, body = served.ask(path)
        assert answer.status == 404
        assert key in json.loads(body)["error"]


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_names_of_this_machine_are_answered(served: Lab, name: str) -> None:
    answer, body = served.ask("/index.html", hosts=(f"{name}:{served.port}",))
    assert (answer.status, body) == (200, b"the page")


@pytest.mark.parametrize(
    "hosts",
    [
        (),
        ("",),
        ("evil.example",),
        ("evil.example:{port}",),
        ("127.0.0.1.evil.example:{port}",),
        ("localhost",),
        ("localhost:1",),
        ("127.0.0.1@evil.example:{port}",),
        ("localhost:{port}", "evil.example:{port}"),
    ],
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/saved/"), ("GET", "/index.html"), ("HEAD", "/index.html")])
def test_other_names_are_refused(served: Lab, method: str, path: str, hosts: tuple[str, ...]) -> None:
    served.save(7)
    answer, body = served.ask(path, method, tuple(host.format(port=served.port) for host in hosts))
    assert answer.status == 421
    assert b"the page" not in body
    assert b"seed" not in body
    assert method == "HEAD" or f"localhost:{served.port}".encode() in body


def test_a_browser_that_leaves_while_the_page_is_sent_is_no_error(
    served: Lab, capfd: pytest.CaptureFixture[str]
) -> None:
    (served.root / "page" / "large").write_bytes(b"0" * 20_000_000)
    connection = HTTPConnection("127.0.0.1", served.port, timeout=60)
    connection.request("GET", "/large")
    connection.getresponse().close()
    assert served.ask("/index.html")[0].status == 200
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join(60)
    assert capfd.readouterr().err == ""


PARQUET = "application/vnd.apache.parquet"


def send(served: Lab, body: bytes, kind: str = PARQUET, path: str = "/saved/?my%20run") -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", served.port, timeout=60)
    connection.request("POST", path, body, {"Content-Type": kind})
    answer = connection.getresponse()
    content = json.loads(answer.read())
    connection.close()
    return answer.status, content


def test_a_trace_that_the_browser_sends_is_shown_and_not_kept(served: Lab) -> None:
    saved = served.save(7)
    status, found = send(served, saved.read_bytes())
    assert (status, found) == (200, served.run("evaluate/one/traces/seed_7.parquet"))
    assert len(served.runs()) == 1


def test_a_damaged_trace_that_is_sent_is_called_by_its_name(served: Lab) -> None:
    _, found = send(served, b"PAR1 and no more")
    assert found["error"].startswith("my run cannot be read: ")
    assert "/tmp" not in found["error"]


@pytest.mark.parametrize(("kind", "path"), [("text/plain", "/saved/?x"), (PARQUET, "/elsewhere")])
def test_another_sites_page_can_send_nothing(served: Lab, kind: str, path: str) -> None:
    status, found = send(served, served.save(7).read_bytes(), kind, path)
    assert status == 403
    assert set(found) == {"error"}


def test_a_trace_that_is_too_large_is_refused(served: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "_MOST_BYTES", 100)
    status, found = send(served, served.save(7).read_bytes())
    assert (status, list(found)) == (413, ["error"])


def test_what_is_not_built_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make playground"):
        lab.make_server(tmp_path)
