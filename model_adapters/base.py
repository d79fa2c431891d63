"""What all model adapters share: the harness's loops around a model that turns (text, images) into model input."""

import abc
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import torch
from accelerate import Accelerator
from lmms_eval import utils as harness_utils
from lmms_eval.api.model import lmms
from loguru import logger
from PIL import Image
from tqdm import tqdm

from medtasks.answers.failure import failed_reply
from medtasks.errors import AdapterArgumentError, MedTasksError

from .arguments import AdapterArguments, parse_arguments
from .batching import Encoded, PaddedBatch, pad_left, plan_batches
from .failures import FailureLedger
from .generation import (
    GenerationItem,
    GenerationSettings,
    cut_reply,
    decoding_config,
    ignored_keys,
    read_settings,
    seeded,
    stop_string_criteria,
)
from .guarded_loop import GuardedLoop
from .placement import check_processes, choose_device
from .requests import Documents, Request, continuation_of, images_of, read_requests
from .scoring import FAILED, Continuation, Likelihood, score, split_continuation

Item = TypeVar("Item")
Result = TypeVar("Result")


class MedicalAdapter(lmms, abc.ABC):  # type: ignore[misc]  # the harness is not typed
    """A simple-type harness model; subclasses say how to load, encode and embed, see ``README.md``.

    Args:
        arguments: The model arguments, see :class:`~medtasks.model_adapters.arguments.AdapterArguments`.

    Raises:
        AdapterArgumentError: An argument is unknown or has an impossible value.
    """

    is_simple = True
    model_id: ClassVar[str]
    arguments_type: ClassVar[type[AdapterArguments]] = AdapterArguments
    task_dict: Documents

    def __init__(self, **arguments: object) -> None:
        super().__init__()
        self.arguments = parse_arguments(self.arguments_type, arguments, self.model_id)
        # The evaluator gathers over these four on several processes.
        self.accelerator = Accelerator()
        check_processes(self.accelerator.num_processes, self.model_id)
        self._rank = self.accelerator.process_index
        self._world_size = self.accelerator.num_processes
        self.device = choose_device(
            self.arguments.device, self.accelerator.device, self.accelerator.num_processes, self.model_id
        )
        self.load()

    @classmethod
    def create_from_arg_string(
        cls, arg_string: str, additional_config: Mapping[str, object] | None = None
    ) -> "MedicalAdapter":
        """Build the adapter from ``--model_args``, which win over the harness's own options.

        They have to: the command line always passes ``batch_size=1``, and the harness's version of this method dies of
        a repeated keyword when ``batch_size`` stands in ``--model_args`` as well.
        """
        try:
            given = harness_utils.simple_parse_args_string(arg_string)
        except ValueError:
            raise AdapterArgumentError(f"{cls.model_id}: write --model_args as key=value,key=value.") from None
        return cls(**{**(additional_config or {}), **given})

    # ---- what a model module provides ----

    @abc.abstractmethod
    def load(self) -> None:
        """Build tokenizer and weights on ``self.device``; keep the weights in attributes only, see ``clean``."""

    @property
    @abc.abstractmethod
    def language_model(self) -> Any:
        """The transformers causal language model: called with ``logits_to_keep``, and asked to ``generate``."""

    @property
    @abc.abstractmethod
    def pad_id(self) -> int:
        """Token id to fill up with."""

    @property
    @abc.abstractmethod
    def stop_ids(self) -> Sequence[int]:
        """Token ids that end a reply."""

    @abc.abstractmethod
    def encode(self, text: str, images: Sequence[Image.Image]) -> Encoded:
        """Turn a prompt into model input; at least one token (a begin of sequence) even for empty text.

        The ids of a text have to be the first ids of any longer text, up to what the tokenizer merges at the seam.
        """

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return what the language model is given for the images of one prompt; models that override it may cache it.

        Args:
            pixels: ``Encoded.pixels`` of one prompt, on ``self.device``.
        """
        raise MedTasksError(f"{self.model_id} does not separate its vision tower")

    def continuation_inputs(self, ids: torch.Tensor, contexts: PaddedBatch) -> dict[str, Any]:
        """Return the language model's inputs for text tokens that follow a cached context.

        Args:
            ids: Token ids, shape (batch, tokens).
            contexts: The batch whose keys and values are in the cache, one row per row of ``ids``.
        """
        return {"input_ids": ids}

    @abc.abstractmethod
    def model_inputs(self, batch: PaddedBatch) -> dict[str, Any]:
        """Return the keyword inputs of the language model for a batch, attention mask and positions included.

        With ``inputs_embeds`` the image features are already in place; a model that takes features by cross-attention
        returns ``input_ids`` and its own keywords.
        """

    @abc.abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Turn ids into text, without special tokens."""

    # ---- what the harness calls ----

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """Answer every request; a sample that fails gets a reply marked by ``failed_reply``.

        Raises:
            MedTasksError: More samples failed than ``max_failed`` allows, or ``generation_kwargs`` are impossible.
        """
        read = read_requests(requests, "generate_until")
        ignored = set().union(*(ignored_keys(request.detail) for request in read))
        if ignored:
            logger.debug("{} ignores generation_kwargs {}", self.model_id, ", ".join(sorted(ignored)))
        replies = self._run(
            "generate_until", read, self._group, self._generation_item, self._generate_items, failed_reply
        )
        for request, reply in zip(read, replies, strict=True):
            self.cache_hook.add_partial("generate_until", (request.context, request.detail), reply)
        return replies

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """Score every continuation.

        Returns:
            Per request the mean negative log-likelihood of the continuation's tokens (nats, smaller is better) and
            whether greedy decoding would produce it; ``(nan, False)`` for a sample that failed.

        Raises:
            MedTasksError: More samples failed than ``max_failed`` allows.
        """
        read = read_requests(requests, "loglikelihood")
        likelihoods = self._run(
            "loglikelihood", read, lambda _: None, self._scoring_item, self.score_batch, lambda _: FAILED
        )
        return [(likelihood.mean, likelihood.greedy) for likelihood in likelihoods]

    def generate_until_multi_round(self, requests: Sequence[Any]) -> list[str]:
        """Refuse: not supported.

        Raises:
            MedTasksError: Always.
        """
        raise MedTasksError(
            f"{self.model_id} answers in one round; choose a task of type generate_until or multiple_choice "
            f"instead of a multi-round one."
        )

    # ---- one batch ----

    @torch.inference_mode()
    def generate_batch(self, prompts: Sequence[Encoded], settings: GenerationSettings, seed: int) -> list[str]:
        """Generate replies in one go.

        Args:
            prompts: Encoded prompts.
            settings: How to decode.
            seed: Used where ``settings`` ask for sampling; the global random state is left as it was.
        """
        batch = pad_left(prompts, self.pad_id, self.device)
        inputs = self.model_inputs(batch)
        # transformers returns the prompt's ids as well where it was given ids.
        skip = batch.ids.shape[1] if "input_ids" in inputs else 0
        with seeded(seed, self.device) if settings.temperature > 0 else contextlib.nullcontext():
            ids = self.language_model.generate(
                **inputs,
                generation_config=decoding_config(settings, self.stop_ids, self.pad_id),
                stopping_criteria=stop_string_criteria(settings.until, self.decode, skip),
            )
        return [cut_reply(row, self.decode, self.stop_ids, settings.until) for row in ids[:, skip:].tolist()]

    @torch.inference_mode()
    def score_batch(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score continuations in one forward pass, with sums and token counts."""

        def logits_of(batch: PaddedBatch, keep: int) -> torch.Tensor:
            inputs = self.model_inputs(batch)
            logits: torch.Tensor = self.language_model(**inputs, logits_to_keep=keep, use_cache=False).logits
            return logits

        return score(items, logits_of, self.pad_id, self.device)

    # ---- from requests to batches ----

    def _settings(self, request: Request) -> GenerationSettings:
        return read_settings(request.detail, self.arguments.max_new_tokens)

    def _group(self, request: Request) -> object:
        settings = self._settings(request)
        # Sampled replies are drawn one by one: in a batch they would depend on their neighbours.
        return settings, (request.name, request.repeat) if settings.temperature > 0 else None

    def _generation_item(self, request: Request) -> GenerationItem:
        prompt = self.encode(request.context, images_of(request, self.task_dict))
        return GenerationItem(prompt, self._settings(request), request.seed(self.arguments.seed))

    def _generate_items(self, items: Sequence[GenerationItem]) -> list[str]:
        return self.generate_batch([item.prompt for item in items], items[0].settings, items[0].seed)

    def _scoring_item(self, request: Request) -> Continuation:
        images = images_of(request, self.task_dict)
        continuation = continuation_of(request, self.task_dict)
        return split_continuation(
            self.encode(request.context, images), self.encode(request.context + continuation, images)
        )

    def _run(
        self,
        kind: str,
        requests: Sequence[Request],
        group: Callable[[Request], object],
        prepare: Callable[[Request], Item],
        execute: Callable[[Sequence[Item]], Sequence[Result]],
        fallback: Callable[[str], Result],
    ) -> list[Result]:
        """Run one call of the harness: batches, bar, failures; results in the order of ``requests``."""
        batches = plan_batches(requests, self.arguments.requests_per_batch, group)
        ledger = FailureLedger(kind, sum(not request.padding for request in requests), self.arguments.max_failed)
        with tqdm(
            total=len(requests), desc=f"{self.model_id} {kind}", unit="request", disable=self.rank != 0
        ) as progress:
            results = GuardedLoop(prepare, execute, fallback, ledger, progress).run(requests, batches)
        ledger.settle()
        return results
