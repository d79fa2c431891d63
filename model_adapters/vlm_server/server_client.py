"""Arguments of ``vlm_server``, and requests to its servers: journalled, and stopped when all servers are gone.

The adapter and the option scorer ask through it. No message may quote a server's words unless the task allows it,
because servers repeat prompts, and no key may be stored or quoted.
"""

import asyncio
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

from openai import APIStatusError, OpenAIError

from medtasks.errors import AdapterArgumentError, MedTasksError
from medtasks.net.chat_client import CHAT, AdaptiveLimit, ChatClient
from medtasks.net.journal import AsyncJournal, Entry, digest_of
from medtasks.net.servers import RemoteTrouble, Server, build_of, is_url, trouble_of, unreadable
from medtasks.prompts.messages import data_url
from medtasks.runs.redaction import redact

from ..base.arguments import ChatArguments, argument
from ..base.batching import BoundedCache
from .messages import BadAnswer, JsonObject, Refused, ServedPrompt, ServerAnswer

API_KEY = "MEDTASKS_SERVER_API_KEY"
"""Environment variable with the servers' key, which is stored nowhere else."""
AUTOMATIC, PROMPT_LOGPROBS, TOKEN_IDS = "auto", "prompt_logprobs", "token_ids"
_REFUSALS = {
    401: f"set {API_KEY}",
    403: f"check {API_KEY} and that it may use this model",
    404: "check model= and base_url= in --model_args",
}
_BACKOFF_S = 1.0
_IN_A_ROW = 5  # failed requests in a row, after which a server counts as gone
_QUOTED = 200  # characters
_READ = 10_000  # characters, of which secrets are redacted before the message is cut
_CACHED_BYTES = 256 * 2**20  # of images as data URLs
_STOPPING = (401, 403)
# Routes that not every server has. Some servers without them answer with an error and status 200.
_MAY_LACK = {"/tokenize", "/detokenize"}
_TOO_LONG = re.compile(
    r"maximum context length|max_tokens must be at least 1, got 0", re.IGNORECASE
)
_TOO_MANY_IMAGES = re.compile(r"At most (\d{1,6}) \w{1,10}\(s\) may be provided")
_BAD_IMAGE = re.compile(
    r"Failed to load image|Non-base64 digit|cannot identify image", re.IGNORECASE
)

REPLAYED: ContextVar[list[Entry]] = ContextVar("REPLAYED")
"""Answers about samples that this task of the event loop got from the journal."""

Read = Callable[[ServerAnswer], JsonObject]
"""Turns an answer into the record for the journal. Raises a BadAnswer if it is no valid answer to the request."""


@dataclass(frozen=True)
class VlmServerArguments(ChatArguments):
    """Arguments of ``vlm_server``, see ``model_adapters/README.md``."""

    base_url: str = argument("")  # one address, or several with ``;`` between them; required
    model: str = argument("")  # as the server calls it; by default the only one it has
    concurrency: int = argument(64, least=1, most=4096)  # most requests under way at once
    # Seconds without a byte before a try is given up
    timeout: float = argument(600.0, least=0.001)
    attempts: int = argument(6, least=1)  # most tries of a request after passing errors
    # JSON, fields of every chat request; null leaves one of ours out
    extra_body: dict[str, Any] | None = argument(None)  # noqa: RUF009  # a field, not a shared value
    likelihood: str = argument(AUTOMATIC, choices=(AUTOMATIC, PROMPT_LOGPROBS, TOKEN_IDS))
    image_attention: str | None = argument(None, choices=("bidirectional", "causal"))
    token_counts: bool = argument(True)

    @property
    def servers(self) -> tuple[Server, ...]:
        """The servers, with the key of the environment."""
        urls = [url.strip().rstrip("/") for url in self.base_url.split(";") if url.strip()]
        key = os.environ.get(API_KEY, "").strip()
        fix = "check base_url= in --model_args"
        servers = []
        for url in dict.fromkeys(urls):
            servers.append(Server(url, "server", self.timeout, fix, _REFUSALS, key))
        return tuple(servers)


def refuse_api_key(arguments: Mapping[str, object]) -> None:
    """Refuse a key among the arguments, because manifests and process lists show them.

    Args:
        arguments: Arguments of the model, as the user gave them.

    Raises:
        AdapterArgumentError: There is a key.
    """
    if "api_key" in arguments:
        raise AdapterArgumentError(
            f"vlm_server takes no api_key; set the environment variable {API_KEY}."
        )


def check_arguments(arguments: VlmServerArguments) -> None:
    """Check addresses and key, without a request.

    Raises:
        AdapterArgumentError: An address is missing or none, or the key does not fit into a header.
    """
    if not arguments.servers:
        raise AdapterArgumentError(
            "vlm_server: argument 'base_url' is missing; give for example base_url=http://127.0.0.1:8000/v1."
        )
    for server in arguments.servers:
        if not is_url(server.base_url):
            raise AdapterArgumentError(
                "vlm_server: base_url must be http(s)://host[:port]/path without user and query, several of them with "
                "';' between them."
            )
    key = arguments.servers[0].api_key
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise AdapterArgumentError(
            f"{API_KEY} contains a character that no HTTP header may hold."
        )


def _quote(words: str, key: str) -> str:
    """Return the beginning of a server's words on one line, without secrets, or nothing of a web page."""
    plain = words.replace(key, "***") if key else words
    plain = "".join(sign if sign.isprintable() else " " for sign in plain[:_READ])
    if plain.lstrip().startswith("<"):
        return ""
    return " ".join(redact(plain).split())[:_QUOTED]


def _refusal(
    name: str,
    status: int,
    words: str,
    quoted: str,
) -> BadAnswer:
    """Return the failure of a request that a server refuses."""
    label = f"HTTP {status}: {quoted}" if quoted else f"HTTP {status}"
    if _TOO_LONG.search(words):
        return BadAnswer(
            f"{name} has no room for the prompt ({label}); serve it with a larger --max-model-len"
        )
    if limit := _TOO_MANY_IMAGES.search(words):
        return BadAnswer(
            f"{name} takes fewer images per prompt, at most {limit[1]} ({label}); serve it with a larger "
            f"--limit-mm-per-prompt"
        )
    if status == 413:
        return BadAnswer(f"{name} takes no request of this size ({label})")
    if _BAD_IMAGE.search(words):
        return BadAnswer(f"{name} cannot read an image ({label})")
    return Refused(f"{name} refused the request ({label})")


def _concerns_request(error: APIStatusError, words: str) -> bool:
    """Return whether an error is about one request, unlike those about the server, its model or its load."""
    status = error.status_code
    if status == 404:
        is_about_model = error.param == "model" or error.code == "model_not_found"
        return not is_about_model and "model" not in words.lower()
    return 400 <= status < 500 and status not in (*_STOPPING, 408, 429)


class ServerGone(MedTasksError):
    """No request can be answered any more: the run stops."""


class ServerPool:
    """Servers of the same model.

    Requests with the same images go to the same server, which has their prefix cached.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        concurrency: int,
        attempts: int,
    ) -> None:
        limit = AdaptiveLimit(concurrency)
        self.servers = []
        for server in servers:
            self.servers.append(
                ChatClient(
                    server,
                    limit,
                    attempts,
                    backoff_s=_BACKOFF_S,
                    patience=_IN_A_ROW,
                    trouble=self._translate_error,
                )
            )
        # The servers' build and configuration, after the first answer.
        self.build: str | None = None
        self.open_journal: Callable[[str | None], AsyncJournal] | None = None  # from the build
        self.journal: AsyncJournal | None = None
        self._has_build = False
        self._first_answer = asyncio.Lock()
        self.replayed = 0
        # Servers and paths that never answered
        self._lacking: set[tuple[ChatClient, str]] = set()
        # Whether messages may quote a server's error, which can repeat the prompt.
        self.quotes = False
        self._encoding = BoundedCache[asyncio.Task[str]](_CACHED_BYTES)

    async def chat(
        self,
        prompt: ServedPrompt,
        fields: Mapping[str, Any],
        read: Read,
        continued: str | None = None,
    ) -> JsonObject:
        """Ask for a chat completion of a conversation.

        Args:
            prompt: System turn, user turn and images.
            fields: Fields of the request besides ``messages``.
            read: Turns the answer into the record.
            continued: Text of an open assistant turn; ``None`` for none.

        Raises:
            BadAnswer: This request cannot be answered.
            ServerGone: No request can.
        """
        return await self.ask(
            CHAT,
            prompt,
            lambda urls: {**fields, "messages": prompt.messages(urls, continued)},
            read,
        )

    async def ask(
        self,
        path: str,
        prompt: ServedPrompt | None,
        body: Callable[[Sequence[str]], JsonObject],
        read: Read,
    ) -> JsonObject:
        """Return the record of an answer, from the journal if an earlier run has it.

        Args:
            path: Route below the address, or from the root if it begins with a slash.
            prompt: Conversation with its images; ``None`` for a request without one.
            body: Builds the request from one text per image: its URL, or for the journal its digest.
            read: Turns the answer into the record.

        Raises:
            BadAnswer: This request cannot be answered.
            ServerGone: No request can.
        """
        if self.open_journal is not None and not self._has_build:
            async with self._first_answer:
                if not self._has_build:
                    return await self._ask_servers(path, prompt, body, read)
        return await self._ask_servers(path, prompt, body, read)

    async def _ask_servers(
        self,
        path: str,
        prompt: ServedPrompt | None,
        body: Callable[[Sequence[str]], JsonObject],
        read: Read,
    ) -> JsonObject:
        """Ask one server after the other until one answers. For arguments see :meth:`ask`.

        Raises:
            Refused: The servers have no such route.
            BadAnswer: This request cannot be answered.
            ServerGone: No request can, because no server is left.
        """
        request = path, body(() if prompt is None else prompt.digests)
        earlier = self._replay(request)
        if earlier is not None:
            return earlier
        urls = []
        subject = digest_of(None)
        if prompt is not None:
            urls = await self._urls(prompt)
            subject = digest_of(prompt.digests or prompt.texts)

        cause = self.servers[0].gone or ""
        for server in self._reachable(subject):
            if (server, path) in self._lacking:
                raise Refused(f"{server.server_at(path).name} gives no answers")
            take = partial(self._keep_answer, server, request, read)
            try:
                return await server.post(path, body(urls), take)
            except RemoteTrouble as trouble:
                self._check_failure(server, path, subject, trouble)
                cause = server.gone or trouble.cause
        if not any(self._reachable(subject)):
            raise ServerGone(cause)
        raise BadAnswer(cause)

    def _reachable(self, subject: str) -> Iterator[ChatClient]:
        """Yield the servers that are not gone: the one that has the subject's images cached, and those in its place."""
        ranked = sorted(
            self.servers,
            key=lambda server: digest_of(subject, server.server.base_url),
            reverse=True,
        )
        for server in ranked:
            if server.gone is None:
                yield server

    async def _keep_answer(
        self,
        server: ChatClient,
        request: tuple[str, JsonObject],
        read: Read,
        answer: dict[str, Any],
    ) -> JsonObject:
        """Read an answer and keep its record.

        The request stays under way until its answer is on disk: a kill costs at most ``concurrency`` answers.

        Raises:
            BadAnswer: The answer is no valid one to the request.
            ServerGone: Another build than that of the first answer gave it.
        """
        if request[0] == CHAT:
            # The first answer decides on the build, and opens its journal. Later ones have to report it too.
            build = build_of(answer.get("system_fingerprint"))
            if not self._has_build:
                self._has_build = True
                self.build = build
                if self.open_journal is not None:
                    self.journal = self.open_journal(build)
            elif build != self.build:
                raise ServerGone(
                    f"{server.server.name} is another build or configuration ({build}) than the one that answered "
                    f"first ({self.build}), and its answers may differ"
                )
        earlier = self._replay(request)  # from the journal that this answer opened
        if earlier is not None:
            return earlier
        record = read(answer)
        if self.journal is not None:
            await self.journal.add({digest_of(*request): Entry(record, 0)})
        return record

    def _check_failure(
        self,
        server: ChatClient,
        path: str,
        subject: str,
        trouble: RemoteTrouble,
    ) -> None:
        """Decide whether a failure is the server's, and count it there.

        Raises:
            Refused: The server has no such route, whatever the request.
        """
        if path in _MAY_LACK - server.answered_paths and trouble.reached and trouble.retry:
            self._lacking.add((server, path))
            raise Refused(trouble.cause) from None
        if not trouble.retry:
            if trouble.outage or trouble.wait_s is not None:
                server.give_up(trouble.cause)
            return
        # HTTP 500 of a server that has answered is the request's fault; gateways report one that is gone by 502 to 504.
        # Requests on one subject count once, so that one question cannot make a server count as gone.
        is_request_to_blame = trouble.status == 500 and CHAT in server.answered_paths
        if not is_request_to_blame:
            server.lose(trouble.cause, subject)

    async def _urls(self, prompt: ServedPrompt) -> list[str]:
        """Return images as data URLs. The last ones are cached, as the options of a question have the same images."""
        urls = []
        for image, digest in zip(prompt.images, prompt.digests, strict=True):
            task = self._encoding.get(digest)
            if task is None:
                task = asyncio.create_task(asyncio.to_thread(data_url, image))
                size = 4 * image.width * image.height  # base64 of RGB, if not compressed
                self._encoding.keep(digest, task, size)
            urls.append(await asyncio.shield(task))
        return urls

    def _replay(self, request: tuple[str, JsonObject]) -> JsonObject | None:
        """Return the answer of an earlier run to a request, ``None`` if it has none.

        Args:
            request: Path, and body with digests in place of images.
        """
        entry = None if self.journal is None else self.journal.replay(digest_of(*request))
        if entry is None:
            return None
        self.replayed += 1
        if request[0] not in _MAY_LACK:  # routes of the tokenizer
            REPLAYED.get([]).append(entry)
        return dict(entry.answer)

    async def get(self, server: ChatClient, path: str) -> Any:
        """Return the JSON at an address of one server.

        Args:
            server: One of ``servers``.
            path: Route below the address, or from the root if it begins with a slash.

        Returns:
            ``None`` if the server has nothing there.

        Raises:
            ServerGone: The server does not answer, or not with JSON.
        """
        try:
            return await server.get(path)
        except RemoteTrouble as trouble:
            # A gateway closes what it lacks.
            is_closed = path.startswith("/") and trouble.status in _STOPPING
            if is_closed or trouble.status in (404, 405, 501):
                return None
            raise ServerGone(trouble.cause) from None
        except ValueError:
            raise ServerGone(unreadable(server.server_at(path)).cause) from None

    async def models(self, server: ChatClient) -> dict[str, Mapping[str, Any]] | None:
        """Return the models that a server lists, by name.

        Args:
            server: One of ``servers``.

        Returns:
            ``None`` without a list.

        Raises:
            MedTasksError: The address is no server of models.
        """
        listed = await self.get(server, "models")
        if listed is None:
            return None
        cards = listed.get("data", []) if isinstance(listed, dict) else None
        if not isinstance(cards, list):
            raise MedTasksError(
                f"the address {server.server.base_url} answers, but is no server of models; "
                f"{server.server.fix_address}, which often ends with /v1"
            )
        return {
            str(card["id"]): card for card in cards if isinstance(card, dict) and card.get("id")
        }

    async def close(self) -> None:
        """Close the connections."""
        for server in self.servers:
            await server.close()

    def _translate_error(self, error: Exception, server: Server, path: str) -> Exception:
        """Turn an error into an exception of ours.

        The server's words select the message, and may be quoted in it.

        Returns:
            A :class:`BadAnswer` if the sample or the route is at fault, else a :class:`RemoteTrouble`, which
            another try may help.
        """
        if not isinstance(error, APIStatusError):
            if path in _MAY_LACK and not isinstance(error, OpenAIError):
                return Refused(f"{server.name} has no {path}")
            return trouble_of(error, server)
        status = error.status_code
        if status == 403 and path != CHAT:  # vLLM closes such routes whatever the key
            return Refused(f"{server.name} is closed (HTTP {status})")
        body: Any = error.body
        if isinstance(body, dict):
            body = body.get("message") or body.get("detail")
        words = str(body or "")
        quoted = _quote(words, server.api_key) if self.quotes else ""
        if _concerns_request(error, words):
            return _refusal(server.name, status, words, quoted)
        return trouble_of(error, server, quoted)
