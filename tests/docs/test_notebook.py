"""The notebook runs top to bottom on simulated replicas."""

from __future__ import annotations

import pathlib

import nbclient
import nbformat

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "colab_tpu.ipynb"


def test_the_notebook_runs_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (choice,) = (cell for cell in notebook.cells if "SIMULATE = None" in cell.source)
    choice.source = choice.source.replace("SIMULATE = None", "SIMULATE = 2")
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    printed = "".join(
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ())
    )
    assert "2 replicas on CPU" in printed
    assert "test accuracy 0.9" in printed
    assert (tmp_path / "throughput.png").exists()


def test_the_notebook_is_kept_without_outputs():
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in cells)
