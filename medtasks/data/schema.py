"""Canonical documents: one column set per task family, declared below. Columns are texts where no type is given.

Of the columns of pairs only ``licence`` may be null; of the others those are that say so.

==================  ====================================================================================================
column              meaning
==================  ====================================================================================================
``doc_id``          unique and stable in the dataset; of pairs ``"<pair_id>/<position>"``
``dataset``         name the dataset is prepared under, so that hooks find the images next to the documents
``image_id``        the same wherever the same image is shown (or study, where a question shows several; or case, in
                    GMAI-MMBench, whether it is drawn as a mask or as a contour); null without images
``patient_id``      where the source says whose image it is, else null; results never show it
``image_files``     paths below the dataset's folder, in the order shown; may be empty. A volume is a link to the
                    file or folder of the source. Pairs have one ``image_file``
``image_sha256``    of the files' bytes, in the same order
``question``        as published, without options; of ``KIT_CHOICE`` also where it repeats its options
``options``         option texts in order A, B, ..., without letters before them; at least two. Names of classes or
                    findings are the same in every row. Yes and No of yes/no questions; none where they cannot be told
                    (``CLOSED_QUESTION``), or for an open question (``KIT_CHOICE``)
``option_lines``    the options as MedEvalKit compares them, in a form of each set, and but for MMLU also shows them
``choices``         MedHEval's options as published, one text in one of several dialects; mostly empty for yes/no
``answer``          letter of the right option, null where none or no single one is published; of open questions the
                    text as published
``answers``         letters of the right options, in order; of Rad-ReStruct their texts as published
``label``           index of the right class, from 0
``labels``          0 or 1 per finding
``gold``            the right answer as published, a letter or a text; null in a part without published answers
``flags``           faults of the published row and what had to be interpreted, see ``FLAGS`` of
                    :mod:`.sources.medheval_gold` and :mod:`.sources.medevalkit`
``pair_id``         the two rows of a pair share it
``position``        1 or 2: first or second image of the pair
``categories``      medical areas of this image, one or more; may be empty in pairs of a user's own study
``licence``         of the image, as its list says; may be null
``sim_med``         cosine similarity of the pair's images to the medical encoder; ``sim_gen``: to the vision-only one
``context``         text the question is about: an abstract, the first sentence of an inference, a text to summarise;
                    may be null
``details``         what the prompt says about this patient; may be null
``indication``      why the study was made, as the report says; empty where it does not say, null where none is known
``report``          what a radiologist wrote, as the protocol compares it
``anatomy``         anatomical structures of the reference report, as published; also ``symptom``, its findings, and
                    ``measurement``, mostly empty
``kind``            ``"binary"`` or ``"multi-choice"``
``hallucination``   ``anatomy``, ``measurement``, ``symptom`` or ``technique``; may be null
``source``          of MedHEval's image: ``slake``, ``vqa_rad``, ``iu_xray`` or ``mimic_cxr``; or name of a user's study
``granularity``     what the question is about, from the whole image to a contour; may be null
``keyword``         fine label of the case, which is the right answer; may be null
``answer_type``     as published: ``OPEN`` or ``CLOSED``; of Rad-ReStruct ``single_choice`` and two others
``language``        ``en`` or ``zh``
``drawn``           cluster and stratum of a row in a random draw, see :mod:`medtasks.data.drawing`
``part``            name of the file that the row is from (OmniMedVQA only), else null
==================  ====================================================================================================

The others are groups as published, which may be null.

The split ``demonstrations`` holds examples for few-shot prompts, in the same columns; not every dataset has them.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from medtasks.data.samples import DRAWN, Document, letter

SPLIT = "test"
DEMONSTRATIONS_SPLIT = "demonstrations"
DEMONSTRATIONS_FOLDER = "few_shot_prompts"  # of images in a prepared dataset

Columns = Mapping[str, str | list[str]]

_TYPES: Mapping[str, str | list[str]] = {
    "str": "string",
    "int": "int32",
    "float": "float64",
    "list[str]": ["string"],
    "list[int]": ["int32"],
}
NewDocument = dict[str, Any]
_ADDED = ("dataset", "image_files", "image_sha256")


def _columns(declared: str) -> dict[str, str | list[str]]:
    """Return the Arrow types of columns written ``name:type``, where a name alone is a text."""
    types = {}
    for column in declared.split():
        name, _, kind = column.partition(":")
        types[name] = _TYPES[kind or "str"]
    return types


# MediConfusion: one row per image of a pair.
PAIRED_CHOICE = _columns(
    "doc_id dataset pair_id position:int image_id image_file image_sha256 question options:list[str] answer "
    "categories:list[str]"
)
# Pairs of a study of the user's own, ``medtasks curate publish``.
CURATED_PAIR = PAIRED_CHOICE | _columns("licence sim_med:float sim_gen:float")
_SHARED = _columns(
    "doc_id dataset image_id patient_id image_files:list[str] image_sha256:list[str]"
)
CHOICE = _SHARED | _columns("subject context question options:list[str] answer")
OPEN_QUESTION = _SHARED | _columns("question answer question_type")
CLASSIFICATION = _SHARED | _columns("details options:list[str] label:int")
MULTILABEL = _SHARED | _columns("options:list[str] labels:list[int]")
REPORT = _SHARED | _columns("context indication report")
# MedHEval: yes/no questions and questions with options, mixed.
CLOSED_QUESTION = (
    _SHARED
    | _columns("question kind choices options:list[str] answer gold flags:list[str]")
    | _columns("hallucination source modality location")
)
# MedHEval: report generation, scored by the components a report mentions.
COMPONENT_REPORT = REPORT | _columns(
    "question anatomy:list[str] measurement:list[str] symptom:list[str]"
)
_GROUPED = _SHARED | _columns(
    "hint question options:list[str] department clinical_task granularity modality keyword original_task"
)
# GMAI-MMBench: questions with one right option, or with several.
GROUPED_CHOICE = _GROUPED | _columns("answer")
MULTI_ANSWER = _GROUPED | _columns("answers:list[str]")
# MedEvalKit's sets with options.
KIT_CHOICE = (
    _SHARED
    | _columns("question options:list[str] option_lines:list[str] answer gold flags:list[str]")
    | _columns("subject question_type modality part medical_task body_system")
)
# Those without images; ``context`` is the abstract of a PubMedQA question.
KIT_TEXT = KIT_CHOICE | _columns("context difficulty")
# Rad-ReStruct: ``answer`` is the first of ``answers``.
STRUCTURED_QUESTION = _SHARED | _columns(
    "question options:list[str] answer answers:list[str] answer_type"
)
# SLAKE as MedEvalKit asks it, in two languages.
KIT_QUESTION = OPEN_QUESTION | _columns("answer_type language modality location")


def arrow_schema(columns: Columns) -> Any:
    """Return the schema of a ``pyarrow`` table with these columns.

    Example:
        >>> arrow_schema(OPEN_QUESTION).field("image_files").type
        ListType(list<item: string>)
    """
    from pyarrow import list_, schema, type_for_alias

    fields = {}
    for name, kind in columns.items():
        if isinstance(kind, list):
            fields[name] = list_(type_for_alias(kind[0]))
        else:
            fields[name] = type_for_alias(kind)
    return schema(fields)


def drawn_schema(schema: Any) -> Any:
    """Return the schema of a table with the column of a draw."""
    from pyarrow import field, int64, struct

    numbers = ("cluster", "stratum", "existing")
    return schema.append(field(DRAWN, struct([field(name, int64()) for name in numbers])))


def image_digests(document: Document) -> dict[str, str]:
    """Return the SHA-256 of each image file of a document, by path below the dataset's folder.

    Example:
        >>> image_digests({"image_files": ["images/ab.png"], "image_sha256": ["ab12"]})
        {'images/ab.png': 'ab12'}
    """
    if "image_file" in document:
        return {document["image_file"]: document["image_sha256"]}
    return dict(zip(document["image_files"], document["image_sha256"], strict=True))


def image_key(file: str) -> str:
    """Return the name an image file has in fingerprints: its own, without folder and ending.

    Example:
        >>> image_key("images/ab12.png")
        'ab12'
    """
    return PurePosixPath(file).stem


def new_document(columns: Columns, doc_id: str, **columns_of_row: Any) -> NewDocument:
    """Return a document of a schema without its dataset and image files.

    Args:
        columns: The schema.
        doc_id: Unique in the dataset.
        **columns_of_row: Values of columns. Others are null.

    Example:
        >>> document = new_document(REPORT, "study 1", report="No acute finding.")
        >>> document["report"], document["indication"]
        ('No acute finding.', None)
    """
    assert columns_of_row.keys() <= columns.keys()
    document: NewDocument = {name: None for name in columns if name not in _ADDED}
    return document | {"doc_id": doc_id, **columns_of_row}


def choice_document(
    doc_id: str,
    question: str,
    options: Sequence[str],
    answer: int,
    **more: str | None,
) -> NewDocument:
    """Return a document of the ``CHOICE`` schema.

    Args:
        doc_id: Unique in the dataset.
        question: Without options.
        options: Texts.
        answer: Index of the right option, from 0.
        **more: Further columns.

    Example:
        >>> choice_document("1", "Which side?", ["left", "right"], 1)["answer"]
        'B'
    """
    return new_document(
        CHOICE, doc_id, question=question, options=list(options), answer=letter(answer), **more
    )
