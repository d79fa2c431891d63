"""Tiny RadGraph archives of both models."""

from pathlib import Path

import pytest

from medtasks.metrics.model_settings import ModelSettings

from .random_archive import write_archive


@pytest.fixture(scope="session")
def v1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``radgraph/`` and ``encoder/``; tests must not change it."""
    folder = tmp_path_factory.mktemp("radgraph_v1")
    write_archive(folder, "radgraph")
    return folder


@pytest.fixture(scope="session")
def xl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``radgraph-xl/`` and ``encoder/``; tests must not change it."""
    folder = tmp_path_factory.mktemp("radgraph_xl")
    write_archive(folder, "radgraph-xl")
    return folder


@pytest.fixture
def settings(v1: Path) -> ModelSettings:
    """Settings that name the first model's archive and keep nothing."""
    return ModelSettings(weights=v1, device="cpu", cache=None, progress=False)
