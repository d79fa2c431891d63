"""Base of the models in this process: an adapter has four members, everything else has a default.

The harness calls ``generate_until`` and ``loglikelihood``; a model never overrides these, because they keep the
journal, count failures and hand results over in the harness's form.
"""

import abc
import dataclasses
import hashlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

import torch
from lmms_eval.api.instance import GenerationResult
from loguru import logger
from PIL import Image
from torch import Tensor, nn
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
from .harness_adapter import NEUTRAL, HarnessAdapter, HarnessScores
from .requests import (
    IMAGES,
    BatchRunner,
    Item,
    LoadedRequest,
    Request,
    RequestReader,
    Result,
    Streams,
    Work,
    plan_streams,
    read_requests,
)
from .shared_scoring import CAN_SHARE, PrefixCache, Questions, score_by_question

_SAMPLED = 64  # values of a tensor for the fingerprint of weights
_READ_WHOLE = 2**24  # bytes up to which a file's content is in it


def _named_files(arguments: AdapterArguments) -> list[tuple[str, str, str]]:
    """List the files that arguments name: argument, file name, and content or size."""
    files = []
    for field in sorted(dataclasses.fields(arguments), key=attrgetter("name")):
        value = getattr(arguments, field.name)
        if not isinstance(value, str) or not value:
            continue
        if field.name in NEUTRAL or field.metadata.get("prose"):
            continue
        path = Path(value).expanduser()
        paths = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in filter(Path.is_file, paths):
            size = file.stat().st_size
            digest = str(size)
            if size <= _READ_WHOLE:
                digest = hashlib.sha256(file.read_bytes()).hexdigest()
            files.append((field.name, file.name, digest))
    return files


class MedicalAdapter(HarnessAdapter, abc.ABC):
    """A model in this process: ``load``, ``encode``, ``score_batch`` and ``generate_batch``.

    The last two have defaults for a causal language model of transformers with image features in slots of its prompt.
    Such a model says where its parts are and how a prompt is written::

        class MyVlm(MedicalAdapter):
            model_id = "my_vlm"

            def load(self):
                self.tokenizer = AutoTokenizer.from_pretrained("org/model")
                self.network = MyNetwork.from_pretrained("org/model").to(self.device).eval()
                self.pad_id = self.tokenizer.pad_token_id
                self.slot_id = self.tokenizer.convert_tokens_to_ids("<image>")
                self.stop_ids = [self.tokenizer.eos_token_id]

            def encode(self, text, images, reply=""):
                slots = [self.slot_id] * (64 * len(images))
                ids = slots + self.tokenizer.encode(text + reply)
                return Encoded(ids, self.prepared(images, clip_pixels))

    ``MyNetwork`` has ``language_model`` and ``image_features``. A model of another kind scores and generates itself::

            def score_batch(self, items):
                scores = []
                for item in items:
                    losses, hits = self.network.score(item.prompt.ids, item.targets)
                    scores.append(likelihood(losses, hits))
                return scores

            def generate_batch(self, prompts, settings, seed):
                return [self.network.answer(prompt.ids, settings.max_new_tokens) for prompt in prompts]

    Everything else is done by the base: arguments, images, batches, failures, and the journal of answers.
    """

    arguments_type: ClassVar[type[AdapterArguments]] = AdapterArguments
    arguments: AdapterArguments
    device: torch.device  # of the model's inputs
    network: Any  # the weights, as :meth:`load` builds them
    # Versions of packages, where the model needs newer ones than the harness:
    least_versions: ClassVar[Mapping[str, str]] = {}
    visual_types: ClassVar[tuple[type, ...]] = IMAGES  # types that the model takes as image
    # Needed by the default score_batch and generate_batch:
    tokenizer: Any  # a tokenizer of transformers, whose ``decode`` turns ids into text
    pad_id: int  # token to fill up with
    slot_id: int  # token that image features replace
    stop_ids: Sequence[int]  # tokens that end a reply
    stop_strings: Sequence[str] = ()  # texts that end a reply, besides the task's
    # Whether penalties of the checkpoint's settings apply:
    keeps_decoding_settings: ClassVar[bool] = False
    # Whether sampled replies may depend on others of their batch:
    draws_in_batches: ClassVar[bool] = False
    # Number of requests after which the run stops if all of them failed:
    stops_after: ClassVar[int | None] = None

    def __init__(self, **arguments: object) -> None:
        self.check_versions()
        super().__init__(**arguments)
        if not CAN_SHARE:
            self.arguments = dataclasses.replace(self.arguments, prefix_cache=False)
        self.device = choose_device(
            self.arguments.device, self.device, self.world_size, self.model_id
        )
        self._features = FeatureCache(self.arguments.feature_cache_mb * 2**20)
        self._prefixes = PrefixCache(self.arguments.prefix_cache_mb * 2**20)
        self._last_prepared: tuple[tuple[Any, ...], Tensor | None] | None = None
        self._journal: Journal | None = None
        self.load()

    @classmethod
    def check_versions(cls) -> None:
        """Check that no package is too old for this model.

        Raises:
            MedTasksError: A package of ``least_versions`` is older.
        """
        for package, least in cls.least_versions.items():
            require(package, least, cls.model_id)

    # ---- the four members of a model ----

    @abc.abstractmethod
    def load(self) -> None:
        """Build tokenizer and weights on ``self.device``.

        Weights may be in attributes only, because ``clean`` frees those.
        """

    @abc.abstractmethod
    def encode(
        self,
        text: str,
        images: Sequence[Image.Image],
        reply: str = "",
    ) -> Encoded:
        """Turn a prompt, alone or with a text to score after it, into token ids and pixels.

        Args:
            text: Prompt of the task. A chat template is this method's to apply.
            images: In the order of the prompt; any mode and size.
            reply: Text to score after the prompt; empty for a generation.

        Returns:
            Ids, with :attr:`slot_id` where image features go, and pixels, None without images. There is at least one
            id, even for empty texts. The ids with a reply must begin with the ids without one, except for tokens that
            merge where the two meet.
        """

    @torch.inference_mode()
    def score_batch(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score continuations, where those of one question share the pass over their prompt.

        Args:
            items: At most as many as fit into memory; a batch that does not is halved.

        Returns:
            One score per item, in the order of ``items``.
        """
        if not self.arguments.prefix_cache:
            return self._score_whole(items)
        try:
            return self._score_with_shared_passes(items)
        except Exception:
            self._prefixes.clear()  # frees memory for a smaller batch
            raise

    @torch.inference_mode()
    def generate_batch(
        self,
        prompts: Sequence[Encoded],
        settings: GenerationSettings,
        seed: int,
    ) -> list[str]:
        """Generate replies in one batch.

        Decoding settings of the checkpoint are dropped for good unless the model has ``keeps_decoding_settings``.

        Args:
            prompts: What ``encode`` returned, without padding.
            settings: Length limit, stop strings and sampling, equal for the whole batch.
            seed: Seed for sampling; the global random state does not change.

        Returns:
            One reply per prompt. Texts that are ``CountedReply`` objects carry their token counts. A method of
            another adapter may return an exception in place of a text, which is the failure of that sample.
        """
        if not self.keeps_decoding_settings:
            self.language_model.generation_config = GenerationConfig()
        batch = pad_left(prompts, self.pad_id, self.device)
        inputs = self.model_inputs(batch)
        inputs.pop("position_ids", None)  # transformers derives them from the mask
        until = (*settings.until, *self.stop_strings)
        # transformers returns the prompt's ids too if it was given ids.
        skip = batch.ids.shape[1] if "input_ids" in inputs else 0
        criteria = [StopStrings(until, self.decode, skip)] if until else []
        sampled = settings.temperature > 0
        devices = range(torch.cuda.device_count()) if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices, enabled=sampled):
            if sampled:
                torch.manual_seed(seed)
            ids = self.language_model.generate(
                **inputs,
                generation_config=decoding_config(settings, self.stop_ids, self.pad_id),
                stopping_criteria=StoppingCriteriaList(criteria),
            )
        replies: list[str] = []
        for prompt, row in zip(prompts, ids[:, skip:].tolist(), strict=True):
            # The token that ended a reply counts, padding does not.
            tokens = len(row)
            while tokens > 0 and row[tokens - 1] == self.pad_id:
                tokens -= 1
            for number, token in enumerate(row, start=1):
                if token in self.stop_ids:
                    tokens = number
                    break
            text = cut_reply(row, self.decode, self.stop_ids, until)
            replies.append(CountedReply(text, len(prompt.ids), tokens))
        return replies

    # ---- optional members of a model ----

    def encode_pair(
        self,
        context: str,
        continuation: str,
        images: Sequence[Image.Image],
    ) -> Continuation:
        """Encode a prompt and the text to score after it.

        Raises:
            ValueError: The continuation adds no token, or no token precedes it.
        """
        prompt = self.encode(context, images)
        return split_continuation(prompt, self.encode(context, images, continuation))

    def decode(self, ids: Sequence[int]) -> str:
        """Turn ids into text, without special tokens."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    @property
    def language_model(self) -> Any:
        """The transformers causal language model, with ``generate`` and ``logits_to_keep``."""
        return self.network.language_model

    def image_features(self, pixels: Tensor) -> Tensor:
        """Return the embeddings of images, shape (images, ...) or (images * tokens, ...).

        Args:
            pixels: What ``encode`` returned, on ``self.device``.
        """
        features: Tensor = self.network.image_features(pixels)
        return features

    def model_inputs(
        self, batch: PaddedBatch, before: PaddedBatch | None = None
    ) -> dict[str, Any]:
        """Return the keyword inputs of the language model for a batch, attention mask and positions included.

        Args:
            batch: Columns to read: whole prompts, or the columns after those in the cache.
            before: The prompts with all of their images, if the cache holds the beginning of them, or all.
        """
        embedded = self.language_model.get_input_embeddings()(batch.ids)
        features = [
            row.flatten(0, -2) for row in self.cached_features(batch) if row is not None
        ]
        if features:
            is_real = batch.attention_mask[:, -batch.ids.shape[1] :].bool()
            slots = (batch.ids == self.slot_id) & is_real
            embedded = embedded.masked_scatter(slots[..., None], torch.cat(features))
        return batch.inputs(inputs_embeds=embedded)

    def image_spans(self, prompt: Encoded) -> Spans | None:
        """Return per image, in order, the columns that depend on it directly.

        Prompts that begin alike then share the pass over their prefix, which is never cut within a span.

        Returns:
            Pairs (first, after the last). An image without columns has the span (0, 0). ``None``, the default, or
            another number of spans: nothing is shared.
        """
        return None

    def position_shift(self, batch: PaddedBatch) -> Tensor:
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
            if not isinstance(module, nn.Module):
                continue
            for name, tensor in sorted(module.state_dict().items()):
                weights.update(
                    f"{attribute}.{name} {tuple(tensor.shape)} {tensor.dtype}".encode()
                )
                if tensor.is_meta or tensor.numel() == 0:
                    continue
                flat = tensor.detach().reshape(-1)
                count = min(_SAMPLED, len(flat))
                indices = torch.linspace(0, len(flat) - 1, count, dtype=torch.float64).long()
                values = flat[indices.to(flat.device)].cpu()
                weights.update(values.view(torch.uint8).numpy().data)
        return weights.hexdigest() + digest_of(_named_files(self.arguments))

    # ---- helpers for models ----

    def prepared(
        self,
        images: Sequence[Any],
        prepare: Callable[[Sequence[Any]], Tensor | None],
    ) -> Tensor | None:
        """Return ``prepare(images)``, computed once for consecutive calls with the same images.

        Args:
            images: The objects that ``encode`` got. They are compared by identity, not by content.
            prepare: Preprocessing of all images of a prompt. It returns shape (images, ...); ``None`` without images.
        """
        last = self._last_prepared
        if last is None or [*map(id, last[0])] != [*map(id, images)]:
            last = self._last_prepared = tuple(images), prepare(images)
        return last[1]

    def cached_features(self, batch: PaddedBatch) -> list[Tensor | None]:
        """Return the ``image_features`` of every row of a batch, each image computed at most once."""
        return self._features.features(
            batch.prompts, lambda image: self.image_features(image.to(self.device))
        )

    # ---- the harness's calls ----

    def generate_until(self, requests: Sequence[Any]) -> list[str] | list[GenerationResult]:
        """Answer every request of the harness.

        Args:
            requests: The harness's ``Instance`` objects.

        Returns:
            One reply per request. A sample that fails gets a reply marked by ``failed_reply``. With ``token_counts``
            the replies are the harness's ``GenerationResult``.

        Raises:
            MedTasksError: More requests failed than ``max_failed`` allows, or ``generation_kwargs`` are impossible.
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

        def prepare(loaded: LoadedRequest) -> tuple[Encoded, GenerationSettings, int]:
            prompt = self.encode(loaded.request.context, list(loaded.visuals.images))
            return prompt, *decoding(loaded.request)

        def execute(
            items: Sequence[tuple[Encoded, GenerationSettings, int]],
        ) -> list[CountedReply | Exception]:
            """Answer prompts with equal settings in one batch. An error in place of a reply is kept."""
            _, settings, seed = items[0]
            prompts = [prompt for prompt, *_ in items]
            texts: Sequence[Any] = self.generate_batch(prompts, settings, seed)
            replies: list[CountedReply | Exception] = []
            for text in texts:
                is_error = isinstance(text, Exception)
                replies.append(text if is_error else counted_as(text, escaped_reply(text)))
            return replies

        work = Work(
            kind="generate_until",
            prepare=prepare,
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
        replies = self._run(work, typed, plan_streams(typed, group, unit))
        return self.format_replies(typed, replies)

    def loglikelihood(self, requests: Sequence[Any]) -> HarnessScores:
        """Score every continuation that the harness asks for.

        Args:
            requests: The harness's ``Instance`` objects.

        Returns:
            One score per request, in the form of :meth:`format_scores`.

        Raises:
            MedTasksError: More requests failed than ``max_failed`` allows.
        """
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
        columns = ("task", "split", "doc_id", "context") if is_shared else ("name", "repeat")
        documents = self.task_dict if is_shared else None
        streams = plan_streams(typed, lambda _: None, attrgetter(*columns), documents)
        return self.format_scores(self._run(work, typed, streams))

    def clean(self) -> None:
        """Free the weights and the caches."""
        self._features.clear()
        self._prefixes.clear()
        self._last_prepared = None
        super().clean()

    def _score_with_shared_passes(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score with one pass over what items share. ``HfVlm`` overrides it and proves each way first."""
        return score_by_question(
            Questions.of(items, self), self, self._score_whole, self._prefixes
        )

    def _score_whole(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score each item in a pass of its own sequence. ``HfVlm`` overrides it, too."""

        def logits_of(batch: PaddedBatch, keep: int) -> Tensor:
            inputs = self.model_inputs(batch)
            logits: Tensor = self.language_model(
                **inputs, logits_to_keep=keep, use_cache=False
            ).logits
            return logits

        return score(items, logits_of, self.pad_id, self.device)

    def _run(
        self,
        work: Work[Item, Result],
        requests: Sequence[Request],
        streams: Streams,
    ) -> list[Result]:
        """Run one call of the harness in batches.

        Args:
            work: Work on one request.
            requests: All requests of the call.
            streams: Order of work, see ``plan_streams``.

        Returns:
            One result per request, in the order of ``requests``.

        Raises:
            MedTasksError: Too many requests failed.
        """
        reader = RequestReader(self.task_dict, work.kind == "loglikelihood", self.visual_types)
        failures = self.open_failure_log(work.kind, requests)
        if requests and self._journal is None:
            self._journal = self.open_journal(
                self.arguments, self.device.type, self.fingerprint
            )
        rows = self.arguments.batch_size
        tokens = self.arguments.batch_tokens or math.inf
        if tokens < math.inf and rows == 1:
            rows = sys.maxsize  # batch_tokens decides alone
        rows = min(rows, self.arguments.max_batch_size or rows)
        with self.open_progress(work.kind, len(requests)) as bar:
            runner = BatchRunner(
                requests,
                work,
                reader,
                rows,
                tokens,
                failures,
                self._journal,
                bar,
                self.stops_after,
            )
            results = runner.run(streams)
        self.copied |= runner.copied
        if runner.replayed and runner.journal is not None:
            answers = f"{runner.replayed} of {len(requests)} {work.kind} answers"
            logger.info("{} come from the journal at {}", answers, runner.journal.path)
        failures.settle()
        return results
