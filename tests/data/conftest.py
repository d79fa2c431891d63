"""A small source folder, a home of its own, a server for what is published, and the one-sentence rule."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from medtasks.errors import MedTasksError
from medtasks.home import HOME_VARIABLE

from ..local_server import serving
from .bucket import Bucket


@pytest.fixture(scope="session")
def drawn(sample_home: Path) -> Path:
    """The drawn sample as a source folder; read only."""
    return sample_home / "source" / "mediconfusion"


@pytest.fixture
def source(drawn: Path, tmp_path: Path) -> Path:
    """A copy of the drawn source that a test may spoil."""
    return Path(shutil.copytree(drawn, tmp_path / "source"))


@dataclass(frozen=True)
class Records:
    file: Path

    def read(self) -> dict[str, dict[str, Any]]:
        records: dict[str, dict[str, Any]] = json.loads(self.file.read_text(encoding="utf-8"))
        return records

    def write(self, records: Mapping[str, Mapping[str, Any]]) -> None:
        self.file.write_text(json.dumps(records), encoding="utf-8")

    def change(self, pair_id: str, **fields: Any) -> None:
        records = self.read()
        records[pair_id].update(fields)
        self.write(records)


@pytest.fixture
def records(source: Path) -> Records:
    """Read and rewrite the question file of ``source``."""
    return Records(source / "dataset.json")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv(HOME_VARIABLE, str(folder))
    return folder


@pytest.fixture
def final(home: Path) -> Path:
    return home / "datasets" / "mediconfusion"


@pytest.fixture
def work(home: Path) -> Path:
    return home / "datasets" / ".preparing-mediconfusion"


@pytest.fixture
def refuses() -> Callable[..., AbstractContextManager[None]]:
    """The block raises our error, in one sentence that contains all ``parts``."""

    @contextmanager
    def run(*parts: str, kind: type[Exception] = MedTasksError) -> Iterator[None]:
        with pytest.raises(kind) as caught:
            yield
        sentence = str(caught.value)
        assert "\n" not in sentence
        assert [part for part in parts if part not in sentence] == [], sentence

    return run


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A server of ``files`` by path; ``requests`` holds every path asked for."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(Bucket()) as server:
        yield server
        server.release.set()
