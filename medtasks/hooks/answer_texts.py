"""Text metrics of open answers: all of them once over all ranks' records, as :mod:`medtasks.hooks.reports` does it.

The harness asks for each metric on its own, with the same records; all are computed at the first one. A metric that
fails is NaN and says in one sentence what mends it.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from medtasks.errors import warn_once
from medtasks.hooks.metric_list import metric_entry
from medtasks.hooks.open_answers import Record, how_to_repeat, names_of
from medtasks.hooks.report_panel import PanelScores, ReportPair, score_panel
from medtasks.hooks.withheld import PrivateText
from medtasks.metrics.report_metrics import metric_info

Row = tuple[str, PrivateText, PrivateText, str | None]  # unit, key, reply, file of the saved reply

METRICS = ("medheval_bleu", "rouge_stemmed", "meteor", "medheval_bertscore")


def _row(item: Record) -> Row:
    return item["unit"], item["reference"], item["reply"], item["saved"]


# By content: records of another filter or run differ in it, copies from another rank and another order do not.
@lru_cache(maxsize=4)
def _scores(rows: frozenset[tuple[Row, int]]) -> PanelScores:
    ordered = sorted(rows, key=lambda item: (item[0][0], item[0][1].text, item[0][2].text))
    pairs = [ReportPair(unit, key.text, reply.text) for (unit, key, reply, _), number in ordered for _ in range(number)]
    found = score_panel(METRICS, pairs)
    again = how_to_repeat(row[3] for row, _ in rows)
    for name, cause in found.failures.items():
        warn_once(f"{name} could not be computed: {cause}.{again}")
    return found


def _panel(items: Sequence[Record]) -> PanelScores:
    return _scores(frozenset(Counter(map(_row, items)).items()))


def _entries(key: str) -> list[dict[str, Any]]:
    def value(items: Sequence[Record]) -> float:
        return _panel(items).values[key]

    def error(items: Sequence[Record]) -> float:
        return _panel(items).errors[key]

    value.__name__, error.__name__ = key, f"{key}_stderr"
    return [metric_entry(value, higher_is_better=True), metric_entry(error, higher_is_better=False)]


METRIC_LIST = [entry for name in METRICS for key in metric_info(name).keys for entry in _entries(key)]
NAMES = names_of(METRIC_LIST)
