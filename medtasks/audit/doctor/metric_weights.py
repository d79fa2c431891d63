"""Checks of metrics' weights, WordNet, and the labeler of chest findings."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

from medtasks.audit.doctor.check_results import WEIGHTS as AREA
from medtasks.audit.doctor.check_results import CheckResult, Scope, State, of_error
from medtasks.errors import MedTasksError
from medtasks.extract.labeler import VARIABLE as LABELER
from medtasks.metrics.meteor import load_wordnet
from medtasks.metrics.model_settings import WEIGHTS, ModelSettings, weights_path
from medtasks.metrics.report_metrics import REPORT_METRICS

WORDNET = "wordnet"  # among the names of weights


def metric_weights(scope: Scope) -> Iterator[CheckResult]:
    """Check the weights of the chosen tasks' metrics; without tasks, summarise those that are here."""
    names = _needed(scope) if scope.chosen else [*WEIGHTS, WORDNET]
    missing = {name: error for name in names if (error := weights_trouble(name))}
    for name in names if scope.chosen else ():
        if name in missing:
            lacking = of_error(AREA, name, State.WARNING, missing[name])
            yield replace(lacking, fix=f"medtasks weights fetch {name}")
        else:
            yield AREA.ok(name, f"{name} is here")
    if scope.chosen:
        return
    sentence = f"{len(names) - len(missing)} of {len(names)} sets of weights are here"
    if missing:
        fix = f"medtasks weights fetch {' '.join(missing)}"
        yield AREA.note("metrics", f"{sentence}; missing {', '.join(missing)}", fix)
    else:
        yield AREA.ok("metrics", sentence)


def model_settings(scope: Scope) -> Iterator[CheckResult]:
    """Check the variables for the models of metrics."""
    if scope.chosen and not _needed(scope):
        return
    try:
        ModelSettings.from_environment()
    except MedTasksError as error:
        yield of_error(AREA, "settings", State.PROBLEM, error)


def _needed(scope: Scope) -> list[str]:
    names = [name for metric in scope.metrics for name in metric.weights]
    if scope.needs_labeler and not os.environ.get(LABELER, "").strip():
        names += ["chexbert", "bert-base-uncased"]
    if any(metric.wordnet for metric in scope.metrics):
        names.append(WORDNET)
    return list(dict.fromkeys(names))


def fetch_command(metrics: Iterable[str]) -> str:
    """Return the command that fetches the weights that metrics of reports lack here; empty if none."""
    chosen = set(metrics)
    infos = [info for info in REPORT_METRICS.values() if chosen & {info.name, *info.keys}]
    names = dict.fromkeys(name for info in infos for name in (*info.weights, *[WORDNET] * info.wordnet))
    missing = [name for name in names if weights_trouble(name)]
    return f"medtasks weights fetch {' '.join(missing)}" if missing else ""


def weights_trouble(name: str) -> MedTasksError | None:
    """Return the error of opening weights, or WordNet; None if they open."""
    try:
        _ = load_wordnet() if name == WORDNET else weights_path(name)
    except MedTasksError as error:
        return error
    return None
