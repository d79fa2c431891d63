"""LLaVA-Med's prompts as token ids, with a slot for every image feature."""

import abc
from collections.abc import Sequence
from pathlib import Path

from ..checkpoints.reading import CheckpointError, read_json
from ..checkpoints.sentencepiece_text import SentencePieceText

UNKNOWN_ID, BEGIN_ID, END_ID = 0, 1, 2
_SPECIAL = {"<s>": BEGIN_ID, "</s>": END_ID}
_PATCH, _START, _END = "<im_patch>", "<im_start>", "<im_end>"
# The conversation "simple" of v1.0's evaluation.
_OPENING = (
    "A chat between a curious human and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and polite answers to the human's questions.###Human: Hi!###Assistant: Hi there!  How can I help you today?\n###"
)


class Prompt(abc.ABC):
    """How text and images become ids."""

    slot_id: int  # id in the slots of image features
    patches: int  # slots per image
    stops: tuple[str, ...] = ()  # strings that end a reply
    tokenizer: SentencePieceText

    @abc.abstractmethod
    def ids(self, text: str, images: int, answer: str = "") -> list[int]:
        """Return the ids of a prompt and of the beginning of its answer, which begins with white space.

        Images come before the user's text in v1.5 and after it in v1.0.
        """


class InstructPrompt(Prompt):
    """v1.5: ``[INST] <image>``, a new line, ``{text} [/INST]``; several images one below the other.

    The text on either side of an image is tokenized by itself. A slot holds the id of ``<unk>``, which no text yields
    because the tokenizer falls back to bytes; the published code uses -200, which is no id at all.
    """

    slot_id = UNKNOWN_ID

    def __init__(self, folder: Path, patches: int) -> None:
        self.tokenizer = SentencePieceText(folder / "tokenizer.model", _SPECIAL)
        self.patches = patches

    def ids(self, text: str, images: int, answer: str = "") -> list[int]:
        """See :meth:`Prompt.ids`."""
        sides = ("[INST] " + "<image>\n" * images).split("<image>")
        sides[-1] += f"{text} [/INST]{answer}"
        ids = [BEGIN_ID]
        for number, side in enumerate(sides):
            ids += [self.slot_id] * (self.patches if number else 0) + self.tokenizer.encode(side)
        return ids


class ConversationPrompt(Prompt):
    """v1.0: a conversation ``simple`` with ``###`` between the turns, and the images after the question."""

    stops = ("###",)

    def __init__(self, folder: Path, patches: int, image_ends: bool) -> None:
        names = [_PATCH, _START, _END] if image_ends else [_PATCH]
        added = _added_tokens(folder / "added_tokens.json", names)
        self.slot_id, self.patches = added[_PATCH], patches
        self.tokenizer = SentencePieceText(folder / "tokenizer.model", _SPECIAL | added, strip_around_added=True)
        block = _PATCH * patches
        self._image = "\n" + (_START + block + _END if image_ends else block)

    def ids(self, text: str, images: int, answer: str = "") -> list[int]:
        """See :meth:`Prompt.ids`."""
        turn = f"Human: {text.strip()}{self._image * images}###Assistant:{answer}"
        return [BEGIN_ID, *self.tokenizer.encode(_OPENING + turn)]


def _added_tokens(file: Path, names: Sequence[str]) -> dict[str, int]:
    added = read_json(file, "LLaVA-Med v1.0 needs the ids of its image tokens from there")
    try:
        return {name: int(added[name]) for name in names}
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{file} is damaged; download it again") from error
    except KeyError as error:
        raise CheckpointError(f"{file} lacks {error}; take the file that was published with the delta") from error
