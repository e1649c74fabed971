"""JSON with a value of another type than documented in one place, as no schema keeps out."""

from __future__ import annotations

from collections.abc import Iterator

ODD: tuple[object, ...] = (None, True, 7, 1.5, "x", [], ["x"], [None], {}, {"a": 1}, 10**400)


def with_odd_values(value: object) -> Iterator[object]:
    """`value` in all the ways in which one part of it, or all of it, is missing or something odd."""
    yield from ODD
    if isinstance(value, dict):
        for name, inner in value.items():
            yield {other: each for other, each in value.items() if other != name}
            for odd in with_odd_values(inner):
                yield {**value, name: odd}
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            for odd in with_odd_values(inner):
                yield [*value[:index], odd, *value[index + 1 :]]
