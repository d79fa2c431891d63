"""Documents, and requests built the way the harness builds them."""

import copy
import random

import numpy as np
import pytest
import torch
from lmms_eval.api.instance import Instance
from loguru import logger
from medtasks.model_adapters.tiny import MedTasksTiny
from PIL import Image

TASK, SPLIT = "toy", "test"
WORDS = ("the", "left", "right", "lung", "is", "clear", "nodule", "effusion", "normal", "heart", "absent", "bone")


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


def meta(doc_id):
    return {"task": TASK, "doc_id": doc_id, "repeats": 1}


class Bench:
    """An adapter with its documents, without journal unless a test asks for it: a replayed answer tests nothing."""

    def __init__(self, docs, kind=MedTasksTiny, **arguments):
        self.docs = docs
        self.adapter = kind(**{"device": "cpu", "journal": False, **arguments})
        self.adapter.task_dict = {TASK: {SPLIT: docs}}

    def generation(self, doc_ids=None, visual=to_visual, **gen_kwargs):
        gen_kwargs = {"until": ["\n\n"], "max_new_tokens": 12, "do_sample": False, "temperature": 0} | gen_kwargs
        return [
            Instance(
                request_type="generate_until",
                arguments=(self.docs[i]["question"], copy.deepcopy(gen_kwargs), visual, i, TASK, SPLIT),
                idx=0,
                metadata=meta(i),
            )
            for i in (range(len(self.docs)) if doc_ids is None else doc_ids)
        ]

    def scoring(self, continuations=(" clear", " a large effusion"), doc_ids=None, visual=to_visual):
        return [
            Instance(
                request_type="loglikelihood",
                arguments=(self.docs[i]["question"], continuation, visual, i, TASK, SPLIT),
                idx=number,
                metadata=meta(i),
            )
            for i in (range(len(self.docs)) if doc_ids is None else doc_ids)
            for number, continuation in enumerate(continuations)
        ]


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_home(monkeypatch, tmp_path):
    """Journals and prepared data of a test are its own."""
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="session")
def docs():
    return make_docs()


@pytest.fixture(scope="session")
def bench(docs):
    """Batches of 5, so that twelve documents make an uneven number of them."""
    return Bench(docs, batch_size=5)


@pytest.fixture(scope="session")
def new_bench(docs):
    return lambda **arguments: Bench(arguments.pop("docs", docs), **arguments)


@pytest.fixture
def log():
    lines = []
    sink = logger.add(lines.append, level="DEBUG", format="{level} {message}")
    yield lines
    logger.remove(sink)
