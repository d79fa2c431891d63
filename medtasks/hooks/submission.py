"""Tasks whose key only the benchmark's authors have: no score, but the file that they score.

The file is a spreadsheet with the columns of the questions and ``prediction``, the reply as the model gave it, as
VLMEvalKit writes it and GMAI-MMBench's authors ask for by mail; ``option`` is what the rule read from it.
"""

import datetime
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loguru import logger

from medtasks.data.home import home
from medtasks.data.samples import Sample, letter
from medtasks.data.store import load_documents
from medtasks.errors import MedTasksError
from medtasks.extract.answer import Reason
from medtasks.extract.registry import Kind, extractor_of
from medtasks.harness.eligibility import COLUMN
from medtasks.hooks.metric_list import SAMPLE_COUNTS, is_failed, metric_entry
from medtasks.hooks.reading import read_reply
from medtasks.hooks.units import unit_of
from medtasks.hooks.withheld import withhold
from medtasks.stats.standard_error import clustered_standard_error

Record = dict[str, Any]

_DEFAULT = "robust_choice"  # for a user's YAML that names no rule
_GROUPS = ("keyword", "clinical_task", "department", "granularity", "modality", "original_task")
_CELL = 32_767  # characters, more do not fit into one


def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Record]:
    """Read one sample's answer.

    Args:
        doc: A document of the family ``GROUPED_CHOICE`` (:mod:`medtasks.data.schema`).
        results: One reply.

    Returns:
        The same record for every metric.
    """
    rule, reply = read_reply(results[0], _DEFAULT)
    answer = extractor_of(rule, Kind.CHOICE).extract(reply, Sample(doc))
    entry = {
        "sample": doc["doc_id"],
        "dataset": doc["dataset"],
        "unit": unit_of(doc),
        "reply": "" if answer.reason is Reason.ADAPTER_FAILED else reply,
        "value": answer.value,
        "reason": str(answer.reason),
        "rule": rule,
        **({COLUMN: doc[COLUMN]} if COLUMN in doc else {}),
    }
    return withhold(doc, results, {metric["metric"]: entry for metric in METRIC_LIST})


def submission_rows(items: Sequence[Record]) -> float:
    """Write the file and return how many rows it has; NaN when it cannot be written."""
    if not items:
        return math.nan
    try:
        path = write_submission(items)
    except (OSError, MedTasksError) as error:
        logger.error("The submission cannot be written ({}); mend that and use 'medtasks score' on the replies.", error)
        return math.nan
    if failed := sum(map(is_failed, items)):
        logger.warning("{} of {} rows of the submission are blank, because the model failed there.", failed, len(items))
    logger.info(
        "'{}' has no published key, so there is no score: send {} to the benchmark's authors.",
        items[0]["dataset"],
        path,
    )
    return float(len(items))


def invalid_rate(items: Sequence[Record]) -> float:
    """Return the share of replies without a valid answer."""
    return math.fsum(_invalid(items)) / len(items) if items else math.nan


def invalid_rate_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the invalid rate, clustered by case."""
    return clustered_standard_error(_invalid(items), [item["unit"] for item in items])


def write_submission(items: Sequence[Record]) -> Path:
    """Write the spreadsheet below ``$MEDTASKS_HOME/submissions``, rows in the order of the questions.

    That of a sanity variant has a folder of its own, lest it is sent in for the task's.

    Returns:
        The file.

    Raises:
        OSError: It cannot be written.
        MedTasksError: The questions are not there any more.
    """
    from openpyxl import Workbook

    dataset = str(items[0]["dataset"])
    variant = items[0].get(COLUMN)
    folder = home() / "submissions" / (f"{dataset}_{variant}" if variant else dataset)
    folder.mkdir(parents=True, exist_ok=True)
    records = {item["sample"]: item for item in items}
    documents = [document for document in load_documents(dataset) if document["doc_id"] in records]
    letters = [letter(index) for index in range(max(len(document["options"]) for document in documents))]
    book = Workbook(write_only=True)
    sheet = book.create_sheet("predictions")
    sheet.append(["index", "question", *letters, *_GROUPS, "prediction", "option"])
    for document in documents:
        record, options = records[document["doc_id"]], document["options"]
        texts = [*options, *[""] * (len(letters) - len(options)), *(document[group] for group in _GROUPS)]
        cells = [document["doc_id"], document["question"], *texts, record["reply"], record["value"]]
        sheet.append([_cell(text) for text in cells])
    path = folder / f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S_%fZ}-{os.getpid()}.xlsx"
    partial = path.with_suffix(".part")
    book.save(partial)
    partial.replace(path)
    return path


def _cell(text: str | None) -> str:
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    plain = ILLEGAL_CHARACTERS_RE.sub(" ", text or "")[:_CELL]
    return f"'{plain}" if plain.startswith("=") else plain  # a spreadsheet would compute it


def _invalid(items: Sequence[Record]) -> list[float]:
    return [float(item["value"] is None) for item in items]


METRIC_LIST = [
    metric_entry(submission_rows, higher_is_better=True, failed_too=True),
    metric_entry(invalid_rate, higher_is_better=False),
    metric_entry(invalid_rate_stderr, higher_is_better=False),
    *SAMPLE_COUNTS,
]
