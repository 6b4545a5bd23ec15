"""Runs notebooks as a reader would: from the first cell to the last, each notebook in an interpreter
and an empty folder of its own.

    python run.py comcast-study.ipynb          # or several
    python run.py --pages DIR *.ipynb          # and writes each as a page with its pictures
    python run.py --clean comcast-study.ipynb  # removes what a notebook server has left in it

A notebook that holds outputs is refused: what it shows is made again each time it is run. Nothing
but Python is needed. With UNDERLOAD_QUICK set, the notebooks run short forms of everything.
"""

from __future__ import annotations

import argparse
import ast
import json
import linecache
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

LIMIT_S = 1800
"""Seconds that a notebook may take."""
GRACE_S = 10
"""Seconds more for code that does not let Python's signals through."""
LONGEST_OUTPUT = 1 << 20
"""Characters that a cell may print."""
HEADING = re.compile(r"# (\S.*)")


class NotebookError(Exception):
    """What is wrong with a notebook, or with one of its cells."""


class Cell(NamedTuple):
    """A cell of a notebook."""

    number: int
    """Its place, from 1, texts included."""
    is_code: bool
    source: str


class Notebook(NamedTuple):
    """What a notebook says."""

    path: Path
    cells: list[Cell]

    @property
    def title(self) -> str:
        """Its first heading."""
        heading = HEADING.match(self.cells[0].source)
        return heading[1] if heading else self.path.stem


class Output(NamedTuple):
    """What a cell shows: text, or a picture as SVG."""

    text: str
    is_picture: bool
    name: str = ""
    """What a picture shows."""


def read(path: Path) -> Notebook:
    """A notebook that is kept as it should be: without outputs, beginning with a heading."""
    document = _document(path)
    cells = []
    for number, cell in enumerate(document["cells"], 1):
        kind = cell.get("cell_type")
        if kind not in ("code", "markdown"):
            raise NotebookError(f"{path.name}: cell {number}: {kind}; expected code or markdown")
        if cell.get("outputs") or cell.get("execution_count") is not None:
            raise NotebookError(
                f"{path.name}: cell {number}: holds outputs; `run.py --clean {path.name}` removes them"
            )
        source = cell.get("source", "")
        text = source if isinstance(source, str) else "".join(source)
        cells.append(Cell(number, kind == "code", text))
    if not cells or cells[0].is_code or not HEADING.match(cells[0].source):
        raise NotebookError(f"{path.name}: does not begin with a heading")
    if not any(cell.is_code for cell in cells):
        raise NotebookError(f"{path.name}: no cell holds code")
    return Notebook(path, cells)


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotebookError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise NotebookError(f"{path}: no notebook: {error}") from None
    is_notebook = isinstance(document, dict) and document.get("nbformat") == 4
    cells = document.get("cells") if is_notebook else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise NotebookError(f"{path}: no notebook of format 4")
    return document


def clean(path: Path) -> bool:
    """Removes outputs, counts and a server's notes about itself; whether there were any."""
    document = _document(path)
    for cell in document["cells"]:
        cell["metadata"] = {}
        if cell.get("cell_type") == "code":
            cell["outputs"], cell["execution_count"] = [], None
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document["metadata"] = {"kernelspec": kernel, "language_info": {"name": "python"}}
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if text == path.read_text(encoding="utf-8"):
        return False
    path.write_text(text, encoding="utf-8")
    return True


def execute(notebook: Notebook) -> Iterator[tuple[Cell, list[Output]]]:
    """Runs the cells in order, as a notebook's kernel does: the value of a last expression is
    shown, and so is what `display` is called with. Gives each cell with what it shows."""
    shown: list[Output] = []
    scope: dict[str, Any] = {"__name__": "__main__", "display": lambda *it: shown.extend(map(_output, it))}
    for cell in notebook.cells:
        if cell.is_code:
            with redirect_stdout(_Printed(shown)):
                _run(cell, notebook.path.name, scope)
        yield cell, _joined(shown)
        shown.clear()


class _Printed:
    """What a cell prints, in the order in which it and pictures come."""

    def __init__(self, shown: list[Output]) -> None:
        self._shown = shown
        self._length = 0

    def write(self, text: str) -> int:
        self._length += len(text)
        if self._length > LONGEST_OUTPUT:
            raise NotebookError(f"prints more than {LONGEST_OUTPUT} characters")
        self._shown.append(Output(text, is_picture=False))
        return len(text)

    def flush(self) -> None:
        pass


def _joined(shown: list[Output]) -> list[Output]:
    """The same with one text between two pictures."""
    joined: list[Output] = []
    for is_picture, group in groupby(shown, key=lambda it: it.is_picture):
        if is_picture:
            joined += group
        else:
            joined.append(Output("".join(it.text for it in group), is_picture=False))
    return joined


def _output(value: Any) -> Output:
    """A value as a page shows it: its picture if it has one, else its text."""
    if hasattr(value, "_repr_svg_"):
        return Output(value._repr_svg_(), True, str(getattr(value, "title", "")))
    return Output(f"{value!r}\n", is_picture=False)


def _run(cell: Cell, name: str, scope: dict[str, Any]) -> None:
    file = f"<{name}, cell {cell.number}>"
    linecache.cache[file] = (len(cell.source), None, cell.source.splitlines(keepends=True), file)
    try:
        tree = ast.parse(cell.source, file)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, file, "exec"), scope)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), file, "eval"), scope)
            if value is not None:
                scope["display"](value)
    except KeyboardInterrupt as error:
        # A run's own carries what it had finished; a reader who stopped wants to be out.
        raise KeyboardInterrupt from error
    except BaseException as error:
        raise NotebookError(f"{name}: cell {cell.number}{_where(error, file)}") from error


def _where(error: BaseException, file: str) -> str:
    """The line of the cell that it came from, and what it says."""
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == file else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    said = f"{type(error).__name__}: {error}"
    if line is None:
        return f": {said}"
    return f", line {line}: {said}\n    {linecache.getline(file, line).strip()}"


def page(notebook: Notebook, shown: list[tuple[Cell, list[Output]]]) -> tuple[str, dict[str, str]]:
    """A notebook as a page of the book, and its pictures by their files' names."""
    stem = notebook.path.stem
    parts: list[str] = []
    pictures: dict[str, str] = {}
    for cell, outputs in shown:
        if not cell.is_code:
            parts.append(_linked(cell.source.rstrip()))
            if cell.number == 1:
                parts.append(f"*A notebook: [{stem}.ipynb](../../python/notebooks/{stem}.ipynb).*")
            continue
        parts.append(_fenced(cell.source, "python"))
        for output in outputs:
            if output.is_picture:
                name = f"{stem}-{len(pictures) + 1}.svg"
                pictures[name] = output.text
                parts.append(f"![{output.name.replace(']', '')}]({name})")
                parts += [f"*{output.name}*"] if output.name else []
            elif output.text.strip():
                parts.append(_fenced(output.text, "text"))
    return "\n\n".join(parts) + "\n", pictures


def _fenced(text: str, language: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _linked(text: str) -> str:
    """Links as they lead from `docs/notebooks` instead of `python/notebooks`."""
    text = text.replace("](../../docs/", "](../")
    return re.sub(r"\]\(([\w-]+)\.ipynb\)", r"](\1.md)", text)


def _inside(path: Path, pages: Path | None) -> None:
    """Runs a notebook in this interpreter."""
    notebook = read(path)
    shown = []
    for cell, outputs in execute(notebook):
        shown.append((cell, outputs))
        for output in outputs:
            skipped = (it for it in output.text.splitlines() if it.startswith("SKIPPED "))
            for line in () if output.is_picture else skipped:
                print(line, file=sys.stderr, flush=True)
    if pages is not None:
        text, pictures = page(notebook, shown)
        for name, picture in pictures.items():
            (pages / name).write_text(picture, encoding="utf-8")
        (pages / f"{path.stem}.md").write_text(text, encoding="utf-8")


def _too_long(limit_s: float) -> NoReturn:
    raise TimeoutError(f"not done after {limit_s:g} s")


def _alone(path: Path, pages: Path | None, limit_s: float) -> str | None:
    """Runs a notebook in an interpreter and a folder of its own; what is wrong, if anything is."""
    command = [sys.executable, str(Path(__file__).resolve()), "--inside", "--limit", str(limit_s)]
    if pages is not None:
        command += ["--pages", str(pages)]
    with tempfile.TemporaryDirectory(prefix="notebook-") as folder:
        command.append(str(path))
        try:
            done = subprocess.run(command, cwd=folder, timeout=limit_s + GRACE_S, check=False)
        except subprocess.TimeoutExpired:
            return f"{path.name}: not done after {limit_s:g} s"
    if done.returncode < 0:
        return f"{path.name}: ended by signal {-done.returncode}"
    # It has said itself what is wrong.
    return None if done.returncode == 0 else f"{path.name}: failed"


def _all(paths: list[Path], pages: Path | None, limit_s: float) -> int:
    """Runs notebooks one after the other; how many of them failed."""
    notebooks = [read(path).path.resolve() for path in paths]
    if pages is not None:
        pages = pages.resolve()
        pages.mkdir(parents=True, exist_ok=True)
    failed = 0
    for path in notebooks:
        start = time.monotonic()
        problem = _alone(path, pages, limit_s)
        failed += problem is not None
        print(problem or f"{path.name}: {time.monotonic() - start:.1f} s", flush=True)
    return failed


def main() -> int:
    """The command line; gives the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK")
    parser.add_argument("--pages", type=Path, metavar="DIR", help="writes each as a page into this folder")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help="for each notebook")
    parser.add_argument("--clean", action="store_true", help="removes outputs instead")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    try:
        if asked.clean:
            for path in asked.notebooks:
                print(f"{path}: {'cleaned' if clean(path) else 'clean'}")
            return 0
        if not asked.inside:
            return min(_all(asked.notebooks, asked.pages, asked.limit), 1)
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, lambda *_: _too_long(asked.limit))
            signal.setitimer(signal.ITIMER_REAL, asked.limit)
        _inside(asked.notebooks[0], asked.pages)
    except (NotebookError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
