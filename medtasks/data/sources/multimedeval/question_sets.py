"""Question sets: MedQA, MedMCQA, PubMedQA, MMLU and MedNLI without images, VQA-RAD, PathVQA and SLAKE with them.

Splits, subsets and order are those MultiMedEval evaluates (``multimedeval/qa.py``, ``mednli.py`` and ``vqa.py`` at
d9ac283).

The reference takes MedNLI's options from the gold labels in the order they occur. Its rule asks whether exactly one
option occurs in the reply, so that the order has no effect; here it is fixed.

VQA-RAD and PathVQA are parquet files with the images in them; of SLAKE it is the English questions of ``test.json``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from medtasks.data.images.image_store import ImageStore
from medtasks.data.prepare.source_files import SourceFile, not_found, required_file, unpacked_or_archived
from medtasks.data.prepare.source_recipe import PublishedRow, SourceRecipe, TableReader, UnusableRow
from medtasks.data.prepare.table_files import (
    SourceRow,
    SourceTable,
    hub_table,
    json_lines,
    listed_records,
    read_json,
    records_table,
    required_hub_table,
)
from medtasks.data.samples import letter
from medtasks.data.schema import CHOICE, OPEN_QUESTION, Columns, Document, choice_document, new_document
from medtasks.errors import SourceError

YES_NO_MAYBE = ("yes", "no", "maybe")
RELATIONS = ("entailment", "contradiction", "neutral")
MMLU_SUBJECTS = frozenset(
    (
        *("anatomy", "clinical_knowledge", "college_biology"),
        *("college_medicine", "medical_genetics", "professional_medicine"),
    )
)

_MEDMCQA_OPTIONS = ("opa", "opb", "opc", "opd")


def _answer_index(row: SourceRow, column: str, options: int) -> int:
    value = row.integer(column)
    if not 0 <= value < options:
        raise row.error(f"{column} is {value}, and the options are 0 to {options - 1}")
    return value


def _medqa_table(source: Path, split: str) -> SourceTable:
    columns = ("question", "options", "answer_idx")
    inside = f"questions/US/{split}.jsonl"
    names = [f"data_clean/{inside}", inside, f"US/{split}.jsonl", f"{split}.jsonl", f"*.zip!*{inside}"]
    missing = f"med_qa_en_source/{split}/*.parquet, US/{split}.jsonl or data_clean.zip"
    return hub_table(source, split, "med_qa_en_source", columns) or json_lines(
        required_file(source, names, missing), columns
    )


def _medqa(row: SourceRow, split: str) -> Document:
    keys, options = keyed_options(row, "key", "value")
    key = row.one_of("answer_idx", keys, "answer_idx is none of the options' keys")
    return choice_document(f"{split}/{row.index}", row.text("question"), options, keys.index(key))


def keyed_options(row: SourceRow, key: str, text: str) -> tuple[list[str], list[str]]:
    """Return keys and texts of options published as an object, or as a list of objects with ``key`` and ``text``."""
    value = row.values["options"]
    try:
        pairs = list(value.items()) if isinstance(value, dict) else [(item[key], item[text]) for item in value]
    except (TypeError, KeyError) as error:
        raise row.error(f"options are neither an object nor a list of '{key}' and '{text}'") from error
    keys, texts = [key for key, _ in pairs], [text for _, text in pairs]
    if not all(isinstance(text, str) for text in texts):
        raise row.error("an option is no text")
    if len(keys) < 2 or keys != [letter(index) for index in range(len(keys))]:
        raise row.error("the options' keys are not A, B, ... in order")
    return keys, texts


def _medmcqa_table(source: Path, split: str) -> SourceTable:
    columns = ("id", "question", *_MEDMCQA_OPTIONS, "cop")
    name = {"validation": "dev"}.get(split, split)
    names = [f"data/{name}.json", f"{name}.json", f"*.zip!*{name}.json"]
    missing = f"data/{split}-*.parquet or {name}.json"
    return hub_table(source, split, "default", columns, ("subject_name",)) or json_lines(
        required_file(source, names, missing), columns, _counted_from_zero
    )


def _counted_from_zero(row: SourceRow) -> Mapping[str, Any]:
    """Return a row of MedMCQA with ``cop`` from 0 to 3 as on the Hub; its authors publish 1 to 4."""
    if row.integer("cop") < 1:
        raise row.error("cop is below 1; in the authors' JSON files it counts from 1, in parquet files from 0")
    return {**row.values, "cop": row.integer("cop") - 1}


def _medmcqa(row: SourceRow, _split: str) -> Document:
    options = [row.text(column) for column in _MEDMCQA_OPTIONS]
    right, subject = _answer_index(row, "cop", len(options)), row.optional_text("subject_name")
    return choice_document(row.text("id"), row.text("question"), options, right, subject=subject)


def _pubmedqa_table(source: Path, split: str) -> SourceTable:
    columns = ("id", "question", "context", "answer")
    if table := hub_table(source, split, "pubmed_qa_labeled_fold1_bigbio_qa", columns):
        return table
    # as the authors publish it
    names = {"test": ("pqal_test_set.json", "test_set.json"), "train": ("pqal_fold1/train_set.json",)}[split]
    places = [f"{mark}{name}" for mark in ("", "data/", "*.zip!*") for name in names]
    missing = f"pubmed_qa_labeled_fold1_bigbio_qa/{split}/*.parquet, {names[0]} or pqal.zip"
    file = required_file(source, places, missing)
    content = read_json(file)
    if not isinstance(content, dict):
        raise SourceError(f"{file.name} is not an object with one entry per article")
    entries = ((f"{file.name} entry {key}", value) for key, value in content.items())
    published = records_table(entries, ("QUESTION", "CONTEXTS", "final_decision"))
    rows = []
    for key, row in zip(content, published.rows(), strict=True):
        values = key, row.text("QUESTION"), " ".join(row.texts("CONTEXTS")), [row.text("final_decision")]
        rows.append((row.place, dict(zip(columns, values, strict=True))))
    return records_table(rows, columns)


def _pubmedqa(row: SourceRow, _split: str) -> Document:
    answers = row.texts("answer")
    if not answers or answers[0] not in YES_NO_MAYBE:
        raise row.error(f"answer is none of {', '.join(YES_NO_MAYBE)}")
    right = YES_NO_MAYBE.index(answers[0])
    return choice_document(row.text("id"), row.text("question"), YES_NO_MAYBE, right, context=row.text("context"))


def _mmlu_table(source: Path, split: str) -> SourceTable:
    return required_hub_table(source, split, "all", ("question", "subject", "choices", "answer"))


def _mmlu(row: SourceRow, split: str) -> Document:
    options = row.texts("choices")
    right = _answer_index(row, "answer", len(options))
    return choice_document(f"{split}/{row.index}", row.text("question"), options, right, subject=row.text("subject"))


def _mmlu_test(source: Path, _images: ImageStore) -> Iterator[PublishedRow]:
    """Read the first quarter of each medical subject, subjects in alphabetical order, as the reference sorts them."""
    table = _mmlu_table(source, "test")
    positions: dict[str, list[int]] = {}
    for row in table.rows():
        if (subject := row.text("subject")) in MMLU_SUBJECTS:
            positions.setdefault(subject, []).append(row.index)
    chosen = [index for _, rows in sorted(positions.items()) for index in rows[: len(rows) // 4]]
    by_index = {row.index: row for row in table.rows(set(chosen))}
    for index in chosen:
        yield PublishedRow(by_index[index].place, _mmlu(by_index[index], "test"))


def _mednli_table(source: Path, split: str) -> SourceTable:
    name = f"mli_{split}_v1.jsonl"
    missing = f"{name}, neither in a folder nor in a zip archive"
    file = required_file(source, [name, f"*/{name}", f"*.zip!*{name}"], missing)
    return json_lines(file, ("pairID", "sentence1", "sentence2", "gold_label"))


def _mednli(row: SourceRow, _split: str) -> Document:
    right = RELATIONS.index(row.one_of("gold_label", RELATIONS, "gold_label is none of"))
    return choice_document(row.text("pairID"), row.text("sentence2"), RELATIONS, right, context=row.text("sentence1"))


_MMLU = TableReader(CHOICE, _mmlu_table, _mmlu).recipe(
    "the Hub's parquet files all/test-*.parquet", ("test", "dev"), ["all/test-*.parquet", "all/dev-*.parquet"]
)


_SLAKE_COLUMNS = ("qid", "img_name", "question", "answer", "q_lang")
_SLAKE_FOLDERS = ("imgs", "imgs/imgs")  # unpacked next to the archive, or in a folder of its name
SLAKE_ARCHIVE = "imgs.zip"
SLAKE_LAYOUT = "test.json and imgs.zip, or the folder imgs unpacked from it"


def open_question(row: SourceRow, doc_id: str, **more: str | None) -> Document:
    """Return a document of the ``OPEN_QUESTION`` schema from a row with ``question`` and ``answer``."""
    return new_document(OPEN_QUESTION, doc_id, question=row.text("question"), answer=row.text("answer"), **more)


def _document(row: SourceRow, split: str) -> Document:
    if row.encoded("image") is None:
        raise UnusableRow("it has no image")
    return open_question(row, f"{split}/{row.index}")


def slake_reader(
    columns: Columns, document: Callable[[SourceRow, str], Document], language: str | None = None
) -> TableReader:
    """Return the reader of SLAKE's questions, in one language or all; ``document`` makes a document of a row."""

    def table(source: Path, split: str) -> SourceTable:
        path = source / f"{split}.json"
        if not path.is_file():
            raise not_found(source, path.name)
        questions = listed_records(SourceFile(path), _SLAKE_COLUMNS)
        if language is None:
            return questions
        chosen = ((row.place, row.values) for row in questions.rows() if row.text("q_lang") == language)
        return records_table(chosen, _SLAKE_COLUMNS)

    return TableReader(
        columns,
        table,
        document,
        lambda row: [row.text("img_name")],
        lambda source: unpacked_or_archived(source, _SLAKE_FOLDERS, SLAKE_ARCHIVE, ("imgs/",)),
    )


def slake_question(row: SourceRow, _split: str = "") -> Document:
    """Return a document of the ``OPEN_QUESTION`` schema."""
    return open_question(row, str(row.integer("qid")), question_type=row.optional_text("content_type"))


_PARQUET = TableReader(
    OPEN_QUESTION,
    lambda source, split: required_hub_table(source, split, "default", ("image", "question", "answer")),
    _document,
    embedded=("image",),
).recipe("the Hub's parquet files data/test-*.parquet", hub_files=("data/test-*.parquet", "data/train-*.parquet"))
_SLAKE = slake_reader(OPEN_QUESTION, slake_question, "en")

RECIPES: Mapping[str, SourceRecipe] = {
    "medqa": TableReader(CHOICE, _medqa_table, _medqa).recipe(
        "data_clean.zip, what was unpacked from it, or the Hub's parquet files med_qa_en_source/test/*.parquet",
        hub_files=["data_clean.zip"],
    ),
    "medmcqa": TableReader(CHOICE, _medmcqa_table, _medmcqa).recipe(
        "the Hub's parquet files data/validation-*.parquet, or the authors' dev.json",
        ("validation", "train"),
        ["data/validation-*.parquet", "data/train-*.parquet"],
    ),
    "pubmedqa": TableReader(CHOICE, _pubmedqa_table, _pubmedqa).recipe(
        "pqal.zip, what was unpacked from it, or the Hub's parquet files "
        "pubmed_qa_labeled_fold1_bigbio_qa/test/*.parquet",
        hub_files=["pqal.zip"],
    ),
    "mmlu": replace(_MMLU, test=_mmlu_test),
    "mednli": TableReader(CHOICE, _mednli_table, _mednli).recipe(
        "PhysioNet's mednli zip archive, or the folder unpacked from it with mli_test_v1.jsonl"
    ),
    "vqa_rad": _PARQUET,
    "path_vqa": _PARQUET,
    "slake": _SLAKE.recipe(SLAKE_LAYOUT, hub_files=("test.json", "train.json", SLAKE_ARCHIVE)),
}
