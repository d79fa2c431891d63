"""The documents of sanity variants, and which other or grey images their questions get."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from medtasks.model_adapters.radfm.network import read_volume
from PIL import Image

from medtasks.data.document_store import load_documents, open_documents
from medtasks.data.images.volume_slices import grey_volume
from medtasks.data.samples import Sample
from medtasks.data.variants import (
    ABSTAIN,
    DEGRADED,
    NOTA,
    NOTA_CONTROL,
    TOLD,
    published_position,
    rotated,
)
from medtasks.data.variants import ShownImage as Picture
from medtasks.data.variants import images_of as pictures_of
from medtasks.data.variants import swapped_images as swapped_pictures
from medtasks.errors import MedTasksError, SourceError
from medtasks.hooks.volumes import volumes
from medtasks.prompts.images import visible_images as shown_images
from medtasks.stats.standard_error import connected_components
from medtasks.tasks.documents import check_possible, task_documents, variant_hook
from medtasks.tasks.task_files import task_file, task_files, variants_of

from ..medical_files import put_nifti, scan
from ..tables import each_row

IMAGE_TASKS = [name for name, task in task_files().items() if task.variants]
ONE_PER_DATASET = {task_file(name).dataset: name for name in reversed(IMAGE_TASKS)}.values()
KEPT = (
    "doc_id",
    "image_id",
    "patient_id",
    "pair_id",
    "position",
    "question",
    "options",
    "answer",
    "answers",
    "label",
)


def images(document):
    return [document["image_file"]] if "image_file" in document else document["image_files"]


def keyed(document):
    return any(document.get(name) is not None for name in ("answer", "answers", "label"))


def check_rotated(before, after):
    """Check that each question with a key is there once per option."""
    assert [document["rotation_of"] for document in after] == [
        document["doc_id"]
        for document in before
        if keyed(document)
        for _ in document["options"]
    ]


def check_new_option(before, after):
    """Check that one option is new, and the key the same."""
    olds = {document["doc_id"]: document for document in before}
    for new in after:
        old = olds[new["doc_id"]]
        assert len(set(new["options"]) - set(old["options"])) == 1
        assert {key: old.get(key) for key in ("answer", "label")} == {
            key: new.get(key) for key in ("answer", "label")
        }


def check_images(variant, before, after):
    """Check that the same is asked of no image, of a grey or a degraded one, or of that of another question."""
    for old, new in zip(before, after, strict=True):
        assert {key: old.get(key) for key in KEPT} == {key: new.get(key) for key in KEPT}
        if variant == DEGRADED:
            assert new == {
                **old,
                **{key: new[key] for key in ("variant", "degradation", "severity")},
            }
        elif variant in ("blind", TOLD):
            assert images(new) == []
            assert "image_file" not in new
        elif variant == "blank":
            assert new == {**old, "variant": "blank"}
        else:
            assert len(images(new)) == len(images(old))
            assert not set(images(new)) & set(images(old))
            assert new.keys() == {*old, "variant"}


def check_variant(variant, before, after):
    """Check the documents of a variant by what it changes."""
    assert {document["variant"] for document in after} == {variant.variant}
    if variant.variant == "rotated":
        check_rotated(before, after)
    elif variant.variant in (ABSTAIN, NOTA, NOTA_CONTROL):
        check_new_option(before, after)
    else:
        check_images(variant.variant, before, after)


@each_row("name", ONE_PER_DATASET)
def test_every_dataset_in_every_variant_here_and_in_the_harness(prepared, monkeypatch, name):
    monkeypatch.setattr(
        "datasets.arrow_dataset.generate_fingerprint", lambda _: "0"
    )  # takes a third of the time
    task = task_file(name)
    before, table = load_documents(task.dataset), open_documents(task.dataset)["test"]
    types = table.features  # are copied each time
    for variant in variants_of(task):
        if (
            variant.variant in (NOTA, NOTA_CONTROL) and "pmc_vqa" in name
        ):  # in miniature each has the option "None"
            with pytest.raises(MedTasksError, match="no question has options"):
                check_possible(variant)
            continue
        after = task_documents(variant)
        check_variant(variant, before, after)

        changed = variant_hook(variant.name)(table)
        assert changed.to_list() == after
        changed_types = changed.features
        for column in set(changed_types) & set(types) - {"image_sha256"}:
            assert changed_types[column] == types[column]


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
    key = {
        "answer": "ABCDEFG"[first],
        "label": first,
        "answers": ["ABCDEFG"[place] for place in sorted(right)],
    }[kind]
    return {
        "doc_id": "7",
        "image_files": [],
        "image_id": None,
        "patient_id": None,
        "options": options,
        kind: key,
    }


def positions(document):
    if "label" in document:
        return {document["label"]}
    return {
        "ABCDEFG".index(letter) for letter in document.get("answers", document.get("answer"))
    }


@given(KEYS)
def test_a_question_has_a_rotation_for_each_option(key):
    options, _, _ = key

    rotations = rotated([{**question(*key), "question": "Which?"}])

    assert [one["doc_id"] for one in rotations] == [
        f"7~r{number}" for number in range(len(options))
    ]
    assert [one["rotation"] for one in rotations] == list(range(len(options)))


@given(KEYS)
def test_rotations_keep_every_option_and_the_right_ones(key):
    options, kind, right = key
    listed = [
        f"({letter}) {option}" for letter, option in zip("ABCDEFG", options, strict=False)
    ]
    document = {**question(*key), "question": f"Which? {' '.join(listed)}"}

    rotations = rotated([document])

    wanted = right if kind == "answers" else {min(right)}
    for number, one in enumerate(rotations):
        order = [
            published_position(place, number, len(options)) for place in range(len(options))
        ]
        assert sorted(order) == list(range(len(options)))
        assert one["options"] == [options[place] for place in order]
        repeated = [
            f"({letter}) {options[place]}"
            for letter, place in zip("ABCDEFG", order, strict=False)
        ]
        assert one["question"] == f"Which? {' '.join(repeated)}"
        assert {order[place] for place in positions(one)} == wanted
    assert rotations[0]["options"] == options
    assert positions(rotations[0]) == wanted


@given(st.integers(1, 7))
def test_every_option_stands_in_every_place_once(count):
    for place in range(count):
        assert {published_position(place, number, count) for number in range(count)} == set(
            range(count)
        )


def test_clusters_of_rotations(prepared):
    pairs, turned = (
        load_documents("mediconfusion"),
        task_documents(task_file("mediconfusion_rotated")),
    )
    assert all(not {"pair_id", "position"} & document.keys() for document in turned)
    clusters = {document["rotation_of"]: Sample(document).cluster_id for document in turned}
    for first, second in itertools.product(pairs, pairs):
        if first["pair_id"] == second["pair_id"] or first["image_id"] == second["image_id"]:
            assert clusters[first["doc_id"]] == clusters[second["doc_id"]]
    assert len(set(clusters.values())) > 1

    alone = [
        {**question(["a", "b"], "label", {0}), "doc_id": str(number)} for number in range(3)
    ]
    assert len({Sample(document).cluster_id for document in rotated(alone)}) == 3


def document(number, files, patient=None, image=None):
    return {
        "doc_id": str(number),
        "dataset": "drawn",
        "patient_id": patient,
        "image_id": image,
        "image_files": [f"images/{file}" for file in files],
        "image_sha256": [f"sha of {file}" for file in files],
    }


def pair(number, position, file):
    return {
        "doc_id": f"{number}/{position}",
        "dataset": "drawn",
        "pair_id": str(number),
        "position": position,
        "image_id": file,
        "image_file": f"images/{file}.jpg",
        "image_sha256": f"sha of {file}",
    }


DATASETS = st.lists(
    st.tuples(
        st.lists(
            st.sampled_from(
                [f"{name}{end}" for name in "abcdefgh" for end in (".png", ".nii.gz")]
            ),
            max_size=3,
        ),
        st.sampled_from([None, "p1", "p2", "p3"]),
        st.sampled_from([None, None, "i1", "i2"]),
    ),
    min_size=1,
    max_size=25,
).map(lambda rows: [document(number, *row) for number, row in enumerate(rows)])


def kinds(shown):
    return [picture.file.endswith(".nii.gz") for picture in shown]


def units(documents):
    keys = [
        [("patient", one["patient_id"])] * (one["patient_id"] is not None)
        + [("image", one["image_id"])] * (one["image_id"] is not None)
        + one["image_sha256"]
        for one in documents
    ]
    return connected_components(keys)


@given(DATASETS)
def test_nobody_gets_an_image_of_its_own_unit(documents):
    unit_of_picture = {
        picture: unit
        for one, unit in zip(documents, units(documents), strict=True)
        for picture in pictures_of(one)
    }
    try:
        given_pictures = swapped_pictures(documents)
    except MedTasksError:
        by_kind = [
            {unit for picture, unit in unit_of_picture.items() if kinds([picture]) == [kind]}
            for kind in (0, 1)
        ]
        needed = [
            any(kind in kinds(pictures_of(one)) for one in documents) for kind in (False, True)
        ]
        assert any(
            wanted and len(found) < 2 for wanted, found in zip(needed, by_kind, strict=True)
        )
        return
    by_images = {}
    for one, unit, shown in zip(documents, units(documents), given_pictures, strict=True):
        assert kinds(shown) == kinds(pictures_of(one))
        assert all(unit_of_picture[picture] != unit for picture in shown)
        assert by_images.setdefault(pictures_of(one), shown) == shown
    assert swapped_pictures(documents) == given_pictures


@given(st.lists(st.integers(0, 5), min_size=2, max_size=40))
def test_every_image_is_used_once_where_no_patient_has_more_than_half(patients):
    documents = [
        document(n, [f"{n}.png"], patient=f"p{patient}") for n, patient in enumerate(patients)
    ]
    largest = max(patients.count(one) for one in patients)
    if largest == len(patients):
        with pytest.raises(
            MedTasksError, match="'drawn' holds images of one patient or case only"
        ):
            swapped_pictures(documents)
        return
    shown = swapped_pictures(documents)
    if 2 * largest <= len(patients):
        assert sorted(shown) == sorted(map(pictures_of, documents))


@given(st.permutations(range(12)))
def test_the_order_of_documents_does_not_matter(order):
    documents = [document(n, [f"{n}.png"], patient=f"p{n // 2}") for n in range(12)]
    shown = dict(zip(map(pictures_of, documents), swapped_pictures(documents), strict=True))
    again = [documents[place] for place in order]
    assert dict(zip(map(pictures_of, again), swapped_pictures(again), strict=True)) == shown


def test_the_same_file_under_two_names_is_one_image():
    first, second = document(0, ["a.png"], image="x"), document(1, ["b.png"], image="y")
    second["image_sha256"] = first["image_sha256"]
    with pytest.raises(MedTasksError, match="choose the variant _blind or _blank"):
        swapped_pictures([first, second])
    third = document(2, ["c.png"], image="z")
    assert swapped_pictures([first, second, third])[:2] == [pictures_of(third)] * 2


def test_pairs_and_questions_without_images():
    pairs = [pair(1, 1, "a"), pair(1, 2, "b"), pair(2, 2, "c"), pair(2, 1, "a")]
    assert [pictures[0].file[7] for pictures in swapped_pictures(pairs)] == list("baac")
    assert swapped_pictures([document(0, []), document(1, [])]) == [(), ()]


def test_half_a_pair_and_a_pair_with_one_picture():
    documents = [
        pair(1, 1, "a"),
        pair(1, 2, "b"),
        pair(2, 1, "c"),
        pair(3, 1, "d"),
        pair(3, 2, "d"),
    ]
    shown = [pictures[0] for pictures in swapped_pictures(documents)]
    assert shown[:2] == [
        Picture("images/b.jpg", "sha of b"),
        Picture("images/a.jpg", "sha of a"),
    ]
    assert all(new not in pictures_of(own) for own, new in zip(documents, shown, strict=True))
    with pytest.raises(MedTasksError, match="one patient or case only"):
        swapped_pictures([pair(1, 1, "a")])


@each_row("mode", ["L", "RGB", "P", "RGBA"])
def test_pictures(mode):
    (grey,) = shown_images({"variant": "blank"}, [Image.new(mode, (7, 5))])
    assert (grey.mode, grey.size, grey.getcolors()) == ("RGB", (7, 5), [(35, (128, 128, 128))])


def test_a_model_that_reads_volumes_sees_an_even_grey(tmp_path):
    path = put_nifti(tmp_path / "a.nii.gz", scan(1))
    seen, blank = read_volume(path, 8), read_volume(grey_volume(path), 8)
    assert blank.shape == seen.shape
    assert set(blank.unique().tolist()) == {0.5}


@pytest.fixture
def ct_scan(prepared):
    return task_documents(task_file("multimedeval_ct_rate_report_blank"))[0]


def test_a_blank_ct_scan_is_grey(ct_scan):
    (grey,) = volumes(ct_scan, {"slices": 0})
    assert (grey.shape, set(grey.ravel())) == ((9, 10, 6), {0.5})
    slices = volumes(ct_scan, {"slices": 2})
    assert [len(picture.getcolors()) for picture in slices] == [1, 1]


def test_a_degraded_ct_scan_has_less_contrast(ct_scan):
    dim = {"variant": "degraded", "degradation": "contrast", "severity": 3}

    plain, flat = (
        volumes({**ct_scan, **columns}, {"slices": 2}) for columns in ({"variant": None}, dim)
    )

    assert np.array_equal(flat[0], 128 + (np.asarray(plain[0]).astype(int) - 128) // 4)


def test_a_missing_ct_scan_is_named_also_where_it_is_grey(ct_scan):
    gone = {**ct_scan, "image_files": ["images/none.nii.gz"]}
    for settings in ({"slices": 0}, {"slices": 2}):
        with pytest.raises(SourceError, match="is missing"):
            volumes(gone, settings)
