"""The sets that MedEvalKit's protocol evaluates, and MMMU-Pro.

- OmniMedVQA as published: the questions of ``QA_information/Open-access``, one JSON file per part, in the order of
  their names. The published answer is a text; the right option is the first that equals it without outer blanks.
  The restricted parts have no images. Hu et al., CVPR 2024.
- OmniMedVQA as VLMEvalKit evaluates it: the first 14 of 30 TSV files, ``part_1.tsv`` to ``part_14.tsv``, with images in
  them (``vlmeval/dataset/image_mcq.py`` at e8e78f05, lines 2405 to 2464). No source says which of OmniMedVQA's own
  parts they hold, so they are a dataset of their own and not a selection from that one.
- PMC-VQA: ``test_2.csv`` with images that are no compound ones, and the 2,000 questions of ``test_clean.csv``. Cells
  are kept as they are but for line breaks, which MedEvalKit reads as plain ones. Zhang et al., arXiv 2305.10415.
- MedXpertQA: questions with one to six images (MM) and without any (Text). Questions end with their options, in the
  published words, and are kept so. Zuo et al., arXiv 2501.18362.
- MedFrameQA: questions on two to five frames of a video. Frames of one video are alike, so the video is the cluster.
- SLAKE in its two languages.
- MMMU, Health & Medicine: five of 30 subjects in alphabetical order, with choices and open questions. All images of a
  question are kept, also those that MedEvalKit does not show. The answers of the test split are with the authors:
  whatever a file says, documents have none. Yue et al., CVPR 2024.
- MMMU-Pro, the same subjects: with up to ten or four options, or with all text in a screenshot (``vision``); rows in
  published order. Yue et al., arXiv 2409.02813.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, compress
from pathlib import Path, PurePosixPath
from typing import Any

from medtasks.data.document_store import DocumentCollection
from medtasks.data.images.image_store import ImageStore
from medtasks.data.prepare.source_files import (
    OpenedFiles,
    SourceFile,
    file_reader,
    folder_or_archive_reader,
    required_file,
    required_shards,
)
from medtasks.data.prepare.source_recipe import (
    PublishedRows,
    Recipes,
    SourceRecipe,
)
from medtasks.data.prepare.source_tables import (
    ParquetTable,
    Records,
    SourceRow,
    SourceTable,
    TableReader,
    UnusableRow,
    csv_table,
    json_lines,
    listed_records,
)
from medtasks.data.safe_parsing import parse_literal
from medtasks.data.samples import first_letters, letter, option_index
from medtasks.data.schema import (
    CHOICE,
    GROUPED_CHOICE,
    KIT_CHOICE,
    KIT_QUESTION,
    NewDocument,
    choice_document,
    new_document,
)
from medtasks.data.sources.gmai_sets import GmaiFile, rows_of
from medtasks.data.sources.multimedeval.question_sets import (
    SLAKE_ARCHIVE,
    SLAKE_LAYOUT,
    Slake,
    keyed_options,
)

FLAGS: Mapping[str, str] = {
    "no_modality_type": "the row has no modality_type, which stops MedEvalKit",
    "no_context": "MedEvalKit's prompt names a context, of which MMLU has none, which stops it before it asks",
    "null_option": "an option is null; MedEvalKit shows it as None, and so do its lines, but it is no option",
    "no_such_gold": "the published answer is none of the options",
    "inexact_gold": "the published answer is an option only without the blanks around it; MedEvalKit finds none",
    "repeated_gold": "several options are the published answer; MedEvalKit takes the last, and here it is the first",
    "other_answer_text": "the text that is published as the answer is not that of the published letter",
}
# By flag; each completes "left out: ".
_REMARKS = {
    "no_such_gold": "the right option of {} (the published answer is none of the options)",
    "other_answer_text": "the text of the answer of {} (the published letter is that of another option and counts)",
}
_QUESTIONS = "QA_information/Open-access/"
_OMNI_COLUMNS = ("question_id", "question_type", "question", "gt_answer", "image_path")
_LETTERS = "ABCD"
_TSV_PARTS = tuple(f"part_{number}" for number in range(1, 15))
_CHOICES = ("Choice A", "Choice B", "Choice C", "Choice D")
_LETTER = re.compile(r"\A\s*[A-D]\s*:")  # which may be that of another option
_EXPERT_GROUPS = ("medical_task", "body_system", "question_type")
_EXPERT_COLUMNS = ("id", "question", "options", "label", *_EXPERT_GROUPS)
_FRAME_FILES = "data/test-*.parquet"
_FRAMES = tuple(f"image_{number}" for number in range(1, 6))
_CLINICAL = (
    "Basic_Medical_Science",
    "Clinical_Medicine",
    "Diagnostics_and_Laboratory_Medicine",
)
SUBJECTS = (*_CLINICAL, "Pharmacy", "Public_Health")
_CLOSED = "multiple-choice"
_OPEN = "open"
_MMMU_COLUMNS = ("id", "question", "options", "answer", "question_type", "image_1")
_PRO_COLUMNS = ("id", "options", "answer", "subject")
_MMMU_IMAGES = tuple(f"image_{number}" for number in range(1, 8))
_NAMED_IMAGE = re.compile(r"<image (\d)>")


def kit_choice(
    doc_id: str,
    options: Sequence[str],
    lines: Sequence[str],
    gold: str | None,
    **more: Any,
) -> NewDocument:
    """Return a document of the ``KIT_CHOICE`` schema.

    Args:
        doc_id: Unique in the dataset.
        options: Texts.
        lines: The options as the kit shows them.
        gold: Published answer, or None where it is kept secret.
        **more: Further columns. Without an ``answer``, the gold is the letter of an option; ``flags`` are added to.
    """
    flags = list(more.pop("flags", ()))
    letters = first_letters(len(options))
    named = gold.strip() if gold is not None and gold.strip() in letters else None
    answer = more.pop("answer", named)
    if options and gold is not None and answer is None:
        flags.append("no_such_gold")
    return new_document(
        KIT_CHOICE,
        doc_id,
        options=list(options),
        option_lines=list(lines),
        answer=answer,
        gold=gold,
        flags=flags,
        **more,
    )


def kit_recipe(
    reader: TableReader, layout: str, *files: str, split: str = "test"
) -> SourceRecipe:
    """Return the recipe of a set of one split and no few-shot examples.

    The manifest's ``left_out`` says how many documents have each of the ``flags`` in ``_REMARKS``, which stay all the
    same.

    Args:
        reader: Reader of the set, whose documents have a column ``flags``.
        layout: Files that a user gives, in words.
        *files: Patterns of the files on the Hub; none if a person has to fetch them.
        split: Split of the questions.
    """

    def remarks(documents: DocumentCollection) -> Iterator[str]:
        counts = Counter(chain.from_iterable(document["flags"] for document in documents))
        for flag, text in _REMARKS.items():
            if counts[flag]:
                yield text.format("1 row" if counts[flag] == 1 else f"{counts[flag]} rows")

    return replace(reader.recipe(layout, (split,), files), remarks=remarks)


def letter_options(options: Iterable[str], form: str = "{}. {}") -> list[str]:
    """Return option lines.

    Example:
        >>> letter_options(["CT", "MRI"]), letter_options(["CT"], "({}) {}")
        (['A. CT', 'B. MRI'], ['(A) CT'])
    """
    return [form.format(letter(index), option) for index, option in enumerate(options)]


def _parts(source: Path) -> list[SourceFile]:
    # Unpacked, or wherever in the archive.
    patterns = [f"{_QUESTIONS}*.json", f"*.zip!*{_QUESTIONS}*.json"]
    return required_shards(
        source, patterns, f"folder {_QUESTIONS} and no OmniMedVQA.zip with it"
    )


class _OmniMedVQA(TableReader):
    columns = KIT_CHOICE
    image_name = "image_path"

    def files(self, source: Path) -> OpenedFiles:
        first = _parts(source)[0]
        if first.member is None:
            return file_reader([source])
        return file_reader((), [first.path], (first.member.rpartition(_QUESTIONS)[0],))

    def table(self, source: Path, _split: str) -> SourceTable:
        names = [PurePosixPath(file.member or file.path.name).name for file in _parts(source)]

        def records() -> Records:
            counts: Counter[str] = Counter()
            with self.files(source) as read:
                for name in names:
                    part = name.removesuffix(".json")
                    content = read(_QUESTIONS + name)
                    for row in listed_records(name, content, _OMNI_COLUMNS).rows():
                        doc_id = row.text("question_id")
                        counts[doc_id] += 1
                        if counts[doc_id] > 1:
                            doc_id += f" ({counts[doc_id]})"
                        yield (
                            row.place,
                            partial(dict, row.values, doc_id=doc_id, part=part),
                        )

        return SourceTable(records)

    def document(self, row: SourceRow, _split: str) -> NewDocument:
        options = _omni_options(row)
        gold = row.text("gt_answer")
        modality = row.optional_text("modality_type")
        columns = {
            name: f"option_{name}" for name in _LETTERS if f"option_{name}" in row.values
        }
        equal = [
            index for index, option in enumerate(options) if option.strip() == gold.strip()
        ]
        flags = {
            "null_option": len(columns) > len(options),
            "inexact_gold": bool(equal) and gold not in options,
            "repeated_gold": len(equal) > 1,
            "no_modality_type": modality is None,
        }
        return kit_choice(
            row.text("doc_id"),
            options,
            [f"{name}. {row.values[column]}" for name, column in columns.items()],
            gold,
            answer=letter(equal[0]) if equal else None,
            flags=list(compress(flags, flags.values())),
            question=row.text("question"),
            question_type=row.optional_text("question_type"),
            modality=row.optional_text("modality") if modality is None else modality,
            part=row.text("part"),
        )


def _omni_options(row: SourceRow) -> list[str]:
    """Return the options of a row, without the null ones at the end.

    Raises:
        UnusableRow: There are fewer than two, or one after a null one.
    """
    texts = {name: row.optional_text(f"option_{name}") for name in _LETTERS}
    options = [text for text in texts.values() if text is not None]
    for name in _LETTERS[: len(options)]:
        if texts[name] is None:
            raise UnusableRow(f"it has no option {name} and one behind it")
    if len(options) < 2:
        raise UnusableRow("it has fewer than two options")
    return options


def _of_vlmevalkit(source: Path, images: ImageStore) -> PublishedRows:
    """Read the rows of the TSV parts, each with an id that begins with the name of its part."""
    files = {part: required_file(source, [f"{part}.tsv"]).path for part in _TSV_PARTS}
    for part, path in files.items():
        for row in rows_of([GmaiFile(path, GROUPED_CHOICE)], images):
            if row.document is None:
                yield row
                continue
            options = row.document["options"]
            document = kit_choice(
                f"{part}/{row.document['doc_id']}",
                options,
                letter_options(options),
                row.document["answer"],
                part=part,
                image_id=row.document["image_id"],
                question=row.document["question"],
                modality=row.document["modality"],
            )
            yield replace(row, document=document)


@dataclass(frozen=True)
class _PmcVqa(TableReader):
    name: str  # of the table
    gold: str  # column of the right letter
    folder: str  # of the images
    archive: str  # of that folder
    text: str | None = None  # column of the right text, None for a table without one

    columns = KIT_CHOICE
    image_name = "Figure_path"

    def table(self, source: Path, _split: str) -> SourceTable:
        columns = ["Figure_path", "Question", *_CHOICES, self.gold]
        if self.text:
            columns.append(self.text)
        return csv_table(required_file(source, [self.name]), columns, missing=None)

    def document(self, row: SourceRow, _split: str) -> NewDocument:
        columns = (*_CHOICES, "Question")
        cells = [
            row.text(column).replace("\r\n", "\n").replace("\r", "\n") for column in columns
        ]
        *lines, question = cells
        options = [_LETTER.sub("", line).strip() for line in lines]
        doc_id = f"{self.name.removesuffix('.csv')}/{row.index}"
        document = kit_choice(doc_id, options, lines, row.text(self.gold), question=question)
        if self.text and document["answer"]:
            named = options[option_index(document["answer"])]
            if row.text(self.text).strip() != named:
                document["flags"].append("other_answer_text")
        return document

    def files(self, source: Path) -> OpenedFiles:
        return folder_or_archive_reader(
            source, [self.folder], self.archive, (f"{self.folder}/", "")
        )

    def kit_recipe(self) -> SourceRecipe:
        return kit_recipe(
            self,
            f"{self.name} and {self.archive}, or the folder {self.folder} unpacked from it",
            self.name,
            self.archive,
        )


@dataclass(frozen=True)
class _MedXpertQA(TableReader):
    config: str  # ``MM`` or ``Text``

    columns = KIT_CHOICE

    def table(self, source: Path, split: str) -> SourceTable:
        columns = (*_EXPERT_COLUMNS, "images") if self.config == "MM" else _EXPERT_COLUMNS
        return json_lines(required_file(source, [f"{self.config}/{split}.jsonl"]), columns)

    def document(self, row: SourceRow, _split: str) -> NewDocument:
        options = list(keyed_options(row).values())
        groups = {column: row.optional_text(column) for column in _EXPERT_GROUPS}
        return kit_choice(
            options=options,
            lines=letter_options(options),
            gold=row.text("label"),
            doc_id=row.text("id"),
            question=row.text("question"),
            **groups,
        )

    def names_of_images(self, row: SourceRow) -> Sequence[str]:
        return row.texts("images") if self.config == "MM" else ()

    def files(self, source: Path) -> OpenedFiles:
        if self.config != "MM":
            return super().files(source)
        return folder_or_archive_reader(source, ["images"], "images.zip", ("images/", ""))


class _MedFrameQA(TableReader):
    columns = KIT_CHOICE
    embedded = _FRAMES
    required = (
        "question_id",
        "question",
        "options",
        "correct_answer",
        "video_id",
        "image_1",
        "image_2",
    )
    optional = (*_FRAMES[2:], "modality", "system")

    def document(self, row: SourceRow, _split: str) -> NewDocument:
        options = row.texts("options")
        if len(options) < 2:
            raise row.error("options are fewer than two")
        return kit_choice(
            modality=row.optional_text("modality"),
            body_system=row.optional_text("system"),
            image_id=row.name("video_id"),
            options=options,
            lines=letter_options(options, "{}.{}"),
            gold=row.text("correct_answer"),
            doc_id=row.name("question_id"),
            question=row.text("question"),
        )


class _Slake(Slake):
    columns = KIT_QUESTION
    language = None

    def document(self, row: SourceRow, split: str) -> NewDocument:
        if "answer_type" not in row.values:
            raise row.error("answer_type is missing")
        groups = {column: row.optional_text(column) for column in ("modality", "location")}
        kind = row.one_of("answer_type", ("OPEN", "CLOSED"), "answer_type is none of")
        return {
            **super().document(row, split),
            "answer_type": kind,
            "language": row.text("q_lang"),
            **groups,
        }


def _literal_options(row: SourceRow) -> list[str]:
    """Return options that are the text of a Python list, which is parsed as a literal and never run."""
    try:
        options = parse_literal(row.text("options"))
    except ValueError as error:
        raise row.error("options is not the text of a list") from error
    is_list = isinstance(options, list) and len(options) > 1
    if not is_list or not all(isinstance(option, str) for option in options):
        raise row.error("options is not the text of a list of at least two texts")
    return list(options)


class _MMMU(TableReader):
    columns = KIT_CHOICE
    embedded = _MMMU_IMAGES

    def table(self, source: Path, split: str) -> SourceTable:
        shards = {}
        for subject in SUBJECTS:
            shards[subject] = required_shards(source, [f"{subject}/{split}-*.parquet"])

        def records() -> Records:
            for subject, files in shards.items():
                for row in ParquetTable(files, _MMMU_COLUMNS, _MMMU_IMAGES[1:]).rows():
                    yield f"{subject}/{row.place}", partial(dict, row.values, subject=subject)

        return SourceTable(records)

    def document(self, row: SourceRow, split: str) -> NewDocument:
        kind = row.one_of("question_type", (_CLOSED, _OPEN), "question_type is none of")
        options = _literal_options(row) if kind == _CLOSED else []
        return kit_choice(
            gold=row.text("answer") if split != "test" else None,
            question=row.text("question"),
            question_type=kind,
            subject=row.text("subject"),
            doc_id=row.text("id"),
            options=options,
            lines=letter_options(options, "({}) {}"),
        )

    def kit_recipe(self, split: str) -> SourceRecipe:
        files = [f"{subject}/{split}-*.parquet" for subject in SUBJECTS]
        return kit_recipe(
            self,
            f"the Hub's parquet files {files[0]}, and so on for five subjects",
            *files,
            split=split,
        )


class _MMMUPro(TableReader):
    columns = CHOICE

    def __init__(self, config: str) -> None:
        self.config = config
        self.embedded = ("image",) if config == "vision" else _MMMU_IMAGES

    def table(self, source: Path, split: str) -> SourceTable:
        files = required_shards(source, [f"{self.config}/{split}-*.parquet"])
        subjects = ParquetTable(files, ("subject",)).rows()
        medical = {row.index for row in subjects if row.text("subject") in SUBJECTS}
        columns = ("image",) if self.config == "vision" else ("question", _MMMU_IMAGES[0])
        table = ParquetTable(files, (*_PRO_COLUMNS, *columns), _MMMU_IMAGES[1:])

        def records() -> Records:
            for row in table.rows(medical):
                yield row.place, partial(dict, row.values)

        return SourceTable(records)

    def document(self, row: SourceRow, _split: str) -> NewDocument:
        options = _literal_options(row)
        question = row.optional_text("question") or ""
        texts = "\n".join([question, *options])
        named = max(map(int, _NAMED_IMAGE.findall(texts)), default=0)
        images = [row.values.get(image) for image in _MMMU_IMAGES[:named]]
        if "question" in row.values and None in images:
            raise UnusableRow(f"its text names <image {named}> and it holds fewer images")
        letters = first_letters(len(options))
        answer = letters.index(row.one_of("answer", letters, "answer is none of"))
        return choice_document(
            row.text("id"), question, options, answer, subject=row.text("subject")
        )

    def own_recipe(self) -> SourceRecipe:
        files = f"{self.config}/test-*.parquet"
        return self.recipe(f"the Hub's parquet files {files}", ("test",), [files])


RECIPES: Recipes = {
    "medevalkit_omnimedvqa": kit_recipe(
        _OmniMedVQA(),
        f"OmniMedVQA.zip, or what was unpacked from it: {_QUESTIONS} and Images/",
        "OmniMedVQA.zip",
    ),
    "medevalkit_omnimedvqa_vlmevalkit": SourceRecipe(
        KIT_CHOICE,
        _of_vlmevalkit,
        "part_1.tsv to part_14.tsv",
        hub_files=[f"{part}.tsv" for part in _TSV_PARTS],
    ),
    "medevalkit_pmc_vqa": _PmcVqa(
        "test_2.csv", "Answer", "figures", "images_2.zip"
    ).kit_recipe(),
    "medevalkit_pmc_vqa_clean": _PmcVqa(
        "test_clean.csv", "Answer_label", "images", "images.zip", "Answer"
    ).kit_recipe(),
    "medevalkit_medxpertqa_mm": kit_recipe(
        _MedXpertQA("MM"),
        "the Hub's MM/test.jsonl, and images.zip or the folder images unpacked from it",
        "MM/test.jsonl",
        "images.zip",
    ),
    "medevalkit_medxpertqa_text": kit_recipe(
        _MedXpertQA("Text"), "the Hub's Text/test.jsonl", "Text/test.jsonl"
    ),
    "medevalkit_medframeqa": kit_recipe(
        _MedFrameQA(), f"the Hub's parquet files {_FRAME_FILES}", _FRAME_FILES
    ),
    "medevalkit_slake": _Slake().recipe(SLAKE_LAYOUT, ("test",), ("test.json", SLAKE_ARCHIVE)),
    "medevalkit_mmmu_med_val": _MMMU().kit_recipe("validation"),
    "medevalkit_mmmu_med_test": _MMMU().kit_recipe("test"),
    "mmmu_pro_med_standard_10": _MMMUPro("standard (10 options)").own_recipe(),
    "mmmu_pro_med_standard_4": _MMMUPro("standard (4 options)").own_recipe(),
    "mmmu_pro_med_vision": _MMMUPro("vision").own_recipe(),
}
