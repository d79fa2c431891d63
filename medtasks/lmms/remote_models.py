"""Credentialed data does not go to a model on another machine, unless the user named that machine."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from operator import attrgetter

from medtasks.data.catalogue import Access
from medtasks.data.own_datasets import access_of
from medtasks.errors import ModelRefused
from medtasks.net import endpoints
from medtasks.net.model_places import PLACES, Destination, file_of_module, known_destinations, named_addresses

TRUSTED = "MEDTASKS_TRUSTED_MODEL"

_FORM = "http(s)://host[:port]/path, without user, query and percent sign"
_CLIENT_ADDRESSES = (
    "base_url",
    "_base_url",
    "chat.completions._base_url",  # the harness's LiteLLM
    "_client_wrapper._base_url",  # Reka
    "_api_client._http_options.base_url",  # Google
    "meta.endpoint_url",  # Amazon
)
_CLIENTS = (
    *("aiohttp", "anthropic", "boto3", "botocore", "cohere", "google.genai", "groq", "httpx", "httpx2", "litellm"),
    *("mistralai", "ollama", "openai", "reka", "requests", "together"),
)
"""Packages whose objects a model holds in order to send something."""


def refuse_remote_model(lm: object, datasets: Iterable[str]) -> None:
    """Refuse to ask a model about credentialed datasets if it would send the questions to another machine.

    The model is built: what it holds tells its addresses better than how it was started. What the user lets logs show
    makes no difference. Errors are those of :func:`check_model`.
    """
    private = credentialed(datasets)
    if private:
        check_model(_file_of(lm) or type(lm).__name__, live_destinations(lm, os.environ), private)


def credentialed(datasets: Iterable[str]) -> list[str]:
    """Return which datasets are credentialed, those included that nobody knows, or whose text logs may show."""
    return sorted({name for name in datasets if access_of(name) is Access.CREDENTIALED})


def check_model(
    model: str, goes_to: Sequence[Destination], datasets: Sequence[str], environment: Mapping[str, str] = os.environ
) -> None:
    """Refuse to send text of credentialed datasets to another machine.

    ``MEDTASKS_TRUSTED_MODEL`` opens this for one server, for users whose data use agreement covers it: the one with the
    same scheme, host and port; a path may differ. Raises ModelRefused, with what the model is called, where a server is
    remote, or cannot be told, and is not the trusted one; or a proxy of the environment stands between.
    """
    for destination in goes_to if datasets else ():
        cause = refusal(destination, environment)
        if cause:
            text = f"text of credentialed data ({', '.join(datasets)})"
            raise ModelRefused(f"{text} is not sent with model '{model}' {cause}")


def trusted_origin(environment: Mapping[str, str]) -> str | None:
    """Return scheme, host and port of the server that may see credentialed text; None if the user names none.

    Raises ModelRefused where the variable holds no address.
    """
    text = environment.get(TRUSTED, "").strip()
    if text and not ("://" in text and endpoints.readable(text)):
        example = f"{TRUSTED}=https://api.openai.com"
        raise ModelRefused(f"{TRUSTED} names no server, so none is trusted; write it as {_FORM}, for example {example}")
    return endpoints.origin(endpoints.readable(text)) if text else None


def refusal(destination: Destination, environment: Mapping[str, str]) -> str:
    """Return why nothing goes to a server and what mends it, behind the words "is not sent"; empty if it may go."""
    mend = (
        "give base_url=http://127.0.0.1:8000/v1 of a server on this machine"
        if "base_url" in destination.names
        else "choose a model that answers on this machine"
    )
    if not destination.url:
        cause = f"{destination.source} is not" if destination.source else "nobody can tell where it goes as"
        return f"because {cause} {_FORM}; {mend}, or one whose address you give in this form"
    origin, host = endpoints.origin(destination.url), endpoints.host(destination.url)
    to = f"to {origin}{f' ({destination.source})' if destination.source else ''}"
    is_local = endpoints.is_loopback(host)
    try:
        is_open = is_local or trusted_origin(environment) == origin
    except ModelRefused as error:
        return f"{to}, which is not this machine; {error}"
    if not is_open:
        terms = f"if your data use agreement allows it, set {TRUSTED}={origin}"
        return f"{to}, which is not this machine; {mend}, or, {terms}"
    proxy = _proxy(destination.url, environment) if destination.obeys_proxies else ""
    if proxy and (is_local or destination.url.startswith("http:")):
        return f"{to} by way of the proxy that {proxy} names; add {host} to NO_PROXY, or unset {proxy}"
    return ""


def live_destinations(lm: object, environment: Mapping[str, str]) -> list[Destination]:
    """Return where a model that is built sends questions; some look at the environment with each request."""
    attributes = dict(getattr(lm, "__dict__", {}))
    name = _file_of(lm)
    clients = [client for value in attributes.values() for client in _clients(value)]
    addresses = [
        (address, bool(getattr(getattr(client, "_client", client), "trust_env", True)))
        for client in clients
        if (address := client_address(client))
    ]
    names = tuple(source for place in PLACES.get(name, ()) for source in place.names)
    found = [Destination(endpoints.readable(address), "", names, proxies) for address, proxies in addresses]
    if name in PLACES and (not found or name == "litellm"):
        # What a client or a list says goes before a single attribute, which may be the first of several.
        lists = {key[:-1]: value for key, value in attributes.items() if key.endswith("_urls")}
        given = {"base_url": [address for address, _ in addresses]} if addresses else {}
        found = known_destinations(name, {**attributes, **lists, **given}, environment)
    if not file_of_module(type(lm).__module__):
        found += named_addresses(attributes)
    return found or [Destination("") for _ in clients]


def _file_of(lm: object) -> str:
    """Return the harness's file of a model's class, or of the class it inherits from; empty for a model of others."""
    return next((name for one in type(lm).__mro__ if (name := file_of_module(one.__module__))), "")


def _clients(value: object) -> Iterator[object]:
    several = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else [value]
    for one in several:
        module = f"{type(one).__module__}."
        if is_dataclass(one):  # of arguments, which send nothing
            continue
        if any(module.startswith(f"{package}.") for package in _CLIENTS) or client_address(one):
            yield one


def client_address(client: object) -> str:
    """Return where the client of a model sends its requests, empty where nobody can tell; it may hold secrets."""
    for path in _CLIENT_ADDRESSES:
        with contextlib.suppress(Exception):  # a property may raise anything
            found = attrgetter(path)(client)
            if isinstance(found, str) or type(found).__name__ == "URL":
                return str(found)
    return ""


def _proxy(url: str, environment: Mapping[str, str]) -> str:
    """Return the variable that names a proxy for an address, empty if there is none.

    Libraries read NO_PROXY in different ways; an entry counts here if all of them would see it.
    """
    exempt = environment.get("no_proxy", environment.get("NO_PROXY", "")).lower().split(",")
    if {endpoints.host(url), "*"} & {entry.strip() for entry in exempt}:
        return ""
    scheme = url.partition(":")[0]
    names = [spelled for name in (f"{scheme}_proxy", "all_proxy") for spelled in (name, name.upper())]
    return next((name for name in names if environment.get(name, "").strip()), "")
