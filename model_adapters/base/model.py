"""What a model module provides: how to load it, and how (text, images) become its input."""

import abc
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from PIL import Image

from ..prefix.cuts import Spans
from .arguments import AdapterArguments
from .batching import Continuation, Encoded, PaddedBatch, split_continuation
from .caches import FeatureCache
from .fingerprint import files_digest, weights_digest
from .requests import IMAGES


class AdapterModel(abc.ABC):
    """The model's side of an adapter; the harness's side is ``adapter.MedicalAdapter``, which models extend."""

    model_id: ClassVar[str]
    keeps_decoding_settings: ClassVar[bool] = False
    """Whether penalties and banned tokens of the checkpoint's ``generation_config`` stay in force."""
    visual_types: ClassVar[tuple[type, ...]] = IMAGES
    """What the model takes as image."""
    tokenizer: Any  # whose ``decode`` turns ids into text
    pad_id: int  # token to fill up with
    stop_ids: Sequence[int]  # tokens that end a reply
    stop_strings: Sequence[str] = ()  # where a reply ends beside the task's stop strings
    arguments: AdapterArguments
    device: torch.device  # where the model's inputs are
    # what :meth:`load` builds, with ``language_model`` in it, and ``image_features`` where there is a vision tower;
    # only a model that overrides what uses them does without
    network: Any
    _features: FeatureCache
    _last_prepared: tuple[tuple[Any, ...], torch.Tensor | None] | None

    @abc.abstractmethod
    def load(self) -> None:
        """Build tokenizer and weights on ``self.device``; keep the weights in attributes only, see ``clean``."""

    @property
    def language_model(self) -> Any:
        """The transformers causal language model: called with ``logits_to_keep``, and asked to ``generate``."""
        return self.network.language_model

    @abc.abstractmethod
    def encode(self, text: str, images: Sequence[Image.Image]) -> Encoded:
        """Turn a prompt into model input; at least one token (a begin of sequence) even for empty text.

        The ids of a text have to be the first ids of any longer text, up to what the tokenizer merges at the seam.
        """

    def encode_pair(self, context: str, continuation: str, images: Sequence[Image.Image]) -> Continuation:
        """Encode a prompt and the text to score after it; to be overridden where a template closes the prompt.

        Raises a ``ValueError`` where the continuation adds no token.
        """
        return split_continuation(self.encode(context, images), self.encode(context + continuation, images))

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return what the language model is given for some images; called through :meth:`cached_features`.

        Pixels are as in ``Encoded.pixels``, on ``self.device``. The first dimension of the features runs over the
        images: shape (images, ...) or (images * tokens, ...). No image may depend on its neighbours, because
        :meth:`cached_features` hands over one at a time.
        """
        features: torch.Tensor = self.network.image_features(pixels)
        return features

    def prepared(
        self, images: Sequence[Any], prepare: Callable[[Sequence[Any]], torch.Tensor | None]
    ) -> torch.Tensor | None:
        """Return what ``prepare`` makes of images; the very images of the last call are not prepared again.

        Options of a question are encoded one after another with the same images, and ``prepare`` does the same to them.
        """
        last = self._last_prepared
        if last is None or len(last[0]) != len(images) or any(map(operator.is_not, last[0], images)):
            last = self._last_prepared = tuple(images), prepare(images)
        return last[1]

    def cached_features(self, pixels: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Return the ``image_features`` of every row of ``PaddedBatch.pixels``, each image computed at most once."""
        return self._features.features(pixels, lambda image: self.image_features(image.to(self.device)))

    def continuation_inputs(self, ids: torch.Tensor, contexts: PaddedBatch) -> dict[str, Any]:
        """Return the language model's inputs for text tokens that follow a cached context, shape (batch, tokens).

        The keys and values of ``contexts`` are in the cache, one row per row of ``ids``.
        """
        return {"input_ids": ids}

    def image_spans(self, prompt: Encoded) -> Spans | None:
        """Return per image, in order, the columns that depend on it directly: (first, behind the last).

        With it, prompts of a batch that begin alike share the prefill of that prefix, which is cut at a border of these
        spans or outside of them. An image that no column shows has the span (0, 0). Where a prompt is not to share its
        prefix, return ``None``, the default, or anything but one span per image.
        """
        return None

    def scoring_inputs(self, batch: PaddedBatch) -> dict[str, Any]:
        """Return the ``model_inputs`` for scoring, where they differ from those that ``generate`` completes."""
        return self.model_inputs(batch)

    def position_shift(self, batch: PaddedBatch) -> torch.Tensor:
        """Return by how much the positions behind prompts that were just read exceed their tokens, shape (batch, 1).

        Zero, but where a model places images in two dimensions. On any device: to read it from a GPU is to wait for it.
        """
        return torch.zeros(len(batch.prompts), 1, dtype=torch.long)

    def suffix_inputs(self, suffix: PaddedBatch, whole: PaddedBatch) -> dict[str, Any]:
        """Return the language model's inputs for what follows a cached prefix; mask and positions are set anew.

        The suffix is padded on the left, with the images whose spans lie in it. In ``whole``, prefix and suffix lie
        side by side, with padding before each, and all images.
        """
        return self.model_inputs(suffix)

    def model_inputs(self, batch: PaddedBatch) -> dict[str, Any]:
        """Return the keyword inputs of the language model for a batch, attention mask and positions included.

        With ``inputs_embeds``, the default, the image features are already in place, put there by ``network.embed``; a
        model that takes features by cross-attention returns ``input_ids`` and its own keywords.
        """
        return batch.inputs(inputs_embeds=self.network.embed(batch.ids, self.cached_features(batch.pixels)))

    def decode(self, ids: Sequence[int]) -> str:
        """Turn ids into text, without special tokens."""
        return str(self.tokenizer.decode(ids))

    def fingerprint(self) -> str:
        """Return what identifies the weights and files behind the answers; other values, other journal.

        By default some values of every tensor in the attributes, and the files that arguments name.
        """
        return weights_digest(self) + files_digest(self.arguments)
