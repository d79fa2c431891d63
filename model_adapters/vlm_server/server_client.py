"""Requests to one or several servers of the same model: journalled, and stopped where all are gone."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from openai import APIStatusError, OpenAIError

from medtasks.errors import MedTasksError
from medtasks.net.chat_client import CHAT, AdaptiveLimit, ChatClient
from medtasks.net.journal import AsyncJournal, Entry, digest_of
from medtasks.net.servers import RemoteTrouble, Server, build_of, trouble_of, unreadable

from .prompts import ImageUrls, ServedPrompt

_BACKOFF_S = 1.0
_IN_A_ROW = 5  # requests that failed at last for the server's sake, after which it counts as gone
_QUOTED = 200  # characters
_STOPPING = (401, 403)
_MAY_LACK = ("/tokenize", "/detokenize")  # some servers answer such requests with an error and status 200
_TOO_LONG = re.compile(r"maximum context length|max_tokens must be at least 1, got 0", re.IGNORECASE)
_TOO_MANY_IMAGES = re.compile(r"At most (\d{1,6}) \w{1,10}\(s\) may be provided")
_BAD_IMAGE = re.compile(r"Failed to load image|Non-base64 digit|cannot identify image", re.IGNORECASE)

Record = dict[str, Any]
Read = Callable[[Mapping[str, Any]], Record]
"""Turns an answer into what the journal keeps of it; a BadAnswer where that is no valid answer to the request."""


class BadAnswer(MedTasksError):
    """A request got no valid answer; the sample it belongs to failed."""


class Refused(BadAnswer):
    """The server takes no such request, for no reason that lies in its sample."""


class ServerGone(MedTasksError):
    """No request can be answered any more: the run stops."""


class ServerPool:
    """The servers of a run, which serve the same model.

    What belongs together goes to one of them, as long as it is there, because only that one has its prefix cached.
    """

    def __init__(self, servers: Sequence[Server], concurrency: int, attempts: int) -> None:
        limit = AdaptiveLimit(concurrency)
        self.servers = [
            ChatClient(server, limit, attempts, backoff_s=_BACKOFF_S, patience=_IN_A_ROW, trouble=self._trouble)
            for server in servers
        ]
        self.build: str | None = None  # the servers' build and configuration, once the first of them has answered
        self.open_journal: Callable[[str | None], AsyncJournal] | None = None  # of servers of one build
        self.journal: AsyncJournal | None = None
        self._is_told, self._telling = False, asyncio.Lock()
        self.replayed = 0
        self._lacking: set[tuple[ChatClient, str]] = set()  # servers and paths that never answered
        self.quotes = False  # whether messages may hold what a server says of an error, which can repeat the prompt
        self._urls = ImageUrls()

    async def chat(
        self, prompt: ServedPrompt, fields: Mapping[str, Any], read: Read, continued: str | None = None
    ) -> Record:
        """Ask for a chat completion of a conversation, see :meth:`ask`."""

        def body(urls: Sequence[str]) -> Record:
            return {**fields, "messages": prompt.messages(urls, continued)}

        return await self.ask(CHAT, prompt, body, read)

    async def ask(
        self, path: str, prompt: ServedPrompt | None, body: Callable[[Sequence[str]], Record], read: Read
    ) -> Record:
        """Return the result of ``read`` on the answer, which the journal gives again if an earlier run has it.

        ``body`` builds the request from one text per image. Raises BadAnswer where the request itself cannot be
        answered, and ServerGone where none can.
        """
        if self.open_journal is not None and not self._is_told:
            async with self._telling:
                if not self._is_told:
                    return await self._asked(path, prompt, body, read)
        return await self._asked(path, prompt, body, read)

    async def _asked(
        self, path: str, prompt: ServedPrompt | None, body: Callable[[Sequence[str]], Record], read: Read
    ) -> Record:
        digests = () if prompt is None else prompt.digests
        what = path, body(digests)
        if (known := self._replayed(what)) is not None:
            return known
        urls = [] if prompt is None else await self._urls.of(prompt)
        place = digest_of(digests or (None if prompt is None else prompt.texts))
        failed: set[ChatClient] = set()
        cause = self.servers[0].gone or ""

        async def take(answer: dict[str, Any]) -> Record:
            # A slot is held until the answer is on the disk: a kill costs no more answers than there are slots.
            if path == CHAT:
                self._tell(server, answer.get("system_fingerprint"))
            if (known := self._replayed(what)) is not None:  # of an earlier run, which the answer that told made known
                return known
            record = read(answer)
            if self.journal is not None:
                await self.journal.add({digest_of(*what): Entry(record, 0)})
            return record

        while standing := [server for server in self.servers if server.gone is None and server not in failed]:
            server = max(standing, key=lambda one: digest_of(place, one.server.base_url))
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
                cause = self._lost(server, place, trouble)
        if all(server.gone is not None for server in self.servers):
            raise ServerGone(cause)
        raise BadAnswer(cause)

    def _lost(self, server: ChatClient, place: str, trouble: RemoteTrouble) -> str:
        """Note the trouble of a request at one server; returns the cause to give for it.

        What belongs together counts once: one question that a server cannot bear does not make it gone. HTTP 500 of a
        server that has answered does not count at all; gateways say 502 to 504 of one that is gone.
        """
        is_request_to_blame = trouble.status == 500 and CHAT in server.answered_paths
        if not trouble.retry and (trouble.outage or trouble.wait_s is not None):
            server.give_up(trouble.cause)
        elif trouble.retry and not is_request_to_blame:
            server.lose(trouble.cause, place)
        return server.gone or trouble.cause

    def _replayed(self, what: tuple[str, Record]) -> Record | None:
        """Return the answer of an earlier run to a request, by path and body with digests of images."""
        entry = None if self.journal is None else self.journal.replay(digest_of(*what))
        if entry is None:
            return None
        self.replayed += 1
        return dict(entry.answer)

    async def get(self, server: ChatClient, path: str) -> Any:
        """Return the JSON at an address of one server; None where it has nothing there."""
        try:
            return await server.get(path)
        except RemoteTrouble as trouble:
            # A gateway closes what it lacks.
            if trouble.status in (404, 405, 501) or (path.startswith("/") and trouble.status in _STOPPING):
                return None
            raise ServerGone(trouble.cause) from None
        except ValueError:
            raise ServerGone(unreadable(server.named(path)).cause) from None

    async def models(self, server: ChatClient) -> dict[str, Mapping[str, Any]] | None:
        """Return the models that one server lists, by name; None without a list; MedTasksError for no such server."""
        listed, named = await self.get(server, "models"), server.server
        if listed is None:
            return None
        cards = listed.get("data", []) if isinstance(listed, dict) else None
        if not isinstance(cards, list):
            fix = f"{named.mend_address}, which often ends with /v1"
            raise MedTasksError(f"what answers at {named.base_url} is no server of models; {fix}")
        return {str(card["id"]): card for card in cards if isinstance(card, dict) and card.get("id")}

    async def close(self) -> None:
        """Close the connections."""
        for server in self.servers:
            await server.close()

    def _tell(self, server: ChatClient, build: object) -> None:
        """Note what a server says of its build; with the first answer the journal is opened."""
        known = build_of(build)
        if not self._is_told:
            self._is_told, self.build = True, known
            if self.open_journal is not None:
                self.journal = self.open_journal(known)
        elif known != self.build:
            raise ServerGone(
                f"{server.server.name} is another build or configuration ({known}) than the one that answered first "
                f"({self.build}), and its answers may be others"
            )

    def _trouble(self, error: Exception, server: Server, path: str) -> Exception:
        """Return the trouble of an error; the server's words choose between sentences of ours, and may be quoted."""
        name = server.name
        if not isinstance(error, APIStatusError):
            if path in _MAY_LACK and not isinstance(error, OpenAIError):
                return Refused(f"{name} has no {path}")
            return trouble_of(error, server)
        body, status = error.body, error.status_code
        words = str(body.get("message") or body.get("detail") or "") if isinstance(body, dict) else str(body or "")
        quoted = ""
        if self.quotes:  # the beginning on one line, without the key; nothing of a web page
            plain = words.replace(server.api_key, "***") if server.api_key else words
            plain = "".join(sign if sign.isprintable() else " " for sign in plain[: 4 * _QUOTED])
            quoted = "" if plain.lstrip().startswith("<") else " ".join(plain.split())[:_QUOTED]
        is_about_model = error.param == "model" or error.code == "model_not_found" or "model" in words.lower()
        if status == 403 and path != CHAT:  # which the key does not open: vLLM has such routes closed
            return Refused(f"{name} is closed (HTTP {status})")
        is_of_request = status not in (*_STOPPING, 408, 429) and 400 <= status < 500
        if not is_of_request or (status == 404 and is_about_model):
            return trouble_of(error, server, quoted)
        label = f"HTTP {status}: {quoted}" if quoted else f"HTTP {status}"
        if _TOO_LONG.search(words):
            return BadAnswer(f"{name} has no room for the prompt ({label}); serve it with a larger --max-model-len")
        if limit := _TOO_MANY_IMAGES.search(words):
            fix = "serve it with a larger --limit-mm-per-prompt"
            return BadAnswer(f"{name} takes fewer images per prompt, at most {limit[1]} ({label}); {fix}")
        if status == 413:
            return BadAnswer(f"{name} takes no request of this size ({label})")
        if _BAD_IMAGE.search(words):
            return BadAnswer(f"{name} cannot read an image ({label})")
        return Refused(f"{name} refused the request ({label})")
