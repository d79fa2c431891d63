"""Guards of credentialed data: models that may see them, and what is withheld while these are asked.

Models known to answer on this machine may see them, or the one that the user named. All others are refused, servers
elsewhere as well as unknown model classes. The models of lmms-eval log or print prompts, replies and error bodies of
servers, so only medtasks' output is shown while a model is asked.
"""

import contextlib
import functools
import importlib
import importlib.util
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loguru import logger
from tqdm.std import tqdm

from medtasks.data.catalogue import Access
from medtasks.data.privacy import access_of, is_private
from medtasks.errors import MedTasksError, ModelRefused, warn_once
from medtasks.lmms import replace_attribute
from medtasks.model_adapters.any_model import path_of
from medtasks.net import servers
from medtasks.runs.redaction import redact_log, redact_record

if TYPE_CHECKING:
    from loguru import Record

TRUSTED = "MEDTASKS_TRUSTED_MODEL"
"""Environment variable that names the server, or the model class, that may see credentialed text."""
LOCAL_MODELS = frozenset(
    (  # noqa: SIM905 - a list would take a line for each
        "dummy from_log gemma3 glm4v huggingface idefics2 instructblip internvl internvl2 internvl3 internvl3_5 "
        "internvl_hf llama_vision llava llava_hf llava_onevision llava_onevision1_5 minicpm_v mistral3_vl phi3v "
        "phi4_multimodal qwen2_5_vl qwen2_vl qwen3_5 qwen3_vl qwen_vl sglang vllm vllm_generate"
    ).split()
)
"""Files of lmms-eval's models that answer in their own process; tests search their source for anything that sends.

Those that allow a checkpoint's code, see :func:`allows_checkpoint_code`, need the user's word all the same.
"""
LM_EVAL_LOCAL = frozenset(
    f"lm_eval.models.{name}"
    for name in ("huggingface", "hf_vlms", "vllm_causallms", "vllm_vlms")
)
"""Modules of lm-eval's models that answer in their own process."""
CLIENT_MODELS = frozenset({"openai", "async_openai"})
"""Files of lmms-eval's models that send questions only with the openai client in their attribute ``client``."""

QUESTION_FILES = "class:medtasks.questions"
"""Value of that variable that permits files with credentialed questions, for any model that the user asks."""

_OURS = "medtasks."
# In the source of a model's module: it allows a checkpoint's code by default or always; and modules that it builds on.
_ALLOWS_CODE = re.compile(r"(?<![`\w])trust_remote_code[\"']?(?:: [\w\[\]| ]+)? ?[=:] ?True\b")
_BUILDS_ON = re.compile(r"^from (lmms_eval\.models\.(?:chat|simple)\.\w+) import", re.MULTILINE)
_FORM = "http(s)://host[:port]/path, without user, query and percent sign"
_FIX = "give base_url=http://127.0.0.1:8000/v1 of a server on this machine"
_CLASS = "class:"  # before the dotted name of a model class that the user trusts
# Classes whose ``send`` follows redirects unless an argument forbids it. Newer openai uses httpx2.
_FOLLOWING = (
    ("httpx", "Client", "follow_redirects"),
    ("httpx", "AsyncClient", "follow_redirects"),
    ("httpx2", "Client", "follow_redirects"),
    ("httpx2", "AsyncClient", "follow_redirects"),
    ("requests", "Session", "allow_redirects"),
)
# Methods of the harness's models that ask them.
_ASKING = ("generate_until", "loglikelihood", "generate_until_multi_round")


@dataclass(frozen=True)
class Destination:
    """Destination of a model's questions, possibly unknown."""

    url: str  # ``http(s)://host[:port]/path``; empty for an unknown or malformed address
    source: str = ""  # the argument or variable that named it; empty if none did
    obeys_proxies: bool = True  # whether the model's client uses a proxy from the environment
    runs_code: bool = False  # whether code that comes with a checkpoint may send them anywhere


def refuse_remote_model(lm: object, datasets: Iterable[str]) -> None:
    """Refuse to ask a built model about credentialed datasets if it may send the questions to another machine.

    Its client knows its address better than the command line.

    Args:
        lm: Model of the harness.
        datasets: Names of all datasets that it is asked about.

    Raises:
        ModelRefused: See :func:`check_model`.
    """
    private = credentialed_datasets(datasets)
    if private:
        check_model(_class_name(lm), live_destinations(lm), private)


def _class_name(lm: object) -> str:
    """Return the dotted name of a model's class, or that by which ``--model adapter`` found it."""
    return str(getattr(lm, "named_as", "")) or f"{type(lm).__module__}.{type(lm).__qualname__}"


def credentialed_datasets(datasets: Iterable[str]) -> list[str]:
    """Return the credentialed datasets, including unknown ones and those whose text logs may show.

    Args:
        datasets: Names, also repeated ones.

    Returns:
        Names in alphabetical order.
    """
    return sorted({name for name in datasets if access_of(name) is Access.CREDENTIALED})


def check_model(
    name: str,
    goes_to: Sequence[Destination],
    datasets: Sequence[str],
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Refuse to send text of credentialed datasets with a model.

    ``MEDTASKS_TRUSTED_MODEL`` permits it for users whose data use agreement covers it: for the server with the same
    scheme, host and port, or for one model class with any destination.

    Args:
        name: Dotted name of the model's class.
        goes_to: Destinations of its questions.
        datasets: Names of credentialed datasets.
        environment: Variables, by default those of this process.

    Raises:
        ModelRefused: A destination is remote or unknown and not trusted, or reached through a proxy of the environment.
    """
    if not datasets or environment.get(TRUSTED, "").strip() == _CLASS + name:
        return
    for destination in goes_to:
        cause = refusal(destination, environment)
        if not cause:
            continue
        if not destination.url and not destination.source:
            if_allowed = "your data use agreement allows it wherever it sends"
            if destination.runs_code:
                if_allowed = "you trust that code with these data"
            cause += f"; or, if {if_allowed}, set {TRUSTED}={_CLASS}{name}"
        raise ModelRefused(
            f"text of credentialed data ({', '.join(datasets)}) is not sent with model '{name}' {cause}"
        )


def check_question_files(datasets: Iterable[str]) -> bool:
    """Refuse to write credentialed questions into files for a model elsewhere, unless the user permits it.

    Args:
        datasets: Names of the questions' datasets. ``MEDTASKS_TRUSTED_MODEL`` may hold the permission.

    Returns:
        Whether a dataset is credentialed.

    Raises:
        ModelRefused: A dataset is credentialed, and there is no permission.
    """
    private = credentialed_datasets(datasets)
    if private and os.environ.get(TRUSTED, "").strip() != QUESTION_FILES:
        raise ModelRefused(
            f"questions of credentialed data ({', '.join(private)}) are not written into files, because it is unknown "
            f"which model will see them, and data use agreements forbid most services of others; run a model on this "
            f"machine with 'medtasks run', or, if your agreement covers the model that you will ask, set "
            f"{TRUSTED}={QUESTION_FILES}"
        )
    return bool(private)


def trusted_model(environment: Mapping[str, str]) -> str | None:
    """Return what the user trusts with credentialed text.

    Args:
        environment: Variables, of which ``MEDTASKS_TRUSTED_MODEL`` counts.

    Returns:
        Scheme, host and port of a server, or ``class:`` and a model class, or None if there is neither.

    Raises:
        ModelRefused: The variable holds something else.

    Example:
        >>> trusted_model({TRUSTED: "https://models.hospital.org/v1"})
        'https://models.hospital.org:443'
    """
    text = environment.get(TRUSTED, "").strip()
    if re.fullmatch(rf"{_CLASS}\w+(?:\.\w+)+", text):
        return text
    if text and not ("://" in text and servers.readable(text)):
        raise ModelRefused(
            f"{TRUSTED} names no server, so none is trusted; write it as {_FORM}, for example "
            f"{TRUSTED}=https://api.openai.com"
        )
    return servers.origin(servers.readable(text)) if text else None


def refusal(destination: Destination, environment: Mapping[str, str]) -> str:
    """Return reason and fix for a refused destination.

    Args:
        destination: Destination of a model's questions.
        environment: Variables.

    Returns:
        A text to follow "is not sent", empty for a permitted destination.
    """
    if not destination.url:
        return _refusal_of_unknown(destination)
    origin = servers.origin(destination.url)
    host = servers.host(destination.url)
    to = f"to {origin}"
    fix = _FIX
    if destination.source:
        to += f" ({destination.source})"
    try:
        if not servers.is_loopback(host) and trusted_model(environment) != origin:
            fix += f", or, if your data use agreement allows it, set {TRUSTED}={origin}"
            return f"{to}, which is not this machine; {fix}"
    except ModelRefused as error:
        return f"{to}, which is not this machine; {error}"
    proxy = ""
    if destination.obeys_proxies:
        proxy = _proxy_variable(destination.url, environment)
    if not proxy:
        return ""
    return (
        f"{to} by way of the proxy that {proxy} names; add {host} to NO_PROXY, or unset {proxy}"
    )


def _refusal_of_unknown(destination: Destination) -> str:
    """Return reason and fix for a destination without an address, as :func:`refusal` does."""
    if destination.source:
        return f"because {destination.source} is not {_FORM}; {_FIX}, or one whose address you give in this form"
    reason = "it is unknown where it sends questions"
    if destination.runs_code:
        reason = "it may run code that comes with its checkpoint"
    return f"because {reason}; choose a model that is known to answer on this machine"


def _proxy_variable(url: str, environment: Mapping[str, str]) -> str:
    """Return the variable that names a proxy which could read questions to a server. Empty without a proxy."""
    scheme = url.partition(":")[0]
    host = servers.host(url)
    if scheme != "http" and not servers.is_loopback(host):
        return ""
    # Libraries interpret NO_PROXY differently; an entry counts here if all of them would apply it.
    exempt = environment.get("no_proxy", environment.get("NO_PROXY", ""))
    entries = {entry.strip() for entry in exempt.lower().split(",")}
    if entries & {host, "*"}:
        return ""
    names = (f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    return next((name for name in names if environment.get(name, "").strip()), "")


def planned_destinations(
    class_path: str,
    arguments: Mapping[str, object],
    environment: Mapping[str, str],
) -> list[Destination]:
    """Return a model's destinations as far as ``--model_args`` and variables name them, before it is built.

    Others, such as Azure's own addresses, are left to :func:`live_destinations`.

    Args:
        class_path: Dotted name of the model's class, see :func:`class_path_of`.
        arguments: Its arguments.
        environment: Variables.

    Returns:
        Destinations, none for a model that answers in its own process.
    """
    module = class_path.rpartition(".")[0]
    if module.startswith(_OURS):
        return _destinations(arguments.get("base_url"), obeys_proxies=False)
    file = file_of(module)
    if file in CLIENT_MODELS:
        addresses = {
            "base_url": arguments.get("base_url"),
            "OPENAI_API_BASE": environment.get("OPENAI_API_BASE"),
            "OPENAI_BASE_URL": environment.get("OPENAI_BASE_URL"),
            "": "https://api.openai.com/v1",  # the client's default
        }
        source = next(name for name, address in addresses.items() if address)
        obeys_proxies = str(arguments.get("httpx_trust_env", True)).lower() not in (
            "false",
            "0",
        )
        destinations = _destinations(addresses[source], source, obeys_proxies=obeys_proxies)
        return destinations or [Destination("")]
    return _of_local(module) if file in LOCAL_MODELS else [Destination("")]


def live_destinations(lm: Any) -> list[Destination]:
    """Return the destinations of a built model, none for one that answers in its own process."""
    module = _class_name(lm).rpartition(".")[0]
    if module.startswith(_OURS):
        # Our client of servers takes no proxy for addresses on this machine.
        address = getattr(getattr(lm, "arguments", None), "base_url", "")
        return _destinations(address, obeys_proxies=False)
    file = file_of(module)
    if file in LOCAL_MODELS or module in LM_EVAL_LOCAL:
        return _of_local(module)
    address = ""
    if file in CLIENT_MODELS:
        address = client_address(getattr(lm, "client", None))
    # Its tools may send replies anywhere.
    has_tools = getattr(lm, "mcp_client", None) is not None
    if not address or has_tools:
        return [Destination("")]
    http = getattr(lm.client, "_client", None)  # an httpx client
    return _destinations(address, obeys_proxies=bool(getattr(http, "trust_env", True)))


def _of_local(module: str) -> list[Destination]:
    """Return the destinations of a model in its own process: none, unless it may run code of a checkpoint."""
    return [Destination("", runs_code=True)] if allows_checkpoint_code(module) else []


@functools.cache
def allows_checkpoint_code(module: str) -> bool:
    """Return whether a model's source lets transformers run a checkpoint's code by default or always.

    Args:
        module: Dotted name of the model's module.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.origin:
        return False
    source = Path(spec.origin).read_text(encoding="utf-8")
    if _ALLOWS_CODE.search(source):
        return True
    return any(map(allows_checkpoint_code, _BUILDS_ON.findall(source)))


def client_address(client: object) -> str:
    """Return the address of an openai client, which may hold secrets, and an empty text for any other client."""
    import openai

    return (
        str(client.base_url) if isinstance(client, openai.OpenAI | openai.AsyncOpenAI) else ""
    )


def _destinations(
    addresses: object,
    source: str = "base_url",
    *,
    obeys_proxies: bool,
) -> list[Destination]:
    """Return the destinations in an argument, which may hold several addresses between semicolons."""
    texts = [text.strip() for text in str(addresses or "").split(";")]
    return [
        Destination(servers.readable(text), source, obeys_proxies) for text in texts if text
    ]


def class_path_of(
    model: str,
    arguments: Mapping[str, object] | None = None,
    *,
    force_simple: bool = False,
) -> str:
    """Return the dotted name of a model's class, empty if it is unknown.

    Args:
        model: Name or alias in the harness.
        arguments: ``--model_args``, by which ``adapter`` finds its class.
        force_simple: Whether the harness is told to take the simple model of two.
    """
    # A plug-in that cannot be imported is reported by the harness.
    with contextlib.suppress(Exception):
        from lmms_eval.models import MODEL_REGISTRY_V2

        name = str(MODEL_REGISTRY_V2.resolve(model, force_simple).class_path)
        return path_of(name, arguments or {}).replace(":", ".") or name
    return ""


def model_names() -> list[str]:
    """Return the names of the harness's models and ours."""
    from lmms_eval.models import MODEL_REGISTRY_V2  # in a tenth of a second

    return list(MODEL_REGISTRY_V2.list_model_names())


def file_of(module: str) -> str:
    """Return the file name of one of lmms-eval's models, empty for other modules.

    Example:
        >>> file_of("lmms_eval.models.simple.llava_hf")
        'llava_hf'
    """
    match = re.fullmatch(r"lmms_eval\.models\.(?:chat|simple)\.(\w+)", module)
    return match[1] if match else ""


# ---- while a model is asked ----


@contextlib.contextmanager
def private_calls(lm: Any, datasets: Iterable[str]) -> Iterator[None]:
    """Guard an evaluation if a dataset is credentialed: no redirects, and no text in logs and errors.

    ``MEDTASKS_LOG_TEXT`` lets text be shown, not redirected.

    Args:
        lm: Model of the harness.
        datasets: Names of all datasets that it is asked about.
    """
    guarded = credentialed_datasets(datasets)
    silent = any(map(is_private, guarded))

    def guarded_call(call: Callable[[Any], Any], requests: Any) -> Any:
        """Ask a model without redirects and, if text is private, in silence."""
        with _without_redirects(), _silence() if silent else contextlib.nullcontext():
            return call(requests)

    with contextlib.ExitStack() as stack:
        for name in _ASKING if guarded else ():
            call = getattr(lm, name, None)
            if callable(call):
                call = functools.partial(guarded_call, call)
                stack.enter_context(replace_attribute(lm, name, call))
        try:
            yield
        except BaseException as error:
            if not silent:
                raise
            raise _without_text(error) from None


def _without_text(error: BaseException) -> BaseException:
    """Return an error of the same kind without text. A chained traceback would show the text that led to the error."""
    if isinstance(error, MedTasksError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt()
    if isinstance(error, SystemExit):
        return SystemExit(1 if isinstance(error.code, str) else error.code)
    location = traceback.extract_tb(error.__traceback__)[-1]
    cause = ""
    if isinstance(error, OSError) and error.errno:
        cause = f" ({os.strerror(error.errno)})"
    return RuntimeError(
        f"{type(error).__name__}{cause} at {Path(location.filename).name}:{location.lineno} in "
        f"{location.name}; its message is withheld, as it may repeat credentialed text"
    ).with_traceback(error.__traceback__)


@contextlib.contextmanager
def _without_redirects() -> Iterator[None]:
    """Make a redirect an error of the client: it would carry the request to an unchecked address."""

    def not_following(
        send: Callable[..., Any],
        argument: str,
    ) -> Callable[..., Any]:
        """Return a client's ``send`` with the argument that forbids redirects."""

        def send_directly(self: Any, request: Any, **options: Any) -> Any:
            return send(self, request, **{**options, argument: False})

        return functools.wraps(send)(send_directly)

    with contextlib.ExitStack() as stack:
        for package, client, argument in _FOLLOWING:
            with contextlib.suppress(ImportError):
                owner = getattr(importlib.import_module(package), client)
                stack.enter_context(
                    replace_attribute(owner, "send", not_following(owner.send, argument))
                )
        yield


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Show only progress bars and our own log within the block."""

    def redact(record: "Record") -> None:
        """Redact a line of the log, and withhold those of other packages."""
        redact_record(record)
        if not (record["name"] or "").startswith(_OURS):
            record["message"] = "message withheld"
            record["exception"] = None
            record["extra"] = {}

    warn_once(
        "what the model prints and logs is withheld: it may repeat credentialed text", "INFO"
    )
    disabled = logging.root.manager.disable
    bars = functools.partialmethod(tqdm.__init__, file=sys.stderr)
    try:
        logger.configure(patcher=redact)
        logging.disable(sys.maxsize)
        with (
            replace_attribute(tqdm, "__init__", bars),
            open(os.devnull, "w") as sink,
            contextlib.redirect_stdout(sink),
            contextlib.redirect_stderr(sink),
        ):
            yield
    finally:
        logging.disable(disabled)
        redact_log()
