"""RadFM on a small random checkpoint: prompts, computing, both harness calls."""

import pytest
import torch
from medtasks.model_adapters.base.batching import Encoded, GenerationSettings, pad_left
from medtasks.model_adapters.radfm.adapter import place_images
from medtasks.model_adapters.radfm.network import PositionTables

from medtasks.errors import MedTasksError

from ..tables import each_row
from .radfm_toy import LATENTS, SIDE, adapter
from .toys import noise


def slots_of(words, *images):
    """Return the ids of the slots of images, by their number."""
    blocks = []
    for number in images:
        first = words + 2 + number * LATENTS
        blocks += [words, *range(first, first + LATENTS), words + 1]
    return blocks


def test_slots_stand_in_front(radfm):
    words, plain = radfm.tokenizer.vocabulary, radfm.tokenizer._model.EncodeAsIds
    block = slots_of(words, 0)

    two = radfm.encode("is it clear?", [noise(1), noise(2)])

    assert radfm.encode("is it clear?", [noise()]).ids == [1, *block, *plain("is it clear?")]
    assert radfm.encode("  is it clear? ", [noise()]).ids == [
        1,
        *block,
        *plain("is it clear? "),
    ]
    assert two.ids == [1, *slots_of(words, 0, 1), *plain("is it clear?")]
    assert two.pixels.shape == (2, 3, SIDE, SIDE, 4)


def test_slots_stand_before_the_last_character(radfm, radfm_folder):
    late = adapter(radfm_folder, image_position="before_last_character")
    words, plain = radfm.tokenizer.vocabulary, radfm.tokenizer._model.EncodeAsIds
    block = slots_of(words, 0)

    pair = late.encode_pair("is it?", " yes.", [noise()])

    assert late.encode("is it ?", [noise()]).ids == [1, *plain("is it"), *block, *plain("?")]
    assert late.encode("", [noise()]).ids == [1, *block]
    assert pair.sequence.ids == [1, *plain("is it"), *block, *plain("? yes.")]
    assert pair.tokens == len(plain("? yes.")) - len(plain("?"))


def test_a_text_may_place_its_images_itself():
    block = "<image><image0><image1></image>"
    assert (
        place_images("a <image> b <image>", 2, 2, "front")
        == f"a {block} b {block.replace('0', '2').replace('1', '3')}"
    )
    assert place_images(f"a{block}b", 1, 2, "front") == f"a{block}b"
    assert place_images("ab", 0, 2, "front") == "ab"


def test_images_that_a_text_places_wrongly_are_refused():
    with pytest.raises(MedTasksError, match="2 image marks for 1 images"):
        place_images("<image> <image>", 1, 2, "front")
    with pytest.raises(MedTasksError, match="do not fit its 1 images of 2 slots"):
        place_images("<image0><image1><image2>", 1, 2, "front")


def test_a_prompt_has_slots_for_100_images():
    with pytest.raises(
        MedTasksError, match="101 images in one prompt; RadFM has slots for 100"
    ):
        place_images("", 101, 2, "front")
    assert place_images("", 100, 2, "front").endswith("<image198><image199></image>")


LONG = "is the left lung clear? " * 20


def test_too_long_a_prompt_loses_its_end_once_reported(radfm_folder, radfm, log):
    short, whole = adapter(radfm_folder, max_length=40), radfm.encode(LONG, [noise()])
    assert len(whole.ids) > 60
    assert [short.encode(LONG, [noise()]).ids for _ in range(2)] == [whole.ids[:40]] * 2
    assert sum("is cut off" in line for line in log) == 1


def test_too_long_a_pair_keeps_its_continuation(radfm_folder, radfm):
    short = adapter(radfm_folder, max_length=40)

    pair, full = (a.encode_pair(LONG, " no nodule", [noise()]) for a in (short, radfm))

    assert pair.tokens == full.tokens
    assert len(pair.sequence.ids) == 40
    assert pair.sequence.ids == [
        *full.sequence.ids[: 40 - full.tokens],
        *full.sequence.ids[-full.tokens :],
    ]


def test_impossible_continuations_are_refused(radfm_folder, radfm):
    short = adapter(radfm_folder, max_length=40)
    with pytest.raises(MedTasksError, match=r"a continuation of \d+ tokens; max_length=40"):
        short.encode_pair("is it?", LONG, [noise()])
    with pytest.raises(MedTasksError, match="continuation holds an image mark"):
        radfm.encode_pair("is it?", " yes <image>", [noise()])


def test_a_reply_is_decoded_without_marks(radfm):
    ids = radfm.tokenizer.encode("no nodule")
    assert radfm.decode([0, 1, *ids, radfm.tokenizer.vocabulary, 2]) == "no nodule"


def test_a_flat_image_has_the_last_depth():
    tables = PositionTables(128, 4, 128, 3)

    rows, _, depths = tables(16, 1, 1).unbind(-1)

    assert torch.equal(rows, tables.row_embed.weight[7::8, 0])
    assert torch.equal(depths, tables.dep_embed.weight[127].expand(16))
    with pytest.raises(ValueError, match="5 patches along an axis that has positions for 4"):
        tables(1, 5, 1)


def test_text_alone_has_a_black_volume_and_no_slots(radfm):
    prompt = radfm.encode("is the lung clear?", [])

    assert prompt.pixels.shape == (1, 3, SIDE, SIDE, 4)
    assert not prompt.pixels.any()
    assert prompt.ids == [1, *radfm.tokenizer.encode("is the lung clear?")]
    got = radfm.language_model(**radfm.model_inputs(pad_left([prompt], 0, radfm.device))).logits
    alone = radfm.language_model(input_ids=torch.tensor([prompt.ids])).logits
    torch.testing.assert_close(
        got, alone, atol=1e-5, rtol=0
    )  # a mask of ones may choose another kernel


@each_row("stop", [1, 2])
def test_both_ends_of_sequence_end_a_reply(radfm_folder, stop):
    ending = adapter(radfm_folder)
    ids = [1, *ending.tokenizer.encode("is it clear?")]
    first = int(ending.language_model(input_ids=torch.tensor([ids])).logits[0, -1].argmax())
    head = ending.language_model.lm_head.weight
    head[[first, stop]] = head[[stop, first]]
    prompt = Encoded(ids, None)
    assert ending.generate_batch([prompt], GenerationSettings(5), 0) == [""]


def test_images_are_slices_of_one_volume_if_asked_for(radfm_folder, radfm):
    sliced = adapter(radfm_folder, several_images="slices")
    pictures = [noise(n) for n in range(7)]

    prompt, volume = (
        sliced.encode("is it clear?", pictures),
        radfm.encode("is it clear?", [pictures]),
    )

    assert prompt.ids == volume.ids == radfm.encode("is it clear?", [noise()]).ids
    assert torch.equal(prompt.pixels, volume.pixels)
    assert prompt.pixels.shape == (1, 3, SIDE, SIDE, 8)
    with pytest.raises(MedTasksError, match="several_images=slices takes images"):
        sliced.encode("", [pictures])


def test_random_crops_depend_on_image_and_seed_alone(radfm_folder, radfm):
    first, second = (adapter(radfm_folder, crop="random", seed=seed) for seed in (0, 1))

    pixels = [
        first.encode_pair("is it?", option, [noise()]).sequence.pixels
        for option in (" yes", " no")
    ]

    assert torch.equal(*pixels)
    assert torch.equal(pixels[0], first.encode("another question", [noise()]).pixels)
    assert not torch.equal(pixels[0], radfm.encode("is it?", [noise()]).pixels)
    assert not torch.equal(pixels[0], second.encode("is it?", [noise()]).pixels)
