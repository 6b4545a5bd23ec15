"""Runs of a scenario: their trials, numbers, tables and pictures."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from . import _underload
from ._errors import Error, NoSuchMetric, NoSuchVariant, StoreError
from ._frame import Frame
from ._own import custom_algorithms
from ._plot import Plots
from ._progress import Bar, ProgressListener
from ._scenario import Scenario, Value, _overrides

World = Literal["sim", "live", "auto"]


def run(
    scenario: str | os.PathLike[str] | Scenario,
    *,
    world: World = "sim",
    seed: int | None = None,
    repeats: int | None = None,
    variants: Sequence[str] | None = None,
    short: bool = False,
    set: Mapping[str, Value] | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    threads: int | None = None,
    cache: bool = True,
    progress: bool | Bar | None = None,
) -> Run:
    """Runs every variant of a scenario, each as many times as the scenario repeats it.

    `scenario`: a `Scenario`, the name of a built-in one such as `"comcast/upstream"`, or a file.
    `world`: `sim` (virtual time, the same bytes for the same seed), `live` (network namespaces and
    the kernel's own TCP, in real time; Linux, as root), or `auto`. `seed`, `repeats`, `variants`:
    replace those of the scenario. `short`: runs its short form. `set`: overrides keys by their
    dotted names: `{"path.up": "20mbit"}`. `out`: a new or empty directory, to which trials are
    written as they finish; without it the run is in memory. `resume`: continues the interrupted run
    in `out`. `threads`: trials to run in parallel (default: one per core); the result does not
    depend on it. `cache`: whether runs of many simulated trials use the program's cache.
    `progress`: whether to show a bar, or a function that creates one; by default tqdm, if it is
    installed, in a notebook or on a terminal.

    Other threads of Python run meanwhile. Ctrl-C ends the run within 0.2 s and raises `Interrupted`
    with the finished trials. Raises `ScenarioError`, `RunError` or `StoreError`, and `OwnCodeError`
    if an algorithm of your own (`own()`) fails.
    """
    overrides: dict[str, Any] = {"short": short, "set": set, "variants": variants}
    overrides.update(repeats=repeats, seed=seed)
    if not isinstance(scenario, Scenario):
        name = os.fspath(scenario)
        native = _underload.Scenario.find(name, _overrides(**overrides))
    else:
        is_changed = short or set or variants or repeats is not None or seed is not None
        native = scenario._native(**overrides) if is_changed else scenario._native()
    own = custom_algorithms(scenario, set)
    settings = {
        "world": world,
        "out": None if out is None else os.fspath(out),
        "resume": resume,
        "cache": cache,
        # Python's lock lets one thread run at a time; more threads would only wait for
        # each other.
        "threads": 1 if any(own) else threads,
    }
    listener = ProgressListener(native.name, progress)
    try:
        return Run(_underload.run(native, settings, own, listener))
    finally:
        listener.close()


def try_(
    line: str | None = None, *, out: str | os.PathLike[str] | None = None, **options: Any
) -> Run:
    """Answers a question without a file, as `underload try` does, in the same words:

        ul.try_("cable", router=["cake", "fq_codel@90/9"], upload=True, call=True)

    `line`: `DOWN/UP` in Mbit/s, or a line by name; by default 100/20. `options`: those of the command
    that describe the line, the queues and what is sent, with `_` for `-`; a switch or one transfer is
    `True`, and several values are a list. `out`: as in `run()`. Raises `ScenarioError`."""
    words: list[tuple[str, str]] = []
    for name, value in options.items():
        several = value if isinstance(value, list | tuple) else [value]
        given = [one for one in several if one is not None and one is not False]
        words += [(name.replace("_", "-"), "" if one is True else str(one)) for one in given]
    found = _underload.Scenario.asked(line, words)
    return run(Scenario._of_text(found.name, found.text, found), out=out)


def load(path: str | os.PathLike[str]) -> Run:
    """Reads a run directory, complete or not, or a file of another tool, as `underload report`.

    Raises `StoreError` or `FormatError`, which name what is missing or damaged."""
    if Path(path, "sweep.json").exists():
        raise StoreError(f"{os.fspath(path)}: a sweep; expected underload.Sweep.load()")
    return Run(_underload.load(os.fspath(path), False))


class Run:
    """A run: the records of its trials, and the results that follow from them."""

    def __init__(self, raw: _underload.Run) -> None:
        self._raw = raw
        self._record: dict[str, Any] | None = None
        self.name, self.world, self.seed, self.complete, self.trial_count = raw.facts()
        self.variants: Mapping[str, Variant] = Variants(
            {it[0]: Variant(raw, *it) for it in raw.variants()}
        )

    @property
    def samples(self) -> Frame:
        """A row per probe packet: `trial`, `variant`, `flow`, `sent_ns`, `rtt_ns`, ..."""
        return Frame(self._raw.frame("samples"))

    @property
    def series(self) -> Frame:
        """A row per point of each time series: `trial`, `name`, `time_ns`, `value`."""
        return Frame(self._raw.frame("series"))

    @property
    def trials(self) -> Frame:
        """A row per trial: its variant, seed, validity, and latencies in ns."""
        return Frame(self._raw.frame("trials"))

    @property
    def record(self) -> dict[str, Any]:
        """The content of `run.json` (`docs/reference/run-json.md`)."""
        if self._record is None:
            self._record = json.loads(self._raw.json())
        return self._record

    @property
    def directory(self) -> Path | None:
        """The directory of the run; `None` for a run in memory."""
        path = self._raw.directory
        return None if path is None else Path(path)

    @property
    def plot(self) -> Plots:
        """The plots of the report, by name: `plot.cdf()` is the distribution of latency."""
        return Plots(self._raw.plots())

    @property
    def warnings(self) -> list[str]:
        """Reasons to doubt the numbers, as sentences; empty if there are none."""
        return self._raw.warnings() + self._raw.left_out()

    def table(self) -> str:
        """Returns the table that the program prints."""
        return self._raw.table()

    def summary(self) -> list[str]:
        """Returns the results as sentences."""
        return self._raw.sentences()

    def compare(
        self, variant: str, baseline: str, metric: str = "load.rtt.p99_of_sent"
    ) -> dict[str, Any]:
        """Compares a variant with another, trial by trial: value and baseline_value, the range of
        their quotient over pairs of trials with the same number, and the verdict, such as `lower`,
        `alike` or `not-sure`. A percentile for which a trial has too few probes becomes a lower one.

        `record["comparisons"]` has those that `summary` states. The fields are those of Comparison
        in `docs/reference/run-json.md`. Raises `KeyError` for an unknown variant."""
        for name in (variant, baseline):
            if name not in self.variants:
                raise KeyError(name)
        compared: dict[str, Any] = json.loads(self._raw.compare(variant, baseline, metric) or "{}")
        return compared

    def published(self) -> str:
        """Returns the published numbers of the scenario beside those of this run, with the
        deviations, as `underload figures` prints them; empty if the scenario has no published
        numbers. `record["expectations"]` has the numbers."""
        return self._raw.published()

    def report(self, path: str | os.PathLike[str] = "report.html") -> Path:
        """Writes the report as one page that needs no network. Replaces an existing report; raises
        `ReportError` if another file has the name."""
        self._raw.report(os.fspath(path))
        return Path(path)

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Writes `run.json` and the tables as Parquet to a new or empty directory."""
        self._raw.save(os.fspath(directory))
        return Path(directory)

    def __repr__(self) -> str:
        return "\n".join([self.table(), *self.summary()])

    def _repr_html_(self) -> str:
        import html
        from base64 import b64encode

        parts = [f"<pre>{html.escape(repr(self))}</pre>"]
        for plot in self.plot.shown():
            picture = b64encode(plot.svg.encode()).decode()
            parts.append(
                f'<img alt="{html.escape(plot.title)}" title="{html.escape(plot.caption)}" '
                f'src="data:image/svg+xml;base64,{picture}">'
            )
        return "\n".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="underload-") as folder:
            directory = self.save(os.path.join(folder, "run"))
            files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
            return _unpickled, ({str(it.relative_to(directory)): it.read_bytes() for it in files},)


def _unpickled(files: dict[str, bytes]) -> Run:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="underload-") as folder:
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return Run(_underload.load(folder, True))


class RunError(Error, RuntimeError):
    """A run or measurement that could not start or did not finish. `run` has its finished
    trials; `None` if no trial was finished."""

    run: Run | None

    def __init__(self, message: str, run: object = None) -> None:
        super().__init__(message)
        self.run = _wrapped(run)


class OwnCodeError(RunError):
    """An algorithm of your own raised an exception or returned an invalid answer. The message has
    its class and method, the variant and the trial; `__cause__` is the exception of the algorithm;
    `run` has the trials that were finished before."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run. `run` has the finished trials; `None` if no trial was finished."""

    run: Run | None

    def __init__(self, run: object = None) -> None:
        self.run = _wrapped(run)
        trials = 0 if self.run is None else self.run.trial_count
        super().__init__(f"interrupted; {trials} finished trials are in this exception's `run`")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.run,)


def _wrapped(run: object) -> Run | None:
    if isinstance(run, _underload.Run):
        return Run(run)
    return run if isinstance(run, Run) else None


class Variants(Mapping[str, "Variant"]):
    """The variants of a run by their names."""

    def __init__(self, variants: dict[str, Variant]) -> None:
        self._variants = variants

    def __getitem__(self, name: str) -> Variant:
        try:
            return self._variants[name]
        except KeyError:
            raise NoSuchVariant(name, list(self._variants)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._variants)

    def __len__(self) -> int:
        return len(self._variants)

    def __repr__(self) -> str:
        return repr(self._variants)


class Variant:
    """One variant of a scenario, over all its valid trials."""

    def __init__(self, raw: _underload.Run, name: str, label: str) -> None:
        self._raw = raw
        self.name = name
        """The name of the variant in the scenario."""
        self.label = label
        """A description of the variant."""

    @property
    def idle(self) -> Latency:
        """Round trips without load."""
        return Latency(self, "idle")

    @property
    def working(self) -> Latency:
        """Round trips under load (working latency)."""
        return Latency(self, "load")

    def metric(self, name: str) -> float | None:
        """Returns a metric by its name: `load.rtt.p99` (ms), `goodput.up` (Mbit/s),
        `utilisation.up` (%), `load.sojourn.up.p99` (ms), `drops.up` (%), `FLOW/METRIC`; `None` if
        this run did not measure it. `docs/reference/run-json.md` lists all names. `FLOW.METRIC`, the
        name of a column in a table, is accepted, too.

        Raises `NoSuchMetric`, which is a `KeyError`, for an unknown name."""
        value = self._raw.metric(self.name, name)
        return self._raw.metric(self.name, self._known(name)) if value is None else value

    def values(self, name: str) -> list[float]:
        """Returns a metric of each valid trial, in the order of the repeats: `nan` for a trial
        without it, `inf` for a percentile of all probes sent that falls on a lost one, such as
        `load.rtt.p99_of_sent`. Shape: (trials,)."""
        values = self._raw.metric_over_trials(self.name, name)
        if all(value is None for value in values):
            values = self._raw.metric_over_trials(self.name, self._known(name))
        return [math.nan if value is None else value for value in values]

    def _known(self, name: str) -> str:
        """Returns the name of a metric as records spell it."""
        problem = self._raw.unknown_metric(self.name, name)
        if problem is None:
            return name
        dots = [place for place, letter in enumerate(name) if letter == "."]
        for of_flow in (f"{name[:dot]}/{name[dot + 1:]}" for dot in dots):
            if self._raw.unknown_metric(self.name, of_flow) is None:
                return of_flow
        raise NoSuchMetric(problem)

    def __repr__(self) -> str:
        return f"Variant({self.name!r}: {self.label}; working {self.working!r})"


class Latency:
    """Round trips of a variant's first open-loop probe in one phase, all trials together, in ms.

    Quantiles are nearest-rank: each is a measured value. They are `nan` if no probe was answered,
    and for percentiles of too few samples: p90 needs 50, p95 100, p99 500, p99.9 5000.
    `variant.metric("load.rtt.p99")` returns the value for any number of samples."""

    __slots__ = ("_variant", "_phase")

    def __init__(self, variant: Variant, phase: str) -> None:
        self._variant, self._phase = variant, phase

    def _statistic(self, name: str) -> float:
        value = self._variant._raw.round_trip(self._variant.name, self._phase, name)
        return math.nan if value is None else value

    @property
    def p50(self) -> float:
        """Median, ms."""
        return self._statistic("p50")

    @property
    def p90(self) -> float:
        """90th percentile, ms."""
        return self._statistic("p90")

    @property
    def p95(self) -> float:
        """95th percentile, ms."""
        return self._statistic("p95")

    @property
    def p99(self) -> float:
        """99th percentile, ms."""
        return self._statistic("p99")

    @property
    def p999(self) -> float:
        """99.9th percentile, ms."""
        return self._statistic("p99.9")

    @property
    def max(self) -> float:
        """Largest, ms."""
        return self._statistic("max")

    @property
    def mean(self) -> float:
        """Arithmetic mean, ms."""
        return self._statistic("mean")

    @property
    def loss(self) -> float:
        """Probes lost, %."""
        value = self._variant.metric(f"{self._phase}.loss")
        return math.nan if value is None else value

    def over_trials(self, statistic: str = "p99") -> list[float]:
        """Returns a statistic of each valid trial, ms. Shape: (trials,)."""
        return self._variant.values(f"{self._phase}.rtt.{statistic}")

    def __repr__(self) -> str:
        high = self._variant._raw.highest_told(self._variant.name, self._phase)
        if high is None or high == "p50":
            return f"p50 {self.p50:.2f} ms"
        return f"p50 {self.p50:.2f} ms, {high} {self._statistic(high):.2f} ms"
