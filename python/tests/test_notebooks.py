"""The notebooks are kept without outputs, and what runs them says what is wrong and where."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
SCRIPT = FOLDER / "run.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="SKIPPED notebooks: not in a clone")


def notebook(place: Path, *sources: str, **code: object) -> Path:
    """A notebook with a heading and cells; those that begin with `#` are texts."""
    cells: list[dict[str, object]] = []
    for source in ("# A title", *sources):
        cell: dict[str, object] = {"cell_type": "markdown", "metadata": {}, "source": source}
        if not source.startswith("#"):
            cell.update({"cell_type": "code", "outputs": [], "execution_count": None, **code})
        cells.append(cell)
    document = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path = place / "one.ipynb"
    path.write_text(json.dumps(document))
    return path


def run(*arguments: object) -> tuple[int, str]:
    """Status, and all that was said."""
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_every_notebook_is_kept_clean(tmp_path: Path) -> None:
    kept = sorted(FOLDER.glob("*.ipynb"))
    assert len(kept) >= 8
    for path in kept:
        copy = tmp_path / path.name
        copy.write_bytes(path.read_bytes())
        assert run("--clean", copy)[1].endswith(": clean\n"), f"run.py --clean {path}"
        ids = [cell["id"] for cell in json.loads(path.read_text())["cells"]]
        assert len(set(ids)) == len(ids)


def test_cells_share_a_scope_and_what_they_show_becomes_a_page(tmp_path: Path) -> None:
    shows = (
        "class Picture:\n    title = 'a picture'\n    def _repr_svg_(self):\n        return '<svg/>'\n"
        "print('number', number)\ndisplay(Picture())\nprint('after')\n{'a': 1}"
    )
    text = "## Text\n[page](../../docs/figures.md), [other](two.ipynb), [out](../../README.md)"
    path = notebook(tmp_path, "number = 41 + 1", text, shows, "None", "print('```')")
    status, said = run("--pages", tmp_path / "pages", path)
    assert status == 0 and said.startswith("one.ipynb: ")
    page = (tmp_path / "pages/one.md").read_text()
    assert (tmp_path / "pages/one-1.svg").read_text() == "<svg/>"
    assert page == "\n\n".join(
        [
            "# A title",
            "*A notebook: [one.ipynb](../../python/notebooks/one.ipynb).*",
            "```python\nnumber = 41 + 1\n```",
            "## Text\n[page](../figures.md), [other](two.md), [out](../../README.md)",
            f"```python\n{shows}\n```",
            "```text\nnumber 42\n```",
            "![a picture](one-1.svg)",
            "*a picture*",
            "```text\nafter\n{'a': 1}\n```",
            "```python\nNone\n```",
            "````python\nprint('```')\n````",
            "````text\n```\n````\n",
        ]
    )


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("value = 1\nvalue / 0", "cell 2, line 2: ZeroDivisionError: division by zero\n    value / 0"),
        ("def inner():\n    raise KeyError('x')\ninner()", "cell 2, line 2: KeyError: 'x'"),
        ("x = 1\nx = = 2", "cell 2, line 2: SyntaxError: "),
        ("import sys; sys.exit(0)", "cell 2, line 1: SystemExit: 0"),
        ("import os; os.kill(os.getpid(), 9)", "one.ipynb: ended by signal 9"),
        ("while True: print('x' * 1000)", "cell 2, line 1: NotebookError: prints more than"),
    ],
)
def test_what_fails_is_told_with_its_cell(tmp_path: Path, source: str, says: str) -> None:
    status, said = run("--pages", tmp_path / "pages", notebook(tmp_path, source, "2 + 2"))
    assert status == 1 and says in said, said
    assert not (tmp_path / "pages/one.md").exists()


def test_a_cell_without_an_end_is_ended(tmp_path: Path) -> None:
    status, said = run("--limit", 0.5, notebook(tmp_path, "while True: pass"))
    assert status == 1 and "cell 2, line 1: TimeoutError: not done after 0.5 s" in said


def test_the_others_still_run_and_what_was_skipped_is_told(tmp_path: Path) -> None:
    bad, good = tmp_path / "bad", tmp_path / "good"
    bad.mkdir()
    good.mkdir()
    skips = notebook(good, "print('all well')\nprint('SKIPPED live: no root')")
    status, said = run(notebook(bad, "1 / 0"), skips)
    assert status == 1 and "SKIPPED live: no root\n" in said and "all well" not in said
    assert "one.ipynb: failed" in said and said.count("one.ipynb: ") == 3


def test_outputs_are_refused_and_cleaned(tmp_path: Path) -> None:
    output = {"output_type": "stream", "name": "stdout", "text": "secret"}
    for left in ({"outputs": [output]}, {"execution_count": 3}):
        path = notebook(tmp_path, "open('made', 'w')", **left)
        status, said = run(path)
        assert status == 1 and "one.ipynb: cell 2: holds outputs; `run.py --clean" in said
        assert run("--clean", path) == (0, f"{path}: cleaned\n")
        assert "secret" not in path.read_text()
        assert run(path)[0] == 0
        assert not Path("made").exists() and not (tmp_path / "made").exists()


@pytest.mark.parametrize("content", ["", "[]", '{"nbformat": 3}', '{"nbformat": 4, "cells": [1]}', "\0"])
def test_what_is_no_notebook_is_told(tmp_path: Path, content: str) -> None:
    path = tmp_path / "no.ipynb"
    path.write_text(content)
    for arguments in ([path], ["--clean", path]):
        status, said = run(*arguments)
        assert status == 1 and "no notebook" in said and "Traceback" not in said
    assert path.read_text() == content
    status, said = run(tmp_path / "missing.ipynb")
    assert status == 1 and "No such file" in said


def test_pages_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    path = notebook(tmp_path, "1")
    status, said = run("--pages", path, path)
    assert status == 1 and "File exists" in said and "Traceback" not in said
    blocked = tmp_path / "pages/one.md"
    blocked.mkdir(parents=True)
    status, said = run("--pages", blocked.parent, path)
    assert status == 1 and "Is a directory" in said and "Traceback" not in said
