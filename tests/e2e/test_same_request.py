"""Nothing to configure: our title request is Qwen Code's own one in model, address, key and thinking switches.

Both are captured by the same server, from the same home and the same environment: Qwen Code's own from a session with a
fast model, ours from `title --auto` on that session.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support import qwen_code
from tests.support.acp import AcpClient
from tests.support.chat_server import ChatRequest, ChatServer, Kind
from tests.support.model_server import ModelServer, Response
from tests.support.qwen_code import LATEST, VERSIONS, Home
from tests.support.terminal import wait_until
from tests.support.watching import command, watcher_env

OURS = "qwen-session-watcher/"
KEY_HEADERS = ("authorization", "x-api-key", "x-goog-api-key", "api-key")
THINKING = ("enable_thinking", "chat_template_kwargs", "reasoning_effort", "reasoning", "thinking", "thinking_budget")
NOT_COMPARED = ("messages", "tools", "system")
"""The words of a request are ours, and so is the function that the answer comes through."""

Settings = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """Settings as a user has them. `make` gets the address of the main model's server and of another one.

    `whole`: the requests agree in every field of the body, not only in the switches for thinking.
    """

    name: str
    make: Callable[[str, str], Settings]
    env: Mapping[str, str] = field(default_factory=dict)
    whole: bool = False
    versions: tuple[str, ...] = (LATEST,)


def entry(model: str, url: str, **more: Any) -> Settings:
    """One model of `modelProviders`."""
    return {"id": model, "baseUrl": url, **more}


def root_of(url: str) -> str:
    """The address without `/v1`, for the formats that add the version themselves."""
    return url.removesuffix("/v1")


def one_provider(fast: str, **more: Any) -> Callable[[str, str], Settings]:
    """Main and fast model at the same service, with the key of the environment."""

    def make(url: str, _: str) -> Settings:
        key = {"envKey": "OPENAI_API_KEY"}
        models = [entry("main-model", url, **key), entry(fast, url, **key, **more)]
        return {"fastModel": fast, "modelProviders": {"openai": models}}

    return make


def other_service(provider: str, fast: str, suffix: str = "", **more: Any) -> Callable[[str, str], Settings]:
    """A fast model of another kind of service, with a key of its own."""

    def make(url: str, other: str) -> Settings:
        models = [entry(fast, (other if suffix else root_of(other)) + suffix.removeprefix("/v1"), **more)]
        return {
            "fastModel": f"{provider}:{fast}",
            "modelProviders": {"openai": [entry("main-model", url)], provider: models},
        }

    return make


def whole_session(provider: str, main: str, fast: str, **more: Any) -> Callable[[str, str], Settings]:
    """The session itself runs on that kind of service."""

    def make(_: str, other: str) -> Settings:
        models = [entry(name, root_of(other), **more) for name in (main, fast)]
        return {
            "security": {"auth": {"selectedType": provider}},
            "model": {"name": main},
            "fastModel": fast,
            "modelProviders": {provider: models},
        }

    return make


def responses(url: str, other: str) -> Settings:
    """The OpenAI responses API by `wireApi`."""
    fast = entry("gpt-5.2", other, wireApi="responses", envKey="OTHER_KEY")
    return {"fastModel": "openai-responses:gpt-5.2", "modelProviders": {"openai": [entry("main-model", url), fast]}}


def tuned_main(url: str, _: str) -> Settings:
    """The main model is tuned, the fast one only in part."""
    tuning = {
        "samplingParams": {"temperature": 0.7, "top_p": 0.5, "max_tokens": 50},
        "extra_body": {"user": "someone"},
        "customHeaders": {"X-Team": "infra"},
    }
    main = entry("main-model", url, generationConfig=tuning)
    return {"fastModel": "fast-model", "modelProviders": {"openai": [main, entry("fast-model", url)]}}


def partly_tuned(url: str, other: str) -> Settings:
    """As above, with sampling parameters of its own."""
    settings = tuned_main(url, other)
    settings["modelProviders"]["openai"][1]["generationConfig"] = {"samplingParams": {"top_k": 7}}
    return settings


def top_level_tuning(url: str, _: str) -> Settings:
    """A main model outside of `modelProviders`, tuned at the top level."""
    tuning = {"samplingParams": {"temperature": 0.7}, "extra_body": {"user": "someone"}}
    return {
        "model": {"generationConfig": tuning},
        "fastModel": "fast-model",
        "modelProviders": {"openai": [entry("fast-model", url)]},
    }


def custom_provider(url: str, other: str) -> Settings:
    """Providers with names of the user's own."""
    return {
        "fastModel": "fast-model",
        "providerProtocol": {"mine": "openai"},
        "modelProviders": {"mine": [entry("main-model", url), entry("fast-model", other, envKey="OTHER_KEY")]},
    }


def from_auth_settings(url: str, other: str) -> Settings:
    """Key and address of the session from `security.auth`; the entry has only an address."""
    auth = {"selectedType": "openai", "apiKey": "sk-from-settings", "baseUrl": url}
    return {
        "security": {"auth": auth},
        "fastModel": "fast-model",
        "modelProviders": {"openai": [entry("fast-model", other)]},
    }


WISHES = {
    "enable_thinking": True,
    "reasoning_effort": "high",
    "chat_template_kwargs": {"enable_thinking": True, "x": 1},
}
NO_ENVIRONMENT = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": "", "OPENAI_MODEL": ""}
OTHER_KEY = {"OTHER_KEY": "sk-of-the-other-service"}

CASES = (
    Case("plain OpenAI", one_provider("fast-model"), whole=True, versions=VERSIONS),
    Case("a qwen model on a host of its own", one_provider("qwen3-coder-flash"), whole=True, versions=VERSIONS),
    Case(
        "an Anthropic entry",
        other_service("anthropic", "claude-haiku-4-5", envKey="OTHER_KEY"),
        OTHER_KEY,
        versions=VERSIONS,
    ),
    Case(
        "an Anthropic session",
        whole_session("anthropic", "claude-sonnet-4-5", "claude-haiku-4-5", envKey="OTHER_KEY"),
        OTHER_KEY,
    ),
    Case("the responses API", responses, OTHER_KEY),
    Case("Gemini", other_service("gemini", "gemini-3-flash", envKey="OTHER_KEY"), OTHER_KEY),
    Case("a Gemini session", whole_session("gemini", "gemini-3-pro", "gemini-3-flash"), {"GEMINI_API_KEY": "g-key"}),
    Case("Vertex AI with an API key", other_service("vertex-ai", "gemini-3-flash"), {"GOOGLE_API_KEY": "v-key"}),
    Case("a vendor before the name", one_provider("Qwen/Qwen3-8B"), whole=True),
    Case(
        "wishes for thinking in the settings",
        one_provider("qwen3-30b", generationConfig={"extra_body": WISHES}),
        whole=True,
    ),
    Case("a model that must think", one_provider("qwen3-30b", generationConfig={"thinkingMandatory": True})),
    Case("a reasoning model of OpenAI", one_provider("gpt-5.2")),
    Case(
        "a declared profile",
        one_provider("fast-model", capabilities={"reasoning": {"profile": "qwen-chat-template"}}),
        whole=True,
    ),
    Case("a tuned main model", tuned_main, whole=True),
    Case("a fast model tuned in part", partly_tuned, whole=True),
    Case("tuning at the top level", top_level_tuning, whole=True),
    Case("a custom provider", custom_provider, OTHER_KEY, whole=True),
    Case("key and address in security.auth", from_auth_settings, NO_ENVIRONMENT, whole=True),
    Case("the main model is the fast one", lambda *_: {"fastModel": "main-model"}, whole=True),
)


@pytest.fixture(name="server")
def _server() -> Iterator[ChatServer]:
    """The main model's service."""
    with ChatServer() as server:
        yield server


@pytest.fixture(name="other")
def _other() -> Iterator[ChatServer]:
    """Another service."""
    with ChatServer() as server:
        yield server


class House:
    """One person's home, Qwen Code and our commands in it, with the same environment."""

    def __init__(self, root: Path, version: str, server: ChatServer, env: Mapping[str, str]) -> None:
        self.home = Home(root, qwen_code.install(version))
        self.server = server
        self.env = dict(env)
        self._watcher = watcher_env(self.home.path, root / "state", extra={**self.home.env(server, env)})

    def chat(self) -> str:
        """One turn in an editor's session, and its end; returns the session's id."""
        with AcpClient(self.home, self.server, env=self.env) as editor:
            session_id = editor.new_session()
            editor.prompt(session_id, "Fix the login bug")
            return session_id

    def chat_until(self, condition: Callable[[], object]) -> str:
        """The same; the session ends when `condition` holds."""
        with AcpClient(self.home, self.server, env=self.env) as editor:
            session_id = editor.new_session()
            editor.prompt(session_id, "Fix the login bug")
            wait_until(condition, "Qwen Code's own title request")
            return session_id

    def title(self, session_id: str, *args: str, **env: str) -> tuple[int, str, str]:
        """`title S --auto`: exit code, stdout and stderr."""
        done = command({**self._watcher, **env}, "title", session_id, "--auto", *args)
        return done.returncode, done.stdout, done.stderr


def essence(request: ChatRequest) -> dict[str, Any]:
    """Model, address, key and switches of a request."""
    return {
        "path": request.path,
        "model": request.model,
        "key": {name: value for name, value in request.headers.items() if name in KEY_HEADERS},
        "thinking": {name: value for name, value in request.body.items() if name in THINKING},
    }


def title_requests(*servers: ChatServer) -> tuple[list[ChatRequest], list[ChatRequest]]:
    """The title requests that came: Qwen Code's own, and ours."""
    requests = [each for server in servers for each in server.requests(Kind.TITLE)]
    ours = [each for each in requests if each.headers["user-agent"].startswith(OURS)]
    return [each for each in requests if each not in ours], ours


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("case", "version"),
    [pytest.param(case, version, id=f"{case.name}-{version}") for case in CASES for version in case.versions],
)
def test_our_request_is_qwen_codes_own(
    case: Case, version: str, tmp_path: Path, server: ChatServer, other: ChatServer
) -> None:
    """The same settings, the same environment: the same model, address, key and switches."""
    house = House(tmp_path, version, server, case.env)
    house.home.configure(case.make(server.base_url, other.base_url))
    session_id = house.chat_until(lambda: title_requests(server, other)[0])
    code, _, errors = house.title(session_id)
    assert code == 0, errors
    (theirs,), (ours,) = title_requests(server, other)
    assert essence(ours) == essence(theirs)
    assert ours in server.requests() if theirs in server.requests() else ours in other.requests()
    custom = {name: value for name, value in theirs.headers.items() if name == "x-team"}
    assert {name: value for name, value in ours.headers.items() if name == "x-team"} == custom
    if case.whole:
        assert without_words(ours) == without_words(theirs)


def without_words(request: ChatRequest) -> dict[str, Any]:
    """The body but for the conversation and the function."""
    return {name: value for name, value in request.body.items() if name not in NOT_COMPARED}


@pytest.mark.e2e
def test_what_is_shown_is_what_is_sent(tmp_path: Path, server: ChatServer) -> None:
    """`--show-request` sends nothing and prints the request, the key hidden."""
    house = House(tmp_path, LATEST, server, {})
    house.home.configure(one_provider("qwen3-coder-flash")(server.base_url, ""))
    session_id = house.chat_until(lambda: title_requests(server)[0])
    code, shown, errors = house.title(session_id, "--show-request")
    assert code == 0, errors
    assert title_requests(server)[1] == []
    assert house.title(session_id)[0] == 0
    [ours] = title_requests(server)[1]
    head, _, body = shown.partition("\n\n")
    assert json.loads(body) == ours.body
    assert head.startswith(f"POST {server.base_url}/chat/completions\n")
    assert "dummy" not in shown


@pytest.mark.e2e
@pytest.mark.parametrize("version", VERSIONS)
def test_providers_of_two_scopes_add_up(version: str, tmp_path: Path, server: ChatServer, other: ChatServer) -> None:
    """The stronger scope names other providers: those of the weaker one stay, for Qwen Code and for us."""
    system = tmp_path / "system.json"
    system.write_text(json.dumps({"modelProviders": {"openai": [entry("main-model", server.base_url)]}}))
    house = House(tmp_path, version, server, {**OTHER_KEY, "QWEN_CODE_SYSTEM_SETTINGS_PATH": str(system)})
    haiku = entry("haiku", root_of(other.base_url), envKey="OTHER_KEY")
    house.home.configure({"fastModel": "anthropic:haiku", "modelProviders": {"anthropic": [haiku]}})
    session_id = house.chat_until(lambda: title_requests(other)[0])
    code, _, errors = house.title(session_id)
    assert code == 0, errors
    (theirs,), (ours,) = title_requests(server, other)
    assert essence(ours) == essence(theirs)


@pytest.mark.e2e
@pytest.mark.parametrize("version", VERSIONS)
def test_a_bare_name_of_another_kind_of_service_is_no_fast_model(
    version: str, tmp_path: Path, server: ChatServer, other: ChatServer
) -> None:
    """Qwen Code does not find it, so it asks nobody; we do not either, and say which word is missing."""
    house = House(tmp_path, version, server, OTHER_KEY)
    models = {
        "openai": [entry("main-model", server.base_url)],
        "anthropic": [entry("haiku", root_of(other.base_url), envKey="OTHER_KEY")],
    }
    house.home.configure({"fastModel": "haiku", "modelProviders": models})
    session_id = house.chat()
    code, _, errors = house.title(session_id)
    assert (code, title_requests(server, other)) == (1, ([], []))
    assert "no_fast_model" in errors
    assert 'write "anthropic:haiku"' in errors


@pytest.mark.e2e
@pytest.mark.parametrize("own_key", [True, False], ids=["own key", "the session's key"])
def test_a_key_is_not_sent_to_a_service_that_it_is_not_for(tmp_path: Path, server: ChatServer, own_key: bool) -> None:
    """An entry without address: Qwen Code asks OpenAI, with whatever key the session has. We ask OpenAI with the
    entry's own key; the session's key stays with the session's service.
    """
    with ModelServer(lambda _: Response(502)) as proxy:
        house = House(tmp_path, LATEST, server, {**OTHER_KEY, "HTTPS_PROXY": proxy.url, "NO_PROXY": "127.0.0.1"})
        fast = {"id": "fast-model"} | ({"envKey": "OTHER_KEY"} if own_key else {})
        main = entry("main-model", server.base_url)
        house.home.configure({"fastModel": "fast-model", "modelProviders": {"openai": [main, fast]}})
        session_id = house.chat_until(lambda: proxy.connects)
        assert set(proxy.connects) == {"api.openai.com:443"}
        proxy.connects.clear()
        code, _, errors = house.title(session_id, QWEN_WATCHER_MODEL__TIMEOUT_SECONDS="2")
        theirs, ours = title_requests(server)
        assert theirs == []
        if own_key:
            assert (code, ours, proxy.connects) == (1, [], ["api.openai.com:443"])
            assert "api.openai.com" in errors
        else:
            assert (code, proxy.connects) == (0, []), errors
            assert [each.headers["authorization"] for each in ours] == ["Bearer dummy"]
