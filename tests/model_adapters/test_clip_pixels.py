"""CLIP preprocessing against transformers' own processor on PIL, and its rules where the two have to differ."""

import numpy as np
import torch
from medtasks.model_adapters.base.vision import MEAN, STD, clip_pixels
from PIL import Image
from transformers import CLIPImageProcessorPil

from ..tables import each_row


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
    processor = CLIPImageProcessorPil(size={"shortest_edge": 42}, crop_size={"height": 42, "width": 42})
    theirs = processor(image, return_tensors="pt")["pixel_values"][0]
    ours = clip_pixels(image, 42, pad=False, crop_rounding="floor")
    assert ours.shape == (3, 42, 42)
    assert ours.dtype == torch.float32
    assert (ours - theirs).abs().max() < 1e-6


@each_row("width, floor, half_even", [(10, 1, 1), (11, 1, 2), (12, 2, 2), (13, 2, 2), (14, 3, 3), (15, 3, 4)])
def test_crop_begins_where_the_rule_says(width, floor, half_even):
    """Half of an odd margin: 1.5 becomes 1 or 2, 2.5 becomes 2 or 2, 3.5 becomes 3 or 4."""
    image = Image.new("RGB", (width, 8))
    for column in range(width):
        image.paste((column, 0, 0), (column, 0, column + 1, 8))
    for rounding, left in (("floor", floor), ("round", half_even)):
        seen = colours(clip_pixels(image, 8, pad=False, crop_rounding=rounding))
        assert seen[0, :, 0].tolist() == list(range(left, left + 8))


@each_row("mode, fill", [("RGB", [122, 116, 104]), ("L", [114, 114, 114])])
@each_row("upright", [False, True])
def test_padding_is_centred_and_of_clips_mean_colour(mode, fill, upright):
    image = Image.new(mode, (3, 8) if upright else (8, 3), 255 if mode == "L" else (255, 255, 255))
    seen = colours(clip_pixels(image, 8, pad=True, crop_rounding="floor"))
    rows = seen.transpose(0, 1) if upright else seen
    assert [row[0].tolist() for row in rows] == [fill] * 2 + [[255, 255, 255]] * 3 + [fill] * 3
    assert all(row.tolist() == [row[0].tolist()] * 8 for row in rows)
