"""Canonical documents: one column set per task family.

``PAIRED_CHOICE`` (MediConfusion): one row per image of a pair. No column is nullable.

=================  ============  ==================================================================================
column             type          meaning
=================  ============  ==================================================================================
``doc_id``         str           unique and stable in the dataset, ``"<pair_id>/<position>"``
``dataset``        str           catalogue name, so that hooks find the images beside the documents
``pair_id``        str           the two rows of a pair share it
``position``       int           1 or 2: first or second image of the pair
``image_id``       str           the same image has the same id wherever it is used
``image_file``     str           path below the dataset's folder; one file per distinct image
``image_sha256``   str           of the file's bytes
``question``       str           as published, without options
``options``        list[str]     option texts in order A, B, ...; at least two
``answer``         str           letter of the right option
``categories``     list[str]     medical areas of this image, one or more
=================  ============  ==================================================================================

``CURATED_PAIR`` (pairs of a study of the user's own, ``medtasks curate publish``) has these columns, of which
``categories`` may be empty and ``image_id`` is the study's, the image's ``licence`` (str or null), and the cosine
similarity of the pair's images to the medical encoder (``sim_med``) and to the vision-only one (``sim_gen``).

All other families share these columns:

=================  ============  ==================================================================================
``doc_id``         str           unique and stable in the dataset
``dataset``        str           name the dataset is prepared under
``image_id``       str or null   the same image (or study, where a question shows several) has the same id
``patient_id``     str or null   where the source says whose image it is; results never show it
``image_files``    list[str]     paths below the dataset's folder, in the order they are shown; may be empty. A volume
                                 (``.nii.gz``) is a link to the file of the source
``image_sha256``   list[str]     of the files' bytes, in the same order
=================  ============  ==================================================================================

and add their own:

=================  ============  ==================================================================================
``CHOICE``                       question answering and inference with options
``subject``        str or null   as published
``context``        str or null   text the question is about: an abstract, or the first sentence of an inference
``question``       str           as published, without options
``options``        list[str]     option texts in order A, B, ...; at least two
``answer``         str           letter of the right option

``OPEN_QUESTION``                visual question answering
``question``       str           as published
``answer``         str           as published
``question_type``  str or null   as published; scores do not use it

``CLASSIFICATION``               one class per image
``details``        str or null   what the prompt says about this patient
``options``        list[str]     names of the classes, the same in every row
``label``          int           index of the right class, from 0

``MULTILABEL``                   several findings per image
``options``        list[str]     names of the findings, the same in every row
``labels``         list[int]     0 or 1 per finding

``REPORT``                       report generation and summarisation
``context``        str or null   text to summarise
``indication``     str or null   why the study was made, as the report says; empty where it does not say
``report``         str           what a radiologist wrote, as the protocol compares it

``CLOSED_QUESTION``              MedHEval: yes/no questions and questions with options, mixed
``question``       str           as published, without options
``kind``           str           ``"binary"`` or ``"multi-choice"``
``choices``        str           the options as published, one text in one of several dialects; empty for most yes/no
``options``        list[str]     option texts in order A, B, ...; Yes and No for yes/no; empty where they cannot be told
``answer``         str or null   letter of the right option; null where the published answer names no single one
``gold``           str           the right answer as published
``flags``          list[str]     what had to be interpreted, see :mod:`medtasks.data.medheval.gold`
``hallucination``  str or null   what it is about: ``anatomy``, ``measurement``, ``symptom`` or ``technique``
``source``         str           where the image is from: ``slake``, ``vqa_rad``, ``iu_xray`` or ``mimic_cxr``; of
                                 questions from a study of the user's own, its name
``modality``       str or null   as published (SLAKE only)
``location``       str or null   body part as published (SLAKE and VQA-RAD only)

``COMPONENT_REPORT``             MedHEval: report generation, scored by the components a report mentions. All columns of
                                 ``REPORT``, and
``question``       str           as published, the same in every row; of a study of the user's own, each its own
``anatomy``        list[str]     anatomical structures of the reference report, as published; ``measurement``: its
                                 measurements, mostly none; ``symptom``: its findings

``GROUPED_CHOICE``               GMAI-MMBench: questions with options, in groups. ``image_id`` is the same for questions
                                 on one case, whether it is drawn as a mask or as a contour
``hint``           str or null   as published
``question``       str           as published, without options
``options``        list[str]     option texts in order A, B, ...; at least two, their number differs
``answer``         str or null   letter of the right option; null in the part without a published key
``granularity``    str or null   what the question is about, from the whole image to a contour; as published, as are
                                 ``department`` (also the department ``None``), ``clinical_task``, ``modality`` and
                                 ``original_task``
``keyword``        str or null   fine label of the case, which is the right answer

``MULTI_ANSWER``                 the same with several right options: ``answers`` in place of ``answer``
``answers``        list[str]     letters of the right options, in order

``KIT_CHOICE``                   MedEvalKit's sets with options. Columns of groups that a set does not have are null
``question``       str           as published, also where it repeats its options or marks the places of images
``options``        list[str]     option texts in order A, B, ..., without letters that a set writes before them; none
                                 for an open question (MMMU)
``option_lines``   list[str]     the options as MedEvalKit shows and compares them, in a form of each set
``answer``         str or null   letter of the right option; null where the published answer is none of them, for an
                                 open question, and in a part without published answers
``gold``           str or null   the right answer as published: a letter or a text
``flags``          list[str]     faults of the published row, most of which stop or mislead MedEvalKit, see
                                 :data:`medtasks.data.medevalkit.documents.FLAGS`
``subject``        str or null   as published (MMMU: the subject's name), as are ``question_type``, ``modality``,
                                 ``medical_task`` and ``body_system``
``part``           str or null   name of the file that the row is from (OmniMedVQA only)

``KIT_QUESTION``                 SLAKE as MedEvalKit asks it, in two languages. All columns of ``OPEN_QUESTION``, and
``answer_type``    str           ``OPEN`` or ``CLOSED``, as published
``language``       str           ``en`` or ``zh``
``modality``       str or null   as published
``location``       str or null   body part as published
=================  ============  ==================================================================================

The split ``demonstrations`` holds examples for few-shot prompts, in the same columns; not every dataset has them.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from medtasks.data.samples import letter

SPLIT = "test"
DEMONSTRATIONS_SPLIT = "demonstrations"

Columns = Mapping[str, str | list[str]]

_TYPES: Mapping[str, str | list[str]] = {
    "str": "string",
    "int": "int32",
    "float": "float64",
    "list[str]": ["string"],
    "list[int]": ["int32"],
}


def _columns(words: str) -> Columns:
    """Return the Arrow types of columns written ``name:type``; a name alone is a text."""
    named = (word.partition(":") for word in words.split())
    return {name: _TYPES[kind or "str"] for name, _, kind in named}


PAIRED_CHOICE = _columns(
    "doc_id dataset pair_id position:int image_id image_file image_sha256 question options:list[str] answer "
    "categories:list[str]"
)
CURATED_PAIR = {**PAIRED_CHOICE, **_columns("licence sim_med:float sim_gen:float")}
_SHARED = _columns("doc_id dataset image_id patient_id image_files:list[str] image_sha256:list[str]")
CHOICE = {**_SHARED, **_columns("subject context question options:list[str] answer")}
OPEN_QUESTION = {**_SHARED, **_columns("question answer question_type")}
CLASSIFICATION = {**_SHARED, **_columns("details options:list[str] label:int")}
MULTILABEL = {**_SHARED, **_columns("options:list[str] labels:list[int]")}
REPORT = {**_SHARED, **_columns("context indication report")}
CLOSED_QUESTION = {
    **_SHARED,
    **_columns("question kind choices options:list[str] answer gold flags:list[str]"),
    **_columns("hallucination source modality location"),
}
COMPONENT_REPORT = {**REPORT, **_columns("question anatomy:list[str] measurement:list[str] symptom:list[str]")}
_GROUPED = {
    **_SHARED,
    **_columns("hint question options:list[str] department clinical_task granularity modality keyword original_task"),
}
GROUPED_CHOICE = {**_GROUPED, **_columns("answer")}
KIT_CHOICE = {
    **_SHARED,
    **_columns("question options:list[str] option_lines:list[str] answer gold flags:list[str]"),
    **_columns("subject question_type modality part medical_task body_system"),
}
KIT_QUESTION = {**OPEN_QUESTION, **_columns("answer_type language modality location")}
MULTI_ANSWER = {**_GROUPED, **_columns("answers:list[str]")}


def arrow_schema(columns: Columns) -> Any:
    """Return the schema of a ``pyarrow`` table with these columns."""
    import pyarrow

    def of(kind: str | list[str]) -> Any:
        return pyarrow.list_(of(kind[0])) if isinstance(kind, list) else pyarrow.type_for_alias(kind)

    return pyarrow.schema({name: of(kind) for name, kind in columns.items()})


Document = dict[str, Any]
_ADDED = ("dataset", "image_files", "image_sha256")


def image_digests(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of each image file of a document, by path below the dataset's folder."""
    if "image_file" in document:
        return {document["image_file"]: document["image_sha256"]}
    return dict(zip(document["image_files"], document["image_sha256"], strict=True))


def image_columns(columns: Columns, digests: Sequence[tuple[str, str]]) -> Document:
    """Return the columns of a document that say which images it shows: file and SHA-256 of each, in order."""
    if "image_file" in columns:
        ((file, sha256),) = digests
        return {"image_file": file, "image_sha256": sha256}
    return {"image_files": [file for file, _ in digests], "image_sha256": [sha256 for _, sha256 in digests]}


def image_key(file: str) -> str:
    """Return the name an image file has in fingerprints: its own, without folder and ending."""
    return PurePosixPath(file).stem


def new_document(columns: Columns, doc_id: str, **known: Any) -> Document:
    """Return a document of a schema without what preparing adds, dataset and image files; what is not given is null."""
    assert known.keys() <= columns.keys()
    return {name: None for name in columns if name not in _ADDED} | {"doc_id": doc_id, **known}


def choice_document(doc_id: str, question: str, options: Sequence[str], answer: int, **known: str | None) -> Document:
    """Return a document of the ``CHOICE`` schema; ``answer`` is the index of the right option."""
    return new_document(CHOICE, doc_id, question=question, options=list(options), answer=letter(answer), **known)
