"""The archive of a fleet: other programs read the same numbers from it that the fleet's pages
show."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

duckdb = pytest.importorskip("duckdb")

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "crates/orchestrator/src/store/files/golden"
FILES = "'archive/plan=*/day=*/runs-*.parquet'"


def queries() -> list[str]:
    page = (ROOT / "docs/fleet/storage.md").read_text(encoding="utf-8")
    found: list[str] = re.findall("```sql\n(.*?)```", page, flags=re.DOTALL)
    return found


@pytest.mark.parametrize("place, name", [*enumerate(["curves", "outcomes", "means"])])
def test_a_query_of_the_docs_finds_what_pages_show(place: int, name: str) -> None:
    query = queries()[place]
    assert FILES in query and len(queries()) == 3
    found = duckdb.sql(query.replace(FILES, f"'{GOLDEN / 'runs.parquet'}'")).fetchall()
    shown = json.loads((GOLDEN / "shown.json").read_text(encoding="utf-8"))[name]
    assert found and [list(row) for row in found] == shown
