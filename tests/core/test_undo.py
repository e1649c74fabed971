"""What `undo` takes back, and what counts as a CLI's copy from memory."""

from __future__ import annotations

import pytest

from watcher.core.events import TitleSource
from watcher.core.title_runs import TitleRun
from watcher.core.undo import TitleWrite, newest_not_undone, put_back_by_memory, title_before

AUTO, MANUAL = TitleSource.AUTO, TitleSource.MANUAL


def run(title: str, offset: int, source: TitleSource | None = AUTO, uuid: str = "") -> TitleRun:
    """A title that stands once, at this offset."""
    uuid = uuid or f"u{offset}"
    return TitleRun(title, source, offset, offset + 10, offset, offset + 10, uuid, (uuid,))


@pytest.mark.parametrize(
    ("writes", "standing"),
    [
        ("", None),
        ("a", "a"),
        ("ab", "b"),
        ("ab!", "a"),
        ("ab!!", None),
        ("ab!!!", None),
        ("a!b", "b"),
        ("ab!c", "c"),
        ("ab!c!", "a"),
    ],
)
def test_each_undo_takes_back_one_title(writes: str, standing: str | None) -> None:
    """Like brackets: an undo (`!`) belongs to the newest title that still stands."""
    found = newest_not_undone(TitleWrite(each, number, undoes=each == "!") for number, each in enumerate(writes))
    assert (found.title if found else None) == standing


def test_the_title_before_a_record() -> None:
    """The last one that begins before it; an unsourced one is the user's; none is an empty manual one."""
    titles = (run("a", 100), run("b", 200, None), run("c", 300))
    assert title_before(titles, 100) == ("", MANUAL)
    assert title_before(titles, 101) == ("a", AUTO)
    assert title_before(titles, 300) == ("b", MANUAL)
    assert title_before((), 300) == ("", MANUAL)


@pytest.mark.parametrize(
    ("after", "from_memory"),
    [
        ((), False),
        ((run("held", 400, MANUAL),), True),
        ((run("older", 400),), True),
        ((run("held", 400, AUTO),), False),
        ((run("new", 400, MANUAL),), False),
        ((run("ours", 400, MANUAL),), False),
        ((run("held", 400, MANUAL, uuid="mine"),), False),
        ((run("held", 400, MANUAL), run("new", 500)), False),
    ],
)
def test_only_what_stood_before_ours_comes_from_memory(after: tuple[TitleRun, ...], from_memory: bool) -> None:
    """Whatever is new, of whatever source, is somebody's later wish."""
    titles = (run("older", 100), run("held", 200, MANUAL), run("ours", 300, MANUAL, uuid="u300"), *after)
    assert put_back_by_memory(titles, frozenset({"u300", "mine"}), "ours", MANUAL, 300) is from_memory
