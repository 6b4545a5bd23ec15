"""Tables for any library of data frames."""

from __future__ import annotations

from typing import Any

from . import _underload
from ._optional import library


class Frame:
    """A table in Arrow's memory format, which needs no library.

    Libraries that support Arrow's C data interface read it without copying:
    `polars.DataFrame(frame)`, `pyarrow.table(frame)`, `duckdb.sql("from frame")`. Times end in
    `_ns` and are nanoseconds since the start of their trial; a missing value is null.
    """

    __slots__ = ("_raw",)

    def __init__(self, raw: _underload.Frame) -> None:
        self._raw = raw

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._raw.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._raw.__arrow_c_schema__()

    def __len__(self) -> int:
        """Returns the number of rows."""
        return len(self._raw)

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order."""
        return [name for name, _ in self._raw.columns()]

    @property
    def types(self) -> dict[str, str]:
        """The Arrow type of each column."""
        return dict(self._raw.columns())

    def column(self, name: str) -> list[Any]:
        """Returns a column as a list, `None` for a missing value. Shape: (rows,)."""
        return self._raw.column(name)

    def to_dict(self) -> dict[str, list[Any]]:
        """Returns all columns as lists."""
        return {name: self.column(name) for name in self.columns}

    def to_polars(self) -> Any:
        """Returns a `polars.DataFrame`."""
        return library("polars", "to_polars()").DataFrame(self)

    def to_pyarrow(self) -> Any:
        """Returns a `pyarrow.Table`."""
        return library("pyarrow", "to_pyarrow()").table(self)

    def to_pandas(self) -> Any:
        """Returns a `pandas.DataFrame`, by way of pyarrow."""
        library("pandas", "to_pandas()")
        library("pyarrow", "to_pandas()")
        return self.to_pyarrow().to_pandas()

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {kind}" for name, kind in self._raw.columns())
        return f"Frame({len(self)} rows; {columns})"
