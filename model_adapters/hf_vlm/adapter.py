"""``hf_vlm``: any decoder-only vision-language checkpoint of transformers, with its own processor and chat template.

Continuations are scored in the fastest way that gives the scores of generation: after a prefix that questions on one
image share, after a prompt that options share, in one forward pass over prompt and continuation, or token by token.
"""

import importlib.util
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from loguru import logger
from PIL import Image
from transformers import LogitsProcessor, LogitsProcessorList

from medtasks.errors import AdapterArgumentError, MedTasksError
from medtasks.net.journal import digest_of
from medtasks.version import ARCHITECTURES_NEED

from ..base.adapter import MedicalAdapter
from ..base.arguments import AdapterArguments
from ..base.batching import (
    Continuation,
    Encoded,
    GenerationSettings,
    Likelihood,
    PaddedBatch,
    Spans,
    decoding_config,
    likelihood,
    pad_left,
    pad_right,
    positions_of,
    score,
    token_losses,
)
from ..base.checkpoints import CheckpointError
from ..base.requests import Item, Result
from ..base.shared_scoring import Questions, score_by_question
from .encoding import ProcessedPrompt, PromptWriter, ScoredPrompt, Template, per_token
from .loading import HfVlmArguments, load_model, load_processor

# Inputs per token with a known value for text: an id, attended to, of no image.
_PER_TOKEN = {"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"}
_CHECKED_ROWS = 4
# Nats per token by which a way of scoring may differ from generation; half precision rounds logits that coarsely.
_TOLERANCE, _HALF_TOLERANCE = 1e-3, 0.1
# Errors of models that cannot use our cache.
_UNSUPPORTED = (TypeError, ValueError, KeyError, IndexError, AttributeError, RuntimeError)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


class _Forced(LogitsProcessor):  # type: ignore[misc]  # transformers is not analysed
    """Forces generation to produce these tokens."""

    def __init__(self, targets: torch.Tensor, start: int) -> None:
        self.targets, self.start = targets, start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        target = self.targets[:, input_ids.shape[1] - self.start, None]
        return torch.full_like(scores, -math.inf).scatter(1, target, 0.0)


class HfVlm(MedicalAdapter):
    """``AutoModelForImageTextToText``; a blank that tasks put before a continuation is scored too."""

    model_id: ClassVar[str] = "hf_vlm"
    arguments_type: ClassVar[type[AdapterArguments]] = HfVlmArguments
    least_versions: ClassVar[Mapping[str, str]] = ARCHITECTURES_NEED
    keeps_decoding_settings: ClassVar[bool] = True
    arguments: HfVlmArguments

    def load(self) -> None:
        """Check conditions on several arguments, and load processor and model."""
        arguments, processes = self.arguments, self.accelerator.num_processes
        if not arguments.pretrained:
            raise AdapterArgumentError(
                "hf_vlm: argument 'pretrained' is missing; give a folder or a hub id."
            )
        if arguments.device_map and processes > 1:
            raise AdapterArgumentError(
                f"hf_vlm: device_map='{arguments.device_map}' spreads a model over one process, but {processes} run; "
                f"leave the argument out or start one process."
            )
        if not arguments.chat_template and (
            arguments.system_prompt is not None or arguments.chat_template_kwargs
        ):
            raise AdapterArgumentError(
                "hf_vlm: system_prompt and chat_template_kwargs are for the chat template, which chat_template=false "
                "leaves out; give one or the other."
            )
        if arguments.adapter and importlib.util.find_spec("peft") is None:
            raise AdapterArgumentError(
                "hf_vlm: argument 'adapter' needs PEFT, which is not installed; pip install peft."
            )
        folder = Path(arguments.pretrained).expanduser()
        if folder.is_dir() and not (folder / "config.json").is_file():
            raise CheckpointError(
                f"{folder} holds no config.json; give the folder that the checkpoint was saved to"
            )
        if not folder.is_dir() and not _HUB_ID.fullmatch(arguments.pretrained):
            raise CheckpointError(
                f"{arguments.pretrained} is no folder; give pretrained=<folder or hub id>"
            )
        self.processor = load_processor(arguments)
        variables = arguments.chat_template_kwargs or {}
        template = Template(arguments.system_prompt, variables) if arguments.chat_template else None
        self.writer = PromptWriter(self.processor, template, arguments.pretrained)
        self.network = load_model(arguments, self.device)
        self.device = self.network.get_input_embeddings().weight.device
        self._accepted = frozenset(inspect.signature(self.network.forward).parameters)
        self.tokenizer = self.processor.tokenizer
        self.pad_id = int(self.tokenizer.pad_token_id)
        ends = self.network.generation_config.eos_token_id
        ends = {*(ends if isinstance(ends, list) else [ends]), self.tokenizer.eos_token_id}
        self.stop_ids = tuple(
            sorted(token for token in ends | {self.writer.turn_end()} if token is not None)
        )
        self._fits: dict[tuple[str, bool], bool] = {}  # ways of scoring, with and without images

    @property
    def language_model(self) -> Any:
        """The whole model: transformers embeds the images in it."""
        return self.network

    def encode(self, text: str, images: Sequence[Image.Image], reply: str = "") -> Encoded:
        """Write ``text`` as a user turn (or as it is, without chat template) and run the processor."""
        prompt = self.writer.prompt(self.writer.write(text, len(images)) + reply, images)
        self._check_length(prompt)
        return prompt

    def encode_pair(
        self, context: str, continuation: str, images: Sequence[Image.Image]
    ) -> Continuation:
        """Encode a prompt and the reply to score after its generation prompt."""
        prompt, tokens = self.writer.scored(
            self.writer.write(context, len(images)), continuation, images
        )
        self._check_length(prompt)
        return Continuation(prompt, tokens)

    def image_spans(self, prompt: Encoded) -> Spans | None:
        """Return one span for all images, from the first token to the last image."""
        if not cast(ProcessedPrompt, prompt).images:
            return []
        slot = getattr(self.network.config, "image_token_id", None)
        slots = [column for column, token in enumerate(prompt.ids) if token == slot]
        return [(0, slots[-1] + 1)] if slots else None

    def model_inputs(self, batch: PaddedBatch, before: PaddedBatch | None = None) -> dict[str, Any]:
        """Return the processor's batch on the device, pixels in the model's precision.

        Positions are added unless the model itself places images in two dimensions. After a cached prefix there are
        only ids, as no image follows one; other inputs per token (masks of cross-attention) are a ``ValueError`` then.
        """
        if before is not None:
            prompts = cast(Sequence[ProcessedPrompt], before.prompts)
            if (
                unknown := {name for prompt in prompts for name in per_token(prompt.inputs or {})}
                - _PER_TOKEN
            ):
                raise ValueError(f"no rule to continue {', '.join(sorted(unknown))}")
            return batch.inputs(input_ids=batch.ids)
        prompts = cast(Sequence[ProcessedPrompt], batch.prompts)
        ready = prompts[0].inputs if len(prompts) == 1 else None
        prepared = ready or self.writer.batch(
            [row.text for row in prompts], [row.images for row in prompts]
        )
        # Some tokenizers return token types to models that have none.
        inputs: dict[str, Any] = {
            name: value.to(self.device, self.network.dtype if value.is_floating_point() else None)
            for name, value in prepared.items()
            if isinstance(value, torch.Tensor)
            and (name in self._accepted or not name.endswith("token_type_ids"))
        }
        if "position_ids" in self._accepted and not self._placed_by_model(batch):
            inputs["position_ids"] = positions_of(inputs["attention_mask"].long())
        return inputs

    def _placed_by_model(self, batch: PaddedBatch) -> bool:
        in_two_dimensions = any(
            hasattr(module, "get_rope_index") for module in self.network.modules()
        )
        return in_two_dimensions and bool(cast(ProcessedPrompt, batch.prompts[0]).images)

    def position_shift(self, batch: PaddedBatch) -> torch.Tensor:
        """Return the shift that a model stored which places images in two dimensions."""
        modules = self.network.modules() if self._placed_by_model(batch) else ()
        shifts = (
            module.rope_deltas
            for module in modules
            if getattr(module, "rope_deltas", None) is not None
        )
        return next(shifts, super().position_shift(batch))

    def fingerprint(self) -> str:
        """Return a digest of weights, files, processor and template, which a hub id does not name."""
        written = self.writer.write("?", 1), self.stop_ids, self.processor.to_json_string()
        return super().fingerprint() + digest_of(*written)

    def generate_batch(
        self, prompts: Sequence[Encoded], settings: GenerationSettings, seed: int
    ) -> list[str]:
        """Generate replies in one batch; penalties and banned tokens of the checkpoint's settings apply."""
        generate = super().generate_batch
        return _by_kind(
            prompts, lambda prompt: bool(prompt.images), lambda rows: generate(rows, settings, seed)
        )

    @torch.inference_mode()
    def score_batch(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score continuations; those that a tokenizer merges with their prompt share nothing."""

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

    def _score_shared(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score a batch; common prefixes are read once, if the model can continue from there."""
        if cast(
            ScoredPrompt, items[0].sequence
        ).merged:  # the processor cannot write the tokens of such a prompt
            return self._score_whole(items)
        questions = Questions.of(items, self)
        if any(
            cast(ScoredPrompt, item.sequence).closed for item in items
        ):  # a prompt that is closed is read as one
            questions = replace(questions, cuts={})

        after_cuts = [at for question in questions.cuts for at in questions.places[question]]
        of_several = [at for places in questions.places if len(places) > 1 for at in places]
        scores = None
        if after_cuts:
            way = partial(score_by_question, questions, self, self._score_whole, self._prefixes)
            scores = self._fitting("a shared prefix", way, items, after_cuts)
        if scores is None and of_several:
            way = partial(
                score_by_question,
                replace(questions, cuts={}),
                self,
                self._score_whole,
                self._prefixes,
            )
            scores = self._fitting("a shared prompt", way, items, of_several)
        return scores or self._score_whole(items)

    def _score_whole(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score a batch without sharing anything."""
        prompts = [cast(ScoredPrompt, item.sequence) for item in items]
        if any(prompt.closed for prompt in prompts):
            return self._generating(items)

        def logits_of(batch: PaddedBatch, keep: int) -> torch.Tensor:
            inputs = self.model_inputs(batch)
            for item, ids in zip(items, inputs["input_ids"].tolist(), strict=True):
                if ids[-item.tokens :] != item.targets:
                    raise ValueError("the processor does not put the continuation at the end")
            keeping = {"logits_to_keep": keep} if "logits_to_keep" in self._accepted else {}
            logits: torch.Tensor = self.network(**inputs, **keeping, use_cache=False).logits[
                :, -keep:
            ]
            return logits

        separate = [at for at, prompt in enumerate(prompts) if not prompt.merged]
        in_one_pass = partial(score, items, logits_of, self.pad_id, self.device)
        return self._fitting("one pass", in_one_pass, items, separate) or self._generating(items)

    def _fitting(
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
        some = telling[:_CHECKED_ROWS]
        expected = self._generating([items[at] for at in some])
        scores, gap = None, math.inf
        try:
            scores = way()
            gap = max(
                abs(scores[at].mean - generated.mean)
                for at, generated in zip(some, expected, strict=True)
            )
            reason = f"differ from those of generation by {gap:.2g} per token"
        except torch.OutOfMemoryError:
            raise
        except _UNSUPPORTED as error:
            reason = f"cannot be computed ({type(error).__name__})"
        half = self.network.dtype in (torch.float16, torch.bfloat16)
        self._fits[key] = gap <= (_HALF_TOLERANCE if half else _TOLERANCE)
        level, end = (
            ("DEBUG", "")
            if self._fits[key]
            else ("WARNING", "; scoring without it, which is slower")
        )
        logger.log(level, "{}: scores with {} {}{}", type(self.network).__name__, name, reason, end)
        return scores if self._fits[key] else None

    def _generating(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score by the logits of ``generate`` before each target: slower than one pass, and right by construction."""
        prompts = [cast(ScoredPrompt, item.sequence) for item in items]
        contexts = pad_left([prompt.context for prompt in prompts], self.pad_id, self.device)
        targets = pad_right([prompt.targets for prompt in prompts], self.pad_id, self.device)
        inputs = self.model_inputs(contexts)
        inputs.pop("position_ids", None)  # transformers derives them from the mask
        no_stop = 2**31 - 1  # an end token that no vocabulary has
        output = self.network.generate(
            **inputs,
            generation_config=decoding_config(
                GenerationSettings(targets.shape[1]), [no_stop], self.pad_id
            ),
            logits_processor=LogitsProcessorList([_Forced(targets, inputs["input_ids"].shape[1])]),
            return_dict_in_generate=True,
            output_logits=True,
        )
        losses, hits = token_losses(torch.stack(output.logits, dim=1), targets)
        lengths = [len(prompt.targets) for prompt in prompts]
        return [
            likelihood(losses[row, :length], hits[row, :length])
            for row, length in enumerate(lengths)
        ]


def _by_kind(
    items: Sequence[Item],
    kind: Callable[[Any], object],
    run: Callable[[Sequence[Item]], Sequence[Result]],
) -> list[Result]:
    """Run items of each kind apart, because most processors cannot mix prompts with and without images."""
    rows: dict[object, list[int]] = {}
    for row, item in enumerate(items):
        rows.setdefault(kind(item), []).append(row)
    results: dict[int, Result] = {}
    for group in rows.values():
        results.update(zip(group, run([items[row] for row in group]), strict=True))
    return [results[row] for row in range(len(items))]
