"""The package beside the program, in one run: `bench.py PROGRAM REPLAY`.

PROGRAM is `underload`, REPLAY the example `replay_columns`, both built for release.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

import underload as ul

SCENARIO, REPEATS = "comcast/upstream", 12
TIMES = 5
PACKETS = 10_000_000
STEPS = 200_000


def main(program: str, replay: str) -> None:
    runs(program)
    stepping(replay)
    environment()


def runs(program: str) -> None:
    """Alternating, so that a busy machine meets both alike. Both write a run directory."""
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TIMES):
            arguments = [SCENARIO, "--world", "sim", "--no-cache", "--repeat", str(REPEATS)]
            out = f"{folder}/program-{turn}"
            command = [program, "run", *arguments, "--json", "--out", out]
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            theirs.append(time.perf_counter() - start)
            start = time.perf_counter()
            run = ul.run(SCENARIO, repeats=REPEATS, cache=False, out=f"{folder}/python-{turn}")
            run.report(f"{folder}/python-{turn}/report.html")
            ours.append(time.perf_counter() - start)
    tell("run and report", "s", statistics.median(ours), statistics.median(theirs))


def stepping(replay: str) -> None:
    """The same packets, made by the same rule there."""
    at = numpy.arange(PACKETS, dtype="u8")
    packets = {
        "time_ns": at * 50_000,
        "len": numpy.full(PACKETS, 1_000, "u4"),
        "flow": (at % 7).astype("u4"),
    }
    ours, theirs = [], []
    for _ in range(TIMES):
        start = time.perf_counter()
        frame = ul.replay(packets, queue="pie:profile=rfc", link="155mbit")
        ours.append(time.perf_counter() - start)
        said = subprocess.run([replay, str(PACKETS)], check=True, capture_output=True)
        theirs.append(json.loads(said.stdout)["seconds"])
        del frame
    per_packet = 1e9 / PACKETS
    ours_ns, theirs_ns = (statistics.median(it) * per_packet for it in (ours, theirs))
    tell(f"{PACKETS // 10**6} M packets through pie", "ns per packet", ours_ns, theirs_ns)


def environment() -> None:
    try:
        made = ul.env("congestion-control", up="20mbit", step="10ms", steps=STEPS)
    except ul.MissingLibrary as error:
        print(f"SKIPPED environment: {error}")
        return
    made.reset(seed=1)
    action = numpy.zeros(1, "f4")
    for _ in range(100):
        made.step(action + 0.1)
    # By the processor's time: nothing stands beside it that waits for the same neighbours.
    start = time.process_time()
    for _ in range(STEPS - 200):
        made.step(action)
    rate = (STEPS - 200) / (time.process_time() - start)
    print(f"{'environment, 10 ms at 20 Mbit/s':<32}{rate:>12.0f} steps per second of a processor")


def tell(what: str, unit: str, ours: float, theirs: float) -> None:
    ratio = ours / theirs
    print(f"{what:<32}{ours:>12.3f} {unit} here, {theirs:.3f} there: {ratio:.3f} times as long")


main(*sys.argv[1:])
