"""Congestion controls written in Python, in runs."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import underload as ul


class Fixed(ul.CongestionControl):
    """A congestion control with a constant window."""

    def __init__(self, segments: float = 20) -> None:
        self.cwnd = segments

    def on_ack(self, ack: ul.Ack) -> None:
        pass

    def on_loss(self, event: ul.CongestionEvent) -> None:
        pass


class Aimd(ul.CongestionControl):
    """A minimal RFC 5681: slow start, then one segment per round trip; half the window after a
    loss."""

    def __init__(self) -> None:
        self.threshold = float("inf")

    def on_ack(self, ack: ul.Ack) -> None:
        if ack.window_limited and ack.state == "open":
            self.cwnd += ack.acknowledged * (1 if self.cwnd < self.threshold else 1 / self.cwnd)

    def on_loss(self, event: ul.CongestionEvent) -> None:
        self.threshold = self.cwnd = max(self.cwnd / 2, 2)

    def on_timeout(self, event: ul.CongestionEvent) -> None:
        self.threshold, self.cwnd = max(self.cwnd / 2, 2), 1


def scenario(control: Any, **keys: Any) -> ul.Scenario:
    phases = {"ramp": "2s", "load": "4s"}
    made = ul.Scenario(up="12mbit", rtt="40ms", up_queue="fifo:limit=60p", phases=phases)
    return made.flow(ul.Tcp(control, **keys), ul.Probe("10ms"))


def goodput(run: ul.Run) -> float:
    value = next(iter(run.variants.values())).metric("goodput.up")
    assert value is not None
    return value


def test_a_custom_window_is_respected() -> None:
    """12 Mbit/s are 1000 packets a second, 40 in a round trip of 40 ms."""
    rates = {it: goodput(ul.run(scenario(ul.own(Fixed, segments=it)))) for it in (10, 20, 80)}
    full = 1_448 * 8 / 1_000
    assert rates[20] == pytest.approx(full / 2, rel=0.05)
    assert rates[10] == pytest.approx(rates[20] / 2, rel=0.05)
    assert rates[80] == pytest.approx(full, rel=0.02)


def test_a_custom_pacing_rate_is_respected() -> None:
    class Paced(Fixed):
        def __init__(self) -> None:
            self.cwnd, self.pacing_rate = 80, 500_000

    run = ul.run(scenario(ul.own(Paced)))
    assert goodput(run) == pytest.approx(500_000 * 8e-6 * 1_448 / 1_500, rel=0.02)
    variant = next(iter(run.variants.values()))
    assert variant.metric("load.sojourn.up.p99") < 1.5  # type: ignore[operator]


def test_additive_increase_does_as_reno_does() -> None:
    key = "flow.tcp.congestion_control"
    both = scenario("reno").variant("reno", {key: "reno"}).variant("own", {key: ul.own(Aimd)})
    run = ul.run(both, cache=False)
    mine, reno = run.variants["own"], run.variants["reno"]
    assert goodput(run) > 10
    for name, within in (("goodput.up", 0.05), ("load.rtt.p50", 0.25)):
        assert mine.metric(name) == pytest.approx(reno.metric(name), rel=within)
    assert mine.metric("drops.up") > 0  # type: ignore[operator]
    names = [flow.get("congestion_control") for flow in run.record["trials"][1]["flows"]]
    assert run.record["trials"][1]["variant"] == "own" and "own:Aimd" in names


def test_acknowledgements_say_what_they_document() -> None:
    acks: list[Any] = []
    made: list[Any] = []

    class Curious(Fixed):
        def __init__(self) -> None:
            made.append((self.segment_bytes, self.packet_bytes, self.cwnd, self.pacing_rate))
            self.cwnd = 20

        def on_ack(self, ack: ul.Ack) -> None:
            acks.append(ack)

    ul.run(scenario(ul.own(Curious)))
    assert made == [(1448, 1500, 10, None)]
    assert sum(ack.delivered for ack in acks) == acks[-1].total_delivered > 1_000
    late = acks[len(acks) // 2]
    assert late.state == "open" and late.in_flight <= 20 and late.lost == 0 == late.marked
    assert 40_000_000 < late.min_rtt_ns <= late.smoothed_rtt_ns < 60_000_000
    assert late.rtt_ns is not None and late.prior_delivered == late.total_delivered - 20
    assert late.delivery_rate == pytest.approx(500, rel=0.1) and not late.app_limited
    assert all(one.now_ns <= next.now_ns for one, next in zip(acks, acks[1:]))


def test_marks_are_reported_in_the_way_that_the_class_requires() -> None:
    class Marks(Aimd):
        ecn = "accurate"
        seen: list[int] = []
        told: list[int] = []

        def on_ack(self, ack: ul.Ack) -> None:
            super().on_ack(ack)
            self.seen.append(ack.marked)

        def on_ecn(self, event: ul.CongestionEvent) -> None:
            super().on_ecn(event)
            self.told.append(event.in_flight)

    run = ul.run(scenario(ul.own(Marks)).variant("marks", up_queue="codel:ecn=on,ce-threshold=5ms"))
    assert sum(Marks.seen) > len(Marks.told) > 3
    assert run.variants["marks"].metric("drops.up") == 0


@pytest.mark.parametrize(
    "value, said",
    [
        ({"cwnd": float("nan")}, "TypeError: cwnd is nan; expected a number of segments"),
        ({"cwnd": -1}, "cwnd is -1"),
        ({"cwnd": 0}, "cwnd is 0"),
        ({"cwnd": float("inf")}, "cwnd is inf"),
        ({"cwnd": True}, "cwnd is True"),
        ({"cwnd": "ten"}, "cwnd is 'ten'"),
        ({"cwnd": None}, "cwnd is None"),
        ({"pacing_rate": 0}, "pacing_rate is 0; expected None or a number of bytes per second"),
        ({"pacing_rate": []}, r"pacing_rate is \[\]"),
    ],
)
def test_nonsense_is_named(value: dict[str, Any], said: str) -> None:
    class Wrong(Fixed):
        acks = 0

        def on_ack(self, ack: ul.Ack) -> None:
            self.acks += 1
            if self.acks > 100:
                self.__dict__.update(value)

    with pytest.raises(ul.OwnCodeError, match=r"^Wrong.on_ack, variant default, trial 0.*" + said):
        ul.run(scenario(ul.own(Wrong)))


def test_a_class_without_window_or_methods_is_refused() -> None:
    class Lost(Fixed):
        def on_ack(self, ack: ul.Ack) -> None:
            del self.cwnd

    class Unborn(Fixed):
        def __init__(self) -> None:
            raise LookupError("no window")

    with pytest.raises(ul.OwnCodeError, match="Fixed.__init__.*cwnd is 0; expected a number of"):
        ul.run(scenario(ul.own(Fixed, segments=0)))
    with pytest.raises(ul.OwnCodeError, match="Lost.on_ack.*AttributeError.*cwnd"):
        ul.run(scenario(ul.own(Lost)))
    with pytest.raises(ul.OwnCodeError, match="Unborn.__init__.*no window") as caught:
        ul.run(scenario(ul.own(Unborn)))
    assert isinstance(caught.value.__cause__, LookupError)
    with pytest.raises(ul.SpecError, match="has on_ack"):
        ul.own(type("Empty", (ul.CongestionControl,), {}))
    odd = type("Odd", (Fixed,), {"ecn": "maybe"})
    with pytest.raises(ValueError, match='expected None, "accurate" or "l4s"'):
        ul.run(scenario(ul.own(odd)))


def test_trials_with_huge_or_tiny_windows_end() -> None:
    for segments in (1, 1.5, 1e18):
        assert goodput(ul.run(scenario(ul.own(Fixed, name="edge", segments=segments)))) > 0


def test_a_congestion_control_is_a_value() -> None:
    control = ul.own(Fixed, segments=12)
    assert control.spec == "own:Fixed,segments=12" == str(control)
    assert pickle.loads(pickle.dumps(control)) == control != ul.own(Fixed)
    made = scenario(control)
    assert 'congestion_control = "own:Fixed,segments=12"' in made.text and made.worlds == ["sim"]
    with pytest.raises(ul.RunError, match="`own:Fixed.*is not an algorithm of this program"):
        ul.run(ul.Scenario.parse(made.text))
    with pytest.raises(ul.ScenarioError, match="a sweep may continue on another machine"):
        ul.sweep(made, {"up": ["5mbit"]})
