"""Likelihoods of options in the cheapest exact way that a server offers.

``VlmServer.loglikelihood`` uses it. It must never score an option after another prompt than the one asked for. An
option follows its question as text in an open assistant turn, or as token ids. The text has to follow the generation
prompt directly, as it does for a model in this process; many chat templates insert or remove something.
"""

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loguru import logger

from medtasks.errors import MedTasksError

from ..base.batching import Likelihood, common_length
from .messages import (
    BadAnswer,
    JsonObject,
    MissingField,
    Refused,
    ServedPrompt,
    ServerAnswer,
    choice_of,
    next_token_record,
    prompt_ids,
    prompt_scores,
)
from .server_client import PROMPT_LOGPROBS, TOKEN_IDS, ServerPool, VlmServerArguments

_MERGED = 4  # tokens of the prompt that a tokenizer may merge with what follows, and that decide how it is tokenized
_SCORING = {"temperature": 0, "max_tokens": 1}
_REPORTED = {"return_token_ids": True, "return_prompt_text": True}
_OPEN_TURN = {"add_generation_prompt": False, "continue_final_message": True}
_MOST_IDS = 128  # of logprob_token_ids in one request
_LETTER_LENGTH = 8  # characters up to which it is worth asking whether an option is one token
# Nats per token by which two ways may differ: half precision rounds logits that coarsely.
_TOLERANCE = 0.1

Ids = tuple[int, ...]
LikelihoodOutcome = Likelihood | BadAnswer


class LikelihoodsMissing(MedTasksError):
    """The server cannot score options."""


class BoundaryBroken(BadAnswer):
    """An open turn is rendered otherwise than the generation prompt with the text after it."""

    def __init__(
        self,
        rendered: object,
        fault: str = "does not put the answer directly after the prompt",
    ) -> None:
        super().__init__(f"the served model's chat template {fault}")
        self.rendered = rendered if isinstance(rendered, str) else ""


@dataclass(frozen=True)
class Boundary:
    """Change to a text so that it follows the generation prompt directly."""

    put_before: str = ""  # text of the generation prompt that an open turn lacks
    taken_away: str = ""  # text of an open turn that the generation prompt lacks

    def change(self, option: str) -> str:
        """Return the text of an open turn for an option.

        Raises:
            BoundaryBroken: The option does not begin with the text to take away.
        """
        if not option.startswith(self.taken_away):
            raise BoundaryBroken(
                None, f"begins a reply with {self.taken_away!r}, this option does not"
            )
        return self.put_before + option.removeprefix(self.taken_away)


def remedy(prompt: str, rendered: str, text: str) -> Boundary | str:
    r"""Return the fix for a broken boundary, or a description of the template's fault.

    Args:
        prompt: The question with its generation prompt, as the server renders it.
        rendered: The question with ``text`` as an open assistant turn, as the server renders it.
        text: An option.

    Example:
        >>> remedy("Q\nA:\n", "Q\nA:yes", "yes")
        Boundary(put_before='\n', taken_away='')
        >>> remedy("Q A:", "Q A:  yes", " yes")
        Boundary(put_before='', taken_away=' ')
        >>> remedy("Q A:", "Q A:yes", " yes")
        'cuts the blanks off a reply'
    """
    if not rendered.endswith(text):
        if text.strip() and rendered.endswith(text.strip()):
            return "cuts the blanks off a reply"
        return "changes the text of a reply"
    opened = rendered.removesuffix(text)
    if prompt.startswith(opened):
        return Boundary(put_before=prompt.removeprefix(opened))
    if not opened.startswith(prompt):
        return "renders the question anew when a reply follows"
    added = opened.removeprefix(prompt)
    if text.startswith(added):
        return Boundary(taken_away=added)
    return f"puts {added!r} before the reply"


@dataclass
class Tokenizer:
    """The server's tokenizer."""

    pool: ServerPool
    model: str  # name of the served model

    async def ids(self, text: str) -> Ids:
        """Tokenise a text.

        Args:
            text: Without begin or end of sequence, which are not added.

        Raises:
            BadAnswer: The server has no such route (:class:`Refused`), or its answer no tokens (:class:`MissingField`).
        """

        def parse(answer: ServerAnswer) -> JsonObject:
            tokens = answer.get("tokens")
            if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
                raise MissingField("the server's answer lacks tokens")
            return {"tokens": tokens}

        body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        record = await self.pool.ask("/tokenize", None, lambda _: body, parse)
        return tuple(record["tokens"])

    async def text(self, ids: Sequence[int]) -> str:
        """Return the text of ids.

        Args:
            ids: Ids in the vocabulary of the served model.

        Raises:
            BadAnswer: The server has no such route (:class:`Refused`), or its answer no text (:class:`MissingField`).
        """

        def parse(answer: ServerAnswer) -> JsonObject:
            if not isinstance(answer.get("prompt"), str):
                raise MissingField("the server's answer lacks the text of tokens")
            return {"prompt": answer["prompt"]}

        body = {"model": self.model, "tokens": list(ids)}
        record = await self.pool.ask("/detokenize", None, lambda _: body, parse)
        return str(record["prompt"])


@dataclass(frozen=True)
class Conversation:
    """A conversation as the server rendered it."""

    prompt: ServedPrompt
    ids: Ids  # with every position of its images
    text: str | None  # with one placeholder per image; None if the server does not report it

    @property
    def tail(self) -> Ids:
        """Last ids, which decide what an option after them is tokenised to."""
        return self.ids[-_MERGED:]


class OptionScorer:
    """Scores the options of questions.

    Two ways: one request for all options of one token each, and one request per option, which reads the whole
    question. The latter scores the first question, which proves where the answer begins, and checks the other way once.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        fields: Mapping[str, Any],
        arguments: VlmServerArguments,
    ) -> None:
        self._tokenizer = tokenizer
        self._pool = tokenizer.pool
        self._model = tokenizer.model
        self._fields = {**fields, "model": tokenizer.model, **_SCORING, **_REPORTED}
        # Change to an option sent as text, so that it follows the question directly.
        self._boundary = Boundary()
        self._server = arguments.servers[0].name
        self._score_one = self._as_ids if arguments.likelihood == TOKEN_IDS else self._as_text
        self._proven = False
        self._proving = asyncio.Lock()
        self._comparing = asyncio.Lock()
        # Whether one request for all letters gives the scores of prompt_logprobs; None until it is compared.
        self._letters_agree: bool | None = None
        if arguments.likelihood == PROMPT_LOGPROBS:
            self._letters_agree = False
        self._tokenizes = True  # whether the server has a route from text to ids
        # Ids of options after the same last ids, None if they merge with these.
        self._ids: dict[tuple[Ids, str], Ids | None] = {}
        self._tail: Ids = ()
        self.ways = Counter[str]()  # options scored, by way

    async def score_options(
        self, prompt: ServedPrompt, options: Sequence[str]
    ) -> list[LikelihoodOutcome]:
        """Score the options of one question. The first question also proves how the server scores.

        Args:
            prompt: The question.
            options: Texts to score after it; equal ones are scored once.

        Returns:
            One outcome per option, in order: its likelihood, or the error that concerns it alone.

        Raises:
            LikelihoodsMissing: The server cannot score options at all.
            BadAnswer: The server's answer to the question cannot be used, or, until a first question has been scored,
                its answer to the option that is tried first.
            ServerGone: No server answers any more.
        """
        if not self._proven:
            async with self._proving:
                if not self._proven:
                    return await self._prove(prompt, options)
        context = None
        if self._letters_agree is not False:
            context, scored = await self._score_letters(prompt, options)
            if scored:
                return [scored[option] for option in options]
        if context is None:
            context = await self._conversation(prompt)
        return await self._score_others(context, options, {})

    async def _score_letters(
        self, prompt: ServedPrompt, options: Sequence[str]
    ) -> tuple[Conversation | None, dict[str, Likelihood]]:
        """Score options in one request, if each is one token.

        Returns:
            The conversation, ``None`` if no request for it was needed, and the scores, none if there are other options.
        """
        context = await self._learn_ids(prompt, options)
        tail = self._tail if context is None else context.tail
        tokens = {}
        for option in options:
            ids = self._ids.get((tail, option)) or ()
            if len(ids) != 1:
                return context, {}
            tokens[option] = ids[0]
        if len(tokens) > _MOST_IDS:
            return context, {}
        rendered, scored = await self._letters(prompt, tokens, tail)
        return context or rendered, scored

    async def _learn_ids(
        self, prompt: ServedPrompt, options: Sequence[str]
    ) -> Conversation | None:
        """Ask for the ids of short options that are unknown so far.

        Returns:
            The conversation, if that took a request for it, else ``None``.
        """
        unknown = self._without_ids(options, self._tail)
        if not self._tokenizes or not unknown or max(map(len, options)) > _LETTER_LENGTH:
            return None
        context = await self._conversation(prompt)
        unknown = self._without_ids(unknown, context.tail)
        if context.text is None or not unknown:
            return context
        texts = [context.text, *(context.text + option for option in unknown)]
        try:
            base, *wholes = await asyncio.gather(*map(self._tokenizer.ids, texts))
        except (MissingField, Refused):
            self._tokenizes = False
            return context
        except BadAnswer:
            return context  # for this question alone
        for option, whole in zip(unknown, wholes, strict=True):
            is_apart = whole[: len(base)] == base and base[-_MERGED:] == context.tail
            self._ids[context.tail, option] = whole[len(base) :] if is_apart else None
        return context

    def _without_ids(self, options: Sequence[str], tail: Ids) -> list[str]:
        return [option for option in dict.fromkeys(options) if (tail, option) not in self._ids]

    # ---- requests ----

    async def _conversation(self, prompt: ServedPrompt) -> Conversation:
        """Return a question as the server renders it, with its generation prompt."""

        def parse(answer: ServerAnswer) -> JsonObject:
            choice_of(answer, self._model)
            return _conversation_record(prompt, answer)

        record = await self._pool.chat(prompt, self._fields, parse)
        return Conversation(prompt, tuple(record["ids"]), record["text"])

    async def _as_text(self, context: Conversation, option: str) -> Likelihood:
        """Score an option as an open assistant turn by ``prompt_logprobs``, which reads the whole prompt.

        Every answer proves the boundary: by the rendered text, or if that is not reported by the text of the option's
        ids.

        Raises:
            BoundaryBroken: The template puts something else where question and option meet.
            BadAnswer: The answer cannot be used.
        """

        def parse(answer: ServerAnswer) -> JsonObject:
            ids = prompt_ids(answer)
            rendered = answer.get("prompt_text")
            if context.text is not None and rendered != context.text + option:
                raise BoundaryBroken(rendered)
            start = common_length(context.ids, ids)
            if start == len(ids):
                raise BadAnswer("the option adds no token to the question")
            if start < max(len(context.ids) - _MERGED, 1):
                raise BadAnswer(
                    "the server's prompt_token_ids of question and option do not begin alike"
                )
            return {
                "ids": ids[start:],
                "merged": start < len(context.ids),
                **prompt_scores(answer, self._model, start),
            }

        text = self._boundary.change(option)
        fields = {**self._fields, **_OPEN_TURN, "prompt_logprobs": 0}
        record = await self._pool.chat(context.prompt, fields, parse, text)
        ids = None if record["merged"] else tuple(record["ids"])
        if context.text is None and (ids is None or await self._tokenizer.text(ids) != option):
            raise BoundaryBroken(None)
        return self._record_score(context, option, ids, record)

    async def _as_ids(self, context: Conversation, option: str) -> Likelihood:
        """Score an option as token ids after the question's, which needs ``--enable-scale-out`` but no template.

        Raises:
            MissingField: The server does not report the rendered question.
            BadAnswer: The answer cannot be used, or the server tokenises otherwise than its chat route.
        """
        if context.text is None:
            raise MissingField("the server's answer lacks prompt_text")
        # With one placeholder per image: the ids of an answer, sent back, would be expanded a second time.
        texts = (context.text, context.text + option)
        base, ids = await asyncio.gather(*map(self._tokenizer.ids, texts))
        if base[-_MERGED:] != context.tail:
            raise BadAnswer(
                "the server's tokenizer makes other tokens of the prompt than its chat route"
            )
        start = common_length(base, ids)
        # As start, with all positions of the images
        common = start + len(context.ids) - len(base)
        if start == len(ids) or common < 1:
            raise BadAnswer("the option adds no token to the question")

        def body(urls: Sequence[str]) -> JsonObject:
            fields: JsonObject = {"model": self._model, "token_ids": list(ids)}
            if urls:
                fields["content_parts"] = [{"type": "image_url", "url": url} for url in urls]
            fields["sampling_params"] = {**_SCORING, "prompt_logprobs": 0}
            fields["return_token_ids"] = True
            return fields

        def parse(answer: ServerAnswer) -> JsonObject:
            if tuple(prompt_ids(answer)) != context.ids[:common] + ids[start:]:
                raise BadAnswer("the server made other tokens of the ids it was given")
            return prompt_scores(answer, self._model, common)

        record = await self._pool.ask("/inference/v1/generate", context.prompt, body, parse)
        option_ids = None if start < len(base) else ids[start:]
        return self._record_score(context, option, option_ids, record)

    def _record_score(
        self,
        context: Conversation,
        option: str,
        ids: Ids | None,
        record: JsonObject,
    ) -> Likelihood:
        """Return the likelihood of an option, and keep its ids.

        Args:
            context: The question.
            option: Text of the option.
            ids: Ids of the option; ``None`` if they merge with those of the question.
            record: Log-probabilities of its tokens, see ``prompt_scores``.
        """
        self._ids[context.tail, option] = ids
        self.ways[PROMPT_LOGPROBS] += 1
        values = record["values"]
        return Likelihood(-sum(values), len(values), record["greedy"])

    # ---- the first question ----

    async def _prove(
        self, prompt: ServedPrompt, options: Sequence[str]
    ) -> list[LikelihoodOutcome]:
        """Score the first question, by token ids if the template does not allow text.

        Raises:
            LikelihoodsMissing: The server cannot score options at all.
            BadAnswer: The answer to the option that is tried first cannot be used.
        """
        # With outer blanks, which a template may cut, else the shortest.
        first_option = max(options, key=lambda option: (option != option.strip(), -len(option)))
        try:
            context = await self._conversation(prompt)
            first = await self._score_first(context, first_option)
        except MissingField as error:
            raise LikelihoodsMissing(
                f"{self._server} gives no likelihoods: {error}. Servers and routers ignore fields that they do not "
                f"know; ask vLLM 0.10.2 or later, not by way of sglang-router, or run the model with --model hf_vlm"
            ) from None
        outcomes = await self._score_others(context, options, {first_option: first})
        # Only now other questions go on: they know the ids of its options, and need not ask for them.
        self._tail = context.tail
        self._proven = True
        return outcomes

    async def _score_first(self, context: Conversation, option: str) -> Likelihood:
        """Score an option, and decide how all later ones are sent.

        Raises:
            LikelihoodsMissing: The server takes the option neither as text nor as token ids.
            BadAnswer: The answer cannot be used.
        """
        try:
            return await self._score_one(context, option)
        except Refused as error:
            if self._score_one == self._as_ids:
                raise LikelihoodsMissing(f"{error}; start it with --enable-scale-out") from None
            fault = "refuses an open assistant turn"
        except BoundaryBroken as broken:
            fix: Boundary | str = "cannot be inspected"
            if context.text:
                fix = remedy(context.text, broken.rendered, option)
            if isinstance(fix, Boundary):
                self._boundary = fix
                return await self._as_text(context, option)
            fault = fix
        try:
            first = await self._as_ids(context, option)
        except Refused:
            raise LikelihoodsMissing(
                f"{self._server} cannot score options: the chat template of its model {fault}, so that they "
                f"would be scored after another prompt; serve it with --enable-scale-out, which takes token "
                f"ids, or with another --chat-template, or if thoughts are the cause give "
                f'chat_template_kwargs={{"enable_thinking":false}} in --model_args'
            ) from None
        logger.info(
            "options are sent as token ids: the chat template of the served model {}", fault
        )
        self._score_one = self._as_ids
        return first

    # ---- one request per option ----

    async def _score_others(
        self,
        context: Conversation,
        options: Sequence[str],
        scored: Mapping[str, LikelihoodOutcome],
    ) -> list[LikelihoodOutcome]:
        """Score the options that are not in ``scored``, and return the outcomes of all options."""
        others = [option for option in dict.fromkeys(options) if option not in scored]
        outcomes = await asyncio.gather(*(self._outcome(context, option) for option in others))
        by_option = {**scored, **dict(zip(others, outcomes, strict=True))}
        return [by_option[option] for option in options]

    async def _outcome(self, context: Conversation, option: str) -> LikelihoodOutcome:
        """Score an option, and return the error if it fails. Broken boundaries are tried again with token ids."""
        try:
            return await self._score_one(context, option)
        except BoundaryBroken as error:
            with contextlib.suppress(BadAnswer):  # token ids do not depend on the template
                return await self._as_ids(context, option)
            return error
        except BadAnswer as error:
            return error

    # ---- letters ----

    async def _letters(
        self,
        prompt: ServedPrompt,
        tokens: Mapping[str, int],
        tail: Ids,
    ) -> tuple[Conversation | None, dict[str, Likelihood]]:
        """Score options of one token each in one request.

        Args:
            prompt: The question.
            tokens: Token of each option.
            tail: Last ids of the conversation, after which the tokens were asked for.

        Returns:
            The conversation, if the server answered, and the scores: none if they are wrong, or this question ends
            otherwise.
        """
        letters = sorted(set(tokens.values()))
        # Log-probabilities are raw, but the likeliest token is reported after penalties of the model's own settings.
        fields = {
            **self._fields,
            "repetition_penalty": 1.0,
            "logprobs": True,
            "return_tokens_as_token_ids": True,
            "logprob_token_ids": letters,
        }

        def parse(answer: ServerAnswer) -> JsonObject:
            record = _conversation_record(prompt, answer)
            return record | next_token_record(answer, self._model, letters)

        try:
            record = await self._pool.chat(prompt, fields, parse)
        except (MissingField, Refused) as error:
            self._give_up_letters(str(error))
            return None, {}
        context = Conversation(prompt, tuple(record["ids"]), record["text"])
        if context.tail != tail:
            return context, {}
        scored = {}
        for option, token in tokens.items():
            logprob = record["logprobs"][str(token)]
            scored[option] = Likelihood(-logprob, 1, record["greedy"] == token)
        async with self._comparing:
            if self._letters_agree is None:
                await self._compare(context, scored)
        if not self._letters_agree:
            return context, {}
        self.ways["letters"] += len(scored)
        return context, scored

    async def _compare(self, context: Conversation, letters: Mapping[str, Likelihood]) -> None:
        """Decide by one question whether a request for all letters gives the scores of single requests."""
        outcomes = await asyncio.gather(*(self._outcome(context, option) for option in letters))
        gaps = []
        for letter, outcome in zip(letters.values(), outcomes, strict=True):
            if isinstance(outcome, Likelihood):
                gaps.append(
                    abs(letter.mean - outcome.mean) if outcome.tokens == 1 else math.inf
                )
        if gaps and max(gaps) > _TOLERANCE:
            self._give_up_letters(
                f"scores differ from those of prompt_logprobs by {max(gaps):.2g} per token"
            )
        elif gaps:
            self._letters_agree = True

    def _give_up_letters(self, reason: str) -> None:
        """Score options one by one from now on, and log why."""
        if self._letters_agree is not False:
            logger.info(
                "options are scored one request each, which is slower: with logprob_token_ids, {}",
                reason,
            )
        self._letters_agree = False


def _conversation_record(prompt: ServedPrompt, answer: ServerAnswer) -> JsonObject:
    prompt.check_places(answer)
    text = answer.get("prompt_text")
    return {"ids": prompt_ids(answer), "text": text if isinstance(text, str) else None}
