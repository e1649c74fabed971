"""Proxies and certificates come from the environment, and a bad value is one clear sentence."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from watcher.edge.text_model import network_problems
from watcher.edge.text_model.network import Route, find_route, make_tls_context
from watcher.errors import ModelSetupError

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("https://h.example/v1", {}, None),
        ("https://h.example/v1", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://h.example/v1", {"https_proxy": PROXY, "HTTPS_PROXY": "http://no.example"}, PROXY),
        ("https://h.example/v1", {"https_proxy": "", "HTTPS_PROXY": PROXY}, None),
        ("https://h.example/v1", {"HTTP_PROXY": PROXY}, None),
        ("http://h.example/v1", {"HTTP_PROXY": PROXY}, PROXY),
        ("http://h.example/v1", {"ALL_PROXY": PROXY}, PROXY),
        ("https://h.example/v1", {"HTTPS_PROXY": "proxy.example:3128"}, PROXY),
        ("https://h.example/v1", {"HTTPS_PROXY": "HTTP://proxy.example:3128"}, PROXY),
        ("https://h.example/v1", {"HTTPS_PROXY": PROXY, "NO_PROXY": "h.example"}, None),
        ("https://a.h.example/v1", {"HTTPS_PROXY": PROXY, "NO_PROXY": "x, .h.example"}, None),
        ("https://a.h.example/v1", {"HTTPS_PROXY": PROXY, "NO_PROXY": "*.h.example"}, None),
        ("https://badh.example/v1", {"HTTPS_PROXY": PROXY, "NO_PROXY": "h.example"}, PROXY),
        ("https://h.example/v1", {"HTTPS_PROXY": PROXY, "no_proxy": "*"}, None),
        ("https://h.example:8443/v1", {"HTTPS_PROXY": PROXY, "NO_PROXY": "h.example:8443"}, None),
        ("https://10.1.2.3/v1", {"HTTPS_PROXY": PROXY, "NO_PROXY": "10.0.0.0/8"}, None),
        ("https://[fd00::1]/v1", {"HTTPS_PROXY": PROXY, "NO_PROXY": "[fd00::1]"}, None),
        ("https://h.example/v1", {"HTTPS_PROXY": PROXY, "NO_PROXY": "10.0.0.0/8,,not/a/net"}, PROXY),
    ],
)
def test_the_proxy_of_an_address(url: str, environ: dict[str, str], proxy: str | None) -> None:
    """As curl does it: by scheme, small letters first, but for what NO_PROXY names."""
    assert find_route(url, environ).proxy == proxy


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:11434/v1", "http://localhost:1/", "https://[::1]:1/", "http://a.localhost/"]
)
@pytest.mark.parametrize("proxy", [PROXY, "socks://proxy.example", "rubbish://", "http://"])
def test_this_machine_is_never_behind_a_proxy(url: str, proxy: str) -> None:
    """Not even when the variable is broken (report H1)."""
    assert find_route(url, {"ALL_PROXY": proxy, "HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}).proxy is None


@pytest.mark.parametrize(
    "value",
    ["socks://p.example:1080", "gopher://p", "http://", "http://p.example:99999", "http://p.example:port", "://"],
)
def test_a_broken_proxy_is_named_without_its_value(value: str) -> None:
    """The variable's name is enough; the value may hold a password."""
    with pytest.raises(ModelSetupError, match=r"^HTTPS_PROXY: ") as caught:
        find_route("https://h.example", {"HTTPS_PROXY": value.replace("p.", "user:hunter2@p.")})
    assert "hunter2" not in str(caught.value)


def test_a_password_of_a_proxy_does_not_show() -> None:
    """In the route's repr."""
    route = find_route("https://h.example", {"HTTPS_PROXY": "http://user:hunter2@p.example:1"})
    assert route.proxy == "http://user:hunter2@p.example:1"
    assert "hunter2" not in repr(route)


def test_tls_is_needed_for_https_on_either_side() -> None:
    """A plain address through a plain proxy needs none."""
    assert find_route("http://h.example", {}) == Route(secure=False)
    assert find_route("http://h.example", {"HTTP_PROXY": "https://p.example"}).secure
    assert find_route("https://h.example", {}).secure


def test_missing_certificates_are_named(tmp_path: Path) -> None:
    """The variable and the path, for a file, a directory and a file that holds none (report H3)."""
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    for environ, words in (
        ({"SSL_CERT_FILE": str(tmp_path / "no.pem")}, "SSL_CERT_FILE: there is no file"),
        ({"SSL_CERT_DIR": str(tmp_path / "no")}, "SSL_CERT_DIR: there is no directory"),
        ({"SSL_CERT_FILE": str(empty)}, "SSL_CERT_FILE: no certificates"),
    ):
        with pytest.raises(ModelSetupError, match=words):
            make_tls_context(environ)


def test_authorities_of_companies_are_accepted_as_node_does() -> None:
    """Strict checking, on by default since Python 3.13, refuses many of them; the chain is checked all the same."""
    context = make_tls_context({})
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_doctor_hears_of_every_problem(tmp_path: Path) -> None:
    """A broken proxy and missing files, all at once; nothing where nothing is wrong, and no TLS for plain addresses."""
    missing = str(tmp_path / "no.pem")
    environ = {"HTTPS_PROXY": "socks://p", "SSL_CERT_FILE": missing, "NODE_EXTRA_CA_CERTS": missing}
    problems = network_problems("https://h.example", environ)
    assert [problem.partition(":")[0] for problem in problems] == [
        "HTTPS_PROXY",
        "SSL_CERT_FILE",
        "NODE_EXTRA_CA_CERTS",
    ]
    assert network_problems("https://h.example", {}) == []
    assert network_problems("http://h.example", {"SSL_CERT_FILE": missing}) == []
