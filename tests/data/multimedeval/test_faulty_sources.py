"""Faults of MultiMedEval's sources: each stops in one sentence, or leaves rows out on request."""

import shutil

import numpy as np
import pytest

from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.errors import SourceError

from ...damages import arrays, both, changed, cut, every_row, lost, row, text, written
from ...multimedeval_sources import picture
from ...tables import each_row

pytest.importorskip("pydicom", reason="pydicom is not installed; pip install 'medtasks[dicom]'")

MEDQA = "data_clean.zip!data_clean/questions/US/test.jsonl"
MEDMCQA = "data/validation-00000-of-00001.parquet"
MEDNLI_FOLDER = "mednli-a-natural-language-inference-dataset-for-the-clinical-domain-1.0.0"
MEDNLI = f"{MEDNLI_FOLDER}.zip!{MEDNLI_FOLDER}/mli_test_v1.jsonl"
PUBMEDQA = "pqal.zip!pqal_test_set.json"
MMLU = "all/test-00000-of-00001.parquet"
RAD = "data/test-00000-of-00001-e5bc3d208bb4deeb.parquet"
SPLIT, LABELS = "mimic-cxr-2.0.0-split.csv.gz", "mimic-cxr-2.0.0-chexpert.csv.gz"
CASES = "csv/mass_case_description_test_set.csv"
PAD_SPLITS = [f"split/data/{split}-00000-of-00001.parquet" for split in ("test", "train")]
VINDR, NIH, DIFF = "finding_annotations.csv", "Data_Entry_2017.csv", "mimic_pair_questions.csv"
NOTES, IDS = "NOTEEVENTS.csv.gz", "split/idsTest.csv"
CT = "dataset/radiology_text_reports/validation_reports.csv"
REPORT = "mimic-cxr-reports.zip!files/p10/p10000001/s1.txt"
XMLAB = "imgs.zip!imgs/xmlab{}/source.jpg"


def cases(table):
    return [
        (name, damage, rest) for name, damages in table.items() for damage, *rest in damages
    ]


def second_line(line):
    """Write another second line of MedQA's questions."""

    def change(data):
        first, _, *others = data.splitlines()
        return b"\n".join([first, line.encode(), *others])

    return changed(MEDQA, change)


def labels(*values):
    return arrays(test_labels=np.array(values, np.int16)[:, None])


def flipped(file, member):
    """Damage the bytes of a member where it lies in its archive."""

    def change(data):
        start = data.index(member.encode()) + len(member)
        return data[:start] + b"~" * 8 + data[start + 8 :]

    return changed(file, change)


REFUSED = {  # whatever loss is accepted: dataset, damage, parts of the sentence
    "medqa": [
        (
            row(MEDQA, 5, answer_idx="F"),
            "row 5: answer_idx is none of the options' keys A, B, C, D, E",
        ),
        (
            row(MEDQA, 5, options={"B": "x", "A": "y"}),
            "row 5: the options' keys are not A, B, ... in order",
        ),
        (row(MEDQA, 5, options={"A": "x", "B": 3}), "row 5: an option is no text"),
        (row(MEDQA, 5, options=["x", "y"]), "row 5: options are no object"),
        (
            second_line('{"question": '),
            "test.jsonl row 2 is no JSON (Expecting value: line 1 column 13",
        ),
        (
            second_line('{"question": "?", "choices": 1}'),
            "jsonl row 2 lacks 'options', 'answer_idx'; it has choices, ",
        ),
        (
            changed("data_clean.zip", lambda data: data[:-30]),
            "data_clean.zip cannot be unpacked",
            "download it again",
        ),
        (
            lambda source: shutil.copy(source / "data_clean.zip", source / "old.zip"),
            "holds both",
            "keep the one that",
        ),
        (lost("data_clean.zip"), "source holds no data_clean.zip"),
    ],
    "medmcqa": [
        (row(MEDMCQA, 6, cop=4), "row 6: cop is 4, and the options are 0 to 3"),
        (lost(MEDMCQA), "source holds no data/validation-*.parquet"),
        (
            changed(MEDMCQA, lambda data: data[:-20]),
            f"{MEDMCQA} is no whole parquet file; download it again",
        ),
        (
            changed(MEDMCQA, lambda data: data[:4] + b"\xff" * 400 + data[404:]),
            "is damaged in row group 1; download",
        ),
    ],
    "pubmedqa": [
        (
            row(PUBMEDQA, "4", final_decision="perhaps"),
            "entry 4: final_decision is none of yes, no, maybe",
        ),
        (
            row(PUBMEDQA, "4", CONTEXTS="one text"),
            "entry 4: CONTEXTS is a text and not a list of texts",
        ),
        (
            written(PUBMEDQA, "[]"),
            "pqal_test_set.json is not an object with one entry per article",
        ),
    ],
    "mednli": [
        (
            row(MEDNLI, 5, gold_label="Entailment"),
            "row 5: gold_label is none of entailment, contradiction, neutral",
        )
    ],
    "vqa_rad": [(every_row(RAD, image="synpic42202.jpg"), "row 1: image holds no image file")],
    "slake": [
        (lost("imgs.zip"), "source holds no imgs.zip and no folder imgs"),
        (lost("test.json"), "source holds no test.json"),
        (written("test.json", "{}"), "test.json is not a list of questions"),
        (row("test.json", 5, qid="4"), "test.json row 5: qid is a text and not a whole number"),
        (row("test.json", 5, q_lang=None), "test.json row 5: q_lang is empty and not a text"),
    ],
    "octmnist": [
        (arrays(test_images=None), "octmnist.npz holds no array 'test_images'"),
        (
            arrays(test_images=np.zeros((6, 28, 28, 3), np.uint8)),
            "(6, 28, 28, 3), expected uint8 in the shape (N, 28, ",
        ),
        (
            arrays(test_images=np.zeros((6, 28, 28))),
            "test_images is float64 in the shape (6, 28, 28)",
        ),
        (
            arrays(test_labels=np.zeros((5, 1), np.uint8)),
            "shape (5, 1), expected whole numbers in the shape (6, 1)",
        ),
        (arrays(test_labels=np.array([[None]] * 6)), "octmnist.npz is damaged at test_labels"),
        (
            arrays(
                test_images=np.zeros((0, 28, 28), np.uint8), test_labels=np.zeros((0, 1), int)
            ),
            "no usable row",
        ),
        (
            labels(0, 0, 0, -1, 0, 0),
            "octmnist.npz test row 4: the label is -1 and not one of 0 to 3",
        ),
        (
            labels(0, 0, 0, 4, 0, 0),
            "octmnist.npz test row 4: the label is 4 and not one of 0 to 3",
        ),
        (lost("octmnist.npz"), "source holds no octmnist.npz; name the folder that holds it"),
        (
            cut("octmnist.npz", 9000),
            "octmnist.npz is damaged at test_images",
            "download it again",
        ),
    ],
    "pad_ufes_20": [
        (
            text("metadata.csv", "ACK", "XYZ"),
            "metadata.csv row 3: diagnostic is not one of BCC, SCC, ",
        )
    ],
    "pad_ufes_20_disjoint": [(lost(PAD_SPLITS[1]), "split holds no data/train-*.parquet")],
    "vindr_mammo": [
        (
            text(VINDR, "BI-RADS 3", grade),
            f"{VINDR} row 5: finding_birads does not end in a grade from 1 to 5",
        )
        for grade in ("BI-RADS 0", "BI-RADS 6")
    ],
    "cbis_ddsm_mass": [
        (
            text(CASES, "BENIGN", "MALIGN"),
            "test_set.csv row 1: the pathology is not one of BENIGN, MALIGNANT, BENIGN_",
        ),
        (lost("csv/dicom_info.csv"), "holds no csv/dicom_info.csv"),
    ],
    "mimic_cxr_classification": [
        (
            text(LABELS, "1.0,-1.0", "1.0,0.5"),
            f"{LABELS} row 1: the label of Cardiomegaly is not",
        )
    ],
    "diff_vqa": [
        (text(DIFF, "what is 0?,no,", "what is 0?,,"), f"{DIFF} row 1: answer is empty")
    ],
    "chestxray14": [
        (text(NIH, "Nodule", "Lump"), f"{NIH} row 6: unknown finding 'Lump'; known: "),
        (
            text(NIH, "Nodule", "No Finding"),
            f"{NIH} row 6: 'No Finding' stands beside findings",
        ),
    ],
    "mimic_cxr_report": [
        (
            written("mimic-cxr-reports.zip", b"PK\x03\x04 cut"),
            "reports.zip cannot be unpacked",
            "download it again",
        ),
        (
            lost("mimic-cxr-reports.zip"),
            "no usable row in the source",
            "mimic-cxr-reports.zip of MIMIC-CXR has it",
        ),
        (
            changed(SPLIT, lambda data: data + b"d0,0,10000000,test\n"),
            "row 17: its image stands in an earlier row, or",
        ),
        (
            changed(SPLIT, lambda data: data + b"d9,0,10000001,test\n"),
            "row 17: its image stands in an earlier row, or",
        ),
    ],
    "mimic_iii_summary": [
        (written(IDS, "ids\n901\nseven\n"), "idsTest.csv row 2: ids is no whole number"),
        (cut(NOTES, -20), f"{NOTES} cannot be unpacked", "download it again"),
        (lost(NOTES), "holds no NOTEEVENTS.csv"),
        (
            lost(IDS),
            f"holds no {IDS}",
            "https://huggingface.co/datasets/croyer/MIMIC-III-split",
        ),
    ],
    "ct_rate_report": [
        (
            text(CT, "valid_1_a_1.nii.gz", "../../etc/passwd"),
            "row 2: VolumeName is not of the form valid_1_a_1.nii.gz",
        )
    ],
}
LEFT_OUT = {  # dataset, damage, documents that remain, notes on the others
    "slake": [
        (
            *(
                both(lost(XMLAB.format(1)), changed(XMLAB.format(2), lambda data: data[:-30])),
                4,
            ),
            *(
                "row 3: its image xmlab1/source.jpg is missing",
                "row 5: its image xmlab2/source.jpg is broken (",
            ),
        )
    ],
    "vqa_rad": [
        (
            row(RAD, 4, image={"bytes": picture(1)[:-40], "path": None}),
            5,
            f"{RAD[5:]} row 4: its image is broken (",
        ),
        (row(RAD, 4, image=None), 5, f"{RAD[5:]} row 4: it has no image"),
    ],
    "pad_ufes_20": [
        (
            lost("imgs_part_2.zip!imgs_part_2/PAT_1_2_4.png"),
            15,
            "row 5: its image PAT_1_2_4.png is missing",
        ),
        (
            flipped("imgs_part_3.zip", "imgs_part_3/PAT_0_1_2.png"),
            15,
            "row 3: its image PAT_0_1_2.png is broken (",
        ),
    ],
    "vindr_mammo": [
        (
            lost("images/s0/i1.dicom"),
            5,
            f"{VINDR} row 3: its image images/s0/i1.dicom is missing",
        )
    ],
    "cbis_ddsm_mass": [
        (
            text(CASES, "1.3.3/", "1.3.99/"),
            5,
            "row 4: dicom_info.csv has no image of its series 1.3.99",
        )
    ],
    "mimic_cxr_classification": [
        (
            lost("files/p10/p10000001/s1/d3.jpg"),
            5,
            f"{LABELS} row 2: its image files/p10/p10000001/s1/d3.jpg is m",
        ),
        (
            text(LABELS, "10000001,1,", "10000001,9,"),
            4,
            "row 3: the findings table has no row for its study",
            "row 4: the ",
        ),
    ],
    "diff_vqa": [
        (
            lost(*(f"files/p10/p10000000/s0/d{n}.jpg" for n in (0, 1))),
            4,
            "row 1: its study s0 has no images",
            "row 2: its ",
        )
    ],
    "chestxray14": [
        (
            written("images_002/images/00000003_000.png", b"\x89PNG cut"),
            5,
            "row 4: its image 00000003_000.png is b",
        )
    ],
    "mimic_cxr_report": [
        (
            lost("files/p10/p10000001/s1/d3.jpg"),
            2,
            f"{SPLIT} row 3: its image 2 of 2 is missing",
        ),
        (
            written(REPORT, b" x\n FINDINGS: caf\xe9\n"),
            2,
            f"{SPLIT} row 3: the report of its study is no UTF-8 text",
        ),
        (
            lost(REPORT),
            2,
            f"{SPLIT} row 3: the report of its study is missing (mimic-cxr-reports.zip of MIMIC-CXR",
        ),
    ],
    "mimic_iii_summary": [
        (text(IDS, "903", "999"), 5, f"idsTest.csv row 4: its note is not in {NOTES}")
    ],
    "ct_rate_report": [
        (
            text(CT, '"Nodule\n1."', " "),
            5,
            "validation_reports.csv row 2: its report has no findings",
        )
    ],
}


@each_row("name, damage, parts", cases(REFUSED))
def test_what_is_refused(source, complains, name, damage, parts):
    folder = source(name)
    damage(folder)
    complains(name, folder, *parts)


@each_row("name, damage, expected", cases(LEFT_OUT))
def test_what_is_left_out_on_request_only(source, complains, prepared, name, damage, expected):
    folder = source(name)
    damage(folder)
    rows, *sentences = expected
    complains(name, folder, *sentences, "--allow-incomplete", allow_incomplete=False)
    manifest, documents, _ = prepared(name, folder)
    assert (len(documents), manifest.complete) == (rows, False)
    notes = [note for note in manifest.left_out if " not in the evaluated set: " not in note]
    assert all(sentence in note for note, sentence in zip(notes, sentences, strict=False))
    assert not any(": its " in note for note in notes[len(sentences) :])


@each_row(
    "name, damage, file",
    [
        ("mednli", row(MEDNLI, 2, sentence2=["Drawn secret"]), "mli_test_v1.jsonl row 2"),
        (
            "mednli",
            changed(MEDNLI, lambda data: data.splitlines(True)[0] + b'["Drawn secret"]'),
            "v1.jsonl row 2",
        ),
        ("vindr_mammo", text(VINDR, "BI-RADS 1", "secret 9"), f"{VINDR} row 1"),
    ],
)
def test_a_complaint_never_quotes_a_patients_record(source, home, name, damage, file):
    folder = source(name)
    damage(folder)
    with pytest.raises(SourceError, match=file) as caught:
        prepare(f"multimedeval_{name}", Options(folder))
    assert "secret" not in str(caught.value)


@each_row(
    "name, damage, cause",
    [
        (
            "medqa",
            lost("data_clean.zip!data_clean/questions/US/train.jsonl"),
            "{source} holds no ",
        ),
        (
            "vqa_rad",
            row(RAD.replace("test", "train"), 5, image=None),
            f"{RAD[5:].replace('test', 'train')} row 5: ",
        ),
        ("pad_ufes_20", lost(*PAD_SPLITS), "{source}/split holds no data/test-*.parquet"),
    ],
)
def test_a_broken_training_split_costs_only_the_demonstrations(
    source, prepared, name, damage, cause
):
    folder = source(name)
    damage(folder)
    manifest, documents, shots = prepared(name, folder)
    assert (len(documents), shots) == (16 if name == "pad_ufes_20" else 6, [])
    assert manifest.left_out[-1].startswith(
        f"no few-shot demonstrations: {cause.format(source=folder)}"
    )


@each_row(
    "name, written, sentence",
    [
        ("empty/x", "", "{tmp_path}/empty holds no data_clean.zip"),
        (
            "notes.txt",
            "no data",
            "{tmp_path}/notes.txt is no folder and no zip archive and holds no",
        ),
        ("nowhere", None, "{tmp_path}/nowhere does not exist; give the path of data_clean.zip"),
    ],
)
def test_a_source_that_is_none(tmp_path, complains, name, written, sentence):
    if written is not None:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(written)
    complains("medqa", tmp_path / name.removesuffix("/x"), sentence.format(tmp_path=tmp_path))
