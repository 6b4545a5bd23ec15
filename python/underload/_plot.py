"""The plots of a report."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ._errors import ReportError

MOST_SHOWN = 4


class Plot(NamedTuple):
    """A plot as SVG; a notebook shows it."""

    name: str
    """The name, for example `cdf-load`."""
    title: str
    """The title of the plot."""
    caption: str
    """How to read the plot."""
    svg: str
    """The SVG document, with its style sheet."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the plot to a file, whose name ends in `.svg`. Raises `ReportError`."""
        if Path(path).suffix.lower() != ".svg":
            raise ReportError(f"{os.fspath(path)}: a plot is SVG; expected a name ending in .svg")
        Path(path).write_text(self.svg, encoding="utf-8")
        return Path(path)

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Plot({self.name!r}: {self.title})"


class Plots(Mapping[str, Plot]):
    """Plots by their names."""

    def __init__(self, plots: list[tuple[str, str, str, str]]) -> None:
        self._plots = {plot[0]: Plot(*plot) for plot in plots}

    def __getitem__(self, name: str) -> Plot:
        try:
            return self._plots[name]
        except KeyError:
            raise KeyError(f"no plot `{name}`; there are {', '.join(self._plots)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._plots)

    def __len__(self) -> int:
        return len(self._plots)

    def cdf(self, phase: str = "load") -> Plot:
        """Returns the distribution of latency with a line per variant; `phase`: `load` or `idle`. A
        report of many trials has the distribution of their means under load instead."""
        return self["cdf-mean" if phase == "load" and "cdf-load" not in self else f"cdf-{phase}"]

    def timeline(self, variant: int = 0) -> Plot:
        """Returns a trial of a variant over time; `variant` is its position from 0."""
        return self[f"timeline-{variant}"]

    def shown(self) -> list[Plot]:
        """Returns the plots that a notebook shows below a run."""
        return [it for name, it in self._plots.items() if "timeline" not in name][:MOST_SHOWN]
