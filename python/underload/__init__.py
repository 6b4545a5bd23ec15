"""Measures, explains and fixes latency under load.

    import underload as ul

    run = ul.run("comcast/upstream", short=True)
    run.variants["docsis-pie-35"].working.p95   # ms
    run.samples.to_polars()                 # or pandas, pyarrow, DuckDB: nothing is copied

The package runs the same code as the program `underload`: equal scenarios and seeds give equal
bytes. Numbers without a unit in their name are milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import _underload
from ._errors import (
    ClusterError,
    DocsisError,
    EnvError,
    Error,
    Fault,
    FormatError,
    MissingLibrary,
    NoSuchColumn,
    NoSuchMetric,
    NoSuchVariant,
    PacketsError,
    ReportError,
    ScenarioError,
    ScenarioTypeError,
    SpecError,
    StatisticsError,
    StoreError,
)
from ._frame import Frame
from ._line import history, measure
from ._own import Aqm, CongestionControl, OwnControl, OwnQueue, Verdict, own
from ._plot import Plot, Plots
from ._queue import Event, Link, Packet, Queue, link, queue, queues, replay
from ._run import Interrupted, Latency, OwnCodeError, Run, RunError, Variant, load, run, try_
from ._scenario import Application, Flow, Probe, Scenario, Tcp, Udp, scenarios
from ._sweep import Range, Sweep, SweepInterrupted, linspace, logspace, sweep
from ._underload import Ack, Backlog, CongestionEvent, PacketMeta

if TYPE_CHECKING:
    from . import docsis, stats

__version__ = _underload.VERSION
__commit__ = _underload.COMMIT

__all__ = [
    "Ack",
    "Application",
    "Aqm",
    "Backlog",
    "ClusterError",
    "CongestionControl",
    "CongestionEvent",
    "DocsisError",
    "EnvError",
    "Error",
    "Event",
    "Fault",
    "Flow",
    "FormatError",
    "Frame",
    "Interrupted",
    "Latency",
    "Link",
    "MissingLibrary",
    "NoSuchColumn",
    "NoSuchMetric",
    "NoSuchVariant",
    "OwnCodeError",
    "OwnControl",
    "OwnQueue",
    "Packet",
    "PacketMeta",
    "PacketsError",
    "Plot",
    "Plots",
    "Probe",
    "Queue",
    "Range",
    "ReportError",
    "Run",
    "RunError",
    "Scenario",
    "ScenarioError",
    "ScenarioTypeError",
    "SpecError",
    "StatisticsError",
    "StoreError",
    "Sweep",
    "SweepInterrupted",
    "Tcp",
    "Udp",
    "Variant",
    "Verdict",
    "docsis",
    "env",
    "history",
    "linspace",
    "link",
    "load",
    "logspace",
    "measure",
    "own",
    "queue",
    "queues",
    "replay",
    "run",
    "scenarios",
    "stats",
    "sweep",
    "try_",
]

_MODULES = ("docsis", "environments", "stats")


def env(kind: str, **settings: Any) -> Any:
    """Returns a Gymnasium environment over the simulator: in `"congestion-control"` the agent
    chooses the window of a flow, in `"queue"` how often a queue signals. `settings` are the
    arguments of `underload.environments.CongestionControl` or `QueueManagement`.

    Raises `EnvError` for another `kind`, `MissingLibrary` without gymnasium or NumPy.
    """
    from ._optional import library

    library("numpy", "env()")
    library("gymnasium", "env()")
    from . import environments

    known = {
        "congestion-control": environments.CongestionControl,
        "queue": environments.QueueManagement,
    }
    if kind not in known:
        raise EnvError(f"{kind!r}; expected {' or '.join(known)}")
    return known[kind](**settings)


def __getattr__(name: str) -> Any:
    # These modules are imported at their first use.
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
