"""Invalid input of any kind raises the package's errors with the program's message, and never
crashes."""

from __future__ import annotations

import inspect
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import underload as ul

numpy = pytest.importorskip("numpy")

WORDS = some.text(string.ascii_letters + string.digits + ".:,=-_%/[]{}'\"\n\t é\0", max_size=20)
VALUES = some.one_of(
    WORDS,
    some.integers(),
    some.floats(),
    some.booleans(),
    some.none(),
    some.binary(max_size=4),
    some.lists(WORDS, max_size=2),
    some.dictionaries(WORDS, WORDS, max_size=2),
)
QUIETLY = settings(max_examples=200, deadline=None)


def line(**path: Any) -> ul.Scenario:
    path = {"up": "10mbit", "up_queue": "codel", "rtt": "20ms", **path}
    return ul.Scenario("line", phases={"load": "1s"}, **path).flow(ul.Probe("10ms"))


@QUIETLY
@given(key=some.sampled_from(["up", "rtt", "up_queue", "up_delay", "up_loss"]), value=VALUES)
def test_a_value_of_the_path_is_accepted_or_named(key: str, value: Any) -> None:
    try:
        scenario = line(**{key: value}).check()
    except ul.ScenarioTypeError as error:
        assert error.key == key
    except ul.ScenarioError as error:
        assert f"path.{key}" in str(error) or "`up_delay`" in str(error)
    else:
        again = ul.Scenario.parse(scenario.text, "line")
        assert again.text == scenario.text and again.variants == scenario.variants


@QUIETLY
@given(number=some.integers(0, 10**6), unit=WORDS.filter(lambda unit: unit.strip() != ""))
def test_an_unknown_unit_is_refused(number: int, unit: str) -> None:
    known = ("ns", "us", "ms", "s", "min", "h", "d")
    try:
        line(rtt=f"{number}{unit}").check()
    except ul.ScenarioError as error:
        assert error.key == "path.rtt"
    else:
        assert unit.lower().endswith(known), unit


OF_PYTHON = ("self", *inspect.signature(ul.Scenario).parameters)


@QUIETLY
@given(key=WORDS.filter(lambda key: key not in OF_PYTHON), value=VALUES)
def test_an_unknown_key_is_named(key: str, value: Any) -> None:
    for scenario in (lambda: line(**{key: value}), lambda: line().variant("other", {key: value})):
        try:
            scenario().check()
        except (ul.ScenarioError, ul.ScenarioTypeError) as error:
            assert str(error)


@QUIETLY
@given(kind=WORDS, keys=some.dictionaries(WORDS, VALUES, max_size=2), name=some.none() | WORDS)
def test_an_invalid_flow_is_refused(kind: str, keys: dict[str, Any], name: str | None) -> None:
    with pytest.raises((ul.ScenarioError, ul.ScenarioTypeError)):
        line().flow(ul.Flow(kind, keys, name)).check()


@QUIETLY
@given(text=WORDS | some.text(max_size=200))
def test_a_text_is_a_scenario_or_an_error(text: str) -> None:
    with pytest.raises(ul.ScenarioError):
        ul.Scenario.parse(text)


@QUIETLY
@given(spec=WORDS, parameters=some.dictionaries(WORDS, VALUES, max_size=2))
def test_any_spec_makes_a_queue_or_an_error(spec: str, parameters: dict[str, Any]) -> None:
    try:
        queue = ul.queue(spec, **parameters)
    except (ul.SpecError, TypeError) as error:
        # `link` and `seed` are separate arguments, with different types.
        assert isinstance(error, ul.Error) or {"link", "seed", "name"} & set(parameters), error
    else:
        assert queue.spec.split(":")[0] in ul.queues()


COLUMNS = some.one_of(
    some.lists(some.integers(-(2**65), 2**65), max_size=4),
    some.lists(some.floats(), max_size=4),
    some.lists(WORDS, max_size=4),
    some.lists(some.none() | some.integers(0, 10), max_size=4),
    some.lists(some.lists(some.integers(0, 9), max_size=2), max_size=3),
    WORDS,
    some.none(),
    some.integers(),
)


@QUIETLY
@given(
    packets=some.dictionaries(
        some.sampled_from(["time_ns", "len", "flow", "dscp", "ecn", "rate", "id"]), COLUMNS
    )
)
def test_foreign_columns_are_accepted_or_named(packets: dict[str, Any]) -> None:
    try:
        fates = ul.replay(packets, queue="codel", link="10mbit")
    except ul.PacketsError as error:
        assert str(error)
    else:
        assert len(fates) == len(packets["time_ns"]) == len(packets["len"])


@QUIETLY
@given(first=COLUMNS, second=COLUMNS)
def test_statistics_refuse_values_that_are_not_numbers(first: Any, second: Any) -> None:
    for of_two in (ul.stats.mann_whitney, ul.stats.hodges_lehmann):
        try:
            assert of_two(first, second) is not None
        except ul.StatisticsError as error:
            assert str(error)
    try:
        assert ul.stats.mean_interval(first).repeats == len(first)
    except ul.StatisticsError as error:
        assert str(error)
