"""The configuration in words: one value, what a key takes, the file that `config init` writes, the README's table."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
import typing
from pathlib import Path
from typing import Literal

from watcher.config.model import Key, config_fields, sections

_MAX_SHOWN_CHARS = 80
_SECRET_KEY = re.compile(r"key|token|secret|password|authorization", re.IGNORECASE)
_URL_USERINFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_URL_QUERY = re.compile(r"\?\S*")


def display_value(key: str, value: object) -> str:
    """A value as JSON on one short line, safe to print: addresses lose their credentials, a key is never shown."""
    if isinstance(value, str) and (key.endswith("api_key_env") or _SECRET_KEY.search(key)):
        name_only = re.fullmatch(r"[A-Z_][A-Z0-9_]*", value) and key == "model.api_key_env"
        if not name_only:
            return "(not shown)"
    text = json.dumps(value, ensure_ascii=False, default=str)
    if key == "model.base_url":
        text = _URL_QUERY.sub('?…"', _URL_USERINFO.sub("…", text))
    return text if len(text) <= _MAX_SHOWN_CHARS else text[: _MAX_SHOWN_CHARS - 1] + "…"


def expected_values(field: Key) -> str:
    """What a field takes, in words: `auto | native | polling`, `number from 0 to 3600`."""
    if field.values:
        return field.values
    words: list[str] = []
    for kind in field.alternatives:
        if typing.get_origin(kind) is Literal:
            words += [str(value) for value in typing.get_args(kind)]
        elif typing.get_origin(kind) is tuple:
            words.append("list of paths" if Path in typing.get_args(kind) else "list of texts")
        elif kind is bool:
            words += ["true", "false"]
        elif kind in (int, float):
            words.append(("whole number" if kind is int else "number") + _bounds(field))
        elif kind is str:
            words.append("text")
    return " | ".join(words)


def _bounds(field: Key) -> str:
    start = f" from {field.ge:g}" if field.ge is not None else f" above {field.gt:g}" if field.gt is not None else ""
    return start + (f" to {field.le:.10g}" if field.le is not None else "")


def default_config_text() -> str:
    """The file that `config init` writes: every key, described and commented out, so that it changes nothing."""
    lines = ["# qwen-watcher. Every key below shows its default; remove the # before a key to change it.", ""]
    section = ""
    for key, field in config_fields():
        name = key.rpartition(".")[2]
        if not key.startswith(f"{section}."):
            section = key.partition(".")[0]
            about = inspect.cleandoc(sections()[section].__doc__ or "")
            lines += [f"# {about}", f"[{section}]"]
        value = _toml(field.default) if field.default not in (None, ()) else _toml((field.examples or [[]])[0])
        unset = " (an example; not set)" if field.default in (None, ()) and field.examples else ""
        lines += [f"# {line}" for line in textwrap.wrap(field.description or "", 110)]
        lines += [f"# {expected_values(field)}{unset}", f"#{name} = {value}", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def config_table_markdown() -> str:
    """The README's table of every key: default, allowed values, meaning."""
    rows = ["| key | default | values | meaning |", "| --- | --- | --- | --- |"]
    for key, field in config_fields():
        default = "not set" if field.default is None else f"`{_toml(field.default)}`"
        values = expected_values(field).replace("|", "\\|")
        rows.append(f"| `{key}` | {default} | {values} | {field.description} |")
    return "\n".join(rows) + "\n"


def _toml(value: object) -> str:
    """A default as TOML. JSON's texts, numbers, booleans and flat lists are TOML's as well."""
    return json.dumps(value, ensure_ascii=False)
