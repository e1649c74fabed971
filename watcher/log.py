"""Logging (design 10): one line an event on stderr, in a form that fits the place where it lands.

Event names and keys are fixed words, data goes in keys. Never conversation text, keys, headers or the environment. A
log that cannot be written (a full disk, a closed pipe) never disturbs the program.
"""

from __future__ import annotations

import codecs
import logging
import os
import re
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal, TextIO

from watcher.absence import absent, hollow
from watcher.log_lines import LineWriter

try:
    # structlog loads rich for its tracebacks wherever it is installed, and asyncio, with it OpenSSL, for asynchronous
    # loggers: 12 MiB and 50 ms that nothing here uses.
    with absent("rich"), hollow("asyncio"):
        import structlog
except AttributeError:  # another version that uses them at once
    import structlog

EventDict = structlog.typing.EventDict
Logger = structlog.typing.FilteringBoundLogger
LogForm = Literal["console", "plain", "json"]

WATCHER: Final = "WATCHER"
SESSION_TITLE: Final = "SESSION_TITLE"
SESSION_RECAP: Final = "SESSION_RECAP"


class LogEvent(StrEnum):
    """What a line reports; each name is fixed, so that it can be searched for."""

    STARTED = "started"
    STOPPED = "stopped"
    RELOADED = "reloaded"
    RELOAD_FAILED = "reload_failed"
    """The new configuration is wrong; the old one stays in force."""
    TITLE_WRITTEN = "title_written"
    TITLE_FAILED = "title_failed"
    RECAP_WRITTEN = "recap_written"
    RECAP_FAILED = "recap_failed"
    WRITTEN_AGAIN = "written_again"
    """A title or recap that was told before was appended once more: at level debug, with its journal `purpose`."""
    DECISION = "decision"
    """What was decided for a session, and why: `run --dry-run`, and at level debug."""
    MODEL_HELD = "model_held"
    """An endpoint is not asked for a while: it refused the key, or asked for a pause."""
    INTERNAL_ERROR = "internal_error"
    """An error that nobody expected; its kind and place are in `detail`."""
    SKIPPED = "skipped"
    """A file is left alone; said once a file."""
    HOOK_FAILED = "hook_failed"
    """A program of `[hooks]` could not be started, failed, or took too long."""
    API = "api"
    """The local API's socket cannot be had, or one of its answers failed."""
    STATE = "state"
    """The state directory cannot be used, was replaced, or its database was found damaged."""
    BRAKE = "brake"
    """Verification after a write found an anomaly."""
    LINES_DROPPED = "lines_dropped"
    """Whoever reads the log did not, for so long that `lines` lines were dropped."""
    LIBRARY = "library"
    """A warning of a library that logs through the standard library; its text is in `message`."""


class LogKey(StrEnum):
    """The keys of a line's data."""

    LOGGER = "logger"
    SESSION = "session"
    REASON = "reason"
    DETAIL = "detail"
    HOST = "host"
    """Host of the model's endpoint, never more of its address."""
    STATUS = "status"
    """HTTP status of a failed model call."""
    PATH = "path"


MASK = "***"
_SECRET_NAME = re.compile(
    r"(?:^|[_.-])(?:api_?key|key|token|secret|password|passwd|authorization|cookie|credentials?)s?$", re.IGNORECASE
)
# Broader than `core.token_shapes`, which must leave a conversation readable: in a log a word too many costs nothing.
# Linear in their input: each can start only where the one before it has ended, and none repeats a repetition.
_SECRET_VALUES = (
    re.compile(r"(?i)\b(?:bearer\s+[\w.~+/=-]{8,}|basic\s+[\w+/=-]{16,})"),
    re.compile(r"(?i)(?:api_?key|token|secret|password)[\"']?\s*[=:]\s*[\"']?[^\s\"',;&]+"),
    re.compile(r"\b(?:sk|rk|pk|ghp|gho|ghs|ghu|github_pat|glpat|xox[abpors]|hf)[-_][\w-]{8,}"),
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{30,}"),
    re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    re.compile(r"(?<=://)[^/@\s]+(?=@)"),
    re.compile(r"(?i)(?<=[?&])(?:api_?key|key|token|access_token|signature)=[^&\s\"']+"),
)
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SYSLOG_LEVELS = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}


def get_logger(name: str) -> Logger:
    """The logger of that name: `SESSION_TITLE`, `SESSION_RECAP`, or `WATCHER` for everything else.

    It follows a later `configure_logging`. Before the first one structlog would print to stdout: every command that can
    log configures it first.
    """
    logger: Logger = structlog.get_logger(logger_name=name)  # `logger` is a parameter of structlog's own
    return logger


def where_it_failed(error: BaseException) -> str:
    """The kind of an unexpected error and the places in our code that it passed; no values, which may hold texts."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "watcher" in frame.filename]
    places = " > ".join(f"{Path(frame.filename).stem}.{frame.name}:{frame.lineno}" for frame in frames[-4:])
    return f"{type(error).__name__} in {places}"


def log_to(stream: TextIO) -> LineWriter:
    """The end of the log at `stream`, which tells of lines that its reader did not take."""
    return LineWriter(stream, lambda count: get_logger(WATCHER).warning(LogEvent.LINES_DROPPED, lines=count))


def configure_logging(level: str, form: LogForm, lines: LineWriter) -> None:
    """Send every line to `lines`; may be called again, as a reload does. `level` is one of `[log] level`.

    The standard library's root logger is joined, from `warning` on: what watchdog or httpx complain about is seen.
    """
    clocks: dict[LogForm, list[structlog.typing.Processor]] = {
        "console": [structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False)],
        "plain": [],  # the journal has its own
        "json": [structlog.processors.TimeStamper(fmt="iso", utc=True)],
    }
    renderers = {"console": _console_renderer, "plain": _plain_renderer, "json": _json_renderer}
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            *clocks[form],
            _names_first,
            structlog.processors.format_exc_info,
            mask_event,
            renderers[form](lines.stream),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_args: _LineLogger(lines),
        cache_logger_on_first_use=False,  # a reload may change the level
    )
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, _JoinHandler):
            root.removeHandler(handler)
    root.addHandler(_JoinHandler(max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()])))


def choose_form(configured: str, stream: TextIO, environ: Mapping[str, str]) -> LogForm:
    """The form for `[log] format`: for `auto`, console at a terminal, plain under the journal, else JSON lines."""
    if configured == "console" or (configured == "auto" and stream.isatty()):
        return "console"
    return "plain" if configured == "auto" and _is_journal(stream, environ) else "json"


def mask_secrets(text: str) -> str:
    """`text` with everything that looks like a credential replaced by `***`."""
    for pattern in _SECRET_VALUES:
        text = pattern.sub(MASK, text)
    return text


def mask_event(_logger: object, _method: str, event: EventDict) -> EventDict:
    """A processor: values of keys that are named like secrets, and what looks like one elsewhere, become `***`.

    Control characters are written as escapes (a line stays a line, a terminal stays unharmed), but for the line breaks
    of a traceback.
    """
    masked: EventDict = {}
    for key, value in event.items():
        if _SECRET_NAME.search(key):
            masked[key] = MASK
        elif value is None or isinstance(value, bool | int | float):
            masked[key] = value
        elif key in ("exception", "stack"):
            masked[key] = "\n".join(_escape(mask_secrets(line)) for line in str(value).split("\n"))
        else:
            masked[key] = _escape(mask_secrets(str(value)))
    return masked


def rotate_log(path: Path, descriptor: int, *, max_bytes: int) -> bool:
    """Move a log that this process writes through `descriptor` to `path` + `.1` once it is over `max_bytes`.

    For launchd, which opens the file and never rotates it. True when it was moved. A descriptor that is not that file
    (a terminal, the journal, a file of the user's own) is left alone. Raises nothing: a log is no reason to stop.
    """
    try:
        opened, named = os.fstat(descriptor), path.lstat()
        if not os.path.samestat(opened, named) or opened.st_size <= max_bytes:
            return False
        import shutil  # noqa: PLC0415 - under launchd, once in a long while

        shutil.copyfile(path, path.with_name(path.name + ".1"))
        os.ftruncate(descriptor, 0)
        with suppress(OSError):
            os.lseek(descriptor, 0, os.SEEK_SET)  # for a descriptor without O_APPEND, else a hole would follow
    except OSError:
        return False
    return True


def _names_first(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Time, level, logger and event before the data."""
    first = {key: event.pop(key) for key in ("timestamp", "level") if key in event}
    return {**first, LogKey.LOGGER: event.pop("logger_name", WATCHER), "event": event.pop("event", ""), **event}


def _escape(text: str) -> str:
    return _CONTROLS.sub(lambda match: ascii(match.group())[1:-1], text)


def _is_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether stderr is connected to the journal: systemd.exec(5), `$JOURNAL_STREAM` is its device and inode."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _console_renderer(stream: TextIO) -> structlog.typing.Processor:
    return structlog.dev.ConsoleRenderer(
        colors=stream.isatty() and not os.environ.get("NO_COLOR"),
        pad_event_to=0,
        sort_keys=False,
        exception_formatter=structlog.dev.plain_traceback,
    )


def _plain_renderer(_stream: TextIO) -> structlog.typing.Processor:
    """key=value after logger and event; `<4>` is the journal's level (sd-daemon(3))."""
    logfmt = structlog.processors.LogfmtRenderer(bool_as_flag=False)

    def render(logger: object, method: str, event: EventDict) -> str:
        level = _SYSLOG_LEVELS.get(str(event.pop("level", method)), 6)
        head = f"<{level}>{event.pop(LogKey.LOGGER, WATCHER)} {event.pop('event', '')}"
        data = logfmt(logger, method, event)
        return f"{head} {data}" if data else head

    return render


def _json_renderer(stream: TextIO) -> structlog.typing.Processor:
    # In another encoding than UTF-8 only ASCII survives, and the escapes of JSON are ASCII.
    is_utf8 = codecs.lookup(stream.encoding or "utf-8").name == "utf-8"
    return structlog.processors.JSONRenderer(ensure_ascii=not is_utf8)


class _LineLogger:
    """structlog's end of the line."""

    def __init__(self, lines: LineWriter) -> None:
        self.msg = lines.write

    def __getattr__(self, _level: str) -> Callable[[str], None]:
        return self.msg


class _JoinHandler(logging.Handler):
    """Hands what a library logs to our own log."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):  # the library's own format string is wrong
            message = str(record.msg)
        get_logger(WATCHER).log(record.levelno, LogEvent.LIBRARY, library=record.name, message=message)
