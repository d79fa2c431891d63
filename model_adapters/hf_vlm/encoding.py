"""From prompt text and images to a processor's batch, for any transformers processor.

``HfVlm`` uses it. The processor gets text with one placeholder per image and returns ids, masks, pixels and its model's
other inputs. Nothing that a prompt asks for may be dropped silently, as templates do with what they do not know.
"""

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jinja2
import numpy as np
import torch
from PIL import Image

from medtasks.errors import AdapterArgumentError
from medtasks.prompts.messages import image_parts

from ..base.batching import Encoded, common_length, content_key

_PROBE = "Zqx7"
_SYSTEM_PROBE = "Wkv3"
_RENDERING_ERRORS = (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError)


@dataclass(frozen=True)
class ProcessedPrompt(Encoded):
    """A prompt for the processor.

    Its ``pixels`` are ``None``, because they are in ``inputs``. Its images count as one, because only the processor and
    the model know the layout of their pixels.
    """

    text: str  # with chat template and one placeholder per image; empty for a part of a prompt
    images: tuple[Image.Image, ...]
    # The processor's output for this prompt alone, if it has run
    inputs: Mapping[str, Any] | None

    @cached_property
    def image_keys(self) -> tuple[str, ...]:
        """One key for all images, of their own pixels, which are fewer than the processor's."""
        keys = [content_key(torch.from_numpy(np.array(image))) for image in self.images]
        return (" ".join(keys),) if keys else ()

    def part(
        self,
        start: int,
        stop: int,
        images: slice = slice(None),
    ) -> Encoded:
        """Return the tokens from ``start`` to before ``stop``, with all images or none."""
        assert self.inputs is not None
        visible = self.images if range(1)[images] else ()
        if (start, stop, visible) == (0, len(self.ids), self.images):
            return self
        sliced = per_token(self.inputs)
        inputs = {}
        for name, value in self.inputs.items():
            if name in sliced:
                inputs[name] = value[:, start:stop]
            elif visible:
                inputs[name] = value
        return ProcessedPrompt(self.ids[start:stop], None, "", visible, inputs)


@dataclass(frozen=True)
class ScoredPrompt(ProcessedPrompt):
    """A prompt with its continuation at the end."""

    context: ProcessedPrompt  # the prompt alone
    # Ids of the continuation when it follows the tokens of ``context``
    targets: tuple[int, ...]
    merged: bool  # whether the tokenizer merges the two where they meet, which changes the last ids of the prompt
    closed: bool  # whether the processor appends something to every text, so that it cannot encode both together

    def part(
        self,
        start: int,
        stop: int,
        images: slice = slice(None),
    ) -> Encoded:
        """Return a part of the prompt alone."""
        return self.context.part(start, stop, images)


def per_token(inputs: Mapping[str, Any]) -> set[str]:
    """Return the names of the inputs that belong to each token.

    Args:
        inputs: Output of a processor; such an input has the shape (batch, length, ...).

    Example:
        >>> sorted(per_token({"input_ids": torch.zeros(1, 5), "pixel_values": torch.zeros(1, 3, 8, 8)}))
        ['input_ids']
    """
    if not inputs:
        return set()
    shape = inputs["input_ids"].shape
    names = set()
    for name, value in inputs.items():
        if torch.is_tensor(value) and value.shape[:2] == shape:
            names.add(name)
    return names


@dataclass(frozen=True)
class Template:
    """Input of a chat template next to the user's turn."""

    system: str | None = None  # first turn; templates treat None and an empty text differently
    variables: Mapping[str, Any] = field(default_factory=dict)


class PromptWriter:
    """Writes prompts for one processor, as a user's turn of its chat template or, without ``chat``, as they are.

    A template that is missing, cannot write what is needed, or lacks a variable, is an ``AdapterArgumentError``.
    """

    def __init__(
        self,
        processor: Any,
        chat: Template | None,
        source: str,
    ) -> None:
        self._processor = processor
        self._chat = chat
        self._image_token = str(getattr(processor, "image_token", None) or "")
        template = (
            getattr(processor, "chat_template", None) or processor.tokenizer.chat_template
        )
        self._template = template.get("default") if isinstance(template, dict) else template
        self._last: ProcessedPrompt | None = None
        # Whether the template takes content in parts, or else as text.
        self._structured = True
        takes_images = self._takes_an_image()
        if not takes_images:
            self._structured = False
            takes_images = self._takes_an_image()
        if chat:
            self._check_template(chat, source, takes_images)
        # The template's text for an image, which is often more than the processor's placeholder.
        self._image_text = self._image_block() if takes_images else self._image_token
        bos = processor.tokenizer.bos_token
        # Templates that write the begin of sequence must not get a second one.
        self._add_special = not (chat and bos and self._render([_PROBE]).startswith(bos))

    def _takes_an_image(self) -> bool:
        """Return whether the template writes a user's turn of one image and a text, each of them once."""
        if self._template is None:
            return False
        with contextlib.suppress(*_RENDERING_ERRORS):
            rendered = self._render([None, _PROBE], Template())
            return (
                rendered.count(_PROBE) == 1 and rendered.count(self._image_token or _PROBE) == 1
            )
        return False

    def _image_block(self) -> str:
        """Return the template's text for an image, or the processor's placeholder if it cannot be told."""
        with_image = self._render([None, _PROBE])
        without = self._render([_PROBE])
        start = common_length(with_image, without)
        block = with_image[start : start + len(with_image) - len(without)]
        is_inserted = with_image == without[:start] + block + without[start:]
        return block if is_inserted and self._image_token in block else self._image_token

    def write(self, text: str, images: int) -> str:
        """Return the complete prompt text.

        Args:
            text: Prompt of the task. One that holds the processor's placeholder places its images itself.
            images: Number of images.
        """
        parts = image_parts(text, images, self._image_token)
        if self._chat:
            return self._render(parts)
        is_placed = bool(self._image_token) and self._image_token in text
        image = self._image_token if is_placed else self._image_text
        return "".join(image if part is None else part for part in parts)

    def ids(self, text: str) -> list[int]:
        """Return the ids of a text, without images.

        Args:
            text: Without begin or end of sequence, which are not added.
        """
        return list(self._processor.tokenizer(text, add_special_tokens=False)["input_ids"])

    def prompt(self, text: str, images: Sequence[Image.Image]) -> ProcessedPrompt:
        """Run the processor on one complete prompt text, once for consecutive calls with the same prompt.

        Args:
            text: What :meth:`write` returned, with or without the beginning of a reply.
            images: In the order of their placeholders.
        """
        rgb = tuple(image.convert("RGB") for image in images)
        if self._last is None or self._last.text != text or self._last.images != rgb:
            inputs = self.batch([text], [rgb])
            self._last = ProcessedPrompt(
                inputs["input_ids"][0].tolist(), None, text, rgb, inputs
            )
        return self._last

    def prompt_with_reply(
        self,
        context: str,
        continuation: str,
        images: Sequence[Image.Image],
    ) -> tuple[ScoredPrompt, int]:
        """Encode a complete prompt text and its continuation.

        Args:
            context: What :meth:`write` returned.
            continuation: Text to score after it.
            images: In the order of their placeholders.

        Returns:
            The prompt with its continuation, and the continuation's number of tokens: those of the whole text after its
            longest common prefix with the context, compared with one placeholder per image.

        Raises:
            ValueError: The continuation adds no token, or follows none.
        """
        before = self.ids(context)
        after = self.ids(context + continuation)
        common = common_length(before, after)
        if common == len(after):
            raise ValueError("the continuation adds no token")
        prompt = self.prompt(context, images)
        closed = bool(before) and prompt.ids[-1] != before[-1]
        merged = common < len(before)
        targets = self.ids(continuation) if merged else after[common:]
        if closed:
            start = prompt.ids
            end = targets
        else:
            start = prompt.ids[: len(prompt.ids) - len(before) + common]
            end = after[common:]
        if not start:
            raise ValueError("no token precedes the continuation")
        scored = ScoredPrompt(
            [*start, *end],
            None,
            context + continuation,
            prompt.images,
            None,
            context=prompt,
            targets=tuple(targets),
            merged=merged,
            closed=closed,
        )
        return scored, len(end)

    def batch(self, texts: Sequence[str], images: Sequence[Sequence[Image.Image]]) -> Any:
        """Run the processor on complete prompts.

        Args:
            texts: What :meth:`write` returned, with or without replies.
            images: Of each prompt. All have some, or none has.

        Returns:
            The processor's batch, padded on the left.
        """
        pixels = {"images": [list(row) for row in images]} if any(images) else {}
        inputs = self._processor(
            text=list(texts),
            **pixels,
            add_special_tokens=self._add_special,
            padding=True,
            padding_side="left",
            return_tensors="pt",
        )
        inputs.pop("labels", None)  # for training
        return inputs

    def inputs_of(self, prompts: Sequence[ProcessedPrompt]) -> Any:
        """Return the processor's batch of prompts, which is at hand for a single one that it has seen.

        Args:
            prompts: Complete prompts. All have images, or none has.
        """
        if len(prompts) == 1 and prompts[0].inputs:
            return prompts[0].inputs
        return self.batch([row.text for row in prompts], [row.images for row in prompts])

    def turn_end(self) -> int | None:
        """Return the id of the special token that the chat template writes after an assistant's reply.

        Returns:
            ``None`` if it writes none, or without a chat template.
        """
        if not self._chat:
            return None
        turns: list[dict[str, Any]] = []
        for role, text in (("user", "Yes?"), ("assistant", _PROBE)):
            turns.append({"role": role, "content": self._content([text])})
        try:
            rendered = self._processor.apply_chat_template(
                turns, chat_template=self._template, **self._chat.variables
            )
        except _RENDERING_ERRORS:
            return None
        after = self.ids(rendered.rpartition(_PROBE)[2].lstrip())
        added = self._processor.tokenizer.added_tokens_decoder
        return after[0] if after and after[0] in added and added[after[0]].special else None

    def _check_template(self, chat: Template, source: str, takes_images: bool) -> None:
        """Check that a template writes what is needed.

        Raises:
            AdapterArgumentError: The template would silently ignore an image, a variable or the system turn, or the
                text of the system turn would stand for an image.
        """
        if not takes_images:
            state = "has a chat template that takes no image"
            if self._template is None:
                state = "has no chat template"
            raise AdapterArgumentError(
                f"hf_vlm: {source} {state}; give chat_template=false to send prompts as they are."
            )
        for name in chat.variables:
            if not re.search(rf"\b{re.escape(name)}\b", str(self._template)):
                raise AdapterArgumentError(
                    f"hf_vlm: chat_template_kwargs: the chat template of {source} has no variable '{name}'; correct "
                    f"the name or leave it out."
                )
        if chat.system is None:
            return
        try:
            rendered = self._render([None, _PROBE], replace(chat, system=_SYSTEM_PROBE))
        except _RENDERING_ERRORS:
            rendered = ""
        if rendered.count(_SYSTEM_PROBE) != 1 or rendered.count(_PROBE) != 1:
            raise AdapterArgumentError(
                f"hf_vlm: the chat template of {source} writes no system turn; leave system_prompt out."
            )
        if self._image_token and self._image_token in str(chat.system):
            raise AdapterArgumentError(
                f"hf_vlm: system_prompt holds {self._image_token}, which stands for an image."
            )

    def _render(self, parts: Sequence[str | None], chat: Template | None = None) -> str:
        """Return system turn, user turn and generation prompt, where ``None`` is an image."""
        chat = chat or self._chat or Template()
        turns = [{"role": "user", "content": self._content(parts)}]
        if chat.system is not None:
            system = (
                [{"type": "text", "text": chat.system}] if self._structured else chat.system
            )
            turns.insert(0, {"role": "system", "content": system})
        rendered: str = self._processor.apply_chat_template(
            turns, chat_template=self._template, add_generation_prompt=True, **chat.variables
        )
        return rendered

    def _content(self, parts: Sequence[str | None]) -> Any:
        """Return the content of a turn as the template takes it, where ``None`` is an image."""
        if not self._structured:
            image = f"{self._image_token}\n" if self._image_token else ""
            return "".join(image if part is None else part for part in parts)
        content = []
        for part in parts:
            if part is None:
                content.append({"type": "image"})
            elif part:
                content.append({"type": "text", "text": part})
        return content
