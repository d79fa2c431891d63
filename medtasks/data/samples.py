"""Typed view of a document for extractors, families and prompts, whatever columns its family has."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_LETTERS = 26  # options of a question that is answered by a letter
DRAWN = "drawn"  # column for the cluster and stratum in a draw, and field of its scores
REPLY_LANGUAGE = "reply_language"  # column for the language that a task names

Document = Mapping[str, Any]
Documents = Sequence[Document]
Samples = Sequence["Sample"]


def letter(index: int) -> str:
    """Return the letter of an option. Classes after Z have two, from AA on.

    Args:
        index: From 0.

    Example:
        >>> letter(0), letter(25), letter(26)
        ('A', 'Z', 'AA')
    """
    before, last = divmod(index, MOST_LETTERS)
    return (letter(before - 1) if before else "") + chr(ord("A") + last)


def first_letters(count: int) -> list[str]:
    """Return the letters of the first ``count`` options.

    Example:
        >>> first_letters(3)
        ['A', 'B', 'C']
    """
    return list(map(letter, range(count)))


def option_index(name: str) -> int:
    """Return the index, from 0, of the option with a letter.

    Example:
        >>> option_index("A"), option_index("AA")
        (0, 26)
    """
    number = 0
    for part in name:
        number = number * MOST_LETTERS + ord(part) - ord("A") + 1
    return number - 1


@dataclass(frozen=True)
class Sample:
    """Typed view of a document in the canonical columns (:mod:`medtasks.data.schema`).

    Example:
        >>> sample = Sample({"doc_id": "7", "image_file": "a.png", "options": ["yes", "no"], "answer": "B"})
        >>> sample.images, sample.target, sample.options
        (('a.png',), 1, ('yes', 'no'))
    """

    document: Document  # columns that it lacks are empty or None here
    # As an extractor compares them. None for their bare texts.
    written_options: Sequence[str] | None = None

    @property
    def doc_id(self) -> Any:
        """Unique in the dataset, or None where the document has none."""
        return self.document.get("doc_id")

    @property
    def dataset(self) -> str | None:
        """Name of the prepared dataset, or None for documents that were not prepared here."""
        name = self.document.get("dataset")
        return None if name is None else str(name)

    @property
    def question(self) -> str:
        """The question as published, without options."""
        return str(self.document.get("question") or "")

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages in which replies are expected, besides English. Empty for any."""
        language = self.document.get(REPLY_LANGUAGE)
        return () if language is None else (str(language),)

    @property
    def options(self) -> tuple[str, ...]:
        """Option texts in order A, B, ..., in the form in which they are compared.

        Example:
            >>> Sample({"options": ["CT", "MRI"]}, written_options=["A. CT", "B. MRI"]).options
            ('A. CT', 'B. MRI')
        """
        if self.written_options is not None:
            return tuple(self.written_options)
        return tuple(self.document.get("options") or ())

    @property
    def target(self) -> int | None:
        """Index of the one right option, or None if it is unknown or no single option is right.

        Example:
            >>> Sample({"answer": "B"}).target, Sample({"label": 3}).target, Sample({"answers": ["A", "B"]}).target
            (1, 3, None)
        """
        if "label" in self.document:
            return int(self.document["label"])
        answer = self.document.get("answer")
        return None if answer is None else option_index(answer)

    @property
    def images(self) -> tuple[str, ...]:
        """Files of the images, in the order they are shown. Empty for a document without images.

        Example:
            >>> Sample({"image_files": ["a.png", "b.png"]}).images
            ('a.png', 'b.png')
        """
        if "image_files" in self.document:
            return tuple(self.document["image_files"])
        if "image_file" in self.document:
            return (self.document["image_file"],)
        return ()

    @property
    def cluster_id(self) -> str:
        """Cluster of errors and tests: the patient, else the image, else the document itself.

        A document that repeats a question names its cluster in ``unit_id``. Scores end up in the harness's samples
        file, so ids of patients are hashed. Where patients share images,
        :func:`medtasks.stats.standard_error.joined_clusters` joins them.

        Example:
            >>> Sample({"doc_id": "1", "patient_id": "7", "image_id": "a"}).cluster_id
            'patient-7902699be42c8a8e'
        """
        keys = map(self._hashed_id, ("unit", "patient", "image", "doc"))
        return next((key for key in keys if key is not None), "unknown")

    @property
    def patient_image(self) -> str | None:
        """The image of a known patient, which other patients may share. None where the cluster is none of a patient."""
        return self._hashed_id("image") if self.cluster_id.startswith("patient-") else None

    @property
    def sampling_unit(self) -> Mapping[str, int] | None:
        """Cluster and stratum in a draw from a whole dataset (:mod:`medtasks.data.drawing`), None of other samples."""
        return self.document.get(DRAWN)

    def _hashed_id(self, kind: str) -> str | None:
        value = self.document.get(f"{kind}_id")
        if value is None:
            return None
        return f"{kind}-{hashlib.sha256(str(value).encode()).hexdigest()[:16]}"
