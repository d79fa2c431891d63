"""Random draws of whole clusters from a prepared dataset, within strata.

Documents that share a pair, rotation, patient or image (:mod:`medtasks.data.shards`) are drawn together. A cluster
belongs to the stratum of its first document. Each stratum gives the same share of its clusters, at least two. The
order of clusters follows from a digest of seed and id: it is the same on every machine, a larger draw with the same
seed holds the smaller one, and any first part of a draw is a random one, too.
"""

import hashlib
from collections import defaultdict
from operator import itemgetter
from typing import Any, NamedTuple

from medtasks.data.dataset_manifest import Draw, DrawnStratum
from medtasks.data.samples import DRAWN, Document, Documents
from medtasks.data.selecting import values
from medtasks.data.shards import clusters_of
from medtasks.errors import MedTasksError, unknown_name

_LEAST = 2  # clusters of a stratum, which show its variance
_ONLY = "all"  # name of the stratum without a column
_WITHOUT = "not given"


class DrawRequest(NamedTuple):
    """Arguments of a draw."""

    rows: int  # about as many
    by: str | None = None  # column of the strata; None draws from all clusters alike
    seed: int = 0


def draw_documents(
    documents: Documents, request: DrawRequest
) -> tuple[list[dict[str, Any]], Draw]:
    """Return about as many documents as requested, in random order of their clusters, and the design of the draw.

    Args:
        documents: Of a prepared dataset.
        request: Number of documents, column of the strata, and seed.

    Returns:
        The documents, each with its cluster and stratum in the column ``DRAWN``, and the design.

    Raises:
        UnknownName: There is no such column.
        MedTasksError: It has too many values.
    """
    strata = _strata(documents, request)
    least = sum(min(_LEAST, len(of_stratum)) for of_stratum in strata.values())
    if least > max(request.rows, _LEAST):
        raise MedTasksError(
            f"two clusters of each of the {len(strata)} values of '{request.by}' are more than the {request.rows} "
            f"questions to draw; take a column with fewer values, or a larger --draw"
        )
    share = min(1.0, request.rows / len(documents))
    placed = []
    described = []
    for stratum, name in enumerate(sorted(strata)):
        ordered = sorted(strata[name], key=itemgetter(0))
        existing = len(ordered)
        number = min(existing, max(_LEAST, round(share * existing)))
        sizes = [len(members) for _, members in ordered]
        described.append(
            DrawnStratum(
                name=name,
                existing=existing,
                drawn=number,
                existing_rows=sum(sizes),
                rows=sum(sizes[:number]),
            )
        )
        for rank, (digest, members) in enumerate(ordered[:number]):
            # Strata alternate, so that a part of the draw has about as many of each as the whole.
            placed.append(((rank + 0.5) / number, digest, stratum, members))
    placed.sort(key=itemgetter(0, 1))
    drawn = []
    for number, (_, _, stratum, chosen) in enumerate(placed):
        existing = described[stratum].existing
        facts = {"cluster": number, "stratum": stratum, "existing": existing}
        drawn += [{**document, DRAWN: facts} for document in chosen]
    return drawn, Draw(seed=request.seed, by=request.by, strata=tuple(described))


def _strata(
    documents: Documents, request: DrawRequest
) -> dict[str, list[tuple[str, list[Document]]]]:
    """Return the clusters of each stratum, each with the digest by which it is drawn."""
    column = request.by
    if column is not None and not any(column in document for document in documents):
        raise unknown_name("column", column, documents[0])
    clusters: dict[int, list[Document]] = defaultdict(list)
    for cluster, document in zip(clusters_of(documents), documents, strict=True):
        clusters[cluster].append(document)
    strata = defaultdict(list)
    for members in clusters.values():
        first = min(str(document["doc_id"]) for document in members)
        digest = hashlib.sha256(f"{request.seed} {first}".encode()).hexdigest()
        name = _ONLY
        if column is not None:
            name = ", ".join(values(members[0], column)) or _WITHOUT
        strata[name].append((digest, members))
    return strata
