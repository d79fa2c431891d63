"""What sharing prompts and their beginnings saves.

Two measurements: the options of a question on one pass, against one full pass per option at batch 1; and four questions
of two options on one image in one batch, against sharing among options alone. ``questions_per_second.py`` measures
against another harness loop.

A model of LLaVA's shape with random weights, on one thread of the CPU, in float32: 576 image tokens, a prompt, options
of a few tokens. Prints the ratios of processor times (median over rounds in which both alternate; on one thread that is
the time on an idle machine), and the largest difference between the scores. The weights are drawn
large, because under the customary ones every score is the logarithm of the vocabulary, which even a wrong cache would
reproduce: the controls say how far another image and another prompt move the scores. Exits with 1 where a ratio, the
difference or a control misses its target.

    python benchmarks/prefix_sharing.py [ROUNDS]
"""

import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from lmms_eval.api.instance import Instance
from medtasks.model_adapters.base.adapter import MedicalAdapter
from medtasks.model_adapters.base.batching import Encoded
from medtasks.model_adapters.base.shared_scoring import Spans
from PIL import Image
from transformers import CLIPVisionConfig, CLIPVisionModel, LlamaConfig, LlamaForCausalLM

SIDE, PATCH, SLOT = 336, 14, 1
IMAGE_TOKENS = (SIDE // PATCH) ** 2
TARGETS = {2: 1.7, 4: 3.0, 11: 6.0}
QUESTIONS_TARGET = 1.5
LARGEST_DIFFERENCE = 1e-4
LEAST_CONTROL = 0.1
PROMPT = (
    "Look at the image: which finding does it show? Answer with one of the findings listed."
)
QUESTIONS = (
    "Is there an effusion?",
    "Which side is the mass on?",
    "Is the heart enlarged?",
    "What is the main finding?",
)
OTHER_PROMPT = (
    "Is the heart enlarged on this radiograph, or are both lungs and the mediastinum normal?"
)


class LlavaShaped(MedicalAdapter):
    """LLaVA's parts at a tenth of their width; a token is a byte."""

    model_id: ClassVar[str] = "llava_shaped"
    pad_id, slot_id, stop_ids = 0, SLOT, (2,)

    def load(self) -> None:
        """Draw weights."""
        torch.manual_seed(0)
        vision = CLIPVisionConfig(
            hidden_size=384, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=6, image_size=SIDE,
            patch_size=PATCH,
        )  # fmt: skip
        text = LlamaConfig(
            vocab_size=4096,
            hidden_size=640,
            intermediate_size=1792,
            num_hidden_layers=8,
            num_attention_heads=10,
        )
        self.tower = CLIPVisionModel(vision).eval()
        self.projector = torch.nn.Linear(384, 640)
        self.text = LlamaForCausalLM(text).eval()
        for part in (self.tower, self.projector, self.text):
            sharpen(part)

    @property
    def language_model(self) -> Any:
        """The Llama."""
        return self.text

    def encode(self, text: str, images: Sequence[Image.Image], reply: str = "") -> Encoded:
        """Put the image first."""
        pixels = (
            torch.zeros(1, 3, SIDE, SIDE)
            + torch.linspace(-1, 1, SIDE) * images[0].size[0] / 100
        )
        return Encoded(
            [2] + [SLOT] * IMAGE_TOKENS + [byte + 3 for byte in (text + reply).encode()], pixels
        )

    def image_spans(self, prompt: Encoded) -> Spans | None:
        """Return the slots of the image."""
        return [(1, 1 + IMAGE_TOKENS)]

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the projected patches."""
        features: torch.Tensor = self.projector(self.tower(pixels).last_hidden_state[:, 1:])
        return features

    def decode(self, ids: Sequence[int]) -> str:
        """Return bytes as text."""
        return bytes(token - 3 for token in ids if 3 <= token < 259).decode(errors="replace")


class OptionsOnly(LlavaShaped):
    """Shares among the options of a question, not among questions."""

    model_id: ClassVar[str] = "options_only"

    def image_spans(self, prompt: Encoded) -> None:
        """Keep questions apart."""


def sharpen(module: torch.nn.Module) -> None:
    """Draw matrices so that what goes through them keeps its size, and attention is not spread evenly."""
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if weight.dim() > 1:
                gain = 2.0 if any(part in name for part in ("q_proj", "k_proj")) else 1.0
                inputs = 1 if "embed" in name and "patch" not in name else weight[0].numel()
                weight.normal_(std=gain / math.sqrt(inputs))


def requests(options: int, question: int, prompt: str = PROMPT) -> list[Instance]:
    """Build the requests of one question about image number ``question``."""
    words = (
        "effusion",
        "nodule",
        "fracture",
        "edema",
        "mass",
        "opacity",
        "normal",
        "pneumonia",
        "hernia",
        "fibrosis",
        "emphysema",
    )
    meta = {"task": "t", "doc_id": question, "repeats": 1}
    return [
        Instance(
            "loglikelihood",
            (prompt, " " + words[i], lambda doc: [doc], question, "t", "s"),
            i,
            metadata=meta,
        )
        for i in range(options)
    ]


def adapter(
    shared: bool, batch_size: int = 1, kind: type[LlavaShaped] = LlavaShaped
) -> LlavaShaped:
    """Build one; where nothing is shared it keeps no image features either, as one full pass per option would not."""
    features = 512 if shared else 0
    built = kind(
        device="cpu",
        batch_size=batch_size,
        prefix_cache=shared,
        feature_cache_mb=features,
        journal=False,
    )
    built.task_dict = {"t": {"s": [Image.new("RGB", (number + 5, 5)) for number in range(100)]}}
    return built


def distance(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """Return the largest difference between scores; infinite where one of them failed."""
    distances = [abs(a[0] - b[0]) for a, b in zip(ours, theirs, strict=True)]
    return max(distances) if all(map(math.isfinite, distances)) else math.inf


def controls(model: LlavaShaped) -> bool:
    """Print how far the scores depend on image and prompt; returns whether they do."""
    own = model.loglikelihood(requests(2, 90))
    image = distance(own, model.loglikelihood(requests(2, 60)))
    prompt = distance(own, model.loglikelihood(requests(2, 90, OTHER_PROMPT)))
    print(
        f"controls: another image moves the scores by {image:.2g}, another prompt by {prompt:.2g}"
    )
    return min(image, prompt) > LEAST_CONTROL and max(image, prompt) < math.inf


def compare(both: dict[bool, LlavaShaped], options: int, rounds: int) -> tuple[float, float]:
    """Return the median ratio of times and the largest difference of scores; every round has its own image."""
    ratios, differences = [], []
    for round_ in range(rounds):
        scores, taken = {}, {}
        for shared, model in both.items():
            began = time.process_time()
            scores[shared] = model.loglikelihood(requests(options, options + round_ * 20))
            taken[shared] = time.process_time() - began
        ratios.append(taken[False] / taken[True])
        differences.append(distance(scores[True], scores[False]))
    return statistics.median(ratios), max(differences)


def on_images(counts: Sequence[int], first: int) -> list[Instance]:
    """Build the requests of some questions per image, two options each; images are numbered from ``first``."""
    asked = [
        (first + number, QUESTIONS[at])
        for number, count in enumerate(counts)
        for at in range(count)
    ]
    made = [requests(2, image, question) for image, question in asked]
    return [request for of_question in made for request in of_question]


def taken(
    score: Callable[[Sequence[Instance]], Any], asked: Sequence[Instance]
) -> tuple[Any, float]:
    """Return scores and processor time in seconds."""
    began = time.process_time()
    return score(asked), time.process_time() - began


def compare_questions(rounds: int) -> tuple[float, float]:
    """Return ratio and largest difference for four questions of two options on one image, in one batch."""
    together, apart = adapter(True, 8), adapter(True, 8, OptionsOnly)
    ratios, differences = [], []
    for round_ in range(rounds):
        asked = on_images([4], 40 + round_)
        (theirs, slow), (ours, fast) = (
            taken(apart.loglikelihood, asked),
            taken(together.loglikelihood, asked),
        )
        ratios.append(slow / fast)
        differences.append(distance(ours, theirs))
    return statistics.median(ratios), max(differences)


def verdict(missed: bool) -> str:
    """Return the end of a line."""
    return "  MISSED" if missed else ""


def main() -> None:
    """Alternate both ways so that a busy machine slows both alike."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    torch.set_num_threads(1)
    both = {shared: adapter(shared) for shared in (True, False)}
    modules = [
        module for module in vars(both[True]).values() if isinstance(module, torch.nn.Module)
    ]
    parameters = sum(weight.numel() for module in modules for weight in module.parameters())
    print(
        f"{parameters / 1e6:.0f} M parameters, {IMAGE_TOKENS} image tokens, float32, one thread, {rounds} rounds"
    )
    failed = not controls(both[False])  # warms up too
    both[True].loglikelihood(requests(2, 99))
    for options, target in TARGETS.items():
        ratio, difference = compare(both, options, rounds)
        missed = ratio < target or not difference <= LARGEST_DIFFERENCE
        failed |= missed
        print(
            f"{options:2} options: ratio {ratio:.2f} (target {target}), largest difference {difference:.1e} "
            f"(target {LARGEST_DIFFERENCE:.0e}){verdict(missed)}"
        )
    ratio, difference = compare_questions(rounds)
    missed = ratio < QUESTIONS_TARGET or not difference <= LARGEST_DIFFERENCE
    failed |= missed
    print(
        f"4 questions of 2 options on one image, against sharing among options: ratio {ratio:.2f} "
        f"(target {QUESTIONS_TARGET}), largest difference {difference:.1e}{verdict(missed)}"
    )
    sys.exit(failed)


if __name__ == "__main__":
    main()
