"""The notebooks are stored without outputs, and `run.py` reports what is wrong and where."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")

FOLDER = Path(__file__).parents[1] / "notebooks"
SCRIPT = FOLDER / "run.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="SKIPPED notebooks: not in a clone")


def notebook(place: Path, *sources: str) -> Path:
    """A notebook with a heading and cells; those that begin with `#` are texts."""
    new = nbformat.v4.new_notebook()
    for source in ("# A title\n\nA text.", *sources):
        make = nbformat.v4.new_markdown_cell if source.startswith("#") else nbformat.v4.new_code_cell
        new.cells.append(make(source))
    path = place / "one.ipynb"
    nbformat.write(new, path)
    return path


def run(*arguments: object) -> tuple[int, str]:
    """Returns the exit status and all output."""
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


def test_notebooks_are_stored_without_outputs() -> None:
    kept = sorted(FOLDER.glob("*.ipynb"))
    assert len(kept) >= 8
    for path in kept:
        cells = nbformat.read(path, as_version=4).cells
        code = [cell for cell in cells if cell.cell_type == "code"]
        assert code and not any(cell.outputs or cell.execution_count for cell in code), path
        assert not any(cell.metadata for cell in cells), path
        assert len({cell.id for cell in cells}) == len(cells), path


def test_outputs_of_cells_become_a_page(tmp_path: Path) -> None:
    shows = (
        "class Picture:\n    def _repr_svg_(self):\n        return '<svg><title>a picture</title></svg>'\n"
        "print('number', number)\ndisplay(Picture())\nprint('SKIPPED live: no root')"
    )
    text = "## Text\n[page](../../docs/figures.md), [other](two.ipynb), [out](../../README.md)"
    path = notebook(tmp_path, "number = 41 + 1", text, shows, "import os\nos.listdir()")
    before = path.read_bytes()
    status, said = run("--pages", tmp_path / "pages", path)
    assert status == 0 and "one.ipynb: " in said and "SKIPPED live: no root\n" in said, said
    page = (tmp_path / "pages/one.md").read_text()
    parts = [
        "# A title\n\n*A notebook: [one.ipynb](../../python/notebooks/one.ipynb).*\n\nA text.",
        "```python\nnumber = 41 + 1\n```",
        "## Text\n[page](../figures.md), [other](two.md), [out](../../README.md)",
        "    number 42\n",
        "![a picture](one_3_1.svg)",
        "    []\n",
    ]
    places = [page.find(part) for part in parts]
    assert -1 not in places and places == sorted(places), page
    assert b"a picture" in (tmp_path / "pages/one_3_1.svg").read_bytes()
    # The notebook was not changed.
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("value = 1\nvalue / 0", "ZeroDivisionError: division by zero"),
        ("import os; os.kill(os.getpid(), 9)", "Kernel died"),
        ("while True: pass", "a cell is not done after 2 s"),
    ],
)
def test_failing_cells_are_reported_and_leave_no_page(tmp_path: Path, source: str, says: str) -> None:
    path = notebook(tmp_path, source)
    status, said = run("--limit", 2, "--pages", tmp_path / "pages", path)
    assert status == 1 and "one.ipynb: " in said and says in said, said
    assert "\x1b" not in said and not (tmp_path / "pages").exists()


def test_outputs_are_refused_before_anything_runs(tmp_path: Path) -> None:
    made = tmp_path / "made"
    path = notebook(tmp_path, f"open({str(made)!r}, 'w')")
    kept = nbformat.read(path, as_version=4)
    kept.cells[1].outputs = [nbformat.v4.new_output("stream", text="secret")]
    nbformat.write(kept, path)
    status, said = run(path)
    assert status == 1 and "one.ipynb: cell 2: holds outputs; `jupyter nbconvert" in said, said
    assert not made.exists()


def test_invalid_notebooks_are_reported_and_the_others_run(tmp_path: Path) -> None:
    contents = ("", "[]", '{"nbformat": 3}', '{"nbformat": 4, "cells": [1]}', "\0")
    wrong = [tmp_path / f"no-{number}.ipynb" for number in range(len(contents))]
    for path, content in zip(wrong, contents, strict=True):
        path.write_text(content)
    good = notebook(tmp_path, "1 + 1")
    status, said = run(*wrong, tmp_path / "missing.ipynb", good)
    assert status == 1 and "No such file" in said and "one.ipynb: " in said, said
    assert all(f"{path}: no notebook" in said for path in wrong), said
    assert "Traceback" not in said


def test_pages_that_cannot_be_written_are_reported(tmp_path: Path) -> None:
    path = notebook(tmp_path, "1")
    status, said = run("--pages", path, path)
    assert status == 1 and "File exists" in said and "Traceback" not in said, said
