"""Measures an access line against a server, and compares its stored runs over weeks."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from . import _underload
from ._run import RunError


def measure(
    server: str,
    *,
    preset: str = "quick",
    load: Literal["up", "down", "both"] | None = None,
    flows: int | None = None,
    congestion_control: str = "cubic",
    udp: str | None = None,
    burst: int = 1,
    classes: Sequence[str] = (),
    duration: str | None = None,
    idle: str | None = None,
    interval: str | None = None,
    tier: str | None = None,
    trust: str = "first-use",
    token_file: str | os.PathLike[str] | None = None,
    wait: str | None = None,
    family: Literal[4, 6] | None = None,
    keep_address: bool = False,
    dev: str | None = None,
    where: bool = False,
    peer: str | None = None,
    label: str | None = None,
    out: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Measures latency under load between here and a machine that runs `underload serve`.

    The arguments are the options of `underload measure`, with the same defaults and limits; times
    and rates are texts with a unit (`"10s"`, `"20mbit"`). `server`: a name or an address, with its
    port unless that is 4862. `load`: the direction to load, or `both` at once; by default one after
    the other. `classes`: markings of the probes, such as `["0", "45/ect1"]`. `tier`: the rates that
    the line is sold with, `"DOWN/UP"`. `family`: 4 or 6 for IPv4 or IPv6 alone. `dev`: the only
    network interface to use. `where`: also find the segment of the path in which the load adds
    delay; `peer`: another machine on the local network that helps `where`. `label`: a note that the
    record and `history` show. `out`: the run directory, new or empty; without it a new one in
    `runs`.

    Returns the document of `underload measure --json`: `grade` (`"A+"` to `"F"`, or None),
    `verdict` (sentences), `findings` (a dict per step) and `run` (the record), and `directory`, the
    run directory: `load(directory).samples` has every probe packet.

    Other threads of Python run meanwhile. Ctrl-C ends the measurement; the steps finished before
    are in the run directory. A measurement without a valid step, such as one on a busy machine, is
    a warning: each finding has `valid` and `invalid_because`. Raises `RunError` or `StoreError`;
    `RunError.run` has the finished steps.
    """
    document, directory, notes = _native("measure")(
        {
            "server": server,
            "preset": preset,
            "load": load,
            "flows": flows,
            "congestion_control": congestion_control,
            "udp": udp,
            "burst": burst,
            "classes": list(classes),
            "duration": duration,
            "idle": idle,
            "interval": interval,
            "tier": tier,
            "trust": trust,
            "token_file": token_file,
            "wait": wait,
            "family": family,
            "keep_address": keep_address,
            "dev": dev,
            "where": where,
            "peer": peer,
            "label": label,
            "out": out,
        }
    )
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return {**json.loads(document), "directory": Path(directory)}


def history(
    directory: str | os.PathLike[str] = "runs/history",
    *,
    metric: str = "load-p99",
    baseline: str = "7d",
    recent: str = "1d",
) -> dict[str, Any]:
    """Compares the runs of a line over weeks, which `underload measure --every` stored.

    `metric`: the number that the sentences are about: `load-p99`, `load-p50`, `idle-p50`,
    `goodput-up` or `goodput-down`. `baseline`: the time from the first run to the end of the
    baseline. `recent`: the time before the latest run from which runs are compared.

    Returns the document of `underload history --json`: `sentences`, `trends` (a dict per step and
    number, with its `points`), `marks` (each with its `changes` and the numbers before and after
    the mark), `labels` and `left_out`. Raises `StoreError` if the directory has no run that can be
    read, `NoSuchMetric` for another `metric`.
    """
    return dict(json.loads(_native("history")(directory, metric, baseline, recent)))


def _native(name: str) -> Any:
    function = getattr(_underload, name, None)
    if function is None:
        raise RunError(f"{name}() needs Linux or macOS")
    return function
