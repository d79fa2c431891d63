"""Which other images a question gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.data.variants import ShownImage as Picture
from medtasks.data.variants import images_of as pictures_of
from medtasks.data.variants import swapped_images as swapped_pictures
from medtasks.errors import MedTasksError
from medtasks.stats.standard_error import connected_components


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
        st.lists(st.sampled_from([f"{name}{end}" for name in "abcdefgh" for end in (".png", ".nii.gz")]), max_size=3),
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
        picture: unit for one, unit in zip(documents, units(documents), strict=True) for picture in pictures_of(one)
    }
    try:
        given_pictures = swapped_pictures(documents)
    except MedTasksError:
        by_kind = [{unit for picture, unit in unit_of_picture.items() if kinds([picture]) == [kind]} for kind in (0, 1)]
        needed = [any(kind in kinds(pictures_of(one)) for one in documents) for kind in (False, True)]
        assert any(wanted and len(found) < 2 for wanted, found in zip(needed, by_kind, strict=True))
        return
    by_images = {}
    for one, unit, shown in zip(documents, units(documents), given_pictures, strict=True):
        assert kinds(shown) == kinds(pictures_of(one))
        assert all(unit_of_picture[picture] != unit for picture in shown)
        assert by_images.setdefault(pictures_of(one), shown) == shown
    assert swapped_pictures(documents) == given_pictures


@given(st.lists(st.integers(0, 5), min_size=2, max_size=40))
def test_every_image_is_used_once_where_no_patient_has_more_than_half(patients):
    documents = [document(n, [f"{n}.png"], patient=f"p{patient}") for n, patient in enumerate(patients)]
    largest = max(patients.count(one) for one in patients)
    if largest == len(patients):
        with pytest.raises(MedTasksError, match="'drawn' holds images of one patient or case only"):
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
    documents = [pair(1, 1, "a"), pair(1, 2, "b"), pair(2, 1, "c"), pair(3, 1, "d"), pair(3, 2, "d")]
    shown = [pictures[0] for pictures in swapped_pictures(documents)]
    assert shown[:2] == [Picture("images/b.jpg", "sha of b"), Picture("images/a.jpg", "sha of a")]
    assert all(new not in pictures_of(own) for own, new in zip(documents, shown, strict=True))
    with pytest.raises(MedTasksError, match="one patient or case only"):
        swapped_pictures([pair(1, 1, "a")])
