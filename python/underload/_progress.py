"""Progress bars of runs and sweeps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Bar = Callable[..., Any]
"""Creates a progress bar by tqdm's protocol: called with `total`, `desc` and `unit`, it returns an
object with `update(n)` and `close()`."""


class ProgressListener:
    """Receives the events of the native module and shows a progress bar."""

    def __init__(self, name: str, progress: bool | Bar | None) -> None:
        self._name = name
        self._make = _bar(progress)
        self._shown: Any = None

    def __call__(self, kind: str, value: Any) -> None:
        """Receives an event: `start` (the number of trials, or of finished ones and of all), `finished`
        (a trial), `computed` (a number of trials), `say` (a line)."""
        if self._make is None:
            return
        if kind == "start":
            self.close()
            done, total = value if isinstance(value, tuple) else (0, value)
            self._shown = self._make(total=total, desc=self._name, unit="trial")
            if done:
                self._shown.update(done)
        elif kind == "say":
            print(f"underload: {value}", file=sys.stderr)
        elif self._shown is not None:
            self._shown.update(value if kind == "computed" else 1)

    def close(self) -> None:
        """Removes the bar."""
        if self._shown is not None:
            self._shown.close()
            self._shown = None


def _bar(progress: bool | Bar | None) -> Bar | None:
    if progress is False:
        return None
    if progress is None or progress is True:
        is_interactive = "ipykernel" in sys.modules or sys.stderr.isatty()
        if progress is None and not is_interactive:
            return None
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return None
        return tqdm  # type: ignore[no-any-return, unused-ignore]
    return progress
