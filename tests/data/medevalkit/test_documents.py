"""What rows of each set become; sources with faults: one sentence with file and row, or a row that is left out."""

import functools
import hashlib
import itertools
import json
import shutil

import pytest

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.dataset_lookup import label_of
from medtasks.data.document_store import load_documents
from medtasks.data.images.decoding import decode_image
from medtasks.data.prepare.prepare_dataset import prepare, verify
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.schema import KIT_CHOICE, KIT_QUESTION, KIT_TEXT, REPORT, STRUCTURED_QUESTION
from medtasks.data.sources.medevalkit import FLAGS, SUBJECTS
from medtasks.data.variants import rotated
from medtasks.errors import SourceError

from ...damages import cut, lost, row, text
from ...multimedeval_sources import put
from ...tables import each_row
from ...tiny_medevalkit import SETS, put_source, put_texts


@pytest.fixture
def source(tmp_path, home):
    """Write the source of a set in miniature; return its folder. Each is in a folder of its own, with an empty home."""
    numbers = itertools.count()

    def write(name):
        shutil.rmtree(home, ignore_errors=True)
        return put_source(f"medevalkit_{name}", tmp_path / str(next(numbers)))

    return write


@pytest.fixture
def prepared(home):
    def run(name, source):
        manifest = prepare(f"medevalkit_{name}", Options(source, allow_incomplete=True))
        return manifest, load_documents(manifest.name)

    return run


@each_row("name", SETS)
def test_every_set_prepares_as_its_source_says(home, tmp_path, name):
    manifest = prepare(name, Options(put_source(name, tmp_path), allow_incomplete=True))

    documents = load_documents(name)
    assert list(verify(name)) == []
    assert (manifest.rows, manifest.access) == (len(documents), CATALOGUE[name].access)

    kinds = {"slake": KIT_QUESTION, "_report": REPORT, "radrestruct": STRUCTURED_QUESTION}
    of_images = KIT_CHOICE if CATALOGUE[name].reader == "medevalkit" else KIT_TEXT
    assert set(documents[0]) == set(
        next((kinds[part] for part in kinds if part in name), of_images)
    )

    ids = [document["doc_id"] for document in documents]
    assert len(set(ids)) == len(ids)
    for document in documents:
        flags = set(document.get("flags", ()))
        assert flags <= set(FLAGS)
        assert bool(document["image_id"]) is (CATALOGUE[name].images != 0)
        options = document.get("options", ())
        lines = document.get("option_lines", options)
        assert len(lines) == len(options) + ("null_option" in flags)
        assert all(option in line for option, line in zip(options, lines, strict=False))


def test_pmc_vqa_keeps_its_option_lines_as_published(source, prepared):
    _, documents = prepared("pmc_vqa", source("pmc_vqa"))
    assert documents[1]["option_lines"] == [
        " A: T: testes ",
        " C: Inner ",
        " C: Blue",
        " D: None ",
    ]
    assert documents[1]["options"] == ["T: testes", "Inner", "Blue", "None"]
    assert documents[0]["options"][1] == "White: pale"


def test_pmc_vqa_keeps_questions_and_answers_as_published(source, prepared):
    _, documents = prepared("pmc_vqa", source("pmc_vqa"))
    assert [document["answer"] for document in documents] == list("ABCDAB")
    assert documents[2]["question"] == " Which one?\nChoose."
    assert [document["doc_id"] for document in documents[:2]] == ["test_2/0", "test_2/1"]


@pytest.fixture
def omnimedvqa(source, prepared):
    return prepared("omnimedvqa", source("omnimedvqa"))


def test_answers_of_omnimedvqa_are_flagged(omnimedvqa):
    manifest, documents = omnimedvqa

    assert [(one["part"], one["answer"], one["gold"], one["flags"]) for one in documents] == [
        ("Chest CT Scan", "A", "CT", ["no_modality_type"]),
        ("Chest CT Scan", "B", "MR", ["repeated_gold", "no_modality_type"]),
        ("Chest CT Scan", "A", "CT", ["no_modality_type"]),
        ("Mura", "A", "CT ", ["inexact_gold"]),
        ("Mura", None, "X-ray", ["no_such_gold"]),
        ("Mura", "A", "CT", []),
    ]
    assert documents[5]["option_lines"] == ["A. CT", "B. MR"]
    assert manifest.left_out == (
        "the source holds 6 rows, the evaluated set 88996",
        "the right option of 1 row (the published answer is none of the options)",
    )


def test_questions_of_omnimedvqa_have_modality_and_image(omnimedvqa):
    _, documents = omnimedvqa

    assert {(one["part"], one["modality"]) for one in documents} == {
        ("Chest CT Scan", "CT(Computed Tomography)"),
        ("Mura", "X-Ray"),
    }
    assert documents[0]["image_id"] == documents[1]["image_id"] != documents[2]["image_id"]


@pytest.fixture
def flawed_omnimedvqa(source, prepared):
    """Prepare questions of which one has the id of another, a null option, or no option B."""
    folder = source("omnimedvqa")
    path = folder / "QA_information/Open-access/Mura.json"
    rows = json.loads(path.read_bytes())
    rows[1] |= {"question_id": rows[0]["question_id"], "option_D": None}
    rows[2] = {
        name: value
        for name, value in {**rows[0], "question_id": "x"}.items()
        if name != "option_B"
    }
    put(path, json.dumps([*rows, {**rows[0], "question_id": "y", "option_B": None}]))
    manifest, documents = prepared("omnimedvqa", folder)
    return manifest, documents[3:]


def test_an_id_that_omnimedvqa_gives_twice_is_numbered(flawed_omnimedvqa):
    _, documents = flawed_omnimedvqa
    assert [one["doc_id"] for one in documents] == ["Mura_0000", "Mura_0000 (2)"]


def test_a_null_option_of_omnimedvqa_is_asked_and_never_right(flawed_omnimedvqa):
    _, (whole, null) = flawed_omnimedvqa

    assert null["flags"] == ["null_option", "no_such_gold"]
    assert null["option_lines"] == [*whole["option_lines"][:-1], "D. None"]
    assert null["options"] == whole["options"][:-1]
    turned = rotated([{**null, "answer": "A"}])[1]["option_lines"]
    assert [line[:2] for line in turned] == ["A.", "B.", "C.", "D."]
    assert turned[-1] == "D. None"


def test_a_question_of_omnimedvqa_with_a_gap_in_its_options_is_left_out(flawed_omnimedvqa):
    manifest, _ = flawed_omnimedvqa
    assert manifest.left_out[:2] == tuple(
        f"Mura.json row {number}: it has no option B and one behind it" for number in (3, 4)
    )


def test_omnimedvqa_as_vlmevalkit_evaluates_it(prepared, tmp_path):
    folder = put_source("medevalkit_omnimedvqa_vlmevalkit", tmp_path)
    _, documents = prepared("omnimedvqa_vlmevalkit", folder)
    assert [document["part"] for document in documents[::2]] == [
        f"part_{number}" for number in range(1, 15)
    ]
    assert [document["doc_id"] for document in documents[:3]] == [
        "part_1/1",
        "part_1/101",
        "part_2/2",
    ]
    assert documents[0]["image_id"] == documents[1]["image_id"] != documents[2]["image_id"]
    assert (documents[0]["option_lines"], documents[0]["answer"]) == (["A. CT", "B. MR"], "B")


def test_a_missing_part_of_omnimedvqa_is_named(tmp_path, refuses):
    folder = put_source("medevalkit_omnimedvqa_vlmevalkit", tmp_path)
    (folder / "part_7.tsv").unlink()
    with refuses("holds no part_7.tsv"):
        prepare("medevalkit_omnimedvqa_vlmevalkit", Options(folder))


@pytest.fixture
def medxpertqa(source):
    folder = source("medxpertqa_mm")
    row("MM/test.jsonl", 1, images=["MM-0-0.jpeg"] * 2)(folder)
    return folder


def test_medxpertqa_shows_an_image_as_often_as_published(medxpertqa, prepared):
    twice, *_, last = prepared("medxpertqa_mm", medxpertqa)[1]
    assert len(twice["image_files"]) == 2
    assert len(set(twice["image_files"])) == 1
    assert (
        len(last["image_files"]),
        last["answer"],
        last["medical_task"],
        last["body_system"],
    ) == (
        *(4, "D", "Treatment"),
        "Skeletal",
    )
    assert last["question"].endswith("(E) drug E3")


def test_medxpertqa_of_texts_has_ten_options(medxpertqa, prepared):
    text = prepared("medxpertqa_text", medxpertqa)[1][0]
    assert (len(text["options"]), text["option_lines"][9]) == (10, "J. drug J0")


def test_mmlu_med(source, prepared):
    manifest, documents = prepared("mmlu_med", source("mmlu_med"))
    assert [(one["doc_id"], one["subject"], one["answer"]) for one in documents] == [
        ("test/0", "anatomy", "A"),
        ("test/1", "anatomy", "B"),
        ("test/4", "virology", "A"),
        ("test/5", "virology", "B"),
    ]
    assert (
        documents[0]["option_lines"] == documents[0]["options"] == ["one", "two", "one", "A. B"]
    )
    assert {tuple(document["flags"]) for document in documents} == {("no_context",)}
    assert "2 not in the evaluated set: its subject is another one" in manifest.left_out


def test_pubmedqa_has_its_abstract_and_letters(source, prepared):
    _, documents = prepared("pubmedqa", source("pubmedqa"))
    assert [document["answer"] for document in documents] == ["A", "B", "C"]
    assert documents[1]["context"] == "AIM: To see.\nAIM: To see."
    assert documents[0]["option_lines"] == ["A.yes", "B.no", "C.maybe"]


def test_medqa_and_medbullets_write_their_options_differently(source, prepared):
    lines = {}
    for name in ("medqa_usmle", "medbullets_op4", "medbullets_op5"):
        _, documents = prepared(name, source(name))
        assert [document["answer"] for document in documents] == list(
            "ABCDA" if name != "medbullets_op5" else "ABCDE"
        )
        lines[name] = documents[0]["option_lines"]
    assert lines["medqa_usmle"] == [f"{letter}. drug {letter}0" for letter in "ABCD"]
    assert lines["medbullets_op4"] == [f"{letter}.drug {letter}0" for letter in "ABCD"]
    assert lines["medbullets_op5"] == [*lines["medbullets_op4"], "E.None"]


def test_supergpqa_med(source, prepared):
    _, documents = prepared("supergpqa_med", source("supergpqa_med"))
    assert [(document["doc_id"], len(document["options"])) for document in documents] == [
        ("u1", 4), ("u2", 6), ("u3", 8), ("u4", 10),
    ]  # fmt: skip
    assert (documents[3]["option_lines"][9], documents[3]["answer"]) == ("J.term 9", "B")
    assert (documents[0]["subject"], documents[0]["difficulty"]) == ("Stomatology", "hard")


def test_mmmu(source, prepared):
    folder = source("mmmu_med_val")
    put(folder / "Art/validation-00000-of-00001.parquet", "another subject")
    _, documents = prepared("mmmu_med_val", folder)
    choice, of_images, written = documents[:3]
    assert list(dict.fromkeys(document["subject"] for document in documents)) == list(SUBJECTS)
    assert choice["option_lines"] == ["(A) it's plain", "(B) a 'quoted' one", "(C) both "]
    assert (of_images["options"], of_images["answer"], len(of_images["image_files"])) == (
        *(["<image 1>", "<image 2>"], "B"),
        2,
    )
    assert (written["options"], written["answer"], written["gold"]) == (
        [],
        None,
        "['2', 'two']",
    )
    assert written["question_type"] == "open"


def test_the_answers_of_mmmus_test_split_are_never_read(source, prepared):
    _, documents = prepared("mmmu_med_test", source("mmmu_med_test"))
    assert {(document["answer"], document["gold"]) for document in documents} == {(None, None)}
    assert documents[0]["doc_id"] == "test_Basic_Medical_Science_1"
    assert all(document["flags"] == [] for document in documents)


def test_medframeqa(source, prepared):
    _, documents = prepared("medframeqa", source("medframeqa"))
    assert [len(document["image_files"]) for document in documents] == [2, 3, 4, 5]
    assert [document["image_id"] for document in documents] == ["v0", "v0", "v1", "v1"]
    assert documents[1]["option_lines"] == ["A.growth", "B.loss", "C.none"]
    assert documents[1]["body_system"] == "Nervous System"


@pytest.fixture
def english(home, source, prepared):
    """Prepare the English part of SLAKE; return its manifest and documents, and those of the whole."""
    manifest, documents = prepared("slake_en", source("slake"))
    return manifest, documents, load_documents("medevalkit_slake")


def test_slake_is_in_two_languages(english):
    _, _, whole = english
    assert [document["language"] for document in whole] == ["en", "zh"] * 4
    assert (whole[3]["answer"], whole[3]["answer_type"], whole[3]["location"]) == (
        "不是",
        "CLOSED",
        "Abdomen",
    )


def test_the_english_part_of_slake_is_selected_from_the_whole(english, home):
    manifest, documents, whole = english
    assert documents == [document for document in whole if document["language"] == "en"]
    assert (manifest.selected_from, manifest.selection) == (
        "medevalkit_slake",
        {"language": ("en",)},
    )
    assert manifest.images == 4
    assert not (home / "datasets/medevalkit_slake_en/images").exists()


def test_a_part_prepares_the_whole_again_only_from_another_source(source, prepared, tmp_path):
    prepared("slake_en", source("slake"))
    before = prepare("medevalkit_slake_en", Options())  # the whole is there
    other = put_source("medevalkit_slake", tmp_path / "other")
    rows = [
        {**row, "question": "Why?"} for row in json.loads((other / "test.json").read_bytes())
    ]
    put(other / "test.json", json.dumps(rows))
    manifest, documents = prepared("slake_en", other)
    assert {document["question"] for document in documents} == {"Why?"}
    assert manifest.text_sha256 != before.text_sha256


@each_row("name", ["pmc_vqa", "omnimedvqa", "mmmu_med_val", "medframeqa"])
def test_rotated_option_lines_keep_their_form(source, prepared, name):
    _, documents = prepared(name, source(name))
    by_id = {document["doc_id"]: document for document in documents}

    turned = rotated(documents)

    assert len(turned) == sum(
        len(document["options"]) for document in documents if document["answer"]
    )
    for document in turned:
        original = by_id[document["rotation_of"]]
        right = document["options"]["ABCD".index(document["answer"])]
        assert right == original["options"]["ABCD".index(original["answer"])]
        assert document["rotation"] or document["option_lines"] == original["option_lines"]
        for place, (line, option) in enumerate(
            zip(document["option_lines"], document["options"], strict=True)
        ):
            assert line.rstrip().endswith(option.rstrip())
            assert not document["rotation"] or line.lstrip(" (").startswith("ABCD"[place])
        assert (
            name == "omnimedvqa" or document["gold"].strip() == document["answer"]
        )  # there it is a text


OMNI = "QA_information/Open-access/Mura.json"
PHARMACY = "Pharmacy/validation-00000-of-00001.parquet"
FRAMES = "data/test-00000-of-00001.parquet"
NO_IMAGE = {"bytes": b"[no image]", "path": None}

BULLETS = "data/train-00000-of-00001.parquet"
MEDQA = "phrases_no_exclude_test.jsonl"

REFUSED = {  # whatever loss is accepted: set, damage, parts of the sentence
    "pmc_vqa": [
        (
            text("test_2.csv", "Choice C", "Choice E"),
            "test_2.csv lacks 'Choice C'; it has Answer, Caption",
        ),
        (cut("test_2.csv", -30), "test_2.csv row 6: ", " is empty and not a text"),
    ],
    "omnimedvqa": [
        (
            lost("QA_information/Open-access"),
            "holds no folder QA_information/Open-access/ and no OmniMedVQA.zip",
        )
    ],
    "medxpertqa_mm": [
        (
            row("MM/test.jsonl", 2, label=["A"]),
            "test.jsonl row 2: label is a list and not a text",
        ),
        (
            row("MM/test.jsonl", 2, images=[{"path": "x"}]),
            "test.jsonl row 2: images is a list and not a list of texts",
        ),
    ],
    "mmmu_med_val": [
        (lost("Pharmacy"), "mmmu holds no Pharmacy/validation-*.parquet"),
        (
            row(PHARMACY, 2, options="__import__('os')"),
            "Pharmacy/validation-00000-of-00001.parquet row 2: options is not",
        ),
        (
            row(PHARMACY, 2, options="['a', 2]"),
            "row 2: options is not the text of a list of at least two texts",
        ),
        (
            row(PHARMACY, 2, question_type="essay"),
            "row 2: question_type is none of multiple-choice, open",
        ),
    ],
    "medframeqa": [(row(FRAMES, 2, options=["one"]), "row 2: options are fewer than two")],
    "mmlu_med": [
        (
            row("all/test-00000-of-00001.parquet", 1, answer=4),
            "row 1: answer is 4, and the options are 0 to 3",
        ),
        (lost("all"), "mmlu_med holds no all/test-*.parquet"),
    ],
    "pubmedqa": [
        (
            row("data/test-00000-of-00001.parquet", 2, data=None),
            "row 2: data is empty and not an object",
        ),
        (
            row("data/test-00000-of-00001.parquet", 2, data={"Question": "?"}),
            "row 2: Options is empty and not an",
        ),
        (
            lambda folder: put_texts("pubmedqa", [{"data": {"Question": "?"}}], folder),
            "test-00000-of-00001.parquet row 1: data lacks 'Options', 'Correct Option', 'Context'; it has Question",
        ),
    ],
    "medqa_usmle": [
        (
            row(MEDQA, 2, options={"B": "x", "A": "y"}),
            f"{MEDQA} row 2: the options' keys are not A, B, ... in order",
        ),
        (row(MEDQA, 2, options="x"), f"{MEDQA} row 2: options is a text and not an object"),
        (row(MEDQA, 2, answer_idx=1), f"{MEDQA} row 2: answer_idx is a number and not a text"),
        (text(MEDQA, '"answer_idx"', '"key"'), f"{MEDQA} row 1 lacks 'answer_idx'; it has"),
    ],
    "slake": [
        (
            row("test.json", 3, answer_type="BOTH"),
            "test.json row 3: answer_type is none of OPEN, CLOSED",
        ),
        (
            text("test.json", '"answer_type"', '"kind"'),
            "test.json row 1: answer_type is missing",
        ),
    ],
}
LEFT_OUT = {  # set, damage, rows that remain, notes in the manifest
    "pmc_vqa": [
        (
            lost("images_2.zip!figures/f3.jpg"),
            5,
            "test_2.csv row 4: its image f3.jpg is missing",
        ),
        (text("test_2.csv", "f3.jpg", ""), 5, "test_2.csv row 4: its image is missing"),
    ],
    "omnimedvqa": [
        (
            lost("Images/Mura/test (1)/0.png"),
            4,
            *(f"Mura.json row {n}: its image Images/Mura" for n in (1, 2)),
        ),
        (row(OMNI, 1, image_path="a\0b"), 5, "Mura.json row 1: its image a\0b is missing"),
        (row(OMNI, 3, option_B=None), 5, "Mura.json row 3: it has fewer than two options"),
        (
            row(OMNI, 1, gt_answer="x"),
            6,
            "the right option of 2 rows (the published answer is none of the options)",
        ),
    ],
    "medxpertqa_mm": [
        (
            lost("images.zip!images/MM-2-1.jpeg"),
            3,
            "test.jsonl row 3: its image MM-2-1.jpeg is missing",
        )
    ],
    "mmmu_med_val": [
        (
            row(PHARMACY, 2, image_2=NO_IMAGE),
            14,
            f"{PHARMACY} row 2: its image image_2 is broken (",
        )
    ],
    "medframeqa": [],
    "medbullets_op5": [
        (
            row(BULLETS, 2, opb=None),
            4,
            "row 2: it has fewer than two options, or one after",
        ),
    ],
    "medqa_usmle": [
        (
            row(MEDQA, 2, answer_idx="E"),
            5,
            "the right option of 1 row (the published answer is none of the options)",
        ),
    ],
    "slake": [
        (
            lost("imgs.zip!imgs/xmlab1/source.jpg"),
            6,
            *(f"test.json row {n}: its image xmlab1" for n in (3, 4)),
        )
    ],
}


def cases(known, fixed):
    return [
        (name, *case[:fixed], case[fixed:]) for name, some in known.items() for case in some
    ]


@each_row("name, damage, parts", cases(REFUSED, 1))
def test_refused(source, home, refuses, name, damage, parts):
    folder = source(name)
    damage(folder)
    with refuses(*parts, kind=SourceError):
        prepare(f"medevalkit_{name}", Options(folder, allow_incomplete=True))
    assert not (home / "datasets" / f"medevalkit_{name}").exists()


def test_a_part_of_pmc_vqa_is_no_complete_copy(source, home, refuses):
    folder = source("pmc_vqa")
    cut_short = "the source holds 6 rows, the evaluated set 33430"
    with refuses(cut_short, "--allow-incomplete", kind=SourceError):
        prepare("medevalkit_pmc_vqa", Options(folder))
    manifest = prepare("medevalkit_pmc_vqa", Options(folder, allow_incomplete=True))
    assert (manifest.complete, manifest.left_out[0]) == (False, cut_short)
    assert label_of("medevalkit_pmc_vqa") == "medevalkit_pmc_vqa [INCOMPLETE DATA]"


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


SOURCES = {  # by the name of the set where it is recorded: dataset, folder of its source
    "pmc_vqa": ("medevalkit_pmc_vqa", "PMC-VQA"),
    "omnimedvqa": ("medevalkit_omnimedvqa", "OmniMedVQA"),
    "medxpertqa_mm": ("medevalkit_medxpertqa_mm", "MedXpertQA"),
    "medxpertqa_text": ("medevalkit_medxpertqa_text", "MedXpertQA"),
    "mmmu_med_validation": ("medevalkit_mmmu_med_val", "MMMU"),
    "mmmu_med_test": ("medevalkit_mmmu_med_test", "MMMU"),
    "medframeqa": ("medevalkit_medframeqa", "MedFrameQA"),
    "vqa_rad": ("multimedeval_vqa_rad", "vqa-rad"),
    "path_vqa": ("multimedeval_path_vqa", "path-vqa"),
    "slake": ("medevalkit_slake", "SLAKE"),
}


@functools.cache
def recorded(golden):
    lines = (golden / "medevalkit" / "messages.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if not row["reasoning"]]


def seen(manifest, folder, file):
    """Return the beginning of the digest of the pixels that a model sees."""
    return hashlib.sha256(
        decode_image(folder / file, manifest.decoding).pixels.tobytes()
    ).hexdigest()[:16]


def published_target(name, document):
    """Return the answer as MedEvalKit's loader leaves it: the letter of the last option that is exactly the gold."""
    gold = document.get("gold", document.get("answer"))
    equal = [
        place for place, option in enumerate(document.get("options", ())) if option == gold
    ]
    return "ABCD"[equal[-1]] if name == "omnimedvqa" and equal else gold


@pytest.mark.parametrize("name", SOURCES)
def test_golden_medevalkit_datasets(golden, recorded_data, home, name):
    dataset, folder = SOURCES[name]
    source = recorded_data / "medevalkit" / folder
    if not source.is_dir():
        pytest.skip(f"no files in the published format in {source}")
    manifest = prepare(dataset, Options(source, allow_incomplete=True))
    documents, records = (
        load_documents(dataset),
        [case for case in recorded(golden) if case["set"] == name],
    )
    assert len(documents) == len(records)
    for document, case in zip(documents, records, strict=True):
        files = document["image_files"][: 1 if name.startswith("mmmu") else None]
        assert [seen(manifest, home / "datasets" / dataset, file) for file in files] == case[
            "images"
        ]
        assert document["question"] == case.get("question", document["question"])
        assert document["question"] in case["prompt"]
        lines = case.get(
            "choices",
            [f"({letter}) {text}" for letter, text in case.get("index2ans", {}).items()],
        )
        assert list(document.get("option_lines", ())) == lines
        assert published_target(name, document) == (
            None if name == "mmmu_med_test" else case["answer"]
        )
        published = (
            case.get("id", case.get("question_id")),
            case.get("question_type"),
            case.get("medical_task"),
        )
        ours = [document.get(column) for column in ("doc_id", "question_type", "medical_task")]
        assert all(value in (None, own) for value, own in zip(published, ours, strict=True))
        assert document.get("modality") == case.get("modality_type", document.get("modality"))
        assert (document.get("language"), document.get("answer_type")) == (
            case.get("lang"),
            case.get("answer_type"),
        )
