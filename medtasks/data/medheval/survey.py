"""What of MedHEval can be prepared from a user's folders, before anything is prepared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from medtasks.data.medheval.catalogue import MEDHEVAL
from medtasks.data.medheval.image_roots import IMAGE_SOURCES
from medtasks.data.medheval.preparing import ImageCount, preflight, present_file
from medtasks.data.preparation import Options
from medtasks.errors import SourceError

GROUPS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "medheval": frozenset(info.name for info in MEDHEVAL),
        "medheval_closed": frozenset(
            ("medheval_visual_mm", "medheval_visual_cxr", "medheval_knowledge_closed", "medheval_context")
        ),
        "medheval_public": frozenset(("medheval_visual_mm",)),
    }
)
"""Sets behind the groups of tasks, largest first."""


@dataclass(frozen=True)
class Readiness:
    """Whether one set can be prepared.

    Attributes:
        name: The set.
        counts: Its images by source; none where its file is missing.
        cause: Why it cannot be prepared, None if it can.
    """

    name: str
    counts: tuple[ImageCount, ...]
    cause: str | None


def survey(options: Options) -> list[Readiness]:
    """Look for the files and images of all six sets.

    Args:
        options: ``source`` and ``images`` say where; with ``allow_incomplete`` a set is ready if it has any image.

    Raises:
        SourceError: There is no source, or a file is changed or malformed.
        UnknownName: The options name an unknown source of images.
    """
    if options.source is None:
        raise SourceError(
            f"'medheval' is prepared from your clone of {MEDHEVAL[0].source} and your copies of the images: run "
            f"'medtasks data prepare medheval --source CLONE --images SOURCE=DIR', once --images for each of "
            f"{', '.join(IMAGE_SOURCES)} that you have"
        )
    if not options.source.is_dir():
        raise SourceError(f"{options.source} is no folder; give your clone of {MEDHEVAL[0].source}")
    found = []
    for info in MEDHEVAL:
        if present_file(info, options.source) is None:
            found.append(Readiness(info.name, (), f"its file {next(iter(info.sha256))} is not below {options.source}"))
        else:
            counts = tuple(preflight(info, options))
            found.append(Readiness(info.name, counts, _cause(counts, options)))
    return found


def _cause(counts: Sequence[ImageCount], options: Options) -> str | None:
    if not any(count.found for count in counts):
        return "none of its images was found"
    lacking = [f"{len(count.missing)} of {IMAGE_SOURCES[count.source].title}" for count in counts if count.missing]
    if not lacking or options.allow_incomplete:
        return None
    return f"it lacks images, {' and '.join(lacking)}"


def image_totals(found: Sequence[Readiness]) -> dict[str, tuple[int, int]]:
    """Return how many distinct images are found and named in all sets, by source."""
    totals = {}
    for key in IMAGE_SOURCES:
        counts = [count for readiness in found for count in readiness.counts if count.source == key]
        there = frozenset[str]().union(*(count.found for count in counts))
        named = there.union(*(count.missing for count in counts))
        if named:
            totals[key] = (len(there), len(named))
    return totals


def largest_group(found: Sequence[Readiness]) -> str | None:
    """Return the largest group of tasks all of whose sets are ready, None if there is none."""
    ready = {readiness.name for readiness in found if readiness.cause is None}
    return next((group for group, sets in GROUPS.items() if sets <= ready), None)
