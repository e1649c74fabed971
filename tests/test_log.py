"""The log: its three forms, masking, and that a log which cannot be written disturbs nobody."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from watcher.log import (
    SESSION_TITLE,
    WATCHER,
    LogEvent,
    choose_form,
    configure_logging,
    get_logger,
    log_to,
    mask_event,
    mask_secrets,
    rotate_log,
)


@pytest.fixture(autouse=True)
def clean_logging() -> Iterator[None]:
    """structlog and the root logger are the process's: each test leaves them as they were."""
    root = logging.getLogger()
    before = root.handlers[:]
    yield
    structlog.reset_defaults()
    root.handlers[:] = before


def log_failure() -> None:
    get_logger(SESSION_TITLE).warning(
        LogEvent.TITLE_FAILED, session="0a1b", reason="model_error", host="api.example", status=401
    )


def test_journal_form_is_one_line_with_level_logger_and_data() -> None:
    """Under the journal a failure is one line: syslog level, logger, event, key=value, and no time of its own."""
    stream = io.StringIO()
    configure_logging("info", "plain", log_to(stream))
    log_failure()
    assert stream.getvalue() == (
        "<4>SESSION_TITLE title_failed session=0a1b reason=model_error host=api.example status=401\n"
    )


def test_json_form_has_fixed_keys_and_utc_time() -> None:
    """Elsewhere each line is a JSON object with the time in UTC."""
    stream = io.StringIO()
    configure_logging("info", "json", log_to(stream))
    log_failure()
    line = json.loads(stream.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "SESSION_TITLE",
        "event": "title_failed",
        "session": "0a1b",
        "reason": "model_error",
        "host": "api.example",
        "status": 401,
    }


def test_console_form_is_readable_without_colours_off_a_terminal() -> None:
    """The console form names level, event and logger; without a terminal it holds no escape sequence."""
    stream = io.StringIO()
    configure_logging("info", "console", log_to(stream))
    log_failure()
    text = stream.getvalue()
    assert "title_failed [SESSION_TITLE] session=0a1b" in text
    assert "\x1b" not in text


def test_level_filters_and_a_second_call_changes_it() -> None:
    """Lines below the level are not written; a logger made earlier follows a reload."""
    stream = io.StringIO()
    configure_logging("warning", "plain", log_to(stream))
    logger = get_logger(WATCHER)
    logger.info(LogEvent.STARTED)
    assert stream.getvalue() == ""
    configure_logging("debug", "plain", log_to(stream))
    logger.debug(LogEvent.DECISION, reason="working")
    assert stream.getvalue() == "<7>WATCHER decision reason=working\n"


def test_library_warnings_are_joined_once() -> None:
    """What a library warns about lands in the same log, once, also after a reload; its info lines do not."""
    stream = io.StringIO()
    configure_logging("debug", "plain", log_to(stream))
    configure_logging("debug", "plain", log_to(stream))
    logging.getLogger("watchdog.observers").warning("queue %s", "overflow")
    logging.getLogger("httpx").info("HTTP Request: POST https://api.example")
    assert stream.getvalue() == '<4>WATCHER library library=watchdog.observers message="queue overflow"\n'


def test_a_library_with_a_wrong_format_string_disturbs_nobody() -> None:
    """A record whose arguments do not fit its text is logged with the text as it is."""
    stream = io.StringIO()
    configure_logging("info", "plain", log_to(stream))
    record = logging.LogRecord("bad", logging.WARNING, "x.py", 1, "%d", ("text",), None)
    [handler] = [handler for handler in logging.getLogger().handlers if type(handler).__module__ == "watcher.log"]
    handler.handle(record)
    assert stream.getvalue() == "<4>WATCHER library library=bad message=%d\n"


@pytest.mark.parametrize("form", ["plain", "json", "console"])
def test_an_exception_is_masked_and_shows_no_local_variables(form: str) -> None:
    """A traceback is part of the record, without values of variables and without secrets in its message."""
    stream = io.StringIO()
    configure_logging("info", form, log_to(stream))  # type: ignore[arg-type]
    conversation = " ".join(["said", "in", "confidence"])
    secret = "sk-" + "abcdefgh" * 4
    try:
        raise RuntimeError(secret)
    except RuntimeError:
        get_logger(WATCHER).exception("unexpected")
    text = stream.getvalue()
    assert "RuntimeError: ***" in text
    assert secret not in text
    assert conversation not in text
    if form != "console":
        assert text.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdef123456",
        "sk-proj-abcdefgh12345678",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "AKIAABCDEFGHIJKLMNOP",
        "AIza" + "x" * 35,
        "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
        "https://me:hunter2@proxy.example:8080/",
        "https://api.example/v1?key=hunter2hunter2&x=1",
        "password = hunter2",
        'api_key: "hunter2"',
    ],
)
def test_credentials_in_a_value_are_masked(text: str) -> None:
    """What looks like a credential is replaced, wherever in the value it stands."""
    masked = mask_secrets(f"before {text} after")
    assert "***" in masked
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    for secret in ("abcdef", "hunter2", "ABCDEFGH", "xxxxx", "eyJh"):
        assert secret not in masked


@pytest.mark.parametrize("text", ["session 0a1b-2c3d is titled", "3 tokens used", "a basic idea", "task-force skip"])
def test_plain_words_are_not_masked(text: str) -> None:
    """Masking leaves ordinary messages readable."""
    assert mask_secrets(text) == text


@pytest.mark.parametrize("name", ["api_key", "apikey", "key", "token", "access_token", "Authorization", "PASSWORD"])
def test_values_of_secret_keys_are_masked(name: str) -> None:
    """A key that is named like a secret never shows its value, whatever that looks like."""
    assert mask_event(None, "info", {name: "plain"})[name] == "***"


def test_keys_that_only_contain_such_a_word_are_shown() -> None:
    """Names such as `api_key_env` or `monkey` are no secrets."""
    event = {"api_key_env": "X", "monkey": "y", "keys_seen": 3, "flag": True, "none": None}
    assert mask_event(None, "info", dict(event)) == event


@settings(max_examples=100, deadline=None)
@given(st.text(), st.sampled_from(["plain", "json"]))
def test_any_value_is_one_line(value: str, form: str) -> None:
    """Whatever a value holds, a record stays one line without control characters."""
    stream = io.StringIO()
    configure_logging("info", form, log_to(stream))  # type: ignore[arg-type]
    get_logger(WATCHER).info("event", value=value)
    text = stream.getvalue()
    assert text.endswith("\n")
    assert len(text.splitlines()) == 1
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", text[:-1])
    if form == "json":
        json.loads(text)


def test_masking_is_linear() -> None:
    """Hostile input of 1 MiB costs about 16 times what 64 KiB cost; quadratic would be 256 times."""
    worst = max(("eyJ-", "sk-", "token  ", "://", "?key=", "Bearer  ", "AIza-", "api_"), key=_seconds_of)
    small, large = _seconds_of(worst, 1 << 16), _seconds_of(worst, 1 << 20)
    assert large < 100 * max(small, 1e-4)


def _seconds_of(unit: str, size: int = 1 << 15) -> float:
    text = unit * (size // len(unit))
    began = time.process_time()
    mask_secrets(text)
    return time.process_time() - began


def test_a_stream_that_is_not_utf8_loses_no_line() -> None:
    """In an ASCII or Latin-1 locale a line with other characters is written with escapes; JSON stays JSON."""
    for encoding in ("ascii", "latin-1", "utf-8"):
        for form in ("json", "plain", "console"):
            raw = io.BytesIO()
            stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict")
            configure_logging("info", form, log_to(stream))
            get_logger(WATCHER).info("event", path="/tmp/项目\udce9é")
            line = raw.getvalue().decode(encoding)
            assert line.endswith("\n")
            if form == "json":
                assert json.loads(line)["path"] == "/tmp/项目\\udce9é"
            stream.detach()


def test_a_log_that_cannot_be_written_disturbs_nobody() -> None:
    """A full disk, a broken pipe or a closed stream loses the line and raises nothing."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        configure_logging("info", "plain", log_to(full))
        get_logger(WATCHER).warning("lost")
        # The buffer still holds the line; drop it, or closing would raise.
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
    get_logger(WATCHER).warning("closed")


def test_form_follows_the_place(tmp_path: Path) -> None:
    """auto is console at a terminal, plain under the journal, JSON in a file; an explicit form always wins."""
    leader, follower = pty.openpty()
    with open(leader, "rb"), open(follower, "w", encoding="utf-8") as terminal:
        assert choose_form("auto", terminal, {}) == "console"
        assert choose_form("json", terminal, {}) == "json"
    with open(tmp_path / "log", "w", encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        journal = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        assert choose_form("auto", file, journal) == "plain"
        assert choose_form("auto", file, {"JOURNAL_STREAM": "1:1"}) == "json"
        assert choose_form("console", file, journal) == "console"
        assert choose_form("json", file, journal) == "json"
    assert choose_form("auto", io.StringIO(), {}) == "json"


def test_importing_the_log_does_not_load_rich() -> None:
    """The idle service does not pay for rich, and rich can still be imported afterwards."""
    script = (
        "import sys, watcher.log\n"
        "assert not [name for name in sys.modules if name.partition('.')[0] == 'rich'], sys.modules\n"
        "import rich.console\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize("flags", [os.O_APPEND, 0])
def test_a_large_log_is_moved_away_once(tmp_path: Path, flags: int) -> None:
    """Over its limit the log moves to .1 and goes on empty, without a hole, whether or not it appends."""
    path = tmp_path / "watcher.log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600)
    try:
        os.write(descriptor, b"x" * 100)
        assert not rotate_log(path, descriptor, max_bytes=100)
        os.write(descriptor, b"y")
        assert rotate_log(path, descriptor, max_bytes=100)
        os.write(descriptor, b"new\n")
    finally:
        os.close(descriptor)
    assert path.read_bytes() == b"new\n"
    assert path.with_name("watcher.log.1").read_bytes() == b"x" * 100 + b"y"


def test_a_file_that_is_not_the_log_is_not_rotated(tmp_path: Path) -> None:
    """stderr that is not the named file stays as it is, and a missing file is no error."""
    other = tmp_path / "other"
    other.write_bytes(b"z" * 200)
    path = tmp_path / "watcher.log"
    with open(other, "ab") as file:
        assert not rotate_log(path, file.fileno(), max_bytes=100)
        path.write_bytes(b"q" * 200)
        assert not rotate_log(path, file.fileno(), max_bytes=100)
    assert other.read_bytes() == b"z" * 200
