"""Statistics: equal to scipy's."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import underload as ul
from underload import stats

scipy = pytest.importorskip("scipy.stats")
numpy = pytest.importorskip("numpy")

numbers = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))
groups = st.lists(numbers, min_size=2, max_size=60)


@settings(max_examples=60, deadline=None)
@given(groups, groups, st.sampled_from(["two-sided", "less", "greater"]))
def test_mann_whitney_is_scipys(first: list[float], second: list[float], alternative: str) -> None:
    assume(len(set(first + second)) > 1)
    ours = stats.mann_whitney(first, second, alternative)  # type: ignore[arg-type]
    method = "exact" if ours.method == "exact" else "asymptotic"
    theirs = scipy.mannwhitneyu(first, second, alternative=alternative, method=method)
    assert ours.u == theirs.statistic
    assert ours.p_value == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)
    assert ours.superiority == pytest.approx(ours.u / len(first) / len(second))


@settings(max_examples=60, deadline=None)
@given(groups, groups)
def test_hodges_lehmann_is_the_median_of_all_differences(
    first: list[float], second: list[float]
) -> None:
    shift = stats.hodges_lehmann(first, second)
    differences = numpy.subtract.outer(numpy.array(first), numpy.array(second)).ravel()
    assert shift.estimate == pytest.approx(numpy.median(differences), rel=1e-9, abs=1e-9)
    assert shift.low is None or shift.low <= shift.estimate <= shift.high
    back = stats.hodges_lehmann(second, first)
    assert back.estimate == pytest.approx(-shift.estimate, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(groups, st.floats(0.5, 0.999))
def test_the_interval_of_a_mean_is_of_order_statistics_or_scipys(
    values: list[float], confidence: float
) -> None:
    ours = stats.mean_interval(values, confidence)
    count = len(values)
    assert ours.mean == pytest.approx(numpy.mean(values), rel=1e-9, abs=1e-9)
    if count < 5:
        assert (ours.low, ours.high) == (None, None)
    elif count <= 30:
        # The most values that both ends can leave out, and the confidence that is left.
        inside = [1 - 2 * scipy.binom.cdf(left_out, count, 0.5) for left_out in range(count)]
        left_out = max([k for k, share in enumerate(inside) if share >= confidence], default=0)
        ordered = sorted(values)
        assert (ours.low, ours.high) == (ordered[left_out], ordered[-1 - left_out])
        assert ours.confidence == pytest.approx(inside[left_out], abs=1e-9)
    else:
        error = scipy.sem(values)
        assume(error > 1e-6)
        low, high = scipy.t.interval(confidence, count - 1, numpy.mean(values), error)
        assert (ours.low, ours.high) == pytest.approx((low, high), rel=1e-6, abs=1e-6)


def test_clusters_that_differ_make_the_interval_wider() -> None:
    random = numpy.random.default_rng(5)
    lines = numpy.repeat(numpy.arange(100), 50)
    typical = numpy.repeat(random.lognormal(3, 0.5, 100), 50)
    values = typical * random.lognormal(0, 0.1, 5_000)
    (by_line,) = stats.cluster_quantiles(values, lines, [0.5])
    (alone,) = stats.cluster_quantiles(values, numpy.arange(5_000), [0.5])
    assert by_line.estimate == pytest.approx(numpy.median(values), rel=0.006)
    assert by_line.high - by_line.low > 3 * (alone.high - alone.low)
    assert stats.cluster_quantiles(values, lines, [0.5]) == [by_line]


def test_lists_and_arrays_of_any_kind_give_the_same() -> None:
    values = [3, 1, 2]
    want = stats.mean_interval(values)
    for other in (tuple(values), numpy.array(values), numpy.array(values, "f4"), iter(values)):
        assert stats.mean_interval(other) == want
    # Not contiguous.
    assert stats.mean_interval(numpy.array([3.0, 9, 1, 9, 2])[::2]) == want


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: stats.mean_interval([]), "at least one"),
        (lambda: stats.mean_interval([1.0, math.nan]), "finite"),
        (lambda: stats.mean_interval([1.0, 2.0], 1.5), "confidence: 1.5"),
        (lambda: stats.mann_whitney([], [1.0]), "two groups"),
        (lambda: stats.mann_whitney([1.0], [2.0], "more"), "two-sided"),  # type: ignore[arg-type]
        (lambda: stats.hodges_lehmann([0.0], [1.0], ratio=True), "above 0"),
        (lambda: stats.mean_interval(["a"]), "numbers"),
        (lambda: stats.mean_interval(numpy.zeros((2, 2))), "shape"),
        (lambda: stats.mean_interval(numpy.array(["a"])), "numbers"),
        (lambda: stats.cluster_quantiles([1.0, -1.0], [0, 0]), "positive"),
        (lambda: stats.cluster_quantiles([1.0], [0, 0]), "cluster"),
    ],
)
def test_values_without_a_statistic_are_refused_with_a_reason(call: object, words: str) -> None:
    with pytest.raises(ul.StatisticsError, match=words):
        call()  # type: ignore[operator]
