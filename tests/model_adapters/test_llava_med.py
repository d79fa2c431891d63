"""LLaVA-Med on a small random checkpoint: prompts."""

import pytest

from medtasks.errors import MedTasksError

from .llava_med_toy import PATCHES, adapter, photo


@pytest.fixture
def model(llava_med):
    return llava_med


# ---- prompts ----


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


def test_prompt_follows_the_published_template(model):
    ids = list(model.encode("the left lung? ", [photo()]).ids)
    assert ids[0] == 1
    assert 1 not in ids[1:]
    assert sides(model, ids) == (["[INST] ", "\nthe left lung?  [/INST]"], [PATCHES])
    after = ids[ids.index(0) + PATCHES :]
    assert [model.tokenizer._model.IdToPiece(token) for token in after[:2]] == ["▁", "<0x0A>"]


def test_several_images_and_none(model):
    two, none = model.encode("clear?", [photo(1), photo(2)]), model.encode("clear?", [])
    assert sides(model, two.ids) == (["[INST] ", "\n", "\nclear? [/INST]"], [PATCHES, PATCHES])
    assert two.pixels.shape == (2, 3, 28, 28)
    assert sides(model, none.ids) == (["[INST] clear? [/INST]"], [])
    assert none.pixels is None


def test_written_out_end_token_is_the_end_token_and_others_are_text(model):
    assert list(model.encode("no</s>yes", []).ids).count(2) == 1
    assert 0 not in model.encode("<unk> <image> °", []).ids


def test_reply_text_has_no_special_tokens(model):
    ids = model.tokenizer.encode("clear")
    assert model.decode([1, *ids, 0, 2]) == "clear"


def test_continuation_follows_the_template(model):
    with_space, without = (model.encode_pair("clear?", text, [photo()]) for text in (" yes", "yes"))
    assert with_space.sequence.ids == without.sequence.ids
    assert with_space.tokens == without.tokens
    ids = list(with_space.sequence.ids)
    assert ids[: -with_space.tokens] == list(model.encode("clear?", [photo()]).ids)
    assert model.decode(ids[-with_space.tokens :]) == "yes"


def test_too_long_a_prompt_fails_and_names_the_way_out(llava_med_folder, model):
    needed = len(model.encode("clear? " * 20, [photo()]).ids)
    with pytest.raises(MedTasksError, match=rf"takes {needed} positions \(1 images\), max_length is 20"):
        adapter(llava_med_folder, max_length=20).encode("clear? " * 20, [photo()])
    adapter(llava_med_folder, max_length=needed).encode("clear? " * 20, [photo()])
