"""Base of the models in this process: an adapter has four members, everything else has a default."""

import abc
import dataclasses
import hashlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, is_not
from pathlib import Path
from typing import Any, ClassVar

import torch
from lmms_eval.api.instance import GenerationResult
from loguru import logger
from PIL import Image
from torch import nn
from tqdm import tqdm
from transformers import GenerationConfig, StoppingCriteriaList

from medtasks.extract.failure import escaped_reply, failed_reply
from medtasks.net.journal import Journal, digest_of
from medtasks.version import require

from .arguments import AdapterArguments, choose_device
from .batching import (
    Continuation,
    CountedReply,
    Encoded,
    FeatureCache,
    GenerationSettings,
    Likelihood,
    PaddedBatch,
    Spans,
    StopStrings,
    counted_as,
    cut_reply,
    decoding_config,
    pad_left,
    read_settings,
    score,
    split_continuation,
)
from .harness_adapter import NEUTRAL, HarnessAdapter
from .requests import (
    IMAGES,
    BatchRunner,
    FailureLog,
    Item,
    Request,
    RequestReader,
    Result,
    Work,
    plan_streams,
    read_requests,
)
from .shared_scoring import CAN_SHARE, PrefixCache, Questions, score_by_question

_SAMPLED = 64  # values of a tensor for the fingerprint of weights
_READ_WHOLE = 2**24  # bytes up to which a file's content is in it


class MedicalAdapter(HarnessAdapter, abc.ABC):
    """A model in this process: ``load``, ``encode``, ``score_batch`` and ``generate_batch``.

    The last two have defaults for a causal language model of transformers with image features in slots of its prompt.
    """

    arguments_type: ClassVar[type[AdapterArguments]] = AdapterArguments
    arguments: AdapterArguments
    device: torch.device  # of the model's inputs
    network: Any  # the weights, as :meth:`load` builds them
    least_versions: ClassVar[
        Mapping[str, str]
    ] = {}  # of packages, where the model needs more than the harness
    visual_types: ClassVar[tuple[type, ...]] = IMAGES  # types that the model takes as image
    # Needed by the default score_batch and generate_batch:
    tokenizer: Any  # a tokenizer of transformers, whose ``decode`` turns ids into text
    pad_id: int  # token to fill up with
    slot_id: int  # token that image features replace
    stop_ids: Sequence[int]  # tokens that end a reply
    stop_strings: Sequence[str] = ()  # texts that end a reply, besides the task's
    keeps_decoding_settings: ClassVar[bool] = (
        False  # whether penalties of the checkpoint's settings apply
    )
    draws_in_batches: ClassVar[bool] = (
        False  # whether sampled replies may depend on others of their batch
    )
    stops_after: ClassVar[int | None] = (
        None  # requests; if these are the first and all of them fail, the run stops
    )

    def __init__(self, **arguments: object) -> None:
        self.check_versions()
        super().__init__(**arguments)
        if not CAN_SHARE:
            self.arguments = dataclasses.replace(self.arguments, prefix_cache=False)
        self.device = choose_device(
            self.arguments.device,
            self.accelerator.device,
            self.accelerator.num_processes,
            self.model_id,
        )
        self._features = FeatureCache(self.arguments.feature_cache_mb * 2**20)
        self._prefixes = PrefixCache(self.arguments.prefix_cache_mb * 2**20)
        self._last_prepared: tuple[tuple[Any, ...], torch.Tensor | None] | None = None
        self._journal: Journal | None = None
        self.load()

    @classmethod
    def check_versions(cls) -> None:
        """Raise a MedTasksError if a package is too old for this model."""
        for package, least in cls.least_versions.items():
            require(package, least, cls.model_id)

    # ---- the four members of a model ----

    @abc.abstractmethod
    def load(self) -> None:
        """Build tokenizer and weights on ``self.device``; weights are in attributes only, see ``clean``."""

    @abc.abstractmethod
    def encode(self, text: str, images: Sequence[Image.Image], reply: str = "") -> Encoded:
        """Turn a prompt, and the beginning of its reply, into model input; at least one token for empty texts.

        The ids with a reply must begin with the ids without one, except for tokens that merge where the two meet.
        """

    @torch.inference_mode()
    def score_batch(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score continuations; those of one question share the pass over their prompt."""
        if not self.arguments.prefix_cache:
            return self._score_whole(items)
        try:
            return self._score_shared(items)
        except Exception:
            self._prefixes.clear()  # frees memory for a smaller batch
            raise

    @torch.inference_mode()
    def generate_batch(
        self, prompts: Sequence[Encoded], settings: GenerationSettings, seed: int
    ) -> list[str]:
        """Generate replies in one batch; texts that are ``CountedReply`` objects carry their token counts.

        The seed is for sampling; the global random state does not change. Decoding settings of the checkpoint are
        dropped for good unless the model has ``keeps_decoding_settings``.
        """
        if not self.keeps_decoding_settings:
            self.language_model.generation_config = GenerationConfig()
        batch = pad_left(prompts, self.pad_id, self.device)
        inputs = self.model_inputs(batch)
        inputs.pop("position_ids", None)  # transformers derives them from the mask
        until = (*settings.until, *self.stop_strings)
        # transformers returns the prompt's ids too if it was given ids.
        skip = batch.ids.shape[1] if "input_ids" in inputs else 0
        sampled = settings.temperature > 0
        devices = range(torch.cuda.device_count()) if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices, enabled=sampled):
            if sampled:
                torch.manual_seed(seed)
            ids = self.language_model.generate(
                **inputs,
                generation_config=decoding_config(settings, self.stop_ids, self.pad_id),
                stopping_criteria=StoppingCriteriaList(
                    [StopStrings(until, self.decode, skip)] if until else []
                ),
            )
        replies: list[str] = []
        for prompt, row in zip(prompts, ids[:, skip:].tolist(), strict=True):
            # The token that ended the reply counts, padding does not.
            without_padding = max(
                (at + 1 for at, token in enumerate(row) if token != self.pad_id), default=0
            )
            tokens = next(
                (at + 1 for at, token in enumerate(row) if token in self.stop_ids), without_padding
            )
            replies.append(
                CountedReply(
                    cut_reply(row, self.decode, self.stop_ids, until), len(prompt.ids), tokens
                )
            )
        return replies

    # ---- optional members of a model ----

    def encode_pair(
        self, context: str, continuation: str, images: Sequence[Image.Image]
    ) -> Continuation:
        """Encode a prompt and the text to score after it; a ``ValueError`` where the continuation adds no token."""
        return split_continuation(
            self.encode(context, images), self.encode(context, images, continuation)
        )

    def decode(self, ids: Sequence[int]) -> str:
        """Turn ids into text, without special tokens."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    @property
    def language_model(self) -> Any:
        """The transformers causal language model, with ``generate`` and ``logits_to_keep``."""
        return self.network.language_model

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of images on ``self.device``, shape (images, ...) or (images * tokens, ...)."""
        features: torch.Tensor = self.network.image_features(pixels)
        return features

    def model_inputs(self, batch: PaddedBatch, before: PaddedBatch | None = None) -> dict[str, Any]:
        """Return the keyword inputs of the language model for a batch, attention mask and positions included.

        Args:
            batch: Columns to read: whole prompts, or the columns after those in the cache.
            before: The prompts with all of their images, if the cache holds the beginning of them, or all.
        """
        embedded = self.language_model.get_input_embeddings()(batch.ids)
        features = [row.flatten(0, -2) for row in self.cached_features(batch) if row is not None]
        if features:
            slots = (batch.ids == self.slot_id) & batch.attention_mask[
                :, -batch.ids.shape[1] :
            ].bool()
            embedded = embedded.masked_scatter(slots[..., None], torch.cat(features))
        return batch.inputs(inputs_embeds=embedded)

    def image_spans(self, prompt: Encoded) -> Spans | None:
        """Return per image, in order, the columns that depend on it directly: (first, after the last).

        Prompts that begin alike then share the pass over their prefix, which is never cut within a span. An image
        without columns has the span (0, 0). ``None``, the default, or another number of spans: nothing is shared.
        """
        return None

    def position_shift(self, batch: PaddedBatch) -> torch.Tensor:
        """Return by how much the positions after prompts that were just read exceed their tokens, shape (batch, 1).

        Zero unless a model places images in two dimensions. It may be on any device.
        """
        return torch.zeros(len(batch.prompts), 1, dtype=torch.long)

    def fingerprint(self) -> str:
        """Return a digest of the weights and files that decide about answers, which names the journal.

        By default of some values of every tensor in the attributes, and of the files and folders that arguments name:
        content of small files, size of large ones.
        """
        weights = hashlib.sha256()
        for attribute, module in sorted(vars(self).items()):
            if isinstance(module, nn.Module):
                for name, tensor in sorted(module.state_dict().items()):
                    weights.update(
                        f"{attribute}.{name} {tuple(tensor.shape)} {tensor.dtype}".encode()
                    )
                    if tensor.is_meta or tensor.numel() == 0:
                        continue
                    flat = tensor.detach().reshape(-1)
                    indices = torch.linspace(
                        0, len(flat) - 1, min(_SAMPLED, len(flat)), dtype=torch.float64
                    ).long()
                    values: Any = flat[indices.to(flat.device)].cpu().view(torch.uint8).numpy()
                    weights.update(values.data)
        files = []
        prose = {
            field.name
            for field in dataclasses.fields(self.arguments)
            if field.metadata.get("prose")
        }
        for argument, value in sorted(dataclasses.asdict(self.arguments).items()):
            if isinstance(value, str) and value and argument not in NEUTRAL | prose:
                path = Path(value).expanduser()
                for file in filter(
                    Path.is_file, sorted(path.iterdir()) if path.is_dir() else [path]
                ):
                    size = file.stat().st_size
                    digest = (
                        str(size)
                        if size > _READ_WHOLE
                        else hashlib.sha256(file.read_bytes()).hexdigest()
                    )
                    files.append((argument, file.name, digest))
        return weights.hexdigest() + digest_of(files)

    # ---- helpers for models ----

    def prepared(
        self, images: Sequence[Any], prepare: Callable[[Sequence[Any]], torch.Tensor | None]
    ) -> torch.Tensor | None:
        """Return the result of ``prepare`` on images, computed once for consecutive calls with the same images."""
        last = self._last_prepared
        if last is None or len(last[0]) != len(images) or any(map(is_not, last[0], images)):
            last = self._last_prepared = tuple(images), prepare(images)
        return last[1]

    def cached_features(self, batch: PaddedBatch) -> list[torch.Tensor | None]:
        """Return the ``image_features`` of every row of a batch, each image computed at most once."""
        return self._features.features(
            batch.prompts, lambda image: self.image_features(image.to(self.device))
        )

    # ---- the harness's calls ----

    def generate_until(self, requests: Sequence[Any]) -> list[str] | list[GenerationResult]:
        """Answer every request; a sample that fails gets a reply marked by ``failed_reply``.

        With ``token_counts`` the replies are the harness's ``GenerationResult``. More failures than ``max_failed``
        allows, or impossible ``generation_kwargs``, are a ``MedTasksError``.
        """
        typed = self.read_generation(requests)
        unit = attrgetter("name", "repeat")

        def decoding(request: Request) -> tuple[GenerationSettings, int]:
            settings = read_settings(request.detail, self.arguments.max_new_tokens)
            return settings, request.seed(self.arguments.seed)

        def group(request: Request) -> tuple[object, ...]:
            settings, _ = decoding(request)
            # Sampled replies are drawn one by one: in a batch they would depend on their neighbours.
            is_alone = settings.temperature > 0 and not self.draws_in_batches
            return settings, unit(request) if is_alone else None

        def execute(
            items: Sequence[tuple[Encoded, GenerationSettings, int]],
        ) -> list[CountedReply | Exception]:
            (_, settings, seed), *_ = items
            texts: Sequence[Any] = self.generate_batch(
                [prompt for prompt, *_ in items], settings, seed
            )
            return [
                text if isinstance(text, Exception) else counted_as(text, escaped_reply(text))
                for text in texts
            ]

        work = Work(
            kind="generate_until",
            prepare=lambda loaded: (
                self.encode(loaded.request.context, list(loaded.visuals.images)),
                *decoding(loaded.request),
            ),
            length=lambda item: len(item[0].ids),
            execute=execute,
            fallback=lambda cause: CountedReply(failed_reply(cause)),
            decisive=lambda loaded: decoding(loaded.request),
            stored=lambda reply: {
                "text": str(reply),
                "counts": [reply.input_tokens, reply.output_tokens],
            },
            restored=lambda text, counts: CountedReply(text, *counts),
        )
        return self.handed_replies(typed, self._run(work, typed, plan_streams(typed, group, unit)))

    def loglikelihood(
        self, requests: Sequence[Any]
    ) -> list[tuple[float, bool]] | list[tuple[str, dict[str, int]]]:
        """Score every continuation, see :meth:`handed_scores`; too many failures are a ``MedTasksError``."""
        typed = read_requests(requests, "loglikelihood")
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
        # A shared prefix needs one batch: for the options of a question, for questions on one image.
        is_shared = self.arguments.prefix_cache
        unit = attrgetter(
            *(("task", "split", "doc_id", "context") if is_shared else ("name", "repeat"))
        )
        streams = plan_streams(typed, lambda _: None, unit, self.task_dict if is_shared else None)
        return self.handed_scores(self._run(work, typed, streams))

    def clean(self) -> None:
        """Free the weights and the caches."""
        self._features.clear()
        self._prefixes.clear()
        self._last_prepared = None
        super().clean()

    def _score_shared(self, items: Sequence[Continuation]) -> list[Likelihood]:
        return score_by_question(Questions.of(items, self), self, self._score_whole, self._prefixes)

    def _score_whole(self, items: Sequence[Continuation]) -> list[Likelihood]:
        def logits_of(batch: PaddedBatch, keep: int) -> torch.Tensor:
            inputs = self.model_inputs(batch)
            logits: torch.Tensor = self.language_model(
                **inputs, logits_to_keep=keep, use_cache=False
            ).logits
            return logits

        return score(items, logits_of, self.pad_id, self.device)

    def _run(
        self,
        work: Work[Item, Result],
        requests: Sequence[Request],
        streams: Sequence[Sequence[Sequence[int]]],
    ) -> list[Result]:
        reader = RequestReader(self.task_dict, work.kind == "loglikelihood", self.visual_types)
        request_count = sum(not request.padding for request in requests)
        failures = FailureLog(
            work.kind, request_count, self.arguments.max_failed, quotes=self.quotes_errors
        )
        if requests and self._journal is None:
            self._journal = self.open_journal(self.arguments, self.device.type, self.fingerprint)
        size, tokens = self.arguments.batch_size, self.arguments.batch_tokens
        rows = (
            sys.maxsize if tokens and size == 1 else size
        )  # without limit where batch_tokens decides alone
        rows = min(rows, self.arguments.max_batch_size or rows)
        name = f"{self.model_id} {work.kind}"
        with tqdm(total=len(requests), desc=name, unit="request", disable=self.rank != 0) as bar:
            runner = BatchRunner(
                requests, work, reader, rows, tokens, failures, self._journal, bar, self.stops_after
            )
            results = runner.run(streams)
        self.copied |= runner.copied
        if runner.replayed and runner.journal is not None:
            answers = f"{runner.replayed} of {len(requests)} {work.kind} answers"
            logger.info("{} come from the journal at {}", answers, runner.journal.path)
        failures.settle()
        return results
