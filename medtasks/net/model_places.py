"""Where the harness's models send questions: which read an address, from what, and where they go without one.

What is said here and in ``harness_models.toml`` was read in lmms-eval 0.7.3; tests read it again in what is installed.
"""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from medtasks.home import packaged_facts
from medtasks.net.endpoints import readable

# Names of arguments that hold an address in a model nobody has read; "model_base" and "mcp_server_path" are none.
_ADDRESS_NAME = re.compile(r"(?:^|_)(?:urls?|uri|api_base|endpoints?|hosts?|hostname|servers?)$", re.IGNORECASE)
_ADDRESS = re.compile(r"\s*(?:https?|wss?|grpcs?)://\S+\s*", re.IGNORECASE)
# A switch, a path, or a count: as an address a number so small is one of 0.0.0.0/8, where nothing is.
_NO_ADDRESS = re.compile(r"true|false|none|\.?/(?!/).*|\d{1,7}", re.IGNORECASE)
_SEPARATORS = re.compile(r"[;,\s]+")
_MODULES = "lmms_eval.models."
# A model of ours, whose client takes a proxy for addresses on other machines alone that are encrypted.
_PAST_PROXIES = ("vlm_server",)
HARNESS_MODELS = packaged_facts(__package__, "harness_models")


@dataclass(frozen=True)
class Place:
    """Where one kind of a model's requests goes."""

    names: tuple[str, ...] = ()  # arguments of the model and, in capitals, variables; the first that is set counts
    home: str = ""  # the address if none is set; empty where nobody can tell


@dataclass(frozen=True)
class Destination:
    """A server to which a model sends questions."""

    url: str  # ``http(s)://host[:port]/path``; empty for an address nobody can tell or read
    source: str = ""  # the argument or variable that named it; empty where nobody did
    names: tuple[str, ...] = ()  # all that could have named it
    obeys_proxies: bool = True  # whether the model's client goes by way of a proxy that the environment names


PLACES: Mapping[str, tuple[Place, ...]] = {
    name: tuple(Place(tuple(place.get("names", ())), place.get("home", "")) for place in places)
    for name, places in HARNESS_MODELS["places"].items()
}
"""The harness's models that send requests, by the name of their file, and where to if nothing else is said."""

CHAT_CLIENTS = frozenset(HARNESS_MODELS["chat_clients"]["names"])
"""The harness's models that ask by an openai client, by the name of their file."""

_BOUND_PROVIDERS = ("openai", "azure", "anthropic", "hosted_vllm", "ollama", "ollama_chat", "lm_studio")
"""Providers for which LiteLLM sends everything to the address it is given."""


def destinations(
    model: str, arguments: Mapping[str, object], environment: Mapping[str, str], *, force_simple: bool = False
) -> list[Destination]:
    """Return where a model, given by name or alias, would send questions; nowhere if it answers by itself.

    It is not built yet: ``--model_args`` by name and the environment tell.
    """
    resolved = _resolved(model, force_simple)
    name = file_of_module(module_of(model, force_simple=force_simple)) or str(resolved.model_id if resolved else model)
    if name in PLACES:
        return known_destinations(name, arguments, environment)
    return [replace(one, obeys_proxies=name not in _PAST_PROXIES) for one in named_addresses(arguments)]


def known_destinations(name: str, arguments: Mapping[str, object], environment: Mapping[str, str]) -> list[Destination]:
    """Return where one of the models in :data:`PLACES` sends questions; arguments are as in :func:`destinations`."""
    obeys_proxies = name != "openai" or not _is_false(arguments.get("httpx_trust_env", True))
    return [
        Destination(readable(address), source, place.names, obeys_proxies)
        for place in _places(name, arguments, environment)
        for source, address in _named(place, arguments, environment)
    ]


def named_addresses(values: Mapping[str, object]) -> list[Destination]:
    """Return the addresses among the arguments, or attributes, of a model nobody has read."""
    return [
        Destination(readable(address), name)
        for name, value in values.items()
        if _ADDRESS_NAME.search(name) or _ADDRESS.fullmatch(str(value) if isinstance(value, str) else "")
        for address in _addresses(value)
        if not _NO_ADDRESS.fullmatch(address)
    ]


def file_of_module(module: str) -> str:
    """Return the name of the file of one of the harness's models, empty for a module of others."""
    return module.rpartition(".")[2] if module.startswith(_MODULES) else ""


def module_of(model: str, *, force_simple: bool) -> str:
    """Return the module of the class behind a model's name or alias, empty if it cannot be told."""
    resolved = _resolved(model, force_simple)
    return str(resolved.class_path).rpartition(".")[0] if resolved else ""


def _resolved(model: str, force_simple: bool) -> Any:
    # A plug-in that cannot be imported is the harness's affair; the name itself then decides.
    with contextlib.suppress(Exception):
        from lmms_eval.models import MODEL_REGISTRY_V2

        return MODEL_REGISTRY_V2.resolve(model, force_simple)
    return None


def _places(name: str, arguments: Mapping[str, object], environment: Mapping[str, str]) -> tuple[Place, ...]:
    usual = PLACES[name]
    if name == "openai" and not _is_false(arguments.get("azure_openai", False)):
        return (Place(("AZURE_OPENAI_API_BASE", "AZURE_OPENAI_ENDPOINT")),)
    if name in ("gpt4v", "gpt4o_audio") and environment.get("API_TYPE") == "azure":
        return (Place(("AZURE_ENDPOINT",)),)
    if name == "gemini" and _is_vertex(arguments, environment):
        region = str(arguments.get("location") or environment.get("GOOGLE_CLOUD_LOCATION") or "global")
        home = f"https://{'' if region == 'global' else f'{region}-'}aiplatform.googleapis.com"
        return (Place(("GOOGLE_VERTEX_BASE_URL",), home),)
    if name == "cosmos_wm":
        backend = arguments.get("backend", "local")
        nim = (Place(("nim_base_url",), "https://ai.api.nvidia.com/v1/cv"),)
        return () if backend in ("local", "transformers_reasoner") else nim if backend == "nim" else usual
    if name == "generation_api" and str(arguments.get("mode")).lower() == "v2v":
        return (*usual, Place())  # what is to be changed is left on a server that the service chooses
    if name == "litellm" and not _is_bound(arguments, environment):
        return (Place(),)
    return usual


def _is_vertex(arguments: Mapping[str, object], environment: Mapping[str, str]) -> bool:
    by_environment = environment.get("GOOGLE_GENAI_USE_VERTEXAI", "").lower() in ("true", "1")
    return by_environment or not _is_false(arguments.get("vertexai", False))


def _is_bound(arguments: Mapping[str, object], environment: Mapping[str, str]) -> bool:
    model = str(arguments.get("model") or arguments.get("model_version") or "openai/gpt-4o-mini")
    return model.partition("/")[0] in _BOUND_PROVIDERS and not environment.get("USE_LITELLM_PROXY")


def _is_false(value: object) -> bool:
    return str(value).strip().lower() in ("false", "0", "0.0", "")


def _named(place: Place, arguments: Mapping[str, object], environment: Mapping[str, str]) -> list[tuple[str, str]]:
    for name in place.names:
        addresses = _addresses(environment.get(name) if name.isupper() else arguments.get(name))
        if addresses:
            return [(name, address) for address in addresses]
    return [("", place.home)]


def _addresses(value: object) -> list[str]:
    values = value if isinstance(value, list | tuple) else [value]
    texts = [str(one) for one in values if isinstance(one, str | int | float) and not isinstance(one, bool)]
    return [piece for text in texts for piece in _SEPARATORS.split(text) if piece]
