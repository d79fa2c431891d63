"""MMMU's test questions, whose answers only the authors have: no score, but the file that their evaluator reads.

It is one JSON object of answers by the questions' ids: the letter of the option, or the text of an answer to an open
question, which the authors parse themselves. The evaluator divides by the number of ids in the file, so that a question
that failed, or whose reply names no option, is in it with an empty answer, which is wrong.

Source: ``mmmu/README.md`` ("Evaluation Only") and ``mmmu/main_eval_only.py`` of
https://github.com/MMMU-Benchmark/MMMU.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from medtasks.data.document_store import load_documents
from medtasks.data.samples import Sample
from medtasks.extract.published.medevalkit_mmmu import is_open
from medtasks.extract.reading.reply_text import own_words
from medtasks.families.counts import INVALID_RATE, SAMPLE_COUNTS
from medtasks.families.family import Column, Reply, Row
from medtasks.families.submission import Submission, submission_file, submission_rows
from medtasks.home import written_whole
from medtasks.metrics.metric import AnyMetric, Score, Scores, counting


def write_answers(scores: Scores) -> Path:
    """Write the answers below ``$MEDTASKS_HOME/submissions``, in the order of the questions; return the file's path.

    Raises OSError, or MedTasksError where the questions are not there any more.
    """
    given = {score["sample"]: score for score in scores}
    known = [document["doc_id"] for document in load_documents(str(scores[0]["dataset"]))]
    answers = {one: given[one]["reply"] or "" for one in known if one in given}
    path = submission_file(scores, "json")
    with written_whole(path) as partial_file:
        partial_file.write_text(f"{json.dumps(answers, ensure_ascii=False, indent=2)}\n", encoding="utf-8")
    return path


class AnswersToSubmit(Submission):
    """Questions with lettered options, and open ones."""

    name = "answers to submit by id"
    columns: ClassVar[Mapping[str, Column]] = {"dataset": Column.TEXT, "options": Column.TEXTS}
    extractor = "robust_mmmu"
    metrics: Sequence[AnyMetric] = (
        counting(
            "submission_rows", partial(submission_rows, write=write_answers), description="Rows of the file to submit."
        ),
        INVALID_RATE,
        *SAMPLE_COUNTS,
    )

    def _score(self, sample: Sample, reply: Reply, row: Row) -> Score:
        score = super()._score(sample, reply, row)
        text = own_words(reply.text)
        return {**score, "reply": (text if isinstance(text, str) else "") if is_open(sample) else score["value"]}


FAMILY = AnswersToSubmit()
