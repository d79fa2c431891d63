"""Settings that run CheXbert in miniature on the CPU without a cache."""

from pathlib import Path

import pytest

from medtasks.metrics.model_settings import ModelSettings


@pytest.fixture
def settings(tiny: Path) -> ModelSettings:
    return ModelSettings(named_weights={"chexbert": tiny}, device="cpu", cache=None, progress=False)
