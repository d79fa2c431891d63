"""Small sources in the formats they are published in, and preparing them."""

import itertools
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.schema import DEMONSTRATIONS_SPLIT

from ...multimedeval_sources import WRITERS

Documents = list[dict[str, Any]]


@pytest.fixture
def source(tmp_path: Path, home: Path) -> Callable[[str], Path]:
    """Write a dataset's source in miniature, with six evaluated rows and ten for training; return its folder.

    Each source is in a folder of its own, and ``home`` is empty again.
    """
    numbers = itertools.count()

    def write(name: str) -> Path:
        shutil.rmtree(home, ignore_errors=True)
        folder = tmp_path / str(next(numbers)) / "source"
        WRITERS[name](folder)
        return folder

    return write


@pytest.fixture
def prepared(home: Path) -> Callable[[str, Path], tuple[Manifest, Documents, Documents]]:
    """Prepare a tiny source; return manifest, documents and demonstrations."""

    def run(name: str, source: Path) -> tuple[Manifest, Documents, Documents]:
        manifest = prepare(f"multimedeval_{name}", Options(source, allow_incomplete=True))
        name = manifest.name
        return manifest, load_documents(name), load_documents(name, DEMONSTRATIONS_SPLIT)

    return run


@pytest.fixture
def complains(
    home: Path, refuses: Callable[..., AbstractContextManager[None]]
) -> Callable[..., None]:
    """Preparing a source is refused in one sentence that has all ``parts``, whatever loss is accepted."""

    def run(name: str, source: Path, *parts: str, allow_incomplete: bool = True) -> None:
        with refuses(*parts):
            prepare(f"multimedeval_{name}", Options(source, allow_incomplete=allow_incomplete))
        assert not (home / "datasets" / f"multimedeval_{name}").exists()

    return run
