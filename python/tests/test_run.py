"""Runs: numbers, tables, files, interruption, errors."""

from __future__ import annotations

import _thread
import json
import math
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import underload as ul


def two_queues(**changes: object) -> ul.Scenario:
    path = {"up": "10mbit", "rtt": "20ms", **changes}
    scenario = ul.Scenario("two queues", phases={"ramp": "2s", "load": "3s"}, **path)
    scenario = scenario.flow(ul.Tcp("cubic"), ul.Probe("10ms"))
    return scenario.variant("fifo", up_queue="fifo:limit=256KiB").variant("codel", up_queue="codel")


@pytest.fixture(scope="module")
def run() -> ul.Run:
    return ul.run(two_queues(), repeats=2)


def test_a_small_queue_is_faster_and_the_numbers_are_the_records(run: ul.Run) -> None:
    assert list(run.variants) == ["fifo", "codel"]
    fifo, codel = run.variants.values()
    assert 0 < codel.working.p99 < fifo.working.p99 / 2
    assert 20 <= codel.idle.p50 < 21
    summary = run.record["summaries"][1]
    pooled = [it for it in summary["latencies"] if it["phase"] == "load"][0]["pooled"]
    assert codel.working.p50 == pooled["p50_ns"] / 1e6
    assert len(codel.working.over_trials("p99")) == 2
    assert codel.metric("utilisation.up") > 80
    assert codel.metric("tcp/ratio.probe") is None, "no number of this run, but a metric's name"
    assert run.complete and run.trial_count == 4 and run.world == "sim"


def test_a_percentile_of_too_few_samples_is_missing() -> None:
    few = ul.run(two_queues(), repeats=1, variants=["codel"]).variants["codel"]
    assert math.isnan(few.working.p99) and few.working.p95 > few.working.p50
    assert ", p95 " in repr(few.working) and "p99" not in repr(few.working)
    assert few.metric("load.rtt.p99") is not None


def test_the_same_seed_gives_the_same_numbers_and_another_does_not(run: ul.Run) -> None:
    again = ul.run(two_queues(), repeats=2, threads=1)
    assert again.record["summaries"] == run.record["summaries"]
    jittery = two_queues(up="10mbit:jitter=5ms")
    one, other = (ul.run(jittery, seed=seed, variants=["codel"]) for seed in (1, 2))
    assert one.record["summaries"] != other.record["summaries"]


def test_published_numbers_are_listed_beside_those_of_the_run(run: ul.Run) -> None:
    call = ul.run("bode/figure-01-call", short=True)
    lines = call.published().splitlines()
    told = call.record["expectations"]
    met = sum(it["verdict"]["outcome"] == "met" for it in told)
    assert lines[0].startswith(f"{met} of {len(told)} met, ") and len(told) == 2
    assert any("4000 (3000–5000) ms" in line and "of fifo/skype" in line for line in lines)
    assert run.published() == "", "nothing was published of this scenario"


def test_a_run_of_many_trials_has_a_distribution_of_their_means(run: ul.Run) -> None:
    assert run.plot.cdf().name == "cdf-load"
    many = ul.run(two_queues(), repeats=10)
    assert many.plot.cdf().name == "cdf-mean"


def test_a_run_is_saved_loaded_and_pickled_whole(run: ul.Run, tmp_path: Path) -> None:
    saved = run.save(tmp_path / "run")
    assert json.loads((saved / "run.json").read_text()) == run.record
    read = ul.load(saved)
    for other in (read, pickle.loads(pickle.dumps(run))):
        assert other.record == run.record
        assert other.samples.to_dict() == run.samples.to_dict()
        assert other.series.to_dict() == run.series.to_dict()
    assert read.directory == saved and run.directory is None
    with pytest.raises(ul.StoreError, match="run"):
        run.save(saved)


def test_a_run_in_a_directory_equals_one_in_memory(run: ul.Run, tmp_path: Path) -> None:
    written = ul.run(two_queues(), repeats=2, out=tmp_path / "out")
    assert written.record["summaries"] == run.record["summaries"]
    assert written.samples.to_dict() == run.samples.to_dict()
    assert (tmp_path / "out" / "samples.parquet").exists()


def test_a_report_is_written_and_nothing_else_is_replaced(run: ul.Run, tmp_path: Path) -> None:
    page = run.report(tmp_path / "report.html")
    assert "<svg" in page.read_text()
    run.report(page)
    foreign = tmp_path / "mine.html"
    foreign.write_text("mine")
    with pytest.raises(ul.ReportError, match="mine.html"):
        run.report(foreign)
    assert foreign.read_text() == "mine"
    shown = run._repr_html_()
    assert shown.count("<img") >= 2 and "<script" not in shown
    assert run.plot.cdf().svg.startswith("<svg")
    assert run.plot.cdf().save(tmp_path / "cdf.svg").read_text() == run.plot.cdf().svg
    with pytest.raises(KeyError, match="cdf-load"):
        run.plot["no-such"]


def test_progress_is_reported_by_the_protocol_of_tqdm() -> None:
    class Bar:
        made: list[Bar] = []

        def __init__(self, **about: object) -> None:
            self.about, self.count, self.is_closed = about, 0, False
            self.made.append(self)

        def update(self, number: int) -> None:
            self.count += number

        def close(self) -> None:
            self.is_closed = True

    ul.run(two_queues(), repeats=3, progress=Bar)
    (bar,) = Bar.made
    assert bar.about["total"] == 6 and bar.count == 6 and bar.is_closed


def test_a_bar_that_fails_ends_the_run_with_its_error() -> None:
    def bar(**about: object) -> None:
        raise RuntimeError("no bar today")

    with pytest.raises(RuntimeError, match="no bar today"):
        ul.run(two_queues(), repeats=1_000, progress=bar)


def long() -> ul.Scenario:
    return two_queues().set(repeats=50_000)


def test_ctrl_c_keeps_finished_trials(tmp_path: Path) -> None:
    threading.Timer(1.0, _thread.interrupt_main).start()
    with pytest.raises(ul.Interrupted) as caught:
        ul.run(long(), out=tmp_path / "out", cache=False)
    run = caught.value.run
    assert isinstance(caught.value, KeyboardInterrupt)
    assert run is not None and 0 < run.trial_count < 100_000 and not run.complete
    assert run.variants["codel"].working.p50 > 20
    again = ul.load(tmp_path / "out")
    assert again.trial_count == run.trial_count


@pytest.mark.parametrize("repeats", [1_000, 50_000])
def test_ctrl_c_keeps_finished_trials_in_memory(repeats: int) -> None:
    threading.Timer(1.0, _thread.interrupt_main).start()
    with pytest.raises(ul.Interrupted) as caught:
        ul.run(two_queues().set(repeats=repeats), cache=False, threads=1)
    run = caught.value.run
    assert run is not None and 0 < run.trial_count < 2 * repeats
    assert run.variants["codel"].working.p50 > 20
    # Runs with this many trials do not store single samples.
    assert (len(run.samples) > 0) == (repeats == 1_000)


def test_a_run_that_was_cut_short_is_resumed(tmp_path: Path) -> None:
    scenario = two_queues().set(repeats=100)
    threading.Timer(0.3, _thread.interrupt_main).start()
    try:
        ul.run(scenario, out=tmp_path / "out", cache=False)
    except ul.Interrupted as interrupted:
        assert interrupted.run is None or interrupted.run.trial_count < 200
    if not (tmp_path / "out").exists():
        ul.run(scenario, out=tmp_path / "out", cache=False)
    elif not ul.load(tmp_path / "out").complete:
        ul.run(scenario, out=tmp_path / "out", resume=True, cache=False)
    whole = ul.load(tmp_path / "out")
    assert whole.complete and whole.trial_count == 200
    assert whole.record["summaries"] == ul.run(scenario, cache=False).record["summaries"]


def test_other_threads_continue_during_a_run() -> None:
    counted, is_over = 0, threading.Event()

    def count() -> None:
        nonlocal counted
        while not is_over.is_set():
            counted += 1
            time.sleep(0.001)

    counter = threading.Thread(target=count)
    counter.start()
    ul.run(two_queues(), repeats=20, cache=False)
    is_over.set()
    counter.join()
    assert counted > 3


def test_errors_say_what_the_program_says() -> None:
    plain = two_queues()
    cases: list[tuple[Callable[[], ul.Scenario], str, str]] = [
        (lambda: two_queues(rtt="20"), "path.rtt", "`20` has no unit; expected a time such as 5ms"),
        (lambda: two_queues(rtt=20), "path.rtt", "`20` has no unit; expected a time such as 5ms"),
        (lambda: two_queues(up=20), "path.up", "`20` has no unit; expected a rate such as 20mbit"),
        (lambda: plain.variant("x", up_queue="codell"), "path.up_queue", "did you mean `codel`"),
        (lambda: plain.variant("x", up="20"), "path.up", "`20` has no unit; expected a rate"),
        (
            lambda: plain.variant("x", {"flow.tcp.nothing": 1}, up_queue="pie"),
            "flow.tcp.nothing",
            "unknown key",
        ),
        (lambda: plain.phases(load="soon"), "phases.load", "`soon`: expected a time such as 5ms"),
    ]
    for make, key, words in cases:
        with pytest.raises(ul.ScenarioError, match=words) as caught:
            make()
        assert key in caught.value.key, (key, caught.value.key)
        again = pickle.loads(pickle.dumps(caught.value))
        assert again.faults == caught.value.faults and str(again) == str(caught.value)
    with pytest.raises(ul.ScenarioError, match="comcast/upstream"):
        ul.run("comcast/upsteam")
    with pytest.raises(ul.ScenarioError, match="repeats"):
        ul.run(two_queues(), repeats=0)
    with pytest.raises(ul.RunError, match="sim, live or auto"):
        ul.run(two_queues(), world="real")  # type: ignore[arg-type]
    with pytest.raises(ul.ScenarioTypeError, match="path.up: function") as wrong:
        two_queues().variant("x", {"path.up": lambda: "1mbit"}).check()
    assert wrong.value.key == "path.up"
    with pytest.raises(ul.ScenarioTypeError, match="flow.tcp.count: int is too large"):
        two_queues().variant("x", {"flow.tcp.count": 1 << 70}).check()
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ul.ScenarioTypeError, match="nested too deeply"):
        two_queues().variant("x", {"path.up": endless}).check()
    with pytest.raises(ul.ScenarioError, match="is not a flow"):
        two_queues().flow("tcp")  # type: ignore[arg-type]


def test_unknown_metrics_and_variants_are_refused_with_the_known_ones(run: ul.Run) -> None:
    codel = run.variants["codel"]
    for name, meant in [
        ("p99", "load.rtt.p99"),
        ("rtt.p50", "load.rtt.p50"),
        ("lod.rtt.p99", "load.rtt.p99"),
        ("goodput", "goodput.up"),
        ("prob/load.rtt.p99", "probe/load.rtt.p99"),
    ]:
        for lookup in (codel.metric, codel.values):
            with pytest.raises(KeyError, match=f"did you mean {meant}") as caught:
                lookup(name)
            assert isinstance(caught.value, ul.NoSuchMetric)
    with pytest.raises(ul.NoSuchMetric, match="no metric `no.such`"):
        codel.metric("no.such")
    with pytest.raises(ul.NoSuchMetric, match="load.rtt.p98"):
        codel.working.over_trials("p98")
    with pytest.raises(KeyError, match="no variant `codle`; there are fifo, codel") as unknown:
        run.variants["codle"]
    assert isinstance(unknown.value, ul.NoSuchVariant)
    for error in (caught.value, unknown.value):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert run.variants.get("codle") is None and len(run.variants) == 2


def test_a_metric_of_a_flow_has_two_spellings() -> None:
    calls = ul.Scenario(up="1mbit", phases={"load": "2s"})
    calls = calls.flow(ul.Application("voip", name="a.b"), ul.Probe("10ms"))
    variant = ul.run(calls).variants["default"]
    assert variant.metric("a.b.mos") == variant.metric("a.b/mos") is not None
    assert variant.values("a.b.mos") == variant.values("a.b/mos") != []
    with pytest.raises(ul.NoSuchMetric, match="no metric `a.b.mso`"):
        variant.metric("a.b.mso")


def test_a_plot_is_saved_as_svg_alone(run: ul.Run, tmp_path: Path) -> None:
    saved = run.plot.cdf().save(tmp_path / "cdf.svg")
    assert saved.read_text().startswith("<svg")
    with pytest.raises(ul.ReportError, match="cdf.png: a plot is SVG; expected a name ending in"):
        run.plot.cdf().save(tmp_path / "cdf.png")
    assert not (tmp_path / "cdf.png").exists()


def test_invalid_keys_and_values_are_refused_at_once() -> None:
    with pytest.raises(ul.ScenarioError, match="unknown key; .*did you mean `up`") as caught:
        two_queues(upp="1mbit")
    assert caught.value.key == "path.upp"
    with pytest.raises(ul.ScenarioError, match="path.bandwidth: unknown key; expected"):
        ul.Scenario(bandwidth="20mbit")
    with pytest.raises(ul.ScenarioError, match="path.up_qeue: unknown key"):
        two_queues().variant("x", up_qeue="pie")
    with pytest.raises(ul.ScenarioError, match="phases.lod: unknown key; .*did you mean `load`"):
        ul.Scenario(up="20mbit", phases={"lod": "3s"})
    with pytest.raises(ul.ScenarioError, match="flow.tcp.cout: unknown key; .*mean `count`"):
        ul.Tcp("cubic", cout=3)
    with pytest.raises(ul.ScenarioError, match="path.up: `20` has no unit"):
        two_queues().sweep("path.up", ["5mbit", "20"])
    with pytest.raises(ul.ScenarioError, match="repeats: 0 is out of range"):
        ul.Scenario(up="20mbit", repeats=0)
    with pytest.raises(ul.ScenarioError, match="interval: `10` has no unit; expected a time"):
        ul.Probe(10)  # type: ignore[arg-type]
    with pytest.raises(ul.ScenarioError, match="rate: `2` has no unit; expected a rate such as"):
        ul.Udp("2")
    with pytest.warns(UserWarning, match="`bbr9` is not simulated; expected .*cubic"):
        ul.Tcp("bbr9")


def test_errors_at_once_are_those_of_the_check() -> None:
    with pytest.raises(ul.ScenarioError) as at_once:
        ul.Scenario(up="20", rtt="4")
    text = ul.Scenario(up="20mbit", rtt="4ms").flow(ul.Probe()).text
    text = text.replace("20mbit", "20").replace("4ms", "4")
    with pytest.raises(ul.ScenarioError) as checked:
        ul.Scenario.parse(text)
    assert {it.problem for it in at_once.value.faults} == {
        it.problem for it in checked.value.faults
    }


def test_what_a_scenario_still_lacks_is_no_fault() -> None:
    queued = ul.Scenario(up_queue="codel", down="10mbit").flow(ul.Tcp("cubic", start="20s"))
    swept = queued.phases(load="30s").sweep("path.up", ["5mbit", "20mbit"])
    assert len(swept.variants) == 2
    drawn = ul.Scenario(up="{rate}", rtt="20ms").variant("x", {"flow.late.count": 2})
    with pytest.raises(ul.ScenarioError, match="up"):
        drawn.check()
    with pytest.raises(ul.ScenarioError, match="no link"):
        queued.check()


def test_numbers_and_arrays_of_numpy_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    one = ul.run(two_queues(), seed=3, repeats=2, set={"flow.tcp.count": 2})
    changes = {"flow.tcp.count": numpy.uint8(2), "flow.tcp.ecn": numpy.bool_(False)}
    other = ul.run(two_queues(), seed=numpy.int64(3), repeats=numpy.int32(2), set=changes)
    assert one.samples.to_dict() == other.samples.to_dict()
    plain = ul.Scenario(up="1mbit", repeats=2).flow(ul.Tcp("cubic", count=3, ecn=True))
    foreign = ul.Scenario(up="1mbit", repeats=numpy.int64(2))
    foreign = foreign.flow(ul.Tcp("cubic", count=numpy.int64(3), ecn=numpy.bool_(True)))
    assert foreign.text == plain.text
    for values in (numpy.arange(1, 3), [numpy.int64(1), 2]):
        assert foreign.sweep("flow.tcp.count", values).text == plain.sweep(
            "flow.tcp.count", [1, 2]
        ).text
    with pytest.raises(ul.ScenarioError, match="expected a whole number from 0 on"):
        ul.run(two_queues(), seed=numpy.float64(1.5))


def test_queues_are_found_by_their_names_in_other_tools() -> None:
    scenario = two_queues().variant("sqm", up_queue="fq_codel")
    assert scenario.variants["sqm"].startswith("fq-codel:")
    assert ul.queue("fq_codel").gauges == ul.queue("fq-codel").gauges
    assert ul.Scenario(up="10Mbps", up_queue="pfifo").flow(ul.Probe()).check()


def test_a_star_import_hides_nothing_of_pythons_own() -> None:
    import builtins

    assert not set(ul.__all__) & set(dir(builtins))


def test_all_faults_of_a_file_are_reported_at_once() -> None:
    text = two_queues().text.replace('rtt = "20ms"', 'rtt = "20"').replace("interval", "intervall")
    with pytest.raises(ul.ScenarioError) as caught:
        ul.Scenario.parse(text, "mine.toml")
    keys = [fault.key for fault in caught.value.faults]
    assert len(keys) == 2 and all(fault.line for fault in caught.value.faults), keys
    with pytest.raises(ul.ScenarioError) as caught:
        ul.Scenario(rtt="20", up="1mbit", up_queue="codle", phases={"laod": "7s"})
    keys = sorted(fault.key for fault in caught.value.faults)
    assert keys == ["path.rtt", "path.up_queue", "phases.laod"]
    assert all(fault.line is None for fault in caught.value.faults)


def test_a_run_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(ul.StoreError, match="run.json"):
        ul.load(tmp_path)
    foreign = tmp_path / "a.json"
    foreign.write_text("{}")
    with pytest.raises(ul.FormatError, match="a.json"):
        ul.load(foreign)


FULL_DISK = """
import resource, signal, sys, underload as ul
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
run = ul.load(sys.argv[1])
run.samples
resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))
try:
    run.save(sys.argv[2])
except ul.StoreError as error:
    print("told:", error)
"""


def test_a_full_disk_is_reported_and_no_file_is_left(run: ul.Run, tmp_path: Path) -> None:
    saved, full = run.save(tmp_path / "run"), tmp_path / "full"
    command = [sys.executable, "-c", FULL_DISK, str(saved), str(full)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith("told:") and "full" in said, said
    assert not full.exists() or not list(full.iterdir())


def test_an_unwritable_folder_is_named() -> None:
    with pytest.raises(ul.StoreError, match="/proc/no"):
        ul.run(two_queues(), out="/proc/no/such")


def test_scenarios_are_values() -> None:
    scenario = two_queues()
    assert pickle.loads(pickle.dumps(scenario)) == scenario
    assert scenario.variant("x", up_queue="pie") != scenario
    assert ul.Scenario.parse(scenario.text, scenario.name).variants == scenario.variants
    swept = scenario.sweep("path.up", ["5mbit", "20mbit"])
    assert len(swept.variants) == 4
    named = [name for name in ul.scenarios() if name.startswith("comcast/")]
    assert ul.Scenario.load(named[0]).title
    twice = ul.Scenario(up="1mbit", up_queue="fifo:limit=9p")
    twice = twice.flow(ul.Tcp("reno"), ul.Tcp("cubic"), ul.Probe())
    assert '"tcp-2"' in twice.text


def test_a_question_is_asked_in_the_words_of_the_command_line() -> None:
    queues = ["fifo", "pie"]
    run = ul.try_("40/10", rtt=20, queue=queues, upload=True, game=False, load=5, repeat=1)
    assert list(run.variants) == queues
    assert run.record["scenario"]["title"] == "10mbit up, 40mbit down, 20ms away: upload"
    with pytest.raises(ul.ScenarioError, match="qeue: there is no such option; expected up, down"):
        ul.try_(qeue="pie")
    with pytest.raises(ul.ScenarioError, match="--queue: there is no queue `cak`; did you mean"):
        ul.try_("cable", queue="cak")


def test_nothing_optional_is_imported() -> None:
    code = "import sys, underload; print([m for m in sys.modules if m.split('.')[0] in " \
        "('numpy', 'pandas', 'polars', 'pyarrow', 'gymnasium', 'tqdm', 'matplotlib')])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
