"""The README's example prints the output shown below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.skipif(not README.exists(), reason="SKIPPED README: not in a clone")
def test_the_example_prints_the_output_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    scope: dict[str, object] = {}
    exec(found[1], scope)
    assert capsys.readouterr().out.strip() == found[2].strip()
    assert f"{scope['run'].variants['codel'].working.p99:.2f}" in found[1]  # type: ignore[attr-defined]
