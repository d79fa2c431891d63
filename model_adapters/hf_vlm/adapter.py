"""``hf_vlm``: any decoder-only vision-language checkpoint of transformers, with its own processor and chat template."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar, cast

import torch
from PIL import Image

from medtasks.errors import MedTasksError
from medtasks.net.journal import digest_of

from ..base.adapter import MedicalAdapter
from ..base.arguments import AdapterArguments
from ..base.batching import Continuation, Encoded, Likelihood, PaddedBatch, Spans, positions_of
from ..base.generation import GenerationSettings
from .continuation_scorer import ContinuationScorer
from .encoding import ProcessedPrompt, PromptWriter, ScoredPrompt, Template, per_token
from .loading import HfVlmArguments, check_arguments, load_config, load_model, load_processor

# What belongs to every token and is known for text: an id, attended to, of no image.
_PER_TOKEN = {"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"}
Item = TypeVar("Item")
Result = TypeVar("Result")


class HfVlm(MedicalAdapter):
    """Generation and log-likelihood with ``AutoModelForImageTextToText``.

    The continuation is scored as it is given: a blank at its beginning, which tasks put there for models without chat
    template, is one of its characters, also directly after a generation prompt.
    """

    model_id: ClassVar[str] = "hf_vlm"
    arguments_type: ClassVar[type[AdapterArguments]] = HfVlmArguments
    keeps_decoding_settings: ClassVar[bool] = True
    arguments: HfVlmArguments

    def load(self) -> None:
        """Load processor and model; what does not fit, or is another kind of checkpoint, is a ``MedTasksError``."""
        check_arguments(self.arguments, self.accelerator.num_processes)
        load_config(self.arguments)
        self.processor = load_processor(self.arguments)
        given = self.arguments
        template = Template(given.system_prompt, given.chat_template_kwargs or {}) if given.chat_template else None
        self.writer = PromptWriter(self.processor, template, given.pretrained)
        self.network = load_model(self.arguments, self.device)
        self.device = self.network.get_input_embeddings().weight.device
        self._accepted = frozenset(inspect.signature(self.network.forward).parameters)
        self.tokenizer = self.processor.tokenizer
        self.pad_id = int(self.tokenizer.pad_token_id)
        ends = self.network.generation_config.eos_token_id
        ends = {*(ends if isinstance(ends, list) else [ends]), self.tokenizer.eos_token_id}
        self.stop_ids = tuple(sorted(token for token in ends | {self.writer.turn_end()} if token is not None))
        self._scorer = ContinuationScorer(self)

    @property
    def language_model(self) -> Any:
        """The whole model: transformers embeds the images in it."""
        return self.network

    def encode(self, text: str, images: Sequence[Image.Image], reply: str = "") -> Encoded:
        """Write ``text`` as a user turn (or as it is, without chat template) and run the processor."""
        return self._checked(self.writer.prompt(self.writer.write(text, len(images)) + reply, images))

    def encode_pair(self, context: str, continuation: str, images: Sequence[Image.Image]) -> Continuation:
        """Encode a prompt and the reply to score after its generation prompt."""
        prompt, tokens = self.writer.scored(self.writer.write(context, len(images)), continuation, images)
        self._checked(prompt)
        return Continuation(prompt, tokens)

    def image_spans(self, prompt: Encoded) -> Spans | None:
        """Return one span for all images, from the first token on: a prefix ends after the last of them."""
        if not cast(ProcessedPrompt, prompt).images:
            return []
        slot = getattr(self.network.config, "image_token_id", None)
        slots = [column for column, token in enumerate(prompt.ids) if token == slot]
        return [(0, slots[-1] + 1)] if slots else None

    def model_inputs(self, batch: PaddedBatch, before: PaddedBatch | None = None) -> dict[str, Any]:
        """Return the processor's batch on the device, pixels in the model's precision; it pads what only it knows.

        Positions are added unless the model places images in two dimensions by itself. After a cached prefix there are
        only ids, as no image follows one; a model that takes more per token than is known here (masks of
        cross-attention) is a ``ValueError`` then.
        """
        if before is not None:
            given = {
                name for prompt in before.prompts for name in per_token(cast(ProcessedPrompt, prompt).inputs or {})
            }
            if given - _PER_TOKEN:
                raise ValueError(f"no rule to continue {', '.join(sorted(given - _PER_TOKEN))}")
            return batch.inputs(input_ids=batch.ids)
        prompts = cast(Sequence[ProcessedPrompt], batch.prompts)
        ready = prompts[0].inputs if len(prompts) == 1 else None
        prepared = ready or self.writer.batch([row.text for row in prompts], [row.images for row in prompts])
        # Some tokenizers return token types to models that have none.
        inputs: dict[str, Any] = {
            name: value.to(self.device, self.network.dtype if value.is_floating_point() else None)
            for name, value in prepared.items()
            if isinstance(value, torch.Tensor) and (name in self._accepted or not name.endswith("token_type_ids"))
        }
        if "position_ids" in self._accepted and not self._placed_by_model(batch):
            inputs["position_ids"] = positions_of(inputs["attention_mask"].long())
        return inputs

    def _placed_by_model(self, batch: PaddedBatch) -> bool:
        own = any(hasattr(module, "get_rope_index") for module in self.network.modules())
        return own and bool(cast(ProcessedPrompt, batch.prompts[0]).images)

    def position_shift(self, batch: PaddedBatch) -> torch.Tensor:
        """Return the shift noted by a model that places images in two dimensions."""
        modules = self.network.modules() if self._placed_by_model(batch) else ()
        shifts = (module.rope_deltas for module in modules if getattr(module, "rope_deltas", None) is not None)
        return next(shifts, super().position_shift(batch))

    def fingerprint(self) -> str:
        """Return a digest of weights, files, processor and template; those of a hub id are in no named file."""
        written = self.writer.write("?", 1), self.stop_ids, self.processor.to_json_string()
        return super().fingerprint() + digest_of(*written)

    def generate_batch(self, prompts: Sequence[Encoded], settings: GenerationSettings, seed: int) -> list[str]:
        """Generate replies in one go; penalties and banned tokens of the checkpoint's settings stay in force."""
        generate = super().generate_batch
        return _by_kind(prompts, lambda prompt: bool(prompt.images), lambda rows: generate(rows, settings, seed))

    def _score_shared(self, items: Sequence[Continuation]) -> list[Likelihood]:
        def kind(item: Continuation) -> tuple[bool, bool]:
            prompt = cast(ScoredPrompt, item.sequence)
            return bool(prompt.images), prompt.merged

        def score(rows: Sequence[Continuation]) -> list[Likelihood]:
            _, merged = kind(rows[0])  # with other tokens at the end of its prompt, which the processor cannot write
            return self._scorer.whole(rows) if merged else self._scorer.shared(rows, self._prefixes)

        return _by_kind(items, kind, score)

    def _score_whole(self, items: Sequence[Continuation]) -> list[Likelihood]:
        return _by_kind(items, lambda item: bool(cast(ProcessedPrompt, item.sequence).images), self._scorer.whole)

    def _checked(self, prompt: ProcessedPrompt) -> ProcessedPrompt:
        limit = self.arguments.max_length
        if limit is not None and len(prompt.ids) > limit:
            raise MedTasksError(f"the prompt has {len(prompt.ids)} tokens, max_length allows {limit}")
        return prompt


def _by_kind(
    items: Sequence[Item], kind: Callable[[Any], object], run: Callable[[Sequence[Item]], Sequence[Result]]
) -> list[Result]:
    """Run items of each kind apart, because most processors cannot mix prompts with and without images; in order."""
    rows: dict[object, list[int]] = {}
    for row, item in enumerate(items):
        rows.setdefault(kind(item), []).append(row)
    results: dict[int, Result] = {}
    for some in rows.values():
        results.update(zip(some, run([items[row] for row in some]), strict=True))
    return [results[row] for row in range(len(items))]
