"""Which variables of a shell hold the key of the user's model: a service would not see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from watcher.core.generation import Kind
from watcher.core.secret import SecretText
from watcher.drafting import EXTRACTIVE, choose_model
from watcher.paths import home_dir
from watcher.qwen.model_choice import ModelChoice
from watcher.workplace import Workplace


def key_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the variables of this environment without which the models for titles and recaps lack their key.

    A key that also stands in a `.env` file or in Qwen Code's settings needs none. Raises ConfigError.
    """
    keys = {name: key for name, key in _keys(environ) if environ.get(name) == key.reveal()}
    needed = []
    for name, key in keys.items():
        without = {other: value for other, value in environ.items() if other != name}
        if key not in [found for _, found in _keys(without)]:
            needed.append(name)
    return tuple(needed)


def _keys(environ: Mapping[str, str]) -> Iterator[tuple[str, SecretText]]:
    with Workplace(environ) as place:
        if place.config.model.source == EXTRACTIVE:
            return
        home = str(home_dir(environ))
        for config_dir in dict.fromkeys(root.config_dir for root in place.roots):
            settings = place.settings.resolve(home, False, config_dir)
            for kind in (Kind.TITLE, Kind.RECAP):
                choice = choose_model(kind, place.config, settings, environ)
                if isinstance(choice, ModelChoice) and choice.api_key is not None:
                    yield choice.key_name, choice.api_key
