"""Med-Flamingo: which image text looks at, batches, caches, beams, prompts and replies."""

import contextlib
import functools
import math
import weakref

import pytest
import torch
from medtasks.model_adapters.med_flamingo import text_time

from medtasks.errors import MedTasksError

from ..tables import each_row
from .med_flamingo_toy import (
    DOCS,
    LATENTS,
    OPTIONS,
    VISION,
    WIDTH,
    adapter_from,
    plain_logits,
    plain_score,
    replies,
    scan,
    scores,
)


@pytest.fixture(scope="module")
def adapters(med_flamingo_folder):
    """Adapters by arguments, each built once."""
    return functools.cache(lambda **arguments: adapter_from(med_flamingo_folder, **arguments))


# image id 9; which image a text position sees, by hand
TABLE = [
    ("preceding", [1, 5, 9, 5, 5, 9, 5, 9, 5, 5], [0, 0, 1, 1, 1, 2, 2, 3, 3, 3]),
    ("following", [1, 5, 9, 5, 5, 9, 5, 9, 5, 5], [1, 1, 1, 2, 2, 2, 3, 3, 0, 0]),
    ("preceding", [1, 5, 5], [0, 0, 0]),
    ("following", [1, 5, 5], [0, 0, 0]),
    ("preceding", [9, 9, 5], [1, 2, 2]),
    ("following", [9, 9, 5], [1, 2, 0]),
]


@each_row("mode, ids, expected", TABLE)
@each_row("padding", [0, 3])
def test_text_time_follows_the_table_and_is_zero_on_padding(mode, ids, expected, padding):
    row = torch.tensor([[11] * padding + ids])
    real = torch.tensor([[0] * padding + [1] * len(ids)])
    assert text_time(row, real, 9, mode).tolist() == [[0] * padding + expected]


def test_a_position_without_image_takes_only_the_feed_forward_part(adapters):
    block = adapters().language_model.gated_cross_attn_layers["1"]
    hidden, media = torch.randn(1, 2, WIDTH), torch.randn(1, 1, LATENTS, VISION)
    with torch.inference_mode():
        got = block(hidden, media[:, 0], torch.tensor([[[False] * LATENTS, [True] * LATENTS]]))
        alone = hidden + block.ff(hidden) * block.ff_gate.tanh()
    assert torch.allclose(got[:, 0], alone[:, 0], atol=1e-6)
    assert (got[:, 1] - alone[:, 1]).abs().max() > 0.01


def test_images_of_a_call_are_forgotten_also_after_one_that_fails(adapters):
    model = adapters().language_model
    scores(adapters())
    with contextlib.suppress(AttributeError), torch.inference_mode():
        model(input_ids=torch.tensor([[1]]), media=3)
    assert [block.view for block in model.gated_cross_attn_layers.values()] == [None, None]
    with pytest.raises(RuntimeError, match="only inside"):
        model.model(input_ids=torch.tensor([[1, 2]]))


@each_row("mode", ["preceding", "following"])
def test_batches_with_different_numbers_of_images_score_like_plain_passes(adapters, mode):
    expected = [
        plain_score(adapters(media_attention=mode), doc, option)
        for doc in DOCS
        for option in OPTIONS
    ]
    for shared in (True, False):
        adapter = adapters(media_attention=mode, prefix_cache=shared, batch_size=15)
        assert [loss for loss, _ in scores(adapter)] == pytest.approx(expected, abs=2e-5)


def test_prompts_have_one_marker_per_image(adapters):
    adapter = adapters()
    pieces, vocabulary = adapter._text, adapter._text.vocabulary
    end, image = vocabulary, vocabulary + 1

    ids = adapter.encode("<image>yes<|endofchunk|> <image> no", [scan(2), scan(4)]).ids

    assert list(ids) == [
        1,
        image,
        *pieces.encode("yes"),
        end,
        *pieces.encode(" "),
        image,
        *pieces.encode(" no"),
    ]
    assert adapters(bos_id=0).encode("yes", []).ids[0] == 0
    assert (adapter.pad_id, adapter.stop_ids) == (vocabulary + 2, (2, end))


def test_images_without_a_marker_stand_in_front(adapters):
    adapter = adapters()
    images = [scan(number) for number in (2, 4, 6)]
    for text in ("A <image>Which? Answer:", ""):
        more = "<image>" * (3 - text.count("<image>"))
        assert adapter.encode(text, images).ids == adapter.encode(more + text, images).ids
        assert adapter.encode(text, images).ids.count(adapter._text.vocabulary + 1) == 3


def test_a_marker_is_never_said(adapters):
    adapter = adapters()
    prompt = adapter.encode("<image>Is?", [scan(2)])

    logits = plain_logits(adapter, prompt.ids, prompt)

    assert torch.isfinite(logits[:, : adapter._text.vocabulary]).all()
    assert logits[:, adapter._text.vocabulary :].eq(-math.inf).all()


def test_a_reply_is_decoded_without_special_ids(adapters):
    adapter = adapters()
    ids = adapter._text.encode("no effusion")
    # 0 is the unknown piece.
    assert adapter.decode([1, 0, *ids, adapter.pad_id, 2]) == "no effusion"


def test_more_markers_than_images_fail_alone(adapters):
    docs = [DOCS[0], {"question": "<image><image>Which? Answer:", "images": [2]}, *DOCS[1:]]
    first, failed, *others = replies(adapters(max_failed=0.5), docs)
    assert "more <image> markers (2) than there are images (1)" in failed
    assert [first, *others] == replies(adapters())
    assert [
        math.isnan(loss) for loss, _ in scores(adapters(max_failed=0.5), docs[:2], [" yes"])
    ] == [False, True]


def test_a_continuation_holds_no_marker(adapters):
    for marker in ("<|endofchunk|>", "<image>", "<PAD>"):
        with pytest.raises(MedTasksError, match="cannot generate"):
            adapters().encode_pair("Is it?", f" yes{marker}", [])


def test_too_long_a_prompt_is_refused(adapters):
    with pytest.raises(MedTasksError, match="at most 1024"):
        adapters().encode("no " * 1100, [])


def test_a_reply_ends_where_the_next_example_begins(adapters, monkeypatch):
    adapter, inputs = adapters(), {}
    stops = ("<|endofchunk|>", "|endofchunk|>", "<image>", "\nQuestion:")
    for stop in stops:
        pieces = torch.tensor(
            [adapter._text._model.EncodeAsIds(f" yes{stop} Is it? Answer: no")]
        )

        def generate(input_ids, pieces=pieces, **given):
            inputs.update(given)
            return torch.cat([input_ids, pieces], dim=1)

        monkeypatch.setattr(adapter.language_model, "generate", generate)
        assert replies(adapter, DOCS[:1], until=["Z"]) == ["yes"]
        (criterion,) = inputs["stopping_criteria"]
        assert set(criterion.until) == {"Z", *stops}


def test_the_network_is_freed_with_its_last_reference(med_flamingo_folder):
    adapter = adapter_from(med_flamingo_folder)
    scores(adapter)
    network = weakref.ref(adapter.network.language_model)
    adapter.clean()
    assert network() is None
