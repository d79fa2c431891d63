"""Multiple-choice question sets without images: MedQA, MedMCQA, PubMedQA, MMLU, and inferences: MedNLI.

Splits, subsets and order are those MultiMedEval evaluates (``multimedeval/qa.py`` and ``mednli.py`` at d9ac283).

The reference takes MedNLI's options from the gold labels in the order they occur. Its rule asks whether exactly one
option occurs in the reply, so that the order has no effect; here it is fixed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from medtasks.data.catalogue import dataset_info
from medtasks.data.image_store import ImageStore
from medtasks.data.preparation import Recipe, Row, Tables
from medtasks.data.samples import letter
from medtasks.data.schema import CHOICE, choice_document
from medtasks.data.source_files import required_file
from medtasks.data.tables import JsonLinesTable, RecordTable, SourceRow, Table, hub_table, read_json, required_hub_table
from medtasks.errors import SourceError

YES_NO_MAYBE = ("yes", "no", "maybe")
RELATIONS = ("entailment", "contradiction", "neutral")
MMLU_SUBJECTS = frozenset(
    {
        "anatomy",
        "clinical_knowledge",
        "college_biology",
        "college_medicine",
        "medical_genetics",
        "professional_medicine",
    }
)

_MEDMCQA_OPTIONS = ("opa", "opb", "opc", "opd")


def _answer_index(row: SourceRow, column: str, options: int) -> int:
    value = row.integer(column)
    if not 0 <= value < options:
        raise row.error(f"{column} is {value}, and the options are 0 to {options - 1}")
    return value


def _medqa_table(source: Path, split: str) -> Table:
    columns = ("question", "options", "answer_idx")
    if (table := hub_table(source, split, "med_qa_en_source", columns)) is not None:
        return table
    inside = f"questions/US/{split}.jsonl"
    names = [f"data_clean/{inside}", inside, f"US/{split}.jsonl", f"{split}.jsonl", f"*.zip!*{inside}"]
    wanted = f"med_qa_en_source/{split}/*.parquet, US/{split}.jsonl or data_clean.zip"
    return JsonLinesTable(required_file(source, names, wanted), columns)


def _medqa(row: SourceRow, split: str) -> dict[str, Any]:
    keys, options = _keyed_options(row)
    key = row.text("answer_idx")
    if key not in keys:
        raise row.error(f"answer_idx is none of the options' keys {', '.join(keys)}")
    return choice_document(f"{split}/{row.index}", row.text("question"), options, keys.index(key))


def _keyed_options(row: SourceRow) -> tuple[list[str], list[str]]:
    """Return keys and texts of options published as an object or as a list of key and value."""
    value = row.values["options"]
    try:
        pairs = list(value.items()) if isinstance(value, dict) else [(item["key"], item["value"]) for item in value]
    except (TypeError, KeyError) as error:
        raise row.error("options are neither an object nor a list of 'key' and 'value'") from error
    keys, texts = [key for key, _ in pairs], [text for _, text in pairs]
    if not all(isinstance(text, str) for text in texts):
        raise row.error("an option is no text")
    if len(keys) < 2 or keys != [letter(index) for index in range(len(keys))]:
        raise row.error("the options' keys are not A, B, ... in order")
    return keys, texts


def _medmcqa_table(source: Path, split: str) -> Table:
    columns = ("id", "question", *_MEDMCQA_OPTIONS, "cop")
    if (table := hub_table(source, split, "default", columns, ("subject_name",))) is not None:
        return table
    name = {"validation": "dev"}.get(split, split)
    names = [f"data/{name}.json", f"{name}.json", f"*.zip!*{name}.json"]
    return _CountedFromOne(required_file(source, names, f"data/{split}-*.parquet or {name}.json"), columns)


class _CountedFromOne(JsonLinesTable):
    """MedMCQA as its authors publish it: ``cop`` is 1 to 4 there, and 0 to 3 on the Hub."""

    def _values(self, place: str, line: bytes) -> Mapping[str, Any]:
        row = SourceRow(place, 0, super()._values(place, line))
        if row.integer("cop") < 1:
            raise row.error("cop is below 1; in the authors' JSON files it counts from 1, in parquet files from 0")
        return {**row.values, "cop": row.integer("cop") - 1}


def _medmcqa(row: SourceRow, split: str) -> dict[str, Any]:
    options = [row.text(column) for column in _MEDMCQA_OPTIONS]
    right = _answer_index(row, "cop", len(options))
    return choice_document(
        row.text("id"), row.text("question"), options, right, subject=row.optional_text("subject_name")
    )


def _pubmedqa_table(source: Path, split: str) -> Table:
    columns = ("id", "question", "context", "answer")
    if (table := hub_table(source, split, "pubmed_qa_labeled_fold1_bigbio_qa", columns)) is not None:
        return table
    names = {"test": ("pqal_test_set.json", "test_set.json"), "train": ("pqal_fold1/train_set.json",)}[split]
    places = [f"{mark}{name}" for mark in ("", "data/", "*.zip!*") for name in names]
    wanted = f"pubmed_qa_labeled_fold1_bigbio_qa/{split}/*.parquet, {names[0]} or pqal.zip"
    file = required_file(source, places, wanted)
    content = read_json(file)
    if not isinstance(content, dict):
        raise SourceError(f"{file.name} is not an object with one entry per article")
    published = RecordTable(
        ((f"{file.name} entry {key}", value) for key, value in content.items()),
        ("QUESTION", "CONTEXTS", "final_decision"),
    )
    rows = zip(content, published.rows(), strict=True)
    return RecordTable(((row.place, _as_on_the_hub(key, row)) for key, row in rows), columns)


def _as_on_the_hub(key: str, row: SourceRow) -> dict[str, Any]:
    return {
        "id": key,
        "question": row.text("QUESTION"),
        "context": " ".join(row.texts("CONTEXTS")),
        "answer": [row.text("final_decision")],
    }


def _pubmedqa(row: SourceRow, split: str) -> dict[str, Any]:
    answers = row.texts("answer")
    if not answers or answers[0] not in YES_NO_MAYBE:
        raise row.error(f"answer is none of {', '.join(YES_NO_MAYBE)}")
    right = YES_NO_MAYBE.index(answers[0])
    return choice_document(row.text("id"), row.text("question"), YES_NO_MAYBE, right, context=row.text("context"))


def _mmlu_table(source: Path, split: str) -> Table:
    return required_hub_table(source, split, "all", ("question", "subject", "choices", "answer"))


def _mmlu(row: SourceRow, split: str) -> dict[str, Any]:
    options = row.texts("choices")
    right = _answer_index(row, "answer", len(options))
    return choice_document(f"{split}/{row.index}", row.text("question"), options, right, subject=row.text("subject"))


def _mednli_table(source: Path, split: str) -> Table:
    name = f"mli_{split}_v1.jsonl"
    wanted = f"{name}, neither in a folder nor in a zip archive"
    file = required_file(source, [name, f"*/{name}", f"*.zip!*{name}"], wanted)
    return JsonLinesTable(file, ("pairID", "sentence1", "sentence2", "gold_label"))


def _mednli(row: SourceRow, _split: str) -> dict[str, Any]:
    label = row.text("gold_label")
    if label not in RELATIONS:
        raise row.error(f"gold_label is none of {', '.join(RELATIONS)}")
    right = RELATIONS.index(label)
    return choice_document(row.text("pairID"), row.text("sentence2"), RELATIONS, right, context=row.text("sentence1"))


def _mmlu_test(source: Path, _images: ImageStore) -> Iterator[Row]:
    """Read the first quarter of each medical subject, subjects in alphabetical order, as the reference sorts them."""
    table = _mmlu_table(source, "test")
    positions: dict[str, list[int]] = {}
    for row in table.rows():
        if (subject := row.text("subject")) in MMLU_SUBJECTS:
            positions.setdefault(subject, []).append(row.index)
    chosen = [index for _, found in sorted(positions.items()) for index in found[: len(found) // 4]]
    rows = {row.index: row for row in table.rows(set(chosen))}
    for index in chosen:
        yield Row(rows[index].place, _mmlu(rows[index], "test"))


def _recipe(
    tables: Tables,
    document: Callable[[SourceRow, str], dict[str, Any]],
    layout: str,
    splits: tuple[str, str] = ("test", "train"),
) -> Recipe:
    """Build a recipe from what finds a split in a source, and what turns a row of a split into a document."""

    def read(rows: Iterator[SourceRow], split: str, _source: Path, _images: ImageStore) -> Iterator[Row]:
        return (Row(row.place, document(row, split)) for row in rows)

    return Recipe.of_splits(CHOICE, tables, read, layout, splits)


def _on_hub(name: str, recipe: Recipe, *files: str) -> Recipe:
    return recipe.from_hub(dataset_info(f"multimedeval_{name}"), files)


_MEDQA_LAYOUT = "data_clean.zip, what was unpacked from it, or the Hub's parquet files med_qa_en_source/test/*.parquet"
_MEDMCQA_LAYOUT = "the Hub's parquet files data/validation-*.parquet, or the authors' dev.json"
_PUBMEDQA_LAYOUT = (
    "pqal.zip, what was unpacked from it, or the Hub's parquet files pubmed_qa_labeled_fold1_bigbio_qa/test/*.parquet"
)
_MEDNLI_LAYOUT = "PhysioNet's mednli zip archive, or the folder unpacked from it with mli_test_v1.jsonl"
_MEDMCQA = _recipe(_medmcqa_table, _medmcqa, _MEDMCQA_LAYOUT, ("validation", "train"))
_MMLU = _recipe(_mmlu_table, _mmlu, "the Hub's parquet files all/test-*.parquet", ("test", "dev"))

RECIPES: Mapping[str, Recipe] = {
    "medqa": _on_hub("medqa", _recipe(_medqa_table, _medqa, _MEDQA_LAYOUT), "data_clean.zip"),
    "medmcqa": _on_hub("medmcqa", _MEDMCQA, "data/validation-*.parquet", "data/train-*.parquet"),
    "pubmedqa": _on_hub("pubmedqa", _recipe(_pubmedqa_table, _pubmedqa, _PUBMEDQA_LAYOUT), "pqal.zip"),
    "mmlu": _on_hub("mmlu", replace(_MMLU, test=_mmlu_test), "all/test-*.parquet", "all/dev-*.parquet"),
    "mednli": _recipe(_mednli_table, _mednli, _MEDNLI_LAYOUT),
}
