"""The configuration as a value (design 5): its keys, their defaults and bounds.

The descriptions are the documentation: `config init` and the README's table are made of them (`watcher.config.text`).
Plain dataclasses: what is set somewhere is checked by pydantic (`watcher.config.validation`), which takes 13 MiB that
a service need not keep for months.
"""

# ruff: noqa: RUF009 - `_key` makes a `dataclasses.field`; its defaults are immutable

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

ENV_PREFIX = "QWEN_WATCHER_"
_ONE_WEEK_MINUTES = 7 * 24 * 60.0

T = TypeVar("T")


class Tilde(Enum):
    """Where in a list of texts a leading `~` means the home directory."""

    EACH = "each"
    FIRST = "first"


@dataclass(frozen=True, slots=True)
class Key:
    """What is to be known of one key. Bounds hold for its number, lengths and pattern for its text or each of them."""

    annotation: Any
    default: object
    description: str
    examples: tuple[object, ...] = ()
    values: str = ""
    """What it takes, in words, where the type and the bounds do not say it."""
    tilde: Tilde | None = None
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None

    @property
    def alternatives(self) -> tuple[Any, ...]:
        """The types that it takes, without None."""
        if typing.get_origin(self.annotation) in (types.UnionType, typing.Union):
            return tuple(kind for kind in typing.get_args(self.annotation) if kind is not type(None))
        return (self.annotation,)

    @property
    def item(self) -> Any:
        """The type of one value of a list."""
        return typing.get_args(self.annotation)[0]


def _key(default: T, **about: object) -> T:
    """A field of a section; `about` is what `Key` says of it beside its type and default."""
    field: T = dataclasses.field(default=default, metadata=about)
    return field


Paths = Annotated[tuple[Path, ...], Tilde.EACH]
Globs = Annotated[tuple[str, ...], Tilde.EACH]
Argv = Annotated[tuple[str, ...], Tilde.FIRST]


@dataclass(frozen=True, slots=True)
class WatchConfig:
    """What is watched, and how."""

    homes: Paths = _key(
        (),
        description="Qwen Code configuration directories to watch. Empty: found as Qwen Code finds them "
        "(QWEN_HOME, QWEN_RUNTIME_DIR, else ~/.qwen).",
        examples=(["~/.qwen"],),
    )
    include: Globs = _key(
        (),
        min_length=1,
        description="Globs on a session's project directory. Empty: every project.",
        examples=(["~/work/*"],),
    )
    exclude: Globs = _key(
        (),
        min_length=1,
        description="Globs on project directories that are left alone; stronger than include.",
        examples=(["~/private/*"],),
    )
    backend: Literal["auto", "native", "polling"] = _key(
        "auto", description="How changes are noticed. auto: the system's own events, polling when it must."
    )
    trusted_folders: Paths = _key(
        (),
        description="Project directories whose own .qwen/settings.json and .env may choose the model, "
        "as folders that you trusted in Qwen Code.",
        examples=(["~/work/app"],),
    )


@dataclass(frozen=True, slots=True)
class TitleConfig:
    """Titles for new sessions."""

    enabled: bool = _key(True, description="Give new sessions a title. QWEN_DISABLE_AUTO_TITLE also turns it off.")
    settle_seconds: float = _key(
        8.0,
        ge=0,
        le=3600,
        description="Seconds of quiet before a title; lets Qwen Code's own title land first.",
    )
    max_attempts: int = _key(3, ge=1, le=20, description="Attempts a session before it is left untitled.")
    sessions: Literal["interactive", "all"] = _key(
        "interactive", description="all: also `qwen -p` runs and other sessions without a terminal."
    )


@dataclass(frozen=True, slots=True)
class RecapConfig:
    """Recaps for a user who comes back."""

    enabled: Literal["auto"] | bool = _key(
        "auto", description="auto follows Qwen Code's general.showSessionRecap, which is off until you set it."
    )
    trigger: Literal["away", "return"] = _key(
        "away", description="away: written as you go away. return: when you come back."
    )
    away_minutes: float | None = _key(
        None,
        gt=0,
        le=_ONE_WEEK_MINUTES,
        description="Minutes without a sign of life that count as away, fractions allowed. "
        "Not set: Qwen Code's general.sessionRecapAwayThresholdMinutes, else 5.0.",
        examples=(5.0,),
    )
    after_exit: Literal["always", "never"] = _key(
        "always", description="always: also for sessions whose Qwen Code has ended."
    )
    fallback_to_main: bool = _key(
        True, description="Without a fast model, use the main model, as Qwen Code's own recap does."
    )
    user_memory: bool = _key(False, description="Append your QWEN.md and AGENTS.md to the recap prompt.")
    min_user_turns: int = _key(3, ge=1, le=1000, description="Prompts of yours before the first recap.")
    min_user_turns_between: int = _key(2, ge=1, le=1000, description="New prompts of yours before another.")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The text model that writes titles and recaps."""

    source: Literal["qwen", "explicit", "extractive"] = _key(
        "qwen",
        description="qwen: your own fast model and credentials. explicit: the keys below. "
        "extractive: offline and free, cut from your own words.",
    )
    api: Literal["openai", "anthropic", "gemini"] = _key("openai", description="The wire protocol (explicit).")
    name: str | None = _key(
        None,
        min_length=1,
        max_length=200,
        description="The model's name (explicit).",
        examples=("qwen3-coder-flash",),
    )
    base_url: str | None = _key(
        None,
        pattern=r"^https?://[^\s/]\S*$",
        description="The endpoint's address (explicit).",
        examples=("http://127.0.0.1:11434/v1",),
        values="an http:// or https:// address",
    )
    api_key_env: str | None = _key(
        None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        max_length=128,
        description="Name of the variable that holds the key, never the key itself (explicit). "
        "Not set: no key is sent.",
        examples=("DASHSCOPE_API_KEY",),
        values="the name of an environment variable",
    )
    timeout_seconds: float = _key(30.0, ge=1, le=600, description="Time limit of one model call in seconds.")
    max_concurrency: int = _key(2, ge=1, le=16, description="Model calls at the same time.")
    language: str | None = _key(
        None,
        min_length=1,
        max_length=60,
        pattern=r"^[^\n\r]+$",
        description="Language of titles and recaps. Not set: that of the conversation.",
        examples=("English",),
    )

    @property
    def problem(self) -> str:
        """What an explicit model lacks, "" when nothing.

        No public endpoint is assumed: a forgotten address must never send a conversation to a stranger.
        """
        missing = [f"model.{key}" for key in ("name", "base_url") if getattr(self, key) is None]
        if self.source != "explicit" or not missing:
            return ""
        return f'model.source = "explicit" needs {" and ".join(missing)}'


@dataclass(frozen=True, slots=True)
class BudgetConfig:
    """The limit on model calls."""

    calls_per_day: int = _key(
        300,
        ge=0,
        le=1_000_000,
        description="HTTP requests to the model, local midnight to midnight. 0: none.",
    )


@dataclass(frozen=True, slots=True)
class PrivacyConfig:
    """What leaves the machine."""

    redact: bool = _key(True, description="Mask secrets before text is sent to the model.")


@dataclass(frozen=True, slots=True)
class HooksConfig:
    """Programs started after something was written: no shell, the event as JSON on stdin, 10 s."""

    on_title: Argv = _key(
        (), description="Program and arguments, after a title.", examples=(["notify-title", "--json"],)
    )
    on_recap: Argv = _key(
        (), description="Program and arguments, after a recap.", examples=(["notify-recap", "--json"],)
    )


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The log on stderr."""

    level: Literal["debug", "info", "warning", "error"] = _key("info", description="The lowest level shown.")
    format: Literal["auto", "console", "json"] = _key(
        "auto", description="auto: console at a terminal, plain key=value under the journal, else JSON lines."
    )


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration; every field has a default. Paths in it are absolute."""

    watch: WatchConfig = WatchConfig()
    title: TitleConfig = TitleConfig()
    recap: RecapConfig = RecapConfig()
    model: ModelConfig = ModelConfig()
    budget: BudgetConfig = BudgetConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    hooks: HooksConfig = HooksConfig()
    log: LogConfig = LogConfig()


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration and its sources. `origins` has every dotted key: `flag`, `env NAME`, `file PATH` or `default`."""

    config: Config
    origins: Mapping[str, str]
    path: Path
    """The file that was read, or would be if it existed."""
    exists: bool

    def value(self, key: str) -> object:
        """The value of a dotted key of `origins`."""
        section, _, name = key.partition(".")
        value: object = getattr(getattr(self.config, section), name)
        return value


def sections() -> Mapping[str, type]:
    """The sections by name, in the order of the documentation."""
    return {field.name: field.type for field in dataclasses.fields(Config) if isinstance(field.type, type)}


def config_fields() -> Iterator[tuple[str, Key]]:
    """Every key with what is to be known of it, in the order of the documentation: `("watch.homes", …)`."""
    for name, section in sections().items():
        for field in dataclasses.fields(section):
            yield f"{name}.{field.name}", _described(field)


def _described(field: dataclasses.Field[Any]) -> Key:
    annotation, tilde = field.type, None
    if typing.get_origin(annotation) is Annotated:
        annotation, tilde = typing.get_args(annotation)
    return Key(annotation, field.default, tilde=tilde, **field.metadata)


def env_variable(key: str) -> str:
    """The environment variable of a dotted key: `title.enabled` → `QWEN_WATCHER_TITLE__ENABLED`."""
    return ENV_PREFIX + key.replace(".", "__").upper()
