"""The published datasets: the entries of ``catalogue.toml``.

Preparing, the commands and the reports read them. A dataset of a user's own is in no catalogue.
"""

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
    reader: str = ""  # module below ``medtasks.data.sources`` whose ``RECIPES`` have it
    # Download size in megabytes (10^6 bytes). None where the source does not say.
    size: float | None = None
    rows: int | None = None  # documents of a complete copy; None where no reference states it
    # Whether no reference states ``rows`` and no reader can check them
    count_unknown: bool = False
    images: int | None = None  # distinct ones of a complete copy; None where no reference says
    sha256: Mapping[str, str] = field(default_factory=dict)  # of the published files, by name
    md5: Mapping[str, str] = field(default_factory=dict)  # where the source publishes those
    # The dataset from which it is prepared, and whose images it shows
    part_of: str | None = None
    # Values by column that make the part.
    selection: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def _read_catalogue() -> dict[str, DatasetInfo]:
    """Return the entries of ``catalogue.toml`` by name, each with its own facts and those of its source."""
    catalogue = {}
    for shared in packaged_facts(__package__, "catalogue")["sources"]:
        for name, changes in shared.pop("datasets").items():
            facts = shared | changes
            facts["access"] = Access(facts["access"])
            catalogue[name] = DatasetInfo(name, **facts)
    return catalogue


def _datasets_of(benchmark: str) -> tuple[DatasetInfo, ...]:
    return tuple(info for info in CATALOGUE.values() if info.benchmark == benchmark)


CATALOGUE: Mapping[str, DatasetInfo] = _read_catalogue()
MEDICONFUSION = CATALOGUE["mediconfusion"]
MULTIMEDEVAL = _datasets_of("MultiMedEval")
MEDHEVAL = _datasets_of("MedHEval")
GMAI = _datasets_of("GMAI-MMBench")


def dataset_info(name: str) -> DatasetInfo:
    """Return the catalogue entry of a dataset.

    Raises:
        UnknownName: There is no such dataset. The message suggests the nearest name.

    Example:
        >>> dataset_info("multimedeval_medqa").benchmark
        'MultiMedEval'
    """
    if name not in CATALOGUE:
        raise unknown_name("dataset", name, CATALOGUE, "medtasks data list")
    return CATALOGUE[name]
