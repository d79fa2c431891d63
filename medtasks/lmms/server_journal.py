"""What a server answers one of the harness's own models, on disk as soon as it is there (``medtasks run --journal``).

The models of lmms-eval 0.7.3 give nothing back before the last request is answered, so their client is watched: what it
was once answered it is answered again, and only the rest is asked.
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

from medtasks import __version__
from medtasks.errors import MedTasksError
from medtasks.lmms.model_failures import EMPTY_AFTER_ERRORS, chat_completions, failure_of, replaced, replies_module
from medtasks.lmms.remote_models import class_path_of, client_address, file_of
from medtasks.net.endpoints import origin
from medtasks.net.journal import AsyncJournal, Entry, Journal, digest_of, journal_folder
from medtasks.net.servers import build_of
from medtasks.runs.harness_options import HarnessOptions
from medtasks.runs.run_manifest import Notice, refuse, warn

JOURNAL_VARIABLE = "MEDTASKS_JOURNAL"
"""Environment variable that has the harness's process keep a journal: ``true``, or its folder."""

CHAT_CLIENTS = frozenset({"async_openai", "gpt4o_audio", "gpt4v", "litellm", "openai", "srt_api"})
"""Files of lmms-eval's models that ask by ``chat.completions.create`` of an openai client in their ``client``."""

_OURS = "medtasks."
_NOT_ASKED = ("timeout", "extra_headers")  # how a request is sent, not what is asked
_PATIENCE = 10  # seconds for the server to say what it serves
_WHICH = f"the harness's models that ask a server by an OpenAI client ({', '.join(sorted(CHAT_CLIENTS))})"


def journal_notices(options: HarnessOptions) -> Iterator[Notice]:
    """Yield what a user has to know who asks for a journal, as far as the model's name tells it."""
    name = options.text("model")
    module = class_path_of(name, force_simple=options.flag("force_simple")).rpartition(".")[0]
    if module.startswith(_OURS):
        yield warn(f"--journal adds nothing: model '{name}' keeps a journal by itself")
    elif (file := file_of(module)) and file not in CHAT_CLIENTS:
        yield refuse(
            f"--journal is for {_WHICH}, and model '{name}' gives nothing back before its last reply; leave it out"
        )


@contextlib.contextmanager
def journaled(lm: Any) -> Iterator[None]:
    """Keep and replay what a model is answered by its server within the block, if :data:`JOURNAL_VARIABLE` asks for it.

    Raises MedTasksError if the server cannot be reached.
    """
    module = file_of(type(lm).__module__) or type(lm).__name__
    folder = journal_folder(os.environ.get(JOURNAL_VARIABLE) or "false", module)
    if folder is None:
        yield
        return
    completions = chat_completions(lm)
    if completions is None:
        if not type(lm).__module__.startswith(_OURS):
            logger.warning("no journal is kept, which is for {}; a killed run starts anew", _WHICH)
        yield
        return
    journal = Journal(folder, _fingerprint(lm), lm.rank, lm.world_size)
    keeps_empty = replies_module(lm) not in EMPTY_AFTER_ERRORS
    answers = ServerAnswers(AsyncJournal(journal), lambda completion: _is_reply(completion, keeps_empty))
    try:
        with replaced(completions, "create", answers.before(completions.create)):
            yield
    finally:
        if answers.replayed:
            logger.info("{} of {} answers come from the journal {}", answers.replayed, answers.total, journal.path)


def _fingerprint(lm: Any) -> str:
    """Return a digest of what decides about an answer beside the request; a build makes the address no matter."""
    name, versions = str(getattr(lm, "model_version", "")), (metadata.version("lmms_eval"), __version__)
    served, build = _served(lm.client, name)
    return digest_of(build or client_address(lm.client), name, served, versions)


def _served(client: Any, name: str) -> tuple[list[Any], str | None]:
    """Return what a server says of the model it serves under a name, such as which weights, and vLLM's build."""
    import openai

    if not isinstance(client, openai.OpenAI | openai.AsyncOpenAI):
        return [], None
    if isinstance(client, openai.AsyncOpenAI):  # whose connections would belong to a loop
        client = openai.OpenAI(api_key=client.api_key, base_url=client.base_url)
    client = client.with_options(timeout=_PATIENCE)
    try:
        models = [one for one in client.models.list().data if one.id == name]
        told = [(one.owned_by, getattr(one, "root", ""), getattr(one, "parent", "")) for one in models]
    except openai.APIConnectionError as error:
        raise MedTasksError(
            f"the server at {origin(client_address(client))} does not answer ({type(error).__name__}), so --journal "
            f"cannot tell which model it serves; start it and give the same command again"
        ) from error
    except (openai.OpenAIError, AttributeError, TypeError, ValueError):  # it has no such list
        return [], None
    build = None
    if any(one.owned_by == "vllm" for one in models):
        with contextlib.suppress(openai.OpenAIError, AttributeError, TypeError, ValueError):
            turn: Any = {"role": "user", "content": "."}
            answer = client.chat.completions.create(model=name, messages=[turn], max_tokens=1)
            build = build_of(answer.system_fingerprint)
    return told, build


def _is_reply(completion: Any, keeps_empty: bool) -> bool:
    with contextlib.suppress(ValueError):
        if isinstance(completion, BaseModel) and not failure_of(completion):
            (choice,) = completion.choices  # type: ignore[attr-defined]
            return keeps_empty or choice.finish_reason == "length" or bool(choice.message.content.strip())
    return False


@dataclass
class _Turn:
    """One request: its key, its answer, and whether that is on the disk or on its way there."""

    key: str
    answer: Any
    is_kept: bool


class ServerAnswers:
    """Replays answers to equal requests, and keeps new ones that hold a reply, on the disk before they are handed on.

    Requests are equal if what they ask is: messages with their images, model, sampling. The n-th such request that is
    under way or answered in one run stands for the n-th answer; one that failed gives its number back to whoever asks
    again. Which sample asked first is not known and need not be: answers to the same question are exchangeable.
    """

    def __init__(self, journal: AsyncJournal, is_reply: Callable[[Any], bool]) -> None:
        self.replayed = self.total = 0
        self._journal = journal
        self._is_reply = is_reply
        self._lock = threading.Lock()
        self._taken: defaultdict[str, set[int]] = defaultdict(set)

    def before(self, create: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``chat.completions.create``, blocking or not, that asks only for what no earlier run was answered."""

        async def later(*args: Any, **kwargs: Any) -> Any:
            with self._turn(args, kwargs) as turn:
                if turn.answer is None:
                    await self._journal.add(self._new(turn, await create(*args, **kwargs)))
            return turn.answer

        def now(*args: Any, **kwargs: Any) -> Any:
            with self._turn(args, kwargs) as turn:
                if turn.answer is None:
                    self._journal.submit(self._new(turn, create(*args, **kwargs))).result()
            return turn.answer

        return later if inspect.iscoroutinefunction(inspect.unwrap(create)) else now

    @contextlib.contextmanager
    def _turn(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[_Turn]:
        from openai.types.chat import ChatCompletion

        digest = digest_of(args, {name: value for name, value in kwargs.items() if name not in _NOT_ASKED})
        with self._lock:
            taken = self._taken[digest]
            number = next(number for number in itertools.count() if number not in taken)
            taken.add(number)
        key = f"{digest}.{number}"
        found = self._journal.replay(key)
        turn = _Turn(key, found and ChatCompletion.construct(**found.answer), found is not None)
        try:
            yield turn
        finally:
            with self._lock:
                self.total += turn.is_kept
                self.replayed += found is not None
                if not turn.is_kept:
                    taken.discard(number)

    def _new(self, turn: _Turn, completion: Any) -> dict[str, Entry]:
        turn.answer, turn.is_kept = completion, self._is_reply(completion)
        if not turn.is_kept:
            return {}
        sent = completion.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
        return {turn.key: Entry(sent, tokens=0)}
