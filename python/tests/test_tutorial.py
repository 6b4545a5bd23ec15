"""The Python examples of the tutorials print the output shown below them, and those of the
reference run."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

import underload as ul

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```\n(.*?)```\n)?", re.DOTALL)


@pytest.mark.parametrize("name", ["own-queue.md"])
def test_each_block_prints_the_output_below_it(name: str) -> None:
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


def test_the_algorithms_of_the_reference_run() -> None:
    page = TUTORIALS.parent / "python.md"
    if not page.exists():
        pytest.skip("SKIPPED python.md: not in a clone")
    section = page.read_text().split("## Algorithms of your own\n")[1].split("\n## ")[0]
    scope: dict[str, Any] = {"ul": ul}
    blocks = BLOCK.findall(section)
    for code, _ in blocks:
        exec(compile(code, page.name, "exec"), scope)
    assert len(blocks) == 2
    variants = scope["run"].variants
    assert variants["mine"].working.p99 == variants["bode"].working.p99
    path = ul.Scenario(up="10mbit", up_queue="fifo").flow(scope["flow"], ul.Probe())
    assert next(iter(ul.run(path).variants.values())).metric("utilisation.up") > 90
