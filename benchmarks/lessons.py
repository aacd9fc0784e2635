"""Lessons: executes their notebooks and stores text and stills, as a reader without a kernel sees them.

    python -m benchmarks.lessons [01_drawing_weights …]    # all of them where none is named

`make test` compares every stored number with what comes out; a live figure is stored as its still, without the widget.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from explorer.serve import notebooks

WIDGET = "application/vnd.jupyter.widget-view+json"


def store(path: Path) -> None:
    """Executes a notebook from top to bottom and writes it back, without timestamps and widgets."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=600, record_timing=False, store_widget_state=False, coalesce_streams=True)
    client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if WIDGET not in output.get("data", {})]
    notebook.metadata.pop("widgets", None)
    notebook.metadata.language_info = {"name": "python"}
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for lesson in sorted((notebooks() / "lessons").glob("*.ipynb")):
        if lesson.stem in sys.argv[1:] or len(sys.argv) == 1:
            store(lesson)
            sys.stdout.write(f"{lesson.name}: {lesson.stat().st_size / 1000:.0f} kB\n")
