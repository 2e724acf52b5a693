"""Every notebook runs (`make check` looks whether it is kept without outputs)."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
assert NOTEBOOKS
pytestmark = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelManager]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BBRGYM_NOTEBOOK_DURATION_S", "2")
        patch.setenv("BBRGYM_NOTEBOOK_STEPS", "4096")
        manager = KernelManager(kernel_name="python3")
        manager.start_kernel(cwd=tmp_path_factory.mktemp("notebooks"))
    yield manager
    manager.shutdown_kernel(now=True)


def test_notebook_runs(path: Path, kernel: KernelManager) -> None:
    if 'engine="ns3"' in path.read_text().replace("\\", "") and importlib.util.find_spec("bbrgym._ns3") is None:
        pytest.skip("built without ns-3")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))  # what another notebook has defined
    NotebookClient(notebook, timeout=None, km=kernel).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert not [output for output in shown if output.output_type in ("error", "stream")]
    assert len([output for output in shown if "image/png" in output.get("data", {})]) >= 3
