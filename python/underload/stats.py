"""The statistics of reports, for your own numbers.

Every function takes a list, or an array of floats of shape (n,), which is not copied. Samples of
one trial follow one another through one queue: the samples are far from independent, and an
interval over them is too narrow. Use one number per trial, or `cluster_quantiles` with the trial of
each sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from . import _underload
from ._errors import StatisticsError

__all__ = [
    "ClusterQuantile",
    "Interval",
    "MannWhitney",
    "Shift",
    "cluster_quantiles",
    "hodges_lehmann",
    "mann_whitney",
    "mean_interval",
]


class Interval(NamedTuple):
    """A mean and its confidence interval."""

    mean: float
    low: float | None
    """`None` with fewer than five values."""
    high: float | None
    confidence: float
    repeats: int
    """The number of values."""


class MannWhitney(NamedTuple):
    """The outcome of the rank test."""

    u: float
    """Pairs in which the first group's value is larger; a tie counts one half."""
    p_value: float
    superiority: float
    """`u` as a share of all pairs; 0.5 for equal groups."""
    method: str
    """`exact` (up to 20 values per group, without ties) or `normal`."""


class Shift(NamedTuple):
    """The difference of two groups."""

    estimate: float
    """Median over all pairs of first minus second, or first over second."""
    low: float | None
    """The lower end; `None` if the groups are too small for the confidence."""
    high: float | None
    confidence: float


class ClusterQuantile(NamedTuple):
    """A quantile of values that come in clusters."""

    estimate: float | None
    low: float | None
    """The lower end, by resampling clusters; `None` if too few clusters have values beyond the
    quantile."""
    high: float | None


def mean_interval(values: Any, confidence: float = 0.95) -> Interval:
    """Returns the mean of independent values, such as one per trial, and an interval.

    Of up to 30 values the interval is that of order statistics, which holds the median of many more
    values with the returned confidence; of more values it is Student's, about the mean.
    """
    return Interval(*_underload.mean_interval(_floats(values), confidence))


def mann_whitney(
    first: Any, second: Any, alternative: Literal["two-sided", "less", "greater"] = "two-sided"
) -> MannWhitney:
    """Tests whether one group has larger values (Mann and Whitney)."""
    return MannWhitney(*_underload.mann_whitney(_floats(first), _floats(second), alternative))


def hodges_lehmann(
    first: Any, second: Any, confidence: float = 0.95, *, ratio: bool = False
) -> Shift:
    """Returns by how much the first group is larger, or with `ratio` how many times (Hodges and
    Lehmann)."""
    return Shift(*_underload.hodges_lehmann(_floats(first), _floats(second), confidence, ratio))


def cluster_quantiles(
    values: Any,
    clusters: Sequence[Any],
    q: Sequence[float] = (0.5, 0.99),
    confidence: float = 0.95,
    seed: int = 1,
) -> list[ClusterQuantile]:
    """Returns quantiles of positive values that come in clusters, such as the tests of one line.
    The intervals show how the quantiles vary with the clusters: clusters are resampled 400 times,
    and equal seeds give equal resamples. Values are binned to half a percent. `clusters`: the
    cluster of each value."""
    numbers: dict[Any, int] = {}
    labels = clusters.tolist() if hasattr(clusters, "tolist") else list(clusters)
    each = [numbers.setdefault(label, len(numbers)) for label in labels]
    found = _underload.cluster_quantiles(_floats(values), each, list(q), confidence, seed)
    return [ClusterQuantile(*one) for one in found]


def _floats(values: Any) -> Any:
    """Returns a list of floats, or an array of floats without a copy."""
    if isinstance(values, (list, tuple)):
        return _list(values)
    if hasattr(values, "__array__"):
        import numpy

        array = numpy.asarray(values)
        if array.ndim != 1:
            raise StatisticsError(f"shape {array.shape}; expected (n,)")
        if array.dtype.kind not in "iuf":
            raise StatisticsError(f"{array.dtype}; expected numbers")
        return numpy.ascontiguousarray(array, dtype=float)
    return _list(values)


def _list(values: Iterable[Any]) -> list[float]:
    if isinstance(values, (str, bytes)):
        raise StatisticsError(f"{type(values).__name__}; expected numbers")
    try:
        return [float(value) for value in values]
    except (TypeError, ValueError, OverflowError) as error:
        raise StatisticsError(f"{error}; expected numbers") from None
