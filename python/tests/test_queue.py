"""Queues and links step by step, and arrays of packets through them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import underload as ul

numpy = pytest.importorskip("numpy")
polars = pytest.importorskip("polars")


def test_a_queue_returns_its_packets() -> None:
    queue = ul.queue("fifo", limit="3p")
    assert [queue.enqueue(0, 1000, flow=it) for it in range(4)] == [True, True, True, False]
    assert queue.backlog == (3, 3000)
    first = queue.dequeue(1_000)
    assert first is not None and (first.id, first.flow, first.delay_ns) == (0, 0, 1_000)
    assert queue.events() == [(0, 3, "dropped", "overlimit")] and queue.events() == []
    assert queue.stats["offered"] == 4 and queue.stats["dropped_enqueue"] == 1
    assert [queue.dequeue(2_000).id, queue.dequeue(2_000).id] == [1, 2]
    assert queue.dequeue(2_000) is None


def test_codel_marks_what_may_be_marked_after_an_interval() -> None:
    queue = ul.queue("codel", profile="linux", ecn=True)
    for number in range(200):
        queue.enqueue(number * 1_000_000, 1500, ecn="ect0")
    left = [queue.dequeue(200_000_000 + at * 2_000_000) for at in range(100)]
    assert any(packet.ecn == "ce" for packet in left if packet is not None)
    assert {event.what for event in queue.events()} == {"marked"}
    assert "codel.count" in queue.gauges


def test_a_link_delivers_at_its_rate() -> None:
    link = ul.link("8mbit", "fifo:limit=9p", delay="10ms")
    assert [link.send(0, 1000), link.send(0, 1000)] == [0, 1]
    assert link.next_ns is not None and 0 < link.next_ns <= 11_000_000
    assert link.poll(10_999_999) == []
    assert [(it.id, it.left_ns) for it in link.poll(20_000_000)] == [(0, 11_000_000), (1, 12_000_000)]
    with pytest.raises(ValueError, match="expected at least"):
        link.send(0, 1000)


def test_invalid_specs_are_refused_with_what_is_accepted() -> None:
    with pytest.raises(ul.SpecError, match="did you mean `codel`"):
        ul.queue("codell")
    with pytest.raises(ul.SpecError, match="tarjet"):
        ul.queue("pie", tarjet="15ms")
    for name, parameters in (("rate", {}), ("pie", {"rate": "5mbit"})):
        with pytest.raises(ul.SpecError, match="there is no queue|has no parameter"):
            ul.queue(name, **parameters)
    with pytest.raises(ul.SpecError, match="a rate such as 20mbit"):
        ul.link("20mb", "fifo")
    with pytest.raises(ul.SpecError, match="rate"):
        ul.queue("docsis-pie").enqueue(0, 1)
    assert ul.queue("docsis-pie", link="10mbit").enqueue(0, 1)
    queue = ul.queue("pie", profile="rfc", seed=3)
    assert queue.spec == "pie:profile=rfc" and pickle.loads(pickle.dumps(queue)) == queue
    assert "codel" in ul.queues()
    for wrong in ({"length": 0}, {"length": 1, "dscp": 64}, {"length": 1, "ecn": "ect9"}):
        with pytest.raises(ValueError, match="expected"):
            queue.enqueue(0, **wrong)  # type: ignore[arg-type]


def test_a_queue_can_be_a_value_in_a_scenario() -> None:
    scenario = ul.Scenario(up="10mbit", up_queue=ul.queue("pie", profile="rfc")).flow(ul.Probe())
    assert 'up_queue = "pie:profile=rfc"' in scenario.text


def packets(count: int = 1_000) -> dict[str, Any]:
    random = numpy.random.default_rng(7)
    return {
        "time_ns": numpy.cumsum(random.integers(0, 1_500_000, count)).astype("u8"),
        "len": random.integers(40, 1500, count).astype("u4"),
        "flow": random.integers(0, 5, count).astype("u4"),
        "ecn": random.integers(0, 3, count).astype("u1"),
    }


@pytest.mark.parametrize("queue", ["fifo:limit=20p", "codel:ecn=on", "pie:profile=rfc", "fq-codel"])
def test_packets_of_arrays_have_the_fates_of_single_packets(queue: str) -> None:
    columns = packets()
    frame = ul.replay(columns, queue=queue, link="8mbit", seed=5).to_dict()
    link = ul.link("8mbit", queue, seed=5)
    arrived = []
    for time, length, flow, ecn in zip(*(columns[it].tolist() for it in columns)):
        link.send(time, length, flow, ecn={0: "not-ect", 1: "ect1", 2: "ect0"}[ecn])
    while link.next_ns is not None:
        arrived += link.poll(link.next_ns)
    sent = [at for at, fate in enumerate(frame["fate"]) if fate in ("sent", "marked")]
    assert sorted(packet.id for packet in arrived) == sent
    assert 0 < len(sent) <= len(frame["id"]) == 1_000
    for packet in arrived:
        assert frame["end_ns"][packet.id] == packet.left_ns
        assert frame["ecn"][packet.id] == packet.ecn
    dropped = {event.id: event.reason for event in link.events() if event.what == "dropped"}
    assert dropped == {
        at: frame["reason"][at]
        for at, fate in enumerate(frame["fate"])
        if fate.startswith("dropped")
    }


def test_all_kinds_of_tables_are_accepted_and_give_equal_results() -> None:
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    columns = packets(200)
    want = ul.replay(columns, queue="codel", link="8mbit").to_dict()
    lists = {name: values.tolist() for name, values in columns.items()}
    signed = {name: values.astype("i8") for name, values in columns.items()}
    names = ["not-ect", "ect1", "ect0", "ce"]
    words = {**lists, "ecn": [names[bits] for bits in lists["ecn"]]}
    tables = [polars.DataFrame(columns), pandas.DataFrame(columns), pyarrow.table(columns)]
    for table in [lists, signed, words, *tables]:
        assert ul.replay(table, queue="codel", link="8mbit").to_dict() == want
    frame = ul.replay(columns, queue="codel", link="8mbit")
    assert frame.to_polars()["fate"].to_list() == want["fate"]
    assert frame.to_pandas()["sojourn_ns"].isna().sum() == want["sojourn_ns"].count(None)


def test_invalid_columns_are_refused_by_name() -> None:
    good = packets(3)

    def said(**changes: Any) -> str:
        with pytest.raises(ul.PacketsError) as caught:
            ul.replay({**good, **changes}, queue="fifo", link="8mbit")
        return str(caught.value)

    assert "is earlier than the previous" in said(time_ns=[3, 2, 4])
    assert "len: packet 1 has 0" in said(len=[1, 0, 1])
    assert "values where time_ns has 3" in said(len=[1, 1])
    assert "size: no such column" in said(size=[1, 1, 1])
    assert "time_ns: from -1" in said(time_ns=[-1, 2, 3])
    assert "time_ns: float64" in said(time_ns=[0.5, 1.0, 2.0])
    assert "expected (packets,)" in said(len=[[1, 1, 1]])
    assert "expected not-ect" in said(ecn=["ect0", "ect1", "no"])
    with pytest.raises(ul.PacketsError, match="expected the columns time_ns and len"):
        ul.replay({"len": [1]}, queue="fifo", link="8mbit")
    with pytest.raises(ul.PacketsError, match="int: expected a data frame"):
        ul.replay(7, queue="fifo", link="8mbit")
    with pytest.raises(ul.SpecError):
        ul.replay(good, queue="fifo", link="fast")


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(1, 9000)), max_size=60),
    st.sampled_from(ul.queues()),
)
def test_no_packet_disappears(steps: list[tuple[int, int]], queue: str) -> None:
    times = numpy.cumsum(numpy.array([gap for gap, _ in steps], dtype="u8"), dtype="u8")
    columns = {"time_ns": times, "len": numpy.array([length for _, length in steps], dtype="u4")}
    spec = "diffserv" if queue == "diffserv" else queue
    frame = ul.replay(columns, queue=spec, link="5mbit").to_dict()
    assert frame["id"] == list(range(len(steps)))
    for fate, start, sojourn in zip(frame["fate"], frame["start_ns"], frame["sojourn_ns"]):
        assert (start is None) == (fate not in ("sent", "marked") and start is None)
        assert sojourn is None or sojourn >= 0
