"""The exceptions of this package, with the messages of the program. `_run` defines the exceptions
that have the finished trials of a run."""

from __future__ import annotations

from typing import NamedTuple


class Error(Exception):
    """The base of all exceptions of this package, except Python's own."""


class Fault(NamedTuple):
    """A fault of a scenario."""

    scenario: str
    """The file or name of the scenario."""
    line: int | None
    """The line in the file, from 1; `None` for a scenario built in code."""
    key: str
    """Dotted key, for example `path.up_queue`; empty for the whole scenario."""
    problem: str
    """What is wrong, and what is accepted."""


class ScenarioError(Error, ValueError):
    """A scenario that cannot be run; `faults` lists everything that is wrong."""

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
        """The key of the first fault, for example `path.up_queue`; empty for a fault of the whole
        scenario."""
        return self.faults[0].key if self.faults else ""


class ScenarioTypeError(Error, TypeError):
    """A value whose type no key of a scenario accepts."""

    key: str
    """The key of the value."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self._problem = problem

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.key, self._problem)


class SpecError(Error, ValueError):
    """The name of a queue or link that does not exist, or parameters that it does not have."""


class ClusterError(Error, RuntimeError):
    """Workers of a cluster that cannot be reached, have another version, or were lost. Finished
    results are stored."""


class StoreError(Error, OSError):
    """A run directory that cannot be read or written."""


class FormatError(Error, ValueError):
    """A file that is neither a run of this program nor one of the other formats that it reads."""


class ReportError(Error, RuntimeError):
    """A report that cannot be created or written."""


class NoSuchColumn(Error, KeyError):
    """A name that is not a column of the table."""

    def __init__(self, name: str, names: list[str]) -> None:
        super().__init__(name, names)
        self.name, self.names = name, names

    def __str__(self) -> str:
        return f"no column `{self.name}`; there are {', '.join(self.names)}"


class NoSuchVariant(Error, KeyError):
    """A name that is not a variant of the run."""

    def __init__(self, name: str, names: list[str]) -> None:
        super().__init__(name, names)
        self.name, self.names = name, names

    def __str__(self) -> str:
        return f"no variant `{self.name}`; there are {', '.join(self.names)}"


class NoSuchMetric(Error, KeyError):
    """A name that is not a metric."""

    def __str__(self) -> str:
        return str(self.args[0])


class PacketsError(Error, ValueError):
    """Invalid columns of packets. The message has the column, the index of the packet, and what is
    accepted."""


class StatisticsError(Error, ValueError):
    """Numbers for which a statistic is not defined."""


class DocsisError(Error, ValueError):
    """An invalid cable modem file, or an invalid text form of one. The message says what is wrong
    and where."""


class EnvError(Error, ValueError):
    """Invalid settings of an environment. The message says what is wrong and what is accepted."""


class MissingLibrary(Error, ImportError):
    """A required library that is not installed."""
