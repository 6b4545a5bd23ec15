"""Sweeps: one call for a million trials, none of which is computed twice."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from . import _underload
from ._cluster import GivenUp, compute
from ._errors import ClusterError, Interrupted, ScenarioError, StoreError
from ._frame import Frame
from ._optional import library
from ._own import brought
from ._progress import Bar, Hearing
from ._scenario import Scenario, Value

PATH_KEYS = (
    "up", "down", "up_queue", "down_queue", "rtt", "up_delay", "down_delay", "up_loss",
    "down_loss", "overhead",
)
"""Keys that an axis may name without `path.`."""


class Range(NamedTuple):
    """The values between two, for an axis of a design that draws points."""

    first: Value
    last: Value
    steps: int | None
    scale: Literal["linear", "log"]


def linspace(first: Value, last: Value, steps: int | None = None) -> Range:
    """Returns `count` values from one to another by equal amounts: `linspace("5ms", "50ms", 10)`.
    """
    return Range(first, last, steps, "linear")


def logspace(first: Value, last: Value, steps: int | None = None) -> Range:
    """Returns `count` values from one to another by equal factors: `logspace("5ms", "200ms", 20)`.
    """
    return Range(first, last, steps, "log")


class Sweep:
    """A complete or partial sweep: its directory and its tables."""

    def __init__(
        self,
        raw: _underload.Sweep,
        directory: Path,
        complete: bool,
        given_up: Sequence[GivenUp] = (),
    ) -> None:
        self._raw = raw
        self._given_up = given_up
        self.directory = directory
        """The directory; the same sweep in the same directory continues there."""
        self.complete = complete
        """Whether every row was computed."""
        self.cell_count, self.trial_count, _ = raw.size

    @property
    def cells(self) -> Frame:
        """A row per cell: its value of each axis, its variant, trials, and each metric's mean with its
        interval (`load.rtt.p99`, `load.rtt.p99.low`, `load.rtt.p99.high`); why it failed."""
        folder, _ = self._raw.open(os.fspath(self.directory))
        try:
            return Frame(folder.cells())
        finally:
            folder.close()

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The cells that failed, with their errors; and those that a cluster could not compute,
        which the same call tries again."""
        table = self.cells.to_dict()
        rows = dict(zip(table["cell"], range(len(table["cell"]))))
        failed = {cell: table["error"][row] for cell, row in rows.items() if table["failed"][row]}
        for first, end, error in self._given_up:
            failed.update(dict.fromkeys(range(*self._raw.cells_of(first, end)), error))
        listed = []
        for cell, error in sorted(failed.items()):
            values, variant = self._raw.place(cell)
            known = {**dict.fromkeys(table), "cell": cell, **dict(values), "variant": variant}
            if cell in rows:
                known = {name: table[name][rows[cell]] for name in table}
            listed.append({**known, "error": error})
        return listed

    @property
    def trials_path(self) -> Path:
        """The Parquet file with a row per trial, which a complete sweep has."""
        return self.directory / "trials.parquet"

    def scan(self) -> Any:
        """The trials as a `polars.LazyFrame`, which reads them on demand."""
        return library("polars", "scan()").scan_parquet(self.trials_path)

    def __reduce__(self) -> tuple[Any, ...]:
        texts, files = self._raw.texts, self._raw.files
        kept = self.directory.absolute(), self.complete, tuple(self._given_up)
        return _unpickled, (texts, files, *kept)

    def __repr__(self) -> str:
        done = "" if self.complete else ", not complete"
        return f"Sweep({self.cell_count} cells, {self.trial_count} trials{done}; {self.directory})"


def _unpickled(texts: tuple[str, str, str, str], files: dict[str, bytes], *kept: Any) -> Sweep:
    return Sweep(_underload.Sweep.parse(*texts, files), *kept)


def sweep(
    scenario: str | os.PathLike[str] | Scenario,
    axes: Mapping[str, Sequence[Value] | Range],
    *,
    repeats: int | None = None,
    out: str | os.PathLike[str] | None = None,
    design: Literal["grid", "random", "latin-hypercube"] = "grid",
    samples: int | None = None,
    metrics: Sequence[str] = (),
    stop: Mapping[str, Value] | None = None,
    variants: Sequence[str] = (),
    seed: int | None = None,
    short: bool = False,
    threads: int | None = None,
    on: str = "local",
    progress: bool | Bar | None = None,
) -> Sweep:
    """Runs a scenario at every point of some axes, in virtual time.

    `axes`: the values of each key: a list, `linspace` or `logspace`; `up` stands for `path.up`.
    `design`: every value with every other (`grid`), or `samples` points that are drawn (`random`,
    `latin-hypercube`). `repeats`: trials of each cell, at most. `metrics`: the columns, by the
    names that `Variant.metric` takes. `stop`: when a cell knows enough:
    `{"metric": "load.rtt.p99", "within_percent": 5}`. `out`: its directory; by default one in
    `sweeps/` that is named by what is computed: the same call finds what it computed before.

    Rows go to the disk while it goes on. Ctrl-C, or a kill, keeps them, and the same call goes on
    where it was. A cell that fails is a row with its error. Memory does not grow with the sweep.

    `on`: who computes. `"local"`: this machine, on `threads` threads, one per core. `"ray"`, the
    Ray cluster that this process is connected to or that runs on this machine, or
    `"ray://HOST:PORT"`: its workers, a processor each; the tables are the same, byte for byte. The
    same underload must be installed on every node. A cell whose workers die again and again is in
    `failed`; the others are kept, and the same call tries it again.

    Raises `ScenarioError` with the axis at fault, `StoreError`, `ClusterError`.
    """
    if on != "local" and threads is not None:
        raise ClusterError(f"threads={threads} is of this machine; a cluster has its own")
    if not isinstance(scenario, Scenario):
        scenario = Scenario.load(scenario)
    file: dict[str, Value] = {"design": design}
    wishes = {"samples": samples, "repeats": repeats, "seed": seed}
    file.update({key: value for key, value in wishes.items() if value is not None})
    lists = {"metrics": list(metrics), "variants": list(variants)}
    file.update({key: value for key, value in lists.items() if value})
    if short:
        file["short"] = True
    if stop is not None:
        file["stop"] = dict(stop)
    if any(brought(list(axes.values()))):
        raise ScenarioError(
            f"{scenario.name}: axes: a sweep may continue on another machine, and later, where an "
            "algorithm of one's own is not; expected those of the program"
        )
    file["axis"] = [_axis(key, values) for key, values in axes.items()]
    raw = _underload.Sweep.build(scenario.name, scenario._native(), file)
    folder = Path(out) if out is not None else Path("sweeps", raw.identity[:16])
    hearing = Hearing(scenario.name, "unit", progress)
    given_up: list[GivenUp] = []
    try:
        # Ctrl-C may come again while the bar is closed.
        try:
            if on != "local":
                given_up = _elsewhere(raw, folder, on, hearing)
            if not given_up:
                _make_parent(folder)
                complete = raw.run(os.fspath(folder), threads, hearing)
        finally:
            hearing.close()
    except KeyboardInterrupt:
        raise SweepInterrupted(Sweep(raw, folder, False)) from None
    if given_up:
        cells = {cell for it in given_up for cell in range(*raw.cells_of(it.first, it.end))}
        what = f"{len(cells)} cells could not be computed, the last of them: {given_up[-1].error}"
        warnings.warn(f"{what}; the same call tries them again", stacklevel=2)
        complete = False
    return Sweep(raw, folder, complete, given_up)


def _make_parent(folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: its folder cannot be made: {error}") from error


def _elsewhere(
    raw: _underload.Sweep, folder: Path, on: str, hearing: Hearing
) -> list[GivenUp]:
    """Computes the missing rows of a directory on a cluster, without its final tables."""
    from ._ray import connected

    path = os.fspath(folder)
    if (folder / "sweep.json").exists():
        kept, _ = raw.open(path)
        is_there = kept.missing(0) is None
        kept.close()
        if is_there:
            return []
    with connected(on, raw) as pool:
        _make_parent(folder)
        kept, notes = raw.open(path)
        try:
            for note in notes:
                hearing("say", note)
            _, _, units = raw.size
            hearing("start", (kept.stored, units))
            return compute(kept, pool, units, hearing)
        finally:
            kept.close()


class SweepInterrupted(Interrupted):
    """Ctrl-C during a sweep; `sweep` has the rows that were computed."""

    def __init__(self, sweep: Sweep) -> None:
        super().__init__(None)
        self.sweep = sweep

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.sweep,)

    def __str__(self) -> str:
        return f"interrupted; what was computed is in {self.sweep.directory}"


def _axis(key: str, values: Sequence[Value] | Range) -> dict[str, Value]:
    dotted = f"path.{key}" if key in PATH_KEYS else key
    named = {"key": dotted} if dotted == key else {"name": key, "key": dotted}
    if isinstance(values, Range):
        ends = {"from": values.first, "to": values.last, "scale": values.scale}
        steps = {} if values.steps is None else {"steps": values.steps}
        return {**named, **ends, **steps}
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ScenarioError(
            f"{key}: {values!r}; expected a list of values, linspace() or logspace()",
            [("sweep", None, key, "expected a list of values")],
        )
    return {**named, "values": list(values)}
