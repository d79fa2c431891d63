"""CheXbert in miniature, and settings that run it on the CPU without a cache."""

import pytest

from medtasks.metrics.model_settings import ModelSettings

from .... import tiny_chexbert


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A folder with a random checkpoint in the published format; tests must not change it."""
    return tiny_chexbert.write_chexbert(tmp_path_factory.mktemp("chexbert") / "files")


@pytest.fixture
def settings(tiny):
    return ModelSettings(weights=tiny, device="cpu", cache=None, progress=False)
