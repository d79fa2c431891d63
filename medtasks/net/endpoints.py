"""Addresses of servers: their syntax, their origin, and whether they are on this machine."""

import ipaddress
import re
from urllib.parse import urlsplit

# Deliberately narrower than RFC 3986: a user name, a query or a backslash could carry a secret into a message, or make
# the host checked here differ from the host the HTTP library connects to.
_URL = re.compile(r"https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?(?:/[A-Za-z0-9._~%/-]*)?", re.ASCII)


def is_url(text: str) -> bool:
    """Return whether a text is ``http(s)://host[:port]/path`` and nothing else."""
    if _URL.fullmatch(text) is None:
        return False
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def host(url: str) -> str:
    """Return the host name or address of a URL, lower case, without port and brackets."""
    return urlsplit(url).hostname or ""


def origin(url: str) -> str:
    """Return scheme, host and port, by which users trust an endpoint.

    Example:
        >>> origin("https://API.openai.com/v1")
        'https://api.openai.com:443'
    """
    parts = urlsplit(url)
    name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{name}:{parts.port or {'http': 80, 'https': 443}[parts.scheme]}"


def is_loopback(name: str) -> bool:
    """Return whether a host is this machine: ``localhost``, 127.0.0.0/8 or ``::1``.

    A tunnel from a loopback address is the user's own responsibility.
    """
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def readable(address: str) -> str:
    """Return an address as a URL, ``http`` without a scheme; empty if libraries would read it differently.

    Only some of them decode percent signs before they look for the host, so an address with one is refused.

    Example:
        >>> [readable(text) for text in ("HTTP://127.0.0.1:8000/v1", "localhost:80", "http://127.0.0.1%2eevil.com")]
        ['http://127.0.0.1:8000/v1', 'http://localhost:80', '']
    """
    scheme, mark, path = address.strip().partition("://")
    url = f"{scheme.lower()}://{path}" if mark else f"http://{scheme}"
    return url if "%" not in url and is_url(url) else ""
