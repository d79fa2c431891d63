"""Tasks whose targets only the benchmark's authors have: no score, but the file that they score.

The file is a spreadsheet with the columns of the questions and ``prediction``, the reply as the model gave it, as
VLMEvalKit writes it and GMAI-MMBench's authors ask for by mail; ``option`` is what the rule read from it.
"""

import datetime
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from loguru import logger

from medtasks.data.document_store import load_documents
from medtasks.data.samples import Sample, letter
from medtasks.data.variants import COLUMN
from medtasks.errors import MedTasksError
from medtasks.extract.answer import Reason
from medtasks.families.counts import INVALID_RATE, SAMPLE_COUNTS, is_failed
from medtasks.families.family import Column, Reply, Row, TaskFamily
from medtasks.home import home, written_whole
from medtasks.metrics.metric import AnyMetric, Score, Scores, counting

_GROUPS = ("keyword", "clinical_task", "department", "granularity", "modality", "original_task")
_CELL = 32_767  # characters, more do not fit into one


def submission_rows(scores: Scores, write: Callable[[Scores], Path] | None = None) -> float:
    """Write the file, by default a spreadsheet, and return how many rows it has; NaN when it cannot be written."""
    if not scores:
        return math.nan
    try:
        path = (write or write_submission)(scores)
    except (OSError, MedTasksError) as error:
        logger.error("The submission cannot be written ({}); mend that and use 'medtasks score' on the replies.", error)
        return math.nan
    if failed := sum(map(is_failed, scores)):
        logger.warning(
            "{} of {} rows of the submission are blank, because the model failed there.", failed, len(scores)
        )
    dataset = scores[0]["dataset"]
    logger.info("'{}' has no published key, so there is no score: send {} to the benchmark's authors.", dataset, path)
    return float(len(scores))


class Submission(TaskFamily):
    """Questions with lettered options."""

    name = "answers to submit"
    columns: ClassVar[Mapping[str, Column]] = {"dataset": Column.TEXT, "options": Column.OPTIONS}
    extractor = "robust_choice"
    scores_suffice = False
    metrics: Sequence[AnyMetric] = (
        counting("submission_rows", submission_rows, description="Rows of the file to submit."),
        INVALID_RATE,
        *SAMPLE_COUNTS,
    )

    def _score(self, sample: Sample, reply: Reply, row: Row) -> Score:
        answer, rule = self.read(sample, reply, row)
        variant = sample.document.get(COLUMN)
        return {
            "dataset": sample.dataset,
            "reply": "" if answer.reason is Reason.ADAPTER_FAILED else reply.text,
            "value": answer.value,
            "reason": answer.reason,
            "rule": rule,
            **({} if variant is None else {COLUMN: variant}),
        }


def write_submission(scores: Scores) -> Path:
    """Write the spreadsheet below ``$MEDTASKS_HOME/submissions``, rows in the order of the questions; return its path.

    Raises OSError, or MedTasksError where the questions are not there any more.
    """
    from openpyxl import Workbook

    by_sample = {score["sample"]: score for score in scores}
    documents = [one for one in load_documents(str(scores[0]["dataset"])) if one["doc_id"] in by_sample]
    letters = [letter(index) for index in range(max(len(document["options"]) for document in documents))]
    book = Workbook(write_only=True)
    sheet = book.create_sheet("predictions")
    sheet.append(["index", "question", *letters, *_GROUPS, "prediction", "option"])
    for document in documents:
        score, options = by_sample[document["doc_id"]], document["options"]
        texts = [*options, *[""] * (len(letters) - len(options)), *(document[group] for group in _GROUPS)]
        cells = [document["doc_id"], document["question"], *texts, score["reply"], score["value"]]
        sheet.append([_cell(text) for text in cells])
    path = submission_file(scores, "xlsx")
    with written_whole(path) as partial:
        book.save(partial)
    return path


def submission_file(scores: Scores, ending: str) -> Path:
    """Return the path of a new file; those of a sanity variant lie apart, lest they are sent in for the task's."""
    dataset, variant = str(scores[0]["dataset"]), scores[0].get(COLUMN)
    folder = home() / "submissions" / (f"{dataset}_{variant}" if variant else dataset)
    return folder / f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S_%fZ}-{os.getpid()}.{ending}"


def _cell(text: str | None) -> str:
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    plain = ILLEGAL_CHARACTERS_RE.sub(" ", text or "")[:_CELL]
    return f"'{plain}" if plain.startswith("=") else plain  # a spreadsheet would compute it


SUBMISSION = Submission()
