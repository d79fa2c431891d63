"""Likelihoods of options in the cheapest exact way that a server offers."""

import asyncio
import contextlib
import math
from collections.abc import Mapping, Sequence

from loguru import logger

from medtasks.errors import MedTasksError

from ..base.batching import Likelihood
from .messages import BadAnswer, Conversation, MissingField, NextToken, Refused, ServedPrompt
from .routes import Boundary, BoundaryBroken, Ids, OpenTurn, Route, TokenIds, remedy
from .server_client import PROMPT_LOGPROBS, TOKEN_BY_TOKEN, TOKEN_IDS, VlmServerArguments

_MOST_IDS = 128  # of logprob_token_ids in one request
_TAIL = 4  # ids before an option that decide how it is tokenized
# Nats per token by which two ways may differ: half precision rounds logits that coarsely.
_TOLERANCE = 0.1
# Measured cost of one more request on a cached prefix, in tokens of an uncached prompt, see benchmarks.
_STEP_TOKENS = 40

Outcome = Likelihood | BadAnswer
Scored = tuple[Likelihood, Ids | None]
"""A likelihood, and the ids of its option unless they merge with the question's."""


class LikelihoodsMissing(MedTasksError):
    """The server cannot score options."""


class OptionScorer:
    """Scores the options of questions.

    Three ways: one request for all options of one token each; token by token after the cached question, if that is
    cheaper; and one request per option, which reads the whole question. The last one scores the first question, which
    proves where the answer begins, and checks each other way once.
    """

    def __init__(self, chat: OpenTurn, by_ids: TokenIds, arguments: VlmServerArguments, server: str) -> None:
        self._chat, self._by_ids = chat, by_ids
        self._way, self._server = arguments.likelihood, server
        self._route: Route = by_ids if arguments.likelihood == TOKEN_IDS else chat
        self._proven = False
        self._proving, self._comparing = asyncio.Lock(), asyncio.Lock()
        self._step_is_right: bool | None = None  # whether token by token gives the scores of prompt_logprobs
        self._tokenizes = True  # whether the server has a route from text to ids
        self._ids: dict[tuple[Ids, str], Ids | None] = {}  # of options after the same last ids
        self._tail: Ids = ()
        self.ways: dict[str, int] = {}  # options scored, by way
        self.blame = ""  # the chat template's fault, if options are sent as token ids
        self.slow = ""  # reason for not scoring by next tokens

    async def scores(self, prompt: ServedPrompt, options: Sequence[str]) -> list[Outcome]:
        """Score the options of one question; one that cannot be scored is an error in its place.

        Before the first score a server that cannot score options is a LikelihoodsMissing.
        """
        if not self._proven:
            async with self._proving:
                if not self._proven:
                    return await self._prove(prompt, options)
        context = None
        may_step = self._way != PROMPT_LOGPROBS and self._step_is_right is not False
        ids_by_option = {option: ids for option in options if (ids := self._ids.get((self._tail, option)))}
        if may_step and ids_by_option.keys() == set(options) and all(len(ids) == 1 for ids in ids_by_option.values()):
            context, scored = await self._letters(prompt, ids_by_option)
            if scored is not None:
                return [scored[option] for option in options]
            may_step = self._step_is_right is not False
        context = context or await self._route.conversation(prompt)
        # Whether stepping could be cheaper even if each option had two tokens.
        may_pay = _STEP_TOKENS * (len(options) + 1) < len(options) * len(context.ids)
        may_step = may_step and (may_pay or self._way == TOKEN_BY_TOKEN)
        scored = await self._stepped(prompt, context, options) if may_step else {}
        return await self._scored_whole(prompt, context, options, scored)

    @property
    def boundary(self) -> Boundary:
        """Change to an option that is sent as text, so that it follows the question directly."""
        return self._chat.boundary

    # ---- the first question ----

    async def _prove(self, prompt: ServedPrompt, options: Sequence[str]) -> list[Outcome]:
        """Score the first question, by token ids if the template does not allow text."""
        telling = max(options, key=lambda option: (option != option.strip(), -len(option)))
        try:
            context = await self._route.conversation(prompt)
            first = await self._proven_score(prompt, context, telling)
        except MissingField as error:
            raise LikelihoodsMissing(
                f"{self._server} gives no likelihoods: {error}. Servers and routers ignore fields that they do not "
                f"know; ask vLLM 0.10.2 or later, not by way of sglang-router, or run the model with --model hf_vlm"
            ) from None
        self._tail, self._proven = context.ids[-_TAIL:], True
        return await self._scored_whole(prompt, context, options, {telling: self._recorded(context, telling, first)})

    async def _proven_score(self, prompt: ServedPrompt, context: Conversation, option: str) -> Scored:
        try:
            return await self._route.whole(prompt, context, option)
        except Refused as error:
            if self._route is self._by_ids:
                raise LikelihoodsMissing(f"{error}; start it with --enable-scale-out") from None
            blame = "refuses an open assistant turn"
        except BoundaryBroken as broken:
            fix = remedy(context.text or "", broken.rendered, option) if context.text else "cannot be inspected"
            if isinstance(fix, Boundary):
                self._chat.boundary = fix
                return await self._chat.whole(prompt, context, option)
            blame = fix
        try:
            scored = await self._by_ids.whole(prompt, context, option)
        except Refused:
            raise LikelihoodsMissing(
                f"{self._server} cannot score options: the chat template of its model {blame}, so that they would be "
                f"scored after another prompt; serve it with --enable-scale-out, which takes token ids, or with "
                f"another --chat-template, or if thoughts are the cause give "
                f'chat_template_kwargs={{"enable_thinking":false}} in --model_args'
            ) from None
        logger.info("options are sent as token ids: the chat template of the served model {}", blame)
        self._route, self.blame = self._by_ids, blame
        return scored

    # ---- one request per option ----

    async def _scored_whole(
        self, prompt: ServedPrompt, context: Conversation, options: Sequence[str], scored: Mapping[str, Outcome]
    ) -> list[Outcome]:
        """Score the options that have no score yet, and return the outcomes of all options."""
        unscored = [option for option in dict.fromkeys(options) if option not in scored]
        outcomes = await asyncio.gather(*(self._whole(prompt, context, option) for option in unscored))
        by_option = {**scored, **dict(zip(unscored, outcomes, strict=True))}
        return [by_option[option] for option in options]

    async def _whole(self, prompt: ServedPrompt, context: Conversation, option: str) -> Outcome:
        try:
            return self._recorded(context, option, await self._route.whole(prompt, context, option))
        except BoundaryBroken as error:
            with contextlib.suppress(BadAnswer):  # token ids do not depend on the template
                return self._recorded(context, option, await self._by_ids.whole(prompt, context, option))
            return error
        except BadAnswer as error:
            return error

    def _recorded(self, context: Conversation, option: str, scored: Scored) -> Likelihood:
        likelihood, self._ids[context.ids[-_TAIL:], option] = scored
        self.ways[PROMPT_LOGPROBS] = self.ways.get(PROMPT_LOGPROBS, 0) + 1
        return likelihood

    # ---- next tokens ----

    async def _letters(
        self, prompt: ServedPrompt, ids_by_option: Mapping[str, Ids]
    ) -> tuple[Conversation | None, dict[str, Outcome] | None]:
        """Score options of one token each in one request, if the question ends like the first one."""
        tokens = sorted({ids[0] for ids in ids_by_option.values()})
        if len(tokens) > _MOST_IDS:
            return None, None
        try:
            context, next_token = await self._route.first_tokens(prompt, tokens)
        except (MissingField, Refused) as error:
            self._give_up_steps(str(error))
            return None, None
        if context.ids[-_TAIL:] != self._tail:
            return context, None
        scored: dict[str, Outcome] = {option: _summed(ids, [next_token]) for option, ids in ids_by_option.items()}
        return context, await self._compared(prompt, context, scored, "letters") or None

    async def _stepped(self, prompt: ServedPrompt, context: Conversation, options: Sequence[str]) -> dict[str, Outcome]:
        """Score all options token by token if that is cheaper, or none; common beginnings take one request."""
        option_ids = await self._option_ids(context, options)
        next_tokens: dict[Ids, set[int]] = {}
        example: dict[Ids, str] = {}  # an option that begins with these ids
        for option, ids in option_ids.items():
            for at, token in enumerate(ids):
                next_tokens.setdefault(ids[:at], set()).add(token)
                example[ids[:at]] = option
        is_cheaper = len(next_tokens) * _STEP_TOKENS < len(option_ids) * len(context.ids)
        if len(option_ids) < len(set(options)) or not (is_cheaper or self._way == TOKEN_BY_TOKEN):
            return {}
        if max(map(len, next_tokens.values())) > _MOST_IDS:
            return {}

        async def step(before: Ids) -> NextToken | BadAnswer:
            tokens = sorted(next_tokens[before])
            try:
                if before:
                    return await self._route.next_tokens(prompt, context, example[before], before, tokens)
                rendered, next_token = await self._route.first_tokens(prompt, tokens)
            except BadAnswer as error:
                return error
            return next_token if rendered == context else BadAnswer("the server rendered the same question in two ways")

        steps = await asyncio.gather(*map(step, next_tokens))
        results = {before: step for before, step in zip(next_tokens, steps, strict=True) if isinstance(step, NextToken)}
        for lacking in (step for step in steps if isinstance(step, MissingField | Refused)):
            self._give_up_steps(str(lacking))
        if len(results) < len(next_tokens):
            return {}
        scored: dict[str, Outcome] = {
            option: _summed(ids, [results[ids[:at]] for at in range(len(ids))]) for option, ids in option_ids.items()
        }
        return await self._compared(prompt, context, scored, TOKEN_BY_TOKEN)

    async def _option_ids(self, context: Conversation, options: Sequence[str]) -> dict[str, Ids]:
        """Return the ids of the options that do not merge with the question."""
        tail, tokenizer = context.ids[-_TAIL:], self._chat.tokenizer
        missing = [option for option in dict.fromkeys(options) if (tail, option) not in self._ids]
        if missing and context.text is not None and self._tokenizes:
            texts = [context.text, *(context.text + option for option in missing)]
            base: Ids = ()
            wholes: list[Ids] = []
            try:
                base, *wholes = await asyncio.gather(*map(tokenizer.ids, texts))
            except (MissingField, Refused):  # the ids of options that were scored remain
                self._tokenizes = False
            except BadAnswer:  # for this question alone
                return {}
            for option, whole in zip(missing, wholes, strict=False):
                apart = whole[: len(base)] == base and base[-_TAIL:] == tail and len(whole) > len(base)
                self._ids[tail, option] = whole[len(base) :] if apart else None
        return {option: ids for option in options if (ids := self._ids.get((tail, option)))}

    async def _compared(
        self, prompt: ServedPrompt, context: Conversation, scored: Mapping[str, Outcome], way: str
    ) -> dict[str, Outcome]:
        """Return the scores if those of the first question agree with ``prompt_logprobs``; else none."""
        async with self._comparing:
            if self._step_is_right is None and scored:
                whole = await asyncio.gather(*(self._whole(prompt, context, option) for option in scored))
                gaps = [
                    abs(stepped.mean - expected.mean) if stepped.tokens == expected.tokens else math.inf
                    for stepped, expected in zip(scored.values(), whole, strict=True)
                    if isinstance(stepped, Likelihood) and isinstance(expected, Likelihood)
                ]
                if gaps and max(gaps) > _TOLERANCE:
                    self._give_up_steps(f"scores differ from those of prompt_logprobs by {max(gaps):.2g} per token")
                elif gaps:
                    self._step_is_right = True
        if not self._step_is_right:
            return {}
        self.ways[way] = self.ways.get(way, 0) + len(scored)
        return dict(scored)

    def _give_up_steps(self, reason: str) -> None:
        if self._step_is_right is not False:
            self.slow = reason
            logger.info("options are scored one request each, which is slower: with logprob_token_ids, {}", reason)
        self._step_is_right = False


def _summed(ids: Ids, steps: Sequence[NextToken]) -> Likelihood:
    total = -math.fsum(step.logprobs[token] for token, step in zip(ids, steps, strict=True))
    return Likelihood(total, len(ids), all(step.greedy == token for token, step in zip(ids, steps, strict=True)))
