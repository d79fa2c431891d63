"""Base of the models in this process: four members make an adapter, everything else has a default."""

import abc
import dataclasses
import math
import operator
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

import torch
from lmms_eval.api.instance import GenerationResult
from loguru import logger
from PIL import Image
from tqdm import tqdm
from transformers import GenerationConfig, StoppingCriteriaList

from medtasks.extract.failure import failed_reply
from medtasks.net.journal import Journal

from .arguments import AdapterArguments
from .batch_runner import BatchBudget, BatchRunner, FailureLog, Work
from .batching import Continuation, Encoded, Likelihood, PaddedBatch, Spans, pad_left, score, split_continuation
from .caches import FeatureCache
from .device import choose_device
from .generation import (
    CountedReply,
    GenerationItem,
    GenerationSettings,
    StopStrings,
    count_reply,
    cut_reply,
    decoding_config,
    read_settings,
)
from .harness_adapter import HarnessAdapter, files_digest, weights_digest
from .prefixes import PrefixCache
from .requests import IMAGES, LoadedRequest, Request, RequestReader, image_names, plan_streams, read_requests
from .shared_scoring import Questions, score_by_question

Item = TypeVar("Item")
Result = TypeVar("Result")


class MedicalAdapter(HarnessAdapter, abc.ABC):
    """A model in this process.

    A new adapter has to know four members: :meth:`load`, :meth:`encode`, :meth:`score_batch` and
    :meth:`generate_batch`. The last two have defaults for a causal language model of transformers that reads image
    features in slots of its prompt (``slot_id``), which ``network.image_features`` computes.
    """

    arguments_type: ClassVar[type[AdapterArguments]] = AdapterArguments
    arguments: AdapterArguments
    device: torch.device  # of the model's inputs
    network: Any  # the weights, as :meth:`load` builds them
    visual_types: ClassVar[tuple[type, ...]] = IMAGES  # types that the model takes as image
    # The defaults of decoding and scoring need these.
    tokenizer: Any  # a tokenizer of transformers, whose ``decode`` turns ids into text
    pad_id: int  # token to fill up with
    slot_id: int  # token that image features replace
    stop_ids: Sequence[int]  # tokens that end a reply
    stop_strings: Sequence[str] = ()  # texts that end a reply, besides the task's
    keeps_decoding_settings: ClassVar[bool] = False  # whether penalties of the checkpoint's settings stay in force

    def __init__(self, **arguments: object) -> None:
        super().__init__(**arguments)
        self.device = choose_device(
            self.arguments.device, self.accelerator.device, self.accelerator.num_processes, self.model_id
        )
        self._features = FeatureCache(self.arguments.feature_cache_mb * 2**20)
        self._prefixes = PrefixCache(self.arguments.prefix_cache_mb * 2**20)
        self._last_prepared: tuple[tuple[Any, ...], torch.Tensor | None] | None = None
        self._journal: Journal | None = None
        self.load()

    # ---- the four members of a model ----

    @abc.abstractmethod
    def load(self) -> None:
        """Build tokenizer and weights on ``self.device``; weights are in attributes only, see ``clean``."""

    @abc.abstractmethod
    def encode(self, text: str, images: Sequence[Image.Image], reply: str = "") -> Encoded:
        """Turn a prompt, and the beginning of its reply, into model input; at least one token for empty texts.

        The ids without a reply have to be the first ids of those with one, up to what the tokenizer merges at the seam.
        """

    @torch.inference_mode()
    def score_batch(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score continuations, with sums and token counts; those of one question share the pass over their prompt."""
        if not self.arguments.prefix_cache:
            return self._score_whole(items)
        try:
            return self._score_shared(items)
        except Exception:
            self._prefixes.clear()  # a smaller batch has to find all of the memory
            raise

    @torch.inference_mode()
    def generate_batch(self, prompts: Sequence[Encoded], settings: GenerationSettings, seed: int) -> list[str]:
        """Generate replies in one go; texts that are ``CountedReply`` objects carry their token counts.

        The seed is used where ``settings`` ask for sampling; the global random state is left as it was. Decoding
        settings of the checkpoint are dropped for good, unless the model keeps them: the task alone decides.
        """
        if not self.keeps_decoding_settings:
            self.language_model.generation_config = GenerationConfig()
        batch = pad_left(prompts, self.pad_id, self.device)
        inputs = self.model_inputs(batch)
        inputs.pop("position_ids", None)  # transformers counts them itself, from the mask
        until = (*settings.until, *self.stop_strings)
        # transformers returns the prompt's ids as well where it was given ids.
        skip = batch.ids.shape[1] if "input_ids" in inputs else 0
        sampled = settings.temperature > 0
        devices = range(torch.cuda.device_count()) if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices, enabled=sampled):
            if sampled:
                torch.manual_seed(seed)
            ids = self.language_model.generate(
                **inputs,
                generation_config=decoding_config(settings, self.stop_ids, self.pad_id),
                stopping_criteria=StoppingCriteriaList([StopStrings(until, self.decode, skip)] if until else []),
            )
        return [
            CountedReply(
                cut_reply(row, self.decode, self.stop_ids, until),
                len(prompt.ids),
                count_reply(row, self.stop_ids, self.pad_id),
            )
            for prompt, row in zip(prompts, ids[:, skip:].tolist(), strict=True)
        ]

    # ---- what a model may say besides ----

    def encode_pair(self, context: str, continuation: str, images: Sequence[Image.Image]) -> Continuation:
        """Encode a prompt and the text to score after it; a ``ValueError`` where the continuation adds no token."""
        return split_continuation(self.encode(context, images), self.encode(context, images, continuation))

    def decode(self, ids: Sequence[int]) -> str:
        """Turn ids into text, without special tokens."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    @property
    def language_model(self) -> Any:
        """The transformers causal language model: called with ``logits_to_keep``, and asked to ``generate``."""
        return self.network.language_model

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of images, shape (images, ...) or (images * tokens, ...).

        Pixels are as in ``Encoded.pixels``, on ``self.device``. Called through :meth:`cached_features` with one image
        at a time, so that none can depend on its neighbours.
        """
        features: torch.Tensor = self.network.image_features(pixels)
        return features

    def model_inputs(self, batch: PaddedBatch, before: PaddedBatch | None = None) -> dict[str, Any]:
        """Return the keyword inputs of the language model for a batch, attention mask and positions included.

        Args:
            batch: Columns to read: whole prompts, or what follows columns that are in the cache.
            before: The prompts with all of their images where the beginning of them, or all, is in the cache.
        """
        embedded = self.language_model.get_input_embeddings()(batch.ids)
        features = [row.flatten(0, -2) for row in self.cached_features(batch.pixels) if row is not None]
        if features:
            slots = (batch.ids == self.slot_id) & batch.attention_mask[:, -batch.ids.shape[1] :].bool()
            embedded = embedded.masked_scatter(slots[..., None], torch.cat(features))
        return batch.inputs(inputs_embeds=embedded)

    def image_spans(self, prompt: Encoded) -> Spans | None:
        """Return per image, in order, the columns that depend on it directly: (first, after the last).

        With it, prompts of a batch that begin alike share the prefill of that prefix, which is cut at a border of these
        spans or outside of them. An image that no column shows has the span (0, 0). Where a prompt is not to share its
        prefix, return ``None``, the default, or anything but one span per image.
        """
        return None

    def position_shift(self, batch: PaddedBatch) -> torch.Tensor:
        """Return by how much the positions after prompts that were just read exceed their tokens, shape (batch, 1).

        Zero unless a model places images in two dimensions. On any device: to read it from a GPU is to wait for it.
        """
        return torch.zeros(len(batch.prompts), 1, dtype=torch.long)

    def fingerprint(self) -> str:
        """Return a digest of the weights and files that decide about answers; other values, other journal.

        By default some values of every tensor in the attributes, and the files that arguments name.
        """
        return weights_digest(self) + files_digest(self.arguments)

    # ---- help for models ----

    def prepared(
        self, images: Sequence[Any], prepare: Callable[[Sequence[Any]], torch.Tensor | None]
    ) -> torch.Tensor | None:
        """Return the result of ``prepare`` on images; the very images of the last call are not prepared again.

        Options of a question are encoded one after another with the same images, and ``prepare`` does the same to them.
        """
        last = self._last_prepared
        if last is None or len(last[0]) != len(images) or any(map(operator.is_not, last[0], images)):
            last = self._last_prepared = tuple(images), prepare(images)
        return last[1]

    def cached_features(self, pixels: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Return the ``image_features`` of every row of ``PaddedBatch.pixels``, each image computed at most once."""
        return self._features.features(pixels, lambda image: self.image_features(image.to(self.device)))

    # ---- the harness's calls ----

    def generate_until(self, requests: Sequence[Any]) -> list[str] | list[GenerationResult]:
        """Answer every request; a sample that fails gets a reply marked by ``failed_reply``.

        With ``token_counts`` the replies are the harness's ``GenerationResult``. More failures than ``max_failed``
        allows, or impossible ``generation_kwargs``, are a ``MedTasksError``.
        """
        read = self.read_generation(requests)
        alone = attrgetter("name", "repeat")

        def group(request: Request) -> tuple[object, ...]:
            settings = self._settings(request)
            # Sampled replies are drawn one by one: in a batch they would depend on their neighbours.
            return settings, alone(request) if settings.temperature > 0 else None

        def prepare(loaded: LoadedRequest) -> GenerationItem:
            request = loaded.request
            prompt = self.encode(request.context, list(loaded.visuals.images))
            return GenerationItem(prompt, self._settings(request), request.seed(self.arguments.seed))

        def execute(items: Sequence[GenerationItem]) -> list[CountedReply]:
            texts = self.generate_batch([item.prompt for item in items], items[0].settings, items[0].seed)
            return [text if isinstance(text, CountedReply) else CountedReply(text) for text in texts]

        work = Work(
            kind="generate_until",
            prepare=prepare,
            length=lambda item: len(item.prompt.ids),
            execute=execute,
            fallback=lambda cause: CountedReply(failed_reply(cause)),
            decisive=lambda loaded: (
                dataclasses.astuple(self._settings(loaded.request)),
                loaded.request.seed(self.arguments.seed),
            ),
            stored=lambda reply: {"text": str(reply), "counts": [reply.input_tokens, reply.output_tokens]},
            restored=lambda text, counts: CountedReply(text, *counts),
        )
        replies = self._run(work, read, plan_streams(read, group, alone))
        return self.handed_replies(read, replies)

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]] | list[tuple[str, dict[str, int]]]:
        """Score every continuation.

        The result is that of :meth:`handed_scores`. More failures than ``max_failed`` allows are a ``MedTasksError``.
        """
        read = read_requests(requests, "loglikelihood")
        work = Work(
            kind="loglikelihood",
            prepare=lambda loaded: self.encode_pair(
                loaded.request.context, loaded.continuation or "", list(loaded.visuals.images)
            ),
            length=lambda item: len(item.sequence.ids),
            execute=self.score_batch,
            fallback=lambda _: Likelihood(math.nan, 1, False),
            decisive=lambda loaded: loaded.continuation,
            stored=dataclasses.asdict,
            restored=Likelihood,
        )
        streams = plan_streams(read, lambda _: None, attrgetter("name", "repeat"))
        if self.arguments.prefix_cache:
            # What shares a prefix has to lie in one batch: the options of a question, questions on one image.
            place = attrgetter("task", "split", "doc_id", "context")
            streams = plan_streams(read, lambda _: None, place, image_names(self.task_dict))
        return self.handed_scores(self._run(work, read, streams))

    def clean(self) -> None:
        """Free the weights, and the features, keys and values that were kept."""
        self._features.clear()
        self._prefixes.clear()
        self._last_prepared = None
        super().clean()

    def _score_shared(self, items: Sequence[Continuation]) -> list[Likelihood]:
        return score_by_question(Questions.of(items, self), self, self._score_whole, self._prefixes)

    def _score_whole(self, items: Sequence[Continuation]) -> list[Likelihood]:
        def logits_of(batch: PaddedBatch, keep: int) -> torch.Tensor:
            inputs = self.model_inputs(batch)
            logits: torch.Tensor = self.language_model(**inputs, logits_to_keep=keep, use_cache=False).logits
            return logits

        return score(items, logits_of, self.pad_id, self.device)

    def _settings(self, request: Request) -> GenerationSettings:
        return read_settings(request.detail, self.arguments.max_new_tokens)

    def _run(
        self, work: Work[Item, Result], requests: Sequence[Request], streams: Sequence[Sequence[Sequence[int]]]
    ) -> list[Result]:
        reader = RequestReader(self.task_dict, work.kind == "loglikelihood", self.visual_types)
        failures = FailureLog(work.kind, sum(not request.padding for request in requests), self.arguments.max_failed)
        budget = BatchBudget(self.arguments.requests_per_batch, self.arguments.batch_tokens)
        if requests and self._journal is None:
            self._journal = self.open_journal(self.arguments, self.device.type, self.fingerprint)
        bar: tqdm[Any]
        with tqdm(
            total=len(requests), desc=f"{self.model_id} {work.kind}", unit="request", disable=self.rank != 0
        ) as bar:
            runner = BatchRunner(requests, work, reader, budget, failures, self._journal, bar)
            results = runner.run(streams)
        if runner.replayed and runner.journal is not None:
            answers = f"{runner.replayed} of {len(requests)} {work.kind} answers"
            logger.info("{} come from the journal at {}", answers, runner.journal.path)
        failures.settle()
        return results
