"""A measured figure beside its reference, what is wanted of it, and the table of all of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum


class Unit(Enum):
    """What a figure is in, and how it is printed."""

    MIB = "MiB"
    MILLISECONDS = "ms"
    MICROSECONDS = "µs"
    PER_SECOND = "/s"
    COUNT = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement. `most` bounds the ratio to the reference, or the figure itself where there is none.

    None of `most` is a figure for the record.
    """

    row: str
    ours: float
    unit: Unit
    reference: float | None = None
    of: str = ""
    """What the reference is."""
    most: float | None = None

    @property
    def judged(self) -> float:
        """What is compared with `most`."""
        return self.ours / self.reference if self.reference else self.ours


@dataclass(slots=True)
class Row:
    """The same figure of all rounds."""

    name: str
    figures: list[Figure] = field(default_factory=list)

    @property
    def worst(self) -> float:
        """The round that is farthest from the goal."""
        return max(figure.judged for figure in self.figures)

    @property
    def met(self) -> bool | None:
        """Whether every round met the goal; None for a row without one."""
        most = self.figures[0].most
        return None if most is None else self.worst <= most


def rows_of(figures: Iterable[Figure]) -> list[Row]:
    """The figures by row, in the order in which the rows first came."""
    rows: dict[str, Row] = {}
    for figure in figures:
        rows.setdefault(figure.row, Row(figure.row)).figures.append(figure)
    return list(rows.values())


def table(rows: Iterable[Row]) -> str:
    """The rows as a Markdown table: medians over the rounds, and the worst round."""
    lines = [
        "| figure | ours | reference | median ratio | worst | goal | |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        first = row.figures[0]
        ours = statistics.median(figure.ours for figure in row.figures)
        references = [figure.reference for figure in row.figures if figure.reference is not None]
        against = f"{_shown(statistics.median(references), first.unit)} ({first.of})" if references else "–"
        ratio = f"{statistics.median(figure.judged for figure in row.figures):.2f}" if references else "–"
        worst = f"{row.worst:.2f}" if references else _shown(row.worst, first.unit)
        goal = "record" if first.most is None else f"≤ {first.most:g}" + ("" if references else f" {first.unit.value}")
        mark = {True: "met", False: "**not met**", None: ""}[row.met]
        lines.append(f"| {row.name} | {_shown(ours, first.unit)} | {against} | {ratio} | {worst} | {goal} | {mark} |")
    return "\n".join(lines) + "\n"


def _shown(value: float, unit: Unit) -> str:
    digits = 0 if unit is Unit.COUNT else 2 if abs(value) < 10 else 1
    return f"{value:.{digits}f} {unit.value}".rstrip()
