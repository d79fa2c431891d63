"""From prompt text and images to a processor's batch, for any transformers processor.

The processor gets text with one placeholder per image and returns ids, masks, pixels and its model's other inputs.
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

_PROBE, _SYSTEM_PROBE = "Zqx7", "Wkv3"
_RENDERING_ERRORS = (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError)


@dataclass(frozen=True)
class ProcessedPrompt(Encoded):
    """A prompt for the processor; ``pixels`` is ``None``, because they are in ``inputs``.

    Its images count as one, because only the processor and the model know the layout of their pixels.
    """

    text: str  # with chat template and one placeholder per image; empty for a part of a prompt
    images: tuple[Image.Image, ...]
    inputs: Mapping[str, Any] | None  # the processor's output for this prompt alone, if it has run

    @cached_property
    def image_keys(self) -> tuple[str, ...]:
        """One key for all images, of their own pixels, which are fewer than the processor's."""
        keys = [content_key(torch.from_numpy(np.array(image))) for image in self.images]
        return (" ".join(keys),) if keys else ()

    def part(self, start: int, stop: int, images: slice = slice(None)) -> Encoded:
        """Return the tokens from ``start`` to before ``stop``, with all images or none."""
        assert self.inputs is not None
        visible = self.images if range(1)[images] else ()
        if (start, stop, visible) == (0, len(self.ids), self.images):
            return self
        cut = per_token(self.inputs)
        inputs = {
            name: value[:, start:stop] if name in cut else value
            for name, value in self.inputs.items()
            if visible or name in cut
        }
        return ProcessedPrompt(self.ids[start:stop], None, "", visible, inputs)


@dataclass(frozen=True)
class ScoredPrompt(ProcessedPrompt):
    """A prompt with its continuation at the end."""

    context: ProcessedPrompt  # the prompt alone
    targets: tuple[int, ...]  # ids of the continuation when it follows the tokens of ``context``
    merged: bool  # whether the tokenizer merges the two where they meet, which changes the last ids of the prompt
    closed: bool  # whether the processor appends something to every text, so that it cannot encode both together

    def part(self, start: int, stop: int, images: slice = slice(None)) -> Encoded:
        """Return a part of the prompt alone."""
        return self.context.part(start, stop, images)


def per_token(inputs: Mapping[str, Any]) -> set[str]:
    """Return the names of the inputs that belong to each token, shape (batch, length, ...)."""
    shape = inputs["input_ids"].shape if inputs else None
    return {
        name
        for name, value in inputs.items()
        if torch.is_tensor(value) and value.shape[:2] == shape
    }


@dataclass(frozen=True)
class Template:
    """Input of a chat template next to the user's turn."""

    system: str | None = None  # first turn; templates treat None and an empty text differently
    variables: Mapping[str, Any] = field(default_factory=dict)


class PromptWriter:
    """Writes prompts for one processor, as a user's turn of its chat template or, without ``chat``, as they are.

    A template that is missing, cannot write what is needed, or lacks a variable, is an ``AdapterArgumentError``.
    """

    def __init__(self, processor: Any, chat: Template | None, source: str) -> None:
        self._processor = processor
        self._chat = chat
        token = getattr(processor, "image_token", None)
        self._image_token = str(token) if token else ""
        template = getattr(processor, "chat_template", None) or processor.tokenizer.chat_template
        self._template = template.get("default") if isinstance(template, dict) else template
        self._last: ProcessedPrompt | None = None
        self._structured, usable = True, False
        # A template takes content in parts or as text.
        for is_structured in (True, False) if self._template is not None else ():
            self._structured = is_structured
            with contextlib.suppress(*_RENDERING_ERRORS):
                rendered = self._rendered([None, _PROBE], Template())
                usable = (
                    rendered.count(_PROBE) == 1 and rendered.count(self._image_token or _PROBE) == 1
                )
            if usable:
                break
        if chat and not usable:
            state = (
                "has no chat template"
                if self._template is None
                else "has a chat template that takes no image"
            )
            raise AdapterArgumentError(
                f"hf_vlm: {source} {state}; give chat_template=false to send prompts as they are."
            )
        if chat:
            self._check_template(chat, source)
        # The template's text for an image, which is often more than the processor's placeholder.
        self._image_text = self._image_token
        if usable:
            with_image, without = self._rendered([None, _PROBE]), self._rendered([_PROBE])
            start = common_length(with_image, without)
            block = with_image[start : start + len(with_image) - len(without)]
            if (
                with_image == without[:start] + block + without[start:]
                and self._image_token in block
            ):
                self._image_text = block
        bos = processor.tokenizer.bos_token
        # Templates that write the begin of sequence must not get a second one.
        self._add_special = not (chat and bos and self._rendered([_PROBE]).startswith(bos))

    def write(self, text: str, images: int) -> str:
        """Return the complete prompt text; a text that holds the processor's placeholder places its images itself."""
        parts = image_parts(text, images, self._image_token)
        if self._chat:
            return self._rendered(parts)
        image = (
            self._image_token
            if self._image_token and self._image_token in text
            else self._image_text
        )
        return "".join(image if part is None else part for part in parts)

    def ids(self, text: str) -> list[int]:
        """Return the ids of ``text`` without begin or end of sequence."""
        return list(self._processor.tokenizer(text, add_special_tokens=False)["input_ids"])

    def prompt(self, text: str, images: Sequence[Image.Image]) -> ProcessedPrompt:
        """Run the processor on one complete prompt text, once for consecutive calls with the same prompt."""
        rgb = tuple(image.convert("RGB") for image in images)
        if self._last is None or self._last.text != text or self._last.images != rgb:
            inputs = self.batch([text], [rgb])
            self._last = ProcessedPrompt(inputs["input_ids"][0].tolist(), None, text, rgb, inputs)
        return self._last

    def scored(
        self, context: str, continuation: str, images: Sequence[Image.Image]
    ) -> tuple[ScoredPrompt, int]:
        """Encode a complete prompt text and its continuation; returns the continuation's number of tokens, too.

        The continuation's tokens are those of the whole text after its longest common prefix with the context, compared
        with one placeholder per image. A continuation that adds no token, or follows none, is a ``ValueError``.
        """
        before, after = self.ids(context), self.ids(context + continuation)
        common = common_length(before, after)
        if common == len(after):
            raise ValueError("the continuation adds no token")
        prompt = self.prompt(context, images)
        closed = bool(before) and prompt.ids[-1] != before[-1]
        merged = common < len(before)
        targets = self.ids(continuation) if merged else after[common:]
        end = targets if closed else after[common:]
        start = prompt.ids if closed else prompt.ids[: len(prompt.ids) - len(before) + common]
        if not start:
            raise ValueError("no token precedes the continuation")
        text, ids = context + continuation, [*start, *end]
        scored = ScoredPrompt(
            ids, None, text, prompt.images, None, prompt, tuple(targets), merged, closed
        )
        return scored, len(end)

    def batch(self, texts: Sequence[str], images: Sequence[Sequence[Image.Image]]) -> Any:
        """Run the processor on complete prompts, all with images or all without; its batch is padded on the left."""
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

    def turn_end(self) -> int | None:
        """Return the special token that the chat template writes after an assistant's reply, if it does."""
        if not self._chat:
            return None
        turns: list[dict[str, Any]] = [
            {
                "role": role,
                "content": [{"type": "text", "text": text}] if self._structured else text,
            }
            for role, text in (("user", "Yes?"), ("assistant", _PROBE))
        ]
        try:
            rendered = self._processor.apply_chat_template(
                turns, chat_template=self._template, **self._chat.variables
            )
        except _RENDERING_ERRORS:
            return None
        after = self.ids(rendered.rpartition(_PROBE)[2].lstrip())
        added = self._processor.tokenizer.added_tokens_decoder
        return after[0] if after and after[0] in added and added[after[0]].special else None

    def _check_template(self, chat: Template, source: str) -> None:
        """Raise if the template would silently ignore a variable or the system turn."""
        for name in chat.variables:
            if not re.search(rf"\b{re.escape(name)}\b", str(self._template)):
                raise AdapterArgumentError(
                    f"hf_vlm: chat_template_kwargs: the chat template of {source} has no variable '{name}'; correct "
                    f"the name or leave it out."
                )
        if chat.system is None:
            return
        try:
            rendered = self._rendered([None, _PROBE], replace(chat, system=_SYSTEM_PROBE))
        except _RENDERING_ERRORS:
            rendered = ""
        if rendered.count(_SYSTEM_PROBE) != 1 or rendered.count(_PROBE) != 1:
            raise AdapterArgumentError(
                f"hf_vlm: the chat template of {source} writes no system turn; leave system_prompt out."
            )
        if self._image_token and self._image_token in chat.system:
            raise AdapterArgumentError(
                f"hf_vlm: system_prompt holds {self._image_token}, which stands for an image."
            )

    def _rendered(self, parts: Sequence[str | None], chat: Template | None = None) -> str:
        """Return system turn, user turn and generation prompt; ``None`` is an image."""
        chat = chat or self._chat or Template()
        content: Any = [
            {"type": "image"} if part is None else {"type": "text", "text": part}
            for part in parts
            if part != ""
        ]
        if not self._structured:
            image = f"{self._image_token}\n" if self._image_token else ""
            content = "".join(image if part is None else part for part in parts)
        turns = [{"role": "user", "content": content}]
        if chat.system is not None:
            system = [{"type": "text", "text": chat.system}] if self._structured else chat.system
            turns.insert(0, {"role": "system", "content": system})
        rendered: str = self._processor.apply_chat_template(
            turns, chat_template=self._template, add_generation_prompt=True, **chat.variables
        )
        return rendered
