"""Sources with faults: one sentence that says which file and row, or a row that is left out and counted."""

import shutil

from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.errors import MedTasksError, SourceError

from ...damages import both, cut, lost, row, text
from ...tables import each_row

OMNI = "QA_information/Open-access/Mura.json"
PHARMACY = "Pharmacy/validation-00000-of-00001.parquet"
FRAMES = "data/test-00000-of-00001.parquet"
NO_IMAGE = {"bytes": b"[no image]", "path": None}

REFUSED = {  # whatever loss is accepted: set, damage, parts of the sentence
    "pmc_vqa": [
        (text("test_2.csv", "Choice C", "Choice E"), "test_2.csv lacks 'Choice C'; it has Answer, Caption"),
        (cut("test_2.csv", -30), "test_2.csv row 6: ", " is empty and not a text"),
    ],
    "omnimedvqa": [
        (lost("QA_information/Open-access"), "holds no folder QA_information/Open-access/ and no OmniMedVQA.zip")
    ],
    "medxpertqa_mm": [
        (row("MM/test.jsonl", 2, label=["A"]), "test.jsonl row 2: label is a list and not a text"),
        (row("MM/test.jsonl", 2, images=[{"path": "x"}]), "test.jsonl row 2: images is a list and not a list of texts"),
    ],
    "mmmu_med_val": [
        (lost("Pharmacy"), "mmmu holds no Pharmacy/validation-*.parquet"),
        (
            row(PHARMACY, 2, options="__import__('os')"),
            "Pharmacy/validation-00000-of-00001.parquet row 2: options is not",
        ),
        (row(PHARMACY, 2, options="['a', 2]"), "row 2: options is not the text of a list of at least two texts"),
        (row(PHARMACY, 2, question_type="essay"), "row 2: question_type is none of multiple-choice, open"),
    ],
    "medframeqa": [(row(FRAMES, 2, options=["one"]), "row 2: options are fewer than two")],
    "slake": [
        (row("test.json", 3, answer_type="BOTH"), "test.json row 3: answer_type is none of OPEN, CLOSED"),
        (text("test.json", '"answer_type"', '"kind"'), "test.json row 1: answer_type is missing"),
    ],
}
LEFT_OUT = {  # set, damage, rows that remain, notes in the manifest
    "pmc_vqa": [
        (lost("images_2.zip!figures/f3.jpg"), 5, "test_2.csv row 4: its image f3.jpg is missing"),
        (text("test_2.csv", "f3.jpg", ""), 5, "test_2.csv row 4: its image is missing"),
    ],
    "omnimedvqa": [
        (lost("Images/Mura/test (1)/0.png"), 4, *(f"Mura.json row {n}: its image Images/Mura" for n in (1, 2))),
        (row(OMNI, 1, image_path="a\0b"), 5, "Mura.json row 1: its image a\0b is missing"),
        (row(OMNI, 3, option_B=None), 5, "Mura.json row 3: it has fewer than two options"),
        (row(OMNI, 1, gt_answer="x"), 6, "the right option of 2 rows (the published answer is none of the options)"),
    ],
    "medxpertqa_mm": [(lost("images.zip!images/MM-2-1.jpeg"), 3, "test.jsonl row 3: its image MM-2-1.jpeg is missing")],
    "mmmu_med_val": [(row(PHARMACY, 2, image_2=NO_IMAGE), 14, f"{PHARMACY} row 2: its image image_2 is broken (")],
    "medframeqa": [],
    "slake": [(lost("imgs.zip!imgs/xmlab1/source.jpg"), 6, *(f"test.json row {n}: its image xmlab1" for n in (3, 4)))],
}


def cases(known, fixed):
    """Return name, ``fixed`` values, and the rest together, of each case."""
    return [(name, *case[:fixed], case[fixed:]) for name, some in known.items() for case in some]


@each_row("name, damage, parts", cases(REFUSED, 1))
def test_refused(source, home, refuses, name, damage, parts):
    folder = source(name)
    damage(folder)
    with refuses(*parts, kind=SourceError):
        prepare(f"medevalkit_{name}", Options(folder, allow_incomplete=True))
    assert not (home / "datasets" / f"medevalkit_{name}").exists()


@each_row("name, damage, rows, notes", cases(LEFT_OUT, 2))
def test_counted(source, prepared, name, damage, rows, notes):
    folder = source(name)
    damage(folder)
    manifest, documents = prepared(name, folder)
    assert len(documents) == rows
    for note in notes:
        assert any(note in known for known in manifest.left_out), manifest.left_out


@each_row("name", ["omnimedvqa", "pmc_vqa", "medxpertqa_mm"])
def test_unpacked_and_packed_are_the_same(source, prepared, tmp_path, name):
    folder = source(name)
    first = prepared(name, folder)[0].fingerprint
    if name == "omnimedvqa":
        below = tmp_path / "below"
        shutil.copytree(folder, below / "OmniMedVQA")
        shutil.make_archive(str(tmp_path / "packed" / "OmniMedVQA"), "zip", below)
        others = [tmp_path / "packed", tmp_path / "packed" / "OmniMedVQA.zip"]
    else:
        (archive,) = folder.glob("*.zip")
        shutil.unpack_archive(archive, folder)
        archive.unlink()
        others = [folder]
    assert {prepared(name, other)[0].fingerprint for other in others} == {first}


def test_a_part_of_nothing(source, refuses):
    folder = source("slake")
    both(text("test.json", '"en"', '"fr"'), *(text("test.json", '"en"', '"fr"') for _ in range(3)))(folder)
    with refuses("no question has the language 'en'", kind=MedTasksError):
        prepare("medevalkit_slake_en", Options(folder, allow_incomplete=True))
