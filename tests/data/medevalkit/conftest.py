"""Preparing MedEvalKit's sets from small sources."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options

from ...tiny_medevalkit import put_source

Prepared = tuple[Manifest, list[dict[str, Any]]]


@pytest.fixture
def source(tmp_path: Path, home: Path) -> Callable[[str], Path]:
    """Write the source of a set in miniature; return its folder. Each is in a folder of its own, with an empty home."""
    numbers = itertools.count()

    def write(name: str) -> Path:
        shutil.rmtree(home, ignore_errors=True)
        return put_source(f"medevalkit_{name}", tmp_path / str(next(numbers)))

    return write


@pytest.fixture
def prepared(home: Path) -> Callable[[str, Path], Prepared]:
    """Prepare a set from a source, rows left out or not; return manifest and documents."""

    def run(name: str, source: Path) -> Prepared:
        manifest = prepare(f"medevalkit_{name}", Options(source, allow_incomplete=True))
        return manifest, load_documents(manifest.name)

    return run
