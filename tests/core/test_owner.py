"""What follows from the owners of a session."""

from __future__ import annotations

from typing import Any

import pytest

from watcher.core.owner import HEADLESS, PRINT, SERVE, TUI, Alive, Owner, Ownership, OwnerSource


def owner(**changes: Any) -> Owner:
    """A live terminal, changed."""
    values: dict[str, Any] = {
        "pid": 10,
        "kind": TUI,
        "session_id": "s",
        "alive": Alive.LIVE,
        "source": OwnerSource.REGISTRY,
        "start": "boot:1",
    }
    return Owner(**(values | changes))


def test_nobody_known_owns_nothing() -> None:
    """An empty ownership denies everything."""
    nobody = Ownership()
    assert not (nobody.owned or nobody.is_tui or nobody.is_daemon or nobody.interactive or nobody.ever_known)
    assert nobody.live == ()
    assert nobody.disable_switch is None


@pytest.mark.parametrize(("alive", "owned"), [(Alive.LIVE, True), (Alive.UNKNOWN, True), (Alive.GONE, False)])
def test_an_owner_that_cannot_be_judged_counts_as_live(alive: Alive, owned: bool) -> None:
    """In doubt a session is owned (contract 1.4)."""
    ownership = Ownership((owner(alive=alive),))
    assert ownership.owned is owned
    assert ownership.is_tui is owned
    assert bool(ownership.live) is owned
    assert ownership.ever_known


@pytest.mark.parametrize("kind", [SERVE, HEADLESS, PRINT, "something-new", "other"])
def test_every_kind_but_a_terminal_forbids_writing_while_it_lives(kind: str) -> None:
    """It may hold a lease that an append would break (contract 5)."""
    assert Ownership((owner(kind=kind),)).is_daemon
    assert not Ownership((owner(kind=kind),)).is_tui
    assert not Ownership((owner(kind=kind, alive=Alive.GONE),)).is_daemon


def test_a_terminal_beside_a_daemon_is_both() -> None:
    """Two processes may serve one session (contract 4.3 h)."""
    both = Ownership((owner(), owner(pid=11, kind=SERVE)))
    assert both.is_tui
    assert both.is_daemon


def test_a_terminal_that_has_gone_and_a_sidecar_still_show_an_interactive_session() -> None:
    """How a session was made does not change with the end of its owner (design 6)."""
    assert Ownership((owner(alive=Alive.GONE),)).interactive
    assert Ownership(sidecar_seen=True).interactive
    assert Ownership(sidecar_seen=True).ever_known
    assert not Ownership((owner(kind=HEADLESS),)).interactive


def test_the_switch_of_a_live_owner_counts_before_that_of_one_gone() -> None:
    """And set to nothing is a word too: it names the variable (design 11)."""
    gone = owner(pid=1, alive=Alive.GONE, disable_switch="1", environment_read=True)
    silent = owner(pid=2, environment_read=True)
    assert Ownership((gone, silent)).disable_switch == "1"
    assert Ownership((gone, owner(pid=3, disable_switch=""))).disable_switch == ""
    assert Ownership((owner(pid=4, disable_switch="0"), owner(pid=5, disable_switch="1"))).disable_switch == "0"


def test_identity_is_the_pid_and_what_tells_its_processes_apart() -> None:
    """The start token where there is one, else the recorded start."""
    assert owner(started_at=1.0).identity == owner(started_at=2.0).identity
    assert owner(start="boot:2").identity != owner().identity
    assert owner(start="", started_at=1.0).identity != owner(start="", started_at=2.0).identity
