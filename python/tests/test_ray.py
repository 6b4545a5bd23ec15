"""Sweeps on a Ray cluster of two nodes on this machine. Skipped, with a message, if Ray is not
installed."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import underload as ul

from test_sweep import scenario

ray = pytest.importorskip("ray", reason="sweeps on Ray: pip install 'underload[ray]'")

OBJECT_STORE = 100 * 2**20
AXES = {"up": ["5mbit", "20mbit"], "rtt": ul.linspace("5ms", "80ms", 30)}
REPEATS = 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": OBJECT_STORE}
    made = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        made.add_node(**node)
        os.environ["RAY_ADDRESS"] = made.address
        yield made
    finally:
        os.environ.pop("RAY_ADDRESS", None)
        made.shutdown()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> ul.Sweep:
    out = tmp_path_factory.mktemp("here") / "sweep"
    return ul.sweep(scenario(), AXES, repeats=REPEATS, out=out)


def tables(folder: Path) -> list[str]:
    names = ("cells.parquet", "trials.parquet")
    return [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names]


class Watch:
    """A progress bar that calls a function after a number of trials."""

    def __init__(self, at: list[int], act: Any) -> None:
        self.at, self.act, self.done = list(at), act, 0

    def __call__(self, **_: object) -> Watch:
        return self

    def update(self, trials: int) -> None:
        self.done += trials
        while self.at and self.done >= self.at[0]:
            self.at.pop(0)
            self.act()

    def close(self) -> None:
        pass


def busy_workers(cluster: Any) -> list[int]:
    """Returns the processes of this cluster that are computing."""
    found = []
    for node in cluster.list_all_nodes():
        for raylet in node.all_processes["raylet"]:
            tasks = Path(f"/proc/{raylet.process.pid}/task")
            for children in tasks.glob("*/children"):
                for child in children.read_text().split():
                    with suppress(OSError):
                        title = Path(f"/proc/{child}/cmdline").read_bytes()
                        if title.startswith(b"ray::underload_sweep"):
                            found.append(int(child))
    return found


def test_workers_that_are_killed_change_no_byte(
    cluster: Any, here: ul.Sweep, tmp_path: Path
) -> None:
    killed: list[int] = []

    def kill() -> None:
        until = time.monotonic() + 60
        # A process that was killed may be listed for a while.
        while not (busy := [it for it in busy_workers(cluster) if it not in killed]):
            assert time.monotonic() < until, "no worker computes"
            time.sleep(0.01)
        os.kill(busy[0], signal.SIGKILL)
        killed.append(busy[0])

    trials = here.trial_count
    watch = Watch([trials // 8, trials // 4, trials // 2], kill)
    there = ul.sweep(
        scenario(), AXES, repeats=REPEATS, out=tmp_path / "sweep", on="ray", progress=watch
    )
    assert len(killed) == 3
    assert there.complete and there.failed == []
    assert tables(there.directory) == tables(here.directory)
    assert not ray.is_initialized()


DRIVER = """
import os, signal, sys
sys.path[:0] = sys.argv[2:]
import underload as ul
from test_ray import AXES, REPEATS, Watch, scenario
from pathlib import Path

out = Path(sys.argv[1])

def act():
    if (out / "rows.jsonl").exists():
        os.kill(os.getpid(), signal.SIGKILL)

ul.sweep(scenario(), AXES, repeats=REPEATS, out=out, on="ray", progress=Watch(range(10**4), act))
"""


def test_a_killed_driver_continues_from_the_stored_trials(cluster: Any, here: ul.Sweep, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    folders = [str(Path(__file__).parent)]
    driver = subprocess.run([sys.executable, "-c", DRIVER, str(out), *folders], check=False)
    assert driver.returncode == -signal.SIGKILL
    assert (out / "rows.jsonl").exists() and not (out / "trials.parquet").exists()
    again = []
    watch = Watch([1], lambda: again.append(watch.done))
    there = ul.sweep(scenario(), AXES, repeats=REPEATS, out=out, on="ray", progress=watch)
    # Stored rows are reported at once, and not computed again.
    assert again[0] > 1 and there.complete
    assert tables(there.directory) == tables(here.directory)


def test_ctrl_c_stops_the_workers(cluster: Any, tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    # Sweeps once over a new connection, and once over one that stays open.
    ray.init(address="auto", log_to_driver=False)
    try:
        watch = Watch([50], interrupt)
        with pytest.raises(ul.SweepInterrupted) as stopped:
            ul.sweep(scenario(), AXES, repeats=200, out=tmp_path / "a", on="ray", progress=watch)
        assert sum(stopped.value.sweep.cells.column("trials")) >= 50
        assert ray.is_initialized()
        until = time.monotonic() + 60
        while busy_workers(cluster):
            assert time.monotonic() < until, "workers go on"
            time.sleep(0.05)
    finally:
        ray.shutdown()


def test_a_worker_without_underload_is_refused(cluster: Any, tmp_path: Path) -> None:
    # The workers import another package named underload: its folder is the first in their path.
    other = tmp_path / "other" / "underload"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text('__version__, __commit__ = "0.0.1", "abcdef"\n')
    settings = {"env_vars": {"PYTHONPATH": str(other.parent)}}
    ray.init(address="auto", log_to_driver=False, runtime_env=settings)
    try:
        with pytest.raises(ul.ClusterError) as refused:
            ul.sweep(scenario(), AXES, repeats=1, out=tmp_path / "a", on="ray")
        for part in ("0.0.1 (abcdef)", ul.__version__, ul.__commit__):
            assert part in str(refused.value)
    finally:
        ray.shutdown()
