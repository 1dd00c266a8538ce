"""The executed notebook of the documentation; `PYTHONPATH=tests python -m helpers.notebook` writes its outputs anew."""

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from helpers.runs import REPOSITORY

NOTEBOOK = REPOSITORY / "docs" / "guides" / "notebook.ipynb"
MAX_OUTPUT_BYTES = 50_000  # the report, which the page does not need twice
TIMEOUT_SECONDS = 240


def read() -> NotebookNode:
    """The notebook as it is stored."""
    return nbformat.read(NOTEBOOK, as_version=4)


def execute(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """Run all cells in a kernel of their own, in a folder; stops at the first error.

    Returns:
        The notebook with the outputs that a reader needs: without progress bars, times, the folder and the report.
    """
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=TIMEOUT_SECONDS, kernel_name="python3", resources=resources).execute()
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [shorten(output, folder) for output in cell.outputs if output.get("name") != "stderr"]
    return nbformat.reads(nbformat.writes(notebook), as_version=4)


def shorten(output: NotebookNode, folder: Path) -> NotebookNode:
    """An output with relative paths, whose large representations are left out."""
    if "text" in output:
        output.text = output.text.replace(f"{folder}/", "")
    if "data" in output:
        texts = {kind: str(text).replace(f"{folder}/", "") for kind, text in output.data.items()}
        output.data = {kind: text for kind, text in texts.items() if len(text) < MAX_OUTPUT_BYTES}
    return output


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        nbformat.write(execute(read(), Path(scratch).resolve()), NOTEBOOK)
