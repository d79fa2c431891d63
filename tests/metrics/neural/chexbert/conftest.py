"""Settings that run CheXbert in miniature on the CPU without a cache."""

import pytest

from medtasks.metrics.model_settings import ModelSettings


@pytest.fixture
def settings(tiny):
    return ModelSettings(weights=tiny, device="cpu", cache=None, progress=False)
