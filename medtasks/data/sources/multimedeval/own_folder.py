"""A user's own questions in the format of MultiMedEval's additional datasets.

A folder holds ``dataset.json`` and the images it names (``multimedeval/dynamic_datasets.py`` at d9ac283)::

    {"taskType": "VQA", "modality": "Radiology", "samples": [
        {"question": "Where is the lesion?", "answer": "left lung", "images": ["scan.png"]}]}

``taskType`` is ``VQA``, or ``QA`` with the texts of the ``options`` in every sample. ``images`` may be left out.
Models see images by the rule ``linear`` of :mod:`medtasks.data.images.decoding`. ``"image_range": [LOW, HIGH]`` next
to ``taskType`` says which values are black and white in those with more than 8 bits; without it their files have to.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from medtasks.data.images.decoding import LINEAR, Decoding
from medtasks.data.prepare.source_files import SourceFile, file_reader
from medtasks.data.prepare.source_recipe import SourceRecipe, TableReader, UnusableRow
from medtasks.data.prepare.table_files import SourceRow, SourceTable, check_columns, read_json, records_table
from medtasks.data.schema import CHOICE, OPEN_QUESTION, Document, choice_document
from medtasks.data.sources.multimedeval.question_sets import open_question
from medtasks.errors import MedTasksError, SourceError
from medtasks.home import datasets_folder

FILE_NAME = "dataset.json"
QA, VQA = "QA", "VQA"
_MOST_OPTIONS = 26  # letters


@dataclass(frozen=True)
class OwnQuestions:
    """Content of a folder."""

    folder: Path
    kind: str  # ``"QA"`` or ``"VQA"``
    modality: str  # as its owner calls it
    samples: SourceTable
    decoding: Decoding  # what models see of the images

    @property
    def recipe(self) -> SourceRecipe:
        """Recipe of the questions."""
        reader = TableReader(
            CHOICE if self.kind == QA else OPEN_QUESTION,
            lambda _source, _split: self.samples,
            self._document,
            self._images,
            lambda _source: file_reader([self.folder], (), ()),
        )
        return replace(reader.recipe(f"a folder with {FILE_NAME}", ("test",)), decoding=self.decoding)

    def _images(self, row: SourceRow) -> list[str]:
        """Return the names of the images; none may be outside of the folder, which others may be shown."""
        names = [] if row.values.get("images") is None else row.texts("images")
        for name in names:
            path = (self.folder / name).resolve()
            if not path.is_relative_to(self.folder.resolve()) or path.is_relative_to(datasets_folder().resolve()):
                raise row.error(
                    f"its image {name} is outside of {self.folder} or in a prepared dataset; put a copy into the folder"
                )
        return names

    def _document(self, row: SourceRow, _split: str) -> Document:
        doc_id = f"test/{row.index}"
        if self.kind == VQA:
            return open_question(row, doc_id)
        options, answer = row.texts("options"), row.text("answer")
        if not 2 <= len(options) <= _MOST_OPTIONS:
            raise row.error(f"it has {len(options)} options; 2 to {_MOST_OPTIONS} are possible")
        # As the reference compares them. Of equal options it can only ever choose the first.
        same = [index for index, option in enumerate(options) if option.strip().lower() == answer.strip().lower()]
        if not same:
            raise UnusableRow("its answer is none of its options, so that no reply could be right")
        return choice_document(doc_id, row.text("question"), options, same[0], subject=self.modality or None)


def read_folder(folder: Path) -> OwnQuestions:
    """Read the ``dataset.json`` of a folder, a SourceError unless it is as said above; its images are not opened."""
    path = folder / FILE_NAME
    if not path.is_file():
        raise SourceError(f"{folder} holds no {FILE_NAME}; name the folder that holds it")
    content = read_json(SourceFile(path))
    if not isinstance(content, dict):
        raise SourceError(f"{path} is not an object with taskType, modality and samples")
    check_columns(str(path), ("taskType", "modality", "samples"), content)
    whole = SourceRow(str(path), 0, content)
    kind = whole.text("taskType")
    if kind not in (QA, VQA):
        raise whole.error(f"taskType is '{kind}', and only {QA} and {VQA} can be prepared")
    if not isinstance(content["samples"], list) or not content["samples"]:
        raise whole.error("samples is not a list of questions")
    columns = ("question", "answer", *(["options"] if kind == QA else []))
    samples = ((f"{FILE_NAME} sample {number}", sample) for number, sample in enumerate(content["samples"], 1))
    try:
        decoding = Decoding.of_settings({"image_range": content.get("image_range")}) or LINEAR
    except MedTasksError as error:
        raise whole.error(str(error)) from error
    return OwnQuestions(folder, kind, whole.text("modality"), records_table(samples, columns), decoding)
