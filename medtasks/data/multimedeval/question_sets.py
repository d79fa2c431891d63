"""Multiple-choice question sets without images: MedQA, MedMCQA, PubMedQA, MMLU.

Splits, subsets and order are those MultiMedEval evaluates (``multimedeval/qa.py`` at d9ac283).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from medtasks.data.catalogue import dataset_info
from medtasks.data.image_store import ImageStore
from medtasks.data.multimedeval.choice_documents import answer_index, choice_document
from medtasks.data.multimedeval.hub_download import hub_download, hub_revision
from medtasks.data.multimedeval.source_files import find_file, not_found
from medtasks.data.multimedeval.source_rows import SourceRow
from medtasks.data.multimedeval.tables import JsonLinesTable, RecordTable, Table, hub_table, read_json
from medtasks.data.preparation import Reader, Recipe, Row
from medtasks.data.samples import letter
from medtasks.data.schema import CHOICE
from medtasks.errors import SourceError

YES_NO_MAYBE = ("yes", "no", "maybe")
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


def _medqa_table(source: Path, split: str) -> Table:
    columns = ("question", "options", "answer_idx")
    table = hub_table(source, split, "med_qa_en_source", columns)
    if table is not None:
        return table
    inside = f"questions/US/{split}.jsonl"
    file = find_file(
        source, [f"data_clean/{inside}", inside, f"US/{split}.jsonl", f"{split}.jsonl", f"*.zip!*{inside}"]
    )
    if file is None:
        raise not_found(source, f"med_qa_en_source/{split}/*.parquet, US/{split}.jsonl or data_clean.zip")
    return JsonLinesTable(file, columns)


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
    table = hub_table(source, split, "default", columns, ("subject_name",))
    if table is not None:
        return table
    name = {"validation": "dev"}.get(split, split)
    file = find_file(source, [f"data/{name}.json", f"{name}.json", f"*.zip!*{name}.json"])
    if file is None:
        raise not_found(source, f"data/{split}-*.parquet or {name}.json")
    return _CountedFromOne(file, columns)


class _CountedFromOne(JsonLinesTable):
    """MedMCQA as its authors publish it: ``cop`` is 1 to 4 there, and 0 to 3 on the Hub."""

    def rows(self, wanted: Collection[int] | None = None) -> Iterator[SourceRow]:
        for row in super().rows(wanted):
            if row.integer("cop") < 1:
                raise row.error("cop is below 1; in the authors' JSON files it counts from 1, in parquet files from 0")
            yield SourceRow(row.place, row.index, {**row.values, "cop": row.integer("cop") - 1})


def _medmcqa(row: SourceRow, split: str) -> dict[str, Any]:
    options = [row.text(column) for column in _MEDMCQA_OPTIONS]
    right = answer_index(row, "cop", len(options))
    return choice_document(
        row.text("id"), row.text("question"), options, right, subject=row.optional_text("subject_name")
    )


def _pubmedqa_table(source: Path, split: str) -> Table:
    columns = ("id", "question", "context", "answer")
    table = hub_table(source, split, "pubmed_qa_labeled_fold1_bigbio_qa", columns)
    if table is not None:
        return table
    names = {"test": ("pqal_test_set.json", "test_set.json"), "train": ("pqal_fold1/train_set.json",)}[split]
    file = find_file(source, [f"{mark}{name}" for mark in ("", "data/", "*.zip!*") for name in names])
    if file is None:
        raise not_found(source, f"pubmed_qa_labeled_fold1_bigbio_qa/{split}/*.parquet, {names[0]} or pqal.zip")
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
    table = hub_table(source, split, "all", ("question", "subject", "choices", "answer"))
    if table is None:
        raise not_found(source, f"all/{split}-*.parquet")
    return table


def _mmlu(row: SourceRow, split: str) -> dict[str, Any]:
    options = row.texts("choices")
    right = answer_index(row, "answer", len(options))
    return choice_document(f"{split}/{row.index}", row.text("question"), options, right, subject=row.text("subject"))


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
    name: str,
    tables: Callable[[Path, str], Table],
    document: Callable[[SourceRow, str], dict[str, Any]],
    files: Sequence[str],
    layout: str,
    *,
    splits: tuple[str, str] = ("test", "train"),
    test: Reader | None = None,
) -> Recipe:
    """Build a recipe.

    Args:
        name: Short name of the dataset.
        tables: Finds a split in a source.
        document: Turns a row of a split into a document.
        files: What is downloaded.
        layout: What a source holds, for messages.
        splits: Names of the evaluated split and of the one with the solved examples.
        test: Reads the evaluated rows where they are not the whole split.
    """
    info = dataset_info(f"multimedeval_{name}")
    evaluated, examples = splits

    def whole(source: Path, _images: ImageStore) -> Iterator[Row]:
        for row in tables(source, evaluated).rows():
            yield Row(row.place, document(row, evaluated))

    def demonstrations(source: Path, _images: ImageStore) -> Iterator[Row]:
        for row in tables(source, examples).spread():
            yield Row(row.place, document(row, examples))

    return Recipe(CHOICE, test or whole, layout, demonstrations, hub_download(info, files), hub_revision(info))


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "medqa": _recipe(
            "medqa",
            _medqa_table,
            _medqa,
            ["data_clean.zip"],
            "data_clean.zip, what was unpacked from it, or the Hub's parquet files med_qa_en_source/test/*.parquet",
        ),
        "medmcqa": _recipe(
            "medmcqa",
            _medmcqa_table,
            _medmcqa,
            ["data/validation-*.parquet", "data/train-*.parquet"],
            "the Hub's parquet files data/validation-*.parquet, or the authors' dev.json",
            splits=("validation", "train"),
        ),
        "pubmedqa": _recipe(
            "pubmedqa",
            _pubmedqa_table,
            _pubmedqa,
            ["pqal.zip"],
            "pqal.zip, what was unpacked from it, or the Hub's parquet files "
            "pubmed_qa_labeled_fold1_bigbio_qa/test/*.parquet",
        ),
        "mmlu": _recipe(
            "mmlu",
            _mmlu_table,
            _mmlu,
            ["all/test-*.parquet", "all/dev-*.parquet"],
            "the Hub's parquet files all/test-*.parquet",
            splits=("test", "dev"),
            test=_mmlu_test,
        ),
    }
)
