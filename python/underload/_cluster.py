"""Distributes the units of a sweep to workers, and stores their rows.

This module depends neither on Ray (see `_ray`) nor on how a row is computed: a pool computes
batches of units in any order and may lose them, and a folder stores their rows. The rules:

* a batch takes about a second (`SECONDS_OF_BATCH`), estimated from the time per unit of earlier
  batches. A scheduler takes some milliseconds per batch, well below a twentieth;
* at most `BATCHES_PER_WORKER` batches per worker are submitted, so that no worker waits for its
  next batch, and the number of results in memory is bounded;
* the last batches are smaller, down to an eighth, so that no worker computes for a second while
  the others are idle;
* a lost batch is submitted again as a whole, then in halves, so that a unit that kills its workers
  is found; that unit is given up after `TRIES_OF_UNIT` attempts. After `TRIES_WITHOUT_RESULT`
  consecutive lost batches the cluster is at fault, and not a unit: the sweep ends.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ._errors import ClusterError

SECONDS_OF_BATCH = 1.0
"""The target duration of a batch."""
MOST_UNITS = 8_192
"""The most units of a batch: its rows are a few megabytes."""
MOST_GROWTH = 8
"""The largest growth from one batch to the next: the first may have been quick units."""
BATCHES_PER_WORKER = 2
"""The most batches in hand per worker."""
TRIES_OF_UNIT = 3
"""A unit is given up after it was lost alone this many times."""
TRIES_WITHOUT_RESULT = 50
"""The cluster is given up after this many batches in a row were lost."""
MOST_LOST = 10_000
"""The cluster is given up after this many pieces were given up."""
LEAST_SHARE = 8
"""The last batches are at most this many times smaller."""
SECONDS_OF_WAIT = 0.2
"""How long to wait for results before rows may be written to the disk."""
SECONDS_OF_SILENCE = 30.0
"""After this long without a result a message is printed."""


class Rows(NamedTuple):
    """The result of a batch."""

    rows: bytes
    """The rows of its units, as Parquet."""
    seconds: float
    """How long the worker computed."""


class Lost(Exception):
    """A lost batch, and why."""


class Pool(Protocol):
    """Computes batches on some workers."""

    def workers(self) -> int:
        """The number of batches that the pool computes at the same time now."""

    def submit(self, first: int, end: int) -> Any:
        """Requests the units from `first` to before `end`. Returns a handle of the batch."""

    def wait(self, batches: list[Any], seconds: float) -> list[Any]:
        """Returns finished batches; none if none finishes in time."""

    def result(self, batch: Any) -> Rows:
        """Returns the result of a finished batch. `Lost` means that it can be requested again,
        `ClusterError` that it cannot."""

    def cancel(self, batches: list[Any]) -> None:
        """Cancels batches."""


class Folder(Protocol):
    """Stores rows: `_underload.SweepFolder`."""

    def missing(self, first: int) -> tuple[int, int] | None: ...
    def append(self, rows: bytes) -> None: ...
    def tick(self) -> None: ...
    def flush(self) -> None: ...


class Units(NamedTuple):
    """Consecutive units, and how often they were lost."""

    first: int
    end: int
    losses: int


class GivenUp(NamedTuple):
    """Units that were given up, and why."""

    first: int
    end: int
    error: str


def compute(
    folder: Folder,
    pool: Pool,
    units: int,
    hear: Callable[[str, Any], None],
    clock: Callable[[], float] = time.monotonic,
) -> list[GivenUp]:
    """Computes the missing units of a folder on a pool. Returns the units that were given up.
    However it ends, also by Ctrl-C, finished rows are stored and the pool is stopped."""
    work = _Work(folder, pool, units, hear, clock)
    try:
        work.go_on()
    finally:
        try:
            pool.cancel(list(work.in_hand))
        finally:
            folder.flush()
    return work.given_up


class _Work:
    """A running sweep."""

    def __init__(
        self,
        folder: Folder,
        pool: Pool,
        units: int,
        hear: Callable[[str, Any], None],
        clock: Callable[[], float],
    ) -> None:
        self._folder, self._pool, self._units = folder, pool, units
        self._hear, self._clock = hear, clock
        self.in_hand: dict[Any, Units] = {}
        self.given_up: list[GivenUp] = []
        self._again: deque[Units] = deque()
        self._next = 0
        self._size = Size()
        self._losses_in_a_row = 0

    def go_on(self) -> None:
        heard = self._clock()
        while True:
            self._hand_out()
            if not self.in_hand:
                return
            ended = self._pool.wait(list(self.in_hand), SECONDS_OF_WAIT)
            for batch in ended:
                # Removed from `in_hand` before any step that may fail, because an ended
                # batch must not be cancelled.
                units = self.in_hand.pop(batch)
                self._take(units, batch)
            self._folder.tick()
            if ended:
                heard = self._clock()
            elif self._clock() - heard >= SECONDS_OF_SILENCE:
                heard = self._clock()
                batches, workers = len(self.in_hand), self._pool.workers()
                self._hear("say", f"waiting for {batches} batches of {workers} workers")

    def _hand_out(self) -> None:
        most = max(1, self._pool.workers()) * BATCHES_PER_WORKER
        while len(self.in_hand) < most:
            units = self._take_next(most)
            if units is None:
                return
            self.in_hand[self._pool.submit(units.first, units.end)] = units

    def _take_next(self, most_in_hand: int) -> Units | None:
        """The oldest lost batch: no row after it can be ordered before it is there."""
        if self._again:
            return self._again.popleft()
        missing = self._folder.missing(self._next)
        if missing is None:
            return None
        first, end = missing
        share = (self._units - first) // most_in_hand
        least = max(1, self._size.units // LEAST_SHARE)
        self._next = min(end, first + max(least, min(share, self._size.units)))
        return Units(first, self._next, 0)

    def _take(self, units: Units, batch: Any) -> None:
        try:
            rows = self._pool.result(batch)
        except Lost as lost:
            self._lose(units, str(lost))
            return
        self._folder.append(rows.rows)
        left = self._folder.missing(units.first)
        came = units.end if left is None else min(left[0], units.end)
        if came > units.first:
            self._losses_in_a_row = 0
            self._hear("computed", came - units.first)
            self._size.learn(came - units.first, rows.seconds)
        if came < units.end:
            self._lose(units._replace(first=came), "its rows did not come back")

    def _lose(self, units: Units, why: str) -> None:
        self._losses_in_a_row += 1
        first, end, losses = units
        if self._losses_in_a_row >= TRIES_WITHOUT_RESULT:
            raise ClusterError(
                f"{self._losses_in_a_row} batches in a row were lost, the last of them: {why}"
            )
        if losses == 0:
            self._again.append(Units(first, end, 1))
        elif end - first > 1:
            middle = (first + end) // 2
            self._again.extend((Units(first, middle, 1), Units(middle, end, 1)))
        elif losses + 1 < TRIES_OF_UNIT:
            self._again.append(Units(first, end, losses + 1))
        else:
            self.given_up.append(GivenUp(first, end, f"lost {TRIES_OF_UNIT} times: {why}"))
            if len(self.given_up) >= MOST_LOST:
                raise ClusterError(f"{MOST_LOST} units were given up, the last of them: {why}")


class Size:
    """Returns the size of the next batch in units."""

    def __init__(self) -> None:
        self.units = 1
        self._seconds_per_unit: float | None = None

    def learn(self, units: int, seconds: float) -> None:
        """Records that a batch of this many units took this long."""
        took = max(seconds, 1e-9) / units
        known = self._seconds_per_unit
        # The mean includes later batches, because units differ, and no single batch
        # decides.
        self._seconds_per_unit = took if known is None else (known + took) / 2
        wanted = int(SECONDS_OF_BATCH / self._seconds_per_unit)
        most = max(self.units, units * MOST_GROWTH)
        self.units = max(1, min(wanted, most, MOST_UNITS))
