"""Frames have the same values in every library and in the run directory's Parquet files."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

import underload as ul

polars = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[ul.Run, Path]:
    run = ul.run("comcast/upstream", short=True, variants=["docsis-pie-35"], cache=False)
    return run, run.save(tmp_path_factory.mktemp("runs") / "run")


@pytest.mark.parametrize("table", ["samples", "series", "trials"])
def test_every_library_reads_what_the_parquet_file_has(
    saved: tuple[ul.Run, Path], table: str
) -> None:
    run, directory = saved
    frame = getattr(run, table)
    path = directory / f"{table}.parquet"
    theirs = polars.read_parquet(path)
    ours = frame.to_polars()
    assert len(ours) == len(frame) > 0
    assert ours.equals(theirs) and ours.schema == theirs.schema
    in_duckdb = duckdb.sql("select * from frame").fetchall()
    assert in_duckdb == duckdb.sql(f"select * from '{path}'").fetchall()
    arrow = frame.to_pyarrow()
    stored = parquet.read_table(path).rename_columns(frame.columns)
    assert arrow.equals(stored.cast(arrow.schema))
    assert frame.to_dict() == arrow.to_pydict()
    pandas = frame.to_pandas()
    assert list(pandas.columns) == frame.columns and len(pandas) == len(frame)


def test_a_stream_can_be_read_twice_and_dropped_unread(saved: tuple[ul.Run, Path]) -> None:
    frame = saved[0].samples
    for _ in range(3):
        frame.__arrow_c_stream__()
        frame.__arrow_c_schema__()
    first, second = polars.DataFrame(frame), polars.DataFrame(frame)
    del frame
    assert first.equals(second)


def test_a_missing_column_and_a_missing_library_are_named(
    saved: tuple[ul.Run, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = saved[0].samples
    with pytest.raises(ul.NoSuchColumn, match="no column `rtt`; there are .*rtt_ns"):
        frame.column("rtt")
    plain = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "polars":
            raise ImportError(name)
        return plain(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("importlib.import_module", without)
    with pytest.raises(ul.MissingLibrary, match="pip install polars"):
        frame.to_polars()
