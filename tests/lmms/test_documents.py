"""The documents of sanity variants."""

import itertools

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.data.document_store import load_documents, open_documents
from medtasks.data.samples import Sample
from medtasks.data.variants import published_position, rotated
from medtasks.errors import MedTasksError
from medtasks.tasks.documents import changed_table, task_documents, variant_hook
from medtasks.tasks.task_files import task_file, task_files, variants_of

from ..tables import each_row

IMAGE_TASKS = [name for name, task in task_files().items() if task.variants]
ONE_PER_DATASET = {task_file(name).dataset: name for name in reversed(IMAGE_TASKS)}.values()
KEPT = ("doc_id", "image_id", "patient_id", "pair_id", "position", "question", "options", "answer", "answers", "label")


def images(document):
    return [document["image_file"]] if "image_file" in document else document["image_files"]


def keyed(document):
    return any(document.get(name) is not None for name in ("answer", "answers", "label"))


@each_row("name", ONE_PER_DATASET)
def test_every_dataset_in_every_variant_here_and_in_the_harness(prepared, name):
    task = task_file(name)
    before, table = load_documents(task.dataset), open_documents(task.dataset)["test"]
    for variant in variants_of(task):
        after, changed = task_documents(variant), variant_hook(variant.name)(table)
        assert changed.to_list() == after
        for column in set(changed.features) & set(table.features) - {"image_sha256"}:
            assert changed.features[column] == table.features[column]
        assert {document["variant"] for document in after} == {variant.variant}
        if variant.variant == "rotated":
            assert [document["rotation_of"] for document in after] == [
                document["doc_id"] for document in before if keyed(document) for _ in document["options"]
            ]
            continue
        for old, new in zip(before, after, strict=True):
            assert {key: old.get(key) for key in KEPT} == {key: new.get(key) for key in KEPT}
            if variant.variant == "blind":
                assert images(new) == []
                assert "image_file" not in new
            elif variant.variant == "blank":
                assert new == {**old, "variant": "blank"}
            else:
                assert len(images(new)) == len(images(old))
                assert not set(images(new)) & set(images(old))
                assert new.keys() == {*old, "variant"}


def test_a_task_without_variant_and_a_group(prepared):
    assert task_documents(task_file("mediconfusion")) == load_documents("mediconfusion")
    with pytest.raises(MedTasksError, match="'mediconfusion_all' is a group"):
        task_documents(task_file("mediconfusion_all"))


KEYS = st.integers(1, 7).flatmap(
    lambda number: st.tuples(
        st.lists(st.text(max_size=3), min_size=number, max_size=number),
        st.sampled_from(["answer", "label", "answers"]),
        st.sets(st.integers(0, number - 1), min_size=1),
    )
)


def question(options, kind, right):
    first = min(right)
    key = {"answer": "ABCDEFG"[first], "label": first, "answers": ["ABCDEFG"[place] for place in sorted(right)]}[kind]
    return {"doc_id": "7", "image_files": [], "image_id": None, "patient_id": None, "options": options, kind: key}


def positions(document):
    if "label" in document:
        return {document["label"]}
    return {"ABCDEFG".index(letter) for letter in document.get("answers", document.get("answer"))}


@given(KEYS)
def test_rotations_keep_every_option_and_the_right_ones(key):
    options, kind, right = key
    document = question(*key)
    rotations = rotated([document])
    assert [one["doc_id"] for one in rotations] == [f"7~r{number}" for number in range(len(options))]
    assert [one["rotation"] for one in rotations] == list(range(len(options)))
    wanted = right if kind == "answers" else {min(right)}
    for number, one in enumerate(rotations):
        order = [published_position(place, number, len(options)) for place in range(len(options))]
        assert sorted(order) == list(range(len(options)))
        assert one["options"] == [options[place] for place in order]
        assert {order[place] for place in positions(one)} == wanted
    assert rotations[0]["options"] == options
    assert positions(rotations[0]) == wanted
    for place in range(len(options)):  # every option stands in every place once
        assert {published_position(place, number, len(options)) for number in range(len(options))} == set(
            range(len(options))
        )


def test_clusters_of_rotations(prepared):
    asked = task_documents(task_file("gmai_mmbench_val_rotated"))
    cases = {}
    for document in asked:
        cases.setdefault(document["image_id"], set()).add(Sample(document).cluster_id)
    assert all(len(clusters) == 1 for clusters in cases.values())
    assert len(set.union(*cases.values())) == len(cases)

    pairs, turned = load_documents("mediconfusion"), task_documents(task_file("mediconfusion_rotated"))
    assert all(not {"pair_id", "position"} & document.keys() for document in turned)
    clusters = {document["rotation_of"]: Sample(document).cluster_id for document in turned}
    for first, second in itertools.product(pairs, pairs):
        if first["pair_id"] == second["pair_id"] or first["image_id"] == second["image_id"]:
            assert clusters[first["doc_id"]] == clusters[second["doc_id"]]
    assert len(set(clusters.values())) > 1

    alone = [{**question(["a", "b"], "label", {0}), "doc_id": str(number)} for number in range(3)]
    assert len({Sample(document).cluster_id for document in rotated(alone)}) == 3


def test_a_large_table_stays_typed():
    text, texts = datasets.Value("string"), datasets.List(datasets.Value("string"))
    names = ("doc_id", "dataset", "image_id", "patient_id", "image_files", "image_sha256", "options", "label")
    features = datasets.Features(dict(zip(names, [*[text] * 4, *[texts] * 3, datasets.Value("int32")], strict=True)))
    rows = [
        dict(zip(names, (str(n), "large", f"i{n}", None, [f"{n}.png"], [f"{n}"], list("abcd"), n % 4), strict=True))
        for n in range(2_500)
    ]
    table = datasets.Dataset.from_list(rows, features=features)
    turned = changed_table(task_file("multimedeval_bloodmnist_rotated"), table, {})
    assert len(turned) == 10_000
    assert turned.features["label"] == features["label"]
    assert turned[9_999]["doc_id"] == "2499~r3"
    assert len(changed_table(task_file("multimedeval_bloodmnist_swapped"), table, {})) == 2_500
