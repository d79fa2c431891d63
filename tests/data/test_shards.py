"""Which rows a shard takes: properties of every partition, against what a shard promises."""

from collections import Counter

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.data.document_store import load_documents
from medtasks.data.samples import Sample
from medtasks.data.shards import Shard, clusters_of
from medtasks.data.variants import rotated
from medtasks.errors import MedTasksError

from ..tables import each_row

CLUSTERS = st.lists(st.integers(0, 9), max_size=60) | st.lists(st.integers(0, 9), max_size=60).map(sorted)


@given(CLUSTERS, st.integers(1, 9))
def test_shards_part_the_rows_between_clusters(clusters, count):
    shards = [Shard(index, count).rows(clusters) for index in range(1, count + 1)]
    assert sorted(row for rows in shards for row in rows) == list(range(len(clusters)))
    assert all(rows == sorted(rows) for rows in shards)
    assert sum(len({clusters[row] for row in rows}) for rows in shards) == len(set(clusters))
    largest = max(Counter(clusters).values(), default=0)
    assert all(abs(len(rows) - len(clusters) / count) <= largest for rows in shards)


@given(st.lists(st.integers(1, 4), max_size=20), st.integers(1, 9))
def test_clusters_that_lie_together_are_ranges_cut_nearest_to_the_share(sizes, count):
    clusters = [number for number, size in enumerate(sizes) for _ in range(size)]
    places = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    start = 0
    for index in range(1, count + 1):
        share = len(clusters) * index / count
        stop = min(places, key=lambda place: (round(abs(place - share), 9), place))
        assert Shard(index, count).rows(clusters) == list(range(start, stop))
        start = stop


def test_scattered_clusters_are_dealt_the_largest_first():
    clusters = list("abcabcabca")  # no place cuts none of them
    assert [Shard(index, 3).rows(clusters) for index in (1, 2, 3)] == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]


@each_row("text", ["0/4", "5/4", "a/b", "3", "1/0", "-1/4", "1/4/2", "1.5/4", "٣/٤", ""])
def test_no_shard(text):
    with pytest.raises(MedTasksError, match="such as --shard 3/16"):
        Shard.parse(text)


def test_what_stays_together(sample):
    documents = load_documents("mediconfusion")
    clusters = clusters_of(documents)
    for name in ("pair_id", "image_id"):
        assert len({(one[name], cluster) for one, cluster in zip(documents, clusters, strict=True)}) == len(
            {one[name] for one in documents}
        )
    assert len(set(clusters)) < len({one["pair_id"] for one in documents})  # pairs share images
    assert clusters_of(datasets.Dataset.from_list(documents)) == clusters
    singles = [{name: one[name] for name in ("doc_id", "options", "answer")} for one in documents]
    turned = rotated(singles, None)
    assert [turned[first]["rotation_of"] for first in clusters_of(turned)] == [one["rotation_of"] for one in turned]
    assert len(set(clusters_of(turned))) == len(documents) < len(turned)


def test_patients_stay_together_over_their_images():
    rows = [("p1", "a"), ("p2", "b"), (None, "a"), ("p1", "c"), (None, None), ("p2", None)]
    documents = [{"patient_id": patient, "image_id": image} for patient, image in rows]
    assert clusters_of(documents) == [0, 1, 0, 0, 4, 1]
    assert all(Sample(one).cluster_id for one in documents)
