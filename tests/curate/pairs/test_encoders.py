"""Encoders by name, on tiny checkpoints, against passes written here; and their embeddings on disk, computed once."""

import hashlib
import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import transformers as hf
from PIL import Image
from safetensors.torch import load_file, save_file

from medtasks.curate.pairs.encoders import Encoder, embed_files, file_digests, open_encoder
from medtasks.errors import MedTasksError
from medtasks.home import HOME_VARIABLE

from ...model_adapters import tiny_hf_models
from ...tables import each_row

SIDE = 32
_TOWER = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
_VIT = {"image_size": SIDE, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8}
_TEXT = {"context_length": 8, "vocab_size": 64, "width": 16, "heads": 2, "layers": 1}


def drawn(seed: int, size: tuple[int, int] = (40, 40)) -> Image.Image:
    """Draw a smooth image."""
    values = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), np.uint8)
    return Image.fromarray(values).resize(size, Image.Resampling.BICUBIC)


def tiny_clip(folder: Path) -> Path:
    """Save a CLIP of transformers; features have 12 numbers."""
    torch.manual_seed(0)
    text = hf.CLIPTextConfig(**_TOWER, vocab_size=64)
    vision = hf.CLIPVisionConfig(**_TOWER, image_size=SIDE, patch_size=8)
    config = hf.CLIPConfig(
        text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=12
    )
    hf.CLIPModel(config).save_pretrained(folder)
    size = {"height": SIDE, "width": SIDE}
    hf.CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size=size).save_pretrained(folder)
    return folder


def tiny_dinov2(folder: Path) -> Path:
    """Save a DINOv2 of transformers; features have 16 numbers."""
    torch.manual_seed(0)
    hf.Dinov2Model(hf.Dinov2Config(**_TOWER, image_size=SIDE, patch_size=8)).save_pretrained(
        folder
    )
    size = {"height": SIDE, "width": SIDE}
    hf.BitImageProcessor(size={"shortest_edge": SIDE}, crop_size=size).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def open_clip() -> Iterator[ModuleType]:
    """Only here: it takes seconds to import, and most of them for a library that it does without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "wandb", None)
        yield pytest.importorskip("open_clip")


def tiny_open_clip(folder: Path, open_clip: ModuleType) -> Path:
    """Save an open_clip checkpoint with a tower of its own."""
    torch.manual_seed(0)
    config = {"embed_dim": 12, "vision_cfg": _VIT, "text_cfg": _TEXT}
    model = open_clip.model.CLIP(12, dict(_VIT), dict(_TEXT))
    write_config(folder, config, {"mean": [0.5] * 3, "std": [0.25] * 3})
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return folder


def tiny_biomedclip(folder: Path, open_clip: ModuleType) -> Path:
    """Save an open_clip checkpoint in BiomedCLIP's layout; its text tower is named and nowhere to be had."""
    torch.manual_seed(0)
    timm = {
        "timm_model_name": "test_vit",
        "timm_model_pretrained": False,
        "timm_pool": "",
        "timm_proj": "linear",
    }
    text = {"hf_model_name": "nobody/nothing", "hf_proj_type": "mlp", "context_length": 256}
    write_config(
        folder,
        {"embed_dim": 12, "vision_cfg": {**timm, "image_size": 160}, "text_cfg": text},
        {},
    )
    tower = open_clip.timm_model.TimmModel(
        "test_vit", 12, image_size=160, pool="", proj="linear", pretrained=False
    )
    weights = {f"visual.{name}": tensor for name, tensor in tower.state_dict().items()}
    torch.save(
        {**weights, "logit_scale": torch.ones(())}, folder / "open_clip_pytorch_model.bin"
    )
    return folder


def write_config(
    folder: Path, config: dict[str, object], preprocess: dict[str, object]
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"model_cfg": config, "preprocess_cfg": preprocess})
    (folder / "open_clip_config.json").write_text(text)


IMAGES = [drawn(0), drawn(1, (60, 40)), drawn(2)]
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
    return hf.AutoImageProcessor.from_pretrained(folder)(images=IMAGES, return_tensors="pt")[
        "pixel_values"
    ]


def assert_same(given, expected):
    np.testing.assert_allclose(given, expected.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_an_image_model_gives_what_its_library_gives(tmp_path, open_clip):
    folder = tiny_clip(tmp_path / "clip")
    clip = hf.CLIPModel.from_pretrained(folder)
    class_token = clip.vision_model(pixels(folder)).last_hidden_state[:, 0]
    expected = clip.visual_projection(clip.vision_model.post_layernorm(class_token))
    assert_same(open_encoder(str(folder), "cpu").load()(IMAGES), expected)
    folder = tiny_dinov2(tmp_path / "dino")
    expected = hf.Dinov2Model.from_pretrained(folder)(pixels(folder)).last_hidden_state[:, 0]
    assert_same(open_encoder(str(folder), "cpu").load()(IMAGES), expected)
    folder = tiny_open_clip(tmp_path / "vit", open_clip)
    model, prepare = open_clip.create_model_from_pretrained(f"local-dir:{folder}")
    expected = model.eval().encode_image(torch.stack([prepare(image) for image in IMAGES]))
    assert_same(open_encoder(str(folder), "cpu").load()(IMAGES), expected)
    folder = tiny_biomedclip(tmp_path / "biomed", open_clip)  # needs no text tower
    vectors = open_encoder(str(folder), "cpu").load()(IMAGES)
    assert vectors.shape == (3, 12)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3


def test_the_digest_changes_with_weights_and_preprocessing_only(tmp_path):
    folder = tiny_clip(tmp_path / "clip")
    first = open_encoder(str(folder), "cpu").digest
    (folder / "README.md").write_text("news")
    assert open_encoder(str(folder), "cpu").digest == first
    config = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(
        json.dumps({**config, "image_mean": [0, 0, 0]})
    )
    second = open_encoder(str(folder), "cpu").digest
    weights = load_file(folder / "model.safetensors")
    weights["visual_projection.weight"][0, 0] += 1
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert len({first, second, open_encoder(str(folder), "cpu").digest}) == 3


@each_row(
    "name", ["llava", "llava_next", "qwen2_5_vl", "gemma3", "internvl", "idefics3", "paligemma"]
)
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
        inputs = hf.AutoImageProcessor.from_pretrained(folder)(
            images=IMAGES, return_tensors="pt"
        )
        features = model.model.get_image_features(
            inputs["pixel_values"], inputs["image_grid_thw"]
        ).pooler_output
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
    for name, match in (
        ("own_eye:blind", "no encode"),
        ("own_eye:nobody", "cannot be made"),
        ("nowhere:x", "cannot"),
    ):
        with pytest.raises(MedTasksError, match=match):
            open_encoder(name, "cpu")


def test_checkpoints_that_cannot_be_used_are_one_sentence(tmp_path, open_clip):
    folder = tiny_open_clip(tmp_path / "vit", open_clip)
    weights = load_file(folder / "open_clip_model.safetensors")
    del weights["visual.proj"]
    save_file(weights, folder / "open_clip_model.safetensors")
    with pytest.raises(MedTasksError, match="no usable open_clip checkpoint"):
        open_encoder(str(folder), "cpu").load()
    folder = tiny_dinov2(tmp_path / "dino")
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


class Eye:
    """Encodes an image as three numbers, and notes what it saw."""

    def __init__(self, change=lambda vectors: vectors):
        self.seen, self.loads, self.change = [], 0, change

    def encoder(self, digest="d1"):
        return Encoder("eye", digest, self.load)

    def load(self):
        self.loads += 1
        return self.encode

    def encode(self, images):
        self.seen.append(len(images))
        return self.change(np.stack([np.asarray(image, float)[5, 5] + 1 for image in images]))


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    return tmp_path / "home/embeddings/d1.sqlite"


@pytest.fixture
def files(tmp_path, store):
    made = [tmp_path / f"{number}.png" for number in range(10)]
    for number, file in enumerate(made):
        drawn(number % 9).save(file)  # the last one is the first one
    return made


def kept(store):
    with closing(sqlite3.connect(store)) as connection:
        return dict(connection.execute("SELECT * FROM images"))


def embed(files, eye, digest="d1", batch_size=4):
    encoder = (
        eye.encoder(digest) if isinstance(eye, Eye) else Encoder("eye", digest, lambda: eye)
    )
    return embed_files(files, file_digests(files), encoder, batch_size)


def test_each_image_is_encoded_once_and_kept_at_length_one(files, store):
    eye = Eye()
    found = embed(files, eye)
    assert file_digests(files[:1]) == [hashlib.sha256(files[0].read_bytes()).digest()]
    assert eye.seen == [4, 4, 1]
    assert found.kept.tolist() == list(range(10))
    colour = np.asarray(Image.open(files[3]), float)[5, 5] + 1
    np.testing.assert_allclose(found.vectors[3], colour / np.linalg.norm(colour), atol=1e-3)
    assert found.vectors.dtype == np.float16
    again = embed(files[:5], eye)
    assert (eye.loads, eye.seen) == (1, [4, 4, 1])
    np.testing.assert_array_equal(again.vectors, found.vectors[:5])
    assert [(len(digest), len(vector)) for digest, vector in kept(store).items()] == [
        (32, 2 * 3)
    ] * 9
    assert store.stat().st_mode & 0o077 == 0
    embed(files, eye, "d2")
    assert eye.loads == 2


def test_what_is_lost_is_computed_again_and_nothing_else(files, store):
    whole = embed(files, Eye()).vectors
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("DELETE FROM images WHERE key IN (SELECT key FROM images LIMIT 3)")
    eye = Eye()
    np.testing.assert_array_equal(embed(files, eye).vectors, whole)
    assert eye.seen == [3]
    store.write_bytes(b"no database at all" * 100)
    np.testing.assert_array_equal(embed(files, Eye()).vectors, whole)
    store.unlink()
    store.mkdir()
    with pytest.raises(
        MedTasksError,
        match=r"cannot keep embeddings in .*d1\.sqlite \(.*; make room and run it again",
    ):
        embed(files, Eye())


def test_images_that_cannot_be_read_or_encoded_are_left_out_and_counted(files, monkeypatch):
    files[2].write_bytes(files[2].read_bytes()[:80])
    files[4].unlink()
    Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8)).save(files[5])
    files[6].write_bytes(bytes(128) + b"DICM")
    monkeypatch.setitem(sys.modules, "pydicom", None)

    def change(vectors):
        bad = {1: np.nan, 2: 0.0, 3: np.inf}
        vectors[:, :] = [vector * bad.get(at, 1.0) for at, vector in enumerate(vectors)]
        return vectors

    found = embed(files, Eye(change), batch_size=9)
    assert found.left_out == {
        "image cannot be read": 2,
        "without a usable embedding": 3,
        "nothing says which values of an image are black and white; save it with 8 bits": 1,
        "a DICOM file needs pydicom; install it with `pip install 'medtasks[dicom]'`": 1,
    }
    assert found.kept.tolist() == [0, 8, 9]
    assert np.isfinite(found.vectors).all()


def test_an_image_that_an_encoder_fails_on_does_not_end_the_run(files):
    eye = Eye()

    def encode(images):
        if any(image.size[0] == 80 for image in images):
            raise ValueError("too wide")
        return eye.encode(images)

    for number in (0, 1, 8):  # a whole first batch, and a last one
        Image.new("RGB", (80, 4), (9, number, 9)).save(files[number])
    found = embed(files[:9], encode, batch_size=2)
    assert found.left_out == {"without a usable embedding": 3}
    assert found.kept.tolist() == [2, 3, 4, 5, 6, 7]


def test_what_is_no_array_of_vectors_or_of_another_size_is_refused(files, store):
    for change in (
        lambda vectors: vectors[0],
        lambda vectors: vectors[:1],
        lambda vectors: vectors[:, :0],
    ):
        with pytest.raises(MedTasksError, match="returned an array of shape"):
            embed(files, Eye(change))

    def ragged(images):
        return np.stack([np.asarray(image).reshape(-1) for image in images])

    drawn(0, (50, 40)).save(files[1])
    with pytest.raises(MedTasksError, match="vectors of different lengths"):
        embed(files, ragged, "d4")
    embed(files[:5], Eye())
    before = kept(store)
    with pytest.raises(
        MedTasksError, match=r"gives 2 numbers per image, and .* holds embeddings of 3"
    ):
        embed(files, Eye(lambda vectors: vectors[:, :2]))
    assert kept(store) == before
