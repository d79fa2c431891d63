"""Arguments of ``vlm_server``, and requests to its servers: journalled, and stopped when all servers are gone."""

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from openai import APIStatusError, OpenAIError
from PIL import Image

from medtasks.errors import AdapterArgumentError, MedTasksError
from medtasks.net.chat_client import CHAT, AdaptiveLimit, ChatClient
from medtasks.net.journal import AsyncJournal, Entry, digest_of
from medtasks.net.servers import RemoteTrouble, Server, build_of, is_url, trouble_of, unreadable
from medtasks.prompts.messages import data_url
from medtasks.runs.redaction import redacted

from ..base.arguments import HarnessArguments, argument
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
_MAY_LACK = (
    "/tokenize",
    "/detokenize",
)  # some servers answer such requests with an error and status 200
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
"""Turns an answer into the record for the journal; raises a BadAnswer if it is no valid answer to the request."""


@dataclass(frozen=True)
class VlmServerArguments(HarnessArguments):
    """Arguments of ``vlm_server``, see ``model_adapters/README.md``."""

    base_url: str = argument("")  # one address, or several with ``;`` between them; required
    model: str = argument("")  # as the server calls it; by default the only one it has
    concurrency: int = argument(64, least=1, most=4096)  # most requests under way at once
    timeout: float = argument(600.0, least=0.001)  # seconds without a byte before a try is given up
    attempts: int = argument(6, least=1)  # most tries of a request after passing errors
    system_prompt: str | None = argument(None, prose=True)
    prompt_family: str | None = argument(
        None
    )  # whose prompts and decoding tasks use, see medtasks.lmms.prompt_family
    # JSON, for instance {"enable_thinking":false}
    chat_template_kwargs: dict[str, Any] | None = argument(None)  # noqa: RUF009  # a field, not a shared value
    # JSON, fields of every chat request; null leaves one of ours out
    extra_body: dict[str, Any] | None = argument(None)  # noqa: RUF009  # as above
    likelihood: str = argument(AUTOMATIC, choices=(AUTOMATIC, PROMPT_LOGPROBS, TOKEN_IDS))
    image_attention: str | None = argument(None, choices=("bidirectional", "causal"))
    token_counts: bool = argument(True)

    @property
    def servers(self) -> tuple[Server, ...]:
        """The servers, with the key of the environment."""
        urls = [url.strip().rstrip("/") for url in self.base_url.split(";") if url.strip()]
        key = os.environ.get(API_KEY, "").strip()
        fix = "check base_url= in --model_args"
        return tuple(
            Server(url, "server", self.timeout, fix, _REFUSALS, key) for url in dict.fromkeys(urls)
        )


def check_given(arguments: Mapping[str, object]) -> None:
    """Refuse a key among the arguments, because manifests and process lists show them."""
    if "api_key" in arguments:
        raise AdapterArgumentError(
            f"vlm_server takes no api_key; set the environment variable {API_KEY}."
        )


def check_arguments(arguments: VlmServerArguments) -> None:
    """Check addresses and key."""
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
        raise AdapterArgumentError(f"{API_KEY} contains a character that no HTTP header may hold.")


class ServerGone(MedTasksError):
    """No request can be answered any more: the run stops."""


class ServerPool:
    """Servers of the same model; requests with the same images go to the same server, which has their prefix cached."""

    def __init__(self, servers: Sequence[Server], concurrency: int, attempts: int) -> None:
        limit = AdaptiveLimit(concurrency)
        self.servers = [
            ChatClient(
                server,
                limit,
                attempts,
                backoff_s=_BACKOFF_S,
                patience=_IN_A_ROW,
                trouble=self._trouble,
            )
            for server in servers
        ]
        self.build: str | None = (
            None  # the servers' build and configuration, after the first answer
        )
        self.open_journal: Callable[[str | None], AsyncJournal] | None = None  # from the build
        self.journal: AsyncJournal | None = None
        self._has_build, self._first_answer = False, asyncio.Lock()
        self.replayed = 0
        self._lacking: set[tuple[ChatClient, str]] = set()  # servers and paths that never answered
        self.quotes = (
            False  # whether messages may quote a server's error, which can repeat the prompt
        )
        self._encoding = BoundedCache[asyncio.Task[str]](_CACHED_BYTES)

    async def chat(
        self,
        prompt: ServedPrompt,
        fields: Mapping[str, Any],
        read: Read,
        continued: str | None = None,
    ) -> JsonObject:
        """Ask for a chat completion of a conversation, see :meth:`ask`."""
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
        """Return the result of ``read`` on the answer, from the journal if an earlier run has it.

        ``body`` builds the request from one text per image. Raises BadAnswer if this request cannot be answered, and
        ServerGone if none can.
        """
        if self.open_journal is not None and not self._has_build:
            async with self._first_answer:
                if not self._has_build:
                    return await self._asked(path, prompt, body, read)
        return await self._asked(path, prompt, body, read)

    async def _asked(
        self,
        path: str,
        prompt: ServedPrompt | None,
        body: Callable[[Sequence[str]], JsonObject],
        read: Read,
    ) -> JsonObject:
        digests = () if prompt is None else prompt.digests
        request = path, body(digests)
        if (earlier := self._replayed(request)) is not None:
            return earlier
        urls = (
            []
            if prompt is None
            else [await self._url(*image) for image in zip(prompt.images, digests, strict=True)]
        )
        subject = digest_of(digests or (None if prompt is None else prompt.texts))
        failed: set[ChatClient] = set()
        cause = self.servers[0].gone or ""

        async def take(answer: dict[str, Any]) -> JsonObject:
            # The request stays under way until its answer is on disk: a kill costs at most ``concurrency`` answers.
            if path == CHAT:
                self._check_build(server, answer.get("system_fingerprint"))
            if (
                earlier := self._replayed(request)
            ) is not None:  # from the journal that this answer opened
                return earlier
            record = read(answer)
            if self.journal is not None:
                await self.journal.add({digest_of(*request): Entry(record, 0)})
            return record

        while reachable := [
            server for server in self.servers if server.gone is None and server not in failed
        ]:
            server = max(reachable, key=lambda client: digest_of(subject, client.server.base_url))
            if (server, path) in self._lacking:
                raise Refused(f"{server.named(path).name} gives no answers")
            try:
                return await server.post(path, body(urls), take)
            except RemoteTrouble as trouble:
                never_answered = path not in server.answered_paths
                if path in _MAY_LACK and trouble.reached and trouble.retry and never_answered:
                    self._lacking.add((server, path))
                    raise Refused(trouble.cause) from None
                failed.add(server)
                # HTTP 500 of a server that has answered is the request's fault; gateways report one that is gone by 502
                # to 504. Requests on one subject count once, so that one question cannot make a server count as gone.
                is_request_to_blame = trouble.status == 500 and CHAT in server.answered_paths
                if not trouble.retry and (trouble.outage or trouble.wait_s is not None):
                    server.give_up(trouble.cause)
                elif trouble.retry and not is_request_to_blame:
                    server.lose(trouble.cause, subject)
                cause = server.gone or trouble.cause
        if all(server.gone is not None for server in self.servers):
            raise ServerGone(cause)
        raise BadAnswer(cause)

    async def _url(self, image: Image.Image, digest: str) -> str:
        """Return an image as data URL; the last ones are cached, as the options of a question have the same images."""
        task = self._encoding.get(digest)
        if task is None:
            task = asyncio.create_task(asyncio.to_thread(data_url, image))
            self._encoding.keep(
                digest, task, 4 * image.width * image.height
            )  # base64 of RGB, if not compressed
        return await asyncio.shield(task)

    def _replayed(self, request: tuple[str, JsonObject]) -> JsonObject | None:
        """Return the answer of an earlier run to a request: path, and body with digests of images."""
        entry = None if self.journal is None else self.journal.replay(digest_of(*request))
        if entry is None:
            return None
        self.replayed += 1
        if request[0] not in _MAY_LACK:  # routes of the tokenizer
            REPLAYED.get([]).append(entry)
        return dict(entry.answer)

    async def get(self, server: ChatClient, path: str) -> Any:
        """Return the JSON at an address of one server; None if it has nothing there."""
        try:
            return await server.get(path)
        except RemoteTrouble as trouble:
            # A gateway closes what it lacks.
            if trouble.status in (404, 405, 501) or (
                path.startswith("/") and trouble.status in _STOPPING
            ):
                return None
            raise ServerGone(trouble.cause) from None
        except ValueError:
            raise ServerGone(unreadable(server.named(path)).cause) from None

    async def models(self, server: ChatClient) -> dict[str, Mapping[str, Any]] | None:
        """Return the models that a server lists, by name; None without a list; a MedTasksError for other servers."""
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

    def _check_build(self, server: ChatClient, reported: object) -> None:
        """Record the build that the first answer reports, and open its journal; later answers have to report it too."""
        build = build_of(reported)
        if not self._has_build:
            self._has_build, self.build = True, build
            if self.open_journal is not None:
                self.journal = self.open_journal(build)
        elif build != self.build:
            raise ServerGone(
                f"{server.server.name} is another build or configuration ({build}) than the one that answered first "
                f"({self.build}), and its answers may differ"
            )

    def _trouble(self, error: Exception, server: Server, path: str) -> Exception:
        """Turn an error into an exception of ours; the server's words select its message, and may be quoted."""
        name = server.name
        if not isinstance(error, APIStatusError):
            if path in _MAY_LACK and not isinstance(error, OpenAIError):
                return Refused(f"{name} has no {path}")
            return trouble_of(error, server)
        body, status = error.body, error.status_code
        words = (
            str(body.get("message") or body.get("detail") or "")
            if isinstance(body, dict)
            else str(body or "")
        )
        quoted = ""
        if self.quotes:  # the beginning on one line, without secrets; nothing of a web page
            plain = words.replace(server.api_key, "***") if server.api_key else words
            plain = "".join(sign if sign.isprintable() else " " for sign in plain[:_READ])
            quoted = (
                ""
                if plain.lstrip().startswith("<")
                else " ".join(redacted(plain).split())[:_QUOTED]
            )
        is_about_model = (
            error.param == "model" or error.code == "model_not_found" or "model" in words.lower()
        )
        if status == 403 and path != CHAT:  # vLLM closes such routes whatever the key
            return Refused(f"{name} is closed (HTTP {status})")
        is_of_request = status not in (*_STOPPING, 408, 429) and 400 <= status < 500
        if not is_of_request or (status == 404 and is_about_model):
            return trouble_of(error, server, quoted)
        label = f"HTTP {status}: {quoted}" if quoted else f"HTTP {status}"
        if _TOO_LONG.search(words):
            return BadAnswer(
                f"{name} has no room for the prompt ({label}); serve it with a larger --max-model-len"
            )
        if limit := _TOO_MANY_IMAGES.search(words):
            fix = "serve it with a larger --limit-mm-per-prompt"
            return BadAnswer(
                f"{name} takes fewer images per prompt, at most {limit[1]} ({label}); {fix}"
            )
        if status == 413:
            return BadAnswer(f"{name} takes no request of this size ({label})")
        if _BAD_IMAGE.search(words):
            return BadAnswer(f"{name} cannot read an image ({label})")
        return Refused(f"{name} refused the request ({label})")
