"""Names that task files use (:mod:`medtasks.tasks.published_names`), each resolved on first use.

Those of a task family are ``process_results`` and a metric list of plain functions.
"""

import math
import pkgutil
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from medtasks.data.samples import Sample
from medtasks.errors import warn_once
from medtasks.families.counts import judges_of
from medtasks.families.family import TaskFamily
from medtasks.families.family_registry import HOOKS, family_of
from medtasks.metrics.metric import STDERR, AnyMetric, CorpusMetric, Estimate, ScoreList
from medtasks.runs.logged_samples import (
    LoggedSample,
    is_private_document,
    logged,
    may_hold_words,
    save_reply,
    score_command,
)
from medtasks.runs.reply_envelope import opened_all
from medtasks.tasks.published_names import (
    METRIC_LIST,
    METRIC_LISTS,
    SETTINGS_OF,
    hook_modules,
    hook_place,
    prompt_settings,
)

__path__: list[str] = []  # makes this module a package


class _Names(MetaPathFinder, Loader):
    """Importer of the modules of names, which have no files."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, module = name.rpartition(".")
        return ModuleSpec(name, self) if package == __name__ and module in ("variants", *hook_modules()) else None

    def exec_module(self, module: ModuleType) -> None:
        def attribute(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            if module.__name__ == f"{__name__}.variants":  # these names follow from the user's files and data
                from medtasks.tasks.documents import variant_hook

                return variant_hook(name)
            if module.__name__ == f"{__name__}.{SETTINGS_OF}":  # new ones each time, as the harness changes them
                return prompt_settings(name)
            return published(f"{module.__name__}.{name}")

        vars(module)["__getattr__"] = attribute


@cache
def published(hook: str) -> Any:
    """Resolve the name of a hook, a metric list, one of its aggregations, a prompt or a filter."""
    path = hook_place(hook)
    if path != hook:
        return pkgutil.resolve_name(":".join(path.rsplit(".", 1)))
    module, _, name = hook.removeprefix(HOOKS).partition(".")
    family = family_of(hook)
    if family is not None:
        made = process_results(family)
        made.__module__, made.__name__, made.__qualname__ = f"{HOOKS}{module}", name, name
        return made
    if f"{module}.{name}" in METRIC_LISTS:
        return metric_list(pkgutil.resolve_name(METRIC_LISTS[f"{module}.{name}"]))
    of_hook = hook.removesuffix(f"_{METRIC_LIST}")  # of a family that has no module of its own
    family = family_of(of_hook if of_hook != hook else f"{HOOKS}{module}.process_results")
    entries = [] if family is None else metric_list(family.metrics)
    aggregations = {entry["metric"]: entry["aggregation"] for entry in entries}
    if entries and name.endswith(METRIC_LIST):
        return entries
    if name not in aggregations:
        raise AttributeError(f"there is no {hook}")
    return aggregations[name]


# ---- hooks of a task family ----


def process_results(family: TaskFamily) -> Callable[[Mapping[str, Any], Sequence[Any]], LoggedSample]:
    """Return the hook that scores the harness's results for one document.

    It first saves a reply if the family's metrics may fail later, or if the samples file may not hold it.
    """
    names = [entry["metric"] for entry in metric_list(family.metrics)]

    def scored(doc: Mapping[str, Any], results: Sequence[Any]) -> LoggedSample:
        reply, row = opened_all(results)
        must_save = family.saves_replies or (may_hold_words(results) and is_private_document(doc))
        saved = save_reply(doc, results[0]) if must_save else None
        score = family.score(Sample(doc), reply, row)
        return logged(doc, results, names, {**score, "saved": saved} if family.saves_replies else score)

    return scored


def metric_list(metrics: Sequence[AnyMetric]) -> list[dict[str, Any]]:
    """Return the ``metric_list`` of a task.

    The harness shows a second metric called ``<metric>_stderr`` in the first one's Stderr column.
    """

    def entry(name: str, direction: bool | None, aggregation: Callable[[ScoreList], float]) -> dict[str, Any]:
        aggregation.__name__ = aggregation.__qualname__ = name  # the harness writes it into its results
        return {"metric": name, "aggregation": aggregation, "higher_is_better": direction}

    def entries(metric: AnyMetric) -> list[dict[str, Any]]:
        value = entry(metric.name, metric.higher_is_better, lambda scores: _estimate(metric, scores, warn=True).value)
        error = entry(f"{metric.name}{STDERR}", False, lambda scores: _estimate(metric, scores).error)
        return [value, error] if metric.has_error else [value]

    return [made for metric in metrics for made in entries(metric)]


def _estimate(metric: AnyMetric, scores: ScoreList, *, warn: bool = False) -> Estimate:
    """Return the estimate of a metric; warn once of failures of its panel, with the command to compute them later."""
    if warn and metric.warning and (sentence := metric.warning(scores)):
        warn_once(sentence)
    if warn and metric.remark is judges_of and (sentence := judges_of(scores)):
        warn_once(sentence, "INFO")
    if not isinstance(metric, CorpusMetric) or metric.panel is None:
        return metric.estimate(scores)
    panel = metric.panel.of(metric.selection(scores))
    for name, settings in panel.settings.items():
        if settings:
            warn_once(f"{name}: {', '.join(f'{key} {value}' for key, value in settings.items())}", "INFO")
    by_cause = {
        why: [name for name, cause in panel.failures.items() if cause == why] for why in panel.failures.values()
    }
    sentences = [f"{', '.join(names)} could not be computed: {why}" for why, names in by_cause.items()]
    if sentences or panel.warnings:
        command = score_command(score.get("saved") for score in scores)
        for sentence in (*sentences, *panel.warnings):
            warn_once(f"{sentence}. {command}")
    return metric.estimate(scores)


# ---- groups, for ``aggregate_metric_list`` ----


_Number = float | int


def best_highest(values: list[_Number], sizes: list[_Number], weight_by_size: bool) -> _Number:
    """Return the largest of the members' values: the paper's "Best" column takes each metric's best mode."""
    _forbid_pooled_error(sizes)
    return max(values, key=lambda value: -math.inf if math.isnan(value) else value)


def best_lowest(values: list[_Number], sizes: list[_Number], weight_by_size: bool) -> _Number:
    """Return the smallest of the members' values."""
    _forbid_pooled_error(sizes)
    return min(values, key=lambda value: math.inf if math.isnan(value) else value)


def mean_of_settings(values: list[_Number], sizes: list[_Number], weight_by_size: bool) -> _Number:
    """Return the mean of the members' values, which are about the same questions."""
    _forbid_pooled_error(sizes)
    return statistics.fmean(values)


def _forbid_pooled_error(sizes: list[_Number]) -> None:
    # After this call the harness computes a standard error from the same list, with the formula for the mean of
    # independent samples. For several modes on the same images it would be far too small; sizes of NaN make it NaN.
    sizes[:] = [math.nan] * len(sizes)


sys.meta_path.append(_Names())
