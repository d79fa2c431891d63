"""CHAIR from labels of chest findings: both reports of every study are labelled once, after all replies are there.

The labeler is CheXbert, or the one the user names (:mod:`medtasks.extract.labeler`). One that is missing or fails costs
these metrics, which are NaN and say why, and nothing else.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from medtasks.errors import LabelerError, MedTasksError, warn_once
from medtasks.extract.labeler import CONDITIONS, Finding, chosen_findings, label_texts
from medtasks.hooks.metric_list import metric_entry
from medtasks.hooks.model_offloading import evaluated_models_on_cpu
from medtasks.hooks.open_answers import Record, how_to_repeat, names_of
from medtasks.hooks.withheld import PrivateText
from medtasks.metrics.chair import LABEL_CELLS, label_cells, label_ratios, ratios_with_errors
from medtasks.metrics.model_settings import ModelSettings

Row = tuple[str, PrivateText, PrivateText, str | None]  # unit, reference, report, file of the saved reply

_NOTHING = (Finding.BLANK,) * len(CONDITIONS)  # what a report without text says, without a model
# Each ratio's lower sum, which stands beside it: the names of counts in LABEL_CELLS that it adds up.
_NUMBERS = {
    "mentions_label": ("mentions",),
    "positives_label": ("positives",),
    "negatives_decided": ("true_negatives", "false_positives"),
    "labels_decided": ("true_positives", "true_negatives", "false_positives", "false_negatives"),
}


def _row(item: Record) -> Row:
    return item["unit"], item["reference"], item["reply"], item["saved"]


# By content: records of another filter or run differ in it, copies from another rank and another order do not.
@lru_cache(maxsize=4)
def _scores(rows: frozenset[tuple[Row, int]]) -> Mapping[str, float]:
    labels, cause = _labels({text.text for (_, reference, report, _), _ in rows for text in (reference, report)})
    read = [
        (unit, label_cells(labels[reference.text], labels[report.text]))
        for (unit, reference, report, _), number in rows
        for _ in range(number)
        if reference.text in labels and report.text in labels
    ]
    if cause:
        left_out = sum(number for _, number in rows) - len(read)
        again = how_to_repeat(row[3] for row, _ in rows)
        of_all = f"{left_out} of {left_out + len(read)} reports"
        warn_once(f"The metrics of labels leave out {of_all}: {cause}.{again}")
    if not read:
        return dict.fromkeys(("reports_labelled", *_NUMBERS), 0)
    cells = [counts for _, counts in read]
    sums = dict(zip(LABEL_CELLS, map(sum, zip(*cells, strict=True)), strict=True))
    return {
        **ratios_with_errors(cells, [unit for unit, _ in read], label_ratios),
        **{name: sum(sums[part] for part in parts) for name, parts in _NUMBERS.items()},
        "reports_labelled": len(read),
    }


def _labels(texts: set[str]) -> tuple[dict[str, tuple[Finding, ...]], str]:
    """Return the findings of each text that could be labelled, and why others could not."""
    said = sorted(text for text in texts if text.strip())
    found = dict.fromkeys(texts - set(said), _NOTHING)
    failures: list[Exception] = []
    try:
        with evaluated_models_on_cpu(ModelSettings.from_environment()):
            labels = label_texts(said) if said else []
    except Exception as error:  # noqa: BLE001 - inference is done; a labeler may cost its own metrics only
        failures, labels = [error], []
    for text, of_text in zip(said, labels, strict=False):
        try:
            found[text] = chosen_findings(of_text, CONDITIONS)
        except LabelerError as error:
            failures.append(error)
    if not failures:
        return found, ""
    # Words that are not our own may quote a report.
    return found, str(failures[0]).rstrip(".") if isinstance(failures[0], MedTasksError) else type(failures[0]).__name__


def _entry(name: str, *, higher_is_better: bool) -> dict[str, Any]:
    def value(items: Sequence[Record]) -> float:
        return _scores(frozenset(Counter(map(_row, items)).items())).get(name, float("nan"))

    value.__name__ = name
    return metric_entry(value, higher_is_better=higher_is_better)


METRIC_LIST = [
    _entry("reports_labelled", higher_is_better=True),
    _entry("chair_label", higher_is_better=False),
    _entry("chair_label_stderr", higher_is_better=False),
    _entry("mentions_label", higher_is_better=True),
    _entry("label_recall", higher_is_better=True),
    _entry("label_recall_stderr", higher_is_better=False),
    _entry("positives_label", higher_is_better=True),
    _entry("label_specificity", higher_is_better=True),
    _entry("label_specificity_stderr", higher_is_better=False),
    _entry("negatives_decided", higher_is_better=True),
    _entry("label_accuracy", higher_is_better=True),
    _entry("label_accuracy_stderr", higher_is_better=False),
    _entry("labels_decided", higher_is_better=True),
]
NAMES = names_of(METRIC_LIST)
