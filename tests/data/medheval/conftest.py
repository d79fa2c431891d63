"""MedHEval in miniature, as a clone that a test may spoil, and preparing it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.errors import MedTasksError

from ... import medheval_sources

Change = Callable[[list[medheval_sources.Record]], object]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return medheval_sources.write_source(tmp_path)


@pytest.fixture
def rewrite(clone: Path) -> Callable[[str, Change], Path]:
    """Write the file of a set anew, from its invented records after a change."""

    def run(name: str, change: Change) -> Path:
        records = [dict(record) for record in medheval_sources.RECORDS[name]]
        change(records)
        return medheval_sources.write_records(clone, name, records)

    return run


@pytest.fixture
def prepared(home: Path, clone: Path) -> Callable[..., tuple[Manifest, list[dict[str, Any]]]]:
    """Prepare one set; return manifest and documents."""

    def run(name: str, **options: Any) -> tuple[Manifest, list[dict[str, Any]]]:
        manifest = prepare(name, Options(clone, allow_changed=True, **options))
        return manifest, load_documents(name)

    return run


@pytest.fixture
def complains(home: Path, clone: Path, refuses: Callable[..., AbstractContextManager[None]]) -> Callable[..., None]:
    """Preparing a set is refused in one sentence that has all ``parts``."""

    def run(name: str, *parts: str, kind: type[Exception] = MedTasksError, **options: Any) -> None:
        with refuses(*parts, kind=kind):
            prepare(name, Options(clone, allow_changed=True, **options))

    return run
