"""Sets on chest X-rays as MedEvalKit spreads them: reports, and Rad-ReStruct's questions.

- MIMIC-CXR, CheXpert Plus and IU X-ray: ``test.json``, a list of studies with ``id``, ``image``, ``findings`` and
  ``impression``, and the folder ``images``. A study of which both texts are blank is not evaluated. The report is that
  of the published script.
- Rad-ReStruct: a file of questions per report in ``test_qa_pairs``, the names of its frontal images in
  ``id_to_img_mapping_frontal_reports.json``, and the folder ``imgs``. Every question is asked about every frontal image
  of its report, without the questions before it, which the authors show. Pellegrini et al., MICCAI 2023.

Which studies are of one patient is not said, so the study is the cluster. Source: ``MIMIC_CXR``, ``CheXpert_Plus``,
``IU_XRAY`` and ``Radrestruct`` below ``utils`` of https://github.com/alibaba-damo-academy/MedEvalKit at 9b12e3b.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path

from medtasks.data.named_files import read_stream
from medtasks.data.prepare.source_files import (
    OpenedFiles,
    folder_or_archive_reader,
    required_file,
    required_shards,
)
from medtasks.data.prepare.source_recipe import Recipes
from medtasks.data.prepare.source_tables import (
    SourceRow,
    SourceTable,
    TableReader,
    UnusableRow,
    listed_records,
    read_json,
    records_table,
)
from medtasks.data.schema import REPORT, STRUCTURED_QUESTION, NewDocument, new_document
from medtasks.errors import SourceError

_STUDIES = "test.json"
_QUESTIONS = "test_qa_pairs"
_FRONTAL = "id_to_img_mapping_frontal_reports.json"
_TYPES = ("single_choice", "multi_choice", "fixed_choice")


class _Studies(TableReader):
    columns = REPORT
    folder = "images"

    def table(self, source: Path, _split: str) -> SourceTable:
        with required_file(source, [_STUDIES]).open() as stream:
            columns = ("id", "image", "findings", "impression")
            return listed_records(_STUDIES, read_stream(stream), columns)

    def document(self, row: SourceRow, _split: str) -> NewDocument:
        study = row.name("id")
        findings = row.text("findings")
        impression = row.text("impression")
        if not findings.strip() and not impression.strip():
            raise UnusableRow(
                "studies without findings and without an impression", outside=True
            )
        if not row.values["image"]:
            raise UnusableRow("it has no image")
        report = f"Findings: {findings} Impression: {impression}."
        return new_document(REPORT, study, report=report, image_id=study)

    def names_of_images(self, row: SourceRow) -> Sequence[str]:
        return (
            [row.text("image")] if isinstance(row.values["image"], str) else row.texts("image")
        )

    def files(self, source: Path) -> OpenedFiles:
        return folder_or_archive_reader(
            source, [self.folder], f"{self.folder}.zip", (f"{self.folder}/", "")
        )


class _RadReStruct(_Studies):
    columns = STRUCTURED_QUESTION
    folder = "imgs"

    def table(self, source: Path, _split: str) -> SourceTable:
        frontal = read_json(required_file(source, [_FRONTAL]))
        files = required_shards(source, [f"{_QUESTIONS}/*.json"], f"folder {_QUESTIONS}")
        records = []
        for file in sorted(files, key=lambda file: (len(file.name), file.name)):
            report = file.path.stem
            questions = read_json(file)
            images = frontal.get(report) if isinstance(frontal, dict) else None
            if not isinstance(images, list) or not isinstance(questions, list):
                raise SourceError(
                    f"{_FRONTAL} has no list of images of report {report}, or {file.name} no questions"
                )
            for image, (number, entry) in itertools.product(images, enumerate(questions, 1)):
                location = f"{_QUESTIONS}/{file.name} row {number}"
                if (
                    not isinstance(entry, list)
                    or len(entry) != 4
                    or not isinstance(entry[3], dict)
                ):
                    raise SourceError(
                        f"{location} is not a list of question, answers, earlier questions and facts"
                    )
                question, answers, _, facts = entry
                record = {
                    **facts,
                    "id": f"{image}/{number}",
                    "report": report,
                    "image": f"{image}.png",
                    "question": question,
                    "answers": answers,
                }
                records.append((location, record))
        return records_table(records, ("options", "answer_type"))

    def document(self, row: SourceRow, _split: str) -> NewDocument:
        kind = row.one_of("answer_type", _TYPES, "answer_type is none of")
        options = row.texts("options")
        answers = row.texts("answers")
        if not answers or len(options) < 2:
            raise row.error("it has no answer, or fewer than two options")
        return new_document(
            question=row.text("question"),
            answer=answers[0],
            answer_type=kind,
            options=options,
            answers=answers,
            image_id=row.text("report"),
            columns=STRUCTURED_QUESTION,
            doc_id=row.text("id"),
        )


_REPORT_RECIPE = _Studies().recipe(
    f"MedEvalKit's {_STUDIES} of the set, and the folder images", ("test",)
)
RECIPES: Recipes = {
    "medevalkit_mimic_cxr_report": _REPORT_RECIPE,
    "medevalkit_chexpert_plus_report": _REPORT_RECIPE,
    "medevalkit_iu_xray_report": _REPORT_RECIPE,
    "medevalkit_radrestruct": _RadReStruct().recipe(
        f"the folders {_QUESTIONS} and imgs, and {_FRONTAL}, of MedEvalKit's copy of the test set",
        ("test",),
    ),
}
