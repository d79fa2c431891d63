"""Likelihoods by SGLang's own ``/generate``, from its documentation; never run here, as there is no CPU build.

The prompt is rendered in this process, by the model's own processor, because SGLang's chat route tokenises the
beginning of a reply apart from its prompt. Its number of tokens is compared with the server's.
https://docs.sglang.ai/basic_usage/native_api.html
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

from medtasks.errors import AdapterArgumentError

from ..base.batching import Likelihood, common_length
from .messages import BadAnswer, MissingField, Record, Refused, ServedPrompt, checked_logprob, choice_of
from .option_scorer import LikelihoodsMissing, Outcome
from .server_client import ServerPool, VlmServerArguments

_GENERATE = "/generate"
_MERGED = 4  # tokens of the prompt that a tokenizer may merge with what follows


class SglangScorer:
    """Scores options after a cached question: one request for the question and one per option."""

    def __init__(self, pool: ServerPool, model: str, arguments: VlmServerArguments) -> None:
        if not arguments.pretrained:
            raise LikelihoodsMissing(
                "SGLang scores options only after a prompt that is rendered here; give pretrained=<folder or hub id> "
                "of the served model in --model_args, whose processor files are read"
            )
        if arguments.system_prompt or arguments.chat_template_kwargs:
            raise AdapterArgumentError(
                "vlm_server: with SGLang options are scored without system_prompt and chat_template_kwargs; leave "
                "them out."
            )
        self._pool, self._model, self._arguments = pool, model, arguments
        # Imported here because only SGLang's prompts are rendered in this process.
        from ..hf_vlm.encoding import PromptWriter, Template
        from ..hf_vlm.loading import HfVlmArguments, load_processor

        processor = load_processor(HfVlmArguments(pretrained=arguments.pretrained))
        self._writer = PromptWriter(processor, Template(), arguments.pretrained)
        self._image_token = str(getattr(processor, "image_token", None) or "")
        self._proven = False
        self.ways: dict[str, int] = {}

    async def scores(self, prompt: ServedPrompt, options: Sequence[str]) -> list[Outcome]:
        """Score the options of one question; one that cannot be scored is an error in its place."""
        try:
            context, tokens = await self._context(prompt)
        except (MissingField, Refused) as error:
            raise LikelihoodsMissing(f"the server gives no likelihoods: {error}") from None
        return list(await asyncio.gather(*(self._score(prompt, context, tokens, option) for option in options)))

    async def _context(self, prompt: ServedPrompt) -> tuple[str, int]:
        """Return the rendered question and its number of tokens, which has to be that of the chat route."""
        marks = "".join(self._image_token if part is None else part for part in prompt.parts)
        first = [None] * len(prompt.images) == list(prompt.parts[: len(prompt.images)])
        context = self._writer.write("".join(prompt.texts) if first else marks, len(prompt.images))

        def counted(answer: Mapping[str, Any]) -> Record:
            choice_of(answer, self._model)
            return {"tokens": _whole_number((answer.get("usage") or {}).get("prompt_tokens"))}

        fields = {"model": self._model, "max_tokens": 1, "temperature": 0}
        (ours, _), theirs = await asyncio.gather(
            self._ask(prompt, context, None, 1), self._pool.chat(prompt, fields, counted)
        )
        if ours != theirs["tokens"]:
            cause = f"{self._arguments.pretrained} makes {ours} tokens of the prompt, the server {theirs['tokens']}"
            if self._proven:
                raise BadAnswer(cause)
            raise LikelihoodsMissing(
                f"{cause}, so that options would be scored after another prompt; give the processor of the served "
                f"model as pretrained="
            )
        self._proven = True
        return context, ours

    async def _score(self, prompt: ServedPrompt, context: str, tokens: int, option: str) -> Outcome:
        before, whole = self._writer.ids(context), self._writer.ids(context + option)
        common = common_length(before, whole)
        targets = whole[common:]
        if not targets or common == 0:
            return BadAnswer("the option adds no token to the question")
        start = max(tokens - len(before) + common - _MERGED, 0)
        try:
            count, scored = await self._ask(prompt, context + option, start, len(targets))
        except BadAnswer as error:
            return error
        if count != tokens - len(before) + len(whole) or [token for token, _, _ in scored] != targets:
            return BadAnswer("the server made other tokens of the option than the model's tokenizer")
        self.ways["sglang"] = self.ways.get("sglang", 0) + 1
        return Likelihood(
            -math.fsum(value for _, value, _ in scored), len(scored), all(token == best for token, _, best in scored)
        )

    async def _ask(
        self, prompt: ServedPrompt, text: str, start: int | None, last: int
    ) -> tuple[int, list[tuple[int, float, int]]]:
        """Return a prompt's number of tokens, and id, log-probability and likeliest id of its last tokens.

        ``start`` is the position up to which the prompt may come from the cache; without it nothing is scored.
        """

        def body(urls: Sequence[str]) -> Record:
            scoring = {"return_logprob": True, "logprob_start_len": start, "top_logprobs_num": 1}
            return {
                "text": text,
                **({"image_data": list(urls)} if urls else {}),
                "sampling_params": {"max_new_tokens": 1 if start is None else 0, "temperature": 0},
                **({} if start is None else scoring),
            }

        def read(answer: Mapping[str, Any]) -> Record:
            info = answer.get("meta_info")
            if not isinstance(info, dict):
                raise MissingField("the server's answer lacks meta_info")
            tokens = _whole_number(info.get("prompt_tokens"))
            if start is None:
                return {"tokens": tokens, "last": []}
            scored, best = info.get("input_token_logprobs"), info.get("input_top_logprobs")
            if not isinstance(scored, list) or not isinstance(best, list) or min(len(scored), len(best)) < last:
                raise MissingField("the server's answer lacks input_token_logprobs or input_top_logprobs")
            # Positions count every image expanded, and image ids differ from those sent: only the end counts.
            try:
                ends = [
                    (_whole_number(token[1]), checked_logprob(token[0]), _whole_number(top[0][1]))
                    for token, top in zip(scored[-last:], best[-last:], strict=True)
                ]
            except (TypeError, IndexError, KeyError):
                raise BadAnswer("the server's log-probabilities have another form than documented") from None
            return {"tokens": tokens, "last": ends}

        record = await self._pool.ask(_GENERATE, prompt, body, read)
        return record["tokens"], [(token, value, best) for token, value, best in record["last"]]


def _whole_number(value: object) -> int:
    if type(value) is not int:
        raise MissingField("the server's answer lacks a number of tokens or a token's id")
    return value
