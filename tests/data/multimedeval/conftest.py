"""Small sources in the formats they are published in, and preparing them."""

import io
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from medtasks.data.manifest import Manifest
from medtasks.data.preparation import Options
from medtasks.data.preparers import prepare
from medtasks.data.schema import DEMONSTRATIONS_SPLIT
from medtasks.data.store import load_documents

from ...multimedeval_sources import json_lines, put, put_parquet, put_zip

Documents = list[dict[str, Any]]


@pytest.fixture
def write_parquet() -> Callable[..., Path]:
    return put_parquet


@pytest.fixture
def write_json_lines() -> Callable[[Path, Iterable[Any]], Path]:
    return lambda path, rows: put(path, json_lines(rows))


@pytest.fixture
def write_zip() -> Callable[[Path, Mapping[str, bytes | str]], Path]:
    return put_zip


@pytest.fixture
def jpeg() -> Callable[[int], bytes]:
    """Encode a drawn picture; the same number gives the same file."""

    def encode(number: int) -> bytes:
        buffer = io.BytesIO()
        Image.new("RGB", (8, 6), (number % 256, number // 256, 90)).save(buffer, "JPEG")
        return buffer.getvalue()

    return encode


@pytest.fixture
def prepared(home: Path) -> Callable[[str, Path], tuple[Manifest, Documents, Documents]]:
    """Prepare a tiny source; return manifest, documents and demonstrations."""

    def run(name: str, source: Path) -> tuple[Manifest, Documents, Documents]:
        manifest = prepare(f"multimedeval_{name}", Options(source, allow_incomplete=True))
        name = manifest.name
        return manifest, load_documents(name), load_documents(name, DEMONSTRATIONS_SPLIT)

    return run


@pytest.fixture
def complains(home: Path, refuses: Callable[..., AbstractContextManager[None]]) -> Callable[..., None]:
    """Preparing a source is refused in one sentence that has all ``parts``, whatever loss is accepted."""

    def run(name: str, source: Path, *parts: str, allow_incomplete: bool = True) -> None:
        with refuses(*parts):
            prepare(f"multimedeval_{name}", Options(source, allow_incomplete=allow_incomplete))
        assert not (home / "datasets" / f"multimedeval_{name}").exists()

    return run
