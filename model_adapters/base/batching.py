"""Model input and output: encoded prompts, padded batches, likelihoods, caches of images, decoding and replies.

Adapters of models in this process use it. A likelihood must never depend on the other rows of its batch.
"""

import hashlib
import math
from collections import OrderedDict
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.weak import WeakIdKeyDictionary
from transformers import GenerationConfig, StoppingCriteria
from transformers.modeling_outputs import CausalLMOutputWithPast

from medtasks.errors import MedTasksError

Value = TypeVar("Value")
Spans = Sequence[tuple[int, int]]
"""Per image of a prompt, in order, the columns that depend on it: (first, after the last)."""
KV_CACHE = (
    "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"
)
"""Name of the cached keys and values in arguments and outputs of models: transformers 5.24 renamed it."""
# Version and keys of every living tensor: options of a question share one tensor, a volume's has hundreds of megabytes.
_keys: MutableMapping[Tensor, tuple[int, tuple[str, ...]]] = WeakIdKeyDictionary()
Decode = Callable[[Sequence[int]], str]
KNOWN_SETTINGS = frozenset(
    {"until", "max_new_tokens", "do_sample", "temperature", "top_p", "top_k", "num_beams"}
)


@dataclass(frozen=True)
class Encoded:
    """One prompt as model input."""

    # Every position of the language model, with placeholder ids where image features will go.
    ids: Sequence[int]
    pixels: Tensor | None  # preprocessed images, shape (images, ...); ``None`` without images

    @property
    def image_keys(self) -> tuple[str, ...]:
        """Digest of each image's content, computed once for a tensor that does not change."""
        pixels = self.pixels
        if pixels is None:
            return ()
        version = 0 if pixels.is_inference() else pixels._version
        entry = _keys.get(pixels)
        if entry is None or entry[0] != version:
            keys = tuple(content_key(pixels[at : at + 1]) for at in range(len(pixels)))
            entry = _keys[pixels] = version, keys
        return entry[1]

    def part(
        self,
        start: int,
        stop: int,
        images: slice = slice(None),
    ) -> "Encoded":
        """Return some of the tokens, with some of the images.

        Args:
            start: First token.
            stop: Token after the last.
            images: Images whose slots lie among the tokens; all by default.
        """
        pixels = self.pixels
        if pixels is not None:
            count = len(range(len(pixels))[images])
            if count == 0:
                pixels = None
            # All images stay the same tensor, whose digests are known already.
            elif count < len(pixels):
                pixels = pixels[images]
        return Encoded(self.ids[start:stop], pixels)


@dataclass(frozen=True)
class PaddedBatch:
    """Prompts padded on the left: every row's last token, where generation goes on, is in the last column."""

    ids: Tensor  # shape (batch, length)
    attention_mask: Tensor  # shape (batch, cached columns + length); 0 on padding
    # Counts the real tokens of each row from 0, shape (batch, length). Must be passed on, because a rotary embedding
    # in float32 rounds differently at shifted positions.
    position_ids: Tensor
    prompts: Sequence[Encoded]

    def inputs(self, **inputs: Any) -> dict[str, Any]:
        """Return a language model's inputs, with mask and positions added.

        Args:
            **inputs: Ids or embeddings under the name that the model gives them.
        """
        return {
            **inputs,
            "attention_mask": self.attention_mask,
            "position_ids": self.position_ids,
        }


def group_positions(keys: Iterable[Hashable]) -> dict[Hashable, list[int]]:
    """Return the positions of each key, in the order of first occurrence.

    Example:
        >>> group_positions("abca")
        {'a': [0, 3], 'b': [1], 'c': [2]}
    """
    groups: dict[Hashable, list[int]] = {}
    for position, key in enumerate(keys):
        groups.setdefault(key, []).append(position)
    return groups


def positions_of(mask: Tensor) -> Tensor:
    """Return positions that count the real tokens of each row from 0, shape of ``mask``.

    Example:
        >>> positions_of(torch.tensor([[0, 0, 1, 1]])).tolist()
        [[0, 0, 0, 1]]
    """
    return (mask.cumsum(-1) - 1).clamp(min=0)


def pad_left(
    prompts: Sequence[Encoded],
    pad_id: int,
    device: torch.device,
) -> PaddedBatch:
    """Arrange prompts as one batch on ``device``.

    Example:
        >>> prompts = [Encoded([7, 8, 9], None), Encoded([5], None)]
        >>> pad_left(prompts, 0, torch.device("cpu")).ids.tolist()
        [[7, 8, 9], [0, 0, 5]]
    """
    rows = [torch.tensor(prompt.ids, dtype=torch.long) for prompt in prompts]
    real = [torch.ones_like(row) for row in rows]
    ids = pad_sequence(rows, batch_first=True, padding_value=pad_id, padding_side="left")
    mask = pad_sequence(real, batch_first=True, padding_side="left")
    return PaddedBatch(ids.to(device), mask.to(device), positions_of(mask).to(device), prompts)


def pad_right(
    rows: Sequence[Sequence[int]],
    pad_id: int,
    device: torch.device,
) -> Tensor:
    """Return ids as one rectangle on ``device``, shape (rows, longest row).

    Example:
        >>> pad_right([[7, 8], [5]], 0, torch.device("cpu")).tolist()
        [[7, 8], [5, 0]]
    """
    longest = max(map(len, rows))
    padded = [[*row, *[pad_id] * (longest - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.long, device=device)


@dataclass(frozen=True)
class Continuation:
    """A prompt followed by the text to score."""

    sequence: Encoded  # context and continuation, encoded together
    tokens: int  # number of tokens at the end that belong to the continuation, at least 1

    @property
    def prompt(self) -> Encoded:
        """Prompt before the text to score."""
        return self.sequence.part(0, len(self.sequence.ids) - self.tokens)

    @property
    def targets(self) -> list[int]:
        """Ids of the text to score."""
        return list(self.sequence.ids[-self.tokens :])


@dataclass(frozen=True)
class Likelihood:
    """Score of one continuation."""

    total: float  # negative log-likelihood summed over the continuation's tokens, in nats
    tokens: int
    # Whether every token is the most likely one, so that greedy decoding would have produced them.
    greedy: bool

    @property
    def mean(self) -> float:
        """Negative log-likelihood per token, in nats. Smaller is better.

        Example:
            >>> Likelihood(total=3.0, tokens=2, greedy=True).mean
            1.5
        """
        return self.total / self.tokens


def common_length(first: Sequence[object], second: Sequence[object]) -> int:
    """Return the length of the longest common prefix.

    Example:
        >>> common_length("left lung", "left arm")
        5
    """
    for position, (left, right) in enumerate(zip(first, second, strict=False)):
        if left != right:
            return position
    return min(len(first), len(second))


def split_continuation(context: Encoded, whole: Encoded) -> Continuation:
    """Return the tokens of ``whole`` after its common prefix with the context.

    Args:
        context: The prompt alone.
        whole: The prompt with the text to score, encoded together: tokens may merge where the two meet.

    Raises:
        ValueError: Nothing is left to score, or nothing precedes it.
    """
    common = common_length(context.ids, whole.ids)
    if common == len(whole.ids):
        raise ValueError("the continuation adds no token")
    if common == 0:
        raise ValueError("no token precedes the continuation")
    return Continuation(whole, len(whole.ids) - common)


def score(
    items: Sequence[Continuation],
    logits_of: Callable[[PaddedBatch, int], Tensor],
    pad_id: int,
    device: torch.device,
) -> list[Likelihood]:
    """Score continuations in one forward pass.

    With padding on the left, memory for logits grows with the longest continuation, not with the prompt.

    Args:
        items: Continuations of one batch.
        logits_of: Takes a batch and k, and returns the logits of the last k positions, shape (batch, k, vocabulary).
        pad_id: Token to fill up with.
        device: Device of the batch.

    Returns:
        Losses of the continuations: smaller is better. lmms-eval takes losses, too, as its models return them.

    Raises:
        MedTasksError: A score is not finite.
    """
    batch = pad_left([item.sequence for item in items], pad_id, device)
    longest = max(item.tokens for item in items)
    # Logits at one position predict the next token, hence one more column, of which the last predicts nothing.
    logits = logits_of(batch, longest + 1)[:, :-1]
    losses, hits = token_losses(logits, batch.ids[:, -longest:])
    scores = []
    for item, row_losses, row_hits in zip(items, losses, hits, strict=True):
        scores.append(likelihood(row_losses[-item.tokens :], row_hits[-item.tokens :]))
    return scores


def token_losses(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of each target in nats, and whether it is the most likely token.

    Args:
        logits: Shape (..., vocabulary).
        targets: Ids, shape (...). Before a continuation that is shorter than the longest of the batch they are ids of
            its prompt, whose losses no one uses. Ids of image slots may lie outside the vocabulary.

    Returns:
        Two tensors of the shape of ``targets``, on the CPU.
    """
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    inside = targets.clamp(max=logits.shape[-1] - 1)
    losses = logits.logsumexp(-1) - logits.gather(-1, inside[..., None])[..., 0]
    return losses.cpu(), (logits.argmax(-1) == targets).cpu()


def likelihood(losses: Tensor, hits: Tensor) -> Likelihood:
    """Sum up the losses of one continuation.

    Args:
        losses: In nats, shape (tokens,), see :func:`token_losses`.
        hits: Whether each target is the most likely token, shape (tokens,).

    Raises:
        MedTasksError: The sum is not finite.
    """
    total = losses.sum().item()
    if not math.isfinite(total):
        raise MedTasksError(
            "the model's likelihood is not finite, as after an overflow in half precision"
        )
    return Likelihood(total, len(losses), bool(hits.all()))


def row_likelihoods(
    losses: Tensor,
    hits: Tensor,
    lengths: Sequence[int],
) -> list[Likelihood]:
    """Sum up the losses of several continuations, one per row, with padding on the right.

    Args:
        losses: In nats, shape (rows, longest), see :func:`token_losses`.
        hits: Whether each target is the most likely token, shape of ``losses``.
        lengths: Number of tokens in each row.
    """
    scores = []
    for row, length in enumerate(lengths):
        scores.append(likelihood(losses[row, :length], hits[row, :length]))
    return scores


class BoundedCache(Generic[Value]):
    """Values by key, up to ``limit`` bytes. The least recently used goes first."""

    def __init__(self, limit: int) -> None:
        self.used = 0
        self._limit = limit
        self._values: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()

    def get(self, key: Hashable) -> Value | None:
        """Return the value under a key, which counts as a use."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key][0]

    def keep(self, key: Hashable, value: Value, size: int) -> None:
        """Keep a value under a new key, unless it is larger than the whole cache.

        Args:
            key: A key that was not found.
            value: What :meth:`get` returns from now on.
            size: Size of the value, in bytes.
        """
        if size > self._limit or key in self._values:
            return
        self._values[key] = value, size
        self.used += size
        while self.used > self._limit:
            self.used -= self._values.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Remove all values."""
        self._values.clear()
        self.used = 0


def content_key(pixels: Tensor) -> str:
    """Return a digest of a tensor's values, shape and type.

    Values that an expanded tensor repeats are read once.
    """
    once = pixels.detach()
    for axis, step in enumerate(pixels.stride()):
        if step == 0 and once.shape[axis]:
            once = once.narrow(axis, 0, 1)
    head = f"{tuple(pixels.shape)} {tuple(once.shape)} {pixels.dtype}"
    digest = hashlib.blake2b(head.encode(), digest_size=16)
    values = once.cpu().contiguous().flatten()
    digest.update(values.view(torch.uint8).numpy().data)
    return digest.hexdigest()


class FeatureCache(BoundedCache[Tensor]):
    """Vision features, computed once per image, however many questions are about it."""

    def features(
        self,
        prompts: Sequence[Encoded],
        compute: Callable[[Tensor], Tensor],
    ) -> list[Tensor | None]:
        """Return the features of each prompt's images, joined along the first dimension.

        Args:
            prompts: Rows of a batch.
            compute: From one image, shape (1, ...), to its features. In a batch of images, rounding would depend on
                the cache's content.

        Returns:
            One tensor per prompt, ``None`` without images.
        """
        # Nothing is computed twice in a batch, however small the cache.
        by_key: dict[str, Tensor] = {}
        rows: list[Tensor | None] = []
        for prompt in prompts:
            parts = []
            for at, key in enumerate(prompt.image_keys):
                assert prompt.pixels is not None  # it has keys
                if key not in by_key:
                    by_key[key] = self._look_up(key, prompt.pixels[at : at + 1], compute)
                parts.append(by_key[key])
            if len(parts) > 1:
                parts = [torch.cat(parts)]
            rows.append(parts[0] if parts else None)
        return rows

    def _look_up(
        self,
        key: str,
        image: Tensor,
        compute: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Return the features of one image, from the cache if it has them.

        Raises:
            MedTasksError: ``compute`` returned no tensor.
        """
        features = self.get(key)
        if features is not None:
            return features
        features = compute(image)
        if not isinstance(features, Tensor):
            raise MedTasksError(
                f"image_features must return a tensor, not {type(features).__name__}"
            )
        features = features.detach()
        # A view would keep all of the tensor that it is a part of.
        is_whole = features.untyped_storage().nbytes() == features.nbytes
        self.keep(key, features if is_whole else features.clone(), features.nbytes)
        return features


# ---- generation ----


@dataclass(frozen=True)
class GenerationSettings:
    """Decoding of a reply. Requests with equal settings can share a batch."""

    max_new_tokens: int  # length limit in tokens
    until: tuple[str, ...] = ()  # stop strings; the reply ends before the first that occurs
    # 0 for greedy decoding or beam search, else the sampling temperature
    temperature: float = 0.0
    top_p: float = 1.0  # probability mass to sample from
    top_k: int = 0  # number of most likely tokens to sample from; 0 for all
    num_beams: int = 1  # width of the beam search; 1 for none


class CountedReply(str):
    """Reply with its numbers of tokens, ``None`` if unknown.

    Inputs include image slots, outputs the token that ended the reply.
    """

    input_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None

    def __new__(cls, text: str, *tokens: int | None) -> "CountedReply":
        """Build the text with its numbers of input, output and reasoning tokens, as far as they are given."""
        reply = super().__new__(cls, text)
        numbers = [*tokens, None, None, None]
        reply.input_tokens, reply.output_tokens, reply.reasoning_tokens = numbers[:3]
        return reply


def counted_as(reply: str, text: str) -> CountedReply:
    """Return a text with the token counts of the reply that it replaces.

    Example:
        >>> counted_as(CountedReply(" A ", 7, 2), "A").output_tokens
        2
    """
    return CountedReply(
        text, getattr(reply, "input_tokens", None), getattr(reply, "output_tokens", None)
    )


def read_settings(gen_kwargs: Mapping[str, Any], max_new_tokens: int) -> GenerationSettings:
    """Read a task's ``generation_kwargs``.

    Sampling takes a positive ``temperature`` (1 where only ``do_sample`` is given) and no ``do_sample: false``.

    Args:
        gen_kwargs: Settings by name. ``None`` counts as not given, unknown names are ignored.
        max_new_tokens: Length limit where the task sets none.

    Raises:
        MedTasksError: A value is impossible.

    Example:
        >>> read_settings({"until": "Q:", "temperature": 0}, 64)  # doctest: +ELLIPSIS
        GenerationSettings(max_new_tokens=64, until=('Q:',), temperature=0.0, ...)
    """
    values = {key: value for key, value in gen_kwargs.items() if value is not None}
    until = values.get("until", ())
    try:
        until = tuple(filter(None, [until] if isinstance(until, str) else until))
        is_sampled = values.get("do_sample", float(values.get("temperature", 0)) > 0)
        settings = GenerationSettings(
            max_new_tokens=int(values.get("max_new_tokens", max_new_tokens)),
            until=until,
            temperature=float(values.get("temperature", 1.0)) if is_sampled else 0.0,
            top_p=float(values.get("top_p", 1.0)),
            top_k=int(values.get("top_k", 0)),
            num_beams=int(values.get("num_beams", 1)),
        )
    except (TypeError, ValueError) as error:
        raise MedTasksError(f"the task's generation_kwargs cannot be read: {error}") from error
    least = min(settings.max_new_tokens, settings.num_beams)
    if least < 1 or not 0 < settings.top_p <= 1 or settings.temperature < 0:
        raise MedTasksError(
            f"the task's generation_kwargs hold an impossible value: {settings}"
        )
    return settings


def decoding_config(
    settings: GenerationSettings,
    stop_ids: Sequence[int],
    pad_id: int,
) -> GenerationConfig:
    """Build the configuration of ``generate``.

    transformers adds other settings, such as penalties, from the model's own.

    Args:
        settings: Settings of the task.
        stop_ids: Tokens that end a reply.
        pad_id: Token that fills up the rows of replies that ended.
    """
    sampling = {}
    if settings.temperature > 0:
        sampling = {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "top_k": settings.top_k,
        }
    return GenerationConfig(
        max_new_tokens=settings.max_new_tokens,
        num_beams=settings.num_beams,
        do_sample=settings.temperature > 0,
        eos_token_id=list(stop_ids),
        pad_token_id=pad_id,
        **sampling,
    )


def cut_reply(
    ids: Sequence[int],
    decode: Decode,
    stop_ids: Collection[int],
    until: Sequence[str],
) -> str:
    """Turn generated ids into a reply, without white space around it.

    Args:
        ids: Generated ids of one row, without the prompt.
        decode: Turns ids into text.
        stop_ids: Tokens, before the first of which the reply ends.
        until: Stop strings, before the first of which the reply ends.
    """
    before_end = list(takewhile(lambda token: token not in stop_ids, ids))
    return before_stops(decode(before_end), until).strip()


def before_stops(text: str, until: Sequence[str]) -> str:
    r"""Return the text before the first stop string.

    Example:
        >>> before_stops("Yes.\n\nQuestion: ...", ["Question:", "\n\n"])
        'Yes.'
    """
    ends = [text.find(stop) for stop in until if stop in text]
    return text[: min(ends, default=len(text))]


@dataclass
class StopStrings(StoppingCriteria):  # type: ignore[misc]  # transformers is not analysed
    """Ends a row once its text after ``skip`` columns holds a stop string, which :func:`cut_reply` cuts off."""

    until: Sequence[str]  # stop strings, at least one
    decode: Decode
    skip: int  # columns of the prompt

    def __call__(
        self,
        input_ids: Tensor,
        scores: object,
        **_: object,
    ) -> Tensor:
        """Return one flag per row, shape (batch,)."""
        replies = input_ids[:, self.skip :]
        # A token may be less than a character, hence the margin.
        window = 4 * max(map(len, self.until)) + 8
        done = []
        for row in replies[:, -window:].tolist():
            text = self.decode(row)
            done.append(any(stop in text for stop in self.until))
        return torch.tensor(done, device=input_ids.device)
