"""Measures, explains and fixes latency under load.

    import underload as ul

    run = ul.run("comcast/upstream", short=True)
    run.variants["docsis-pie-35"].working.p99   # ms
    run.samples.to_polars()                 # or pandas, pyarrow, DuckDB: nothing is copied

Everything is the program's own: the same scenarios, disciplines, transports and statistics, and
the same bytes for the same seed. Times are milliseconds where a number has no unit in its name.
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
    Interrupted,
    MissingLibrary,
    NoSuchColumn,
    NoSuchMetric,
    NoSuchVariant,
    OwnCodeError,
    PacketsError,
    ReportError,
    RunError,
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
from ._run import Latency, Run, Variant, load, run
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
]

_MODULES = ("docsis", "environments", "stats")


def env(kind: str, **settings: Any) -> Any:
    """A Gymnasium environment over the simulator: `"congestion-control"` chooses the window of a
    flow, `"queue"` how often a queue signals; the settings are those of
    `underload.environments.CongestionControl` and `QueueManagement`. Needs gymnasium and NumPy.
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
    # Modules that are imported when they are first asked for.
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
