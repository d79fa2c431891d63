"""What rows of each set become."""

import json

from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare, verify
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.schema import KIT_CHOICE, KIT_QUESTION
from medtasks.data.sources.medevalkit import FLAGS, SUBJECTS
from medtasks.data.variants import rotated

from ...damages import row
from ...multimedeval_sources import put
from ...tables import each_row
from ...tiny_medevalkit import SETS, put_source


@each_row("name", SETS)
def test_every_set_prepares_as_its_source_says(home, tmp_path, name):
    manifest = prepare(name, Options(put_source(name, tmp_path), allow_incomplete=True))
    documents = load_documents(name)
    assert list(verify(name)) == []
    assert (manifest.rows, manifest.access) == (len(documents), "public")
    assert set(documents[0]) == set(KIT_QUESTION if "slake" in name else KIT_CHOICE)
    ids = [document["doc_id"] for document in documents]
    assert len(set(ids)) == len(ids)
    for document in documents:
        assert set(document.get("flags", ())) <= set(FLAGS)
        assert bool(document["image_id"]) is (name != "medevalkit_medxpertqa_text")
        lines, options = document.get("option_lines", ()), document.get("options", ())
        assert len(lines) == len(options)
        assert all(option in line for option, line in zip(options, lines, strict=True))


def test_pmc_vqa(source, prepared):
    _, documents = prepared("pmc_vqa", source("pmc_vqa"))
    assert documents[1]["option_lines"] == [" A: T: testes ", " C: Inner ", " C: Blue", " D: None "]
    assert documents[1]["options"] == ["T: testes", "Inner", "Blue", "None"]
    assert documents[0]["options"][1] == "White: pale"
    assert [document["answer"] for document in documents] == list("ABCDAB")
    assert documents[2]["question"] == " Which one?\nChoose."
    assert [document["doc_id"] for document in documents[:2]] == ["test_2/0", "test_2/1"]


def test_the_text_of_an_answer_that_is_not_that_of_its_letter_is_remarked(source, prepared):
    manifest, documents = prepared("pmc_vqa_clean", source("pmc_vqa_clean"))
    assert [(one["answer"], one["gold"], one["flags"]) for one in documents[2:]] == [
        ("C", "C", []),
        ("D", "D", ["other_answer_text"]),
    ]
    (remark,) = [note for note in manifest.left_out if "letter" in note]
    assert remark == "the text of the answer of 1 row (the published letter is that of another option and counts)"


def test_omnimedvqa(source, prepared):
    manifest, documents = prepared("omnimedvqa", source("omnimedvqa"))
    assert [(one["part"], one["answer"], one["gold"], one["flags"]) for one in documents] == [
        ("Chest CT Scan", "A", "CT", ["no_modality_type"]),
        ("Chest CT Scan", "B", "MR", ["repeated_gold", "no_modality_type"]),
        ("Chest CT Scan", "A", "CT", ["no_modality_type"]),
        ("Mura", "A", "CT ", ["inexact_gold"]),
        ("Mura", None, "X-ray", ["no_such_gold"]),
        ("Mura", "A", "CT", []),
    ]
    assert documents[5]["option_lines"] == ["A. CT", "B. MR"]
    assert {(one["part"], one["modality"]) for one in documents} == {
        ("Chest CT Scan", "CT(Computed Tomography)"),
        ("Mura", "X-Ray"),
    }
    assert documents[0]["image_id"] == documents[1]["image_id"] != documents[2]["image_id"]
    assert manifest.left_out == (
        "the source holds 6 rows, the evaluated set 88996",
        "the right option of 1 row (the published answer is none of the options)",
    )


def test_ids_that_omnimedvqa_gives_twice_and_options_that_are_null_or_missing(source, prepared):
    folder = source("omnimedvqa")
    path = folder / "QA_information/Open-access/Mura.json"
    rows = json.loads(path.read_bytes())
    rows[1] |= {"question_id": rows[0]["question_id"], "option_D": None}
    rows[2] = {name: value for name, value in {**rows[0], "question_id": "x"}.items() if name != "option_B"}
    put(path, json.dumps([*rows, {**rows[0], "question_id": "y", "option_B": None}]))
    manifest, documents = prepared("omnimedvqa", folder)
    assert [one["doc_id"] for one in documents[3:]] == ["Mura_0000", "Mura_0000 (2)"]
    assert documents[4]["flags"] == ["null_option", "no_such_gold"]
    assert documents[4]["option_lines"] == [*documents[3]["option_lines"][:-1], "D. None"]
    assert documents[4]["options"] == documents[3]["options"][:-1]
    turned = rotated([{**documents[4], "answer": "A"}])[1]["option_lines"]
    assert [line[:2] for line in turned] == ["A.", "B.", "C.", "D."]
    assert turned[-1] == "D. None"
    assert manifest.left_out[:2] == tuple(
        f"Mura.json row {number}: it has no option B and one behind it" for number in (3, 4)
    )


def test_omnimedvqa_as_vlmevalkit_evaluates_it(prepared, tmp_path, refuses):
    folder = put_source("medevalkit_omnimedvqa_vlmevalkit", tmp_path)
    _, documents = prepared("omnimedvqa_vlmevalkit", folder)
    assert [document["part"] for document in documents[::2]] == [f"part_{number}" for number in range(1, 15)]
    assert [document["doc_id"] for document in documents[:3]] == ["part_1/1", "part_1/101", "part_2/2"]
    assert documents[0]["image_id"] == documents[1]["image_id"] != documents[2]["image_id"]
    assert (documents[0]["option_lines"], documents[0]["answer"]) == (["A. CT", "B. MR"], "B")
    (folder / "part_7.tsv").unlink()
    with refuses("holds no part_7.tsv"):
        prepare("medevalkit_omnimedvqa_vlmevalkit", Options(folder))


def test_medxpertqa(source, prepared):
    folder = source("medxpertqa_mm")
    row("MM/test.jsonl", 1, images=["MM-0-0.jpeg"] * 2)(folder)
    twice, *_, last = prepared("medxpertqa_mm", folder)[1]
    assert len(twice["image_files"]) == 2
    assert len(set(twice["image_files"])) == 1
    assert (len(last["image_files"]), last["answer"], last["medical_task"], last["body_system"]) == (
        *(4, "D", "Treatment"),
        "Skeletal",
    )
    assert last["question"].endswith("(E) drug E3")
    text = prepared("medxpertqa_text", folder)[1][0]
    assert (len(text["options"]), text["option_lines"][9]) == (10, "J. drug J0")


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
    assert (written["options"], written["answer"], written["gold"]) == ([], None, "['2', 'two']")
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


def test_slake_and_its_english_part(home, source, prepared):
    manifest, english = prepared("slake_en", source("slake"))
    whole = load_documents("medevalkit_slake")
    assert [document["language"] for document in whole] == ["en", "zh"] * 4
    assert english == [document for document in whole if document["language"] == "en"]
    assert (manifest.selected_from, manifest.selection) == ("medevalkit_slake", {"language": ("en",)})
    assert manifest.images == 4
    assert not (home / "datasets/medevalkit_slake_en/images").exists()
    assert (whole[3]["answer"], whole[3]["answer_type"], whole[3]["location"]) == ("不是", "CLOSED", "Abdomen")


def test_a_part_prepares_the_whole_again_only_from_another_source(source, prepared, tmp_path):
    prepared("slake_en", source("slake"))
    before = prepare("medevalkit_slake_en", Options())  # the whole is there
    other = put_source("medevalkit_slake", tmp_path / "other")
    rows = [{**row, "question": "Why?"} for row in json.loads((other / "test.json").read_bytes())]
    put(other / "test.json", json.dumps(rows))
    manifest, documents = prepared("slake_en", other)
    assert {document["question"] for document in documents} == {"Why?"}
    assert manifest.text_sha256 != before.text_sha256


@each_row("name", ["pmc_vqa", "omnimedvqa", "mmmu_med_val", "medframeqa"])
def test_rotated_option_lines_keep_their_form(source, prepared, name):
    _, documents = prepared(name, source(name))
    by_id = {document["doc_id"]: document for document in documents}
    turned = rotated(documents)
    assert len(turned) == sum(len(document["options"]) for document in documents if document["answer"])
    for document in turned:
        original = by_id[document["rotation_of"]]
        right = document["options"]["ABCD".index(document["answer"])]
        assert right == original["options"]["ABCD".index(original["answer"])]
        assert document["rotation"] or document["option_lines"] == original["option_lines"]
        for place, (line, option) in enumerate(zip(document["option_lines"], document["options"], strict=True)):
            assert line.rstrip().endswith(option.rstrip())
            assert not document["rotation"] or line.lstrip(" (").startswith("ABCD"[place])
        assert name == "omnimedvqa" or document["gold"].strip() == document["answer"]  # there it is a text
