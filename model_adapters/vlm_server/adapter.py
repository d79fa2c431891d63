"""``vlm_server``: generation and likelihoods from a model on one or several OpenAI-compatible servers."""

import asyncio
import contextlib
import itertools
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from lmms_eval.api.instance import GenerationResult
from loguru import logger
from tqdm import tqdm

from medtasks.errors import MedTasksError, ModelRefused, near_match, warn_once
from medtasks.extract.failure import cut_reply, escaped_reply, failed_reply, reasoned_reply
from medtasks.net.journal import AsyncJournal, Entry, digest_of, journal_folder
from medtasks.net.servers import proven_build
from medtasks.prompts.instructions import is_instruction
from medtasks.prompts.messages import IMAGE_MARK, prompt_parts

from ..base.arguments import HarnessArguments
from ..base.batching import (
    CountedReply,
    GenerationSettings,
    Likelihood,
    before_stops,
    read_settings,
)
from ..base.harness_adapter import HarnessAdapter
from ..base.requests import (
    FailureLog,
    LoadedRequest,
    Request,
    RequestReader,
    plan_streams,
    read_requests,
)
from .messages import (
    POSSIBLY_SPECIAL,
    SURELY_SPECIAL,
    BadAnswer,
    JsonObject,
    Refused,
    ServedPrompt,
    ServerAnswer,
    reply_record,
)
from .option_scorer import LikelihoodsMissing, OptionScorer, Tokenizer
from .server_client import (
    REPLAYED,
    ServerGone,
    ServerPool,
    VlmServerArguments,
    check_arguments,
    check_given,
)

Result = TypeVar("Result")
# Models whose tokens of one image attend to each other in both directions.
_BIDIRECTIONAL = re.compile(r"gemma-?3(?!n)|medgemma|paligemma", re.IGNORECASE)
_FIRST = 8  # requests; if these all fail, the run stops


class VlmServer(HarnessAdapter):
    """A served model. Building one asks the servers which model they have, and sends no sample."""

    model_id: ClassVar[str] = "vlm_server"
    arguments_type: ClassVar[type[HarnessArguments]] = VlmServerArguments
    arguments: VlmServerArguments

    def __init__(self, **arguments: object) -> None:
        check_given(arguments)
        super().__init__(**arguments)
        check_arguments(self.arguments)
        has_journal = journal_folder(self.arguments.journal, self.model_id) is not None
        # A resumed run repeats one request to identify the server: so a kill costs no more than ``concurrency``.
        at_once = max(self.arguments.concurrency - has_journal, 1)
        self.pool = ServerPool(self.arguments.servers, at_once, self.arguments.attempts)
        # The guard for credentialed data finds the addresses of requests here.
        self.clients = [client for server in self.pool.servers for client in server.clients]
        self.loop = asyncio.Runner()
        self.model, self._reported_facts = self.loop.run(self._introduced())
        if has_journal:
            self.pool.open_journal = self._open_journal
        # No server reports whether its backend reads images in both directions, and one that cannot gives no error.
        root, model_type = str(self.facts.get("root") or ""), None
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            model_type = json.loads((Path(root) / "config.json").read_text(encoding="utf-8"))[
                "model_type"
            ]
        is_known = model_type in ("gemma3", "paligemma") or any(
            map(_BIDIRECTIONAL.search, (self.model, root))
        )
        if is_known and self.arguments.image_attention is None:
            raise ModelRefused(
                f"'{self.model}' reads its images in both directions, and servers do not report whether their "
                f"attention backend does: vLLM's Triton, Flex and FlashAttention 4 do, its CPU and AITER backends do "
                f"not and score wrongly without an error; add image_attention=bidirectional to --model_args if it "
                f"does, else run --model hf_vlm, or image_attention=causal for results that are marked"
            )
        is_causal = self.arguments.image_attention == "causal"
        self.remark = "images read in one direction only" if is_causal else ""  # of all results
        template = self.arguments.chat_template_kwargs
        fields = {"chat_template_kwargs": template} if template else {}
        self._fields: dict[str, Any] = {
            "model": self.model,
            **fields,
            **(self.arguments.extra_body or {}),
        }
        self._tokenizer = Tokenizer(self.pool, self.model)
        self._scorer: OptionScorer | None = None
        self._special: dict[str, bool] = {}
        self.harness_tasks: Mapping[str, Any] = {}  # by name, set before an evaluation

    def quote_errors(self, *, allowed: bool) -> None:
        """Set whether messages quote errors, also those of servers, which may repeat text of a sample."""
        super().quote_errors(allowed=allowed)
        self.pool.quotes = allowed

    @property
    def facts(self) -> dict[str, Any]:
        """Description of the model by its servers, with its build after the first answer."""
        return {**self._reported_facts, "build": self.pool.build}

    def generate_until(self, requests: Sequence[Any]) -> list[str] | list[GenerationResult]:
        """Answer every request; a failed sample has a marked reply; too many, or a server that is gone, end the run."""
        typed = self.read_generation(requests)
        if any(
            read_settings(request.detail, self.arguments.max_new_tokens).num_beams > 1
            for request in typed
        ):
            warn_once(
                f"{self.model_id} decodes without beam search, which servers do not offer over this interface"
            )
        units = plan_streams(typed, lambda _: None, attrgetter("name", "repeat"), self.task_dict)
        replies = self._run(
            "generate_until",
            typed,
            units,
            self._reply_to,
            lambda cause: CountedReply(failed_reply(cause)),
        )
        return self.handed_replies(typed, replies)

    def loglikelihood(
        self, requests: Sequence[Any]
    ) -> list[tuple[float, bool]] | list[tuple[str, dict[str, int]]]:
        """Score every continuation, see :meth:`handed_scores`.

        A server that cannot score, or does not put the answer directly after the prompt, is a ``MedTasksError`` before
        the first score; other errors are those of :meth:`generate_until`.
        """
        typed = read_requests(requests, "loglikelihood")
        question = attrgetter("task", "split", "doc_id", "context")
        (units,) = plan_streams(typed, lambda _: None, question, self.task_dict) or [[]]
        # The first question proves where answers begin: options with outer blanks, which a template may cut, go first.
        options = [request.detail if isinstance(request.detail, str) else "" for request in typed]
        units.sort(
            key=lambda unit: all(
                options[position] == options[position].strip() for position in unit
            )
        )
        if self._scorer is None:
            fields = {name: value for name, value in self._fields.items() if value is not None}
            self._scorer = OptionScorer(self._tokenizer, fields, self.arguments)
        scorer = self._scorer

        async def score(samples: Sequence[LoadedRequest]) -> list[Likelihood | BadAnswer]:
            options = [sample.continuation or "" for sample in samples]
            return await scorer.scores(await self._prompt(samples[0], options), options)

        scores = self._run(
            "loglikelihood", typed, [units], score, lambda _: Likelihood(math.nan, 1, False)
        )
        if scorer.ways:
            logger.info(
                "options scored: {}", ", ".join(f"{n} by {way}" for way, n in scorer.ways.items())
            )
        return self.handed_scores(scores)

    async def reply(
        self, prompt: ServedPrompt, settings: GenerationSettings, seed: int | None = None
    ) -> JsonObject:
        """Return the :func:`reply_record` of the answer to a prompt; errors as of ``ServerPool.ask``."""
        sampled = settings.temperature > 0
        fields = {
            "max_tokens": settings.max_new_tokens,
            "temperature": settings.temperature,
            "stop": list(settings.until) or None,
            "top_p": settings.top_p if sampled and settings.top_p < 1 else None,
            "top_k": settings.top_k if sampled and settings.top_k else None,
            "seed": seed,
            **self._fields,
        }
        fields = {name: value for name, value in fields.items() if value is not None}
        if (
            self.facts["owned_by"] == "vllm" and len(prompt.texts) > 1
        ):  # other servers may refuse unknown fields
            fields = {"return_prompt_text": True, **fields}

        def read(answer: ServerAnswer) -> JsonObject:
            prompt.check_places(answer)
            return reply_record(answer, self.model)

        return await self.pool.chat(prompt, fields, read)

    def clean(self) -> None:
        """Close the connections."""
        self.loop.run(self.pool.close())
        super().clean()

    # ---- samples ----

    async def _reply_to(self, samples: Sequence[LoadedRequest]) -> list[CountedReply]:
        (sample,) = samples
        request = sample.request
        settings = read_settings(request.detail, self.arguments.max_new_tokens)
        seed = request.seed(self.arguments.seed) if settings.temperature > 0 else None
        record = await self.reply(await self._prompt(sample), settings, seed)
        text = escaped_reply(before_stops(record["text"], settings.until).strip())
        if record["reasoning"]:
            text = reasoned_reply(record["reasoning"], text)
        return [CountedReply(cut_reply(text) if record["cut"] else text, *record["tokens"])]

    async def _prompt(self, sample: LoadedRequest, options: Sequence[str] = ()) -> ServedPrompt:
        """Return a sample's conversation; data that the model would read as a special token are a BadAnswer."""
        context, images = sample.request.context, sample.visuals.images
        parts = tuple(prompt_parts(context, len(images)))
        prompt = ServedPrompt(
            self.arguments.system_prompt, parts, images, tuple(sample.visuals.digests)
        )
        texts = [*prompt.texts, *options]
        for text in sorted(
            set(itertools.chain.from_iterable(map(POSSIBLY_SPECIAL.findall, texts)))
        ):
            if text not in self._special:
                try:
                    self._special[text] = len(await self._tokenizer.ids(text)) == 1
                except Refused:
                    self._special[text] = SURELY_SPECIAL.fullmatch(text) is not None
            if self._special[text] and not self._is_instruction(text, sample.request, options):
                raise BadAnswer(
                    f"the sample's text holds '{text}', which the served model does not read as text"
                )
        return prompt

    def _is_instruction(self, mark: str, request: Request, options: Sequence[str]) -> bool:
        if mark == IMAGE_MARK or any(mark in option for option in options):
            return False
        return is_instruction(
            mark, request.context, self.harness_tasks.get(request.task), request.doc_id
        )

    # ---- a call of the harness ----

    def _run(
        self,
        kind: str,
        requests: Sequence[Request],
        streams: Sequence[Sequence[Sequence[int]]],
        work: Callable[[Sequence[LoadedRequest]], Awaitable[Sequence[Any]]],
        fallback: Callable[[str], Result],
    ) -> list[Result]:
        """Do ``work`` on the samples of each unit of positions, ``concurrency`` units at once."""
        reader = RequestReader(self.task_dict, kind == "loglikelihood")
        request_count = sum(not request.padding for request in requests)
        failures = FailureLog(
            kind, request_count, self.arguments.max_failed, quotes=self.quotes_errors
        )
        results: dict[int, Result] = {}
        replayed = self.pool.replayed
        bar: tqdm[Any]

        def samples(unit: Sequence[int]) -> list[LoadedRequest]:
            loaded = [reader.read(requests[position]) for position in unit]
            assert loaded[0].visuals.digests is not None  # computed in this thread, too
            return loaded

        with (
            ThreadPoolExecutor(1, "samples") as reading,
            tqdm(
                total=len(requests),
                desc=f"{self.model_id} {kind}",
                unit="request",
                disable=self.rank != 0,
            ) as bar,
        ):

            async def do(unit: Sequence[int]) -> None:
                outcomes: Sequence[Any]
                entries: list[Entry] = []
                REPLAYED.set(entries)
                try:
                    loop = asyncio.get_running_loop()
                    outcomes = await work(await loop.run_in_executor(reading, samples, unit))
                except (ServerGone, LikelihoodsMissing):
                    raise
                except Exception as error:  # noqa: BLE001  # task code and image files can fail in any way
                    outcomes = [error] * len(unit)
                for position, outcome in zip(unit, outcomes, strict=True):
                    is_lost = isinstance(outcome, Exception)
                    results[position] = (
                        fallback(failures.record(requests[position], outcome))
                        if is_lost
                        else outcome
                    )
                journal = self.pool.journal
                if journal is not None and any(map(journal.journal.is_copy, entries)):
                    self.copied.update(
                        (requests[position].task, requests[position].doc_id) for position in unit
                    )
                if self.arguments.max_failed < 1:
                    failures.check_first(len(results), max(_FIRST, self.arguments.concurrency))
                bar.update(len(unit))

            try:
                self.loop.run(
                    _each(itertools.chain.from_iterable(streams), do, self.arguments.concurrency)
                )
            except ServerGone as error:
                journal = self.pool.journal
                saved = (
                    "no answer was kept"
                    if journal is None
                    else f"the answers so far are in {journal.journal.path}"
                )
                raise ServerGone(
                    f"{error}; the run stops, and {saved}. Fix that, and run the same command again"
                ) from None
        if self.pool.replayed > replayed and self.pool.journal is not None:
            logger.info(
                "{} answers come from {}",
                self.pool.replayed - replayed,
                self.pool.journal.journal.path,
            )
        failures.settle()
        return [results[position] for position in range(len(requests))]

    def _open_journal(self, build: str | None) -> AsyncJournal:
        """Open the journal of this model; addresses may change if the servers prove their weights."""
        is_proven = proven_build(build, self.facts["root"]) is not None
        arguments = replace(self.arguments, base_url="") if is_proven else self.arguments
        journal = self.open_journal(
            arguments, "server", lambda: digest_of({**self.facts, "build": build})
        )
        assert journal is not None
        return AsyncJournal(journal)

    # ---- the servers ----

    async def _introduced(self) -> tuple[str, Mapping[str, Any]]:
        """Ask each server for its model; returns its name and description. No sample is sent."""
        facts: list[dict[str, Any]] = []
        for client in self.pool.servers:
            server, listed = client.server.name, await self.pool.models(client)
            version = await self.pool.get(client, "/version")
            if listed is None and version is not None:
                raise MedTasksError(
                    f"{server} is there, but has no list of models; let base_url end in /v1"
                )
            models = listed or {}
            name = self.arguments.model or (next(iter(models)) if len(models) == 1 else "")
            names = f"; it has {', '.join(sorted(models)[:20])}" if models else ""
            if not name:
                raise MedTasksError(
                    f"{server} does not say which model is meant: give model= in --model_args{names}"
                )
            if models and name not in models:
                hint = near_match(name, models) or names
                raise MedTasksError(
                    f"{server} has no model '{name}'{hint}; give model= in --model_args"
                )
            card = models.get(name, {})
            described = {key: card.get(key) for key in ("root", "max_model_len", "owned_by")}
            build = version.get("version") if isinstance(version, dict) else None
            facts.append({"id": name, **described, "version": build})
        differing = [
            key
            for key in facts[0]
            if any(server_facts[key] != facts[0][key] for server_facts in facts)
        ]
        if differing:
            raise MedTasksError(
                f"the servers of base_url differ in {', '.join(differing)}; name servers of the same model only"
            )
        return str(facts[0]["id"]), facts[0]


async def _each(
    units: Iterable[Sequence[int]], do: Callable[[Sequence[int]], Awaitable[None]], workers: int
) -> None:
    """Process every unit, ``workers`` of them at once; the first error ends it."""
    remaining = iter(units)

    async def work() -> None:
        for unit in remaining:
            await do(unit)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
