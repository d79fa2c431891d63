"""Which documents a draw takes, and what its manifest records."""

import json
import random
from collections import Counter, defaultdict

import pytest

from medtasks.data.dataset_manifest import Draw
from medtasks.data.drawing import DrawRequest, draw_documents
from medtasks.data.shards import clusters_of
from medtasks.errors import MedTasksError, UnknownName


@pytest.fixture(scope="module")
def documents():
    """300 questions on images with one to five questions, of three modalities, one of them rare."""
    rng = random.Random(2)
    rows = []
    for image in range(100):
        modality = "CT" if image < 60 else "MR" if image < 99 else "PET"
        for number in range(rng.choice((1, 2, 3, 4, 5))):
            columns = {"image_id": f"i{image}", "modality": modality}
            rows.append({"doc_id": f"{image}/{number}", **columns})
    return rows


def ids(documents):
    return [document["doc_id"] for document in documents]


@pytest.fixture(scope="module")
def draw(documents):
    """The documents of a draw of 90 questions by modality, and its design."""
    return draw_documents(documents, DrawRequest(90, "modality", 3))


def test_a_draw_takes_whole_images(draw, documents):
    drawn, _ = draw

    images = Counter(document["image_id"] for document in documents)
    assert Counter(document["image_id"] for document in drawn) == {
        image: images[image] for image in {document["image_id"] for document in drawn}
    }
    by_cluster = defaultdict(set)
    for document in drawn:
        by_cluster[document["drawn"]["cluster"]].add(document["image_id"])
    assert all(len(images) == 1 for images in by_cluster.values())


def test_strata_have_their_share(draw, documents):
    drawn, design = draw

    share = 90 / len(documents)
    numbers = {stratum.name: (stratum.drawn, stratum.existing) for stratum in design.strata}
    assert numbers == {
        "CT": (round(60 * share), 60),
        "MR": (round(39 * share), 39),
        "PET": (1, 1),
    }
    assert sum(stratum.rows for stratum in design.strata) == len(drawn)
    assert sum(stratum.existing_rows for stratum in design.strata) == len(documents)


def test_drawn_documents_name_their_stratum(draw):
    drawn, design = draw

    for document in drawn:
        stratum = design.strata[document["drawn"]["stratum"]]
        assert (stratum.name, stratum.existing) == (
            document["modality"],
            document["drawn"]["existing"],
        )


REQUEST = DrawRequest(90, "modality", 3)


def drawn_ids(documents, **changes):
    return set(ids(draw_documents(documents, REQUEST._replace(**changes))[0]))


def test_a_draw_depends_on_its_seed(documents):
    first, _ = draw_documents(documents, REQUEST)
    again, _ = draw_documents(documents, REQUEST)
    assert first == again
    assert drawn_ids(documents, seed=4) != set(ids(first))


def test_a_draw_does_not_depend_on_the_order_of_rows(documents):
    shuffled = random.Random(1).sample(documents, len(documents))
    assert drawn_ids(shuffled) == drawn_ids(documents)


def test_a_larger_draw_holds_the_smaller_one(documents):
    assert drawn_ids(documents) < drawn_ids(documents, rows=180)


def test_each_cluster_is_as_likely(documents):
    """100 clusters, 400 seeds: the number of draws of a cluster has mean 400 x 30 % and a spread of about 9."""
    counts = Counter()
    rows = round(0.3 * len(documents))
    for seed in range(400):
        drawn, design = draw_documents(documents, DrawRequest(rows, None, seed))
        counts.update({document["image_id"] for document in drawn})
    expected = 400 * design.strata[0].drawn / 100
    assert len(counts) == 100
    assert all(abs(count - expected) < 45 for count in counts.values())


def test_the_first_part_of_a_draw_has_about_as_many_of_each_stratum(documents):
    drawn, _ = draw_documents(documents, DrawRequest(150, "modality"))
    modalities = list(
        {document["image_id"]: document["modality"] for document in drawn}.values()
    )
    half = Counter(modalities[: len(modalities) // 2])
    whole = Counter(modalities)
    for modality in ("CT", "MR"):
        assert abs(half[modality] - whole[modality] / 2) <= 1.5


def test_all_questions_can_be_drawn(documents):
    drawn, design = draw_documents(documents, DrawRequest(10**6, "modality"))
    assert set(ids(drawn)) == set(ids(documents))
    assert all(stratum.drawn == stratum.existing for stratum in design.strata)


def test_a_cluster_of_several_strata_belongs_to_that_of_its_first_document():
    rows = [
        {"doc_id": str(number), "pair_id": number // 2, "kind": "ab"[number % 2]}
        for number in range(20)
    ]
    assert len(set(clusters_of(rows))) == 10
    _, design = draw_documents(rows, DrawRequest(10, "kind"))
    assert [(stratum.name, stratum.existing_rows) for stratum in design.strata] == [("a", 20)]


def test_a_small_stratum_gives_two_clusters():
    rows = [{"doc_id": str(number), "kind": "ab"[number < 5]} for number in range(100)]
    _, design = draw_documents(rows, DrawRequest(10, "kind"))
    assert [(stratum.name, stratum.drawn) for stratum in design.strata] == [("a", 10), ("b", 2)]


def test_columns_that_cannot_be_strata_are_refused(documents):
    with pytest.raises(UnknownName, match="column"):
        draw_documents(documents, DrawRequest(50, "modalty"))
    rows = [{"doc_id": str(n), "question": f"What is {n // 2}?"} for n in range(100)]
    with pytest.raises(
        MedTasksError, match="two clusters of each of the 50 values of 'question'"
    ):
        draw_documents(rows, DrawRequest(60, "question"))


def test_the_design_says_what_was_drawn(documents):
    drawn, design = draw_documents(documents, DrawRequest(90, "modality", 3))
    said = f"{len(drawn)} of {len(documents)} questions drawn at random (seed 3, by modality)"
    assert str(design) == said
    assert Draw.model_validate(json.loads(design.model_dump_json())) == design
