"""``hf_vlm``: any decoder-only vision-language checkpoint of transformers, with its own processor and chat template.

Continuations are scored in the fastest way that gives the scores of generation: after a prefix that questions on one
image share, after a prompt that options share, in one forward pass over prompt and continuation, or token by token. A
way that is not proven for a model on its own items is never used.
"""

import inspect
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from loguru import logger
from PIL import Image
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from medtasks.errors import MedTasksError
from medtasks.net.journal import digest_of
from medtasks.version import ARCHITECTURES_NEED

from ..base.adapter import MedicalAdapter
from ..base.batching import (
    Continuation,
    Encoded,
    GenerationSettings,
    Likelihood,
    PaddedBatch,
    Spans,
    decoding_config,
    group_positions,
    pad_left,
    pad_right,
    positions_of,
    row_likelihoods,
    score,
    token_losses,
)
from ..base.requests import Item, Result
from ..base.shared_scoring import Questions, score_by_question
from .encoding import ProcessedPrompt, PromptWriter, ScoredPrompt, Template, per_token
from .loading import HfVlmArguments, check_arguments, load_model, load_processor

# Inputs per token with a known value for text: an id, attended to, of no image.
_PER_TOKEN = {"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"}
_CHECKED_ROWS = 4
# Nats per token by which a way of scoring may differ from generation; half precision rounds logits that coarsely.
_TOLERANCE = 1e-3
_HALF_TOLERANCES = {torch.float16: 0.1, torch.bfloat16: 0.1}
# Errors of models that cannot use our cache.
_UNSUPPORTED = (TypeError, ValueError, KeyError, IndexError, AttributeError, RuntimeError)


@dataclass
class _Forced(LogitsProcessor):  # type: ignore[misc]  # transformers is not analysed
    """Forces generation to produce these tokens."""

    targets: Tensor  # ids, shape (batch, longest continuation)
    start: int  # number of columns before the first of them

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        target = self.targets[:, input_ids.shape[1] - self.start, None]
        return torch.full_like(scores, -math.inf).scatter(1, target, 0.0)


class HfVlm(MedicalAdapter):
    """Models of ``AutoModelForImageTextToText``.

    A blank that tasks put before a continuation is scored too.
    """

    model_id = "hf_vlm"
    arguments_type = HfVlmArguments
    least_versions = ARCHITECTURES_NEED
    keeps_decoding_settings = True
    arguments: HfVlmArguments

    def load(self) -> None:
        """Check conditions on several arguments, and load processor and model.

        Raises:
            AdapterArgumentError: Arguments exclude each other, or the template cannot write what they ask for.
            CheckpointError: The checkpoint is missing, damaged, or not one that this adapter runs.
        """
        arguments = self.arguments
        check_arguments(arguments, self.accelerator.num_processes)
        self.processor = load_processor(arguments)
        template = None
        if arguments.chat_template:
            template = Template(arguments.system_prompt, arguments.chat_template_kwargs or {})
        self.writer = PromptWriter(self.processor, template, arguments.pretrained)
        self.network = load_model(arguments, self.device)
        self.device = self.network.get_input_embeddings().weight.device
        self._accepted = frozenset(inspect.signature(self.network.forward).parameters)
        self.tokenizer = self.processor.tokenizer
        self.pad_id = int(self.tokenizer.pad_token_id)
        ends = self.network.generation_config.eos_token_id
        ends = {*(ends if isinstance(ends, list) else [ends])}
        ends |= {self.tokenizer.eos_token_id, self.writer.turn_end()}
        self.stop_ids = tuple(sorted(ends - {None}))
        # Whether a way of scoring works, by its name and whether there are images.
        self._fits: dict[tuple[str, bool], bool] = {}

    @property
    def language_model(self) -> Any:
        """The whole model: transformers embeds the images in it."""
        return self.network

    def encode(
        self,
        text: str,
        images: Sequence[Image.Image],
        reply: str = "",
    ) -> Encoded:
        """Write a prompt as a user turn (or as it is, without chat template) and run the processor.

        Args:
            text: Prompt of the task. One that holds the processor's placeholder places its images itself.
            images: In the order of the prompt.
            reply: Text to put after the generation prompt.

        Raises:
            MedTasksError: The prompt is longer than ``max_length``.
        """
        prompt = self.writer.prompt(self.writer.write(text, len(images)) + reply, images)
        self._check_length(prompt)
        return prompt

    def encode_pair(
        self,
        context: str,
        continuation: str,
        images: Sequence[Image.Image],
    ) -> Continuation:
        """Encode a prompt and the reply to score after its generation prompt.

        Args:
            context: Prompt of the task.
            continuation: Text to score, with the blank before it if there is one.
            images: In the order of the prompt.

        Raises:
            MedTasksError: Both together are longer than ``max_length``.
            ValueError: The continuation adds no token, or follows none.
        """
        prompt, tokens = self.writer.prompt_with_reply(
            self.writer.write(context, len(images)), continuation, images
        )
        self._check_length(prompt)
        return Continuation(prompt, tokens)

    def image_spans(self, prompt: Encoded) -> Spans | None:
        """Return one span for all images, from the first token to the last image.

        Returns:
            Empty without images; ``None`` if the prompt has no token of its images.
        """
        if not cast(ProcessedPrompt, prompt).images:
            return []
        slot = getattr(self.network.config, "image_token_id", None)
        slots = [column for column, token in enumerate(prompt.ids) if token == slot]
        return [(0, slots[-1] + 1)] if slots else None

    def model_inputs(
        self, batch: PaddedBatch, before: PaddedBatch | None = None
    ) -> dict[str, Any]:
        """Return the processor's batch on the device, pixels in the model's precision.

        Positions are added unless the model itself places images in two dimensions.

        Args:
            batch: Columns to read, with ids alone after a cached prefix, as no image follows one.
            before: The prompts with all of their images, if the cache holds the beginning of them.

        Raises:
            ValueError: After a cached prefix, if there are other inputs per token (masks of cross-attention).
        """
        if before is not None:
            contexts = cast(Sequence[ProcessedPrompt], before.prompts)
            names = set().union(*(per_token(prompt.inputs or {}) for prompt in contexts))
            unknown = names - _PER_TOKEN
            if unknown:
                raise ValueError(f"no rule to continue {', '.join(sorted(unknown))}")
            return batch.inputs(input_ids=batch.ids)
        prompts = cast(Sequence[ProcessedPrompt], batch.prompts)
        inputs: dict[str, Any] = {}
        for name, value in self.writer.inputs_of(prompts).items():
            if not isinstance(value, Tensor):
                continue
            # Some tokenizers return token types to models that have none.
            if name.endswith("token_type_ids") and name not in self._accepted:
                continue
            dtype = self.network.dtype if value.is_floating_point() else None
            inputs[name] = value.to(self.device, dtype)
        if "position_ids" in self._accepted and not self._places_images(batch):
            inputs["position_ids"] = positions_of(inputs["attention_mask"].long())
        return inputs

    def _places_images(self, batch: PaddedBatch) -> bool:
        """Return whether the model itself places the batch's images in two dimensions."""
        has_images = bool(cast(ProcessedPrompt, batch.prompts[0]).images)
        modules = self.network.modules()
        return has_images and any(hasattr(module, "get_rope_index") for module in modules)

    def position_shift(self, batch: PaddedBatch) -> Tensor:
        """Return the shift that a model stored which places images in two dimensions."""
        if self._places_images(batch):
            for module in self.network.modules():
                shift: Tensor | None = getattr(module, "rope_deltas", None)
                if shift is not None:
                    return shift
        return super().position_shift(batch)

    def fingerprint(self) -> str:
        """Return a digest of weights, files, processor and template, which a hub id does not name."""
        return super().fingerprint() + digest_of(
            self.writer.write("?", 1), self.stop_ids, self.processor.to_json_string()
        )

    def generate_batch(
        self,
        prompts: Sequence[Encoded],
        settings: GenerationSettings,
        seed: int,
    ) -> list[str]:
        """Generate replies in one batch. Penalties and banned tokens of the checkpoint's settings apply."""
        generate = partial(super().generate_batch, settings=settings, seed=seed)
        return _by_kind(prompts, lambda prompt: bool(prompt.images), generate)

    @torch.inference_mode()
    def score_batch(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score continuations, of which those that a tokenizer merges with their prompt share nothing."""

        def kind(item: Continuation) -> tuple[bool, bool]:
            prompt = cast(ScoredPrompt, item.sequence)
            return bool(prompt.images), prompt.merged and self.arguments.prefix_cache

        return _by_kind(items, kind, super().score_batch)

    def _check_length(self, prompt: ProcessedPrompt) -> None:
        limit = self.arguments.max_length
        if limit is not None and len(prompt.ids) > limit:
            raise MedTasksError(
                f"the prompt has {len(prompt.ids)} tokens, max_length allows {limit}"
            )

    # ---- ways of scoring ----

    def _score_with_shared_passes(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score a batch whose common prefixes are read once, if the model can continue from there."""
        prompts = [cast(ScoredPrompt, item.sequence) for item in items]
        if prompts[0].merged:  # the processor cannot write the tokens of such a prompt
            return self._score_whole(items)
        questions = Questions.of(items, self)
        uncut = replace(questions, cuts={})
        if any(prompt.closed for prompt in prompts):  # a prompt that is closed is read as one
            questions = uncut
        score_shared = partial(
            score_by_question, model=self, score_whole=self._score_whole, cache=self._prefixes
        )
        after_cuts = questions.positions_of(questions.cuts)
        of_several = questions.positions_of(questions.several)
        scores = None
        if after_cuts:
            scores = self._try_way(
                "a shared prefix", partial(score_shared, questions), items, after_cuts
            )
        if scores is None and of_several:
            scores = self._try_way(
                "a shared prompt", partial(score_shared, uncut), items, of_several
            )
        return scores or self._score_whole(items)

    def _score_whole(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score a batch without sharing anything, token by token if one pass is wrong for the model."""
        prompts = [cast(ScoredPrompt, item.sequence) for item in items]
        if any(prompt.closed for prompt in prompts):
            return self._score_by_generation(items)

        def logits_of(batch: PaddedBatch, keep: int) -> Tensor:
            """Return the logits of the last ``keep`` positions.

            Raises:
                ValueError: A continuation does not end there.
            """
            inputs = self.model_inputs(batch)
            for item, ids in zip(items, inputs["input_ids"].tolist(), strict=True):
                if ids[-item.tokens :] != item.targets:
                    raise ValueError("the processor does not put the continuation at the end")
            keeping = {"logits_to_keep": keep} if "logits_to_keep" in self._accepted else {}
            logits: Tensor = self.network(**inputs, **keeping, use_cache=False).logits
            return logits[:, -keep:]

        separate = [row for row, prompt in enumerate(prompts) if not prompt.merged]
        in_one_pass = partial(score, items, logits_of, self.pad_id, self.device)
        scores = self._try_way("one pass", in_one_pass, items, separate)
        return scores or self._score_by_generation(items)

    def _try_way(
        self,
        name: str,
        way: Callable[[], list[Likelihood]],
        items: Sequence[Continuation],
        telling: Sequence[int],
    ) -> list[Likelihood] | None:
        """Return the scores of a way if it is right for the model, as items at ``telling`` positions show.

        Every way is compared once, with and without images, with the logits of ``generate`` forced to produce the
        continuation. A way that differs (such as one pass, for a model that reads its prompt in both directions) is
        given up with one line in the log; the last way is generation itself.
        """
        key = name, bool(cast(ProcessedPrompt, items[0].sequence).images)
        if not self._fits.get(key, True):
            return None
        if key in self._fits or not telling:
            return way()
        rows = telling[:_CHECKED_ROWS]
        expected = self._score_by_generation([items[row] for row in rows])
        scores = None
        gap = math.inf
        try:
            scores = way()
            pairs = zip(rows, expected, strict=True)
            gap = max(abs(scores[row].mean - generated.mean) for row, generated in pairs)
            reason = f"differ from those of generation by {gap:.2g} per token"
        except torch.OutOfMemoryError:
            raise
        except _UNSUPPORTED as error:
            reason = f"cannot be computed ({type(error).__name__})"
        self._fits[key] = gap <= _HALF_TOLERANCES.get(self.network.dtype, _TOLERANCE)
        message = f"{type(self.network).__name__}: scores with {name} {reason}"
        if self._fits[key]:
            logger.debug("{}", message)
            return scores
        logger.warning("{}; scoring without it, which is slower", message)
        return None

    def _score_by_generation(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score by the logits of ``generate`` before each target: slower than one pass, and right by construction."""
        prompts = [cast(ScoredPrompt, item.sequence) for item in items]
        contexts = pad_left([prompt.context for prompt in prompts], self.pad_id, self.device)
        targets = pad_right([prompt.targets for prompt in prompts], self.pad_id, self.device)
        inputs = self.model_inputs(contexts)
        inputs.pop("position_ids", None)  # transformers derives them from the mask
        no_stop = 2**31 - 1  # an end token that no vocabulary has
        settings = GenerationSettings(targets.shape[1])
        forced = _Forced(targets, inputs["input_ids"].shape[1])
        output = self.network.generate(
            **inputs,
            generation_config=decoding_config(settings, [no_stop], self.pad_id),
            logits_processor=LogitsProcessorList([forced]),
            return_dict_in_generate=True,
            output_logits=True,
        )
        losses, hits = token_losses(torch.stack(output.logits, dim=1), targets)
        return row_likelihoods(losses, hits, [len(prompt.targets) for prompt in prompts])


def _by_kind(
    items: Sequence[Item],
    kind: Callable[[Any], Hashable],
    run: Callable[[Sequence[Item]], Sequence[Result]],
) -> list[Result]:
    """Run items of each kind apart, because most processors cannot mix prompts with and without images."""
    results: dict[int, Result] = {}
    for group in group_positions(map(kind, items)).values():
        results.update(zip(group, run([items[row] for row in group]), strict=True))
    return [results[row] for row in range(len(items))]
