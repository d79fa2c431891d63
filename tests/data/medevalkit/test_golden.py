"""What MedEvalKit's own loaders make of files in the published formats."""

import functools
import hashlib
import json
from pathlib import Path

import pytest

from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents
from medtasks.data.images.decoding import decoded
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options

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
def recorded(golden: Path) -> list[dict]:
    lines = (golden / "medevalkit" / "messages.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if not row["reasoning"]]


def seen(manifest: Manifest, folder: Path, file: str) -> str:
    """Return the beginning of the digest of the pixels that a model sees."""
    return hashlib.sha256(decoded(folder / file, manifest.decoding).pixels.tobytes()).hexdigest()[:16]


def published_target(name: str, document: dict) -> str | None:
    """Return the answer as MedEvalKit's loader leaves it: the letter of the last option that is exactly the gold."""
    gold = document.get("gold", document.get("answer"))
    equal = [place for place, option in enumerate(document.get("options", ())) if option == gold]
    return "ABCD"[equal[-1]] if name == "omnimedvqa" and equal else gold


@pytest.mark.parametrize("name", SOURCES)
def test_golden_medevalkit_datasets(golden, test_data, home, name):
    dataset, folder = SOURCES[name]
    source = test_data / "medevalkit" / folder
    if not source.is_dir():
        pytest.skip(f"no files in the published format in {source}")
    manifest = prepare(dataset, Options(source, allow_incomplete=True))
    documents, rows = load_documents(dataset), [row for row in recorded(golden) if row["set"] == name]
    assert len(documents) == len(rows)
    for document, row in zip(documents, rows, strict=True):
        files = document["image_files"][: 1 if name.startswith("mmmu") else None]
        assert [seen(manifest, home / "datasets" / dataset, file) for file in files] == row["images"]
        assert document["question"] == row.get("question", document["question"])
        assert document["question"] in row["prompt"]
        lines = row.get("choices", [f"({letter}) {text}" for letter, text in row.get("index2ans", {}).items()])
        assert list(document.get("option_lines", ())) == lines
        assert published_target(name, document) == (None if name == "mmmu_med_test" else row["answer"])
        published = (row.get("id", row.get("question_id")), row.get("question_type"), row.get("medical_task"))
        ours = [document.get(column) for column in ("doc_id", "question_type", "medical_task")]
        assert all(value in (None, own) for value, own in zip(published, ours, strict=True))
        assert document.get("modality") == row.get("modality_type", document.get("modality"))
        assert (document.get("language"), document.get("answer_type")) == (row.get("lang"), row.get("answer_type"))
