"""Train the weights of ``medtasks_tiny`` on synthetic images: ``python benchmarks/train_tiny.py [FOLDER]``.

Images are drawn by the functions of the bundled sample with other sizes, tints and grain, then shifted, scaled and
turned a little; no image of the sample is among them. Replies are those to the sample's questions, asked by the prompts
of MediConfusion's modes and by shorter ones: a letter, or the text of an option. Options keep one order at first, so
that the model learns to see; later they are in either order, so that it learns to read. One batch in twenty has no
image and a random answer. Seeded; FOLDER is by default the package's own. Takes about 4 minutes of one core.
"""

import argparse
import math
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from medtasks.model_adapters.tiny import (
    BEGIN_ID,
    END_ID,
    IMAGE_ID,
    PAD_ID,
    SPECIAL_TOKENS,
    TRAINED_SHAPE,
    UNKNOWN_ID,
    WEIGHTS,
    WORD,
    TinyNetwork,
    pixels_of,
)  # fmt: skip
from PIL import Image, ImageOps
from safetensors.torch import save_file
from torch.nn import functional

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import synthetic_images

SAMPLE = synthetic_images.SAMPLE
SEED, STEPS, BATCH, RATE = 0, 2000, 32, 1.5e-3
DRAWN = 160  # images per kind
UNSEEN = range(-4, 0)  # seeds of the images for evaluation
PROMPTS = Path(__file__).parents[1] / "tasks_yaml" / "mediconfusion" / "prompts.yml"


MARKS = ('("{}": {})', "{}: {}", "{}. {}", "({}) {}")
ENDS = (
    '#answer: ("',
    "Answer: ",
    "Answer with the option's letter from the given choices directly.",
)
OTHERS = ("I cannot tell from this image", "None of the other options")


def templates() -> dict[str, list[str]]:
    """Return MediConfusion's prompts by what they ask for: a letter, or the text of an option."""
    published = yaml.safe_load(PROMPTS.read_text(encoding="utf-8"))
    names = {
        "letter": ("mediconfusion", "mediconfusion_gd"),
        "text": ("mediconfusion_ps", "mediconfusion_ff"),
    }
    return {
        kind: [published[name]["template"] for name in of_kind]
        for kind, of_kind in names.items()
    }


def filled(template: str, question: str, options: Sequence[str]) -> str:
    """Return a prompt."""
    for name, text in zip(
        ("question", "option_a", "option_b"), (question, *options), strict=True
    ):
        template = template.replace(f"{{{{ {name} }}}}", text)
    return template


def vocabulary() -> list[str]:
    """Return all words and signs of the prompts, capital letters and digits."""
    texts = [
        filled(template, "", ("", "")) for listed in templates().values() for template in listed
    ]
    texts += [
        *ENDS,
        *OTHERS,
        *(text for pair in SAMPLE["pairs"] for text in (pair["question"], *pair["options"])),
    ]
    return sorted(
        {
            *"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
            *(word for text in texts for word in WORD.findall(text)),
        }
    )


def draw(name: str, seed: int, scale: float = 1.0) -> Image.Image:
    """Draw an image of one of the sample's kinds; its seed decides about size, tint and grain."""
    chance, facts = random.Random(f"{name} {seed}"), SAMPLE["images"][name]
    sheet = synthetic_images.Sheet(
        (round(scale * chance.randint(220, 324)), round(scale * chance.randint(276, 324)))
    )
    synthetic_images._DRAWINGS[facts["draw"]](sheet, **facts.get("finding", {}))
    grain = chance.randrange(10**6, 10**9)
    assert grain not in range(
        synthetic_images._FIRST_IMAGE, synthetic_images._FIRST_IMAGE + len(SAMPLE["images"])
    )
    image, tint = sheet.finished(grain), chance.choice([None, None, "warm", "cool"])
    return ImageOps.colorize(image, *synthetic_images._TINTS[tint]) if tint else image


def moved(pixels: torch.Tensor) -> torch.Tensor:
    """Return images shifted, scaled, turned, and with another contrast and brightness."""

    def between(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(len(pixels))

    angle, scale = between(-0.06, 0.06), between(0.93, 1.07)
    rows = [
        (angle.cos() * scale, -angle.sin() * scale),
        (angle.sin() * scale, angle.cos() * scale),
    ]
    matrix = torch.stack([torch.stack([*row, between(-0.08, 0.08)], 1) for row in rows], 1)
    grid = functional.affine_grid(matrix, list(pixels.shape), align_corners=False)
    pixels = functional.grid_sample(pixels, grid, padding_mode="border", align_corners=False)
    return (
        pixels * between(0.9, 1.1)[:, None, None, None]
        + between(-0.1, 0.1)[:, None, None, None]
    )


class Asked(NamedTuple):
    """A question as the network gets it."""

    image: str  # its kind
    prompt: str
    reply: str


class Trainer:
    """The network with its data."""

    def __init__(self) -> None:
        self.words, self.templates, self.chance = vocabulary(), templates(), random.Random(SEED)
        self.ids = {word: number for number, word in enumerate(self.words, SPECIAL_TOKENS)}
        shape = replace(TRAINED_SHAPE, vocabulary=SPECIAL_TOKENS + len(self.words))
        self.slots = (shape.image_size // shape.patch_size) ** 2
        self.images, self.unseen = {}, {}
        for name in SAMPLE["images"]:  # those for training at half size, to save time
            self.images[name] = self.pixels([draw(name, seed, 0.5) for seed in range(DRAWN)])
            self.unseen[name] = self.pixels([draw(name, seed) for seed in UNSEEN])
        self.network = TinyNetwork(shape)
        self.network.draw_weights(SEED, {"language_model.model.embed_tokens": 0.3})
        self.network.float()

    def pixels(self, images: Sequence[Image.Image]) -> torch.Tensor:
        """Return images as the network takes them."""
        return pixels_of(images, TRAINED_SHAPE.image_size).float()

    def tokens(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return [self.ids.get(word, UNKNOWN_ID) for word in WORD.findall(text)]

    def ask(
        self, kind: str, pair: dict[str, Any], side: int, swapped: bool, third: bool = False
    ) -> Asked:
        """Return one of the two questions of a pair; a ``third`` option is from another question, or general."""
        text, options = (
            pair["options"]["AB".index(pair["answer"]) ^ side],
            list(pair["options"]),
        )
        if swapped:
            options.reverse()
        if third:
            others = [
                option
                for other in SAMPLE["pairs"]
                for option in other["options"]
                if option not in options
            ]
            options.insert(self.chance.randrange(3), self.chance.choice([*OTHERS * 8, *others]))
        if kind == "short":
            mark = self.chance.choice(MARKS)
            listed = [
                mark.format(letter, option)
                for letter, option in zip("ABC", options, strict=False)
            ]
            prompt = "\n".join([pair["question"], *listed, self.chance.choice(ENDS)])
        else:
            prompt = filled(self.chance.choice(self.templates[kind]), pair["question"], options)
        return Asked(
            pair["images"][side], prompt, text if kind == "text" else "ABC"[options.index(text)]
        )

    def outcome(
        self, samples: Sequence[Asked], pixels: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the logits at all tokens of the replies, and these tokens."""
        inputs, targets = [], []
        slots = 0 if pixels is None else self.slots
        for _, prompt, reply in samples:
            before, after = (
                [BEGIN_ID, *[IMAGE_ID] * slots, *self.tokens(prompt)],
                [*self.tokens(reply), END_ID],
            )
            inputs.append(torch.tensor([*before, *after]))
            targets.append(torch.tensor([*[-100] * len(before), *after]))
        ids = torch.nn.utils.rnn.pad_sequence(inputs, batch_first=True, padding_value=PAD_ID)
        wanted = torch.nn.utils.rnn.pad_sequence(targets, batch_first=True, padding_value=-100)[
            :, 1:
        ]
        embedded = self.network.language_model.get_input_embeddings()(ids)
        if pixels is not None:
            embedded = embedded.masked_scatter(
                (ids == IMAGE_ID)[..., None], self.network.image_features(pixels)
            )
        hidden = self.network.language_model.model(
            inputs_embeds=embedded, use_cache=False
        ).last_hidden_state[:, :-1]
        chosen = wanted != -100
        return self.network.language_model.lm_head(hidden[chosen]), wanted[chosen]

    def step(self, done: float, number: int) -> torch.Tensor:
        """Return the loss of one batch; ``done`` is the share of the training before it."""
        chance = self.chance
        published = chance.random() < max(0.05, min(0.6, (done - 0.5) / 0.3))
        kind = "text" if number % 4 == 0 else "letter" if published else "short"
        swapped = min(0.5, max(0.0, (done - 0.28) / 0.2))
        third = 0.4 if kind == "short" and done > 0.45 else 0.0
        samples = [
            self.ask(
                kind,
                pair,
                chance.randrange(2),
                chance.random() < swapped,
                chance.random() < third,
            )
            for pair in chance.choices(SAMPLE["pairs"], k=BATCH)
        ]
        pixels = moved(
            torch.stack([self.images[name][chance.randrange(DRAWN)] for name, *_ in samples])
        )
        return functional.cross_entropy(
            *self.outcome(samples, None if number % 20 in (16, 19) else pixels)
        )

    @torch.no_grad()
    def solved(self, kind: str, swapped: bool, third: bool = False) -> float:
        """Return the share of pairs of unseen images of which both replies are right."""
        right = []
        for pair in SAMPLE["pairs"]:
            for images in zip(*(self.unseen[name] for name in pair["images"]), strict=True):
                both = [
                    self.outcome([self.ask(kind, pair, side, swapped, third)], image[None])
                    for side, image in enumerate(images)
                ]
                right.append(
                    all((logits.argmax(-1) == wanted).all() for logits, wanted in both)
                )
        return sum(right) / len(right)

    def save(self, folder: Path) -> None:
        """Write weights in half precision, and the words."""
        folder.mkdir(parents=True, exist_ok=True)
        weights = {
            name.replace("vision_model.", ""): weight.detach().half().contiguous()
            for name, weight in self.network.named_parameters()
        }
        save_file(weights, folder / "model.safetensors")
        (folder / "words.txt").write_text("\n".join(self.words), encoding="utf-8")


def main() -> None:
    """Train, evaluate and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=WEIGHTS)
    parser.add_argument(
        "--threads", type=int, default=1, help="sums, and so the weights, depend on it"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(SEED)
    start = time.process_time()
    trainer = Trainer()
    print(
        f"{time.process_time() - start:.0f} s of computing: images are drawn, {len(trainer.words)} words"
    )
    optimizer = torch.optim.AdamW(
        trainer.network.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01
    )
    for number in range(STEPS):
        done = number / STEPS
        rate = RATE * min(1, (number + 1) / 100) * (0.51 + 0.49 * math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = trainer.step(done, number)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainer.network.parameters(), 1.0)
        optimizer.step()
        if (number + 1) % 500 == 0:
            trainer.save(arguments.folder)
            kinds = [
                ("letter", False),
                ("letter", True),
                ("short", True, True),
                ("text", False),
            ]
            shares = ", ".join(f"{trainer.solved(*kind):.1%}" for kind in kinds)
            seconds = time.process_time() - start
            print(
                f"{seconds:.0f} s: step {number + 1}, loss {loss.item():.3f}, solved pairs {shares}"
            )


if __name__ == "__main__":
    main()
