"""Sweeps: complete, resumed, computed by a cluster, and invalid."""

from __future__ import annotations

import _thread
import json
import multiprocessing
import pickle
import subprocess
import threading
from pathlib import Path

import pytest

import underload as ul

polars = pytest.importorskip("polars")


def scenario() -> ul.Scenario:
    phases = {"idle": "200ms", "ramp": "500ms", "load": "1s", "drain": "200ms"}
    made = ul.Scenario("swept", up="10mbit", rtt="20ms", phases=phases)
    made = made.flow(ul.Tcp("cubic"), ul.Probe("20ms"))
    return made.variant("fifo", up_queue="fifo:limit=128KiB").variant("codel", up_queue=ul.queue("codel"))


AXES = {"up": ["5mbit", "20mbit"], "rtt": ul.logspace("5ms", "80ms", 3)}


def test_a_sweep_has_a_row_per_cell_and_trial(tmp_path: Path) -> None:
    done = ul.sweep(scenario(), AXES, repeats=2, out=tmp_path / "sweep")
    assert done.complete and (done.cell_count, done.trial_count) == (12, 24)
    cells = done.cells.to_polars()
    assert len(cells) == 12 and cells["trials"].to_list() == [2] * 12
    stored = polars.read_parquet(done.directory / "cells.parquet")
    assert cells.equals(stored)
    assert sorted(set(cells["up"])) == ["20mbit", "5mbit"]
    assert cells["rtt.amount"].unique().sort().to_list() == pytest.approx([0.005, 0.02, 0.08])
    by_variant = cells.group_by("variant").agg(polars.col("load.rtt.p99.mean").mean()).to_dicts()
    worst = {row["variant"]: row["load.rtt.p99.mean"] for row in by_variant}
    assert worst["codel"] < worst["fifo"]
    assert done.scan().collect().height == 24 and done.failed == []
    # A cell has the same numbers as a run with the same keys.
    run = ul.run(scenario(), repeats=2, set={"path.up": "5mbit", "path.rtt": "80ms"})
    mine = cells.filter((cells["up"] == "5mbit") & (cells["rtt.amount"] > 0.07))
    for row in mine.to_dicts():
        values = run.variants[row["variant"]].values("load.rtt.p99")
        assert row["load.rtt.p99.mean"] == pytest.approx(sum(values) / 2)


def test_a_sweep_continues_from_the_stored_trials(tmp_path: Path) -> None:
    many = {"rtt": ul.linspace("5ms", "80ms", 60)}
    timer = threading.Timer(0.4, _thread.interrupt_main)
    timer.start()
    try:
        ul.sweep(scenario(), many, repeats=20, out=tmp_path / "a")
        # On a fast machine the sweep has ended by then, and the interrupt must not
        # follow.
        timer.cancel()
        timer.join()
    except ul.SweepInterrupted as interrupted:
        assert isinstance(interrupted, KeyboardInterrupt)
        assert not interrupted.sweep.complete
    except KeyboardInterrupt:
        pass
    done = ul.sweep(scenario(), many, repeats=20, out=tmp_path / "a")
    whole = ul.sweep(scenario(), many, repeats=20, out=tmp_path / "b", threads=1)
    for table in ("cells.parquet", "trials.parquet"):
        assert (done.directory / table).read_bytes() == (whole.directory / table).read_bytes()


def test_a_second_ctrl_c_during_the_stop_loses_nothing(tmp_path: Path) -> None:
    class Bar:
        def __init__(self, **_: object) -> None:
            self.updates = 0

        def update(self, _: int) -> None:
            self.updates += 1
            raise KeyboardInterrupt

        def close(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(ul.SweepInterrupted) as stopped:
        ul.sweep(scenario(), AXES, repeats=9, out=tmp_path / "a", progress=Bar)
    kept = stopped.value.sweep
    assert not kept.complete and kept.directory == tmp_path / "a"
    again = pickle.loads(pickle.dumps(stopped.value))
    assert str(again) == str(stopped.value) and again.sweep.directory == kept.directory
    # The lock of the directory is released, and the rest is computed.
    assert ul.sweep(scenario(), AXES, repeats=9, out=tmp_path / "a").complete


def cells_of(sweep: ul.Sweep) -> dict[str, list[object]]:
    return sweep.cells.to_dict()


def test_a_sweep_can_be_pickled_for_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = ul.sweep(scenario(), AXES, repeats=1)
    assert not done.directory.is_absolute(), "the premise"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.apply(cells_of, (done,))
    assert there == cells_of(done) and len(there["cell"]) == 12
    copy = pickle.loads(pickle.dumps(done))
    monkeypatch.chdir("/")
    assert copy.complete and cells_of(copy) == there and copy.failed == []


def test_rows_of_other_workers_make_the_same_tables(tmp_path: Path) -> None:
    done = ul.sweep(scenario(), AXES, repeats=2, out=tmp_path / "own")
    raw = done._raw
    folder, note = raw.open(str(tmp_path / "others"))
    _, trials = raw.size
    for first in range(trials - 5, -5, -5):
        folder.append(raw.compute(max(first, 0), first + 5, 60.0))
    assert folder.missing() == []
    assert note is None
    folder.flush()
    with pytest.raises(ul.StoreError, match="another program is writing it"):
        raw.open(str(tmp_path / "others"))
    folder.close()
    with pytest.raises(ul.StoreError, match="closed"):
        folder.flush()
    told: list[tuple[str, object]] = []
    assert raw.run(str(tmp_path / "others"), None, lambda *it: told.append(it))
    assert ("start", (trials, trials)) in told and "computed" not in dict(told)
    for table in ("cells.parquet", "trials.parquet"):
        ours, theirs = (tmp_path / name / table for name in ("own", "others"))
        assert ours.read_bytes() == theirs.read_bytes()


def test_equal_calls_use_the_same_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = ul.sweep(scenario(), {"up": ["5mbit"]})
    again = ul.sweep(scenario(), {"up": ["5mbit"]})
    other = ul.sweep(scenario(), {"up": ["6mbit"]})
    assert first.directory == again.directory != other.directory
    assert first.directory.parent == Path("sweeps")


def test_a_design_draws_points(tmp_path: Path) -> None:
    rtt = {"rtt": ul.linspace("5ms", "80ms")}
    drawn = ul.sweep(scenario(), rtt, design="random", samples=7, out=tmp_path / "a")
    assert drawn.cell_count == 14 and len(set(drawn.cells.column("rtt"))) == 7


def test_an_axis_may_be_an_array(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    key, numbers = "flow.tcp.count", {"repeats": numpy.int64(1), "seed": numpy.int64(2)}
    one = ul.sweep(scenario(), {key: numpy.arange(1, 3)}, out=tmp_path / "a", **numbers)
    other = ul.sweep(scenario(), {key: [1, 2]}, repeats=1, seed=2, out=tmp_path / "b")
    assert cells_of(one) == cells_of(other) and one.cell_count == 4


def test_a_stored_sweep_is_loaded_and_reported(tmp_path: Path) -> None:
    done = ul.sweep(scenario(), AXES, repeats=2, out=tmp_path / "sweep")
    # Another version of underload computed it.
    manifest = done.directory / "sweep.json"
    stored = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**stored, "program": "0" * 40}))
    again = ul.Sweep.load(tmp_path / "sweep")
    assert again.complete and (again.cell_count, again.trial_count) == (12, 24)
    assert cells_of(again) == polars.read_parquet(done.directory / "cells.parquet").to_dict(
        as_series=False
    )
    assert again.scan().collect().height == 24 and again.failed == []
    assert cells_of(pickle.loads(pickle.dumps(again))) == cells_of(again)
    page = again.report()
    assert page == tmp_path / "sweep" / "report.html" and "<h1>" in page.read_text()
    for wrong in (tmp_path, tmp_path / "no", manifest):
        with pytest.raises(ul.StoreError, match="no sweep"):
            ul.Sweep.load(wrong)
    with pytest.raises(ul.StoreError, match="Sweep.load"):
        ul.load(tmp_path / "sweep")


def test_a_parameter_of_a_queue_is_an_axis(tmp_path: Path) -> None:
    made = ul.Scenario(up="10mbit", rtt="20ms", up_queue="codel:ecn=on", phases={"load": "1s"})
    made = made.flow(ul.Tcp("cubic"), ul.Probe("20ms"))
    targets = ["2ms", "40ms"]
    done = ul.sweep(made, {"up_queue.target": targets, "up": ["10mbit"]}, out=tmp_path / "a")
    cells = done.cells.to_dict()
    assert cells["up_queue.target"] == targets
    run = ul.run(made, set={"path.up_queue": "codel:ecn=on,target=2ms"}, repeats=1)
    expected = run.variants["default"].metric("load.rtt.p50")
    assert cells["load.rtt.p50.mean"][0] == pytest.approx(expected)
    assert cells["load.rtt.p50.mean"][0] < cells["load.rtt.p50.mean"][1]
    with pytest.raises(ul.ScenarioError, match="tagret"):
        ul.sweep(made, {"up_queue.tagret": targets}, out=tmp_path / "b")
    for axis, said in (
        ({"down_queue.target": targets}, "down_queue as an axis of queues"),
        ({"up_queue.target": ul.linspace("2ms", "40ms", 3)}, "expected a list of values"),
    ):
        with pytest.raises(ul.ScenarioError, match=said):
            ul.sweep(made, axis, out=tmp_path / "b")


def test_invalid_axes_are_refused_by_name(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    for axes, words in (
        ({"up": ["5mb"]}, "5mb"),
        ({"upp": ["5mbit"]}, "upp"),
        ({"up": "5mbit"}, "expected a list"),
        ({"rtt": ul.linspace("5ms", "80ms")}, "steps"),
        ({"up": [lambda: "5mbit"]}, "function is not a value that a scenario can contain"),
    ):
        with pytest.raises(ul.Error, match=words):
            ul.sweep(scenario(), axes, out=out)
    assert not out.exists()
    out.mkdir()
    (out / "mine").write_text("mine")
    with pytest.raises(ul.StoreError, match="sweep"):
        ul.sweep(scenario(), {"up": ["5mbit"]}, out=out)
    assert [path.name for path in out.iterdir()] == ["mine"]


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for out in ("file", "file/sweep", "file/deep/sweep"):
        with pytest.raises(ul.StoreError, match="file"):
            ul.sweep(scenario(), AXES, repeats=1, out=tmp_path / out)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_full_disk_keeps_finished_trials(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    if not mount("size=24k"):
        pytest.skip("SKIPPED full disk: only root mounts one")
    try:
        many = {"rtt": ul.linspace("5ms", "80ms", 40)}
        with pytest.raises(ul.StoreError, match="No space left"):
            ul.sweep(scenario(), many, repeats=30, out=place / "sweep")
        # The manifest, and the journal of the rows that fitted.
        names = {path.name for path in (place / "sweep").iterdir()}
        assert "sweep.json" in names and names <= {"sweep.json", "rows.jsonl"}
        assert mount("remount,size=64m")
        assert ul.sweep(scenario(), many, repeats=30, out=place / "sweep").complete
    finally:
        subprocess.run(["umount", str(place)], check=True)
