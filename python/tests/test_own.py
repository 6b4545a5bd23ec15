"""Queues written in Python: in runs, in replays and step by step, and how their failures are
reported."""

from __future__ import annotations

import _thread
import pickle
import threading
import time
from typing import Any

import pytest

import underload as ul


class BoDe(ul.Aqm):
    """Serves what has waited less than the bound, and the last `exempt` packets."""

    def __init__(self, bound_ns: int = 20_000_000, exempt: int = 3) -> None:
        self.bound_ns, self.exempt = bound_ns, exempt

    def on_dequeue(self, now_ns: int, packet: ul.PacketMeta, backlog: ul.Backlog) -> ul.Verdict:
        waited_ns = now_ns - packet.arrived_ns
        if waited_ns < self.bound_ns or backlog.packets <= self.exempt:
            return "pass"
        return "drop"


class Coin(ul.Aqm):
    """Signals 2 % of arrivals, drawn from the queue's random numbers."""

    def on_enqueue(self, now_ns: int, packet: ul.PacketMeta, backlog: ul.Backlog) -> ul.Verdict:
        return "signal" if self.rng.random() < 0.02 else "pass"


def scenario(queue: Any, name: str = "own") -> ul.Scenario:
    made = ul.Scenario(up="10mbit", rtt="20ms", up_queue="fifo:limit=200p", phases={"load": "1s"})
    return made.flow(ul.Tcp("cubic", ecn=True), ul.Probe("10ms")).variant(name, up_queue=queue)


def numbers(run: ul.Run, variant: str) -> list[float | None]:
    names = ("load.rtt.p50", "load.rtt.p99", "goodput.up", "drops.up", "load.sojourn.up.p99")
    return [run.variants[variant].metric(name) for name in names]


def test_bode_in_python_is_bode_in_a_run() -> None:
    """The trials differ only in the queue's name and the reason of its drops."""
    queue = ul.own(BoDe, bound_ns=5_000_000)
    assert queue.spec == "own:BoDe,limit=1000p,bound_ns=5000000"
    both = scenario(queue).variant("built-in", up_queue="bode:bound=5ms,limit=1000p")
    run = ul.run(both, repeats=2, cache=False)
    assert numbers(run, "own") == numbers(run, "built-in")
    assert run.variants["own"].metric("drops.up") > 0  # type: ignore[operator]
    rtts: dict[str, list[int]] = {"own": [], "built-in": []}
    samples = run.samples.to_dict()
    for variant, rtt in zip(samples["variant"], samples["rtt_ns"]):
        rtts[variant].append(rtt)
    assert rtts["own"] == rtts["built-in"] and len(rtts["own"]) > 100
    assert "own:BoDe,limit=1000p,bound_ns=5000000" in run.variants["own"].label
    assert 'up_queue = "own:BoDe,limit=1000p,bound_ns=5000000"' in both.text
    assert both.worlds == ["sim"]


def test_bode_in_python_is_bode_in_a_replay() -> None:
    numpy = pytest.importorskip("numpy")
    random = numpy.random.default_rng(3)
    packets = {
        "time_ns": numpy.cumsum(random.integers(0, 2_000_000, 3_000)).astype("u8"),
        "len": random.choice([64, 576, 1500], 3_000).astype("u4"),
    }
    mine = ul.replay(packets, queue=ul.own(BoDe), link="5mbit").to_dict()
    theirs = ul.replay(packets, queue="bode", link="5mbit").to_dict()
    assert {"sent", "dropped-dequeue"} == set(theirs["fate"])
    reasons = [mine.pop("reason"), theirs.pop("reason")]
    assert mine == theirs
    assert [set(it) for it in reasons] == [{None, "control-law"}, {None, "bound"}]


def test_a_wrong_bode_is_noticed() -> None:
    """The comparisons above detect a class that serves one packet too many."""
    queues = [ul.own(BoDe, exempt=4, bound_ns=5_000_000), "bode:bound=5ms"]
    runs = [ul.run(scenario(queue), cache=False) for queue in queues]
    assert numbers(runs[0], "own") != numbers(runs[1], "own")


def test_random_numbers_of_a_custom_queue_follow_from_the_seed() -> None:
    runs = [ul.run(scenario(ul.own(Coin)), seed=seed, cache=False) for seed in (1, 1, 2)]
    one, again, other = [run.samples.to_dict()["rtt_ns"] for run in runs]
    assert one == again != other
    marked = [run.record["trials"][0]["bottlenecks"] for run in runs]
    assert marked[0] == marked[1] and "early" in str(marked[0])


def test_a_custom_queue_can_be_used_step_by_step() -> None:
    queue = ul.own(BoDe, limit="4p")
    assert [queue.enqueue(at, 1000) for at in range(5)] == [True] * 4 + [False]
    first = queue.dequeue(20_000_000)
    assert first is not None and (first.id, queue.backlog) == (1, (2, 2000))
    assert queue.events() == [(4, 4, "dropped", "overlimit"), (20_000_000, 0, "dropped", "control-law")]
    link = ul.link("8mbit", ul.own(BoDe))
    assert link.send(0, 1000) == 0 and [it.left_ns for it in link.poll(10**9)] == [1_000_000]
    copy = pickle.loads(pickle.dumps(queue))
    assert copy == queue and copy.backlog == (0, 0) and copy != ul.own(BoDe)
    assert ul.Scenario(up="1mbit", up_queue=queue).flow(ul.Probe()) == pickle.loads(
        pickle.dumps(ul.Scenario(up="1mbit", up_queue=queue).flow(ul.Probe()))
    )


def test_a_class_receives_packets_and_backlog() -> None:
    seen: list[tuple[Any, ...]] = []

    class Curious(ul.Aqm):
        def on_enqueue(self, now_ns: int, packet: Any, backlog: Any) -> ul.Verdict:
            seen.append((now_ns, packet.length, packet.flow, packet.dscp, packet.ecn))
            seen.append((backlog.packets, backlog.bytes))
            return "pass"

        def on_refused(self, now_ns: int, packet: Any, backlog: Any) -> None:
            seen.append((now_ns, packet.length, repr(backlog)))

    queue = ul.own(Curious, limit="1p")
    queue.enqueue(5, 100, flow=7, dscp=45, ecn="ect1")
    queue.enqueue(6, 200)
    assert seen == [(5, 100, 7, 45, "ect1"), (0, 0), (6, 200, "Backlog(packets=1, bytes=100)")]


class Failing(ul.Aqm):
    def __init__(self, how: str, after: int = 100) -> None:
        self.how, self.left = how, after
        if how == "born":
            raise ValueError("no such how")

    def on_dequeue(self, now_ns: int, packet: Any, backlog: Any) -> Any:
        self.left -= 1
        if self.left > 0:
            return "pass"
        if self.how == "divides":
            return 1 // 0
        if self.how == "forges":
            packet.length = 1
        if self.how == "leaves":
            raise SystemExit(3)
        return {"none": None, "number": 3, "packet": packet, "word": "passed"}[self.how]


@pytest.mark.parametrize(
    "how, said",
    [
        ("divides", "ZeroDivisionError"),
        ("none", "TypeError: returned None; expected \"pass\", \"signal\" or \"drop\""),
        ("number", "TypeError: returned 3"),
        ("packet", r"TypeError: returned PacketMeta\(length="),
        ("word", "TypeError: returned 'passed'"),
        ("forges", "AttributeError"),
        ("leaves", "SystemExit: 3"),
    ],
)
def test_the_error_of_a_failing_class_names_the_class(how: str, said: str) -> None:
    failing = scenario(ul.own(Failing, how=how))
    place = r"^Failing.on_dequeue, variant own, trial 0 \(repeat 0\): "
    with pytest.raises(ul.OwnCodeError, match=place + said) as caught:
        ul.run(failing, repeats=3, cache=False)
    cause = caught.value.__cause__
    assert cause is not None and type(cause).__name__ == said.split(":")[0]
    if how in ("divides", "leaves"):
        assert cause.__traceback__ is not None
        assert cause.__traceback__.tb_frame.f_code.co_name == "on_dequeue"
    assert isinstance(caught.value, ul.RunError)
    queue = ul.own(Failing, how=how, after=1)
    queue.enqueue(0, 100)
    with pytest.raises(ul.OwnCodeError, match="^Failing.on_dequeue: " + said):
        queue.dequeue(1)


def test_trials_finished_before_a_failure_are_stored() -> None:
    made: list[int] = []

    class Second(ul.Aqm):
        def __init__(self) -> None:
            made.append(1)

        def on_enqueue(self, now_ns: int, packet: Any, backlog: Any) -> ul.Verdict:
            return "pass" if len(made) < 3 else {}["nothing"]

    with pytest.raises(ul.OwnCodeError, match=r"trial 2 \(repeat 2\): KeyError") as caught:
        ul.run(scenario(ul.own(Second)), repeats=5, cache=False)
    assert caught.value.run is not None and caught.value.run.trial_count == 2


def test_errors_of_a_constructor_are_reported() -> None:
    with pytest.raises(ul.OwnCodeError, match="Failing.__init__, variant own.*no such how"):
        ul.run(scenario(ul.own(Failing, how="born")))
    with pytest.raises(ul.OwnCodeError, match="Failing.__init__: ValueError"):
        ul.own(Failing, how="born").enqueue(0, 1)
    numpy = pytest.importorskip("numpy")
    packets = {"time_ns": numpy.arange(9, dtype="u8"), "len": numpy.full(9, 9, "u4")}
    for how in ("born", "divides"):
        with pytest.raises(ul.OwnCodeError, match="Failing"):
            ul.replay(packets, queue=ul.own(Failing, how=how, after=2), link="1mbit")


def test_objects_are_freed_after_their_trial_on_the_thread_that_created_them() -> None:
    """Some Python objects, such as a queue, must be freed in the thread that created them."""
    threads: list[tuple[int, int]] = []

    class Holds(ul.Aqm):
        def __init__(self) -> None:
            self.inner, self.made = ul.queue("fifo"), threading.get_ident()
            self.inner.enqueue(0, 1)

        def on_enqueue(self, now_ns: int, packet: Any, backlog: Any) -> ul.Verdict:
            return "pass"

        def __del__(self) -> None:
            threads.append((self.made, threading.get_ident()))

    ul.run(scenario(ul.own(Holds)), repeats=3, cache=False)
    assert len(threads) == 3 and all(made == ended for made, ended in threads)


def test_a_queue_that_drops_everything_ends() -> None:
    class Never(ul.Aqm):
        def on_dequeue(self, now_ns: int, packet: Any, backlog: Any) -> ul.Verdict:
            return "drop"

    run = ul.run(scenario(ul.own(Never)), cache=False)
    assert run.variants["own"].working.loss == 100.0


class Endless(ul.Aqm):
    """Never returns; if `stubborn`, it also catches the interrupt."""

    # Uses no lock: the interrupt could arrive while the lock is held, and it would never be
    # released.
    begun = False
    made: list[Endless] = []

    def __init__(self, stubborn: bool = False) -> None:
        self.stubborn, self.released = stubborn, False
        Endless.made.append(self)

    def on_dequeue(self, now_ns: int, packet: Any, backlog: Any) -> ul.Verdict:
        while not self.released:
            try:
                while not self.released:
                    Endless.begun = True
            except KeyboardInterrupt:
                if not self.stubborn:
                    raise
        return "pass"


def press_when_begun() -> threading.Thread:
    """Sends Ctrl-C once a class is in its endless call."""
    Endless.begun = False

    def press() -> None:
        while not Endless.begun:
            time.sleep(0.01)
        _thread.interrupt_main()

    presser = threading.Thread(target=press, daemon=True)
    presser.start()
    return presser


@pytest.mark.parametrize("stubborn", [False, True])
def test_ctrl_c_ends_a_class_that_never_returns(stubborn: bool) -> None:
    presser = press_when_begun()
    with pytest.raises(ul.Interrupted):
        ul.run(scenario(ul.own(Endless, stubborn=stubborn)), cache=False)
    presser.join()
    # A class that catches the interrupt keeps running, so the test bounds its time.
    assert not Endless.made[-1].released
    Endless.made[-1].released = True


def test_ctrl_c_ends_a_replay_that_never_returns() -> None:
    numpy = pytest.importorskip("numpy")
    packets = {"time_ns": numpy.arange(9, dtype="u8"), "len": numpy.full(9, 9, "u4")}
    presser = press_when_begun()
    with pytest.raises(KeyboardInterrupt):
        ul.replay(packets, queue=ul.own(Endless), link="1mbit")
    presser.join()


def test_invalid_algorithms_are_refused_with_what_is_accepted() -> None:
    for wrong in (3, BoDe(), object, "BoDe"):
        with pytest.raises(ul.SpecError, match="expected a class that is based on underload.Aqm"):
            ul.own(wrong)  # type: ignore[arg-type]
    with pytest.raises(ul.SpecError, match="BoDe: got an unexpected keyword argument 'bound'"):
        ul.own(BoDe, bound=1)
    with pytest.raises(ul.SpecError, match="limit"):
        ul.own(BoDe, limit="much")
    with pytest.raises(ul.SpecError, match="expected own.*name="):
        ul.own(Failing, how="a, b")
    named = ul.own(Failing, how="a, b", name="odd", limit="9p")
    assert named.spec == "own:odd,limit=9p" and named.parameters == {"how": "a, b"}


class Fixed(ul.CongestionControl):
    def on_ack(self, ack: ul.Ack) -> None:
        self.cwnd = 20


def test_a_method_that_is_never_called_is_refused() -> None:
    for base, method, meant in (
        (BoDe, "on_enque", "; did you mean on_enqueue?"),
        (BoDe, "onDequeue", "; did you mean on_dequeue?"),
        (BoDe, "on_tick", ""),
        (Fixed, "on_los", "; did you mean on_loss?"),
    ):
        wrong = type("Wrong", (base,), {method: lambda self: None})
        with pytest.raises(ul.SpecError, match=rf"^own: Wrong.{method}: .* expected on_") as said:
            ul.own(wrong)
        assert str(said.value).endswith(meant or "on_refused")
    helper = type("Helper", (BoDe,), {"once": lambda self: None, "dequeue": lambda self: None})
    assert ul.own(helper).spec.startswith("own:Helper")
    with pytest.raises(ul.SpecError, match="expected a class that has on_enqueue or on_dequeue"):
        ul.own(type("Empty", (ul.Aqm,), {}))


def test_an_algorithm_of_the_other_kind_is_refused_where_it_is_passed() -> None:
    queue, control = ul.own(BoDe), ul.own(Fixed)
    flow = ul.Scenario(up="10mbit").flow(ul.Tcp("cubic"))
    for wrong in (
        lambda: ul.Tcp(queue),  # type: ignore[arg-type]
        lambda: flow.variant("x", {"flow.tcp.congestion_control": queue}),
    ):
        with pytest.raises(ul.ScenarioError, match="is a queue; expected the name of a congestion"):
            wrong()
    for other in (
        lambda: ul.Scenario(up="10mbit", up_queue=control),
        lambda: flow.variant("x", up_queue=control),
    ):
        with pytest.raises(ul.ScenarioError, match="is a congestion control, for Tcp.*expected a"):
            other()
    with pytest.raises(ul.ScenarioError, match=r"BoDe is a class; expected own\(BoDe\)"):
        ul.Scenario(up="10mbit", up_queue=BoDe)


def test_two_algorithms_with_one_name_are_refused() -> None:
    def one() -> type[ul.Aqm]:
        class Same(ul.Aqm):
            def on_refused(self, now_ns: int, packet: Any, backlog: Any) -> None:
                pass

        return Same

    both = scenario(ul.own(one()), "first").variant("second", up_queue=ul.own(one(), limit="1000p"))
    with pytest.raises((ul.SpecError, ul.ScenarioError)):
        ul.run(both)


def test_a_scenario_file_cannot_name_an_algorithm_without_its_class() -> None:
    text = scenario(ul.own(BoDe)).text
    with pytest.raises(ul.RunError, match="`own:BoDe.*is not an algorithm of this program"):
        ul.run(ul.Scenario.parse(text))


def test_an_algorithm_can_be_set_as_a_key_of_a_run() -> None:
    base = ul.Scenario(up="10mbit", up_queue="fifo", phases={"load": "300ms"}).flow(ul.Probe())
    run = ul.run(base, set={"path.up_queue": ul.own(BoDe)}, cache=False)
    assert "own:BoDe" in next(iter(run.variants.values())).label


def test_algorithms_neither_resume_nor_sweep_nor_run_live(tmp_path: Any) -> None:
    mine = scenario(ul.own(BoDe))
    ul.run(mine, out=tmp_path / "run")
    with pytest.raises(ul.RunError, match="cannot be resumed"):
        ul.run(mine, out=tmp_path / "run", resume=True)
    with pytest.raises(ul.ScenarioError, match="a sweep may continue on another machine"):
        ul.sweep(mine, {"up": ["5mbit"]}, out=tmp_path / "sweep")
    with pytest.raises(ul.ScenarioError, match="a sweep may continue on another machine"):
        ul.sweep(scenario("fifo"), {"up_queue": [ul.own(BoDe)]}, out=tmp_path / "sweep")
    with pytest.raises(ul.RunError, match="only the simulator"):
        ul.run(mine, world="live")


def test_trials_are_never_taken_from_the_cache() -> None:
    """Runs with Python classes are not cached: a run long enough for the cache computes each trial
    again."""
    calls: list[int] = []

    class Counted(BoDe):
        def __init__(self) -> None:
            super().__init__()
            calls.append(1)

    short = scenario(ul.own(Counted)).phases(load="50ms")
    for turn in (1, 2):
        ul.run(short, repeats=40, cache=True)
        assert len(calls) == 40 * turn
