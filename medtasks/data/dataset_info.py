"""What the catalogue says of a dataset."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


class Access(enum.StrEnum):
    """Who may obtain a dataset."""

    PUBLIC = "public"
    GATED = "gated"
    CREDENTIALED = "credentialed"


@dataclass(frozen=True)
class DatasetInfo:
    """One entry of the catalogue.

    Attributes:
        name: Name used on the command line and as ``path_of.<name>``.
        benchmark: Benchmark the dataset belongs to.
        description: One line.
        source: Where it is published.
        revision: Commit or version of ``source`` the facts here were checked against.
        access: Who may obtain it.
        licence: Licence as stated by the source.
        size: Download size in megabytes (10^6 bytes); None where the source does not say.
        rows: Documents of a complete copy; None where no reference states it.
        images: Distinct images of a complete copy; None where no reference states it.
        sha256: SHA-256 checksums of the published files, by file name.
        md5: MD5 checksums, where the source publishes those.
    """

    name: str
    benchmark: str
    description: str
    source: str
    revision: str
    access: Access
    licence: str
    size: float | None = None
    rows: int | None = None
    images: int | None = None
    sha256: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    md5: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
