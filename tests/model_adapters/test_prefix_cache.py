"""What prompts begin with is read once in a run, and whether it was kept changes nothing, not even the last bit."""

import random

import pytest
import torch
from medtasks.model_adapters.base import shared_scoring
from medtasks.model_adapters.base.batching import BoundedCache, Encoded, content_key, image_keys
from medtasks.model_adapters.base.shared_scoring import cut_places, find_cuts
from medtasks.model_adapters.tiny import IMAGE_TOKENS

from ..tables import each_row
from .golden import GOLDEN
from .med_flamingo_toy import adapter_from
from .test_common_prefixes import ANSWERS, LONG, OPTIONS, alone, assert_alike, cases_and_images, items_of, scan
from .test_prefix_sharing import Passes, assert_pairs

FEW_SHOT = 1 + 2 * IMAGE_TOKENS
"""Where the last of three images starts in the tiny model's prompts, which put all images first."""


@pytest.fixture
def short(monkeypatch):
    """Beginnings of the tiny model are kept although they are short."""
    monkeypatch.setattr(shared_scoring, "OWN_LENGTH", 12)


def few_shot_documents():
    """Questions after the same two examples, on three images, and others with examples and images of their own."""
    texts = ("is it?", "is it clear?", LONG, "where?", "a?")
    docs = [{"question": text, "images": [8, 9, image]} for text in texts for image in (0, 1, 2)]
    docs += [{"question": text, "images": [image]} for text in texts[:3] for image in (0, 3)]
    return [*docs, {"question": LONG, "images": []}, {"question": "is it?", "images": [9, 8, 0]}]


def visual(doc):
    return [scan(number) for number in doc["images"]]


@pytest.fixture(scope="module")
def album():
    return few_shot_documents()


@pytest.fixture(scope="module")
def unshared(album, new_bench):
    bench = new_bench(docs=album, prefix_cache=False, batch_size=1)
    return bench.adapter.loglikelihood(bench.scoring(OPTIONS, visual=visual))


@pytest.mark.usefixtures("short")
@each_row("seed", range(6))
def test_any_order_batch_size_and_memory_scores_like_one_pass_per_option(new_bench, album, unshared, seed):
    draw = random.Random(seed)
    bench = new_bench(docs=album, batch_size=draw.choice((1, 2, 5, 16, 100)))
    bench.adapter._prefixes = BoundedCache(draw.choice((0, 2**16, 2**18, 2**30)))
    for _ in range(2):
        order = draw.sample(range(len(album)), draw.randint(1, len(album)))
        got = bench.adapter.loglikelihood(bench.scoring(OPTIONS, order, visual))
        expected = [unshared[at * len(OPTIONS) + number] for at in order for number in range(len(OPTIONS))]
        assert_pairs(got, expected, 1e-9)
        assert bench.adapter._prefixes.used <= bench.adapter._prefixes._limit


@pytest.mark.usefixtures("short")
@each_row("size", [1, 5, 16])
def test_what_is_kept_does_not_change_the_last_bit(new_bench, album, size):
    """A run that was killed goes on with nothing kept, and has to end like an undisturbed one."""
    kept, forgetful = (new_bench(docs=album, batch_size=size, prefix_cache_mb=limit) for limit in (512, 0))
    got, expected = (one.adapter.loglikelihood(one.scoring(OPTIONS, visual=visual)) for one in (kept, forgetful))
    assert got == expected
    assert kept.adapter.loglikelihood(kept.scoring(OPTIONS, visual=visual)) == expected
    assert kept.adapter._prefixes.used > 0
    assert forgetful.adapter._prefixes.used == 0


@pytest.mark.usefixtures("short")
@each_row("size", [1, 4, 100])
def test_examples_and_images_are_read_once_in_a_run(new_bench, album, size, monkeypatch):
    bench = new_bench(docs=album[:15], batch_size=size)
    spied = Passes(bench, monkeypatch)
    for _ in range(2):
        bench.adapter.loglikelihood(bench.scoring(OPTIONS, visual=visual))
    passes = list(zip(spied.rows, spied.columns, strict=True))
    assert passes.count((1, FEW_SHOT)) == 1, "the examples"
    assert passes.count((1, IMAGE_TOKENS)) == 3, "each image, behind them"


@pytest.mark.usefixtures("short")
def test_a_failing_pass_leaves_all_memory_to_the_next(new_bench, album, monkeypatch):
    bench = new_bench(docs=album)
    bench.adapter.score_batch(items_of(bench.adapter, [("is it?", [0], ("x",))]))
    assert bench.adapter._prefixes.used > 0
    monkeypatch.setattr(shared_scoring, "suffixes_of", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        bench.adapter.score_batch(items_of(bench.adapter, [("is it?", [0], ("x",))]))
    assert bench.adapter._prefixes.used == 0
    bench.adapter.clean()


@pytest.mark.usefixtures("short")
@each_row("window, kept", [(4096, True), (40, False)])
def test_a_model_with_a_window_shares_prefixes_that_lie_well_within_it(new_bench, album, monkeypatch, window, kept):
    adapter = new_bench(docs=album).adapter
    items = items_of(adapter, [("is it?", [0], OPTIONS)])
    expected = alone(adapter, items)
    monkeypatch.setattr(adapter.language_model.config, "layer_types", ["full_attention", "sliding_attention"], False)
    monkeypatch.setattr(adapter.language_model.config, "sliding_window", window, False)
    assert_alike(adapter.score_batch(items), expected, 1e-9)
    assert (adapter._prefixes.used > 0) == kept


@each_row("size", [1, 4, 100])
@each_row("mode, lengths", [("preceding", 1), ("following", 3)])
def test_golden_med_flamingo_reads_the_examples_once(mode, lengths, size, monkeypatch, short):
    cases, image_of = cases_and_images("med_flamingo")
    adapter = adapter_from(GOLDEN / "med_flamingo", media_attention=mode)
    shots = next(case["prompt"] for case in cases if case["id"] == "two_shot")
    shots = shots[: shots.rindex("<image>")]
    texts = [f"{shots}<image> Question: {text} Answer:" for text in ("Is it?", "Is there an effusion?", "Where?")]
    items = items_of(adapter, [(text, [0, 1, number], ANSWERS) for text in texts for number in (2, 3)], image_of)
    got = []
    for start in range(0, len(items), size * len(ANSWERS)):
        got += adapter.score_batch(items[start : start + size * len(ANSWERS)])
    assert_alike(got, alone(adapter, items), 1e-4)
    # Where text looks ahead, what stands before an image is read with it: once per image, behind the examples.
    assert len(adapter._prefixes._values) == lengths


# ---- where a prompt is cut ----


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
def test_places_where_a_prompt_is_cut(spans, length, places):
    assert cut_places(spans, length) == places


def test_cuts_count_the_images_before_them():
    prompts = [Encoded([1] * 200, torch.zeros(2, 3))]
    (cuts,) = find_cuts(prompts, lambda _: [(1, 70), (80, 150)]).values()
    parts = [cuts.part(0, place) for place in cuts.places]
    assert [(len(part.ids), len(part.pixels)) for part in parts] == [(80, 1), (150, 2)]
    rests = [cuts.part(place, 200) for place in cuts.places]
    assert [(len(part.ids), part.image_keys) for part in rests] == [(120, prompts[0].image_keys[1:]), (50, ())]


# ---- keys of images ----


def test_keys_are_those_of_single_images_and_follow_a_change():
    pixels = torch.arange(12.0).reshape(2, 6)
    assert image_keys(pixels) == (content_key(pixels[:1]), content_key(pixels[1:]))
    assert image_keys(None) == ()
    before = image_keys(pixels)
    pixels[1, 0] = 100
    assert image_keys(pixels) == (before[0], content_key(pixels[1:]))


def test_an_image_is_prepared_once_for_all_options(new_bench, album, monkeypatch):
    bench, seen = new_bench(docs=album), []
    prepared = bench.adapter.prepared
    monkeypatch.setattr(
        bench.adapter, "prepared", lambda images, make: prepared(images, lambda given: (seen.append(1), make(given))[1])
    )
    bench.adapter.loglikelihood(bench.scoring(OPTIONS, [15, 0], visual))
    assert len(seen) == 2
