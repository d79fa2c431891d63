"""Which datasets exist: the entries of ``catalogue.toml``."""

import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from types import MappingProxyType

from medtasks.data.dataset_info import Access, DatasetInfo
from medtasks.errors import unknown_name


def _entries() -> Iterator[DatasetInfo]:
    text = resources.files("medtasks.data").joinpath("catalogue.toml").read_text(encoding="utf-8")
    for shared in tomllib.loads(text)["sources"]:
        datasets = shared.pop("datasets")
        for name, own in datasets.items():
            facts = {**shared, **own}
            facts |= {kind: MappingProxyType(facts.get(kind, {})) for kind in ("sha256", "md5")}
            yield DatasetInfo(name, access=Access(facts.pop("access")), **facts)


CATALOGUE: Mapping[str, DatasetInfo] = MappingProxyType({info.name: info for info in _entries()})


def of_benchmark(name: str) -> tuple[DatasetInfo, ...]:
    """Return the datasets of a benchmark."""
    return tuple(info for info in CATALOGUE.values() if info.benchmark == name)


MEDICONFUSION = CATALOGUE["mediconfusion"]
MULTIMEDEVAL, MEDHEVAL, GMAI = map(of_benchmark, ("MultiMedEval", "MedHEval", "GMAI-MMBench"))


def dataset_info(name: str) -> DatasetInfo:
    """Return the catalogue entry of ``name``; UnknownName, with the nearest name, where there is none."""
    if name not in CATALOGUE:
        raise unknown_name("dataset", name, CATALOGUE, "medtasks data list")
    return CATALOGUE[name]
