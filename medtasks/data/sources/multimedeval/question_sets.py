"""Question sets: MedQA, MedMCQA, PubMedQA, MMLU and MedNLI without images, VQA-RAD, PathVQA and SLAKE with them.

Splits, subsets and order are those MultiMedEval evaluates (``multimedeval/qa.py``, ``mednli.py`` and ``vqa.py`` at
d9ac283). It takes MedNLI's options from the gold labels in the order they occur; its rule asks whether exactly one
option occurs in the reply, so that the order has no effect, and here it is fixed. Of SLAKE it is the English questions
of ``test.json``.

A user's own questions have the format of MultiMedEval's additional datasets. A folder holds ``dataset.json`` and the
images it names (``multimedeval/dynamic_datasets.py`` at d9ac283)::

    {"taskType": "VQA", "modality": "Radiology", "samples": [
        {"question": "Where is the lesion?", "answer": "left lung", "images": ["scan.png"]}]}

``taskType`` is ``VQA``, or ``QA`` with the texts of the ``options`` in every sample. ``images`` may be left out.
Models see images by the rule ``linear`` of :mod:`medtasks.data.images.decoding`. ``"image_range": [LOW, HIGH]`` next
to ``taskType`` says which values are black and white in those with more than 8 bits; without it their files have to.
Volumes are shown by the settings of :mod:`medtasks.data.images.volume_rule` next to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from medtasks.data.images.decoding import LINEAR, Decoding
from medtasks.data.images.image_store import ImageStore
from medtasks.data.images.volume_files import holds_volume
from medtasks.data.images.volume_rule import SETTINGS, VolumeRule
from medtasks.data.named_files import read_file
from medtasks.data.prepare.source_files import (
    OpenedFiles,
    SourceFile,
    file_reader,
    folder_or_archive_reader,
    not_found,
    required_file,
)
from medtasks.data.prepare.source_recipe import (
    PublishedRow,
    PublishedRows,
    Recipes,
    SourceRecipe,
)
from medtasks.data.prepare.source_tables import (
    SourceRow,
    SourceTable,
    TableReader,
    UnusableRow,
    check_columns,
    json_lines,
    listed_records,
    numbered_table,
    read_json,
    records_table,
)
from medtasks.data.samples import MOST_LETTERS, first_letters
from medtasks.data.schema import (
    CHOICE,
    OPEN_QUESTION,
    NewDocument,
    choice_document,
    new_document,
)
from medtasks.errors import MedTasksError, SourceError

YES_NO_MAYBE = ("yes", "no", "maybe")
RELATIONS = ("entailment", "contradiction", "neutral")
_COLLEGE = ("anatomy", "clinical_knowledge", "college_biology", "college_medicine")
MMLU_SUBJECTS = frozenset((*_COLLEGE, "medical_genetics", "professional_medicine"))
SLAKE_ARCHIVE = "imgs.zip"
SLAKE_LAYOUT = "test.json and imgs.zip, or the folder imgs unpacked from it"
FILE_NAME = "dataset.json"
QA = "QA"
VQA = "VQA"
# Columns of the documents and of the samples.
_COLUMNS_OF_KIND = {
    QA: (CHOICE, ("question", "answer", "options")),
    VQA: (OPEN_QUESTION, ("question", "answer")),
}
_HUB = "the Hub's parquet files"
_MMLU_FILES = ("all/test-*.parquet", "all/dev-*.parquet")
_MEDMCQA_FILES = ("data/validation-*.parquet", "data/train-*.parquet")
_MEDNLI_FILES = ("mli_test_v1.jsonl", "mli_train_v1.jsonl")
_IMAGE_FILES = ("data/test-*.parquet", "data/train-*.parquet")


def answer_index(row: SourceRow, column: str, options: int) -> int:
    """Return the index of the right option, from 0.

    Args:
        row: Of a table.
        column: With the index.
        options: Number of options.

    Raises:
        SourceError: There is no such option.
    """
    value = row.integer(column)
    if not 0 <= value < options:
        raise row.error(f"{column} is {value}, and the options are 0 to {options - 1}")
    return value


def keyed_options(row: SourceRow) -> Mapping[str, str]:
    """Return the texts of options that are published as an object, by their letters.

    Example:
        >>> dict(keyed_options(SourceRow("test.jsonl row 1", 0, {"options": {"A": "CT", "B": "MRI"}})))
        {'A': 'CT', 'B': 'MRI'}
    """
    value: Any = row.values["options"]
    if not isinstance(value, dict):
        raise row.error("options are no object")
    if not all(isinstance(text, str) for text in value.values()):
        raise row.error("an option is no text")
    if len(value) < 2 or list(value) != first_letters(len(value)):
        raise row.error("the options' keys are not A, B, ... in order")
    return value


class _MedQA(TableReader):
    columns = CHOICE

    def table(self, source: Path, split: str) -> SourceTable:
        inside = f"questions/US/{split}.jsonl"
        names = [f"data_clean/{inside}", inside, f"*.zip!*{inside}"]
        file = required_file(source, names, f"data_clean.zip and no {names[0]}")
        return json_lines(file, ("question", "options", "answer_idx"))

    def document(self, row: SourceRow, split: str) -> NewDocument:
        options = keyed_options(row)
        answer = row.one_of("answer_idx", options, "answer_idx is none of the options' keys")
        return choice_document(
            f"{split}/{row.index}",
            row.text("question"),
            list(options.values()),
            list(options).index(answer),
        )


class _MedMCQA(TableReader):
    columns = CHOICE
    options = ("opa", "opb", "opc", "opd")
    required = ("id", "question", *options, "cop")
    optional = ("subject_name",)

    def document(self, row: SourceRow, _split: str) -> NewDocument:
        options = [row.text(column) for column in self.options]
        right = answer_index(row, "cop", len(options))
        subject = row.optional_text("subject_name")
        return choice_document(
            row.text("id"), row.text("question"), options, right, subject=subject
        )


class _PubMedQA(TableReader):
    columns = CHOICE

    def table(self, source: Path, split: str) -> SourceTable:
        name = {"test": "pqal_test_set.json", "train": "pqal_fold1/train_set.json"}[split]
        file = required_file(source, [name, f"*.zip!*{name}"], f"pqal.zip and no {name}")
        content = read_json(file)
        if not isinstance(content, dict):
            raise SourceError(f"{file.name} is not an object with one entry per article")
        columns = ("QUESTION", "CONTEXTS", "final_decision")
        entries = ((f"{file.name} entry {key}", entry) for key, entry in content.items())
        published = records_table(entries, columns)
        records = []
        for key, row in zip(content, published.rows(), strict=True):
            records.append((row.place, {**row.values, "id": key}))
        return records_table(records, columns)

    def document(self, row: SourceRow, _split: str) -> NewDocument:
        decision = row.one_of("final_decision", YES_NO_MAYBE, "final_decision is none of")
        return choice_document(
            context=" ".join(row.texts("CONTEXTS")),
            doc_id=row.text("id"),
            question=row.text("QUESTION"),
            options=YES_NO_MAYBE,
            answer=YES_NO_MAYBE.index(decision),
        )


class _MMLU(TableReader):
    columns = CHOICE
    hub_folder = "all"
    required = ("question", "subject", "choices", "answer")

    def document(self, row: SourceRow, split: str) -> NewDocument:
        options = row.texts("choices")
        subject = row.text("subject")
        right = answer_index(row, "answer", len(options))
        return choice_document(
            f"{split}/{row.index}", row.text("question"), options, right, subject=subject
        )

    def first_quarters(self, source: Path, _images: ImageStore) -> PublishedRows:
        """Read the first quarter of each medical subject, subjects in alphabetical order, as the reference does."""
        by_subject: dict[str, list[SourceRow]] = {
            subject: [] for subject in sorted(MMLU_SUBJECTS)
        }
        for row in self.table(source, "test").rows():
            by_subject.get(row.text("subject"), []).append(row)
        for rows in by_subject.values():
            for row in rows[: len(rows) // 4]:
                yield PublishedRow(row.place, self.document(row, "test"))


class _MedNLI(TableReader):
    columns = CHOICE

    def table(self, source: Path, split: str) -> SourceTable:
        name = f"mli_{split}_v1.jsonl"
        missing = f"{name}, neither in a folder nor in a zip archive"
        file = required_file(source, [name, f"*/{name}", f"*.zip!*{name}"], missing)
        return json_lines(file, ("pairID", "sentence1", "sentence2", "gold_label"))

    def document(self, row: SourceRow, _split: str) -> NewDocument:
        right = RELATIONS.index(row.one_of("gold_label", RELATIONS, "gold_label is none of"))
        context = row.text("sentence1")
        return choice_document(
            row.text("pairID"), row.text("sentence2"), RELATIONS, right, context=context
        )


def open_question(row: SourceRow, doc_id: str, **more: str | None) -> NewDocument:
    """Return a document of the ``OPEN_QUESTION`` schema.

    Args:
        row: Has ``question`` and ``answer``.
        doc_id: Unique in the dataset.
        **more: Further columns.
    """
    return new_document(
        OPEN_QUESTION, doc_id, question=row.text("question"), answer=row.text("answer"), **more
    )


class _QuestionsWithImages(TableReader):
    columns = OPEN_QUESTION
    embedded = ("image",)
    required = ("image", "question", "answer")

    def document(self, row: SourceRow, split: str) -> NewDocument:
        if row.image_bytes("image") is None:
            raise UnusableRow("it has no image")
        return open_question(row, f"{split}/{row.index}")


class Slake(TableReader):
    """SLAKE's questions in one language, or in all."""

    columns = OPEN_QUESTION
    image_name = "img_name"
    language: str | None = "en"

    def table(self, source: Path, split: str) -> SourceTable:
        """Find a split in a source."""
        path = source / f"{split}.json"
        columns = ("qid", "img_name", "question", "answer", "q_lang")
        if not path.is_file():
            raise not_found(source, path.name)
        questions = listed_records(path.name, read_file(path), columns)
        if self.language is None:
            return questions
        records = []
        for row in questions.rows():
            if row.text("q_lang") == self.language:
                records.append((row.place, row.values))
        return records_table(records, columns)

    def document(self, row: SourceRow, _split: str) -> NewDocument:
        """Return a document of the ``OPEN_QUESTION`` schema."""
        return open_question(
            row, str(row.integer("qid")), question_type=row.optional_text("content_type")
        )

    def files(self, source: Path) -> OpenedFiles:
        """Open the images, unpacked next to the archive or in a folder of its name, or still in it."""
        return folder_or_archive_reader(
            source, ("imgs", "imgs/imgs"), SLAKE_ARCHIVE, ("imgs/",)
        )


class OwnQuestions(TableReader):
    """Questions of a user's own folder.

    Raises:
        SourceError: Its ``dataset.json`` is not as said above.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / FILE_NAME
        if not path.is_file():
            raise SourceError(f"{folder} holds no {FILE_NAME}; name the folder that holds it")
        content = read_json(SourceFile(path))
        if not isinstance(content, dict):
            raise SourceError(f"{path} is not an object with taskType, modality and samples")
        check_columns(str(path), ("taskType", "modality", "samples"), content)
        whole = SourceRow(str(path), 0, content)
        self.folder = folder
        self.kind = whole.text("taskType")
        self.modality = whole.text("modality")
        if self.kind not in _COLUMNS_OF_KIND:
            raise whole.error(
                f"taskType is '{self.kind}', and only {QA} and {VQA} can be prepared"
            )
        if not isinstance(content["samples"], list) or not content["samples"]:
            raise whole.error("samples is not a list of questions")
        self.columns, columns = _COLUMNS_OF_KIND[self.kind]
        try:
            decoding = Decoding.of_settings({"image_range": content.get("image_range")})
            self.volume_settings = {name: content[name] for name in SETTINGS if name in content}
            VolumeRule.of_settings(self.volume_settings)
        except MedTasksError as error:
            raise whole.error(str(error)) from error
        self.decoding = decoding or LINEAR
        self.samples = numbered_table(f"{FILE_NAME} sample", content["samples"], columns)

    def own_recipe(self) -> SourceRecipe:
        """Return the recipe of the questions."""
        recipe = self.recipe(f"a folder with {FILE_NAME}", ("test",))
        return replace(recipe, decoding=self.decoding, volume_settings=self.volume_settings)

    def table(self, _source: Path, _split: str) -> SourceTable:
        """Return the samples."""
        return self.samples

    def names_of_images(self, row: SourceRow) -> Sequence[str]:
        """Return the names of the images."""
        return [] if row.values.get("images") is None else row.texts("images")

    def files(self, _source: Path) -> OpenedFiles:
        """Open the images."""
        return file_reader([self.folder])

    def volume(self, _source: Path, name: str) -> Path | None:
        """Return the path of an image that is a volume."""
        path = self.folder / name
        return path if holds_volume(path) else None

    def document(self, row: SourceRow, _split: str) -> NewDocument:
        """Return the document of a sample."""
        doc_id = f"test/{row.index}"
        if self.kind == VQA:
            return open_question(row, doc_id)
        options = row.texts("options")
        answer = row.text("answer")
        if not 2 <= len(options) <= MOST_LETTERS:
            raise row.error(f"it has {len(options)} options; 2 to {MOST_LETTERS} are possible")
        # As the reference compares them. Of equal options it can only ever choose the first.
        plain_options = [option.strip().lower() for option in options]
        plain_answer = answer.strip().lower()
        if plain_answer not in plain_options:
            raise UnusableRow(
                "its answer is none of its options, so that no reply could be right"
            )
        right = plain_options.index(plain_answer)
        subject = self.modality or None
        return choice_document(doc_id, row.text("question"), options, right, subject=subject)


_PARQUET = _QuestionsWithImages().recipe(f"{_HUB} {_IMAGE_FILES[0]}", hub_files=_IMAGE_FILES)
RECIPES: Recipes = {
    "medqa": _MedQA().recipe(
        "data_clean.zip, or what was unpacked from it", hub_files=["data_clean.zip"]
    ),
    "medmcqa": _MedMCQA().recipe(
        f"{_HUB} {_MEDMCQA_FILES[0]}", ("validation", "train"), _MEDMCQA_FILES
    ),
    "pubmedqa": _PubMedQA().recipe(
        "pqal.zip, or what was unpacked from it", hub_files=["pqal.zip"]
    ),
    "mmlu": replace(
        _MMLU().recipe(f"{_HUB} {_MMLU_FILES[0]}", ("test", "dev"), _MMLU_FILES),
        test_rows=_MMLU().first_quarters,
    ),
    "mednli": _MedNLI().physionet_recipe(
        "PhysioNet's mednli zip archive, or the folder unpacked from it with mli_test_v1.jsonl",
        "mednli/1.0.0",
        _MEDNLI_FILES,
    ),
    "vqa_rad": _PARQUET,
    "path_vqa": _PARQUET,
    "slake": Slake().recipe(SLAKE_LAYOUT, hub_files=("test.json", "train.json", SLAKE_ARCHIVE)),
}
