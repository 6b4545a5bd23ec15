"""Runs notebooks as Jupyter does, from the first cell to the last, each in a new empty folder, and
converts them to pages of the book.

    python run.py comcast-study.ipynb          # or several
    python run.py --pages DIR *.ipynb          # and writes each as a page with its pictures

With UNDERLOAD_QUICK set, the notebooks run short forms of everything. The repository stores
notebooks without outputs: `jupyter nbconvert --clear-output --inplace FILE` removes them.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbconvert import MarkdownExporter
from traitlets.config import Config

LIMIT_S = 1800
"""Seconds that a cell may take."""
START_S = 120
"""Seconds that a kernel may take to start, on a busy machine."""
ANSI = re.compile(r"\x1b\[[0-9;]*m")
TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)


class NotebookError(Exception):
    """A notebook that is invalid or fails; the message says where."""


def read(path: Path) -> Any:
    """Reads a notebook. Raises `NotebookError` if it has outputs or does not begin with a
    heading."""
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except OSError as error:
        raise NotebookError(f"{path}: {error.strerror}") from None
    except Exception as error:
        # nbformat's parsers raise errors of many types.
        raise NotebookError(f"{path}: no notebook: {error}") from None
    for number, cell in enumerate(notebook.cells, 1):
        if cell.get("outputs") or cell.get("execution_count") is not None:
            raise NotebookError(
                f"{path.name}: cell {number}: holds outputs; "
                f"`jupyter nbconvert --clear-output --inplace {path}` removes them"
            )
    if not notebook.cells or not notebook.cells[0].source.startswith("# "):
        raise NotebookError(f"{path.name}: does not begin with a heading")
    return notebook


def execute(notebook: Any, name: str, limit_s: float) -> None:
    """Executes the notebook in a new kernel, which adds the outputs to its cells."""
    with tempfile.TemporaryDirectory(prefix="notebook-") as folder:
        empty = Path(folder, "empty")
        empty.mkdir()
        # Unix sockets in a folder that other users of this machine cannot enter, instead of TCP
        # ports.
        sockets = {"transport": "ipc", "ip": str(Path(folder, "kernel"))}
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=limit_s,
            startup_timeout=START_S,
            resources={"metadata": {"path": str(empty)}},
            config=Config({"KernelManager": sockets}),
        )
        try:
            client.execute()
        except CellTimeoutError:
            raise NotebookError(f"{name}: a cell is not done after {limit_s:g} s") from None
        except (CellExecutionError, DeadKernelError) as error:
            raise NotebookError(f"{name}: {ANSI.sub('', str(error)).strip()}") from None


def skipped(notebook: Any) -> list[str]:
    """Returns the lines by which cells report that they were skipped."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    lines = (line for output in outputs for line in output.get("text", "").splitlines())
    return [line for line in lines if line.startswith("SKIPPED ")]


def page(notebook: Any, stem: str) -> tuple[str, dict[str, bytes]]:
    """Converts an executed notebook to a page of the book. Returns its text, and the pictures by
    file name."""
    shown = Config({"NbConvertBase": {"display_data_priority": ["image/svg+xml", "text/plain"]}})
    named = {"unique_key": stem, "output_files_dir": ""}
    text, resources = MarkdownExporter(config=shown).from_notebook_node(notebook, named)
    pictures: dict[str, bytes] = resources["outputs"]
    for name, picture in pictures.items():
        title = TITLE.search(picture.decode())
        text = text.replace(f"![svg]({name})", f"![{title[1] if title else stem}]({name})")
    # Rewrites links for `docs/notebooks` instead of `python/notebooks`.
    text = text.replace("](../../docs/", "](../")
    text = re.sub(r"\]\(([\w-]+)\.ipynb\)", r"](\1.md)", text)
    heading, rest = text.strip().split("\n", maxsplit=1)
    source = f"*A notebook: [{stem}.ipynb](../../python/notebooks/{stem}.ipynb).*"
    return f"{heading}\n\n{source}\n{rest}\n", pictures


def run(path: Path, pages: Path | None, limit_s: float) -> None:
    """Runs a notebook, and writes its page if all cells succeed."""
    notebook = read(path)
    execute(notebook, path.name, limit_s)
    for line in skipped(notebook):
        print(line, file=sys.stderr, flush=True)
    if pages is None:
        return
    text, pictures = page(notebook, path.stem)
    pages.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        (pages / name).write_bytes(picture)
    (pages / f"{path.stem}.md").write_text(text, encoding="utf-8")


def main() -> int:
    """Parses the command line and runs the notebooks. Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK")
    parser.add_argument("--pages", type=Path, metavar="DIR", help="writes each as a page into this folder")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help="for each cell")
    asked = parser.parse_args()
    failed = False
    for path in asked.notebooks:
        start = time.monotonic()
        try:
            run(path, asked.pages, asked.limit)
            print(f"{path.name}: {time.monotonic() - start:.1f} s", flush=True)
        except (NotebookError, OSError) as error:
            failed = True
            print(error, file=sys.stderr, flush=True)
    return int(failed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
