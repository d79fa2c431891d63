"""Tasks whose targets only the benchmark's authors have: no score, but the file that they score.

GMAI-MMBench: a spreadsheet with the columns of the questions and ``prediction``, the reply as the model gave it, as
VLMEvalKit writes it and the authors ask for by mail; ``option`` is what the rule read from it.

MMMU: one JSON object of answers by the questions' ids: the letter of the option, or the text of an answer to an open
question, which the authors parse themselves. Their evaluator divides by the number of ids in the file, so that a
question that failed, or whose reply names no option, has an empty answer, which is wrong. Source: ``mmmu/README.md``
("Evaluation Only") and ``mmmu/main_eval_only.py`` of https://github.com/MMMU-Benchmark/MMMU.

Used by the hooks for test sets without targets. It must never print a score.
"""

import datetime
import json
import math
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

from loguru import logger

from medtasks.data.document_store import load_documents
from medtasks.data.samples import Documents, Sample, first_letters
from medtasks.data.variants import COLUMN
from medtasks.errors import MedTasksError
from medtasks.extract.extractor_registry import Reason
from medtasks.extract.published.medevalkit_choice import is_open
from medtasks.extract.reading.reply_text import own_words
from medtasks.families.columns import Column, Columns
from medtasks.families.counts import INVALID_RATE, SAMPLE_COUNTS, is_failed
from medtasks.families.family import Reply, Rule, TaskFamily
from medtasks.home import home, written_whole
from medtasks.metrics.metric import MetricList, Score, ScoreList, counting

_GROUPS = ("keyword", "clinical_task", "department", "granularity", "modality", "original_task")
_CELL = 32_767  # characters, more do not fit into one


def submission_rows(scores: ScoreList, ending: str) -> float:
    """Write a submission file below ``$MEDTASKS_HOME/submissions``. A variant has a folder of its own.

    Args:
        scores: Scores of a run.
        ending: Ending of the file: ``json`` for the answers by id, else a spreadsheet of questions and predictions.

    Returns:
        The number of rows, NaN if writing fails.
    """
    if not scores:
        return math.nan
    dataset = str(scores[0]["dataset"])
    variant = scores[0].get(COLUMN)
    folder = home() / "submissions" / (f"{dataset}_{variant}" if variant else dataset)
    now = datetime.datetime.now(datetime.UTC)
    path = folder / f"{now:%Y%m%dT%H%M%S_%fZ}-{os.getpid()}.{ending}"
    by_sample = {score["sample"]: score for score in scores}
    try:
        documents = [
            document for document in load_documents(dataset) if document["doc_id"] in by_sample
        ]
        with written_whole(path) as file:
            if ending == "json":
                ids = [document["doc_id"] for document in documents]
                answers = {doc_id: by_sample[doc_id]["reply"] or "" for doc_id in ids}
                text = json.dumps(answers, ensure_ascii=False, indent=2)
                file.write_text(f"{text}\n", encoding="utf-8")
            else:
                _write_spreadsheet(file, documents, by_sample)
    except (OSError, MedTasksError) as error:
        logger.error(
            "The submission cannot be written ({}); fix that and use 'medtasks score' on the replies.",
            error,
        )
        return math.nan
    failed = sum(map(is_failed, scores))
    if failed:
        logger.warning(
            "{} of {} rows of the submission are blank, because the model failed there.",
            failed,
            len(scores),
        )
    logger.info(
        "'{}' has no published targets, so there is no score: send {} to the benchmark's authors.",
        dataset,
        path,
    )
    return float(len(scores))


def _write_spreadsheet(
    file: Path,
    documents: Documents,
    by_sample: Mapping[str, Score],
) -> None:
    """Write one row per document: question, options, groups, the reply and the letter that the rule read, if any."""
    from openpyxl import Workbook
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    def cell(text: str | None) -> str:
        plain = ILLEGAL_CHARACTERS_RE.sub(" ", text or "")[:_CELL]
        return f"'{plain}" if plain.startswith("=") else plain  # a spreadsheet would compute it

    most = max(len(document["options"]) for document in documents)
    letters = first_letters(most)
    book = Workbook(write_only=True)
    sheet = book.create_sheet("predictions")
    sheet.append(["index", "question", *letters, *_GROUPS, "prediction", "option"])
    for document in documents:
        score = by_sample[document["doc_id"]]
        options = document["options"]
        cells = [
            document["doc_id"],
            document["question"],
            *options,
            *[""] * (most - len(options)),
            *(document[group] for group in _GROUPS),
            score["reply"],
            score["value"],
        ]
        sheet.append(list(map(cell, cells)))
    book.save(file)


def _metrics(ending: str) -> MetricList:
    """Declare the number of rows of the file, whose name ends with ``ending``, and the counts of samples."""
    return (
        counting(
            "submission_rows",
            partial(submission_rows, ending=ending),
            description="Rows of the file to submit.",
        ),
        INVALID_RATE,
        *SAMPLE_COUNTS,
    )


class Submission(TaskFamily):
    """Questions with lettered options."""

    name = "answers to submit"
    columns: ClassVar[Columns] = {"dataset": Column.TEXT, "options": Column.OPTIONS}
    extractor = "robust_choice"
    scores_suffice = False
    metrics: MetricList = _metrics("xlsx")

    def _score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        """Return the reply for the file, empty after a failure, and the letter that the rule read, None for none."""
        answer, rule_name = self.read(sample, reply, rule)
        score = {
            "dataset": sample.dataset,
            "reply": "" if answer.reason is Reason.ADAPTER_FAILED else reply.text,
            "value": answer.value,
            "reason": answer.reason,
            "rule": rule_name,
        }
        variant = sample.document.get(COLUMN)
        if variant is not None:
            score[COLUMN] = variant
        return score


class AnswersToSubmit(Submission):
    """Questions with lettered options, and open ones."""

    name = "answers to submit by id"
    columns: ClassVar[Columns] = {"dataset": Column.TEXT, "options": Column.TEXTS}
    extractor = "robust_mmmu"
    metrics: MetricList = _metrics("json")

    def _score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        score = super()._score(sample, reply, rule)
        if not is_open(sample):
            return {**score, "reply": score["value"]}
        text = own_words(reply.text)
        return {**score, "reply": "" if isinstance(text, Reason) else text}


SUBMISSION = Submission()
ANSWERS_TO_SUBMIT = AnswersToSubmit()
