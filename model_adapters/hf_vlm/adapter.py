"""``hf_vlm``: any decoder-only vision-language checkpoint of transformers, with its own processor and chat template."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar, cast

import torch
from PIL import Image

from medtasks.errors import MedTasksError

from ..base.adapter import MedicalAdapter
from ..base.arguments import AdapterArguments
from ..base.batching import Encoded, PaddedBatch
from ..base.generation import GenerationSettings
from ..base.journal import digest_of
from ..base.scoring import Continuation, Likelihood
from .encoding import Prompt, PromptWriter
from .loading import HfVlmArguments, check_arguments, load_config, load_model, load_processor
from .scoring import ContinuationScorer

Item = TypeVar("Item")
Result = TypeVar("Result")


class HfVlm(MedicalAdapter):
    """Generation and log-likelihood with ``AutoModelForImageTextToText``.

    The continuation is scored as it is given: a blank at its beginning, which tasks put there for models without chat
    template, is one of its characters, also directly behind a generation prompt.
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
        self.writer = PromptWriter(self.processor, self.arguments.chat_template, self.arguments.pretrained)
        self.network = load_model(self.arguments, self.device)
        self.device = self.network.get_input_embeddings().weight.device
        self._accepted = frozenset(inspect.signature(self.network.forward).parameters)
        self._stop_ids = _stop_ids(self.network, self.processor.tokenizer, self.writer.turn_end())
        self._scorer = ContinuationScorer(self, self.arguments.prefix_cache)

    @property
    def language_model(self) -> Any:
        """The whole model: transformers embeds the images in it."""
        return self.network

    @property
    def pad_id(self) -> int:
        """Padding token of the tokenizer."""
        return int(self.processor.tokenizer.pad_token_id)

    @property
    def stop_ids(self) -> Sequence[int]:
        """End tokens of the checkpoint's generation settings, of the tokenizer and of the template's turns."""
        return self._stop_ids

    def encode(self, text: str, images: Sequence[Image.Image]) -> Encoded:
        """Write ``text`` as a user turn (or as it is, without chat template) and run the processor."""
        return self._checked(self.writer.prompt(self.writer.write(text, len(images)), images))

    def encode_pair(self, context: str, continuation: str, images: Sequence[Image.Image]) -> Continuation:
        """Encode a prompt and the reply to score: behind the generation prompt, not inside the user's turn."""
        prompt, tokens = self.writer.scored(self.writer.write(context, len(images)), continuation, images)
        self._checked(prompt)
        return Continuation(prompt, tokens)

    def model_inputs(self, batch: PaddedBatch) -> dict[str, Any]:
        """Return the processor's batch on the device, pixels in the model's precision; it pads what only it knows."""
        prompts = cast(Sequence[Prompt], batch.prompts)
        ready = prompts[0].inputs if len(prompts) == 1 else None
        inputs = ready or self.writer.batch([row.text for row in prompts], [row.images for row in prompts])
        return {
            name: value.to(self.device, self.network.dtype if value.is_floating_point() else None)
            for name, value in inputs.items()
            if isinstance(value, torch.Tensor) and self._wanted(name)
        }

    def fingerprint(self) -> str:
        """Return what identifies weights, files, processor and template; those of a hub id are in no named file."""
        written = self.writer.write("?", 1), self.stop_ids, self.processor.to_json_string()
        return super().fingerprint() + digest_of(*written)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text without special tokens."""
        text: str = self.processor.tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def generate_batch(self, prompts: Sequence[Encoded], settings: GenerationSettings, seed: int) -> list[str]:
        """Generate replies in one go; penalties and banned tokens of the checkpoint's settings stay in force."""
        generate = super().generate_batch
        return _by_images(prompts, lambda prompt: prompt, lambda rows: generate(rows, settings, seed))

    @torch.inference_mode()
    def score_batch(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score continuations in the fastest way that is right for the model, see :class:`ContinuationScorer`."""
        return _by_images(items, lambda item: item.sequence, self._scorer.score)

    def _wanted(self, name: str) -> bool:
        # Labels are for training, and some tokenizers return token types to models that have none.
        return name != "labels" and (name in self._accepted or not name.endswith("token_type_ids"))

    def _checked(self, prompt: Prompt) -> Prompt:
        limit = self.arguments.max_length
        if limit is not None and len(prompt.ids) > limit:
            raise MedTasksError(f"the prompt has {len(prompt.ids)} tokens, max_length allows {limit}")
        return prompt


def _stop_ids(model: Any, tokenizer: Any, turn_end: int | None) -> tuple[int, ...]:
    given = model.generation_config.eos_token_id
    ends = {tokenizer.eos_token_id, turn_end, *(given if isinstance(given, list) else [given])}
    return tuple(sorted(token for token in ends if token is not None))


def _by_images(
    items: Sequence[Item], prompt_of: Callable[[Item], Encoded], run: Callable[[Sequence[Item]], Sequence[Result]]
) -> list[Result]:
    """Run items with and without images apart, because most processors cannot mix them; results in order."""
    results: dict[int, Result] = {}
    for kind in (True, False):
        rows = [row for row, item in enumerate(items) if bool(cast(Prompt, prompt_of(item)).images) == kind]
        if rows:
            results.update(zip(rows, run([items[row] for row in rows]), strict=True))
    return [results[row] for row in range(len(items))]
