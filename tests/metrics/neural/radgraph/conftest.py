"""Settings that run RadGraph in miniature on the CPU without a cache."""

import pytest

from medtasks.metrics.model_settings import ModelSettings


@pytest.fixture
def settings(v1):
    return ModelSettings(named_weights={"radgraph": v1}, device="cpu", cache=None, progress=False)
