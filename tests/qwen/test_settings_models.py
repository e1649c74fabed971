"""Which model, endpoint and key follow from settings as users have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.qwen.settings_house import House
from watcher.qwen.model_choice import Missing, ModelChoice, Protocol, explicit_choice

DATA = Path(__file__).resolve().parents[1] / "data" / "settings"
PLAIN: dict[str, Any] = {
    "headers": {},
    "sampling": None,
    "extra_body": {},
    "timeout_seconds": None,
    "thinking_mandatory": False,
    "capabilities_reasoning": {},
}


@pytest.fixture
def house(tmp_path: Path) -> House:
    """An empty home."""
    return House(tmp_path)


def as_data(choice: ModelChoice) -> dict[str, Any]:
    """A choice as the expectation files spell it."""
    fields = ("id", "auth_type", "base_url", "key_name", *PLAIN)
    found = {name: getattr(choice, name) for name in fields}
    key = choice.api_key.reveal() if choice.api_key else None
    return {**found, "protocol": choice.protocol.value, "key": key}


@pytest.mark.parametrize("folder", sorted(path.name for path in DATA.iterdir()))
def test_settings_as_a_user_has_them(house: House, folder: str) -> None:
    """Each auth type and protocol: the fast model, the main model, and whether Qwen Code finds a fast one itself."""
    files = DATA / folder
    house.settings("user", (files / "settings.json").read_text("utf-8"))
    if (files / "dotenv").exists():
        house.env(house.config_dir / ".env", (files / "dotenv").read_text("utf-8"))
    expected = json.loads((files / "expected.json").read_text("utf-8"))
    found = house.resolve(expected["environment"])
    assert found.errors == ()
    for choice, wanted in ((found.fast_model, expected["fast"]), (found.main_model, expected["main"])):
        if "missing" in wanted:
            assert isinstance(choice, Missing)
            assert wanted["missing"] in choice.reason
        else:
            assert isinstance(choice, ModelChoice), choice
            assert as_data(choice) == {**PLAIN, **wanted}
    assert found.has_native_fast_model is expected["native"]


def models(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    """User settings of an OpenAI session with these entries."""
    return {"security": {"auth": {"selectedType": "openai"}}, "modelProviders": {"openai": list(entries)}, **more}


@pytest.mark.parametrize(
    ("settings", "reason", "native"),
    [
        (models(), "no fastModel is set", False),
        (models(fastModel="  "), "no fastModel is set", False),
        (models(fastModel=["a"]), "is not a text", False),
        (models(fastModel=5), "is not a text", False),
        (models(fastModel="inherit"), "names no model", False),
        (models(fastModel="openai:"), "names no model", False),
        (models(fastModel="a"), "fastModel names a but no modelProviders entry has that id", False),
        (models({"id": "a"}, fastModel="anthropic:a"), "no modelProviders entry of anthropic has that id", False),
        (models({"id": "a", "voiceOnly": True}, fastModel="a"), "which is for voice only", False),
        (models({"id": "a", "imageOnly": True}, fastModel="a"), "which is for images only", False),
        (models({"id": "a", "envKey": "FOO"}, fastModel="a"), "FOO is not set", True),
        (models(fastModel="qwen-oauth:coder-model"), "qwen-oauth", True),
    ],
)
def test_what_is_missing_is_said(house: House, settings: object, reason: str, native: bool) -> None:
    """Without a usable fast model the reason names the precise missing piece."""
    house.settings("user", settings)
    found = house.resolve({"OPENAI_API_KEY": "k"})
    assert isinstance(found.fast_model, Missing)
    assert reason in found.fast_model.reason
    assert found.has_native_fast_model is native


def test_the_main_model_is_never_the_fast_model(house: House) -> None:
    """Without a fast model there is a main model all the same, which only recaps may use."""
    house.settings("user", models(model={"name": "big"}))
    found = house.resolve({"OPENAI_API_KEY": "k"})
    assert isinstance(found.fast_model, Missing)
    assert isinstance(found.main_model, ModelChoice)
    assert (found.main_model.id, found.main_model.base_url) == ("big", "https://api.openai.com/v1")


@pytest.mark.parametrize(
    ("entry", "environ", "auth", "key", "key_name", "url"),
    [
        ({"envKey": "A"}, {"A": "k1", "OPENAI_API_KEY": "k2"}, {}, "k1", "A", "https://api.openai.com/v1"),
        ({}, {"OPENAI_API_KEY": "k2"}, {"apiKey": "k3"}, "k2", "OPENAI_API_KEY", "https://api.openai.com/v1"),
        ({}, {"OPENAI_API_KEY": ""}, {"apiKey": "k3"}, "k3", "security.auth.apiKey", "https://api.openai.com/v1"),
        ({"baseUrl": "http://e/v1"}, {"OPENAI_BASE_URL": "http://v/v1"}, {}, None, "", "http://e/v1"),
        ({}, {"OPENAI_BASE_URL": "http://v/v1"}, {"baseUrl": "http://s/v1"}, None, "", "http://v/v1"),
        ({}, {}, {"baseUrl": "http://s/v1"}, None, "", "http://s/v1"),
    ],
)
def test_order_of_keys_and_base_urls(
    house: House,
    entry: dict[str, Any],
    environ: dict[str, str],
    auth: dict[str, str],
    key: str | None,
    key_name: str,
    url: str,
) -> None:
    """The entry's own, then the standard variables, then `security.auth`, then the default; no key is fine."""
    settings = models({"id": "a", **entry}, fastModel="a")
    settings["security"]["auth"].update(auth)
    house.settings("user", settings)
    choice = house.resolve(environ).fast_model
    assert isinstance(choice, ModelChoice)
    assert (as_data(choice)["key"], choice.key_name, choice.base_url) == (key, key_name, url)


def test_an_unset_envkey_is_not_replaced_by_another_key(house: House) -> None:
    """The key of one service is never sent to another: a named but unset variable leaves no fast model."""
    house.settings("user", models({"id": "a", "envKey": "FOO", "baseUrl": "http://e"}, fastModel="a"))
    assert house.resolve({"OPENAI_API_KEY": "k", "FOO": ""}).fast_model == Missing(
        "FOO is not set, which modelProviders names as the key of a"
    )


def test_a_fast_model_inherits_from_the_session(house: House) -> None:
    """An entry without key and address uses those of the session's main model."""
    main = {"id": "big", "envKey": "GATE", "baseUrl": "http://gate/v1"}
    house.settings("user", models(main, {"id": "a"}, fastModel="a", model={"name": "big"}))
    choice = house.resolve({"GATE": "k", "OPENAI_BASE_URL": "http://other"}).fast_model
    assert isinstance(choice, ModelChoice)
    assert (as_data(choice)["key"], choice.base_url) == ("k", "http://gate/v1")


def test_a_fast_model_with_its_own_key_does_not_send_it_to_the_main_models_address(house: House) -> None:
    """A key that is not the main model's goes to the standard address."""
    main = {"id": "big", "envKey": "GATE", "baseUrl": "http://gate/v1"}
    house.settings("user", models(main, {"id": "a", "envKey": "MINE"}, fastModel="a", model={"name": "big"}))
    choice = house.resolve({"GATE": "k", "MINE": "m"}).fast_model
    assert isinstance(choice, ModelChoice)
    assert (as_data(choice)["key"], choice.base_url) == ("m", "https://api.openai.com/v1")


@pytest.mark.parametrize(
    ("entry", "environ", "url"),
    [
        ({"envKey": "MINE"}, {"OPENAI_API_KEY": "k"}, "https://api.openai.com/v1"),
        ({"envKey": "MINE"}, {}, "http://local/v1"),
        ({"envKey": "OPENAI_API_KEY"}, {"OPENAI_API_KEY": "k"}, "http://local/v1"),
        ({}, {"OPENAI_API_KEY": "k"}, "http://local/v1"),
    ],
)
def test_a_key_goes_to_its_own_service_only(
    house: House, entry: dict[str, Any], environ: dict[str, str], url: str
) -> None:
    """An entry without address: Qwen Code sends it to OpenAI, with any key. Ours goes there with the entry's own key
    where `OPENAI_BASE_URL` has another one; the key that belongs to that address stays there.
    """
    house.settings("user", models({"id": "a", **entry}, fastModel="a", model={"name": "big"}))
    choice = house.resolve({"OPENAI_BASE_URL": "http://local/v1", "MINE": "m", **environ}).fast_model
    assert isinstance(choice, ModelChoice)
    assert choice.base_url == url


@pytest.mark.parametrize(
    ("base_url", "headers"), [("http://gate/v2", {"X-Team": "t"}), ("http://elsewhere/v1", {})], ids=["same", "other"]
)
def test_what_an_entry_leaves_out_comes_from_the_main_model(
    house: House, base_url: str, headers: dict[str, str]
) -> None:
    """Field by field, as in Qwen Code; but headers, which may hold keys, stay with the service that they are for."""
    tuning = {
        "samplingParams": {"top_p": 0.5},
        "extra_body": {"user": "u"},
        "customHeaders": {"X-Team": "t"},
        "timeout": 9000,
        "thinkingMandatory": True,
    }
    main = {"id": "big", "baseUrl": "http://gate/v1", "generationConfig": tuning}
    fast = {"id": "a", "baseUrl": base_url, "generationConfig": {"samplingParams": {"top_k": 7}}}
    house.settings("user", models(main, fast, fastModel="a", model={"name": "big"}))
    choice = house.resolve().fast_model
    assert isinstance(choice, ModelChoice)
    assert (choice.sampling, choice.extra_body) == ({"top_k": 7}, {"user": "u"})
    assert (choice.headers, choice.timeout_seconds) == (headers, 9.0)
    assert choice.thinking_mandatory is False


def test_nothing_is_inherited_across_auth_types(house: House) -> None:
    """What tunes the main model means nothing to another service."""
    main = {"id": "big", "generationConfig": {"samplingParams": {"top_p": 0.5}}}
    settings = models(main, fastModel="anthropic:haiku", model={"name": "big"})
    settings["modelProviders"]["anthropic"] = [{"id": "haiku"}]
    house.settings("user", settings)
    assert getattr(house.resolve().fast_model, "sampling", 0) is None


@pytest.mark.parametrize(
    ("base_url", "bearer"),
    [("https://api.anthropic.com", False), ("https://eu.anthropic.com/v1", False), ("https://gate.example", True)],
)
def test_other_hosts_get_an_anthropic_key_as_a_bearer_token(house: House, base_url: str, bearer: bool) -> None:
    """As Qwen Code sends it; only Anthropic itself has a header of its own for it."""
    settings = models(fastModel="anthropic:haiku")
    settings["modelProviders"]["anthropic"] = [{"id": "haiku", "baseUrl": base_url}]
    house.settings("user", settings)
    choice = house.resolve({"ANTHROPIC_API_KEY": "k"}).fast_model
    assert isinstance(choice, ModelChoice)
    assert choice.bearer is bearer


def test_vertex_without_a_key_needs_googles_sign_in(house: House) -> None:
    """That is not ours to use, and the reason says what would do."""
    settings = {"fastModel": "vertex-ai:g", "modelProviders": {"vertex-ai": [{"id": "g"}]}}
    house.settings("user", settings)
    missing = house.resolve({"GOOGLE_CLOUD_PROJECT": "p"}).fast_model.missing
    assert "vertex-ai needs a Google sign-in" in missing
    assert "GOOGLE_API_KEY" in missing


def test_origins_tell_of_entry_key_and_address(house: House) -> None:
    """Where each of them was written, for `config show`."""
    entry = {"id": "a", "baseUrl": "http://e/v1", "envKey": "KEY"}
    house.settings("user", models(entry, fastModel="a", env={"KEY": "k"}))
    origins = house.resolve().origins
    assert origins["fastModel"].startswith("user settings ")
    assert origins["fastModel.entry"] == f"modelProviders.openai, {origins['fastModel']}"
    assert origins["fastModel.apiKey"] == f"KEY from {origins['fastModel']}"
    assert origins["fastModel.baseUrl"] == "modelProviders.openai"


def test_another_auth_type_takes_its_own_standard_variables(house: House) -> None:
    """Across auth types neither the session's key nor its address is used."""
    settings = models({"id": "big"}, fastModel="anthropic:haiku", model={"name": "big"})
    settings["security"]["auth"].update(apiKey="session-key", baseUrl="http://session")
    settings["modelProviders"]["anthropic"] = [{"id": "haiku"}]
    house.settings("user", settings)
    choice = house.resolve({"ANTHROPIC_BASE_URL": "http://claude"}).fast_model
    assert isinstance(choice, ModelChoice)
    assert (choice.auth_type, choice.base_url, choice.api_key) == ("anthropic", "http://claude", None)


def test_a_bare_id_is_looked_for_in_the_sessions_auth_type_only(house: House) -> None:
    """The same id at two services: the session's own counts; a selector can say otherwise. So Qwen Code itself does,
    and what it would not find is no fast model, with the word that is missing.
    """
    settings = models({"id": "big"}, fastModel="x")
    settings["modelProviders"]["anthropic"] = [{"id": "x"}]
    house.settings("user", settings)
    found = house.resolve()
    assert 'write "anthropic:x"' in found.fast_model.missing
    assert not found.has_native_fast_model
    settings = models({"id": "x"}, fastModel="x")
    settings["modelProviders"] = {"anthropic": [{"id": "x"}], "openai": [{"id": "x"}]}
    house.settings("user", settings)
    assert getattr(house.resolve().fast_model, "auth_type", "") == "openai"
    house.settings("user", {**settings, "fastModel": " anthropic : x "})
    assert getattr(house.resolve().fast_model, "auth_type", "") == "anthropic"


def test_ids_may_hold_colons(house: House) -> None:
    """Only a known auth type before the first colon is one."""
    house.settings("user", models({"id": "vendor:x:free"}, fastModel="vendor:x:free"))
    assert house.resolve().fast_model.id == "vendor:x:free"


@pytest.mark.parametrize("name", ["x", "$runtime|openai|x"])
def test_the_main_model_outside_the_list_can_be_the_fast_one(house: House, name: str) -> None:
    """`fastModel` equal to `model.name` is enough where a key or an address is configured."""
    house.settings("user", {"fastModel": "x", "model": {"name": name}})
    environ = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://llm/v1"}
    found = house.resolve(environ)
    assert found.fast_model == found.main_model
    assert (found.fast_model.id, found.has_native_fast_model) == ("x", True)
    assert isinstance(house.resolve().fast_model, Missing)


def test_several_addresses_for_one_main_model(house: House) -> None:
    """`model.baseUrl` tells two entries with the same id apart."""
    entries = [{"id": "m", "baseUrl": "http://one"}, {"id": "m", "baseUrl": "http://two"}]
    house.settings("user", models(*entries, fastModel="m", model={"name": "m", "baseUrl": "http://two"}))
    found = house.resolve()
    assert getattr(found.main_model, "base_url", "") == "http://two"
    assert getattr(found.fast_model, "base_url", "") == "http://two"


def test_several_entries_for_one_fast_model(house: House) -> None:
    """One without an address comes first; of two with the same address the first in the file counts."""
    same = [{"id": "m", "baseUrl": "http://one", "envKey": "FIRST"}, {"id": "m", "baseUrl": "http://one"}]
    house.settings("user", models(*same, fastModel="m"))
    assert getattr(house.resolve({"FIRST": "k"}).fast_model, "key_name", "") == "FIRST"
    house.settings("user", models(*same, {"id": "m"}, fastModel="m"))
    assert getattr(house.resolve().fast_model, "base_url", "") == "https://api.openai.com/v1"


def test_an_entrys_generation_config_is_authoritative(house: House) -> None:
    """`model.generationConfig` counts for a main model outside `modelProviders` only."""
    top = {"generationConfig": {"samplingParams": {"top_p": 0.5}, "timeout": 1000}}
    house.settings("user", models({"id": "a"}, model={"name": "a", **top}))
    assert getattr(house.resolve().main_model, "sampling", 0) is None
    house.settings("user", models({"id": "a"}, model={"name": "b", **top}))
    choice = house.resolve().main_model
    assert isinstance(choice, ModelChoice)
    assert (choice.sampling, choice.timeout_seconds) == ({"top_p": 0.5}, 1.0)


@pytest.mark.parametrize(
    ("providers", "problem"),
    [
        ({"mine": [{"id": "x"}]}, "modelProviders.mine is no known auth type"),
        ({"openai": {"id": "x"}}, "modelProviders.openai is not a list"),
        ([{"id": "x"}], "modelProviders is not an object"),
        ({"openai": ["x"]}, "modelProviders.openai[0] has no id"),
        ({"openai": [{"id": "x", "wireApi": ["responses"]}]}, "modelProviders.openai[0] has a wireApi"),
        ({"openai": [{"id": "x", "wireApi": "soap"}]}, "modelProviders.openai[0] has a wireApi"),
        ({"gemini": [{"id": "x", "wireApi": "responses"}]}, "modelProviders.gemini[0] has a wireApi"),
    ],
)
def test_entries_that_cannot_be_used_are_named(house: House, providers: object, problem: str) -> None:
    """A wrong entry is left out and said; the others stay."""
    house.settings("user", {"modelProviders": providers, "fastModel": "x"})
    found = house.resolve()
    assert [error for error in found.errors if error.startswith(problem)]
    assert isinstance(found.fast_model, Missing)


def test_qwen_oauth_entries_are_ignored(house: House) -> None:
    """Only the list that is part of Qwen Code counts for qwen-oauth."""
    house.settings("user", {"modelProviders": {"qwen-oauth": [{"id": "x"}]}, "fastModel": "x"})
    found = house.resolve()
    assert (found.errors, found.has_native_fast_model) == ((), False)


def test_no_key_is_shown(house: House) -> None:
    """Neither the choice nor the settings show a key, a header or an address that may hold a password."""
    entry = {"id": "a", "baseUrl": "http://u:p4ss@h", "generationConfig": {"customHeaders": {"X-Key": "h3ader"}}}
    house.settings("user", models(entry, fastModel="a"))
    text = repr(house.resolve({"OPENAI_API_KEY": "k3y"}))
    assert not [secret for secret in ("k3y", "h3ader", "p4ss") if secret in text]


@pytest.mark.parametrize(
    ("api", "base_url", "key_env", "environ", "expected"),
    [
        ("openai", None, None, {"OPENAI_API_KEY": "k"}, ("https://api.openai.com/v1", "k", "OPENAI_API_KEY")),
        ("anthropic", None, "MY", {"MY": "k"}, ("https://api.anthropic.com", "k", "MY")),
        ("gemini", None, None, {}, ("https://generativelanguage.googleapis.com", None, "")),
        ("openai", "http://local/v1", None, {"OPENAI_API_KEY": "k"}, ("http://local/v1", None, "")),
    ],
)
def test_explicit_models(
    api: str, base_url: str | None, key_env: str | None, environ: dict[str, str], expected: tuple[str, str | None, str]
) -> None:
    """`[model] source = "explicit"`: the standard variable only for the service's own address."""
    choice = explicit_choice(api, "m", base_url, key_env, environ)
    assert isinstance(choice, ModelChoice)
    key = choice.api_key.reveal() if choice.api_key else None
    assert (choice.base_url, key, choice.key_name) == expected
    assert choice.protocol is Protocol(api)


def test_explicit_models_say_what_is_missing() -> None:
    """A name or a named variable that is not there."""
    assert "MY is not set" in explicit_choice("openai", "m", None, "MY", {"MY": ""}).missing
    assert "model.name is not set" in explicit_choice("openai", " ", None, None, {}).missing


def test_a_section_that_is_no_object_is_named(house: House) -> None:
    """Nothing of it counts, and somebody has to be told."""
    house.settings("user", {"env": "KEY=x", "security": [], "model": "m", "general": 1, "providerProtocol": True})
    errors = house.resolve().errors
    assert errors == tuple(
        f"{name} is not an object" for name in ("providerProtocol", "env", "security", "model", "general")
    )
