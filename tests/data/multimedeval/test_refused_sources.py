"""Sources that are refused, whatever loss is accepted: the sentence says which file and row, and what is wrong."""

import numpy as np
import pytest

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
        (row(MEDQA, 5, options={"B": "x", "A": "y"}), "row 5: the options' keys are not A, B, ... in order"),
        (row(MEDQA, 5, options={"A": "x", "B": 3}), "row 5: an option is no text"),
        (row(MEDQA, 5, options=["x", "y"]), "row 5: options are neither an object nor a list of 'key' and 'value'"),
        (second_line('{"question": '), "test.jsonl row 2 is no JSON (Expecting value: line 1 column 13"),
        (
            second_line('{"question": "?", "choices": 1}'),
            "test.jsonl row 2 lacks 'options', 'answer_idx'; it has choices, question",
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
        (row(MEDMCQA, 6, cop=4), "row 6: cop is 4, and the options are 0 to 3"),
        (lost(MEDMCQA), "data/validation-*.parquet or dev.json"),
        (changed(MEDMCQA, lambda data: data[:-20]), f"{MEDMCQA} is no whole parquet file; download it again"),
        (
            changed(MEDMCQA, lambda data: data[:4] + b"\xff" * 400 + data[404:]),
            f"{MEDMCQA} is damaged in row group 1; download it again",
        ),
    ],
    "pubmedqa": [
        (row(PUBMEDQA, "4", final_decision="perhaps"), "entry 4: answer is none of yes, no, maybe"),
        (row(PUBMEDQA, "4", CONTEXTS="one text"), "entry 4: CONTEXTS is a text and not a list of texts"),
        (written(PUBMEDQA, "[]"), "pqal_test_set.json is not an object with one entry per article"),
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
        (row(MEDNLI, 5, gold_label="Entailment"), "row 5: gold_label is none of entailment, contradiction, neutral")
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
            "octmnist.npz: test_images is uint8 in the shape (6, 28, 28, 3), expected uint8 in the shape (N, 28, 28)",
        ),
        (arrays(test_images=np.zeros((6, 28, 28))), "test_images is float64 in the shape (6, 28, 28)"),
        (
            arrays(test_labels=np.zeros((5, 1), np.uint8)),
            "test_labels is uint8 in the shape (5, 1), expected whole numbers in the shape (6, 1)",
        ),
        (arrays(test_labels=np.array([[None]] * 6)), "octmnist.npz is damaged at test_labels"),
        (arrays(test_images=np.zeros((0, 28, 28), np.uint8), test_labels=np.zeros((0, 1), int)), "no usable row"),
        (labels(0, 0, 0, -1, 0, 0), "octmnist.npz test row 4: the label is -1 and not one of 0 to 3"),
        (labels(0, 0, 0, 4, 0, 0), "octmnist.npz test row 4: the label is 4 and not one of 0 to 3"),
        (lost("octmnist.npz"), "source holds no octmnist.npz; name the folder that holds it"),
        (cut("octmnist.npz", 9000), "octmnist.npz is damaged at test_images", "download it again"),
    ],
    "pad_ufes_20": [
        (
            text("metadata.csv", "ACK", "XYZ"),
            "metadata.csv row 3: diagnostic is not one of BCC, SCC, ACK, SEK, BOD, MEL, NEV",
        )
    ],
    "pad_ufes_20_disjoint": [
        (lost(PAD_SPLITS[1]), "split holds no train split of https://huggingface.co/datasets/croyer/")
    ],
    "vindr_mammo": [
        *(
            (text(VINDR, "BI-RADS 3", grade), f"{VINDR} row 5: finding_birads does not end in a grade from 1 to 5")
            for grade in ("BI-RADS 0", "BI-RADS 6")
        )
    ],
    "cbis_ddsm_mass": [
        (text(CASES, "BENIGN", "MALIGN"), "test_set.csv row 1: the pathology is not one of BENIGN, MALIGNANT, BENIGN_"),
        (lost("csv/dicom_info.csv"), "holds no csv/dicom_info.csv"),
    ],
    "cbis_ddsm_calcification": [],
    "mimic_cxr_classification": [
        (text(LABELS, "1.0,-1.0", "1.0,0.5"), f"{LABELS} row 1: the label of Cardiomegaly is not")
    ],
    "diff_vqa": [(text(DIFF, "what is 0?,no,", "what is 0?,,"), f"{DIFF} row 1: answer is empty")],
    "chestxray14": [
        (text(NIH, "Nodule", "Lump"), f"{NIH} row 6: unknown finding 'Lump'; known: "),
        (text(NIH, "Nodule", "No Finding"), f"{NIH} row 6: 'No Finding' stands beside findings"),
    ],
    "mimic_cxr_report": [
        (written("mimic-cxr-reports.zip", b"PK\x03\x04 cut"), "reports.zip cannot be unpacked", "download it again"),
        (lost("mimic-cxr-reports.zip"), "no usable row in the source", "mimic-cxr-reports.zip of MIMIC-CXR has it"),
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
        (cut(NOTES, -20), f"{NOTES} cannot be unpacked", "download it again"),
        (lost(NOTES), "holds no NOTEEVENTS.csv"),
        (lost(IDS), f"holds no {IDS}", "https://huggingface.co/datasets/croyer/MIMIC-III-split"),
    ],
    "ct_rate_report": [
        (text(CT, "valid_1_a_1.nii.gz", "../../etc/passwd"), "row 2: VolumeName is not of the form valid_1_a_1.nii.gz")
    ],
}


@each_row("name, damage, parts", cases(REFUSED))
def test_what_is_refused(source, complains, name, damage, parts):
    folder = source(name)
    damage(folder)
    complains(name, folder, *parts)
