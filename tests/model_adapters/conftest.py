"""Adapters to ask, and what the log says."""

import pytest
import torch
from loguru import logger

from . import llava_med_toy, med_flamingo_toy, radfm_toy
from .toys import Bench, make_docs


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_home(monkeypatch, tmp_path):
    """Journals and prepared data of a test are its own."""
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="session")
def docs():
    return make_docs()


@pytest.fixture(scope="session")
def bench(docs):
    """Batches of 5, so that twelve documents make an uneven number of them."""
    return Bench(docs, batch_size=5)


@pytest.fixture(scope="session")
def new_bench(docs):
    return lambda **arguments: Bench(arguments.pop("docs", docs), **arguments)


@pytest.fixture
def log():
    lines = []
    sink = logger.add(lines.append, level="DEBUG", format="{level} {message}")
    yield lines
    logger.remove(sink)


# Small random checkpoints in the published formats.


@pytest.fixture(scope="session")
def llava_med_folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("llava_med")
    llava_med_toy.write_tower(root / "clip")
    return llava_med_toy.write_v15(root / "v15")


@pytest.fixture(scope="session")
def llava_med(llava_med_folder):
    return llava_med_toy.adapter(llava_med_folder)


@pytest.fixture(scope="session")
def med_flamingo_folder(tmp_path_factory):
    return med_flamingo_toy.write_toy(tmp_path_factory.mktemp("med_flamingo") / "toy")


@pytest.fixture(scope="session")
def radfm_folder(tmp_path_factory):
    return radfm_toy.write_toy(tmp_path_factory.mktemp("radfm"))


@pytest.fixture(scope="session")
def radfm(radfm_folder):
    return radfm_toy.adapter(radfm_folder)


@pytest.fixture(scope="session")
def radfm_state(radfm_folder):
    return torch.load(radfm_folder / "pytorch_model.bin")


@pytest.fixture
def changed_radfm(radfm_folder, tmp_path):
    """Writes a changed copy; returns its folder."""
    return lambda change: radfm_toy.write_changed(radfm_folder, tmp_path / "again", change)
