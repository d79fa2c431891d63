"""Which pictures are found in which kind, why they matter, and which questions to leave out."""

import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from medtasks.data.duplicates import duplicate_search, image_copies, image_hashes
from medtasks.data.duplicates.duplicate_search import Concern, CopyKind, find_duplicates
from medtasks.data.duplicates.image_copies import dataset_images, other_images
from medtasks.data.duplicates.image_hashes import (
    DISTANCE,
    LIKENESS,
    ImageViews,
    Resemblance,
    hash_images,
    near,
)
from medtasks.data.schema import DEMONSTRATIONS_FOLDER
from medtasks.errors import MedTasksError, SourceError
from medtasks.home import dataset_folder

from ...medical_files import put_nifti, scan
from ...picture_sets import jpeg, jpeg_bytes, prepare_set, texture, write_folder
from ...tables import each_row

BIG = (200, 180)


def row(doc_id, *pictures, **columns):
    return {"doc_id": doc_id, "pictures": list(pictures), **columns}


def drawn(number, quality):
    """A texture, of a text as JPEG."""
    return (
        texture(number)
        if isinstance(number, int)
        else jpeg_bytes(texture(int(number)), quality)
    )


def found_in(name, other=None, distance=DISTANCE):
    shown = dataset_images(name)
    return find_duplicates(shown, other and other_images(str(other)), distance)


def said(findings):
    """Kind, concern and questions of findings."""
    return [(finding.kind, finding.concern, set(finding.questions)) for finding in findings]


FILE, NEAR = CopyKind.FILE, CopyKind.NEAR
EXAMPLE, PATIENTS, TWICE = Concern.EXAMPLE, Concern.PATIENTS, Concern.TWICE
# Questions and examples: id, texture (a text: as JPEG), image id, patient; what is found; left out; sizes of groups;
# examples that show the first of it.
SETS = {
    "one picture under one id": ([("q1", 1), ("q2", 1), ("q3", 2)], [], [], [], [], None),
    "one file under two patients or ids": (
        [("q1", 1, "i", "p1"), ("q2", 1, "i", "p2"), ("q3", 2, "a"), ("q4", 2, "b")],
        [],
        [(FILE, PATIENTS, {"q1", "q2"}), (FILE, TWICE, {"q3", "q4"})],
        ["q2", "q4"],
        [1, 1],
        (),
    ),
    "a solved example among the questions comes first": (
        [("q1", 1, "a"), ("q2", 2, "b"), ("q3", 2, "c"), ("q4", 3, "d")],
        [("e1", "1"), ("e2", 3, "d"), ("e3", 3)],
        [(FILE, EXAMPLE, {"q4"}), (NEAR, EXAMPLE, {"q1"}), (FILE, TWICE, {"q2", "q3"})],
        ["q1", "q3", "q4"],
        [2, 1, 1],
        ("e2", "e3"),
    ),
    "all questions on the first of equal pictures stay": (
        [("q1", 1, "a"), ("q2", 1, "b"), ("q3", 1, "a"), ("q4", 1, "b")],
        [],
        [(FILE, TWICE, {"q1", "q2", "q3", "q4"})],
        ["q2", "q4"],
        [1],
        (),
    ),
    "a question like another one whose picture is an example goes too": (
        [("q1", 1), ("q2", "1")],
        [("e", 1)],
        [(FILE, EXAMPLE, {"q1"}), (NEAR, EXAMPLE, {"q1", "q2"})],
        ["q1", "q2"],
        [2],
        ("e",),
    ),
}


@each_row("name", SETS)
def test_what_is_found_within_a_set(name):
    def rows(listed):
        for doc_id, number, *ids in listed:
            yield row(
                doc_id,
                drawn(number, 80),
                **dict(zip(("image_id", "patient_id"), ids, strict=False)),
            )

    shown, examples, findings, left_out, groups, shown_by = SETS[name]
    bench = f"bench{list(SETS).index(name)}"
    prepare_set(bench, list(rows(shown)), list(rows(examples)))

    found = found_in(bench)

    assert said(found.within) == findings
    assert (list(found.left_out), [len(group) for group in found.groups]) == (left_out, groups)
    assert found.outside == ()
    asked = [question for picture in found.shown.images for question in picture.questions]
    assert sorted(asked) == [doc_id for doc_id, *_ in shown]
    assert (found.within[0].first.examples if found.within else None) == shown_by


@pytest.fixture
def kinds():
    """What is found in a set with copies of every kind."""
    big = texture(3, BIG)
    prepare_set(
        "kinds",
        [
            row("same pixels 1", jpeg_bytes(texture(1), 90)),
            row("same pixels 2", jpeg(texture(1), 90)),
            row("near 1", texture(2)),
            row("near 2", jpeg_bytes(texture(2), 60)),
            row("near 3", big),
            row("near 4", ImageOps.invert(big).resize((100, 90))),
            row("alone", texture(4)),
            *(
                row(f"chain {quality}", jpeg(texture(5, BIG), quality))
                for quality in (90, 60, 40)
            ),
        ],
    )
    return found_in("kinds")


def test_equal_pixels_are_named_first(kinds):
    assert said(kinds.within)[0] == (
        CopyKind.PIXELS,
        Concern.TWICE,
        {"same pixels 1", "same pixels 2"},
    )


def test_pictures_that_look_the_same_are_found(kinds):
    alike = [
        questions for kind, _, questions in said(kinds.within)[1:] if kind is CopyKind.NEAR
    ]
    assert {"near 1", "near 2"} in alike
    assert {"near 3", "near 4"} in alike
    assert len(alike) == 2 + 3


def test_an_inverted_copy_is_called_so(kinds):
    assert {
        finding.alike.inverted for finding in kinds.within if "near 3" in finding.questions
    } == {True}


def test_of_each_group_of_copies_one_stays(kinds):
    assert kinds.left_out == ("same pixels 2", "near 2", "near 4", "chain 60", "chain 40")
    assert [len(group) for group in kinds.groups] == [3, 2, 2, 1]


def test_a_pair_of_one_picture_cannot_be_told_apart():
    pairs = {
        "p1": (1, 1),
        "p2": (2, "2"),
        "p3": (3, 4),
        "p4": (5, 3),
    }  # textures; a text: as JPEG
    prepare_set(
        "pairs",
        [
            row(f"{pair}/{n}", drawn(number, 70), pair_id=pair, image_id=f"{pair}_{n}")
            for pair, numbers in pairs.items()
            for n, number in enumerate(numbers, 1)
        ],
    )
    found = found_in("pairs")
    assert said(found.within) == [
        (CopyKind.FILE, Concern.PAIR, {"p1/1", "p1/2"}),
        (CopyKind.NEAR, Concern.PAIR, {"p2/1", "p2/2"}),
        (CopyKind.FILE, Concern.TWICE, {"p3/1", "p4/2"}),
    ]
    assert found.left_out == ("p1/1", "p1/2", "p2/1", "p2/2", "p4/1", "p4/2")


def test_the_example_pictures_beside_mediconfusion_count(sample_home, tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(shutil.copytree(sample_home, tmp_path / "home")))
    picture = dataset_images("mediconfusion").images[0]
    (dataset_folder("mediconfusion") / DEMONSTRATIONS_FOLDER).mkdir(exist_ok=True)
    shutil.copyfile(
        picture.files[0],
        dataset_folder("mediconfusion") / DEMONSTRATIONS_FOLDER / "planted_F1.jpg",
    )
    found = found_in("mediconfusion")
    leaks = [finding for finding in found.within if finding.concern is Concern.EXAMPLE]
    assert [finding.first.examples for finding in leaks if finding.first is finding.second] == [
        ("planted_F1.jpg",)
    ]
    assert set(picture.questions) <= set(found.left_out)


@pytest.fixture
def outside(tmp_path):
    """What is found of a set in a folder with copies of every kind, and with a picture of an example alone."""
    kept = jpeg_bytes(texture(1), 90)
    alike = {quality: texture(quality, BIG) for quality in (20, 95, 60)}
    known = [kept, texture(2), texture(3), texture(4), *alike.values()]
    rows = [row(f"q{number}", picture) for number, picture in enumerate(known)]
    prepare_set(
        "bench",
        [*rows, row("several", texture(5), texture(7)), row("none")],
        [row("e", texture(6))],
    )
    copies = {
        f"{quality}.jpg": jpeg_bytes(picture, quality) for quality, picture in alike.items()
    }
    files = {"a/copy.jpg": kept, "a/again.jpg": kept, "lossless.bmp": texture(2).convert("RGB")}
    others = {
        "compressed.jpg": jpeg_bytes(texture(3), 75),
        "unknown.png": texture(9),
        "example.png": texture(6),
    }
    others["several.jpg"] = jpeg_bytes(texture(7), 75)
    return found_in("bench", write_folder(tmp_path / "training", {**files, **others, **copies}))


def test_pictures_of_a_folder_are_found_in_three_kinds(outside):
    assert said(outside.outside[:2]) == [
        (CopyKind.FILE, None, {"q0"}),
        (CopyKind.PIXELS, None, {"q1"}),
    ]
    assert {kind for kind, *_ in said(outside.outside[2:])} == {CopyKind.NEAR}


def test_pictures_of_a_folder_are_named_the_most_alike_first(outside):
    order = [question for finding in outside.outside[2:] for question in finding.questions]
    assert [question for question in order if question not in ("q2", "several")] == [
        "q5",
        "q6",
        "q4",
    ]


def test_equal_files_of_a_folder_are_named_together(outside):
    names = sorted(file.name for file in outside.outside[0].second.files)
    assert names == ["again.jpg", "copy.jpg"]


def test_questions_with_a_picture_of_the_folder_are_left_out(outside):
    assert outside.left_out == ("q0", "q1", "q2", "q4", "q5", "q6", "several")
    assert (outside.within, len(outside.shown.documents)) == ((), 9)


def test_pictures_of_one_grey_are_counted_and_not_compared(tmp_path):
    blank = [
        Image.new("L", (30, 30), 0),
        Image.new("L", (40, 30), 0),
        Image.new("RGB", (30, 30), "white"),
    ]
    rows = [
        row(f"q{number}", one, patient_id=f"p{number}")
        for number, one in enumerate([*blank, texture(1)])
    ]
    prepare_set("blank", [*rows, row("q9", blank[0], patient_id="p9")])
    found = found_in(
        "blank",
        write_folder(tmp_path / "training", {"black.png": blank[0], "grey.png": texture(2)}),
    )
    assert [picture.questions for picture in found.uniform] == [("q0", "q9"), ("q1",), ("q2",)]
    assert found.uniform_outside == 1
    assert (found.within, found.outside, found.left_out) == ((), (), ())


def test_the_distance_decides_what_is_compared_at_all(tmp_path):
    prepare_set("bench", [row("q1", texture(1, BIG))])
    worse = jpeg(texture(1, BIG), 30).point(lambda value: 255 * (value / 255) ** 1.4)
    folder = write_folder(tmp_path / "training", {"x.png": worse})
    bits = found_in("bench", folder, distance=64).outside[0].alike.distance
    assert bits > 0
    assert len(found_in("bench", folder, distance=bits).outside) == 1
    assert found_in("bench", folder, distance=bits - 1).outside == ()


def test_the_closest_views_are_reported(tmp_path):
    # With their borders the two are a little less alike, because the borders differ in width.
    inside = texture(1, BIG)
    folder = write_folder(
        tmp_path,
        {
            "a.png": ImageOps.expand(inside, 4, 0),
            "b.png": ImageOps.expand(inside, (4, 4, 5, 4), 0),
        },
    )
    looks = ImageViews(list(hash_images(sorted(folder.iterdir()))[0].items()))
    images = [image_hashes.read_image(looks.views[at].file)[0] for at in (0, 2)]
    whole = [image_hashes.details(image_hashes.sketches(image)[0], 64) for image in images]
    assert [view.sketch for view in looks.views] == [0, 1, 0, 1]
    assert LIKENESS[64] < whole[0] @ whole[1] < 0.9999
    assert near(looks, looks, DISTANCE)[0, 1].likeness == pytest.approx(1, abs=1e-3)


@pytest.fixture
def volume(tmp_path):
    return put_nifti(tmp_path / "v.nii.gz", scan(1))


def test_volumes_are_not_compared(volume):
    prepare_set("mixed", [row("q1", volume), row("q2", volume), row("q3", texture(1))])

    found = found_in("mixed")

    assert (found.shown.volumes, len(found.shown.images), found.within) == (1, 1, ())


def test_a_set_without_pictures_says_what_it_shows(volume):
    for name, shown, why in (
        ("volumes", [volume], "show no images but volumes"),
        ("text", [], "show no images"),
    ):
        prepare_set(name, [row("q1", *shown)])
        with pytest.raises(MedTasksError, match=f"the questions of '{name}' {why}"):
            dataset_images(name)


@each_row("name, access", [("bench", "public"), ("secret", "credentialed")])
def test_a_damaged_picture_is_named_if_it_may_be(name, access):
    prepare_set(name, [row("q1", texture(1)), row("q2", texture(2))], access=access)
    file = dataset_images(name).images[0].files[0]
    file.write_bytes(file.read_bytes()[:200])

    what = rf"1 of 2 images of '{name}' cannot be read.*medtasks data prepare {name}"
    with pytest.raises(SourceError, match=what) as caught:
        dataset_images(name)

    assert (file.name in str(caught.value)) is (access == "public")


questions = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=8
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    questions,
    st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=4),
    st.sets(st.integers(0, 3)),
)
def test_after_leaving_out_nothing_is_left_to_find(tmp_path, drawn, close, outside):
    """Pictures 0 to 3, questions on them with an id and a pair each, and any resemblance."""
    known = image_hashes.ImageHash(file_sha256="", pixels_sha256="", size=(9, 9), views=("",))
    documents = [
        {"doc_id": f"q{number}", "pair_id": f"p{pair}"}
        for number, (_, _, pair) in enumerate(drawn)
    ]

    def picture(shown, kept):
        uses = tuple(
            image_copies.Use(
                f"q{number}", tmp_path, False, (f"i{name}", None), f"i{name}", None, f"p{pair}"
            )
            for number, (which, name, pair) in enumerate(drawn)
            if which == shown and f"q{number}" in kept
        )
        return image_copies.DistinctImage(
            (tmp_path / str(shown),), known, frozenset([str(shown)]), uses
        )

    def findings(kept):
        pictures = [picture(shown, kept) for shown in range(4)]
        pairs = {(one, one) for one in range(4)} | {(min(both), max(both)) for both in close}
        made = [
            duplicate_search.DuplicatePair(
                pictures[one], pictures[two], CopyKind.NEAR, concern, Resemblance(0, 1.0)
            )
            for one, two in sorted(pairs)
            if (concern := duplicate_search.concern_of(pictures[one], pictures[two]))
        ]
        away = [
            duplicate_search.DuplicatePair(
                pictures[one], picture(9, set()), CopyKind.NEAR, None, Resemblance(0, 1.0)
            )
            for one in sorted(outside)
            if pictures[one].questions
        ]
        return made, away

    everything = {document["doc_id"] for document in documents}
    dropped = set(duplicate_search.left_out_of(documents, *findings(everything)))
    assert findings(everything - dropped) == ([], [])
    pairs = {document["doc_id"]: document["pair_id"] for document in documents}
    assert {pairs[one] for one in dropped} & {
        pairs[one] for one in everything - dropped
    } == set()
    if findings(everything) == ([], []):
        assert dropped == set()
