"""The configuration as a value (design 5): its keys, their defaults and bounds.

The descriptions are the documentation: `config init` and the README's table are made of them (`watcher.config.text`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator
from pydantic.fields import FieldInfo

from watcher.paths import expand_home

ENV_PREFIX = "QWEN_WATCHER_"
_ONE_WEEK_MINUTES = 7 * 24 * 60.0


def _home(info: ValidationInfo) -> Path:
    return info.context["home"] if info.context else Path.home()


def _expand_paths(value: object, info: ValidationInfo) -> object:
    """A list of texts as absolute paths, `~` expanded; anything else is left for the validation to refuse."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return value
    paths = tuple(Path(expand_home(item, _home(info))) for item in value)
    for path in paths:
        if not path.is_absolute():
            raise ValueError(f"{str(path)!r} is neither absolute nor starts with ~/")
    return paths


def _expand_globs(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return value
    return tuple(expand_home(item, _home(info)) for item in value)


def _expand_argv(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return value
    return tuple(expand_home(item, _home(info)) if index == 0 else item for index, item in enumerate(value))


Paths = Annotated[tuple[Path, ...], BeforeValidator(_expand_paths)]
Globs = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_expand_globs)]
Argv = Annotated[tuple[str, ...], BeforeValidator(_expand_argv)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)


class WatchConfig(_Section):
    """What is watched, and how."""

    homes: Paths = Field(
        default=(),
        description="Qwen Code configuration directories to watch. Empty: found as Qwen Code finds them "
        "(QWEN_HOME, QWEN_RUNTIME_DIR, else ~/.qwen).",
        examples=[["~/.qwen"]],
    )
    include: Globs = Field(
        default=(),
        description="Globs on a session's project directory. Empty: every project.",
        examples=[["~/work/*"]],
    )
    exclude: Globs = Field(
        default=(),
        description="Globs on project directories that are left alone; stronger than include.",
        examples=[["~/private/*"]],
    )
    backend: Literal["auto", "native", "polling"] = Field(
        default="auto", description="How changes are noticed. auto: the system's own events, polling when it must."
    )
    trusted_folders: Paths = Field(
        default=(),
        description="Project directories whose own .qwen/settings.json and .env may choose the model, "
        "as folders that you trusted in Qwen Code.",
        examples=[["~/work/app"]],
    )


class TitleConfig(_Section):
    """Titles for new sessions."""

    enabled: bool = Field(
        default=True, description="Give new sessions a title. QWEN_DISABLE_AUTO_TITLE also turns it off."
    )
    settle_seconds: float = Field(
        default=8.0,
        ge=0,
        le=3600,
        description="Seconds of quiet before a title; lets Qwen Code's own title land first.",
    )
    max_attempts: int = Field(default=3, ge=1, le=20, description="Attempts a session before it is left untitled.")
    sessions: Literal["interactive", "all"] = Field(
        default="interactive", description="all: also `qwen -p` runs and other sessions without a terminal."
    )


class RecapConfig(_Section):
    """Recaps for a user who comes back."""

    enabled: Literal["auto"] | bool = Field(
        default="auto", description="auto follows Qwen Code's general.showSessionRecap, which is off until you set it."
    )
    trigger: Literal["away", "return"] = Field(
        default="away", description="away: written as you go away. return: when you come back."
    )
    away_minutes: float | None = Field(
        default=None,
        gt=0,
        le=_ONE_WEEK_MINUTES,
        description="Minutes without a sign of life that count as away, fractions allowed. "
        "Not set: Qwen Code's general.sessionRecapAwayThresholdMinutes, else 5.0.",
        examples=[5.0],
    )
    after_exit: Literal["always", "never"] = Field(
        default="always", description="always: also for sessions whose Qwen Code has ended."
    )
    fallback_to_main: bool = Field(
        default=True, description="Without a fast model, use the main model, as Qwen Code's own recap does."
    )
    user_memory: bool = Field(default=False, description="Append your QWEN.md to the recap prompt.")
    min_user_turns: int = Field(default=3, ge=1, le=1000, description="Prompts of yours before the first recap.")
    min_user_turns_between: int = Field(default=2, ge=1, le=1000, description="New prompts of yours before another.")


class ModelConfig(_Section):
    """The text model that writes titles and recaps."""

    source: Literal["qwen", "explicit", "extractive"] = Field(
        default="qwen",
        description="qwen: your own fast model and credentials. explicit: the keys below. "
        "extractive: offline and free, cut from your own words.",
    )
    api: Literal["openai", "anthropic", "gemini"] = Field(default="openai", description="The wire protocol (explicit).")
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="The model's name (explicit).",
        examples=["qwen3-coder-flash"],
    )
    base_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s/]\S*$",
        description="The endpoint's address (explicit).",
        examples=["http://127.0.0.1:11434/v1"],
        json_schema_extra={"values": "an http:// or https:// address"},
    )
    api_key_env: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        max_length=128,
        description="Name of the variable that holds the key, never the key itself (explicit). "
        "Not set: no key is sent.",
        examples=["DASHSCOPE_API_KEY"],
        json_schema_extra={"values": "the name of an environment variable"},
    )
    timeout_seconds: float = Field(default=30.0, ge=1, le=600, description="Time limit of one model call in seconds.")
    max_concurrency: int = Field(default=2, ge=1, le=16, description="Model calls at the same time.")
    language: str | None = Field(
        default=None,
        min_length=1,
        max_length=60,
        pattern=r"^[^\n\r]+$",
        description="Language of titles and recaps. Not set: that of the conversation.",
        examples=["English"],
    )

    @model_validator(mode="after")
    def _explicit_is_complete(self) -> ModelConfig:
        # No public endpoint is assumed: a forgotten address must never send a conversation to a stranger.
        missing = [f"model.{key}" for key in ("name", "base_url") if getattr(self, key) is None]
        if self.source == "explicit" and missing:
            raise ValueError(f'model.source = "explicit" needs {" and ".join(missing)}')
        return self


class BudgetConfig(_Section):
    """The limit on model calls."""

    calls_per_day: int = Field(
        default=300,
        ge=0,
        le=1_000_000,
        description="HTTP requests to the model, local midnight to midnight. 0: none.",
    )


class PrivacyConfig(_Section):
    """What leaves the machine."""

    redact: bool = Field(default=True, description="Mask secrets before text is sent to the model.")


class HooksConfig(_Section):
    """Programs started after something was written: no shell, the event as JSON on stdin, 10 s."""

    on_title: Argv = Field(
        default=(), description="Program and arguments, after a title.", examples=[["notify-title", "--json"]]
    )
    on_recap: Argv = Field(
        default=(), description="Program and arguments, after a recap.", examples=[["notify-recap", "--json"]]
    )


class LogConfig(_Section):
    """The log on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="The lowest level shown.")
    format: Literal["auto", "console", "json"] = Field(
        default="auto", description="auto: console at a terminal, plain key=value under the journal, else JSON lines."
    )


class Config(_Section):
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


def config_fields() -> Iterator[tuple[str, FieldInfo]]:
    """Every key with its field, in the order of the documentation: `("watch.homes", …)`."""
    for section, section_field in Config.model_fields.items():
        model = section_field.annotation
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        for key, field in model.model_fields.items():
            yield f"{section}.{key}", field


def env_variable(key: str) -> str:
    """The environment variable of a dotted key: `title.enabled` → `QWEN_WATCHER_TITLE__ENABLED`."""
    return ENV_PREFIX + key.replace(".", "__").upper()
