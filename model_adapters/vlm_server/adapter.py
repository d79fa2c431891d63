"""``vlm_server``: generation and likelihoods from a model on one or several OpenAI-compatible servers.

The harness calls ``VlmServer``, and so does ``medtasks doctor``. No sample may be sent before a task asks for it, and a
reply that failed or was cut must never look like one that the model ended.
"""

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
from typing import Any, TypeVar

from lmms_eval.api.instance import GenerationResult
from loguru import logger

from medtasks.errors import MedTasksError, ModelRefused, near_match, warn_once
from medtasks.extract.failure import cut_reply, escaped_reply, failed_reply, reasoned_reply
from medtasks.net.journal import AsyncJournal, Entry, digest_of, journal_folder
from medtasks.net.servers import proven_build
from medtasks.prompts.instructions import is_instruction
from medtasks.prompts.messages import IMAGE_MARK, prompt_parts

from ..base.batching import (
    CountedReply,
    GenerationSettings,
    Likelihood,
    before_stops,
    read_settings,
)
from ..base.harness_adapter import HarnessAdapter, HarnessScores
from ..base.requests import (
    LoadedRequest,
    Request,
    RequestReader,
    Streams,
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
    refuse_api_key,
)

Result = TypeVar("Result")
Work = Callable[[Sequence[LoadedRequest]], Awaitable[Sequence[Any]]]
"""From the samples of a unit to their outcomes, of which each may be an error."""
# Models whose tokens of one image attend to each other in both directions.
_BIDIRECTIONAL = re.compile(r"gemma-?3(?!n)|medgemma|paligemma", re.IGNORECASE)
_FIRST = 8  # requests; if these all fail, the run stops


class VlmServer(HarnessAdapter):
    """A served model. Building one asks the servers which model they have, and sends no sample."""

    model_id = "vlm_server"
    arguments_type = VlmServerArguments
    arguments: VlmServerArguments

    def __init__(self, **arguments: object) -> None:
        refuse_api_key(arguments)
        super().__init__(**arguments)
        check_arguments(self.arguments)
        has_journal = journal_folder(self.arguments.journal, self.model_id) is not None
        # A resumed run repeats one request to identify the server: so a kill costs no more than ``concurrency``.
        at_once = max(self.arguments.concurrency - has_journal, 1)
        self.pool = ServerPool(self.arguments.servers, at_once, self.arguments.attempts)
        # The guard for credentialed data finds the addresses of requests here.
        self.clients = [client for server in self.pool.servers for client in server.clients]
        self.loop = asyncio.Runner()
        self.model, self._reported_facts = self.loop.run(self._ask_models())
        if has_journal:
            self.pool.open_journal = self._open_journal
        self._check_image_attention()
        is_causal = self.arguments.image_attention == "causal"
        self.remark = "images read in one direction only" if is_causal else ""  # of all results
        self._fields: dict[str, Any] = {
            "model": self.model,
            "chat_template_kwargs": self.arguments.chat_template_kwargs or None,
            **(self.arguments.extra_body or {}),
        }
        self._tokenizer = Tokenizer(self.pool, self.model)
        self._scorer = OptionScorer(
            self._tokenizer, _without_none(self._fields), self.arguments
        )
        self._special: dict[str, bool] = {}
        self.harness_tasks: Mapping[str, Any] = {}  # by name, set before an evaluation

    def _check_image_attention(self) -> None:
        """Refuse a model that reads images in both directions, unless the user says whether its server does.

        No server reports it, and a server that cannot do so gives no error.

        Raises:
            ModelRefused: The user does not say.
        """
        if self.arguments.image_attention is not None:
            return
        root = str(self.facts.get("root") or "")
        model_type = None
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            config = json.loads((Path(root) / "config.json").read_text(encoding="utf-8"))
            model_type = config["model_type"]
        is_bidirectional = model_type in ("gemma3", "paligemma")
        if is_bidirectional or any(map(_BIDIRECTIONAL.search, (self.model, root))):
            raise ModelRefused(
                f"'{self.model}' reads its images in both directions, and servers do not report whether their "
                f"attention backend does: vLLM's Triton, Flex and FlashAttention 4 do, its CPU and AITER backends do "
                f"not and score wrongly without an error; add image_attention=bidirectional to --model_args if it "
                f"does, else run --model hf_vlm, or image_attention=causal for results that are marked"
            )

    def quote_errors(self, *, allowed: bool) -> None:
        """Set whether messages quote errors, also those of servers, which may repeat text of a sample."""
        super().quote_errors(allowed=allowed)
        self.pool.quotes = allowed

    @property
    def facts(self) -> dict[str, Any]:
        """Description of the model by its servers, with its build after the first answer."""
        return {**self._reported_facts, "build": self.pool.build}

    def generate_until(self, requests: Sequence[Any]) -> list[str] | list[GenerationResult]:
        """Answer every request of the harness.

        Args:
            requests: The harness's ``Instance`` objects.

        Returns:
            One reply per request, marked where it failed or was cut, as the harness takes them
            (:meth:`format_replies`).

        Raises:
            MedTasksError: Too many failed, or all servers are gone.
        """
        typed = self.read_generation(requests)
        limit = self.arguments.max_new_tokens
        if any(read_settings(request.detail, limit).num_beams > 1 for request in typed):
            warn_once(
                f"{self.model_id} decodes without beam search, which servers do not offer over this interface"
            )
        # One stream. Every request is a unit of its own, and requests on one image follow each other.
        streams = plan_streams(
            typed, lambda _: None, attrgetter("name", "repeat"), self.task_dict
        )
        replies = self._run(
            "generate_until",
            typed,
            streams,
            self._reply_to,
            fallback=lambda cause: CountedReply(failed_reply(cause)),
        )
        return self.format_replies(typed, replies)

    def loglikelihood(self, requests: Sequence[Any]) -> HarnessScores:
        """Score every continuation that the harness asks for.

        Args:
            requests: The harness's ``Instance`` objects.

        Returns:
            One score per request, in the form of :meth:`format_scores`.

        Raises:
            MedTasksError: Before the first score, if the server cannot score, or does not put the answer directly after
                the prompt. Later, if too many requests failed, or all servers are gone.
        """
        typed = read_requests(requests, "loglikelihood")
        question = attrgetter("task", "split", "doc_id", "context")
        streams = plan_streams(typed, lambda _: None, question, self.task_dict)

        def is_stripped(unit: Sequence[int]) -> bool:
            details = [typed[position].detail for position in unit]
            return all(text == text.strip() for text in details if isinstance(text, str))

        # The first question proves where answers begin: options with outer blanks, which a template may cut, go first.
        for units in streams:  # one at most
            units.sort(key=is_stripped)

        async def score(samples: Sequence[LoadedRequest]) -> list[Likelihood | BadAnswer]:
            options = [sample.continuation or "" for sample in samples]
            return await self._scorer.score_options(
                await self._prompt(samples[0], options), options
            )

        scores = self._run(
            "loglikelihood",
            typed,
            streams,
            score,
            fallback=lambda _: Likelihood(math.nan, 1, False),
        )
        if self._scorer.ways:
            logger.info(
                "options scored: {}",
                ", ".join(f"{count} by {way}" for way, count in self._scorer.ways.items()),
            )
        return self.format_scores(scores)

    async def reply(
        self,
        prompt: ServedPrompt,
        settings: GenerationSettings,
        seed: int | None = None,
    ) -> JsonObject:
        """Ask for one reply, and return its :func:`reply_record`.

        Args:
            prompt: Conversation with its images.
            settings: Length limit, stop strings and sampling.
            seed: Seed for sampling; ``None`` for a greedy reply.

        Raises:
            BadAnswer: This prompt cannot be answered.
            ServerGone: None can.
        """
        is_sampled = settings.temperature > 0
        fields = _without_none(
            {
                "max_tokens": settings.max_new_tokens,
                "temperature": settings.temperature,
                "stop": list(settings.until) or None,
                "top_p": settings.top_p if is_sampled and settings.top_p < 1 else None,
                "top_k": settings.top_k if is_sampled and settings.top_k else None,
                "seed": seed,
                **self._fields,
            }
        )
        # Other servers may refuse fields that they do not know.
        if self.facts["owned_by"] == "vllm" and len(prompt.texts) > 1:
            fields = {"return_prompt_text": True, **fields}

        def parse(answer: ServerAnswer) -> JsonObject:
            prompt.check_places(answer)
            return reply_record(answer, self.model)

        return await self.pool.chat(prompt, fields, parse)

    def clean(self) -> None:
        """Close the connections."""
        self.loop.run(self.pool.close())
        super().clean()

    # ---- samples ----

    async def _reply_to(self, samples: Sequence[LoadedRequest]) -> list[CountedReply]:
        """Answer the only sample of a unit, with marks for a cut and for reasoning."""
        (sample,) = samples
        request = sample.request
        settings = read_settings(request.detail, self.arguments.max_new_tokens)
        seed = request.seed(self.arguments.seed) if settings.temperature > 0 else None
        record = await self.reply(await self._prompt(sample), settings, seed)
        text = escaped_reply(before_stops(record["text"], settings.until).strip())
        if record["reasoning"]:
            text = reasoned_reply(record["reasoning"], text)
        if record["cut"]:
            text = cut_reply(text)
        return [CountedReply(text, *record["tokens"])]

    async def _prompt(self, sample: LoadedRequest, options: Sequence[str] = ()) -> ServedPrompt:
        """Return a sample's conversation. Data that the model would read as a special token are a BadAnswer."""
        request = sample.request
        images = sample.visuals.images
        parts = tuple(prompt_parts(request.context, len(images)))
        prompt = ServedPrompt(
            self.arguments.system_prompt, parts, images, tuple(sample.visuals.digests)
        )
        texts = (*prompt.texts, *options)
        marks = itertools.chain.from_iterable(map(POSSIBLY_SPECIAL.findall, texts))
        for mark in sorted(set(marks)):
            if mark not in self._special:
                try:
                    self._special[mark] = len(await self._tokenizer.ids(mark)) == 1
                except Refused:
                    self._special[mark] = SURELY_SPECIAL.fullmatch(mark) is not None
            if not self._special[mark]:
                continue
            is_data = mark == IMAGE_MARK or any(mark in option for option in options)
            task = self.harness_tasks.get(request.task)
            if is_data or not is_instruction(mark, request.context, task, request.doc_id):
                raise BadAnswer(
                    f"the sample's text holds '{mark}', which the served model does not read as text"
                )
        return prompt

    # ---- a call of the harness ----

    def _run(
        self,
        kind: str,
        requests: Sequence[Request],
        streams: Streams,
        work: Work,
        fallback: Callable[[str], Result],
    ) -> list[Result]:
        """Do ``work`` on the samples of each unit of positions, ``concurrency`` units at once."""
        reader = RequestReader(self.task_dict, kind == "loglikelihood")
        failures = self.open_failure_log(kind, requests)
        results: dict[int, Result] = {}
        replayed = self.pool.replayed

        def load(unit: Sequence[int]) -> list[LoadedRequest]:
            loaded = [reader.read(requests[position]) for position in unit]
            assert loaded[0].visuals.digests is not None  # computed in this thread, too
            return loaded

        async def do(unit: Sequence[int]) -> None:
            """Process one unit, and keep one outcome per sample."""
            entries: list[Entry] = []
            REPLAYED.set(entries)
            loading = asyncio.get_running_loop().run_in_executor(reading, load, unit)
            outcomes: Sequence[Any]
            try:
                outcomes = await work(await loading)
            except (ServerGone, LikelihoodsMissing):
                raise
            except Exception as error:  # noqa: BLE001  # task code and image files can fail in any way
                outcomes = [error] * len(unit)
            for position, outcome in zip(unit, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    outcome = fallback(failures.record(requests[position], outcome))
                results[position] = outcome
            if self._is_copied(entries):
                request = requests[unit[0]]  # all of them are on one document
                self.copied.add((request.task, request.doc_id))
            if self.arguments.max_failed < 1:
                failures.check_first(len(results), max(_FIRST, self.arguments.concurrency))
            bar.update(len(unit))

        with (
            ThreadPoolExecutor(1, "samples") as reading,
            self.open_progress(kind, len(requests)) as bar,
        ):
            self._run_units(itertools.chain.from_iterable(streams), do)
        count = self.pool.replayed - replayed
        if count and self.pool.journal is not None:
            logger.info("{} answers come from {}", count, self.pool.journal.journal.path)
        failures.settle()
        return [results[position] for position in range(len(requests))]

    def _run_units(
        self,
        units: Iterable[Sequence[int]],
        do: Callable[[Sequence[int]], Awaitable[None]],
    ) -> None:
        """Process every unit, ``concurrency`` of them at once, until the first error.

        Raises:
            ServerGone: All servers are gone. The message says where the answers so far are.
        """
        remaining = iter(units)

        async def work() -> None:
            for unit in remaining:
                await do(unit)

        async def work_at_once() -> None:
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(self.arguments.concurrency):
                        group.create_task(work())
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None

        try:
            self.loop.run(work_at_once())
        except ServerGone as error:
            saved = "no answer was kept"
            if self.pool.journal is not None:
                saved = f"the answers so far are in {self.pool.journal.journal.path}"
            raise ServerGone(
                f"{error}; the run stops, and {saved}. Fix that, and run the same command again"
            ) from None

    def _is_copied(self, entries: Iterable[Entry]) -> bool:
        """Return whether another run asked for one of the answers."""
        journal = self.pool.journal
        return journal is not None and any(map(journal.journal.is_copy, entries))

    def _open_journal(self, build: str | None) -> AsyncJournal:
        """Open the journal of this model. Addresses may change if the servers prove their weights."""
        arguments = self.arguments
        if proven_build(build, self.facts["root"]) is not None:
            arguments = replace(arguments, base_url="")
        facts = {**self.facts, "build": build}
        journal = self.open_journal(arguments, "server", lambda: digest_of(facts))
        assert journal is not None
        return AsyncJournal(journal)

    # ---- the servers ----

    async def _ask_models(self) -> tuple[str, Mapping[str, Any]]:
        """Ask each server for its model, without sending a sample.

        Returns:
            The model's name and description.

        Raises:
            MedTasksError: An address is no server of models, the model is unclear or unknown, or servers differ.
            ServerGone: A server does not answer.
        """
        facts: list[dict[str, Any]] = []
        for client in self.pool.servers:
            server = client.server.name
            listed = await self.pool.models(client)
            version = await self.pool.get(client, "/version")
            if listed is None and version is not None:
                raise MedTasksError(
                    f"{server} is there, but has no list of models; let base_url end in /v1"
                )
            models = listed or {}
            name = self._name_of(models, server)
            card = models.get(name, {})
            described = {key: card.get(key) for key in ("root", "max_model_len", "owned_by")}
            build = version.get("version") if isinstance(version, dict) else None
            facts.append({"id": name, **described, "version": build})
        first = facts[0]
        differing = [key for key in first if any(other[key] != first[key] for other in facts)]
        if differing:
            raise MedTasksError(
                f"the servers of base_url differ in {', '.join(differing)}; name servers of the same model only"
            )
        return str(first["id"]), first

    def _name_of(self, models: Mapping[str, Any], server: str) -> str:
        """Return the name of the model that is meant, which a server that lists its models has to have.

        Args:
            models: Models of the server by name, empty if it lists none.
            server: Name of the server, for messages.

        Raises:
            MedTasksError: No model is named and the server has not exactly one, or it lacks the named one.
        """
        names = f"; it has {', '.join(sorted(models)[:20])}" if models else ""
        name = self.arguments.model
        if not name and len(models) == 1:
            name = next(iter(models))
        if not name:
            raise MedTasksError(
                f"{server} does not say which model is meant: give model= in --model_args{names}"
            )
        if models and name not in models:
            hint = near_match(name, models) or names
            raise MedTasksError(
                f"{server} has no model '{name}'{hint}; give model= in --model_args"
            )
        return name


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
