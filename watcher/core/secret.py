"""A secret that does not show itself by accident."""

from __future__ import annotations

from typing import Final

MASK: Final = "********"


class SecretText:
    """A text, such as an API key, whose `repr`, `str` and format never show it; equal to one with the same text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The secret itself, for the one place that sends it."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretText) and other._text == self._text

    def __hash__(self) -> int:
        return hash((SecretText, self._text))

    def __repr__(self) -> str:
        return f"SecretText({MASK!r})"

    def __str__(self) -> str:
        return MASK
