"""Encoders by name, on tiny checkpoints of random weights, against passes written here."""

import json
import sys

import numpy as np
import open_clip
import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from medtasks.curate.pairs.encoders import open_encoder
from medtasks.errors import MedTasksError

from ...model_adapters import tiny_hf_models
from ...tables import each_row
from .. import tiny_encoders

IMAGES = [tiny_encoders.drawn(0), tiny_encoders.drawn(1, (60, 40)), tiny_encoders.drawn(2)]
OWN_EYE = """
import numpy as np
import torch
class Eye:
    digest = "1"
    def encode(self, images):
        return np.stack([np.asarray(image.resize((2, 2))).reshape(-1) for image in images])
def make():
    return Eye()
def seeded():
    eye = Eye()
    eye.digest, eye.net = None, torch.nn.Linear(2, 2)
    return eye
blind = object
"""


def pixels(folder):
    return hf.AutoImageProcessor.from_pretrained(folder)(images=IMAGES, return_tensors="pt")["pixel_values"]


def assert_same(given, expected):
    np.testing.assert_allclose(given, expected.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_an_image_model_gives_what_its_library_gives(tmp_path):
    folder = tiny_encoders.clip(tmp_path / "clip")
    clip = hf.CLIPModel.from_pretrained(folder)
    class_token = clip.vision_model(pixels(folder)).last_hidden_state[:, 0]
    expected = clip.visual_projection(clip.vision_model.post_layernorm(class_token))
    assert_same(open_encoder(str(folder), "cpu").load()(IMAGES), expected)
    folder = tiny_encoders.dinov2(tmp_path / "dino")
    expected = hf.Dinov2Model.from_pretrained(folder)(pixels(folder)).last_hidden_state[:, 0]
    assert_same(open_encoder(str(folder), "cpu").load()(IMAGES), expected)
    folder = tiny_encoders.open_clip_vit(tmp_path / "vit")
    model, prepare = open_clip.create_model_from_pretrained(f"local-dir:{folder}")
    expected = model.eval().encode_image(torch.stack([prepare(image) for image in IMAGES]))
    assert_same(open_encoder(str(folder), "cpu").load()(IMAGES), expected)
    folder = tiny_encoders.like_biomedclip(tmp_path / "biomed")  # needs no text tower
    vectors = open_encoder(str(folder), "cpu").load()(IMAGES)
    assert vectors.shape == (3, 12)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3


def test_the_digest_changes_with_weights_and_preprocessing_only(tmp_path):
    folder = tiny_encoders.clip(tmp_path / "clip")
    first = open_encoder(str(folder), "cpu").digest
    (folder / "README.md").write_text("news")
    assert open_encoder(str(folder), "cpu").digest == first
    config = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps({**config, "image_mean": [0, 0, 0]}))
    second = open_encoder(str(folder), "cpu").digest
    weights = load_file(folder / "model.safetensors")
    weights["visual_projection.weight"][0, 0] += 1
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert len({first, second, open_encoder(str(folder), "cpu").digest}) == 3


@each_row("name", ["llava", "llava_next", "qwen2_5_vl", "gemma3", "internvl", "idefics3", "paligemma"])
def test_a_vlm_gives_what_its_language_model_is_given(name, tmp_path):
    folder = tiny_hf_models.build(name, tmp_path / name)
    encode = open_encoder(f"hf_vlm:{folder}", "cpu").load()
    vectors, alone = encode(IMAGES), [encode([image])[0] for image in IMAGES[:2]]
    assert vectors.shape == (3, 32)
    np.testing.assert_allclose(vectors[:2], alone, rtol=1e-4, atol=1e-5)
    model = hf.AutoModelForImageTextToText.from_pretrained(folder)
    if name == "llava":
        features = model.model.get_image_features(pixel_values=pixels(folder)).pooler_output
        assert_same(vectors, torch.stack([one.mean(0) for one in features]))
    if name == "qwen2_5_vl":
        inputs = hf.AutoImageProcessor.from_pretrained(folder)(images=IMAGES, return_tensors="pt")
        features = model.model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"]).pooler_output
        assert_same(vectors, torch.stack([one.mean(0) for one in features]))


def test_an_encoder_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "own_eye.py").write_text(OWN_EYE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "own_eye", raising=False)
    first = open_encoder("own_eye:make", "cpu")
    assert first.load()(IMAGES).shape == (3, 12)
    monkeypatch.setattr(sys.modules["own_eye"].Eye, "digest", "2")
    assert open_encoder("own_eye:make", "cpu").digest != first.digest
    torch.manual_seed(0)
    weights = [open_encoder("own_eye:seeded", "cpu").digest for _ in range(2)]
    torch.manual_seed(0)
    assert weights[0] != weights[1]
    assert open_encoder("own_eye:seeded", "cpu").digest == weights[0]
    for name, match in (("own_eye:blind", "no encode"), ("own_eye:nobody", "cannot be made"), ("nowhere:x", "cannot")):
        with pytest.raises(MedTasksError, match=match):
            open_encoder(name, "cpu")


def test_checkpoints_that_cannot_be_used_are_one_sentence(tmp_path):
    folder = tiny_encoders.open_clip_vit(tmp_path / "vit")
    weights = load_file(folder / "open_clip_model.safetensors")
    del weights["visual.proj"]
    save_file(weights, folder / "open_clip_model.safetensors")
    with pytest.raises(MedTasksError, match="no usable open_clip checkpoint"):
        open_encoder(str(folder), "cpu").load()
    folder = tiny_encoders.dinov2(tmp_path / "dino")
    (folder / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(MedTasksError, match="cannot be loaded as an image model"):
        open_encoder(str(folder), "cpu").load()
    with pytest.raises(MedTasksError, match="no folder"):
        open_encoder(str(tmp_path / "nowhere"), "cpu")
    folder = tiny_hf_models.build("mllama", tmp_path / "mllama")  # sees by cross-attention
    with pytest.raises(MedTasksError, match="puts no image among its language model's inputs"):
        open_encoder(f"hf_vlm:{folder}", "cpu").load()(IMAGES)
    with pytest.raises(MedTasksError, match=r"is a vision-language model .* name it hf_vlm:"):
        open_encoder(str(folder), "cpu").load()
