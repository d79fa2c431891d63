"""LLaVA-Med on a small random checkpoint: prompts."""

import pytest

from medtasks.errors import MedTasksError

from .llava_med_toy import PATCHES, adapter, photo


def sides(model, ids):
    """The text between the images, and how many slots each image has."""
    texts, slots = [[]], []
    for before, token in zip([None, *ids], ids, strict=False):
        if token == 0:
            slots = [*slots[:-1], slots[-1] + 1] if before == 0 else [*slots, 1]
            texts += [] if before == 0 else [[]]
        else:
            texts[-1].append(token)
    return [model.decode(text) for text in texts], slots


def test_prompt_follows_the_published_template(llava_med):
    ids = list(llava_med.encode("the left lung? ", [photo()]).ids)

    assert ids[0] == 1
    assert 1 not in ids[1:]
    assert sides(llava_med, ids) == (["[INST] ", "\nthe left lung?  [/INST]"], [PATCHES])
    after = ids[ids.index(0) + PATCHES :]
    assert [llava_med.tokenizer._model.IdToPiece(token) for token in after[:2]] == [
        "▁",
        "<0x0A>",
    ]


def test_a_prompt_has_slots_for_each_image(llava_med):
    two, none = llava_med.encode("clear?", [photo(1), photo(2)]), llava_med.encode("clear?", [])

    assert sides(llava_med, two.ids) == (
        ["[INST] ", "\n", "\nclear? [/INST]"],
        [PATCHES, PATCHES],
    )
    assert two.pixels.shape == (2, 3, 28, 28)
    assert sides(llava_med, none.ids) == (["[INST] clear? [/INST]"], [])
    assert none.pixels is None


def test_of_marks_in_a_text_only_the_end_is_one(llava_med):
    assert list(llava_med.encode("no</s>yes", []).ids).count(2) == 1
    assert 0 not in llava_med.encode("<unk> <image> °", []).ids


def test_a_continuation_follows_the_template(llava_med):
    with_space, without = (
        llava_med.encode_pair("clear?", text, [photo()]) for text in (" yes", "yes")
    )

    assert with_space.sequence.ids == without.sequence.ids
    assert with_space.tokens == without.tokens
    ids = list(with_space.sequence.ids)
    assert ids[: -with_space.tokens] == list(llava_med.encode("clear?", [photo()]).ids)
    assert llava_med.decode(ids[-with_space.tokens :]) == "yes"


def test_a_reply_is_decoded_without_special_ids(llava_med):
    ids = llava_med.tokenizer.encode("clear")
    assert llava_med.decode([1, *ids, 0, 2]) == "clear"


def test_a_prompt_longer_than_max_length_is_refused(llava_med, llava_med_folder):
    needed = len(llava_med.encode("clear? " * 20, [photo()]).ids)
    with pytest.raises(
        MedTasksError, match=rf"takes {needed} positions \(1 images\), max_length is 20"
    ):
        adapter(llava_med_folder, max_length=20).encode("clear? " * 20, [photo()])
    adapter(llava_med_folder, max_length=needed).encode("clear? " * 20, [photo()])
