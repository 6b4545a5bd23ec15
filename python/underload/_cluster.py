"""Divides the missing trials of a sweep into ranges, and stores the results of workers.

This module depends neither on Ray (see `_ray`) nor on how a trial is computed: a pool computes
ranges of trials in any order, and a folder stores the results. A worker returns the trials that it
finished within `SECONDS_OF_RANGE`; the rest of its range is submitted again. At most
`RANGES_PER_WORKER` ranges per worker are submitted, so that no worker waits for its next one and the
results in memory are bounded. Ranges become smaller toward the end, so that all workers end together.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

SECONDS_OF_RANGE = 1.0
"""How long a worker computes before it returns what it has finished."""
MOST_TRIALS = 8_192
"""The most trials of a range: their rows are a few megabytes."""
RANGES_PER_WORKER = 2
"""The most submitted ranges per worker."""
SECONDS_OF_WAIT = 0.2
"""How long to wait for results before trials may be written to the disk."""
SECONDS_OF_FLUSH = 1.0
"""How long trials may wait in memory before they are written."""
SECONDS_OF_SILENCE = 30.0
"""After this long without a result a message is printed."""


class Pool(Protocol):
    """Computes ranges of trials on some workers."""

    def workers(self) -> int:
        """Returns the number of ranges that the pool computes at the same time now."""

    def submit(self, first: int, end: int) -> Any:
        """Requests the trials from `first` to before `end`. Returns a handle of the range."""

    def wait(self, ranges: list[Any], seconds: float) -> list[Any]:
        """Returns finished ranges; an empty list if no range finishes in time."""

    def result(self, handle: Any) -> bytes:
        """Returns the first trials of a finished range, at least one, in the form that
        `_underload.SweepFolder.append` accepts. Raises `ClusterError` if the range was lost."""

    def cancel(self, ranges: list[Any]) -> None:
        """Cancels ranges."""


class Folder(Protocol):
    """Stores trials: `_underload.SweepFolder`."""

    def missing(self) -> list[tuple[int, int]]: ...
    def append(self, trials: bytes) -> int: ...
    def flush(self) -> None: ...


def compute(
    folder: Folder,
    pool: Pool,
    listener: Callable[[str, Any], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Computes the missing trials of a folder on a pool. On return, on an error and on Ctrl-C,
    finished trials are stored and the other ranges are cancelled. Raises the error of a lost
    range."""
    missing = deque(folder.missing())
    left = sum(end - first for first, end in missing)
    submitted: dict[Any, tuple[int, int]] = {}
    heard = flushed = clock()
    try:
        while missing or submitted:
            most = max(1, pool.workers()) * RANGES_PER_WORKER
            while missing and len(submitted) < most:
                first, end = missing.popleft()
                middle = min(end, first + max(1, min(left // (2 * most), MOST_TRIALS)))
                if middle < end:
                    missing.appendleft((middle, end))
                submitted[pool.submit(first, middle)] = first, middle
            finished = pool.wait(list(submitted), SECONDS_OF_WAIT)
            for handle in finished:
                # A finished range must not be cancelled, so remove it before any step that may fail.
                first, end = submitted.pop(handle)
                trials = folder.append(pool.result(handle))
                listener("computed", trials)
                left -= trials
                if first + trials < end:
                    missing.appendleft((first + trials, end))
            now = clock()
            if now - flushed >= SECONDS_OF_FLUSH:
                flushed = now
                folder.flush()
            if finished:
                heard = now
            elif now - heard >= SECONDS_OF_SILENCE:
                heard = now
                listener("say", f"waiting for {len(submitted)} ranges of {pool.workers()} workers")
    finally:
        try:
            pool.cancel(list(submitted))
        finally:
            folder.flush()
