"""The Python examples of the tutorials and of the reference print the output shown below them."""

from __future__ import annotations

import contextlib
import io
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```\n(.*?)```\n)?", re.DOTALL)


PAGES = {"own-queue.md": TUTORIALS, "python.md": TUTORIALS.parent}
ELSEWHERE = ('on="ray:', "ul.measure(")
"""Marks of blocks that need a cluster or a server: `test_ray.py` and `test_line.py` run such calls."""


@pytest.mark.parametrize("name", PAGES)
def test_each_block_prints_the_output_below_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PAGES[name] / name
    if not page.exists():
        pytest.skip(f"SKIPPED {name}: not in a clone")
    pytest.importorskip("numpy")
    pytest.importorskip("polars")
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(page.read_text())
    assert len(blocks) >= 3 and any(shown for _, shown in blocks)
    scope: dict[str, object] = {"__name__": "tutorial"}
    for code, shown in blocks:
        has_library = "ul.env(" not in code or find_spec("gymnasium") is not None
        if not has_library or any(mark in code for mark in ELSEWHERE):
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, name, "exec"), scope)
        assert printed.getvalue() == shown
