"""Where the files of MultiMedEval's sources lie, and damages to some of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...damages import Damage

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
VOLUME = "dataset/valid/valid_1/valid_1_a/valid_1_a_1.nii.gz"


def arrays(**new: Any) -> Damage:
    """Replace arrays of OCTMNIST, or (None) leave them out."""

    def run(source: Path) -> None:
        with np.load(source / "octmnist.npz") as known:
            kept = {key: value for key, value in ({**known} | new).items() if value is not None}
        np.savez_compressed(source / "octmnist.npz", **kept)

    return run


def cases(table: Mapping[str, Sequence[Sequence[Any]]]) -> list[Any]:
    """Return a row each: dataset, damage, and the rest."""
    return [(name, damage, rest) for name, damages in table.items() for damage, *rest in damages]
