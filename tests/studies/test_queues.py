"""The study that compares queues measures every run, and shows both engines side by side."""

import dataclasses
import re

import pytest

from studies import queues


def test_the_table_has_a_line_for_every_queue_and_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    situation = dataclasses.replace(queues.SITUATIONS["one CUBIC, ECN"], duration_s=12.0)
    monkeypatch.setattr(queues, "SITUATIONS", {"short": situation})
    # Native in both places is quick, and differs in nothing.
    monkeypatch.setattr(queues, "ENGINES", {"native": {"name": "native"}, "ns-3": {"name": "native"}})
    monkeypatch.setattr(queues, "SEEDS", (1,))
    found = queues.view({job.name: queues.work(job) for job in queues.jobs()}, lambda name, draw: name)
    assert set(re.findall(r"at most ([\d.]+)", str(found["verdict"]))) == {"0.0"}
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in str(found["runs"]).splitlines()]
    assert lines[0][3:] == [heading for heading, _ in queues.COLUMNS.values()]
    assert [line[:3] for line in lines[2:]] == [
        ["short", queue, engine] for queue in queues.QUEUES for engine in queues.ENGINES
    ]
    for _, _, _, share, utilisation, mean_ms, p95_ms, drops, marks in lines[2:]:
        assert share == "100.0%"
        assert float(utilisation[:-1]) > 50
        assert 0 < float(mean_ms) < float(p95_ms)
        assert float(drops) + float(marks) > 0


def test_the_verdict_has_the_largest_differences_of_native_from_ns3() -> None:
    results = {
        job.name: [dict.fromkeys(queues.COLUMNS, 1.0) | {"drops": 100.0, "queue_ms": 10.0}] for job in queues.jobs()
    }
    of_native = [job for job in queues.jobs() if job.engine == "native"]
    for job in of_native:
        if (job.situation, job.queue) == ("one CUBIC", "pie"):
            results[job.name][0] |= {"share": 0.97, "queue_ms": 12.5, "drops": 80.0}
    verdict = str(queues.view(results, lambda name, draw: name)["verdict"])
    assert "at most 3.0 points in the share" in verdict
    assert "mean queue differs by at most 2.5 ms, in the median 0.0 ms" in verdict
    assert "numbers differ by at most 20%, in the median 0%" in verdict


def test_the_figure_shows_both_engines_in_every_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    results = {job.name: [dict.fromkeys(queues.COLUMNS, 1.0)] for job in queues.jobs()}
    drawn = []
    queues.view(results, lambda name, draw: drawn.append(draw()) or name)
    (figure,) = drawn
    for axes in figure.axes:
        assert [line.get_label() for line in axes.lines] == list(queues.ENGINES)
        assert {len(line.get_xdata()) for line in axes.lines} == {len(queues.SITUATIONS) * len(queues.QUEUES)}


def test_the_hash_of_a_run_is_of_its_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {job.code for job in queues.jobs()}
    assert len(before) == len(queues.SITUATIONS) * len(queues.QUEUES) * len(queues.ENGINES)
    changed = {name: dataclasses.replace(one, rate_mbps=21.0) for name, one in queues.SITUATIONS.items()}
    monkeypatch.setattr(queues, "SITUATIONS", changed)
    assert before.isdisjoint(job.code for job in queues.jobs())
