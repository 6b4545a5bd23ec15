"""Sweeps: a scenario at many settings. Repeating the call continues an interrupted sweep."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from . import _underload
from ._cluster import compute
from ._errors import ClusterError, ScenarioError, StoreError
from ._frame import Frame
from ._optional import library
from ._own import custom_algorithms
from ._progress import Bar, ProgressListener
from ._queue import _spec, _word
from ._run import Interrupted
from ._scenario import Scenario, Value

PATH_KEYS = (
    "up", "down", "up_queue", "down_queue", "rtt", "up_delay", "down_delay", "up_loss",
    "down_loss", "overhead",
)
"""Keys that an axis may name without `path.`."""


class Range(NamedTuple):
    """A range of values, for an axis of a design that draws points at random."""

    first: Value
    last: Value
    steps: int | None
    scale: Literal["linear", "log"]


def linspace(first: Value, last: Value, steps: int | None = None) -> Range:
    """Returns `steps` values from `first` to `last` at equal distances:
    `linspace("5ms", "50ms", 10)`. Without `steps`, designs that draw points take any value."""
    return Range(first, last, steps, "linear")


def logspace(first: Value, last: Value, steps: int | None = None) -> Range:
    """Returns `steps` values from `first` to `last` at equal ratios:
    `logspace("5ms", "200ms", 20)`. Without `steps`, designs that draw points take any value."""
    return Range(first, last, steps, "log")


class Sweep:
    """The directory and the tables of a complete or partial sweep."""

    def __init__(
        self,
        raw: _underload.Sweep,
        directory: Path,
        complete: bool,
        program: str | None = None,
    ) -> None:
        self._raw, self._program = raw, program
        self.directory = directory
        """The directory of the sweep. Repeating the call of `sweep` continues in it."""
        self.complete = complete
        """Whether all trials were computed and the tables are written."""
        self.cell_count, self.trial_count = raw.size

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Sweep:
        """Opens the directory of a sweep, complete or not, that any version of underload computed.
        Raises `StoreError`."""
        path = Path(directory)
        try:
            stored = json.loads((path / "sweep.json").read_text(encoding="utf-8"))
            names = ("name", "text", "scenario", "scenario_text")
            name, text, scenario, scenario_text = (stored[name] for name in names)
            program = stored["program"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path}: no sweep: {error}") from None
        raw = _underload.Sweep.parse(name, text, scenario, scenario_text, {}, program)
        return cls(raw, path, (path / "cells.parquet").exists(), program)

    @property
    def cells(self) -> Frame:
        """A row per cell: the value of each axis, the variant, the number of trials, the mean of
        the mean of each metric over the trials with its interval (`load.rtt.p99.mean`,
        `load.rtt.p99.low`, `load.rtt.p99.high`; `None` if a trial has no value), and the first
        error."""
        folder, _ = self._raw.open(os.fspath(self.directory))
        try:
            return Frame(folder.cells())
        finally:
            folder.close()

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The rows of `cells` with a failed trial, each as a dict."""
        table = self.cells.to_dict()
        rows = [dict(zip(table, values)) for values in zip(*table.values())]
        return [row for row in rows if row["failed"]]

    @property
    def trials_path(self) -> Path:
        """The Parquet file with a row per trial; it exists once the sweep is complete."""
        return self.directory / "trials.parquet"

    def scan(self) -> Any:
        """Returns the trials as a `polars.LazyFrame`, which reads them on demand."""
        return library("polars", "scan()").scan_parquet(self.trials_path)

    def report(self) -> Path:
        """Writes the report as `report.html` into the directory, as `underload sweep` does."""
        return Path(self._raw.report(os.fspath(self.directory)))

    def __reduce__(self) -> tuple[Any, ...]:
        directory = self.directory.absolute()
        return _unpickled, (self._raw.parts, directory, self.complete, self._program)

    def __repr__(self) -> str:
        done = "" if self.complete else ", not complete"
        return f"Sweep({self.cell_count} cells, {self.trial_count} trials{done}; {self.directory})"


def _unpickled(
    parts: tuple[str, str, str, str, dict[str, bytes]],
    directory: Path,
    complete: bool,
    program: str | None,
) -> Sweep:
    return Sweep(_underload.Sweep.parse(*parts, program), directory, complete, program)


def sweep(
    scenario: str | os.PathLike[str] | Scenario,
    axes: Mapping[str, Iterable[Value] | Range],
    *,
    repeats: int | None = None,
    out: str | os.PathLike[str] | None = None,
    design: Literal["grid", "random"] = "grid",
    samples: int | None = None,
    metrics: Sequence[str] = (),
    variants: Sequence[str] = (),
    seed: int | None = None,
    short: bool = False,
    threads: int | None = None,
    on: str = "local",
    progress: bool | Bar | None = None,
) -> Sweep:
    """Runs a scenario at every point of some axes, in virtual time.

    `axes`: the values of each key: a list, an array, `linspace` or `logspace`; `up` abbreviates
    `path.up`, and `up_queue.target` is a parameter of the scenario's `up_queue`. `design`: every
    combination of values (`grid`), or `samples` drawn points (`random`). `repeats`: trials of each
    cell. `metrics`: the columns, by the names that `Variant.metric` takes. `out`: the directory; by
    default one in `sweeps/` whose name depends on the sweep and the program.

    Trials are stored as they finish. After Ctrl-C or a kill, repeating the call continues from the
    stored trials. A trial that fails is a row with its error.

    `on`: the place where trials are computed. `"local"`: on this machine, in `threads` threads
    (default: one per core). `"ray"`, the Ray cluster that this process is connected to or that runs
    on this machine, or `"ray://HOST:PORT"`: on its workers, one processor each. The tables are
    equal byte for byte. The same underload must be installed on every node.

    Raises `ScenarioError` for an invalid axis, `StoreError`, `ClusterError`, and
    `SweepInterrupted` after Ctrl-C.
    """
    if on != "local" and threads is not None:
        raise ClusterError(f"threads={threads}: expected only with on='local', not with on={on!r}")
    if not isinstance(scenario, Scenario):
        scenario = Scenario.load(scenario)
    file: dict[str, Value] = {"design": design}
    wishes = {"samples": samples, "repeats": repeats, "seed": seed}
    file.update({key: value for key, value in wishes.items() if value is not None})
    lists = {"metrics": list(metrics), "variants": list(variants)}
    file.update({key: value for key, value in lists.items() if value})
    if short:
        file["short"] = True
    if any(custom_algorithms(list(axes.values()))):
        raise ScenarioError(
            f"{scenario.name}: axes: a sweep may continue on another machine, and later, "
            "without an algorithm of your own; expected built-in algorithms"
        )
    file["axis"] = [_axis(scenario, key, values) for key, values in axes.items()]
    raw = _underload.Sweep.build(scenario.name, scenario._native(), file)
    folder = Path(out) if out is not None else Path("sweeps", raw.identity[:16])
    listener = ProgressListener(scenario.name, progress)
    try:
        # The user may press Ctrl-C again while the bar is being closed.
        try:
            if on != "local":
                _compute_on_cluster(raw, folder, on, listener)
            _make_parent(folder)
            complete = raw.run(os.fspath(folder), threads, listener)
        finally:
            listener.close()
    except KeyboardInterrupt:
        raise SweepInterrupted(Sweep(raw, folder, False)) from None
    return Sweep(raw, folder, complete)


def _make_parent(folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: its folder cannot be created: {error}") from error


def _compute_on_cluster(
    raw: _underload.Sweep, folder: Path, on: str, listener: ProgressListener
) -> None:
    """Computes the missing trials of a directory on a cluster, and does not write its tables."""
    from ._ray import connected

    def opened() -> tuple[_underload.SweepFolder, str | None]:
        return raw.open(os.fspath(folder))

    if (folder / "sweep.json").exists():
        directory, _ = opened()
        is_computed = not directory.missing()
        directory.close()
        if is_computed:
            return
    with connected(on, raw) as pool:
        _make_parent(folder)
        directory, note = opened()
        try:
            if note is not None:
                listener("say", note)
            _, trials = raw.size
            missing = sum(end - first for first, end in directory.missing())
            listener("start", (trials - missing, trials))
            compute(directory, pool, listener)
        finally:
            directory.close()


class SweepInterrupted(Interrupted):
    """Ctrl-C during a sweep. `sweep` has the finished trials."""

    def __init__(self, sweep: Sweep) -> None:
        super().__init__(None)
        self.sweep = sweep

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.sweep,)

    def __str__(self) -> str:
        return f"interrupted; the finished trials are in {self.sweep.directory}"


def _axis(scenario: Scenario, key: str, values: Iterable[Value] | Range) -> dict[str, Value]:
    first, _, parameter = key.removeprefix("path.").partition(".")
    is_parameter = first in ("up_queue", "down_queue") and parameter != ""
    dotted = f"path.{key}" if key in PATH_KEYS else key
    named = {"key": dotted} if dotted == key else {"name": key, "key": dotted}
    if isinstance(values, Range) and not is_parameter:
        ends = {"from": values.first, "to": values.last, "scale": values.scale}
        steps = {} if values.steps is None else {"steps": values.steps}
        return {**named, **ends, **steps}
    # An array of NumPy is no Sequence.
    is_list = isinstance(values, (list, tuple, Sequence)) or hasattr(values, "tolist")
    if isinstance(values, (str, Range)) or not is_list:
        more = "" if is_parameter else ", linspace() or logspace()"
        raise ScenarioError(
            f"{key}: {values!r}; expected a list of values{more}",
            [("sweep", None, key, "expected a list of values")],
        )
    if not is_parameter:
        return {**named, "values": list(values)}
    queue = scenario._path.get(first)
    if queue is None:
        problem = f"the scenario's path has no {first}; expected {first} as an axis of queues"
        raise ScenarioError(f"{key}: {problem}", [("sweep", None, key, problem)])
    specs = [(_word(value), _spec(str(queue), {parameter: value})) for value in values]
    points = [{"name": name, "path": {first: spec}} for name, spec in specs]
    return {"name": key, "point": points}
