"""Compares the speed of the package with that of the program: `compare.py PROGRAM REPLAY [PART
[SIZE]]`.

PROGRAM is `underload`, REPLAY the example `replay_columns`, both built for release. Parts: `runs`
(SIZE: repeats), `packets` (packets), `own` (packets), `environment` (steps), `sweep` (lines of
each variant of the study) and, only if it is named, `ray` (as `sweep`).
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy

import underload as ul

SCENARIO, REPEATS = "comcast/upstream", 12
STUDY, LINES = "comcast/study", 13_000
TIMES = 5
ROUNDS = 3
PACKETS = 10_000_000
OWN_PACKETS = 300_000
STEPS = 200_000


def main(program: str, replay: str, part: str = "", size: str = "") -> None:
    parts = {
        "runs": lambda: runs(program, int(size or REPEATS)),
        "packets": lambda: stepping(replay, int(size or PACKETS)),
        "own": lambda: own(int(size or OWN_PACKETS)),
        "environment": lambda: environment(int(size or STEPS)),
        "sweep": lambda: sweep(program, int(size or LINES)),
        "ray": lambda: on_ray(int(size or LINES)),
    }
    if part and part not in parts:
        sys.exit(f"there is no part `{part}`; known: {', '.join(parts)}")
    for name, measure in parts.items():
        if name == part or (not part and name != "ray"):
            measure()


def runs(program: str, repeats: int) -> None:
    """Times runs of the program and of the package in turn, so that other load affects both
    equally. Both write a run directory."""
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TIMES):
            arguments = [SCENARIO, "--world", "sim", "--no-cache", "--repeat", str(repeats)]
            out = f"{folder}/program-{turn}"
            command = [program, "run", *arguments, "--json", "--out", out]
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            theirs.append(time.perf_counter() - start)
            start = time.perf_counter()
            run = ul.run(SCENARIO, repeats=repeats, cache=False, out=f"{folder}/python-{turn}")
            run.report(f"{folder}/python-{turn}/report.html")
            ours.append(time.perf_counter() - start)
    tell("run and report", "s", statistics.median(ours), statistics.median(theirs))


def stepping(replay: str, count: int) -> None:
    """Times a replay of packets in the package, and in `replay_columns`, which generates the same
    packets."""
    at = numpy.arange(count, dtype="u8")
    packets = {
        "time_ns": at * 50_000,
        "len": numpy.full(count, 1_000, "u4"),
        "flow": (at % 7).astype("u4"),
    }
    ours, theirs = [], []
    for _ in range(TIMES):
        start = time.perf_counter()
        frame = ul.replay(packets, queue="pie:profile=rfc", link="155mbit")
        ours.append(time.perf_counter() - start)
        said = subprocess.run([replay, str(count)], check=True, capture_output=True)
        theirs.append(json.loads(said.stdout)["seconds"])
        del frame
    per_packet = 1e9 / count
    ours_ns, theirs_ns = (statistics.median(it) * per_packet for it in (ours, theirs))
    tell(f"{count / 1e6:g} M packets through pie", "ns per packet", ours_ns, theirs_ns)


class Both(ul.Aqm):
    """A queue whose two methods are called for each packet, and pass all of them."""

    def on_enqueue(self, now_ns: int, packet: ul.PacketMeta, backlog: ul.Backlog) -> ul.Verdict:
        return "pass"

    def on_dequeue(self, now_ns: int, packet: ul.PacketMeta, backlog: ul.Backlog) -> ul.Verdict:
        return "pass"


class BoDe(ul.Aqm):
    """The BoDe of the tutorial."""

    def on_dequeue(self, now_ns: int, packet: ul.PacketMeta, backlog: ul.Backlog) -> ul.Verdict:
        waited_ns = now_ns - packet.arrived_ns
        return "pass" if waited_ns < 20_000_000 or backlog.packets <= 3 else "drop"


class Aimd(ul.CongestionControl):
    """The congestion control of `docs/contributing/benchmarks.md`."""

    def __init__(self) -> None:
        self.threshold = float("inf")

    def on_ack(self, ack: ul.Ack) -> None:
        if ack.window_limited and ack.state == "open":
            self.cwnd += ack.acknowledged * (1 if self.cwnd < self.threshold else 1 / self.cwnd)

    def on_loss(self, event: ul.CongestionEvent) -> None:
        self.threshold = self.cwnd = max(self.cwnd / 2, 2)


def own(count: int) -> None:
    """Compares the processor time of queues written in Python with that of built-in queues, in a
    replay and in a run."""
    at = numpy.arange(count, dtype="u8")
    packets = {"time_ns": at * 60_000, "len": numpy.full(count, 1_000, "u4")}
    queues = {"bode": "bode", "BoDe": ul.own(BoDe), "Both": ul.own(Both)}
    taken: dict[str, list[float]] = {name: [] for name in queues}
    path = ul.Scenario(up="50mbit", rtt="20ms", up_queue="fifo").flow(ul.Probe("10ms"))
    cubic = path.flow(ul.Tcp("cubic"))
    scenarios = {
        "a run with bode": cubic.variant("bode", up_queue="bode"),
        "a run with BoDe of Python": cubic.variant("BoDe", up_queue=queues["BoDe"]),
        "a run with reno": path.flow(ul.Tcp("reno")),
        "a run with Aimd of Python": path.flow(ul.Tcp(ul.own(Aimd))),
    }
    runs: dict[str, list[float]] = {name: [] for name in scenarios}
    for _ in range(TIMES):
        for name, queue in queues.items():
            start = time.process_time()
            ul.replay(packets, queue=queue, link="155mbit")
            taken[name].append((time.process_time() - start) * 1e9 / count)
        for name, scenario in scenarios.items():
            start = time.process_time()
            ul.run(scenario, threads=1, cache=False)
            runs[name].append(time.process_time() - start)
    built_in, once, twice = (statistics.median(it) for it in taken.values())
    print(f"a packet through bode: {built_in:.0f} ns built in, {once:.0f} ns as a class of Python")
    print(f"a class that is asked twice: {twice:.0f} ns, so {(twice - built_in) / 2:.0f} ns a call")
    for name, spent in runs.items():
        print(f"{name + ', 10 s at 50 Mbit/s':<48}{statistics.median(spent):>8.3f} s of a processor")


def environment(steps: int) -> None:
    try:
        made = ul.env("congestion-control", up="20mbit", step="10ms", steps=steps)
    except ul.MissingLibrary as error:
        print(f"SKIPPED environment: {error}")
        return
    made.reset(seed=1)
    action = numpy.zeros(1, "f4")
    for _ in range(100):
        made.step(action + 0.1)
    # Processor time, because other processes may delay one of the programs and not the
    # other.
    start = time.process_time()
    for _ in range(steps - 200):
        made.step(action)
    rate = (steps - 200) / (time.process_time() - start)
    print(f"{'environment, 10 ms at 20 Mbit/s':<32}{rate:>12.0f} steps per second of a processor")


def sweep(program: str, lines: int) -> None:
    """Times the study in turn as a run of the program, without its report, and as a sweep of the
    package."""
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS):
            arguments = [STUDY, "--world", "sim", "--no-cache", "--repeat", str(lines)]
            command = [program, "-q", "run", *arguments, "--out", f"{folder}/run-{turn}"]
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            theirs.append(time.perf_counter() - start)
            start = time.perf_counter()
            ul.sweep(STUDY, {}, repeats=lines, out=f"{folder}/sweep-{turn}")
            ours.append(time.perf_counter() - start)
    what = f"study of {lines} lines of each variant"
    tell(what, "s", statistics.median(ours), statistics.median(theirs))


def on_ray(lines: int) -> None:
    """Times the study on a Ray cluster of two nodes with one processor each, and in this process
    with two threads. The cluster and its workers are started before the clock."""
    from ray.cluster_utils import Cluster

    from underload import _ray

    batches: list[float] = []
    take = _ray.RayPool.result

    def taken(pool: _ray.RayPool, batch: Any) -> Any:
        rows = take(pool, batch)
        batches.append(rows.seconds)
        return rows

    _ray.RayPool.result = taken  # type: ignore[method-assign]
    node = {"num_cpus": 1, "object_store_memory": 200 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    cluster.add_node(**node)
    os.environ["RAY_ADDRESS"] = cluster.address
    ours, theirs, shares = [], [], []
    try:
        import ray

        ray.init(address="auto", log_to_driver=False)
        with tempfile.TemporaryDirectory() as folder:
            ul.sweep(STUDY, {}, repeats=8, out=f"{folder}/warm", on="ray")
            for turn in range(ROUNDS):
                here, there = f"{folder}/here-{turn}", f"{folder}/there-{turn}"
                start = time.perf_counter()
                ul.sweep(STUDY, {}, repeats=lines, out=here, threads=2)
                theirs.append(time.perf_counter() - start)
                batches.clear()
                start = time.perf_counter()
                ul.sweep(STUDY, {}, repeats=lines, out=there, on="ray")
                ours.append(time.perf_counter() - start)
                shares.append(1 - sum(batches) / (2 * ours[-1]))
                for table in ("cells.parquet", "trials.parquet"):
                    sums = [hashlib.sha256(Path(it, table).read_bytes()) for it in (here, there)]
                    if sums[0].digest() != sums[1].digest():
                        sys.exit(f"{table} differs")
        ray.shutdown()
    finally:
        cluster.shutdown()
    what = f"study of {lines} lines, Ray"
    tell(what, "s", statistics.median(ours), statistics.median(theirs))
    share = 100 * statistics.median(shares)
    print(f"the same bytes; {len(batches)} batches; workers had nothing to compute {share:.1f} %")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"this process: {peak:.0f} MiB at most")


def tell(what: str, unit: str, ours: float, theirs: float) -> None:
    ratio = ours / theirs
    print(f"{what:<32}{ours:>12.3f} {unit} here, {theirs:.3f} there: {ratio:.3f} times as long")


if __name__ == "__main__":
    main(*sys.argv[1:])
