"""An image is looked at once."""

import pytest
import torch
from medtasks.model_adapters.base.batching import FeatureCache, content_key

from medtasks.errors import MedTasksError

from ..tables import each_row


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


def test_the_image_used_longest_ago_goes_first():
    tower, cache = Tower(), FeatureCache(32)  # two images of four float32
    for value in (1, 2, 1, 3, 1, 2):
        cache.features([image(value)], tower)
        assert cache.used <= 32
    assert tower.seen == [1, 2, 3, 2]


@each_row("limit", [0, 15])
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


@each_row(
    "one, other",
    [
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
        (torch.zeros(4, dtype=torch.bfloat16), torch.zeros(4, dtype=torch.float16)),
        (torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0])),
    ],
)
def test_other_content_shape_or_type_has_another_key(one, other):
    assert content_key(one) != content_key(other)


def test_something_other_than_a_tensor_is_refused():
    with pytest.raises(MedTasksError, match="image_features must return a tensor, not list"):
        FeatureCache(0).features([image(1)], lambda pixels: [pixels])


def test_an_adapter_looks_at_every_image_once_over_all_calls(new_bench, monkeypatch):
    bench = new_bench(batch_size=5)
    seen, inner = [], bench.adapter.image_features
    monkeypatch.setattr(
        bench.adapter, "image_features", lambda pixels: seen.append(content_key(pixels)) or inner(pixels)
    )
    bench.adapter.loglikelihood(bench.scoring())
    bench.adapter.generate_until(bench.generation())
    assert len(seen) == len(set(seen)) == 11, "twelve documents, of which one has no image"


def test_values_that_are_repeated_are_told_from_those_that_are_not():
    row, square = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 1.0], [2.0, 2.0]])
    keys = [content_key(pixels) for pixels in (row.expand(2, 2), row.T.expand(2, 2), row, row.expand(3, 2), square)]
    assert len(set(keys)) == 5
    assert keys[0] == content_key(row.clone().expand(2, 2))
