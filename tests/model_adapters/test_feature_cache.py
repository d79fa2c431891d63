"""An image is looked at once."""

import pytest
import torch
from medtasks.model_adapters.base.caches import FeatureCache


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


def test_features_come_back_row_by_row_and_image_by_image():
    tower = Tower()
    rows = [torch.cat([image(1), image(2)]), None, image(2), torch.empty(0, 4)]
    first, none, third, empty = FeatureCache(2**20).features(rows, tower)
    assert torch.equal(first, rows[0] * 2)
    assert torch.equal(third, rows[2] * 2)
    assert none is None
    assert empty is None
    assert tower.seen == [1, 2]


def test_tokens_of_several_images_are_joined_in_order():
    (joined,) = FeatureCache(0).features([torch.cat([image(1), image(2)])], lambda pixels: pixels.repeat(3, 1))
    assert joined[:, 0].tolist() == [1, 1, 1, 2, 2, 2]


def test_the_image_used_longest_ago_goes_first():
    tower, cache = Tower(), FeatureCache(32)  # two images of four float32
    for value in (1, 2, 1, 3, 1, 2):
        cache.features([image(value)], tower)
        assert cache.used <= 32
    assert tower.seen == [1, 2, 3, 2]


@pytest.mark.parametrize("limit", [0, 15])
def test_what_is_too_large_is_not_kept_but_computed_once_per_batch(limit):
    tower, cache = Tower(), FeatureCache(limit)
    for _ in range(2):
        assert len(cache.features([image(1), image(1)], tower)) == 2
    assert tower.seen == [1, 1]
    assert cache.used == 0


def test_a_view_is_copied_so_that_the_size_is_true():
    cache = FeatureCache(2**20)
    cache.features([image(1)], lambda pixels: torch.zeros(1, 1000)[:, :4])
    cache.features([image(1)], lambda pixels: pytest.fail("kept"))
    assert cache.used == 16
    (kept,) = cache.features([image(1)], lambda pixels: pytest.fail("kept"))
    assert kept.untyped_storage().nbytes() == 16


def test_clear_forgets():
    tower, cache = Tower(), FeatureCache(2**20)
    cache.features([image(1)], tower)
    cache.clear()
    cache.features([image(1)], tower)
    assert tower.seen == [1, 1]
    assert cache.used == 16
