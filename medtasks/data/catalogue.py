"""The published datasets: the entries of ``catalogue.toml``."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from medtasks.errors import unknown_name
from medtasks.home import packaged_facts


class Access(enum.StrEnum):
    """Permission needed to obtain a dataset."""

    PUBLIC = "public"
    GATED = "gated"
    CREDENTIALED = "credentialed"


@dataclass(frozen=True)
class DatasetInfo:
    """One entry of the catalogue."""

    name: str  # as on the command line and as ``path_of.<name>``
    benchmark: str
    description: str  # one line
    source: str  # where it is published
    revision: str  # commit or version of ``source`` the facts here were checked against
    access: Access
    licence: str  # as stated by the source
    reader: str = ""  # module below ``medtasks.data`` whose ``RECIPES`` have it
    size: float | None = (
        None  # download size in megabytes (10^6 bytes); None where the source does not say
    )
    rows: int | None = None  # documents of a complete copy; None where no reference states it
    count_unknown: bool = False  # whether no reference states ``rows`` and no reader can check them
    images: int | None = (
        None  # distinct images of a complete copy; None where no reference states it
    )
    sha256: Mapping[str, str] = field(default_factory=dict)  # of the published files, by name
    md5: Mapping[str, str] = field(default_factory=dict)  # where the source publishes those
    part_of: str | None = None  # the dataset from which it is prepared, and whose images it shows
    selection: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # values by column that make the part


CATALOGUE: Mapping[str, DatasetInfo] = {
    name: DatasetInfo(
        name, **{**shared, **changes, "access": Access(changes.get("access", shared["access"]))}
    )
    for shared in packaged_facts(__package__, "catalogue")["sources"]
    for name, changes in shared.pop("datasets").items()
}
MEDICONFUSION = CATALOGUE["mediconfusion"]
MULTIMEDEVAL, MEDHEVAL, GMAI = (
    tuple(info for info in CATALOGUE.values() if info.benchmark == benchmark)
    for benchmark in ("MultiMedEval", "MedHEval", "GMAI-MMBench")
)


def dataset_info(name: str) -> DatasetInfo:
    """Return the catalogue entry of ``name``; UnknownName suggests the nearest name."""
    if name not in CATALOGUE:
        raise unknown_name("dataset", name, CATALOGUE, "medtasks data list")
    return CATALOGUE[name]
