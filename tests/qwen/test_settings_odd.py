"""Settings whose values have another type than documented: a model, or a reason, and never an exception."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.edge.text_model.harness import recap_prompt, title_prompt
from tests.qwen.settings_house import House
from tests.support.odd_values import with_odd_values
from watcher.drafting import endpoint_of
from watcher.edge.text_model import Endpoint, Learned, WireApi, anthropic, gemini, openai_chat, openai_responses
from watcher.edge.text_model.endpoint import setup_problem
from watcher.edge.text_model.ladder import make_plan
from watcher.qwen.model_choice import ModelChoice
from watcher.qwen.settings import QwenSettings

BUILDERS = {
    WireApi.OPENAI: openai_chat.build_request,
    WireApi.OPENAI_RESPONSES: openai_responses.build_request,
    WireApi.ANTHROPIC: anthropic.build_request,
    WireApi.GEMINI: gemini.build_request,
}
SETTINGS: dict[str, Any] = {
    "$version": 4,
    "env": {"LOCAL_KEY": "k", "QWEN_DISABLE_AUTO_TITLE": "0"},
    "fastModel": "openai:small",
    "model": {
        "name": "large",
        "baseUrl": "http://127.0.0.1:1/v1",
        "generationConfig": {"samplingParams": {"temperature": 1.5}, "timeout": 5000},
    },
    "security": {"auth": {"selectedType": "openai", "apiKey": "k", "baseUrl": "http://127.0.0.1:2/v1"}},
    "providerProtocol": {"mine": "openai"},
    "modelProviders": {
        "openai": [
            {
                "id": "small",
                "wireApi": "chat-completions",
                "baseUrl": "http://127.0.0.1:3/v1",
                "envKey": "LOCAL_KEY",
                "capabilities": {"reasoning": {"disableField": "thinking"}},
                "generationConfig": {
                    "timeout": 45000,
                    "samplingParams": {"temperature": 0.1, "max_tokens": 64},
                    "extra_body": {"user": "w"},
                    "customHeaders": {"X-Team": "infra"},
                    "reasoning": {"effort": "low"},
                    "thinkingMandatory": True,
                },
            },
            {"id": "large", "baseUrl": "http://127.0.0.1:1/v1", "envKey": "LOCAL_KEY"},
        ],
        "mine": [{"id": "other"}],
        "anthropic": [{"id": "third"}],
    },
    "general": {"showSessionRecap": True, "sessionRecapAwayThresholdMinutes": 3, "outputLanguage": "de"},
    "advanced": {"excludedEnvVars": ["DEBUG"], "runtimeOutputDir": "x"},
}
TEXTS = ("", "  ", "a\0b", "\ud800", "http://[::bad", "http://h:99999/v1", "//h/v1", "http://" + "a" * 5000, "${", "$")
PLACES: tuple[tuple[str | int, ...], ...] = (
    ("fastModel",),
    ("model", "name"),
    ("model", "baseUrl"),
    ("modelProviders", "openai", 0, "id"),
    ("modelProviders", "openai", 0, "baseUrl"),
    ("modelProviders", "openai", 0, "envKey"),
    ("modelProviders", "openai", 0, "generationConfig", "customHeaders", "X-Team"),
    ("security", "auth", "apiKey"),
    ("security", "auth", "baseUrl"),
    ("env", "LOCAL_KEY"),
    ("advanced", "runtimeOutputDir"),
    ("general", "outputLanguage"),
)


def endpoints_of(settings: QwenSettings) -> list[Endpoint]:
    """Where the two models would be asked, requests built; those that cannot be asked have a reason."""
    endpoints = []
    for choice in (settings.fast_model, settings.main_model):
        if not isinstance(choice, ModelChoice):
            assert choice.reason
            continue
        endpoint = endpoint_of(choice, 30.0)
        if not setup_problem(endpoint):
            endpoints.append(endpoint)
            for prompt in (title_prompt(), recap_prompt()):
                BUILDERS[endpoint.protocol](endpoint, make_plan(endpoint, Learned(), prompt), prompt)
    return endpoints


def test_a_value_of_another_type_never_raises(tmp_path: Path) -> None:
    """Whatever stands in one place, from the file to the request; and sound settings give both models."""
    house = House(tmp_path)
    house.settings("user", SETTINGS)
    assert [endpoint.model for endpoint in endpoints_of(house.resolve())] == ["small", "large"]
    for settings in with_odd_values(SETTINGS):
        if isinstance(settings, dict):
            house.settings("user", settings)
            endpoints_of(house.resolve())


@pytest.mark.parametrize("place", PLACES)
def test_a_text_that_nothing_can_use_never_raises(tmp_path: Path, place: tuple[str | int, ...]) -> None:
    """No address, no path, no header: a reason at most."""
    house = House(tmp_path)
    for text in TEXTS:
        settings = copy.deepcopy(SETTINGS)
        found: Any = settings
        for step in place[:-1]:
            found = found[step]
        found[place[-1]] = text
        house.settings("user", settings)
        endpoints_of(house.resolve())
