"""Questions on one image share the pass over it and score as if each had its own."""

import random

import datasets
import pytest
import torch
from medtasks.model_adapters.base import shared_scoring
from medtasks.model_adapters.base.batching import Encoded
from medtasks.model_adapters.base.requests import image_names, read_requests
from medtasks.model_adapters.base.shared_scoring import find_cuts, words_of
from medtasks.model_adapters.llava_med import LlavaMed
from medtasks.model_adapters.radfm import RadFM
from medtasks.model_adapters.tiny import IMAGE_TOKENS, MedTasksTiny
from PIL import Image

from ..tables import each_row
from .golden import GOLDEN, recorded, without_record
from .med_flamingo_toy import adapter_from
from .test_prefix_sharing import Merging, Passes
from .toys import SPLIT, TASK, noise

OPTIONS = ("x", " clear", " a large effusion in the left lung")
LONG = "look at the left and the right lung, at the heart and at every bone, and say what you find there: "


def scan(seed):
    return noise(seed, (50, 40))


def asked(*questions, options=OPTIONS):
    """Per question its text, its images by number and its options."""
    return [(text, images, given[0] if given else options) for text, images, *given in questions]


MIXES = {
    "one image": asked(("is it clear?", [0]), ("where is the nodule?", [0]), ("and the heart?", [0])),
    "one question": asked((LONG, [0]), (LONG, [1]), (LONG, [2])),
    "two images, turn by turn": asked(("a?", [0]), ("b?", [1]), ("is it there?", [0]), ("c c c?", [1])),
    "no image": asked((LONG + "one", []), (LONG + "or two?", []), ("alone?", [])),
    "rests of one token": asked((LONG + "a", [0]), (LONG + "b", [0]), (LONG + "a", [1]), (LONG + "c", [1])),
    "a question within another": asked(("left?", [0]), ("left? " + LONG[:30], [0]), ("left? " + LONG[:31], [0])),
    "rests of any length": asked(("?", [0]), (LONG[:40], [0]), ("x" * 9 + "?", [1]), ("yes?", [1])),
    "one option each": asked(("a?", [0], ["yes"]), ("b?", [0], ["n"]), ("c?", [1], ["yes"]), ("c?", [2], ["a", "b"])),
    "partners and others": asked(("a?", [0]), ("far?", []), (LONG, [1], ["x"]), ("b is long?", [0]), ("c?", [2])),
    "another second image": asked(("a?", [0, 1]), ("b?", [0, 2]), ("cc?", [0, 3, 4])),
    "another first image": asked(("a?", [0, 1]), ("a?", [2, 1])),
}
CUT = dict(zip(MIXES, (3, 0, 4, 0, 0, 3, 4, 4, 3, 3, 2), strict=True))
"""Prompts whose questions go on from an image; those with too long a question, or no image, are read whole."""


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Prompts are cut behind images of as few tokens as a tiny model's."""
    monkeypatch.setattr(shared_scoring, "OWN_LENGTH", 12)


def items_of(adapter, mix, image_of=scan):
    return [
        adapter.encode_pair(text, option, [image_of(number) for number in images])
        for text, images, options in mix
        for option in options
    ]


def alone(adapter, items):
    with torch.inference_mode():
        return [adapter._score_whole([item])[0] for item in items]


def cuts_in(adapter, items, monkeypatch):
    """Score; returns the scores and the number of prompts that were cut."""
    noted = []

    def note(*given):
        noted.append(find_cuts(*given))
        return noted[-1]

    monkeypatch.setattr(shared_scoring, "find_cuts", note)
    return adapter.score_batch(items), sum(map(len, noted))


def assert_alike(got, expected, tolerance):
    assert [score.total for score in got] == pytest.approx([score.total for score in expected], abs=tolerance)
    assert [(score.tokens, score.greedy) for score in got] == [(score.tokens, score.greedy) for score in expected]


@each_row("name", MIXES)
@each_row("seed", range(3))
def test_scores_are_those_of_one_pass_per_option(bench, name, seed, monkeypatch):
    items = items_of(bench.adapter, MIXES[name])
    random.Random(seed).shuffle(items)
    got, cut = cuts_in(bench.adapter, items, monkeypatch)
    assert_alike(got, alone(bench.adapter, items), 1e-9)
    assert cut == CUT[name]


def test_prompts_that_merge_with_an_option_share_the_prefix_with_the_others(new_bench, monkeypatch):
    adapter = new_bench(kind=Merging).adapter
    items = items_of(adapter, asked(("is it clear?", [0], (" no", "x", "xyz", " clear")), ("is it?", [0], ("x", "y"))))
    got, cut = cuts_in(adapter, items, monkeypatch)
    assert_alike(got, alone(adapter, items), 1e-9)
    assert cut == 4, "both questions, with and without the question mark"


def test_an_image_is_run_once_however_many_questions_it_has(bench, monkeypatch):
    passes = Passes(bench, monkeypatch)
    mix = asked(("is it?", [0]), ("is it clear?", [0]), ("where?", [1]), ("what is seen?", [1]), ("?", [1]))
    bench.adapter._prefixes.clear()
    bench.adapter.score_batch(items_of(bench.adapter, mix))
    assert passes.rows == [1, 1, 5, 5 * 2], "prefixes one by one, then a row per question, then one per longer option"
    longest = max(map(len, OPTIONS))
    assert passes.columns == [1 + IMAGE_TOKENS, 1 + IMAGE_TOKENS, len("what is seen?"), longest - 1]
    assert passes.cached == [True] * 4
    assert [columns for _, columns, _ in passes.logits] == [1, longest - 1], "none over the prompts"


def test_the_switch_turns_it_off(new_bench, monkeypatch):
    bench = new_bench(prefix_cache=False)
    items = items_of(bench.adapter, MIXES["one image"])
    passes = Passes(bench, monkeypatch)
    got, cut = cuts_in(bench.adapter, items, monkeypatch)
    assert (cut, passes.rows, passes.cached) == (0, [len(items)], [False])
    assert_alike(got, alone(bench.adapter, items), 1e-9)


def test_a_model_that_names_no_spans_shares_prompts_only(bench, monkeypatch):
    monkeypatch.setattr(MedTasksTiny, "image_spans", super(MedTasksTiny, MedTasksTiny).image_spans)
    passes = Passes(bench, monkeypatch)
    items = items_of(bench.adapter, MIXES["one image"])
    got, cut = cuts_in(bench.adapter, items, monkeypatch)
    assert (cut, passes.rows[0]) == (0, 3)
    assert_alike(got, alone(bench.adapter, items), 1e-9)


# ---- the harness's calls ----


@pytest.fixture(scope="module")
def album():
    """Four images with one to four questions each, in an order that tears them apart; one document names no image."""
    words = ("is it clear?", "where is the nodule, if there is one?", LONG, "and the heart?")
    docs = [
        {"question": f"{words[number]} {image}", "image": scan(image), "image_id": f"scan {image}"}
        for number in range(4)
        for image in range(number, 4)
    ]
    return [*docs, {"question": "and this?", "image": scan(9), "image_id": None}]


def test_questions_on_one_image_lie_in_one_batch(new_bench, album, monkeypatch):
    bench, batches = new_bench(docs=album, batch_size=12), []
    score = bench.adapter.score_batch
    monkeypatch.setattr(bench.adapter, "score_batch", lambda items: (batches.append(items), score(items))[1])
    opened = []
    bench.adapter.loglikelihood(bench.scoring(OPTIONS, visual=lambda doc: (opened.append(doc), [doc["image"]])[1]))
    images = [{item.sequence.pixels.sum().item() for item in items} for items in batches]
    assert [len(items) for items in batches] == [12, 12, 9]
    assert [len(of_batch) for of_batch in images] == [2, 2, 3], "3 and 1, 4, 2 and 1: whole images, longest first"
    assert len(opened) == len(album), "each document's images are loaded once"
    longest = max(len(item.sequence.ids) for items in batches for item in items)
    assert max(len(item.sequence.ids) for item in batches[0]) == longest


def test_names_come_from_the_column_alone(bench):
    requests = read_requests(bench.scoring(["x"], [0, 1, 2]), "loglikelihood")
    table = datasets.Dataset.from_dict({"image_id": ["a", None, "a"], "image": [{"bytes": b"no image"}] * 3})
    table = table.cast_column("image", datasets.Image())
    with pytest.raises(OSError):
        table[0]
    assert [image_names({TASK: {SPLIT: table}})(request) for request in requests] == ["a", None, "a"]
    bare = table.remove_columns("image_id")
    for split in (bare, [{"question": "?"}] * 3, [None] * 3, []):
        assert [image_names({TASK: {SPLIT: split}})(request) for request in requests] == [None] * 3
    blind = read_requests(bench.scoring(["x"], [0], visual=None), "loglikelihood")
    assert image_names({TASK: {SPLIT: table}})(blind[0]) is None


def test_a_prompt_without_one_span_per_image_is_read_whole():
    prompt = Encoded([1] * 40, torch.zeros(2, 3))
    assert words_of(prompt, [(2, 10), (10, 30)]) is not None
    for broken in ([(2, 10)], [(10, 30), (2, 10)], [(2, 10), (20, 50)], [(2, 20), (10, 30)]):
        assert words_of(prompt, broken) is None
        assert find_cuts([prompt], lambda _, spans=broken: spans) == {}


# ---- the published models ----


@pytest.fixture
def tiny_images(monkeypatch):
    """Prompts are cut behind images of as few tokens as those of the toys."""
    for name, tokens in (("OWN_LENGTH", 4), ("LEAST_LENGTH", 6), ("_LEAST_PART", 10)):
        monkeypatch.setattr(shared_scoring, name, tokens)


def cases_and_images(model):
    record = recorded(model)
    if not record:
        pytest.skip(without_record(model))
    files = sorted((GOLDEN / model / "images").iterdir())
    return record["cases"], lambda number: Image.open(files[number % len(files)])


def check(adapter, mix, image_of, monkeypatch, expected):
    items = items_of(adapter, mix, image_of)
    got, cut = cuts_in(adapter, items, monkeypatch)
    expected_scores = alone(adapter, items)
    # Per token, as the harness is told: in float32 a sum beyond 128 nats has no neighbour closer than 1.5e-5.
    assert [score.mean for score in got] == pytest.approx([score.mean for score in expected_scores], abs=1e-5)
    assert [score.greedy for score in got] == [score.greedy for score in expected_scores]
    assert cut == expected
    scores = [score.total for score in got]
    assert max(scores) - min(scores) > 1e-2, "scores that do not depend on anything show nothing"


QUESTIONS = (
    "Is there a fracture?",
    "Which organ is shown in the scan?",
    "Is the heart enlarged at 37°? Answer: yes or no.",
)
ANSWERS = ("yes", "the left lung shows a large effusion", "A")


def one_image_each(start="", images=(0, 1)):
    return [(start + text, [number], ANSWERS) for number in images for text in QUESTIONS]


@pytest.mark.usefixtures("tiny_images")
def test_golden_llava_med_prefixes(monkeypatch):
    _, image_of = cases_and_images("llava_med")
    folder = GOLDEN / "llava_med"
    adapter = LlavaMed(
        pretrained=str(folder), vision_tower=str(folder / "vision_tower_openai"), dtype="float32", device="cpu",
        journal="false",
    )  # fmt: skip
    check(adapter, one_image_each(), image_of, monkeypatch, 6)
    several = [(text, [0, number], ANSWERS) for number in (1, 2) for text in QUESTIONS[:1]]
    check(adapter, several, image_of, monkeypatch, 2)


@pytest.mark.usefixtures("tiny_images")
@each_row("position", ["front", "before_last_character"])
def test_golden_radfm_prefixes(position, monkeypatch):
    _, image_of = cases_and_images("radfm")
    adapter = RadFM(
        pretrained=str(GOLDEN / "radfm"), dtype="float32", device="cpu", journal=False, image_position=position
    )
    mix = [(f"<image>{LONG} and the next <image>{text}", [0, 1 + at], ANSWERS) for at, text in enumerate(QUESTIONS)]
    check(adapter, mix, image_of, monkeypatch, 3)
    mix = one_image_each("", (0, 1))
    check(adapter, mix, image_of, monkeypatch, 6 if position == "front" else 0)


@each_row("mode", ["preceding", "following"])
def test_golden_med_flamingo_prefixes(mode, monkeypatch):
    cases, image_of = cases_and_images("med_flamingo")
    adapter = adapter_from(GOLDEN / "med_flamingo", media_attention=mode)
    shots = next(case["prompt"] for case in cases if case["id"] == "two_shot")
    shots, query = shots[: shots.rindex("<image>")], " Question: {} Answer:"
    asked_about = [(shots + "<image>" + query.format(text), number) for number in (2, 3) for text in QUESTIONS]
    mix = [(text, [0, 1, number], ANSWERS) for text, number in asked_about]
    check(adapter, mix, image_of, monkeypatch, 6)
    others = [(LONG + "<image>" + query.format(text), [3], ANSWERS) for text in QUESTIONS]
    check(adapter, mix[:3] + others, image_of, monkeypatch, 3 if mode == "preceding" else 6)
