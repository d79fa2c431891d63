"""CLIP's preprocessing, and images that are looked at once."""

import numpy as np
import pytest
import torch
from medtasks.model_adapters.base.batching import Encoded, FeatureCache, content_key
from medtasks.model_adapters.base.vision import MEAN, STD, clip_batch
from PIL import Image

from medtasks.errors import MedTasksError

from ..tables import each_row

CLIPImageProcessorPil = pytest.importorskip(
    "transformers", minversion="5.18"
).CLIPImageProcessorPil


def scan(width, height, mode="RGB", seed=0):
    values = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values).convert(mode)


def colours(pixels):
    """Back to whole colour values, shape (side, side, 3)."""
    values = pixels * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None]
    return (values * 255).round().int().permute(1, 2, 0)


@each_row("mode", ["RGB", "L", "RGBA", "P", "1", "LA"])
@each_row("size", [(42, 42), (97, 42), (42, 55), (30, 61), (201, 83), (7, 5), (400, 31)])
def test_same_as_the_pil_processor_of_transformers(mode, size):
    image = scan(*size, mode)
    processor = CLIPImageProcessorPil(
        size={"shortest_edge": 42}, crop_size={"height": 42, "width": 42}
    )
    theirs = processor(image, return_tensors="pt")["pixel_values"][0]
    (ours,) = clip_batch([image], 42, pad=False, crop_rounding="floor")
    assert ours.shape == (3, 42, 42)
    assert ours.dtype == torch.float32
    assert (ours - theirs).abs().max() < 1e-6


@each_row(
    "width, floor, half_even",
    [(10, 1, 1), (11, 1, 2), (12, 2, 2), (13, 2, 2), (14, 3, 3), (15, 3, 4)],
)
def test_crop_begins_where_the_rule_says(width, floor, half_even):
    """Half of an odd margin: 1.5 becomes 1 or 2, 2.5 becomes 2 or 2, 3.5 becomes 3 or 4."""
    image = Image.new("RGB", (width, 8))
    for column in range(width):
        image.paste((column, 0, 0), (column, 0, column + 1, 8))
    for rounding, left in (("floor", floor), ("round", half_even)):
        seen = colours(*clip_batch([image], 8, pad=False, crop_rounding=rounding))
        assert seen[0, :, 0].tolist() == list(range(left, left + 8))


@each_row("mode, fill", [("RGB", [122, 116, 104]), ("L", [114, 114, 114])])
@each_row("upright", [False, True])
def test_padding_is_centred_and_of_clips_mean_colour(mode, fill, upright):
    image = Image.new(
        mode, (3, 8) if upright else (8, 3), 255 if mode == "L" else (255, 255, 255)
    )
    seen = colours(*clip_batch([image], 8, pad=True, crop_rounding="floor"))
    rows = seen.transpose(0, 1) if upright else seen
    assert [row[0].tolist() for row in rows] == [fill] * 2 + [[255, 255, 255]] * 3 + [fill] * 3
    assert all(row.tolist() == [row[0].tolist()] * 8 for row in rows)


class Tower:
    """Doubles its input and counts."""

    def __init__(self):
        self.seen = []

    def __call__(self, pixels):
        assert pixels.shape[0] == 1
        self.seen.append(pixels[0, 0].item())
        return pixels * 2


def image(value, size=4):
    return torch.full((1, size), float(value))


def prompts(*pixels):
    return [Encoded((), row) for row in pixels]


def test_features_come_back_row_by_row():
    tower = Tower()
    rows = [torch.cat([image(1), image(2)]), None, image(2), torch.empty(0, 4)]

    first, none, third, empty = FeatureCache(2**20).features(prompts(*rows), tower)

    assert torch.equal(first, rows[0] * 2)
    assert torch.equal(third, rows[2] * 2)
    assert none is None
    assert empty is None
    assert tower.seen == [1, 2]


def test_the_image_used_longest_ago_goes_first():
    tower, cache = Tower(), FeatureCache(32)  # two images of four float32
    for value in (1, 2, 1, 3, 1, 2):
        cache.features(prompts(image(value)), tower)
        assert cache.used <= 32
    assert tower.seen == [1, 2, 3, 2]


def test_a_view_is_copied_so_that_its_size_is_true():
    cache = FeatureCache(2**20)
    cache.features(prompts(image(1)), lambda pixels: torch.zeros(1, 1000)[:, :4])
    cache.features(prompts(image(1)), lambda pixels: pytest.fail("kept"))

    (kept,) = cache.features(prompts(image(1)), lambda pixels: pytest.fail("kept"))

    assert cache.used == 16
    assert kept.untyped_storage().nbytes() == 16


def test_features_are_a_tensor():
    with pytest.raises(MedTasksError, match="image_features must return a tensor, not list"):
        FeatureCache(0).features(prompts(image(1)), lambda pixels: [pixels])


def test_other_content_shape_or_type_has_another_key():
    row, square = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 1.0], [2.0, 2.0]])
    for tensors in (
        [torch.zeros(2, 3), torch.zeros(3, 2)],
        [torch.zeros(2), torch.zeros(2, dtype=torch.float64)],
        [torch.zeros(4, dtype=torch.bfloat16), torch.zeros(4, dtype=torch.float16)],
        [torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0])],
        [
            row.expand(2, 2),
            row.T.expand(2, 2),
            row,
            row.expand(3, 2),
            square,
        ],  # values that are repeated
    ):
        assert len({content_key(pixels) for pixels in tensors}) == len(tensors)
    assert content_key(row.expand(2, 2)) == content_key(row.clone().expand(2, 2))


def test_an_adapter_looks_at_every_image_once_over_all_calls(new_bench, monkeypatch):
    bench = new_bench(batch_size=5)
    seen, inner, adapter = [], bench.adapter.image_features, bench.adapter
    monkeypatch.setattr(
        adapter,
        "image_features",
        lambda pixels: seen.append(content_key(pixels)) or inner(pixels),
    )
    bench.adapter.loglikelihood(bench.scoring())
    bench.adapter.generate_until(bench.generation())
    assert len(seen) == len(set(seen)) == 11, "twelve documents, of which one has no image"
