"""Every notebook runs, and is kept without outputs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if 'engine="ns3"' in path.read_text().replace("\\", "") and importlib.util.find_spec("bbrgym._ns3") is None:
        pytest.skip("built without ns-3")
    monkeypatch.setenv("BBRGYM_NOTEBOOK_DURATION_S", "2")
    monkeypatch.setenv("BBRGYM_NOTEBOOK_STEPS", "1024")
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=None, resources={"metadata": {"path": tmp_path}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert not [output for output in shown if output.output_type in ("error", "stream")]
    assert len([output for output in shown if "image/png" in output.get("data", {})]) >= 3
