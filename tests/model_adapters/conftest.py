"""Adapters to ask, and what the log says."""

import contextlib
import functools
import gc
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from loguru import logger
from medtasks.model_adapters.base.adapter import MedicalAdapter
from medtasks.model_adapters.llava_med import LlavaMed
from medtasks.model_adapters.radfm import RadFM
from safetensors.torch import load_file, save_file

from ..local_server import serving
from . import llava_med_toy, med_flamingo_toy, radfm_toy, tiny_hf_models
from .served_model import ServedModel
from .toys import Bench, Doc, Tensors, make_docs


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    torch.set_num_threads(1)
    gc.freeze()  # the harness's ``clean`` collects garbage, which looks at all that is imported
    yield
    gc.unfreeze()


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


@pytest.fixture
def no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of servers on the loopback do not read the certificates of all authorities, which takes a while."""
    monkeypatch.setattr("ssl.SSLContext.load_verify_locations", lambda *_, **__: None)


@pytest.fixture
def served(no_certificates: None) -> Iterator[Callable[..., ServedModel]]:
    with contextlib.ExitStack() as stack:
        yield lambda **settings: stack.enter_context(serving(ServedModel(**settings)))


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("hf")
    return functools.cache(lambda name: tiny_hf_models.build(name, root / name))


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
def build(
    llava_med_folder: Path, radfm_folder: Path, med_flamingo_folder: Path
) -> Callable[..., MedicalAdapter]:
    """Builds an adapter of a name, from its own toy checkpoint or from another folder."""
    makers: dict[str, tuple[Callable[..., MedicalAdapter], Path]] = {
        "llava_med": (llava_med_toy.adapter, llava_med_folder),
        "radfm": (radfm_toy.adapter, radfm_folder),
        "med_flamingo": (med_flamingo_toy.adapter_from, med_flamingo_folder),
    }

    return lambda name, folder=None, **arguments: makers[name][0](
        folder or makers[name][1], **arguments
    )


Edit = Callable[[Tensors], Any]
"""Changes tensors in place, or returns what is to be stored instead."""


@pytest.fixture
def copied(
    llava_med_folder: Path, radfm_folder: Path, med_flamingo_folder: Path, tmp_path: Path
) -> Callable[..., Path]:
    def copy(name: str, edits: Mapping[str, Edit] = MappingProxyType({})) -> Path:
        own = {
            "llava_med": llava_med_folder.parent,
            "radfm": radfm_folder,
            "med_flamingo": med_flamingo_folder,
        }[name]
        shutil.copytree(own, tmp_path / name, dirs_exist_ok=True)
        folder = (
            tmp_path / name / llava_med_folder.name if name == "llava_med" else tmp_path / name
        )
        for file, edit in edits.items():
            load, save = (
                (load_file, save_file)
                if file.endswith("safetensors")
                else (torch.load, torch.save)
            )
            tensors = {key: tensor.clone() for key, tensor in load(folder / file).items()}
            content = edit(tensors)
            content = content if isinstance(content, dict) else tensors
            (folder / file).unlink()
            save(content, folder / file)
        return folder

    return copy
