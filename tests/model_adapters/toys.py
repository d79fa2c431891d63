"""Documents, images, a tokenizer, and requests built the way the harness builds them."""

import copy
import io
import random

import numpy as np
import sentencepiece
from lmms_eval.api.instance import Instance
from medtasks.model_adapters.tiny import MedTasksTiny
from PIL import Image

TASK, SPLIT = "toy", "test"
WORDS = ("the", "left", "right", "lung", "is", "clear", "nodule", "effusion", "normal", "heart", "absent", "bone")


def noise(seed=0, size=(30, 21), mode="RGB"):
    """An image of random pixels."""
    values = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(values).convert(mode)


def make_docs(count=12, seed=0):
    """Documents of very different length with one image each; the last has none."""
    rng, words = np.random.default_rng(seed), random.Random(seed)
    docs = []
    for number in range(count):
        pixels = rng.integers(0, 255, (6, 5), dtype=np.uint8)
        text = " ".join(words.choices(WORDS, k=words.randint(2, 40)))
        docs.append({"question": f"{number}: {text}?", "image": Image.fromarray(pixels).resize((90, 70))})
    docs[-1]["image"] = None
    return docs


def to_visual(doc):
    return None if doc["image"] is None else [doc["image"]]


def instances(kind, docs, details, visual=lambda doc: doc["images"], doc_ids=None):
    """Requests about documents, one per detail."""
    return [
        Instance(
            request_type=kind,
            arguments=(docs[doc_id]["question"], copy.deepcopy(detail), visual, doc_id, TASK, SPLIT),
            idx=index,
            metadata={"task": TASK, "doc_id": doc_id, "repeats": 1},
        )
        for doc_id in (range(len(docs)) if doc_ids is None else doc_ids)
        for index, detail in enumerate(details)
    ]


class Bench:
    """An adapter with its documents, without journal unless a test asks for it: a replayed answer tests nothing."""

    def __init__(self, docs, kind=MedTasksTiny, **arguments):
        self.docs = docs
        self.adapter = kind(**{"device": "cpu", "journal": False, **arguments})
        self.adapter.task_dict = {TASK: {SPLIT: docs}}

    def generation(self, doc_ids=None, visual=to_visual, **gen_kwargs):
        gen_kwargs = {"until": ["\n\n"], "max_new_tokens": 12, "do_sample": False, "temperature": 0} | gen_kwargs
        return instances("generate_until", self.docs, [gen_kwargs], visual, doc_ids)

    def scoring(self, continuations=(" clear", " a large effusion"), doc_ids=None, visual=to_visual):
        return instances("loglikelihood", self.docs, continuations, visual, doc_ids)


class Counting:
    """Counts the samples that an adapter really runs."""

    ran = 0

    def generate_batch(self, prompts, settings, seed):
        self.ran += len(prompts)
        return super().generate_batch(prompts, settings, seed)

    def score_batch(self, items):
        self.ran += len(items)
        return super().score_batch(items)


class CountingTiny(Counting, MedTasksTiny):
    pass


def write_tokenizer(folder, lines, vocabulary, **more):
    """Write ``tokenizer.model`` with byte fallback; returns the number of its pieces."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=vocabulary,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        hard_vocab_limit=False,
        minloglevel=2,
        **more,
    )
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).GetPieceSize()
