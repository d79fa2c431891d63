"""Adapters to ask, and what the log says."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from loguru import logger
from medtasks.model_adapters.llava_med import LlavaMed
from medtasks.model_adapters.radfm import RadFM

from . import llava_med_toy, med_flamingo_toy, radfm_toy
from .toys import Bench, Doc, make_docs


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Journals and prepared data of a test are its own."""
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="session")
def docs() -> list[Doc]:
    return make_docs()


@pytest.fixture(scope="session")
def bench(docs: list[Doc]) -> Bench:
    """Batches of 5, so that twelve documents make an uneven number of them."""
    return Bench(docs, batch_size=5)


@pytest.fixture(scope="session")
def new_bench(docs: list[Doc]) -> Callable[..., Bench]:
    return lambda **arguments: Bench(arguments.pop("docs", docs), **arguments)


@pytest.fixture
def log() -> Iterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lines.append, level="DEBUG", format="{level} {message}")
    yield lines
    logger.remove(sink)


# Small random checkpoints in the published formats.


@pytest.fixture(scope="session")
def llava_med_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("llava_med")
    llava_med_toy.write_tower(root / "clip")
    return llava_med_toy.write_v15(root / "v15")


@pytest.fixture(scope="session")
def llava_med(llava_med_folder: Path) -> LlavaMed:
    return llava_med_toy.adapter(llava_med_folder)


@pytest.fixture(scope="session")
def med_flamingo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return med_flamingo_toy.write_toy(tmp_path_factory.mktemp("med_flamingo") / "toy")


@pytest.fixture(scope="session")
def radfm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return radfm_toy.write_toy(tmp_path_factory.mktemp("radfm"))


@pytest.fixture(scope="session")
def radfm(radfm_folder: Path) -> RadFM:
    return radfm_toy.adapter(radfm_folder)


@pytest.fixture(scope="session")
def radfm_state(radfm_folder: Path) -> radfm_toy.State:
    state: radfm_toy.State = torch.load(radfm_folder / "pytorch_model.bin")
    return state


@pytest.fixture
def changed_radfm(radfm_folder: Path, tmp_path: Path) -> Callable[[Callable[[radfm_toy.State], object]], Path]:
    """Writes a changed copy; returns its folder."""
    return lambda change: radfm_toy.write_changed(radfm_folder, tmp_path / "again", change)
