"""Small sources in the formats they are published in, and preparing them."""

import io

import pytest
from PIL import Image

from medtasks.data.preparation import Options
from medtasks.data.preparers import prepare
from medtasks.data.schema import DEMONSTRATIONS_SPLIT
from medtasks.data.store import load_documents

from ...multimedeval_sources import json_lines, put, put_parquet, put_zip


@pytest.fixture
def write_parquet():
    return put_parquet


@pytest.fixture
def write_json_lines():
    return lambda path, rows: put(path, json_lines(rows))


@pytest.fixture
def write_zip():
    return put_zip


@pytest.fixture
def jpeg():
    """Encode a drawn picture; the same number gives the same file."""

    def encode(number):
        buffer = io.BytesIO()
        Image.new("RGB", (8, 6), (number % 256, number // 256, 90)).save(buffer, "JPEG")
        return buffer.getvalue()

    return encode


@pytest.fixture
def prepared(home):
    """Prepare a tiny source; return manifest, documents and demonstrations."""

    def run(name, source):
        manifest = prepare(f"multimedeval_{name}", Options(source, allow_incomplete=True))
        name = manifest.name
        return manifest, load_documents(name), load_documents(name, DEMONSTRATIONS_SPLIT)

    return run


@pytest.fixture
def complains(home, refuses):
    """Preparing a source is refused in one sentence that has all ``parts``, whatever loss is accepted."""

    def run(name, source, *parts, allow_incomplete=True):
        with refuses(*parts):
            prepare(f"multimedeval_{name}", Options(source, allow_incomplete=allow_incomplete))
        assert not (home / "datasets" / f"multimedeval_{name}").exists()

    return run
