"""Sweeps on other workers, without a cluster: which ranges are submitted, lost and stored."""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import underload as ul
from underload import _cluster, _ray
from underload._cluster import compute

from test_sweep import AXES, scenario


class Kept:
    """A folder in memory: the bytes of trials are their numbers."""

    def __init__(self, trials: int, stored: set[int] | None = None) -> None:
        self.trials, self.stored = trials, set(stored or ())
        self.flushed: set[int] = set(self.stored)

    def missing(self) -> list[tuple[int, int]]:
        bounds = [-1, *sorted(self.stored), self.trials]
        return [(a + 1, b) for a, b in itertools.pairwise(bounds) if a + 1 < b]

    def append(self, trials: bytes) -> int:
        numbers = [int(word) for word in trials.split()]
        self.stored.update(numbers)
        return len(numbers)

    def flush(self) -> None:
        self.flushed = set(self.stored)


class Hostile:
    """A pool that finishes ranges, or the first trials of each, `most` at most, in any order, and
    loses some."""

    def __init__(
        self,
        random: Random,
        workers: int = 2,
        loses: Callable[[int, int], bool] = lambda first, end: False,
        most: int | None = None,
    ) -> None:
        self.random, self.count, self.loses, self.most = random, workers, loses, most
        self.names = itertools.count()
        self.asked: dict[int, tuple[int, int]] = {}
        self.all_asked: list[tuple[int, int]] = []
        self.computed: list[int] = []
        self.cancelled: list[int] = []
        self.most_in_hand = 0
        self.waits = 0

    def workers(self) -> int:
        return self.count

    def submit(self, first: int, end: int) -> int:
        assert first < end
        name = next(self.names)
        self.asked[name] = first, end
        self.all_asked.append((first, end))
        self.most_in_hand = max(self.most_in_hand, len(self.asked))
        return name

    def wait(self, batches: list[int], seconds: float) -> list[int]:
        assert batches and set(batches) == set(self.asked)
        self.waits += 1
        return self.random.sample(batches, self.random.randint(0, len(batches)))

    def result(self, batch: int) -> bytes:
        first, end = self.asked.pop(batch)
        if self.loses(first, end):
            raise ul.ClusterError("lost a range: WorkerCrashedError: the worker died")
        if self.most is not None:
            end = min(end, first + self.random.randint(1, self.most))
        self.computed += range(first, end)
        return " ".join(map(str, range(first, end))).encode()

    def cancel(self, batches: list[int]) -> None:
        self.cancelled += batches


def quiet(kind: str, value: Any) -> None:
    pass


@settings(deadline=None)
@given(
    trials=st.integers(0, 300),
    stored=st.sets(st.integers(0, 299)),
    workers=st.integers(0, 5),
    seed=st.integers(0, 2**32),
    most=st.sampled_from((None, 1, 3, 1_000)),
)
def test_every_missing_unit_is_computed_once(
    trials: int, stored: set[int], workers: int, seed: int, most: int | None
) -> None:
    """Units are stored once in any order in which ranges finish."""
    stored = {it for it in stored if it < trials}
    folder = Kept(trials, stored)
    pool = Hostile(Random(seed), workers, most=most)
    told = []
    compute(folder, pool, lambda kind, value: told.append((kind, value)))
    assert folder.stored == folder.flushed == set(range(trials))
    assert pool.most_in_hand <= max(1, workers) * _cluster.RANGES_PER_WORKER
    assert not pool.asked and pool.cancelled == []
    assert sorted(pool.computed) == sorted(set(range(trials)) - stored)
    assert sum(value for kind, value in told if kind == "computed") == len(pool.computed)


def test_a_lost_range_ends_the_sweep_and_the_others_are_stored() -> None:
    folder = Kept(2_000)
    pool = Hostile(Random(1), loses=lambda first, end: first <= 777 < end)
    with pytest.raises(ul.ClusterError, match="WorkerCrashedError"):
        compute(folder, pool, quiet)
    assert folder.flushed == folder.stored and len(folder.stored) > 100
    assert sorted(pool.cancelled) == sorted(pool.asked)
    compute(folder, Hostile(Random(2)), quiet)
    assert folder.missing() == []


def test_the_last_ranges_are_small() -> None:
    folder, pool = Kept(4_000), Hostile(Random(8), workers=3)
    compute(folder, pool, quiet)
    sizes = [end - first for first, end in pool.all_asked]
    assert sizes[0] == 4_000 // 12 and sizes == sorted(sizes, reverse=True)
    assert sizes[-6:] == [1] * 6 and len(sizes) < 120


def test_an_error_cancels_submitted_ranges_and_stores_finished_ones() -> None:
    class Broken(Hostile):
        def result(self, batch: int) -> bytes:
            if len(folder.stored) >= 20:
                raise KeyboardInterrupt
            return super().result(batch)

    folder, pool = Kept(1_000), Broken(Random(4), workers=3, most=5)
    with pytest.raises(KeyboardInterrupt):
        compute(folder, pool, quiet)
    assert folder.flushed == folder.stored and len(folder.stored) >= 20
    assert len(pool.cancelled) == len(pool.asked) - 1
    again = Hostile(Random(5))
    before = set(folder.stored)
    compute(folder, again, quiet)
    assert folder.missing() == []
    assert not any(set(range(*it)) & before for it in again.all_asked)


def test_long_waits_are_reported() -> None:
    now = itertools.count(0, 10)

    class Silent(Hostile):
        def wait(self, batches: list[int], seconds: float) -> list[int]:
            self.waits += 1
            return batches if self.waits == 7 else []

    said: list[Any] = []
    folder, pool = Kept(1), Silent(Random(6), workers=7)
    hear = lambda kind, value: said.append(value) if kind == "say" else None  # noqa: E731
    compute(folder, pool, hear, clock=lambda: float(next(now)))
    assert said == ["waiting for 1 ranges of 7 workers"] * 2


class Threads:
    """A pool of threads. Each creates a separate sweep from the data that a worker receives."""

    def __init__(self, raw: Any, workers: int) -> None:
        self.executor = ThreadPoolExecutor(workers)
        self.raw, self.count, self.results = raw, workers, 0

    def workers(self) -> int:
        return self.count

    def submit(self, first: int, end: int) -> Future[bytes]:
        worker = type(self.raw).parse(*self.raw.parts)
        assert worker.identity == self.raw.identity
        # Computes at most two trials, as a slow worker would.
        return self.executor.submit(lambda: worker.compute(first, min(end, first + 2), 1.0))

    def wait(self, batches: list[Future[bytes]], seconds: float) -> list[Future[bytes]]:
        return list(wait(batches, seconds, FIRST_COMPLETED).done)

    def result(self, batch: Future[bytes]) -> bytes:
        self.results += 1
        return batch.result()

    def cancel(self, batches: list[Future[bytes]]) -> None:
        for batch in batches:
            batch.cancel()


def tables(folder: Path) -> list[str]:
    names = ("cells.parquet", "trials.parquet")
    return [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names]


def swept_by(
    monkeypatch: pytest.MonkeyPatch, pool: Callable[[Any], Any], out: Path, **more: Any
) -> ul.Sweep:
    """Runs `ul.sweep` on a pool in place of Ray's."""

    class Connected:
        def __init__(self, on: str, raw: Any) -> None:
            assert on == "ray"
            self.pool = pool(raw)

        def __enter__(self) -> Any:
            return self.pool

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(_ray, "connected", Connected)
    return ul.sweep(scenario(), AXES, repeats=3, out=out, on="ray", **more)


def test_a_cluster_writes_the_same_tables_as_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = ul.sweep(scenario(), AXES, repeats=3, out=tmp_path / "here")
    there = swept_by(monkeypatch, lambda raw: Threads(raw, 3), tmp_path / "there")
    assert there.complete and there.failed == []
    assert tables(ours.directory) == tables(there.directory)
    names = [{path.name for path in it.directory.iterdir()} for it in (ours, there)]
    assert names[0] == names[1]

    def nobody(raw: Any) -> Any:
        raise AssertionError("a sweep that is complete needs no cluster")

    assert swept_by(monkeypatch, nobody, tmp_path / "there").complete
    assert swept_by(monkeypatch, nobody, tmp_path / "here").complete


class Stopped(Threads):
    """Interrupts the sweep by Ctrl-C while it waits for its fourth batch."""

    def result(self, batch: Future[bytes]) -> bytes:
        if self.results > 6:
            raise KeyboardInterrupt
        return super().result(batch)


def test_ctrl_c_stores_finished_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ul.SweepInterrupted) as stopped:
        swept_by(monkeypatch, lambda raw: Stopped(raw, 2), tmp_path / "sweep")
    kept = stopped.value.sweep
    assert not kept.complete and 0 < sum(kept.cells.column("trials")) < 36
    assert swept_by(monkeypatch, lambda raw: Threads(raw, 2), tmp_path / "sweep").complete


def test_a_second_ctrl_c_loses_no_finished_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StoppedTwice(Stopped):
        def cancel(self, batches: list[Future[bytes]]) -> None:
            raise KeyboardInterrupt

    with pytest.raises(ul.SweepInterrupted) as stopped:
        swept_by(monkeypatch, lambda raw: StoppedTwice(raw, 2), tmp_path / "sweep")
    assert 0 < sum(stopped.value.sweep.cells.column("trials")) < 36
    assert swept_by(monkeypatch, lambda raw: Threads(raw, 2), tmp_path / "sweep").complete


def test_damaged_units_end_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Garbled(Threads):
        def result(self, batch: Future[bytes]) -> bytes:
            return batch.result()[:-9]

    with pytest.raises(ul.StoreError):
        swept_by(monkeypatch, lambda raw: Garbled(raw, 2), tmp_path / "sweep")
    assert swept_by(monkeypatch, lambda raw: Threads(raw, 2), tmp_path / "sweep").complete


def test_an_invalid_or_unreachable_cluster_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swept(on: str, **more: Any) -> None:
        ul.sweep(scenario(), AXES, out=tmp_path / "new" / "sweep", on=on, **more)

    for on in ("dask", "", "ray:", "ray://", "ray://:1", "ray://host:port", "ray://host:1:2"):
        with pytest.raises(ul.ClusterError, match='expected "local", "ray" or'):
            swept(on)
    with pytest.raises(ul.ClusterError, match="threads=3"):
        swept("ray", threads=3)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ul.MissingLibrary, match=r"pip install 'underload\[ray\]'"):
        swept("ray")

    # Python treats a folder of that name as a module.
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    with pytest.raises(ul.MissingLibrary, match=r"pip install 'underload\[ray\]'"):
        swept("ray://127.0.0.1:1")

    def refuses(**_: object) -> None:
        raise ConnectionError("nobody there\nfor long")

    nowhere = SimpleNamespace(init=refuses, is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "ray", nowhere)
    for on in ("ray", "ray://127.0.0.1:1"):
        with pytest.raises(ul.ClusterError, match=f"{on}.*ray start.*nobody there"):
            swept(on)

    def aborts(**_: object) -> None:
        raise ConnectionAbortedError("the server:\nTraceback\n\nRuntimeError: no port\n")

    monkeypatch.setattr(nowhere, "init", aborts)
    with pytest.raises(ul.ClusterError, match="accepts no clients.*the server:.*no port"):
        swept("ray://127.0.0.1:1")
    monkeypatch.setattr(nowhere, "is_initialized", lambda: True)
    with pytest.raises(ul.ClusterError, match='connected to a Ray cluster already; on="ray"'):
        swept("ray://127.0.0.1:1")
    assert not (tmp_path / "new").exists()


def test_another_underload_is_refused_with_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    task = _ray._task()
    words = task(("0.0.1", "abcdef"), (None, ""), 0, 1)
    assert isinstance(words, str)
    for part in ("0.0.1 (abcdef)", f"{ul.__version__} ({ul.__commit__})", "install the same"):
        assert part in words
    monkeypatch.setitem(sys.modules, "underload", None)
    words = task(("0.0.1", "abcdef"), (None, ""), 0, 1)
    assert isinstance(words, str) and "has no underload" in words


def test_a_worker_with_other_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions without a known commit are compared by the bytes of the module."""
    raw = ul._underload.Sweep.build("swept", scenario()._native(), {"repeats": 1})
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get=lambda parcel: parcel))
    monkeypatch.setattr(_ray, "_KNOWN", {})
    assert _ray.work("here", (raw.parts, raw.identity), 0, 1) == raw.compute(0, 1, 1.0)
    assert list(_ray._KNOWN) == [raw.identity]
    words = _ray.work("here", (raw.parts, "another"), 0, 1)
    assert isinstance(words, str) and "another build of underload" in words
