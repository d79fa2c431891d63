"""Sets on chest X-rays as MedEvalKit spreads them: reports, and Rad-ReStruct's questions.

- MIMIC-CXR, CheXpert Plus and IU X-ray: ``test.json``, a list of studies with ``id``, ``image``, ``findings`` and
  ``impression``, and the folder ``images``. A study of which both texts are blank is not evaluated. The report is the
  text that the published script compares, with the raw parts in it.
- Rad-ReStruct: a file of questions per report in ``test_qa_pairs``, the names of its frontal images in
  ``id_to_img_mapping_frontal_reports.json``, and the folder ``imgs``. Every question is asked about every frontal image
  of its report. The questions before it, which the benchmark's authors show, are not asked along. Pellegrini et al.,
  MICCAI 2023.

Which studies are of one patient is not said, so the study is the cluster. Source: ``MIMIC_CXR``, ``CheXpert_Plus``,
``IU_XRAY`` and ``Radrestruct`` below ``utils`` of https://github.com/alibaba-damo-academy/MedEvalKit at 9b12e3b.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from medtasks.data import schema
from medtasks.data.prepare import source_files
from medtasks.data.prepare.source_files import SourceRow, SourceTable
from medtasks.data.prepare.source_recipe import ReadFile, SourceRecipe, TableReader, UnusableRow
from medtasks.errors import SourceError

_STUDIES = "test.json"
_QUESTIONS, _FRONTAL = "test_qa_pairs", "id_to_img_mapping_frontal_reports.json"
ANSWER_TYPES = ("single_choice", "multi_choice", "fixed_choice")


class _Studies(TableReader):
    columns = schema.REPORT

    def table(self, source: Path, _split: str) -> SourceTable:
        content = source_files.read_json(source_files.required_file(source, [_STUDIES]))
        if not isinstance(content, list):
            raise SourceError(f"{_STUDIES} is not a list of studies")
        records = ((f"{_STUDIES} row {number}", record) for number, record in enumerate(content, 1))
        return source_files.records_table(records, ("id", "image", "findings", "impression"))

    def document(self, row: SourceRow, _split: str) -> schema.Document:
        study, findings, impression = row.name("id"), row.text("findings"), row.text("impression")
        if not findings.strip() and not impression.strip():
            raise UnusableRow("studies without findings and without an impression", outside=True)
        report = f"Findings: {findings} Impression: {impression}."
        return schema.new_document(schema.REPORT, study, report=report, image_id=study)

    def named(self, row: SourceRow) -> Sequence[str]:
        return [row.text("image")] if isinstance(row.values["image"], str) else row.texts("image")

    def files(self, source: Path) -> AbstractContextManager[ReadFile]:
        return source_files.unpacked_or_archived(source, ["images"], "images.zip", ("images/", ""))


class _RadReStruct(TableReader):
    columns = schema.STRUCTURED_QUESTION
    image_name = "image"

    def table(self, source: Path, _split: str) -> SourceTable:
        frontal = source_files.read_json(source_files.required_file(source, [_FRONTAL]))
        if not isinstance(frontal, dict):
            raise SourceError(f"{_FRONTAL} is not an object with the images of each report")
        files = source_files.required_shards(source, [f"{_QUESTIONS}/*.json"], f"folder {_QUESTIONS}")
        records = []
        for file in sorted(files, key=lambda file: (len(file.path.stem), file.path.stem)):
            report, questions = file.path.stem, source_files.read_json(file)
            images = frontal.get(report)
            if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
                raise SourceError(f"{_FRONTAL} has no list of images for report {report}")
            if not isinstance(questions, list):
                raise SourceError(f"{_QUESTIONS}/{file.name} is not a list of questions")
            for image in images:
                for number, entry in enumerate(questions, 1):
                    place = f"{_QUESTIONS}/{file.name} row {number}"
                    records.append((place, _record(place, entry, report, image, number)))
        return source_files.records_table(records, ("question", "options", "answers", "answer_type"))

    def document(self, row: SourceRow, _split: str) -> schema.Document:
        kind = row.one_of("answer_type", ANSWER_TYPES, "answer_type is none of")
        answers, options = row.texts("answers"), row.texts("options")
        if not answers or len(options) < 2:
            raise row.error("it has no answer, or fewer than two options")
        texts = {"question": row.text("question"), "answer": answers[0], "answer_type": kind}
        lists = {"options": options, "answers": answers}
        report = row.text("report")
        return schema.new_document(schema.STRUCTURED_QUESTION, row.text("id"), image_id=report, **texts, **lists)

    def files(self, source: Path) -> AbstractContextManager[ReadFile]:
        return source_files.unpacked_or_archived(source, ["imgs"], "imgs.zip", ("imgs/", ""))


def _record(place: str, entry: Any, report: str, image: str, number: int) -> Mapping[str, Any]:
    """Return the columns of a published question, which is a list."""
    if not isinstance(entry, list) or len(entry) != 4 or not isinstance(entry[3], dict):
        raise SourceError(f"{place} is not a list of question, answers, earlier questions and facts")
    columns = {"question": entry[0], "answers": entry[1], **{name: entry[3].get(name) for name in _FACTS}}
    return {"id": f"{image}/{number}", "report": report, "image": f"{image}.png", **columns}


_FACTS = ("options", "answer_type")
_LAYOUT = f"MedEvalKit's {_STUDIES} of the set, and the folder images"
RECIPES: Mapping[str, SourceRecipe] = {
    **{
        f"medevalkit_{name}_report": _Studies().recipe(_LAYOUT, ("test",))
        for name in ("mimic_cxr", "chexpert_plus", "iu_xray")
    },
    "medevalkit_radrestruct": _RadReStruct().recipe(
        f"the folders {_QUESTIONS} and imgs, and {_FRONTAL}, of MedEvalKit's copy of the test set", ("test",)
    ),
}
