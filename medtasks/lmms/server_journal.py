"""Journal of a server's answers to one of the harness's own models (``medtasks run --journal``).

The models of lmms-eval 0.7.3 give nothing back before the last request is answered, so their client is watched: each
answer is on the disk before the model gets it, and a later run asks only for missing ones.
"""

import contextlib
import inspect
import itertools
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from loguru import logger
from pydantic import BaseModel

from medtasks.errors import MedTasksError
from medtasks.lmms import replaced
from medtasks.lmms.model_failures import EMPTY_AFTER_ERRORS, IS_COPY, chat_completions, failure_of, replies_module
from medtasks.lmms.remote_models import class_path_of, client_address, file_of
from medtasks.net.journal import AsyncJournal, Entry, Journal, digest_of, journal_folder
from medtasks.net.servers import build_of, origin, proven_build
from medtasks.runs.harness_options import HarnessOptions
from medtasks.runs.run_manifest import Notice, refuse, warn
from medtasks.version import __version__

JOURNAL_VARIABLE = "MEDTASKS_JOURNAL"
"""Environment variable that makes the harness's process keep a journal: ``true``, or its folder."""

CHAT_CLIENTS = frozenset({"async_openai", "gpt4o_audio", "gpt4v", "litellm", "openai", "srt_api"})
"""Files of lmms-eval's models that ask by ``chat.completions.create`` of an openai client in their ``client``."""

_OURS = "medtasks."
_SUPPORTED = f"the harness's models that ask a server by an OpenAI client ({', '.join(sorted(CHAT_CLIENTS))})"


def journal_notices(options: HarnessOptions) -> Iterator[Notice]:
    """Yield the problems of a journal that the model's name shows."""
    name = options.text("model")
    module = class_path_of(name, force_simple=options.flag("force_simple")).rpartition(".")[0]
    if module.startswith(_OURS):
        yield warn(f"--journal adds nothing: model '{name}' keeps a journal by itself")
    elif (file := file_of(module)) and file not in CHAT_CLIENTS:
        yield refuse(
            f"--journal is for {_SUPPORTED}, and model '{name}' gives nothing back before its last reply; leave it out"
        )


@contextlib.contextmanager
def journaled(lm: Any) -> Iterator[None]:
    """Keep and replay a server's answers to a model within the block, if :data:`JOURNAL_VARIABLE` asks for it.

    Raises MedTasksError if the server cannot be reached.
    """
    module = file_of(type(lm).__module__) or type(lm).__name__
    folder = journal_folder(os.environ.get(JOURNAL_VARIABLE) or "false", module)
    completions = None if folder is None else chat_completions(lm)
    if folder is None or completions is None:
        if folder is not None and not type(lm).__module__.startswith(_OURS):
            logger.warning("no journal is kept, which is for {}; a killed run starts anew", _SUPPORTED)
        yield
        return
    name, versions = str(getattr(lm, "model_version", "")), (metadata.version("lmms_eval"), __version__)
    served, build = _served(lm.client, name)
    # The address counts unless the server proves its weights.
    address = client_address(lm.client)
    if served and all(proven_build(build, root) for _, root, _ in served):
        address = ""
    journal = Journal(folder, digest_of(build, address, name, served, versions), lm.rank, lm.world_size)
    keeps_empty = replies_module(lm) not in EMPTY_AFTER_ERRORS

    def is_reply(completion: Any) -> bool:
        with contextlib.suppress(ValueError):
            if isinstance(completion, BaseModel) and not failure_of(completion):
                (choice,) = completion.choices  # type: ignore[attr-defined]
                return keeps_empty or choice.finish_reason == "length" or bool(choice.message.content.strip())
        return False

    answers = ServerAnswers(AsyncJournal(journal), is_reply)
    try:
        with replaced(completions, "create", answers.before(completions.create)):
            yield
    finally:
        if answers.replayed:
            logger.info("{} of {} answers come from the journal {}", answers.replayed, answers.total, journal.path)


def _served(client: Any, name: str) -> tuple[list[Any], str | None]:
    """Return a server's description of the model that it serves under a name, and vLLM's build."""
    import openai

    if not isinstance(client, openai.OpenAI | openai.AsyncOpenAI):
        return [], None
    if isinstance(client, openai.AsyncOpenAI):  # its connections would belong to a loop
        client = openai.OpenAI(api_key=client.api_key, base_url=client.base_url)
    client = client.with_options(timeout=10)  # seconds
    try:
        models = [model for model in client.models.list().data if model.id == name]
        facts = [(model.owned_by, getattr(model, "root", ""), getattr(model, "parent", "")) for model in models]
    except openai.APIConnectionError as error:
        raise MedTasksError(
            f"the server at {origin(client_address(client))} does not answer ({type(error).__name__}), so --journal "
            f"cannot tell which model it serves; start it and give the same command again"
        ) from error
    except (openai.OpenAIError, AttributeError, TypeError, ValueError):  # it has no such list
        return [], None
    build = None
    if any(model.owned_by == "vllm" for model in models):
        with contextlib.suppress(openai.OpenAIError, AttributeError, TypeError, ValueError):
            turn: Any = {"role": "user", "content": "."}
            answer = client.chat.completions.create(model=name, messages=[turn], max_tokens=1)
            build = build_of(answer.system_fingerprint)
    return facts, build


@dataclass
class _Request:
    key: str
    answer: Any
    is_kept: bool  # whether the answer is in the journal or about to be


class ServerAnswers:
    """Replays answers to equal requests, and writes new ones that hold a reply to the disk before handing them on.

    Requests are equal if messages with their images, model and sampling are. The n-th such request of a run, under way
    or answered, gets the n-th answer; a failed one frees its number. Samples with equal requests may swap answers:
    these are exchangeable.
    """

    def __init__(self, journal: AsyncJournal, is_reply: Callable[[Any], bool]) -> None:
        self.replayed = self.total = 0
        self._journal = journal
        self._is_reply = is_reply
        self._lock = threading.Lock()
        self._taken: defaultdict[str, set[int]] = defaultdict(set)

    def before(self, create: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``chat.completions.create``, blocking or not, that asks only for answers of no earlier run."""

        async def later(*args: Any, **kwargs: Any) -> Any:
            with self._request(args, kwargs) as request:
                if request.answer is None:
                    await self._journal.add(self._entries(request, await create(*args, **kwargs)))
            return request.answer

        def now(*args: Any, **kwargs: Any) -> Any:
            with self._request(args, kwargs) as request:
                if request.answer is None:
                    self._journal.submit(self._entries(request, create(*args, **kwargs))).result()
            return request.answer

        return later if inspect.iscoroutinefunction(inspect.unwrap(create)) else now

    @contextlib.contextmanager
    def _request(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[_Request]:
        from openai.types.chat import ChatCompletion

        changing_nothing = ("timeout", "extra_headers")
        digest = digest_of(args, {name: value for name, value in kwargs.items() if name not in changing_nothing})
        with self._lock:
            taken = self._taken[digest]
            number = next(number for number in itertools.count() if number not in taken)
            taken.add(number)
        key = f"{digest}.{number}"
        entry = self._journal.replay(key)
        request = _Request(key, entry and ChatCompletion.construct(**entry.answer), entry is not None)
        if entry is not None and self._journal.journal.is_copy(entry):
            object.__setattr__(request.answer, IS_COPY, True)  # no field of the answer
        try:
            yield request
        finally:
            with self._lock:
                self.total += request.is_kept
                self.replayed += entry is not None
                if not request.is_kept:
                    taken.discard(number)

    def _entries(self, request: _Request, completion: Any) -> dict[str, Entry]:
        request.answer, request.is_kept = completion, self._is_reply(completion)
        if not request.is_kept:
            return {}
        answer = completion.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
        return {request.key: Entry(answer, tokens=0)}
