"""Questions of MediConfusion's kind through the model adapters, with their caches and without.

As many questions on as many images as the benchmark has (352 on 228), with questions and options of its lengths and the
prompts of its tasks; words and images are drawn. Requests go through the adapters' ``loglikelihood`` and
``generate_until`` as the harness calls them, so that decoding of images and preprocessing are part of every time.
Replies of random weights hardly ever end: all are as long as they may be, 32 tokens.
"""

import dataclasses
import io
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from drawn_checkpoints import BUILDERS, draw
from drawn_reports import FINDINGS, WORDS
from gpu_scale import Report, Scale
from least_work import Work, measured_peak, settle
from lmms_eval.api.instance import Instance
from medtasks.model_adapters.base.adapter import MedicalAdapter
from medtasks.model_adapters.base.batching import FeatureCache
from medtasks.model_adapters.base.shared_scoring import PrefixCache
from PIL import Image

from medtasks.prompts.template import prompt
from medtasks.tasks.prompt_settings import prompt_settings

MODES = {"PS": "mediconfusion_ps", "GD": "mediconfusion_gd", "MC": "mediconfusion"}
SPLIT, WARM_UP = "test", 4
IMAGES_WITH_QUESTIONS = {1: 169, 2: 38, 3: 7, 4: 4, 5: 3, 6: 3, 7: 1, 8: 2, 14: 1}
"""How many of MediConfusion's images have so many questions each."""
TINY_IMAGES = {1: 6, 2: 1, 3: 1}
PART = 6  # without caches every sixth image does
EXAMPLES = 3  # images of Med-Flamingo's examples
NEW_TOKENS = 32
Doc = dict[str, Any]


class Way(NamedTuple):
    """Which caches are used."""

    name: str
    prefixes: bool
    images: bool


BOTH, NONE = Way("prefix, image", True, True), Way("none", False, False)
PREFIXES, IMAGES = Way("prefix", True, False), Way("image", False, True)


# ---- questions ----


def documents(scale: Scale) -> list[Doc]:
    """Draw documents; those on every ``PART``-th image come first, those to warm up last."""
    draw_ = random.Random(11)
    images = TINY_IMAGES if scale.tiny else IMAGES_WITH_QUESTIONS
    counts = [count for count, several in images.items() for _ in range(several)]
    order = sorted(range(len(counts)), key=lambda number: number % PART)
    docs = []
    for image, count in [
        *((image, counts[image]) for image in order),
        *((-1 - at, 1) for at in range(WARM_UP)),
    ]:
        data = drawn_image(draw_, (240, 200) if scale.tiny else (600, 500))
        docs += [document(draw_, str(image), data) for _ in range(count)]
    return docs


def first_part(scale: Scale) -> int:
    """Return how many documents are on every ``PART``-th image."""
    images = TINY_IMAGES if scale.tiny else IMAGES_WITH_QUESTIONS
    return sum([count for count, several in images.items() for _ in range(several)][::PART])


def document(draw_: random.Random, image: str, data: bytes) -> Doc:
    """Draw a question of ten words and options of four on average."""
    said = " ".join(draw_.choices(WORDS, k=draw_.randint(6, 13)))
    options = [
        " ".join([*draw_.choices(WORDS, k=draw_.randint(1, 5)), draw_.choice(FINDINGS)])
        for _ in range(2)
    ]
    return {"question": f"{said.capitalize()}?", "options": options, "image_id": image, "image_files": [image],
            "data": data}  # fmt: skip


def drawn_image(draw_: random.Random, size: tuple[int, int]) -> bytes:
    """Return a JPEG file of clouds, each image of a grain and a grey of its own."""
    coarse = draw_.randint(3, 60), draw_.randint(3, 60)
    clouds = Image.frombytes("L", coarse, draw_.randbytes(coarse[0] * coarse[1])).resize(
        size, Image.Resampling.BICUBIC
    )
    file = io.BytesIO()
    Image.blend(clouds, Image.new("L", size, draw_.randint(0, 255)), 0.5).convert("RGB").save(
        file, "JPEG", quality=90
    )
    return file.getvalue()


def opened(doc: Doc) -> list[Image.Image]:
    """Open a document's image, as tasks do for every document."""
    with Image.open(io.BytesIO(doc["data"])) as image:
        return [image.convert("RGB")]


class Questions:
    """The requests of one model."""

    def __init__(self, scale: Scale, family: str) -> None:
        self.docs = documents(scale)
        self.count, self.part = len(self.docs) - WARM_UP, first_part(scale)
        self._examples = self.docs[:EXAMPLES] if family == "med_flamingo" else []
        settings = {mode: prompt_settings(task) for mode, task in MODES.items()}
        own = {mode: given.get(family, given["default"]) for mode, given in settings.items()}
        self.contexts = {
            mode: [prompt(doc, given) for doc in self.docs] for mode, given in own.items()
        }

    @property
    def texts(self) -> list[str]:
        """All that the model reads."""
        contexts = [text for texts in self.contexts.values() for text in texts]
        return contexts + [option for doc in self.docs for option in doc["options"]]

    def requests(self, mode: str, rows: range, other_images: int = 0) -> list[Instance]:
        """Return a mode's requests about some documents, or about the image of another one."""

        def visuals(doc: Doc) -> list[Image.Image]:
            at = next(row for row, one in enumerate(self.docs) if one is doc)
            own = self.docs[(at + other_images) % self.count] if other_images else doc
            return [image for one in (*self._examples, own) for image in opened(one)]

        kind = "generate_until" if mode == "MC" else "loglikelihood"
        made = []
        for row in rows:
            options = [" " + option for option in self.docs[row]["options"]]
            generation = {
                "max_new_tokens": NEW_TOKENS,
                "temperature": 0,
                "do_sample": False,
                "until": [],
            }
            details: Sequence[Any] = {"PS": options, "GD": ["A", "B"], "MC": [generation]}[mode]
            meta = {"task": MODES[mode], "doc_id": row, "repeats": 1}
            for number, detail in enumerate(details):
                arguments = (self.contexts[mode][row], detail, visuals, row, MODES[mode], SPLIT)
                made.append(Instance(kind, arguments, number, metadata=meta))
        return made


# ---- a model ----


@dataclasses.dataclass
class Bench:
    """A loaded model with its questions."""

    model: MedicalAdapter
    questions: Questions
    peak: float  # operations per second
    report: Report
    answers: dict[tuple[str, Way], list[Any]] = dataclasses.field(default_factory=dict)

    def measure(
        self, mode: str, way: Way, rows: range, more: Callable[[], Mapping[str, Any]] = dict
    ) -> None:
        """Time a mode's requests about some documents and report it, with what ``more`` finds out afterwards."""
        model, device = self.model, self.model.device
        switch(model, way)
        asked, warm = (
            self.questions.requests(mode, rows),
            range(self.questions.count, len(self.questions.docs)),
        )
        call = model.generate_until if mode == "MC" else model.loglikelihood
        call(self.questions.requests(mode, warm))
        switch(model, way)
        work = Work(model)
        work.note()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        settle(device)
        began = time.perf_counter()
        self.answers[mode, way] = call(asked)
        settle(device)
        seconds = time.perf_counter() - began
        work.forget()
        memory = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
        least = (
            work.operations(shared_texts=way.prefixes, shared_images=way.prefixes or way.images)
            / self.peak
        )
        self.report(
            {"mode": mode, "caches": way.name, "questions": len(rows), "seconds": seconds,
             "questions_per_second": len(rows) / seconds, "limit_seconds": least, "times_the_limit": seconds / least,
             "share_of_the_limit": least / seconds, "peak_memory_gb": memory and memory / 1e9, **more()}
        )  # fmt: skip

    def distance(self, mode: str, way: Way, other: Way) -> Mapping[str, Any]:
        """Return how far the answers of two ways to the same requests are from each other."""
        ours, theirs = self.answers[mode, way], self.answers[mode, other]
        if mode == "MC":
            return {"equal_replies": statistics.mean(map(str.__eq__, ours, theirs))}
        gaps = [abs(one[0] - two[0]) for one, two in zip(ours, theirs, strict=False)]
        if not all(map(math.isfinite, gaps)):
            raise SystemExit(f"{mode}: a score is not finite")
        return {"largest_difference": max(gaps)}

    def control(self, mode: str, rows: range) -> Mapping[str, Any]:
        """Return how far other images move the scores: what a wrong cache would do."""
        moved = self.model.loglikelihood(
            self.questions.requests(mode, rows, other_images=self.questions.part)
        )
        gaps = [
            abs(one[0] - two[0])
            for one, two in zip(moved, self.answers[mode, NONE], strict=False)
        ]
        return {"moved_by_another_image": statistics.median(gaps)}


def switch(model: MedicalAdapter, way: Way) -> None:
    """Give a model empty caches of this way's kinds, as its arguments would."""
    kept = {"prefix_cache": way.prefixes, "feature_cache_mb": 512 if way.images else 0}
    model.arguments = dataclasses.replace(model.arguments, **kept)
    model._features = FeatureCache(model.arguments.feature_cache_mb * 2**20)
    model._prefixes = PrefixCache(model.arguments.prefix_cache_mb * 2**20)
    model._last_prepared = None


def measure_model(name: str, scale: Scale, report: Report) -> None:
    """Measure one of ``BUILDERS``: first what the goals are about, then the rest."""
    questions = Questions(scale, name)
    given = {
        "device": scale.device,
        "dtype": scale.dtype,
        "batch_size": scale.batch_size,
        "journal": False,
    }
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        model = BUILDERS[name](Path(folder), questions.texts, scale.tiny, max_failed=0, **given)
        parameters = draw(model)
        settle(model.device)
        loading = time.perf_counter() - began
    model.task_dict = {task: {SPLIT: questions.docs} for task in MODES.values()}
    peak = scale.peak or measured_peak(model.device, getattr(torch, scale.dtype))
    report(
        {
            "parameters": parameters,
            "dtype": scale.dtype,
            "loading_seconds": loading,
            "operations_per_second": peak,
        }
    )
    bench, every, some = (
        Bench(model, questions, peak, report),
        range(questions.count),
        range(questions.part),
    )
    for mode in ("PS", "GD"):
        bench.measure(mode, BOTH, every)

        def compared(mode: str = mode) -> dict[str, float]:
            return bench.distance(mode, BOTH, NONE) | bench.control(mode, some[:4])

        bench.measure(mode, NONE, some, compared)
    keeps_images = name != "hf_vlm"  # transformers looks at images inside of the model
    with_images = IMAGES if keeps_images else NONE
    bench.measure("MC", with_images, some)
    if not keeps_images:
        return
    bench.measure("MC", NONE, some, lambda: bench.distance("MC", with_images, NONE))
    for mode in ("PS", "GD"):
        for way in (IMAGES, PREFIXES):
            bench.measure(
                mode, way, some, lambda mode=mode, way=way: bench.distance(mode, way, NONE)
            )
