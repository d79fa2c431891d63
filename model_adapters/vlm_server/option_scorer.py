"""Likelihoods of options by whichever exact way costs a server least, found out on the first question."""

import asyncio
import contextlib
import math
from collections.abc import Mapping, Sequence

from loguru import logger

from medtasks.errors import MedTasksError

from ..base.batching import Likelihood
from .answers import Conversation, MissingField, NextToken
from .prompts import ServedPrompt
from .routes import Boundary, BoundaryBroken, Ids, OpenTurn, Route, TokenIds, remedy
from .server_arguments import PROMPT_LOGPROBS, TOKEN_BY_TOKEN, TOKEN_IDS, VlmServerArguments
from .server_client import BadAnswer, Refused

_MOST_IDS = 128  # of logprob_token_ids in one request
_TAIL = 4  # ids before an option that decide about its own
# Nats per token by which two ways may differ: half precision rounds logits that coarsely.
_TOLERANCE = 0.1
# What one more request on a cached prefix costs, in tokens of a prompt that is read anew: measured, see benchmarks.
_STEP_TOKENS = 40

Outcome = Likelihood | BadAnswer
Scored = tuple[Likelihood, Ids | None]
"""A likelihood, and the ids of its option unless they merge with the question's."""


class LikelihoodsMissing(MedTasksError):
    """The server cannot score options."""


class OptionScorer:
    """Scores the options of questions.

    Three ways: all first tokens of the options in one request, where every option is one token; token by token after
    the cached question, where that is shorter; and one request per option, which reads the question anew. The first
    question is scored by the last of them, which proves where the answer begins, and each other way once next to it.
    """

    def __init__(self, chat: OpenTurn, by_ids: TokenIds, arguments: VlmServerArguments, server: str) -> None:
        self._chat, self._by_ids = chat, by_ids
        self._way, self._server = arguments.likelihood, server
        self._route: Route = by_ids if arguments.likelihood == TOKEN_IDS else chat
        self._proven = False
        self._proving, self._comparing = asyncio.Lock(), asyncio.Lock()
        self._step_is_right: bool | None = None  # whether token by token gives what prompt_logprobs gives
        self._tokenizes = True  # whether the server tells the ids of a text
        self._ids: dict[tuple[Ids, str], Ids | None] = {}  # of options after the same last ids
        self._tail: Ids = ()
        self.ways: dict[str, int] = {}  # options scored, by way
        self.blame = ""  # what the chat template does, for which options are sent as token ids
        self.slow = ""  # why no option is scored by next tokens

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
        known = {option: ids for option in options if (ids := self._ids.get((self._tail, option)))}
        if may_step and known.keys() == set(options) and all(len(ids) == 1 for ids in known.values()):
            context, scored = await self._letters(prompt, known)
            if scored is not None:
                return [scored[option] for option in options]
            may_step = self._step_is_right is not False
        context = context or await self._route.conversation(prompt)
        # Whether stepping could be cheaper even if each option had two tokens.
        may_pay = _STEP_TOKENS * (len(options) + 1) < len(options) * len(context.ids)
        may_step = may_step and (may_pay or self._way == TOKEN_BY_TOKEN)
        scored = await self._stepped(prompt, context, options) if may_step else {}
        left = [option for option in dict.fromkeys(options) if option not in scored]
        return await self._scored_whole(prompt, context, left, options, scored)

    @property
    def boundary(self) -> Boundary:
        """Change to an option sent as text, so that it follows the question directly."""
        return self._chat.boundary

    # ---- the first question ----

    async def _prove(self, prompt: ServedPrompt, options: Sequence[str]) -> list[Outcome]:
        """Score the first question, by token ids if a template stands in the way of text."""
        shown = max(options, key=lambda one: (one != one.strip(), -len(one)))
        try:
            context = await self._route.conversation(prompt)
            first = await self._proven_score(prompt, context, shown)
        except MissingField as error:
            raise LikelihoodsMissing(
                f"{self._server} gives no likelihoods: {error}. Servers and routers ignore fields that they do not "
                f"know; ask vLLM 0.10.2 or later, not by way of sglang-router, or run the model with --model hf_vlm"
            ) from None
        self._tail, self._proven = context.ids[-_TAIL:], True
        others = [option for option in dict.fromkeys(options) if option != shown]
        return await self._scored_whole(prompt, context, others, options, {shown: self._noted(context, shown, first)})

    async def _proven_score(self, prompt: ServedPrompt, context: Conversation, option: str) -> Scored:
        try:
            return await self._route.whole(prompt, context, option)
        except Refused as error:
            if self._route is self._by_ids:
                raise LikelihoodsMissing(f"{error}; start it with --enable-scale-out") from None
            blame = "refuses an open assistant turn"
        except BoundaryBroken as broken:
            found = remedy(context.text or "", broken.rendered, option) if context.text else "cannot be looked at"
            if not isinstance(found, str):
                self._chat.boundary = found
                return await self._chat.whole(prompt, context, option)
            blame = found
        try:
            scored = await self._by_ids.whole(prompt, context, option)
        except Refused:
            raise LikelihoodsMissing(
                f"{self._server} cannot score options: the chat template of its model {blame}, so that they would be "
                f"scored behind another prompt; serve it with --enable-scale-out, which takes token ids, or with "
                f"another --chat-template, or where thoughts are to blame give "
                f'chat_template_kwargs={{"enable_thinking":false}} in --model_args'
            ) from None
        logger.info("options are sent as token ids: the chat template of the served model {}", blame)
        self._route, self.blame = self._by_ids, blame
        return scored

    # ---- one request per option ----

    async def _scored_whole(
        self,
        prompt: ServedPrompt,
        context: Conversation,
        left: Sequence[str],
        options: Sequence[str],
        scored: Mapping[str, Outcome],
    ) -> list[Outcome]:
        """Score the options that are left, and return the outcomes of all of them."""
        outcomes = await asyncio.gather(*(self._whole(prompt, context, option) for option in left))
        by_option = {**scored, **dict(zip(left, outcomes, strict=True))}
        return [by_option[option] for option in options]

    async def _whole(self, prompt: ServedPrompt, context: Conversation, option: str) -> Outcome:
        try:
            return self._noted(context, option, await self._route.whole(prompt, context, option))
        except BoundaryBroken as error:
            with contextlib.suppress(BadAnswer):  # token ids say what this template cannot
                return self._noted(context, option, await self._by_ids.whole(prompt, context, option))
            return error
        except BadAnswer as error:
            return error

    def _noted(self, context: Conversation, option: str, scored: Scored) -> Likelihood:
        likelihood, self._ids[context.ids[-_TAIL:], option] = scored
        self.ways[PROMPT_LOGPROBS] = self.ways.get(PROMPT_LOGPROBS, 0) + 1
        return likelihood

    # ---- next tokens ----

    async def _letters(
        self, prompt: ServedPrompt, known: Mapping[str, Ids]
    ) -> tuple[Conversation | None, dict[str, Outcome] | None]:
        """Score options of one token each in one request, if the question ends like the first one."""
        wanted = sorted({ids[0] for ids in known.values()})
        if len(wanted) > _MOST_IDS:
            return None, None
        try:
            context, found = await self._route.first_tokens(prompt, wanted)
        except (MissingField, Refused) as error:
            self._give_up_steps(str(error))
            return None, None
        if context.ids[-_TAIL:] != self._tail:
            return context, None
        scored: dict[str, Outcome] = {option: _summed(ids, [found]) for option, ids in known.items()}
        return context, await self._compared(prompt, context, scored, "letters") or None

    async def _stepped(self, prompt: ServedPrompt, context: Conversation, options: Sequence[str]) -> dict[str, Outcome]:
        """Score options token by token if that is cheaper, all of them or none; common beginnings are asked once."""
        ids = await self._option_ids(context, options)
        wanted: dict[Ids, set[int]] = {}
        asked: dict[Ids, str] = {}  # an option that begins so
        for option, own in ids.items():
            for place, token in enumerate(own):
                wanted.setdefault(own[:place], set()).add(token)
                asked[own[:place]] = option
        is_cheaper = len(wanted) * _STEP_TOKENS < len(ids) * len(context.ids)
        if len(ids) < len(set(options)) or not (is_cheaper or self._way == TOKEN_BY_TOKEN):
            return {}
        if max(map(len, wanted.values())) > _MOST_IDS:
            return {}

        async def step(before: Ids) -> NextToken | BadAnswer:
            tokens = sorted(wanted[before])
            try:
                if before:
                    return await self._route.next_tokens(prompt, context, asked[before], before, tokens)
                again, next_token = await self._route.first_tokens(prompt, tokens)
            except BadAnswer as error:
                return error
            return next_token if again == context else BadAnswer("the server rendered the same question in two ways")

        steps = await asyncio.gather(*map(step, wanted))
        found = {before: step for before, step in zip(wanted, steps, strict=True) if isinstance(step, NextToken)}
        for lacking in (step for step in steps if isinstance(step, MissingField | Refused)):
            self._give_up_steps(str(lacking))
        if len(found) < len(wanted):
            return {}
        scored: dict[str, Outcome] = {
            option: _summed(own, [found[own[:place]] for place in range(len(own))]) for option, own in ids.items()
        }
        return await self._compared(prompt, context, scored, TOKEN_BY_TOKEN)

    async def _option_ids(self, context: Conversation, options: Sequence[str]) -> dict[str, Ids]:
        """Return the ids of options after a question, of those that do not merge with it."""
        tail, tokenizer = context.ids[-_TAIL:], self._chat.tokenizer
        missing = [option for option in dict.fromkeys(options) if (tail, option) not in self._ids]
        if missing and context.text is not None and self._tokenizes:
            texts = [context.text, *(context.text + option for option in missing)]
            base: Ids = ()
            wholes: list[Ids] = []
            try:
                base, *wholes = await asyncio.gather(*map(tokenizer.ids, texts))
            except (MissingField, Refused):  # ids of options that were scored are known, so that letters remain
                self._tokenizes = False
            except BadAnswer:  # of this question alone
                return {}
            for option, whole in zip(missing, wholes, strict=False):
                apart = whole[: len(base)] == base and base[-_TAIL:] == tail and len(whole) > len(base)
                self._ids[tail, option] = whole[len(base) :] if apart else None
        return {option: ids for option in options if (ids := self._ids.get((tail, option)))}

    async def _compared(
        self, prompt: ServedPrompt, context: Conversation, scored: Mapping[str, Outcome], way: str
    ) -> dict[str, Outcome]:
        """Return scores if stepping gives those of ``prompt_logprobs``, which the first ones tell; else none."""
        async with self._comparing:
            if self._step_is_right is None and scored:
                whole = await asyncio.gather(*(self._whole(prompt, context, option) for option in scored))
                gaps = [
                    abs(one.mean - other.mean) if one.tokens == other.tokens else math.inf
                    for one, other in zip(scored.values(), whole, strict=True)
                    if isinstance(one, Likelihood) and isinstance(other, Likelihood)
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
