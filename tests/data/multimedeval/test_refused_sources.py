"""Sources that are refused, whatever loss is accepted: the sentence says which file and row, and what is wrong."""

import gzip

import numpy as np
import pytest

from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options

from ...damages import changed, cut, every_row, lost, row, text, written
from ...multimedeval_sources import put_parquet
from ...tables import each_row
from .published_files import (
    CASES,
    CT,
    DIFF,
    IDS,
    LABELS,
    MEDMCQA,
    MEDNLI,
    MEDQA,
    MMLU,
    NIH,
    NOTES,
    PAD_SPLITS,
    PUBMEDQA,
    RAD,
    SPLIT,
    VINDR,
    arrays,
    cases,
)

pytest.importorskip("pydicom", reason="pydicom is not installed; pip install 'medtasks[dicom]'")


def second_line(line):
    """Write another second line of MedQA's questions."""

    def change(data):
        first, _, *others = data.splitlines()
        return b"\n".join([first, line.encode(), *others])

    return changed(MEDQA, change)


def labels(*values):
    return arrays(test_labels=np.array(values, np.int16)[:, None])


REFUSED = {  # whatever loss is accepted: dataset, damage, parts of the sentence
    "medqa": [
        (row(MEDQA, 5, answer_idx="F"), "row 5: answer_idx is none of the options' keys A, B, C, D, E"),
        (row(MEDQA, 5, answer_idx=2), "row 5: answer_idx is a number and not a text"),
        (row(MEDQA, 5, question=None), "row 5: question is empty and not a text"),
        (row(MEDQA, 5, options={"B": "x", "A": "y"}), "row 5: the options' keys are not A, B, ... in order"),
        (row(MEDQA, 5, options={"A": "x"}), "row 5: the options' keys are not A, B, ... in order"),
        (row(MEDQA, 5, options={"A": "x", "B": 3}), "row 5: an option is no text"),
        (row(MEDQA, 5, options=["x", "y"]), "row 5: options are neither an object nor a list of 'key' and 'value'"),
        (row(MEDQA, 5, options=None), "row 5: options are neither an object nor a list of 'key' and 'value'"),
        (second_line('{"question": '), "test.jsonl row 2 is no JSON (Expecting value: line 1 column 13"),
        (second_line("[1]"), "test.jsonl row 2 is a list and not an object with question, options, answer_idx"),
        (
            second_line('{"question": "?", "choices": 1}'),
            "test.jsonl row 2 lacks 'options', 'answer_idx'; it has choices, question",
        ),
        (second_line("[" * 100_000), "test.jsonl row 2 is no JSON"),
        (
            changed("data_clean.zip", lambda data: data[:60] + b"~~~~" + data[64:]),
            "data_clean.zip cannot be unpacked",
            "download it again",
        ),
        (changed("data_clean.zip", lambda data: data[:-30]), "data_clean.zip cannot be unpacked", "download it again"),
        (
            lambda source: (source / "old.zip").write_bytes((source / "data_clean.zip").read_bytes()),
            "holds both",
            "keep the one that shall be used",
        ),
        (lost("data_clean.zip"), "source holds no med_qa_en_source/test/*.parquet"),
    ],
    "medmcqa": [
        (row(MEDMCQA, 6, cop=-1), "row 6: cop is -1, and the options are 0 to 3"),
        (row(MEDMCQA, 6, cop=4), "row 6: cop is 4, and the options are 0 to 3"),
        (row(MEDMCQA, 6, opd=None), "row 6: opd is empty and not a text"),
        (row(MEDMCQA, 6, id="q1"), "row 6 has the id 'q1' of validation-00000-of-00001.parquet row 2"),
        (
            lambda source: put_parquet(source / MEDMCQA, [{"question": "?", "id": "1"}]),
            "lacks 'opa', 'opb', 'opc', 'opd', 'cop'; it has id, question",
        ),
        (lost(MEDMCQA), "data/validation-*.parquet or dev.json"),
        (changed(MEDMCQA, lambda data: data[:-20]), f"{MEDMCQA} is no whole parquet file; download it again"),
        (
            changed(MEDMCQA, lambda data: data[:4] + b"\xff" * 400 + data[404:]),
            f"{MEDMCQA} is damaged in row group 1; download it again",
        ),
    ],
    "pubmedqa": [
        (row(PUBMEDQA, "4", final_decision="perhaps"), "entry 4: answer is none of yes, no, maybe"),
        (row(PUBMEDQA, "4", final_decision=None), "entry 4: final_decision is empty and not a text"),
        (row(PUBMEDQA, "4", CONTEXTS="one text"), "entry 4: CONTEXTS is a text and not a list of texts"),
        (written(PUBMEDQA, "[]"), "pqal_test_set.json is not an object with one entry per article"),
        (
            written(PUBMEDQA, '{"1": {"QUESTION": "?"}}'),
            "pqal_test_set.json entry 1 lacks 'CONTEXTS', 'final_decision'; it has QUESTION",
        ),
        (written(PUBMEDQA, '{"1": '), "pqal_test_set.json is no JSON"),
        (
            lambda source: put_parquet(
                source / "test" / "0000.parquet", [{"id": "1", "question": "?", "context": "", "answer": [""]}]
            ),
            "0000.parquet row 1: answer is none of yes, no, maybe",
        ),
        (lost("pqal.zip"), "pqal_test_set.json or pqal.zip"),
    ],
    "mmlu": [
        (row(MMLU, 5, answer=4), "test-00000-of-00001.parquet row 5: answer is 4, and the options are 0 to 3"),
        (lost("all"), "all/test-*.parquet"),
    ],
    "mednli": [
        (row(MEDNLI, 5, gold_label="Entailment"), "row 5: gold_label is none of entailment, contradiction, neutral"),
        (row(MEDNLI, 5, gold_label=None), "mli_test_v1.jsonl row 5: gold_label is empty and not a text"),
        (row(MEDNLI, 5, sentence1=["one"]), "mli_test_v1.jsonl row 5: sentence1 is a list and not a text"),
        (row(MEDNLI, 5, pairID="p1"), "mli_test_v1.jsonl row 5 has the id 'p1' of ", "row 2; ids must be unique"),
    ],
    "vqa_rad": [
        (row(RAD, 2, question=None), "row 2: question is empty and not a text"),
        (row(RAD, 2, answer=None), "row 2: answer is empty and not a text"),
        (every_row(RAD, answer=3), "row 1: answer is a number and not a text"),
        (every_row(RAD, image="synpic42202.jpg"), "row 1: image holds no image file"),
        (
            lambda source: put_parquet(source / RAD, [{"picture": b"?", "question": "?", "answer": "!"}]),
            f"{RAD[5:]} lacks 'image'; it has answer, picture, question",
        ),
    ],
    "slake": [
        (cut("imgs.zip", -30), "imgs.zip cannot be unpacked", "download it again"),
        (lost("imgs.zip"), "source holds no imgs.zip and no folder imgs"),
        (lost("test.json"), "source holds no test.json"),
        (written("test.json", "[{]"), "test.json is no JSON (Expecting"),
        (written("test.json", "{}"), "test.json is not a list of questions"),
        (written("test.json", "[3]"), "test.json row 1 is a number and not an object with qid, img_name"),
        (
            written("test.json", '[{"qid": 1}]'),
            "test.json row 1 lacks 'img_name', 'question', 'answer', 'q_lang'; it has qid",
        ),
        (row("test.json", 5, qid="4"), "test.json row 5: qid is a text and not a whole number"),
        (row("test.json", 5, qid=0), "test.json row 5 has the id '0' of test.json row 1; ids must be unique"),
        (row("test.json", 5, q_lang=None), "test.json row 5: q_lang is empty and not a text"),
        (row("test.json", 5, answer=7), "test.json row 5: answer is a number and not a text"),
        (row("test.json", 5, img_name=7), "test.json row 5: img_name is a number and not a text"),
    ],
    "octmnist": [
        (arrays(test_images=None), "octmnist.npz holds no array 'test_images'"),
        (arrays(test_labels=None), "octmnist.npz holds no array 'test_labels'"),
        (
            arrays(test_images=np.zeros((6, 28, 28, 3), np.uint8)),
            "octmnist.npz: test_images is uint8 in the shape (6, 28, 28, 3), expected uint8 in the shape (N, 28, 28)",
        ),
        (arrays(test_images=np.zeros((6, 64, 64), np.uint8)), "test_images is uint8 in the shape (6, 64, 64)"),
        (arrays(test_images=np.zeros((6, 28, 28))), "test_images is float64 in the shape (6, 28, 28)"),
        (
            arrays(test_labels=np.zeros((5, 1), np.uint8)),
            "test_labels is uint8 in the shape (5, 1), expected whole numbers in the shape (6, 1)",
        ),
        (arrays(test_labels=np.zeros((6, 14), np.uint8)), "test_labels is uint8 in the shape (6, 14)"),
        (arrays(test_labels=np.zeros((6, 1))), "test_labels is float64"),
        (arrays(test_labels=np.array([[None]] * 6)), "octmnist.npz is damaged at test_labels"),
        (arrays(test_images=np.uint8(1)), "octmnist.npz is damaged at test_images"),
        (arrays(test_images=np.zeros((0, 28, 28), np.uint8), test_labels=np.zeros((0, 1), int)), "no usable row"),
        (labels(0, 0, 0, -1, 0, 0), "octmnist.npz test row 4: the label is -1 and not one of 0 to 3"),
        (labels(0, 0, 0, 4, 0, 0), "octmnist.npz test row 4: the label is 4 and not one of 0 to 3"),
        (labels(0, 0, 0, 200, 0, 0), "octmnist.npz test row 4: the label is 200 and not one of 0 to 3"),
        (lost("octmnist.npz"), "source holds no octmnist.npz; name the folder that holds it"),
        (written("octmnist.npz", b"no archive at all"), "octmnist.npz is damaged", "File is not a zip file"),
        (cut("octmnist.npz", 9000), "octmnist.npz is damaged at test_images", "download it again"),
    ],
    "pad_ufes_20": [
        (
            text("metadata.csv", "ACK", "XYZ"),
            "metadata.csv row 3: diagnostic is not one of BCC, SCC, ACK, SEK, BOD, MEL, NEV",
        ),
        (
            text("metadata.csv", "PAT_0_1_2.png", "PAT_0_0_0.png"),
            "metadata.csv row 3 has the id 'PAT_0_0_0' of metadata.csv row 1",
        ),
        (text("metadata.csv", "smoke", "smoking"), "metadata.csv lacks 'smoke'; it has"),
        (changed("metadata.csv", lambda data: data + b"\xff\xfe"), "metadata.csv is no UTF-8 text"),
        (lost("metadata.csv"), "holds no metadata.csv"),
    ],
    "pad_ufes_20_disjoint": [
        (
            lost(PAD_SPLITS[1]),
            "split holds no train split of https://huggingface.co/datasets/croyer/",
        ),
    ],
    "vindr_mammo": [
        *(
            (text(VINDR, "BI-RADS 3", grade), f"{VINDR} row 5: finding_birads does not end in a grade from 1 to 5")
            for grade in ("BI-RADS 0", "BI-RADS 6", "unknown")
        ),
        (text(VINDR, "finding_birads", "grade"), f"{VINDR} lacks 'finding_birads'; it has grade"),
        (written(VINDR, ""), f"{VINDR} lacks 'study_id'", "it has nothing"),
        (lost(VINDR), f"holds no {VINDR}"),
    ],
    "cbis_ddsm_mass": [
        (text(CASES, "BENIGN", "MALIGN"), "test_set.csv row 1: the pathology is not one of BENIGN, MALIGNANT, BENIGN_"),
        (
            text(CASES, "case_1/", "case_0/"),
            "mass_case_description_test_set.csv row 2 has the id 'case_0' of mass_case_description_test_set.csv row 1",
        ),
        (lost("csv/dicom_info.csv"), "holds no csv/dicom_info.csv"),
    ],
    "cbis_ddsm_calcification": [
        (lost("csv/calc_case_description_test_set.csv"), "holds no csv/calc_case_description_test_set.csv"),
    ],
    "mimic_cxr_classification": [
        (text(LABELS, "1.0,-1.0", "1.0,0.5"), f"{LABELS} row 1: the label of Cardiomegaly is not"),
        (text(LABELS, "Edema", "Oedema"), f"{LABELS} lacks 'Edema'"),
        (lost(LABELS), "holds no mimic-cxr-2.0.0-chexpert.csv"),
    ],
    "diff_vqa": [(text(DIFF, "what is 0?,no,", "what is 0?,,"), f"{DIFF} row 1: answer is empty")],
    "chestxray14": [
        (text(NIH, "Nodule", "Lump"), f"{NIH} row 6: unknown finding 'Lump'; known: "),
        (text(NIH, "Nodule", "No Finding"), f"{NIH} row 6: 'No Finding' stands beside findings"),
        (lost("test_list.txt"), "holds no test_list.txt"),
    ],
    "mimic_cxr_report": [
        (written("mimic-cxr-reports.zip", b"PK\x03\x04 cut"), "reports.zip cannot be unpacked", "download it again"),
        (
            lost("mimic-cxr-reports.zip"),
            "no usable row in the source",
            "mimic-cxr-reports.zip of MIMIC-CXR has it",
        ),
        (changed(SPLIT, lambda data: data.splitlines(True)[0]), "no usable row in the source ("),
        (lost(SPLIT), "holds no mimic-cxr-2.0.0-split.csv"),
        *(
            (
                changed(SPLIT, lambda data, line=line: data + line),
                "row 17: its image stands in an earlier row, or its study belongs to two patients",
            )
            for line in (b"d0,0,10000000,test\n", b"d9,0,10000001,test\n")
        ),
    ],
    "mimic_iii_summary": [
        (written(IDS, "ids\n901\nseven\n"), "idsTest.csv row 2: ids is no whole number"),
        (written(IDS, "901\n"), "idsTest.csv lacks 'ids'"),
        (written(IDS, "ids\n"), "no usable row in the source"),
        (
            text(NOTES, "901,", "900,"),
            f"{NOTES} row 2 has the id '900' of {NOTES} row 1; ids must be unique",
        ),
        (cut(NOTES, -20), f"{NOTES} cannot be unpacked", "download it again"),
        (written(NOTES, b"no gzip"), f"{NOTES} cannot be unpacked"),
        (written(NOTES, gzip.compress(b"ROW_ID,TEXT\n")), f"{NOTES} lacks 'SUBJECT_ID', 'DESCRIPTION'"),
        (lost(NOTES), "holds no NOTEEVENTS.csv"),
        (lost(IDS), f"holds no {IDS}", "https://huggingface.co/datasets/croyer/MIMIC-III-split"),
    ],
    "ct_rate_report": [
        (text(CT, "valid_1_a", "valid_0_a"), "row 2 has the id 'valid_0_a_1' of validation_reports.csv row 1"),
        (
            text(CT, "valid_1_a_1.nii.gz", "../../etc/passwd"),
            "row 2: VolumeName is not of the form valid_1_a_1.nii.gz",
        ),
        (text(CT, "Findings_EN", "Findings"), "validation_reports.csv lacks 'Findings_EN'"),
        (lost(CT), f"holds no {CT.removeprefix('dataset/')}"),
    ],
}


@each_row("name, damage, parts", cases(REFUSED))
def test_what_is_refused(source, complains, name, damage, parts):
    folder = source(name)
    damage(folder)
    complains(name, folder, *parts)


AGREEMENT, PERSON = "needs credentials", "has to be downloaded by a person at "
PHYSIONET = "https://physionet.org/content"


@each_row(
    "name, parts",
    [
        ("ct_rate_report", [f"{PERSON}https://huggingface.co/datasets/ibrahimhamamci/CT-RATE"]),
        ("mednli", [AGREEMENT, f"{PHYSIONET}/mednli/1.0.0/", "PhysioNet's mednli zip archive"]),
        ("mimic_cxr_report", [AGREEMENT, f"{PHYSIONET}/mimic-cxr/2.0.0/", "mimic-cxr-reports.zip"]),
        ("mimic_iii_summary", [AGREEMENT, f"{PHYSIONET}/mimiciii/1.4/", "idsTest.csv"]),
        ("vindr_mammo", [AGREEMENT, f"{PHYSIONET}/vindr-mammo/1.0.0/", "finding_annotations.csv"]),
    ],
)
def test_how_to_get_it(home, refuses, name, parts):
    with refuses(*parts):
        prepare(f"multimedeval_{name}", Options())
