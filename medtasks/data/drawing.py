"""Random draws of whole clusters from a prepared dataset, within strata.

Documents that share a pair, rotation, patient or image (:mod:`medtasks.data.shards`) are drawn together. A cluster
belongs to the stratum of its first document. Each stratum gives the same share of its clusters, at least two. The
order of clusters follows from a digest of seed and id: it is the same on every machine, a larger draw with the same
seed holds the smaller one, and any first part of a draw is a random one, too.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from medtasks.data.dataset_manifest import Draw, DrawnStratum
from medtasks.data.samples import DRAWN, Documents
from medtasks.data.selecting import values
from medtasks.data.shards import clusters_of
from medtasks.errors import MedTasksError, unknown_name

_LEAST = 2  # clusters of a stratum, which show its variance
_ONLY = "all"  # name of the stratum without a column
_WITHOUT = "not given"


class DrawRequest(NamedTuple):
    """Arguments of a draw."""

    rows: int  # about as many
    by: str | None = None  # column of the strata
    seed: int = 0


def draw_documents(documents: Documents, request: DrawRequest) -> tuple[list[dict[str, Any]], Draw]:
    """Return about as many documents as requested, in random order of their clusters, and the design of the draw.

    UnknownName: there is no such column. MedTasksError: it has too many values.
    """
    if request.by is not None and not any(request.by in document for document in documents):
        raise unknown_name("column", request.by, dict.fromkeys(documents[0]))
    clusters: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for cluster, document in zip(clusters_of(documents), documents, strict=True):
        clusters[cluster].append(document)
    strata: dict[str, list[list[Mapping[str, Any]]]] = defaultdict(list)
    for members in clusters.values():
        strata[_stratum(members[0], request.by)].append(members)
    if sum(min(_LEAST, len(of_stratum)) for of_stratum in strata.values()) > max(
        request.rows, _LEAST
    ):
        raise MedTasksError(
            f"two clusters of each of the {len(strata)} values of '{request.by}' are more than the {request.rows} "
            f"questions to draw; take a column with fewer values, or a larger --draw"
        )
    share = min(1.0, request.rows / len(documents))
    numbers = {
        name: min(len(of_stratum), max(_LEAST, round(share * len(of_stratum))))
        for name, of_stratum in strata.items()
    }
    placed = []
    described = []
    for place, name in enumerate(sorted(strata)):
        ordered = sorted(strata[name], key=lambda members: _digest(request.seed, members))
        chosen = ordered[: numbers[name]]
        described.append(
            DrawnStratum(
                name=name,
                existing=len(ordered),
                drawn=len(chosen),
                existing_rows=sum(map(len, ordered)),
                rows=sum(map(len, chosen)),
            )
        )
        facts = {"stratum": place, "existing": len(ordered)}
        for rank, members in enumerate(chosen):
            # Strata alternate, so that a part of the draw has about as many of each as the whole.
            position = ((rank + 0.5) / len(chosen), _digest(request.seed, members))
            placed.append((position, members, facts))
    placed.sort(key=lambda entry: entry[0])
    drawn = []
    for number, (_, members, facts) in enumerate(placed):
        drawn += [{**document, DRAWN: {"cluster": number, **facts}} for document in members]
    return drawn, Draw(seed=request.seed, by=request.by, strata=tuple(described))


def _stratum(document: Mapping[str, Any], column: str | None) -> str:
    if column is None:
        return _ONLY
    return ", ".join(values(document, column)) or _WITHOUT


def _digest(seed: int, members: Documents) -> str:
    first = min(str(document["doc_id"]) for document in members)
    return hashlib.sha256(f"{seed} {first}".encode()).hexdigest()
