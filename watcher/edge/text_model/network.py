"""How the network is reached: proxies and certificate authorities from the environment.

The variables are those that curl, Python and Node know. httpx could read them itself, but it fails in odd ways on
values that it does not like (report H1, H3), also for addresses that need no proxy.
"""

from __future__ import annotations

import importlib.util
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from watcher.edge.text_model.endpoint import is_loopback, split_address
from watcher.errors import ModelSetupError

if TYPE_CHECKING:
    import ssl

TLS_VARIABLES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS")
"""What `make_tls_context` reads of the environment."""
_PROXY_SCHEMES: Final = ("http", "https")
_SOCKS_SCHEMES: Final = ("socks5", "socks5h")


@dataclass(frozen=True, slots=True)
class Route:
    """How one address is reached. `proxy` may hold a password; None: directly."""

    proxy: str | None = field(default=None, repr=False)
    secure: bool = True
    """Whether TLS is spoken, to the server or to the proxy."""


def find_route(base_url: str, environ: Mapping[str, str]) -> Route:
    """The route to `base_url`. Raises `ModelSetupError`, which names the variable, for a proxy that cannot be used."""
    parts = split_address(base_url)
    if parts is None or not parts.hostname:
        raise ModelSetupError("the base URL is not an http or https address")
    secure = parts.scheme == "https"
    if is_loopback(parts.hostname) or _is_exempt(parts.hostname, parts.port, environ):
        return Route(secure=secure)
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        variable = name if name in environ else name.upper()
        value = environ.get(variable, "").strip()
        if value:
            proxy = _check_proxy(variable, value)
            return Route(proxy, secure or proxy.startswith("https:"))
    return Route(secure=secure)


def make_tls_context(environ: Mapping[str, str]) -> ssl.SSLContext:
    """A context that trusts `SSL_CERT_FILE`, else `SSL_CERT_DIR`, else certifi's list; beside it `NODE_EXTRA_CA_CERTS`.

    The last is what makes Qwen Code itself work behind a company's proxy; as in Node, a bad one is ignored. Raises
    `ModelSetupError`, which names the variable, where one of the others cannot be used.
    """
    import ssl  # noqa: PLC0415 - the idle service needs no TLS

    import certifi  # noqa: PLC0415

    file, folder = environ.get("SSL_CERT_FILE", ""), environ.get("SSL_CERT_DIR", "")
    try:
        if file:
            context = ssl.create_default_context(cafile=file)
        elif folder:
            if not Path(folder).is_dir():
                raise ModelSetupError(f"SSL_CERT_DIR: there is no directory {folder}")
            context = ssl.create_default_context(capath=folder)
        else:
            context = ssl.create_default_context(cafile=certifi.where())
    except FileNotFoundError as error:
        raise ModelSetupError(f"SSL_CERT_FILE: there is no file {file}") from error
    except (OSError, ValueError) as error:
        # A bad PEM file is an SSLError, which is an OSError.
        raise ModelSetupError(f"SSL_CERT_FILE: no certificates can be read from {file or folder}") from error
    # On by default since Python 3.13; it refuses the authorities of many companies for a missing extension, while Node,
    # and so Qwen Code, accepts them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    extra = environ.get("NODE_EXTRA_CA_CERTS", "")
    if extra:
        try:
            context.load_verify_locations(cafile=extra)
        except (OSError, ValueError):
            return context
    return context


def network_problems(base_url: str, environ: Mapping[str, str]) -> list[str]:
    """What in the environment keeps requests to `base_url` from working, for `doctor`; empty when nothing does."""
    problems = []
    try:
        secure = find_route(base_url, environ).secure
    except ModelSetupError as error:
        problems.append(str(error))
        secure = True
    if secure:
        try:
            make_tls_context(environ)
        except ModelSetupError as error:
            problems.append(str(error))
        extra = environ.get("NODE_EXTRA_CA_CERTS", "")
        if extra and not Path(extra).is_file():
            problems.append(f"NODE_EXTRA_CA_CERTS: there is no file {extra}")
    return problems


def _check_proxy(variable: str, value: str) -> str:
    """The proxy as a URL. Its text may hold a password, so it is not repeated in errors."""
    url = value if "://" in value else f"http://{value}"
    scheme = url.partition("://")[0].lower()
    if scheme in _SOCKS_SCHEMES:
        if importlib.util.find_spec("socksio") is None:
            raise ModelSetupError(f"{variable}: a SOCKS proxy needs the package socksio; or name an http:// proxy")
    elif scheme not in _PROXY_SCHEMES:
        raise ModelSetupError(f"{variable}: this kind of proxy is not supported; name an http:// or socks5:// one")
    if split_address(f"http://{url.partition('://')[2]}") is None:
        raise ModelSetupError(f"{variable}: no host, or no possible port, in the address of the proxy")
    return f"{scheme}://{url.partition('://')[2]}"


def _is_exempt(host: str, port: int | None, environ: Mapping[str, str]) -> bool:
    """Whether `NO_PROXY` names `host`: a name and all below it, an address, a network, or `*`; a port may follow."""
    listed = environ.get("no_proxy", environ.get("NO_PROXY", ""))
    for entry in (part.strip().lower() for part in listed.replace(" ", ",").split(",")):
        if not entry:
            continue
        if entry in ("*", f"{host}:{port}"):
            return True
        name = entry.removeprefix("*").removeprefix(".")
        if host == name.strip("[]") or host.endswith("." + name) or _in_network(host, entry):
            return True
    return False


def _in_network(host: str, network: str) -> bool:
    try:
        return "/" in network and ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
