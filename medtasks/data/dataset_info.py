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
    """One entry of the catalogue."""

    name: str  # as on the command line and as ``path_of.<name>``
    benchmark: str
    description: str  # one line
    source: str  # where it is published
    revision: str  # commit or version of ``source`` the facts here were checked against
    access: Access  # who may obtain it
    licence: str  # as stated by the source
    size: float | None = None  # download size in megabytes (10^6 bytes); None where the source does not say
    rows: int | None = None  # documents of a complete copy; None where no reference states it
    images: int | None = None  # distinct images of a complete copy; None where no reference states it
    # SHA-256 checksums of the published files, by file name
    sha256: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # MD5 checksums, where the source publishes those
    md5: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
