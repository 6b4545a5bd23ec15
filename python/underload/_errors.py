"""What can go wrong, in the words of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ._run import Run


class Error(Exception):
    """Every error of this package that is not one of Python's own."""


class Fault(NamedTuple):
    """One thing that is wrong with a scenario."""

    scenario: str
    """File or name of the scenario."""
    line: int | None
    """Line in the file, from 1; `None` where it was built in code."""
    key: str
    """Dotted key, for example `path.up_queue`; empty for the whole scenario."""
    problem: str
    """What is wrong, and what would be accepted."""


class ScenarioError(Error, ValueError):
    """A scenario that cannot be run as it is; `faults` has all that is wrong with it."""

    faults: tuple[Fault, ...]

    def __init__(
        self, message: str, faults: list[tuple[str, int | None, str, str]] | None = None
    ) -> None:
        super().__init__(message)
        self.faults = tuple(Fault(*fault) for fault in faults or ())

    def __reduce__(self) -> tuple[type, tuple[str, list[Fault]]]:
        return type(self), (str(self), list(self.faults))

    @property
    def key(self) -> str:
        """The key of the first fault, for example `path.up_queue`; empty if none is at fault."""
        return self.faults[0].key if self.faults else ""


class ScenarioTypeError(Error, TypeError):
    """A value of a type that no scenario can hold."""

    key: str
    """The key that it was given for."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self._problem = problem

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.key, self._problem)


class SpecError(Error, ValueError):
    """A queue or a link that does not exist, or not with such parameters."""


class RunError(Error, RuntimeError):
    """A run that could not begin or did not come to its end; `run` is what was finished of it."""

    run: Run | None

    def __init__(self, message: str, run: object = None) -> None:
        super().__init__(message)
        self.run = _wrapped(run)


class OwnCodeError(RunError):
    """An algorithm of your own that raised, or answered what it cannot: its class and method, the
    arm and the trial. `__cause__` is its exception, with the traceback; `run` the trials that were
    finished before."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; `run` has the trials that were finished, or is `None`."""

    run: Run | None

    def __init__(self, run: object = None) -> None:
        self.run = _wrapped(run)
        trials = 0 if self.run is None else self.run.trial_count
        super().__init__(f"interrupted; {trials} finished trials are in this exception's `run`")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.run,)


class ClusterError(Error, RuntimeError):
    """Workers elsewhere that are not there, not the same, or lost again and again; what came back
    by then is kept."""


class StoreError(Error, OSError):
    """A run directory that cannot be read or written."""


class FormatError(Error, ValueError):
    """A file that holds no run, of this program or of one whose files it knows."""


class ReportError(Error, RuntimeError):
    """A report that cannot be made or written."""


class NoSuchColumn(Error, KeyError):
    """A column that a table does not have."""

    def __init__(self, name: str, names: list[str]) -> None:
        super().__init__(name, names)
        self.name, self.names = name, names

    def __str__(self) -> str:
        return f"no column `{self.name}`; there are {', '.join(self.names)}"


class NoSuchArm(Error, KeyError):
    """An arm that a run does not have."""

    def __init__(self, name: str, names: list[str]) -> None:
        super().__init__(name, names)
        self.name, self.names = name, names

    def __str__(self) -> str:
        return f"no arm `{self.name}`; there are {', '.join(self.names)}"


class NoSuchMetric(Error, KeyError):
    """A name that is no metric's."""

    def __str__(self) -> str:
        return str(self.args[0])


class PacketsError(Error, ValueError):
    """Columns of packets that cannot be: the column, the packet's place, what would be accepted."""


class StatisticsError(Error, ValueError):
    """Numbers of which a statistic cannot be had."""


class DocsisError(Error, ValueError):
    """A cable modem's file, or a text of one, that is none, and where."""


class EnvError(Error, ValueError):
    """An environment that cannot be: what is wrong, and what would be accepted."""


class MissingLibrary(Error, ImportError):
    """A library that something needs and that is not installed."""


def _wrapped(run: object) -> Run | None:
    from . import _run, _underload

    if isinstance(run, _underload.Run):
        return _run.Run(run)
    return run if isinstance(run, _run.Run) else None
