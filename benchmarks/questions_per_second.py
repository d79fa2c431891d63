"""Questions of MediConfusion per second in PS mode, against the loop of the harness's own ``llava_hf``.

One checkpoint, drawn at random in LLaVA's shape, is scored in three ways on the same questions and image files:

- as ``llava_hf`` does: per option the chat template, the processor on the opened image, tokenisation of the prompt, one
  forward pass with labels (logits at every position and their loss), argmax and comparison. The prompt alone is
  tokenised without its image, as there; transformers 5 refuses that call as it is written, so its length is corrected.
- through the base of the adapters, at ``batch_size`` 1 and 16.
- with ``hf_vlm`` from the saved checkpoint, at ``batch_size`` 16.

The questions are MediConfusion's own, those on a sample of its images: all images sorted by how many questions are
about them, and of these every n-th, from the place from which questions per image come nearest to the benchmark's. Sets
of images alternate between the ways, so that a busy machine slows all alike. Times are of the process on one thread.

    python benchmarks/questions_per_second.py FOLDER [EVERY]

``FOLDER`` is MediConfusion as published (``dataset.json`` and ``images``), ``EVERY`` the n above, 8 by default. Exits
with 1 where the base misses three times the questions per second of the loop, ``hf_vlm`` two and a half times, or
scores differ.
"""

import json
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from lmms_eval.api.instance import Instance
from medtasks.model_adapters.base.adapter import MedicalAdapter
from medtasks.model_adapters.base.batching import Encoded
from medtasks.model_adapters.base.shared_scoring import Spans
from medtasks.model_adapters.hf_vlm import HfVlm
from PIL import Image
from prefix_sharing import LlavaShaped, sharpen
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import (
    CLIPImageProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

SIDE, PATCH, PATCHES = 336, 14, 576
VOCABULARY = 4096
TARGETS, LARGEST_DIFFERENCE = {"loop": 0.0, "base": 3.0, "hf_vlm": 2.5}, 1e-4
IMAGES_AT_ONCE = 7
TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}USER: {{ message['content'] }}"
    "{% else %} ASSISTANT:{{ message['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %} ASSISTANT:{% endif %}"
)
PIECES = r"<image>|\n| ?[^\s]{1,4}"
"""Four characters a token: options of 8 tokens and prompts of some 25, as with LLaMA's tokenizer on these questions."""


class LlavaBase(LlavaShaped):
    """The checkpoint through the base of the adapters."""

    model_id: ClassVar[str] = "llava_base"
    model: ClassVar[Any]
    processor: ClassVar[Any]

    def load(self) -> None:
        """Take the parts of the checkpoint; as in LLaVA, what the tower's last layer computes is not read."""
        inner = self.model.model
        self.tower, self.projector = inner.vision_tower, inner.multi_modal_projector
        self.text = LlamaForCausalLM(self.model.config.text_config).eval()
        self.text.model, self.text.lm_head = inner.language_model, self.model.lm_head
        self.layers = self.tower.encoder.layers
        self.slot_id = self.processor.image_token_id

    def encode(self, text: str, images: Sequence[Image.Image], reply: str = "") -> Encoded:
        """Write prompt and reply in the template."""
        slot = self.processor.image_token
        prompt = f"USER: <image>\n{text} ASSISTANT:{reply}"
        ids = self.processor.tokenizer(prompt.replace(slot, slot * PATCHES))["input_ids"]
        return Encoded(ids, self.prepared(images, self._pixels))

    def _pixels(self, images: Sequence[Image.Image]) -> torch.Tensor:
        return self.processor.image_processor(list(images), return_tensors="pt")["pixel_values"]

    def image_spans(self, prompt: Encoded) -> Spans:
        """Return the slots."""
        start = prompt.ids.index(self.slot_id)
        return [(start, start + PATCHES)]

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the projected patches of the last layer but one."""
        self.tower.encoder.layers = self.layers[:-1]
        try:
            seen = self.tower(pixels).last_hidden_state
        finally:
            self.tower.encoder.layers = self.layers
        features: torch.Tensor = self.projector(seen[:, 1:])
        return features

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text."""
        return self.processor.tokenizer.decode(ids)


def checkpoint(texts: Sequence[str]) -> tuple[Any, Any]:
    """Return a model with random weights, and a processor that knows the pieces of the texts."""
    torch.manual_seed(0)
    vision = CLIPVisionConfig(
        hidden_size=384, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=6, image_size=SIDE,
        patch_size=PATCH,
    )  # fmt: skip
    text = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=640,
        intermediate_size=1792,
        num_hidden_layers=8,
        num_attention_heads=10,
    )
    named = ["<unk>", "<s>", "</s>", "<image>", "\n"]
    pieces = sorted(
        {piece for text_ in texts for piece in re.findall(PIECES, text_)} - set(named)
    )
    vocabulary = {piece: number for number, piece in enumerate([*named, *pieces][:VOCABULARY])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(PIECES), "isolated")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="</s>",
        additional_special_tokens=["<image>"], chat_template=TEMPLATE,
    )  # fmt: skip
    size = {"shortest_edge": SIDE}
    pictures = CLIPImageProcessor(size=size, crop_size={"height": SIDE, "width": SIDE})
    processor = LlavaProcessor(
        pictures, fast, patch_size=PATCH, vision_feature_select_strategy="default", chat_template=TEMPLATE,
        num_additional_image_tokens=1,
    )  # fmt: skip
    config = LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=vocabulary["<image>"],
        image_seq_length=PATCHES,
    )
    model = LlavaForConditionalGeneration(config).eval()
    for part in (
        model.model.vision_tower,
        model.model.multi_modal_projector,
        model.model.language_model,
        model.lm_head,
    ):
        sharpen(part)
    return model, processor


def documents(folder: Path) -> list[dict[str, Any]]:
    """Return MediConfusion's 352 documents."""
    pairs = json.loads((folder / "dataset.json").read_text())
    return [
        {
            "question": pair["question"],
            "options": (pair["option_A"], pair["option_B"]),
            "image_id": str(pair[f"im_{half}_local"]),
            "file": folder / "images" / f"{pair[f'im_{half}_local']}.jpg",
        }
        for pair in (pairs if isinstance(pairs, list) else pairs.values())
        for half in (1, 2)
    ]


def sampled(docs: Sequence[dict[str, Any]], every: int) -> list[list[int]]:
    """Return sets of documents: all those on every n-th image, several images a set."""
    about = defaultdict(list)
    for number, doc in enumerate(docs):
        about[doc["image_id"]].append(number)
    images = sorted(about, key=lambda image: (len(about[image]), image))
    aim = len(docs) / len(images)

    def distance(start: int) -> float:
        return abs(statistics.mean(len(about[image]) for image in images[start::every]) - aim)

    images = images[min(range(every), key=distance) :: every]
    sets = max(len(images) // IMAGES_AT_ONCE, 1)
    chosen = [images[start::sets] for start in range(sets)]
    return [sorted(number for image in some for number in about[image]) for some in chosen]


def opened(doc: dict[str, Any]) -> list[Image.Image]:
    """Open a document's image, as tasks do for every request."""
    with Image.open(doc["file"]) as image:
        return [image.convert("RGB")]


def requests(docs: Sequence[dict[str, Any]], numbers: Sequence[int]) -> list[Instance]:
    """Build the requests of PS mode."""
    return [
        Instance(
            "loglikelihood",
            (docs[at]["question"], " " + option, opened, at, "t", "s"),
            number,
            metadata={"task": "t", "doc_id": at, "repeats": 1},
        )
        for at in numbers
        for number, option in enumerate(docs[at]["options"])
    ]


def loop(
    model: Any, processor: Any, docs: Sequence[dict[str, Any]], asked: Sequence[Instance]
) -> list[Any]:
    """Score as the loop of ``llava_hf`` does."""
    scores = []
    for request in asked:
        question, continuation, visual, number = request.args[:4]
        images = visual(docs[number])
        messages = [
            {"role": "user", "content": f"<image>\n{question}"},
            {"role": "assistant", "content": continuation},
        ]
        write = processor.tokenizer.apply_chat_template
        prompt = write(messages[:-1], tokenize=False, add_generation_prompt=True)
        whole = write(messages, tokenize=False, add_generation_prompt=False)
        inputs = processor(text=[whole], images=images, return_tensors="pt").to(
            model.device, model.dtype
        )
        labels = inputs["input_ids"].clone()
        context = (
            processor.tokenizer([prompt], return_tensors="pt")["input_ids"].shape[1]
            + PATCHES
            - 1
        )
        labels[:, :context] = -100
        with torch.inference_mode():
            outputs = model(**inputs, labels=labels)
        greedy = outputs["logits"].argmax(dim=-1)
        hits = greedy[:, context - 1 : -1] == inputs["input_ids"][:, context:]
        scores.append((float(outputs["loss"].item()), bool(hits.all())))
    return scores


def adapter(
    kind: type[MedicalAdapter], docs: Sequence[dict[str, Any]], **arguments: Any
) -> MedicalAdapter:
    """Build an adapter that answers without a journal."""
    built = kind(device="cpu", journal=False, **arguments)
    built.task_dict = {"t": {"s": docs}}
    return built


def compare(
    ways: dict[str, Callable[[list[Instance]], Any]],
    docs: Sequence[Any],
    sets: Sequence[list[int]],
) -> Any:
    """Return per way its processor and wall times, per set, and its scores."""
    times: dict[str, list[tuple[float, float]]] = defaultdict(list)
    scores: dict[str, list[Any]] = defaultdict(list)
    for numbers in sets:
        for name, score in ways.items():
            asked, began = requests(docs, numbers), (time.process_time(), time.perf_counter())
            scores[name] += score(asked)
            times[name].append((time.process_time() - began[0], time.perf_counter() - began[1]))
    return times, scores


def main() -> None:
    """Measure and print."""
    folder, every = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 8
    torch.set_num_threads(1)
    docs = documents(folder)
    texts = [
        f"USER: <image>\n{doc['question']} ASSISTANT: {option}"
        for doc in docs
        for option in doc["options"]
    ]
    model, processor = checkpoint(texts)
    LlavaBase.model, LlavaBase.processor = model, processor
    sets = sampled(docs, every)
    questions, images = (
        sum(map(len, sets)),
        len({docs[at]["image_id"] for some in sets for at in some}),
    )
    parameters = sum(weight.numel() for weight in model.parameters())
    print(f"{parameters / 1e6:.0f} M parameters, {PATCHES} image tokens, float32, one thread")
    print(
        f"{questions} questions on {images} images ({questions / images:.2f} each; MediConfusion: 352 on 228, 1.54)"
    )
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        processor.save_pretrained(saved)
        ways: dict[str, Any] = {"loop": lambda asked: loop(model, processor, docs, asked)}
        for size in (1, 16):
            ways[f"base, batch_size={size}"] = adapter(
                LlavaBase, docs, batch_size=size
            ).loglikelihood
        ways["hf_vlm, batch_size=16"] = adapter(
            HfVlm, docs, batch_size=16, pretrained=saved
        ).loglikelihood
        for way in ways.values():  # the first call of everything is slower
            way(requests(docs, [0]))
        times, scores = compare(ways, docs, sets)
    missed = False
    slow = [sum(part) for part in zip(*times["loop"], strict=True)]
    for name in ways:
        fast = [sum(part) for part in zip(*times[name], strict=True)]
        ratios = [
            theirs[0] / ours[0] for theirs, ours in zip(times["loop"], times[name], strict=True)
        ]
        difference = max(
            abs(a[0] - b[0]) for a, b in zip(scores[name], scores["loop"], strict=True)
        )
        agree = [a[1] for a in scores[name]] == [b[1] for b in scores["loop"]]
        wrong = not difference <= LARGEST_DIFFERENCE or not agree
        failed = wrong or slow[0] / fast[0] < TARGETS[name.partition(",")[0]]
        missed |= failed
        spread = f"sets: {min(ratios):.2f} to {max(ratios):.2f}, median {statistics.median(ratios):.2f}"
        print(
            f"{name}: {questions / fast[0]:.2f} questions/s, ratio {slow[0] / fast[0]:.2f} of processor times "
            f"({spread}), {slow[1] / fast[1]:.2f} of wall times, "
            f"largest difference {difference:.1e}{'  MISSED' if failed else ''}"
        )
    means = [score[0] for score in scores["loop"]]
    print(f"scores from {min(means):.2f} to {max(means):.2f}")
    sys.exit(missed)


if __name__ == "__main__":
    main()
