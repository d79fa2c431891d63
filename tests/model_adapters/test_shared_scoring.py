"""Passes that options and questions share: they score as if each had its own, and are kept for the run."""

import random
from dataclasses import replace

import datasets
import pytest
import torch
from medtasks.model_adapters.base import shared_scoring
from medtasks.model_adapters.base.batching import KV_CACHE, BoundedCache, Encoded, content_key
from medtasks.model_adapters.base.requests import plan_streams, read_requests
from medtasks.model_adapters.base.shared_scoring import prefix_ends, words_of
from medtasks.model_adapters.tiny import IMAGE_TOKENS, MedTasksTiny
from PIL import Image

from ..tables import each_row
from . import llava_med_toy, radfm_toy
from .med_flamingo_toy import adapter_from
from .toys import GOLDEN, SPLIT, TASK, assert_pairs, noise, recorded, without_record

OPTIONS = ("x", " clear", " a large effusion in the left lung")
LONG = "look at the left and the right lung, at the heart and at every bone, and say what you find there: "


def scan(seed):
    return noise(seed, (50, 40))


def asked(*questions, options=OPTIONS):
    """Per question its text, its images by number and its options."""
    return [
        (text, images, given[0] if given else options) for text, images, *given in questions
    ]


MIXES = {
    "one image": asked(
        ("is it clear?", [0]), ("where is the nodule?", [0]), ("and the heart?", [0])
    ),
    "one question": asked((LONG, [0]), (LONG, [1]), (LONG, [2])),
    "two images, turn by turn": asked(
        ("a?", [0]), ("b?", [1]), ("is it there?", [0]), ("c c c?", [1])
    ),
    "no image": asked((LONG + "one", []), (LONG + "or two?", []), ("alone?", [])),
    "rests of one token": asked(
        (LONG + "a", [0]), (LONG + "b", [0]), (LONG + "a", [1]), (LONG + "c", [1])
    ),
    "a question within another": asked(
        ("left?", [0]), ("left? " + LONG[:30], [0]), ("left? " + LONG[:31], [0])
    ),
    "rests of any length": asked(
        ("?", [0]), (LONG[:40], [0]), ("x" * 9 + "?", [1]), ("yes?", [1])
    ),
    "one option each": asked(
        ("a?", [0], ["yes"]), ("b?", [0], ["n"]), ("c?", [1], ["yes"]), ("c?", [2], ["a", "b"])
    ),
    "partners and others": asked(
        ("a?", [0]), ("far?", []), (LONG, [1], ["x"]), ("b is long?", [0]), ("c?", [2])
    ),
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
    noted, group = [], shared_scoring.Questions.of
    monkeypatch.setattr(
        shared_scoring.Questions, "of", lambda *batch: noted.append(group(*batch)) or noted[-1]
    )
    scores = adapter.score_batch(items)
    monkeypatch.setattr(shared_scoring.Questions, "of", group)
    return scores, sum(len(questions.cuts) for questions in noted)


def assert_alike(got, expected, tolerance):
    assert [score.total for score in got] == pytest.approx(
        [score.total for score in expected], abs=tolerance
    )
    assert [(score.tokens, score.greedy) for score in got] == [
        (score.tokens, score.greedy) for score in expected
    ]


class Passes:
    """Notes the calls of a language model."""

    def __init__(self, bench, monkeypatch):
        self.rows, self.columns, self.cached, self.logits = [], [], [], []
        self._inner = bench.adapter.language_model.forward
        monkeypatch.setattr(bench.adapter.language_model, "forward", self)

    def __call__(self, **given):
        ids = given.get("input_ids")
        shape = (given["inputs_embeds"] if ids is None else ids).shape
        self.rows.append(shape[0])
        self.columns.append(shape[1])
        self.cached.append(given.get(KV_CACHE) is not None)
        output = self._inner(**given)
        self.logits.append(tuple(output.logits.shape))
        return output


def test_greedy_flags_agree_for_options_the_model_would_say(new_bench, bench):
    replies = bench.adapter.generate_until(bench.generation(until=[], max_new_tokens=6))
    doc_id = next(number for number, reply in enumerate(replies) if len(reply) == 6)
    said = replies[doc_id]
    options = (
        said,
        said[:3],
        said[0],
        said[:-1] + "~",
        "~" + said[1:],
        said[:2] + "~" + said[3:],
    )
    pairs = bench.adapter.loglikelihood(bench.scoring(options, [doc_id]))
    assert [greedy for _, greedy in pairs] == [True, True, True, False, False, False]


def test_a_prompt_is_run_once_for_all_its_options(new_bench, monkeypatch):
    bench = new_bench(batch_size=1)
    passes = Passes(bench, monkeypatch)

    bench.adapter.loglikelihood(bench.scoring((*OPTIONS, " no", "y"), [0, 1]))

    assert passes.cached == [False, True] * 2
    assert passes.rows == [1, 3] * 2, "one prompt, then the options of more than one token"
    assert passes.columns[1::2] == [len(OPTIONS[2]) - 1] * 2


def test_an_image_is_run_once_for_all_its_questions(new_bench, monkeypatch):
    bench = new_bench(batch_size=1)
    bench.adapter.loglikelihood(bench.scoring((*OPTIONS, " no", "y"), [0, 1]))
    passes = Passes(bench, monkeypatch)
    mix = asked(
        ("is it?", [0]),
        ("is it clear?", [0]),
        ("where?", [1]),
        ("what is seen?", [1]),
        ("?", [1]),
    )
    bench.adapter._prefixes.clear()

    bench.adapter.score_batch(items_of(bench.adapter, mix))

    assert passes.rows == [1, 1, 5, 5 * 2], (
        "prefixes one by one, then a row per question, then one per longer option"
    )
    longest = max(map(len, OPTIONS))
    assert passes.columns == [
        1 + IMAGE_TOKENS,
        1 + IMAGE_TOKENS,
        len("what is seen?"),
        longest - 1,
    ]
    assert passes.cached == [True] * 4
    assert [columns for _, columns, _ in passes.logits] == [1, longest - 1], (
        "none over the prompts"
    )


class Merging(MedTasksTiny):
    """Its tokenizer makes one token of a question mark and an x."""

    def encode(self, text, images, reply=""):
        return super().encode((text + reply).replace("?x", "\t"), images)


@each_row("name", MIXES)
def test_scores_are_those_of_one_pass_per_option(bench, name, monkeypatch):
    items = items_of(bench.adapter, MIXES[name])
    random.Random(name).shuffle(items)
    got, cut = cuts_in(bench.adapter, items, monkeypatch)
    assert_alike(got, alone(bench.adapter, items), 1e-9)
    assert cut == CUT[name]


def test_prompts_that_merge_share_prefixes_and_those_without_spans_none(new_bench, monkeypatch):
    adapter = new_bench(kind=Merging).adapter
    items = items_of(
        adapter,
        asked(
            ("is it clear?", [0], (" no", "x", "xyz", " clear")), ("is it?", [0], ("x", "y"))
        ),
    )
    got, cut = cuts_in(adapter, items, monkeypatch)
    assert_alike(got, alone(adapter, items), 1e-9)
    assert cut == 4, "both questions, with and without the question mark"
    prompt = Encoded([1] * 40, torch.zeros(2, 3))
    assert words_of(prompt, [(2, 10), (10, 30)]) is not None
    for broken in ([(2, 10)], [(10, 30), (2, 10)], [(2, 10), (20, 50)], [(2, 20), (10, 30)]):
        assert words_of(prompt, broken) is None


@pytest.fixture
def album_run(new_bench, monkeypatch):
    """Score four images with one to four questions each, in an order that tears them apart; one document names none.

    Returns the batches, the documents, and those whose images were opened.
    """
    words = ("is it clear?", "where is the nodule, if there is one?", LONG, "and the heart?")
    album = [
        {
            "question": f"{words[number]} {image}",
            "image": scan(image),
            "image_id": f"scan {image}",
        }
        for number in range(4)
        for image in range(number, 4)
    ]
    album.append({"question": "and this?", "image": scan(9), "image_id": None})
    bench, batches, opened = new_bench(docs=album, batch_size=12), [], []
    score = bench.adapter.score_batch
    monkeypatch.setattr(
        bench.adapter, "score_batch", lambda items: (batches.append(items), score(items))[1]
    )
    bench.adapter.loglikelihood(
        bench.scoring(OPTIONS, visual=lambda doc: (opened.append(doc), [doc["image"]])[1])
    )
    return batches, album, opened


def test_questions_on_one_image_lie_in_one_batch(album_run):
    batches, _, _ = album_run

    images = [{item.sequence.pixels.sum().item() for item in items} for items in batches]
    assert [len(items) for items in batches] == [12, 12, 9]
    assert [len(of_batch) for of_batch in images] == [2, 2, 3], (
        "3 and 1, 4, 2 and 1: whole images, longest first"
    )
    longest = max(len(item.sequence.ids) for items in batches for item in items)
    assert max(len(item.sequence.ids) for item in batches[0]) == longest


def test_the_images_of_a_document_are_loaded_once(album_run):
    _, album, opened = album_run
    assert len(opened) == len(album)


def test_names_come_from_the_column_alone(bench):
    def order(split, **given):
        requests = read_requests(bench.scoring(["x"], [0, 1, 2], **given), "loglikelihood")
        shorter = [
            replace(request, context="?" * (3 - at)) for at, request in enumerate(requests)
        ]
        ((*units,),) = plan_streams(
            shorter, lambda _: None, lambda request: request.doc_id, {TASK: {SPLIT: split}}
        )
        return units

    table = datasets.Dataset.from_dict(
        {"image_id": ["a", None, "a"], "image": [{"bytes": b"no image"}] * 3}
    )
    table = table.cast_column("image", datasets.Image())
    with pytest.raises(OSError):
        table[0]

    assert order(table) == [[0], [2], [1]]
    for split in (table.remove_columns("image_id"), [{"question": "?"}] * 3, [None] * 3, []):
        assert order(split) == [[0], [1], [2]]
    assert order(table, visual=None) == [[0], [1], [2]]


def visual(doc):
    return [scan(number) for number in doc["images"]]


@pytest.fixture(scope="module")
def few_shot():
    """Questions after the same two examples, on three images, and others with examples and images of their own."""
    texts = ("is it?", "is it clear?", LONG, "where?", "a?")
    docs = [
        {"question": text, "images": [8, 9, image]} for text in texts for image in (0, 1, 2)
    ]
    docs += [{"question": text, "images": [image]} for text in texts[:3] for image in (0, 3)]
    return [
        *docs,
        {"question": LONG, "images": []},
        {"question": "is it?", "images": [9, 8, 0]},
    ]


@pytest.fixture(scope="module")
def unshared(few_shot, new_bench):
    bench = new_bench(docs=few_shot, prefix_cache=False, batch_size=1)
    return bench.adapter.loglikelihood(bench.scoring(OPTIONS, visual=visual))


@each_row("seed", range(3))
def test_any_order_batch_size_and_memory_scores_like_one_pass_per_option(
    new_bench, few_shot, unshared, seed
):
    draw = random.Random(seed)
    bench = new_bench(docs=few_shot, batch_size=draw.choice((1, 2, 5, 16, 100)))
    bench.adapter._prefixes = BoundedCache(draw.choice((0, 2**16, 2**18, 2**30)))
    for _ in range(2):
        order = draw.sample(range(len(few_shot)), draw.randint(1, len(few_shot)))
        got = bench.adapter.loglikelihood(bench.scoring(OPTIONS, order, visual))
        expected = [
            unshared[at * len(OPTIONS) + number]
            for at in order
            for number in range(len(OPTIONS))
        ]
        assert_pairs(got, expected, 1e-9)
        assert bench.adapter._prefixes.used <= bench.adapter._prefixes._limit


def test_what_is_kept_does_not_change_the_last_bit(new_bench, few_shot):
    """A run that was killed goes on with nothing kept, and has to end like an undisturbed one."""
    kept, forgetful = (
        new_bench(docs=few_shot, batch_size=5, prefix_cache_mb=limit) for limit in (512, 0)
    )
    got, expected = (
        one.adapter.loglikelihood(one.scoring(OPTIONS, visual=visual))
        for one in (kept, forgetful)
    )
    assert got == expected
    assert kept.adapter.loglikelihood(kept.scoring(OPTIONS, visual=visual)) == expected
    assert kept.adapter._prefixes.used > 0
    assert forgetful.adapter._prefixes.used == 0


def test_a_failing_pass_leaves_all_memory_to_the_next(new_bench, few_shot, monkeypatch):
    bench = new_bench(docs=few_shot)
    bench.adapter.score_batch(items_of(bench.adapter, [("is it?", [0], ("x",))]))
    assert bench.adapter._prefixes.used > 0
    monkeypatch.setattr(shared_scoring, "suffixes_of", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        bench.adapter.score_batch(items_of(bench.adapter, [("is it?", [0], ("x",))]))
    assert bench.adapter._prefixes.used == 0
    bench.adapter.clean()


@each_row("window, kept", [(4096, True), (40, False)])
def test_a_model_with_a_window_shares_prefixes_that_lie_well_within_it(
    new_bench, few_shot, monkeypatch, window, kept
):
    adapter = new_bench(docs=few_shot).adapter
    items = items_of(adapter, [("is it?", [0], OPTIONS)])
    expected = alone(adapter, items)
    monkeypatch.setattr(
        adapter.language_model.config,
        "layer_types",
        ["full_attention", "sliding_attention"],
        False,
    )
    monkeypatch.setattr(adapter.language_model.config, "sliding_window", window, False)
    assert_alike(adapter.score_batch(items), expected, 1e-9)
    assert (adapter._prefixes.used > 0) == kept


@each_row(
    "spans, length, places",
    [
        ([], 100, ()),
        ([(1, 65)], 200, (65,)),
        ([(1, 63)], 200, ()),  # short
        ([(1, 65)], 65, ()),  # nothing follows
        ([(1, 65)], 261, ()),  # little beside what follows
        ([(15, 90)], 100, (90,)),
        ([(16, 90)], 100, ()),  # behind a text of its own
        ([(1, 50), (50, 99)], 120, (99,)),
        ([(1, 70), (80, 150)], 200, (80, 150)),
        ([(1, 70), (80, 81)], 120, (80,)),  # a mark alone is not worth a pass
        ([(0, 0)], 100, ()),
        ([(0, 0), (70, 170)], 200, (70, 170)),
    ],
)
def test_places_where_a_prompt_is_cut(spans, length, places, monkeypatch):
    monkeypatch.setattr(shared_scoring, "OWN_LENGTH", 64)
    assert prefix_ends(spans, length) == places


def test_image_keys_are_those_of_single_images():
    pixels = torch.arange(12.0).reshape(2, 6)
    prompt = Encoded((), pixels)
    assert prompt.image_keys == (content_key(pixels[:1]), content_key(pixels[1:]))
    assert Encoded((), None).image_keys == ()

    before = prompt.image_keys
    pixels[1, 0] = 100
    assert prompt.image_keys == (before[0], content_key(pixels[1:]))


def test_images_of_a_prompt_are_prepared_once(new_bench, few_shot, monkeypatch):
    bench, seen = new_bench(docs=few_shot), []
    prepare = bench.adapter.prepared
    monkeypatch.setattr(
        bench.adapter,
        "prepared",
        lambda images, make: prepare(images, lambda given: (seen.append(1), make(given))[1]),
    )

    bench.adapter.loglikelihood(bench.scoring(OPTIONS, [15, 0], visual))

    assert len(seen) == 2


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


def places_of(adapter, prompt):
    """The places where a prompt is worth a cut, which depend on its tokens: recorded tokenizers differ in those."""
    spans = adapter.image_spans(prompt)
    return (
        ()
        if spans is None or words_of(prompt, spans) is None
        else prefix_ends(spans, len(prompt.ids))
    )


def check(adapter, mix, image_of, monkeypatch):
    items = items_of(adapter, mix, image_of)
    got, cut = cuts_in(adapter, items, monkeypatch)
    expected_scores = alone(adapter, items)
    # Per token, as the harness is told: in float32 a sum beyond 128 nats has no neighbour closer than 1.5e-5.
    assert [score.mean for score in got] == pytest.approx(
        [score.mean for score in expected_scores], abs=1e-5
    )
    assert [score.greedy for score in got] == [score.greedy for score in expected_scores]
    prompts = {(item.prompt.image_keys, tuple(item.prompt.ids)): item.prompt for item in items}
    assert cut == sum(bool(places_of(adapter, prompt)) for prompt in prompts.values())
    scores = [score.total for score in got]
    assert max(scores) - min(scores) > 1e-2, (
        "scores that do not depend on anything show nothing"
    )


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
    tower = str(GOLDEN / "llava_med" / "vision_tower_openai")
    adapter = llava_med_toy.adapter(GOLDEN / "llava_med", vision_tower=tower)
    check(adapter, one_image_each(), image_of, monkeypatch)
    several = [(text, [0, number], ANSWERS) for number in (1, 2) for text in QUESTIONS[:1]]
    check(adapter, several, image_of, monkeypatch)


@pytest.mark.usefixtures("tiny_images")
@each_row("position", ["front", "before_last_character"])
def test_golden_radfm_prefixes(position, monkeypatch):
    _, image_of = cases_and_images("radfm")
    adapter = radfm_toy.adapter(GOLDEN / "radfm", image_position=position)
    mix = [
        (f"<image>{LONG} and the next <image>{text}", [0, 1 + at], ANSWERS)
        for at, text in enumerate(QUESTIONS)
    ]
    check(adapter, mix, image_of, monkeypatch)
    mix = one_image_each("", (0, 1))
    check(adapter, mix, image_of, monkeypatch)


@each_row("mode, lengths", [("preceding", 1), ("following", 3)])
def test_golden_med_flamingo_prefixes(mode, lengths, monkeypatch):
    cases, image_of = cases_and_images("med_flamingo")
    adapter = adapter_from(GOLDEN / "med_flamingo", media_attention=mode)
    shots = next(case["prompt"] for case in cases if case["id"] == "two_shot")
    shots, query = shots[: shots.rindex("<image>")], " Question: {} Answer:"
    mix = [
        (shots + "<image>" + query.format(text), [0, 1, at], ANSWERS)
        for at in (2, 3)
        for text in QUESTIONS
    ]
    check(adapter, mix, image_of, monkeypatch)
    # Where text looks ahead, the words before an image are read with it: once per image, after the examples.
    assert len(adapter._prefixes._values) == lengths
    others = [(LONG + "<image>" + query.format(text), [3], ANSWERS) for text in QUESTIONS]
    check(adapter, mix[:3] + others, image_of, monkeypatch)
