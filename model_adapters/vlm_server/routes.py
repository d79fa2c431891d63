"""Two routes for an option after a question: as text in an open assistant turn, and as token ids.

The text has to follow the generation prompt directly, as it does for a model in this process; many chat templates
insert or remove something.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.batching import Likelihood, common_length
from .messages import (
    BadAnswer,
    Conversation,
    MissingField,
    NextToken,
    Record,
    ServedPrompt,
    choice_of,
    conversation_record,
    next_token_record,
    prompt_ids,
    prompt_scores,
)
from .server_client import ServerPool

_MERGED = 4  # tokens of the prompt that a tokenizer may merge with what follows
_SCORING = {"temperature": 0, "max_tokens": 1}
_REPORTED = {"return_token_ids": True, "return_prompt_text": True}
_OPEN_TURN = {"add_generation_prompt": False, "continue_final_message": True}
# Log-probabilities are raw, but the likeliest token is reported after penalties of the model's own settings.
_UNCHANGED = {"repetition_penalty": 1.0}
_GENERATE = "/inference/v1/generate"

Ids = tuple[int, ...]


class BoundaryBroken(BadAnswer):
    """An open turn is rendered otherwise than the generation prompt with the text after it."""

    def __init__(self, rendered: str | None, fault: str = "does not put the answer directly after the prompt") -> None:
        super().__init__(f"the served model's chat template {fault}")
        self.rendered = rendered or ""


@dataclass(frozen=True)
class Boundary:
    """Change to a text so that it follows the generation prompt directly."""

    put_before: str = ""  # text of the generation prompt that an open turn lacks
    taken_away: str = ""  # text of an open turn that the generation prompt lacks

    def sent(self, text: str) -> str:
        """Return the text to send; a BoundaryBroken if no text would do."""
        if not text.startswith(self.taken_away):
            raise BoundaryBroken(None, f"begins a reply with {self.taken_away!r}, this option does not")
        return self.put_before + text.removeprefix(self.taken_away)


def remedy(prompt: str, rendered: str, text: str) -> Boundary | str:
    r"""Return the fix for a broken boundary, or a description of the template's fault.

    Args:
        prompt: The question with its generation prompt, as the server renders it.
        rendered: The question with ``text`` as an open assistant turn, as the server renders it.
        text: The text.

    Example:
        >>> remedy("Q\nA:\n", "Q\nA:yes", "yes")
        Boundary(put_before='\n', taken_away='')
        >>> remedy("Q A:", "Q A:  yes", " yes")
        Boundary(put_before='', taken_away=' ')
        >>> remedy("Q A:", "Q A:yes", " yes")
        'cuts the blanks off a reply'
    """
    if rendered.endswith(text):
        opened = rendered.removesuffix(text)
        if prompt.startswith(opened):
            return Boundary(put_before=prompt.removeprefix(opened))
        added = opened.removeprefix(prompt) if opened.startswith(prompt) else ""
        if added and text.startswith(added):
            return Boundary(taken_away=added)
        return f"puts {added!r} before the reply" if added else "renders the question anew when a reply follows"
    if text.strip() and rendered.endswith(text.strip()):
        return "cuts the blanks off a reply"
    return "changes the text of a reply"


class Tokenizer:
    """The server's tokenizer."""

    def __init__(self, pool: ServerPool, model: str) -> None:
        self._pool, self._model = pool, model
        self._texts: dict[int, str] = {}

    async def ids(self, text: str) -> Ids:
        """Return the ids of a text without begin or end of sequence; a BadAnswer if the server has no such route."""

        def read(answer: Mapping[str, Any]) -> Record:
            tokens = answer.get("tokens")
            if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
                raise MissingField("the server's answer lacks tokens")
            return {"tokens": tokens}

        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        return tuple((await self._pool.ask("/tokenize", None, lambda _: body, read))["tokens"])

    async def text(self, ids: Sequence[int]) -> str:
        """Return the text of ids; errors as :meth:`ids`."""

        def read(answer: Mapping[str, Any]) -> Record:
            if not isinstance(answer.get("prompt"), str):
                raise MissingField("the server's answer lacks the text of tokens")
            return {"prompt": answer["prompt"]}

        body = {"model": self._model, "tokens": list(ids)}
        return str((await self._pool.ask("/detokenize", None, lambda _: body, read))["prompt"])

    async def beginning(self, text: str, ids: Ids) -> str | None:
        """Return the beginning of ``text`` that consists of these tokens; None if they end within a character."""
        at = 0
        for token in ids:
            if token not in self._texts:
                self._texts[token] = await self.text([token])
            piece = self._texts[token]
            if not text.startswith(piece, at) and text.startswith(" ", at):
                at += 1  # some tokenizers omit a blank at the beginning
            if not piece or not text.startswith(piece, at):
                return None
            at += len(piece)
        return text[:at]


class Route(ABC):
    """Way to ask a server for likelihoods of text after a conversation."""

    def __init__(self, pool: ServerPool, model: str, fields: Mapping[str, Any], tokenizer: Tokenizer) -> None:
        self.pool, self.model, self.tokenizer = pool, model, tokenizer
        self._fields = {**fields, "model": model}

    async def conversation(self, prompt: ServedPrompt) -> Conversation:
        """Return a question as the server renders it, with its generation prompt."""
        fields = {**self._fields, **_SCORING, **_REPORTED}

        def read(answer: Mapping[str, Any]) -> Record:
            choice_of(answer, self.model)
            prompt.check_places(answer)
            return conversation_record(answer)

        return Conversation.of(await self.pool.chat(prompt, fields, read))

    async def first_tokens(self, prompt: ServedPrompt, tokens: Sequence[int]) -> tuple[Conversation, NextToken]:
        """Return the :meth:`conversation`, and log-probabilities of some tokens after it."""
        fields = {**self._fields, **_SCORING, **_REPORTED, **_next_token_fields(tokens)}

        def read(answer: Mapping[str, Any]) -> Record:
            prompt.check_places(answer)
            return {**conversation_record(answer), **next_token_record(answer, self.model, tokens)}

        record = await self.pool.chat(prompt, fields, read)
        return Conversation.of(record), NextToken.of(record)

    @abstractmethod
    async def whole(self, prompt: ServedPrompt, context: Conversation, option: str) -> tuple[Likelihood, Ids | None]:
        """Score an option by ``prompt_logprobs``, which reads the whole prompt.

        Returns its ids, too, unless it merges with the question.
        """

    @abstractmethod
    async def next_tokens(
        self, prompt: ServedPrompt, context: Conversation, option: str, before: Ids, tokens: Sequence[int]
    ) -> NextToken:
        """Return log-probabilities of tokens after a question and the first tokens, at least one, of an option."""


class OpenTurn(Route):
    """Options as text: the last assistant turn stays open.

    Every answer proves the boundary: by the rendered text, or if that is not reported by the text of the option's ids.
    """

    boundary = Boundary()

    async def whole(self, prompt: ServedPrompt, context: Conversation, option: str) -> tuple[Likelihood, Ids | None]:
        """See :meth:`Route.whole`."""

        def read(answer: Mapping[str, Any]) -> Record:
            ids = self._proven(answer, context, option)
            start = common_length(context.ids, ids)
            if start == len(ids):
                raise BadAnswer("the option adds no token to the question")
            if start < max(len(context.ids) - _MERGED, 1):
                raise BadAnswer("the server's prompt_token_ids of question and option do not begin alike")
            values, likeliest = prompt_scores(answer, self.model, start)
            return {"ids": ids[start:], "merged": start < len(context.ids), "values": values, "greedy": all(likeliest)}

        fields = {**self._fields, **_SCORING, **_REPORTED, **_OPEN_TURN, "prompt_logprobs": 0}
        record = await self.pool.chat(prompt, fields, read, self.boundary.sent(option))
        if context.text is None and (record["merged"] or await self.tokenizer.text(record["ids"]) != option):
            raise BoundaryBroken(None)
        return _likelihood(record), None if record["merged"] else tuple(record["ids"])

    async def next_tokens(
        self, prompt: ServedPrompt, context: Conversation, option: str, before: Ids, tokens: Sequence[int]
    ) -> NextToken:
        """See :meth:`Route.next_tokens`; a BadAnswer if no text consists of just these tokens."""
        text = await self.tokenizer.beginning(option, before)
        if text is None:
            raise BadAnswer("a token of the option is a part of a character")

        def read(answer: Mapping[str, Any]) -> Record:
            if tuple(self._proven(answer, context, text)) != context.ids + before:
                raise BadAnswer("the beginning of the option has other tokens than the option")
            return next_token_record(answer, self.model, tokens)

        fields = {**self._fields, **_SCORING, **_REPORTED, **_OPEN_TURN, **_next_token_fields(tokens)}
        return NextToken.of(await self.pool.chat(prompt, fields, read, self.boundary.sent(text)))

    def _proven(self, answer: Mapping[str, Any], context: Conversation, text: str) -> list[int]:
        ids, rendered = prompt_ids(answer), answer.get("prompt_text")
        if context.text is not None and rendered != context.text + text:
            raise BoundaryBroken(rendered if isinstance(rendered, str) else None)
        return ids


class TokenIds(Route):
    """Options as token ids after the question's, which needs ``--enable-scale-out`` and no chat template.

    Images are sent with one placeholder each: the ids of an answer, sent back, would be expanded a second time.
    """

    async def whole(self, prompt: ServedPrompt, context: Conversation, option: str) -> tuple[Likelihood, Ids | None]:
        """See :meth:`Route.whole`."""
        base, ids = await self._ids(context, option)
        start = common_length(base, ids)
        common = len(context.ids) - (len(base) - start)  # as start, with all positions of the images
        if start == len(ids) or common < 1:
            raise BadAnswer("the option adds no token to the question")

        def read(answer: Mapping[str, Any]) -> Record:
            if tuple(prompt_ids(answer)) != context.ids[:common] + ids[start:]:
                raise BadAnswer("the server made other tokens of the ids it was given")
            values, likeliest = prompt_scores(answer, self.model, common)
            return {"values": values, "greedy": all(likeliest)}

        record = await self._ask(prompt, ids, {"prompt_logprobs": 0}, read)
        return _likelihood(record), None if start < len(base) else ids[start:]

    async def next_tokens(
        self, prompt: ServedPrompt, context: Conversation, option: str, before: Ids, tokens: Sequence[int]
    ) -> NextToken:
        """See :meth:`Route.next_tokens`."""
        base, _ = await self._ids(context, option)

        def read(answer: Mapping[str, Any]) -> Record:
            if tuple(prompt_ids(answer)) != context.ids + before:
                raise BadAnswer("the server made other tokens of the ids it was given")
            return next_token_record(answer, self.model, tokens)

        # The answer has as many entries as requested, one of them for the likeliest token: hence one token twice.
        ids = [*tokens, tokens[0]]
        sampling = {"logprob_token_ids": ids, "logprobs": len(ids)}
        return NextToken.of(await self._ask(prompt, base + before, sampling, read))

    async def _ids(self, context: Conversation, option: str) -> tuple[Ids, Ids]:
        """Return the ids of a question with one placeholder per image, and those with an option after it."""
        if context.text is None:
            raise MissingField("the server's answer lacks prompt_text")
        base, whole = await asyncio.gather(self.tokenizer.ids(context.text), self.tokenizer.ids(context.text + option))
        if base[-_MERGED:] != context.ids[-_MERGED:]:
            raise BadAnswer("the server's tokenizer makes other tokens of the prompt than its chat route")
        return base, whole

    async def _ask(self, prompt: ServedPrompt, ids: Ids, sampling: Mapping[str, Any], read: Any) -> Record:
        def body(urls: Sequence[str]) -> Record:
            images = [{"type": "image_url", "url": url} for url in urls]
            return {
                "model": self.model,
                "token_ids": list(ids),
                **({"content_parts": images} if images else {}),
                "sampling_params": {**_SCORING, **sampling},
                "return_token_ids": True,
            }

        return await self.pool.ask(_GENERATE, prompt, body, read)


def _likelihood(record: Record) -> Likelihood:
    return Likelihood(-sum(record["values"]), len(record["values"]), record["greedy"])


def _next_token_fields(tokens: Sequence[int]) -> Record:
    return {**_UNCHANGED, "logprobs": True, "return_tokens_as_token_ids": True, "logprob_token_ids": list(tokens)}
