"""LLaVA-Med on a small random checkpoint: prompts, both calls of the harness, and v1.0 from its delta."""

import pytest
import torch
from medtasks.model_adapters.base.checkpoints import CheckpointError
from medtasks.model_adapters.base.generation import GenerationSettings

from medtasks.errors import AdapterArgumentError, MedTasksError

from .llava_med_toy import (
    PATCHES,
    VOCABULARY,
    adapter,
    photo,
    run,
    write_v10,
)


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
    assert [model._prompt.tokenizer._model.IdToPiece(token) for token in after[:2]] == ["▁", "<0x0A>"]


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
    ids = model._prompt.tokenizer.encode("clear")
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


# ---- computing ----


# ---- v1.0 ----


def test_v10_is_the_delta_added_to_llama(tmp_path):
    merged = write_v10(tmp_path)
    model = adapter(tmp_path / "delta", base=str(tmp_path / "llama"))
    loaded = {key: weight for key, weight in model.network.state_dict().items() if "language" in key or "head" in key}
    expected = {key.replace("model.", "model.language_model."): weight for key, weight in merged.items()}
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[key], expected[key].float()) for key in expected)
    assert run(model) == run(adapter(tmp_path / "merged"))


def test_v10_prompt_has_the_image_after_the_question_and_stops_at_the_separator(tmp_path):
    write_v10(tmp_path)
    model = adapter(tmp_path / "merged")
    ids = list(model.encode("clear? ", [photo()]).ids)
    start = ids.index(VOCABULARY + 1)
    assert ids[start : start + PATCHES + 2] == [VOCABULARY + 1, *[VOCABULARY] * PATCHES, VOCABULARY + 2]
    assert model.decode(ids[:start]).endswith("today?\n###Human: clear?")
    assert model.decode(ids[start:]) == "###Assistant:"
    assert len(model.encode("clear?", []).ids) < len(ids) - PATCHES - 1


def test_v10_reply_ends_at_the_separator(tmp_path, monkeypatch):
    write_v10(tmp_path)
    model = adapter(tmp_path / "merged")
    prompt, settings = [model.encode("clear?", [photo()])], GenerationSettings(max_new_tokens=10)
    (whole,) = model.generate_batch(prompt, settings, 0)
    middle = whole[len(whole) // 2]
    assert "" != whole[: whole.index(middle)] != whole
    monkeypatch.setattr(model, "stop_strings", (middle,))
    assert model.generate_batch(prompt, settings, 0) == [whole[: whole.index(middle)].strip()]


def test_v10_refuses_the_delta_alone_and_another_base(tmp_path):
    write_v10(tmp_path)
    with pytest.raises(AdapterArgumentError, match=r"looks like the delta of v1\.0; give base="):
        adapter(tmp_path / "delta")
    file = tmp_path / "llama" / "pytorch_model.bin"
    torch.save(torch.load(file) | {"model.embed_tokens.weight": torch.zeros(3, 9)}, file)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin: key 'model\.embed_tokens\.weight' has shape"):
        adapter(tmp_path / "delta", base=str(tmp_path / "llama"))
    (tmp_path / "merged" / "added_tokens.json").unlink()
    with pytest.raises(CheckpointError, match=r"added_tokens\.json is missing"):
        adapter(tmp_path / "merged")
