"""Divides the units of a sweep into ranges, and stores the results of workers.

This module depends neither on Ray (see `_ray`) nor on how a unit is computed: a pool computes
ranges of units in any order, and a folder stores the results. A range takes about
`SECONDS_OF_BATCH`, estimated from earlier ranges. At most `BATCHES_PER_WORKER` ranges per worker
are submitted, so that no worker waits for its next one and the results in memory are bounded. The
last ranges are smaller, down to an eighth, so that no worker is idle for long at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

SECONDS_OF_BATCH = 1.0
"""The target duration of a range."""
MOST_UNITS = 8_192
"""The most units of a range: their rows are a few megabytes."""
MOST_GROWTH = 8
"""The largest growth from one range to the next, because the units of the first may be quicker than
others."""
BATCHES_PER_WORKER = 2
"""The most submitted ranges per worker."""
LEAST_SHARE = 8
"""The last ranges are smaller than others by at most this factor."""
SECONDS_OF_WAIT = 0.2
"""How long to wait for results before units may be written to the disk."""
SECONDS_OF_FLUSH = 1.0
"""How long units may wait in memory before they are written."""
SECONDS_OF_SILENCE = 30.0
"""After this long without a result a message is printed."""


class Computed(NamedTuple):
    """The result of a range."""

    units: bytes
    """The results of its units, in the form that `_underload.SweepFolder.append` accepts."""
    seconds: float
    """Seconds that the worker computed."""


class Pool(Protocol):
    """Computes ranges of units on some workers."""

    def workers(self) -> int:
        """Returns the number of ranges that the pool computes at the same time now."""

    def submit(self, first: int, end: int) -> Any:
        """Requests the units from `first` to before `end`. Returns a handle of the range."""

    def wait(self, batches: list[Any], seconds: float) -> list[Any]:
        """Returns finished ranges; an empty list if no range finishes in time."""

    def result(self, batch: Any) -> Computed:
        """Returns the result of a finished range. Raises `ClusterError` if it was lost."""

    def cancel(self, batches: list[Any]) -> None:
        """Cancels ranges."""


class Folder(Protocol):
    """Stores units: `_underload.SweepFolder`."""

    def missing(self, first: int) -> tuple[int, int] | None: ...
    def append(self, units: bytes) -> None: ...
    def flush(self) -> None: ...


def compute(
    folder: Folder,
    pool: Pool,
    units: int,
    listener: Callable[[str, Any], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Computes the missing units of a folder on a pool. On return, on an error and on Ctrl-C,
    finished units are stored and the other ranges are cancelled. Raises the error of a lost
    range."""
    submitted: dict[Any, tuple[int, int]] = {}
    size, first = Size(), 0
    heard = flushed = clock()
    try:
        while True:
            most = max(1, pool.workers()) * BATCHES_PER_WORKER
            while len(submitted) < most and (missing := folder.missing(first)) is not None:
                start, end = missing
                first = min(end, start + size.next((units - start) // most))
                submitted[pool.submit(start, first)] = start, first
            if not submitted:
                return
            finished = pool.wait(list(submitted), SECONDS_OF_WAIT)
            for batch in finished:
                # Removed before any step that may fail: a finished range must not be cancelled.
                start, end = submitted.pop(batch)
                computed = pool.result(batch)
                folder.append(computed.units)
                listener("computed", end - start)
                size.learn(end - start, computed.seconds)
            now = clock()
            if now - flushed >= SECONDS_OF_FLUSH:
                flushed = now
                folder.flush()
            if finished:
                heard = now
            elif now - heard >= SECONDS_OF_SILENCE:
                heard = now
                listener("say", f"waiting for {len(submitted)} batches of {pool.workers()} workers")
    finally:
        try:
            pool.cancel(list(submitted))
        finally:
            folder.flush()


class Size:
    """Chooses the sizes of ranges from the durations of earlier ones."""

    def __init__(self) -> None:
        self.units = 1
        self._seconds_per_unit: float | None = None

    def next(self, share: int) -> int:
        """Returns the size of the next range, where `share` is a worker's share of the
        missing units."""
        return max(1, self.units // LEAST_SHARE, min(share, self.units))

    def learn(self, units: int, seconds: float) -> None:
        """Records that a range of this many units took this long."""
        took = max(seconds, 1e-9) / units
        known = self._seconds_per_unit
        # Averages with earlier ranges, because the durations of units differ.
        self._seconds_per_unit = took if known is None else (known + took) / 2
        wanted = int(SECONDS_OF_BATCH / self._seconds_per_unit)
        most = max(self.units, units * MOST_GROWTH)
        self.units = max(1, min(wanted, most, MOST_UNITS))
