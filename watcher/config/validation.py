"""Checks given values against the configuration's keys, with pydantic: strict types, bounds, nothing unknown."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, create_model

from watcher.config.model import Config, Key, Tilde, config_fields, sections
from watcher.paths import expand_home


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a key. `message` is ours, "" where the type or a bound says it all."""

    key: str
    message: str = ""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)


def validate(values: Mapping[str, object], home: Path) -> Config | list[Fault]:
    """The configuration with these values of dotted keys, all of them known; or what is wrong, one fault a key.

    A leading `~` becomes `home`. A section that is wrong as a whole comes as a fault of its own name.
    """
    found: dict[str, object] = {}
    faults: dict[str, Fault] = {}
    for name, section in sections().items():
        given = {key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{name}.")}
        if not given:
            continue
        try:
            checked = _model(section).model_validate(given, context={"home": home})
        except ValidationError as error:
            for detail in error.errors(include_url=False, include_input=False):
                key = f"{name}.{detail['loc'][0]}"
                message = detail["msg"].removeprefix("Value error, ") if detail["type"] == "value_error" else ""
                faults.setdefault(key, Fault(key, message))  # each member of a union reports its own error
        else:
            found[name] = section(**dict(checked))
    config = Config(**found)  # type: ignore[arg-type]  # each section is of the type that its field names
    if config.model.problem:
        faults["model"] = Fault("model", config.model.problem)
    return list(faults.values()) or config


@cache
def _model(section: type) -> type[BaseModel]:
    name = next(name for name, each in sections().items() if each is section)
    fields: dict[str, Any] = {
        key.rpartition(".")[2]: _field(about) for key, about in config_fields() if key.startswith(f"{name}.")
    }
    return create_model(section.__name__, __base__=_Section, **fields)


def _field(key: Key) -> tuple[object, object]:
    bounds: dict[str, Any] = {}
    for name in ("ge", "gt", "le", "min_length", "max_length", "pattern"):
        value = getattr(key, name)
        if value is not None:
            bounds[name] = value
    if key.tilde is None:
        return key.annotation, Field(default=key.default, **bounds)
    annotated: Any = Annotated  # made from values, which is more than type checkers follow
    each: Any = annotated[key.item, Field(**bounds)]
    return annotated[tuple[each, ...], BeforeValidator(_expander(key.item, key.tilde))], Field(default=key.default)


def _expander(item: Any, tilde: Tilde) -> Any:
    def expand(value: object, info: ValidationInfo) -> object:
        """A list of texts with `~` expanded; anything else is left for the validation to refuse."""
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            return value
        home: Path = info.context["home"] if info.context else Path.home()
        texts = [
            expand_home(each, home) if tilde is Tilde.EACH or not index else each for index, each in enumerate(value)
        ]
        made = tuple(item(each) for each in texts)
        for path in made:
            if isinstance(path, Path) and not path.is_absolute():
                raise ValueError(f"{str(path)!r} is neither absolute nor starts with ~/")
        return made

    return expand
