"""Modules that are kept out while another one is imported, and are themselves again afterwards."""

from __future__ import annotations

import sys

import pytest

from watcher.absence import absent, hollow


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the standard library that is not loaded now."""
    name = "this"
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_an_absent_module_cannot_be_imported(unloaded: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Within it fails as one that is not installed; afterwards it is there."""
    with absent(unloaded), pytest.raises(ModuleNotFoundError):
        __import__(unloaded)
    assert __import__(unloaded).__name__ == unloaded
    assert "Zen" in capsys.readouterr().out


def test_a_hollow_module_is_empty(unloaded: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Within it has nothing; afterwards whoever imports it gets the real one."""
    with hollow(unloaded):
        assert not hasattr(__import__(unloaded), "s")
    assert not capsys.readouterr().out
    assert hasattr(__import__(unloaded), "s")


def test_what_is_loaded_stays() -> None:
    """A module in use is never taken away from anybody."""
    for away in (absent, hollow):
        with away("json"):
            assert __import__("json").loads("1") == 1
        assert "json" in sys.modules
