"""What the tutorials print in Python is what stands below it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```\n(.*?)```\n)?", re.DOTALL)


@pytest.mark.parametrize("name", ["own-queue.md"])
def test_each_block_prints_what_stands_below_it(name: str) -> None:
    page = TUTORIALS / name
    if not page.exists():
        pytest.skip(f"SKIPPED {name}: not in a clone")
    pytest.importorskip("numpy")
    blocks = BLOCK.findall(page.read_text())
    assert len(blocks) >= 3 and any(shown for _, shown in blocks)
    scope: dict[str, object] = {"__name__": "tutorial"}
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, name, "exec"), scope)
        assert printed.getvalue() == shown
