"""Weights of the metrics that are models, WordNet, and the labeler of chest findings."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

from medtasks.audit.doctor.check_results import WEIGHTS as AREA
from medtasks.audit.doctor.check_results import CheckResult, Scope, State, of_error
from medtasks.errors import MedTasksError
from medtasks.extract.labels.labeler import VARIABLE as LABELER
from medtasks.metrics.meteor import load_wordnet
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.report_metrics import REPORT_METRICS
from medtasks.metrics.weight_files import WEIGHTS, weights_path

WORDNET = "wordnet"  # among the names of weights


def metric_weights(scope: Scope) -> Iterator[CheckResult]:
    """Look for the weights of the chosen tasks' metrics; without tasks, sum up what is here.

    Missing weights cost their own metrics, which can be computed later from saved replies.
    """
    known = _needed(scope) if scope.chosen else [*WEIGHTS, WORDNET]
    missing = {name: error for name in known if (error := weights_trouble(name))}
    if scope.chosen:
        for name in known:
            if name in missing:
                lacking = of_error(AREA, name, State.WARNING, missing[name])
                yield replace(lacking, fix=f"medtasks weights fetch {name}")
            else:
                yield AREA.ok(name, f"{name} is here")
        return
    found = f"{len(known) - len(missing)} of {len(known)} sets of weights are here"
    if missing:
        fix = f"medtasks weights fetch {' '.join(missing)}"
        yield AREA.note("metrics", f"{found}; missing {', '.join(missing)}", fix)
    else:
        yield AREA.ok("metrics", found)


def model_settings(scope: Scope) -> Iterator[CheckResult]:
    """Look at the variables that say how metrics' models are run."""
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
    """Return the command that fetches what metrics of reports need and this machine lacks; empty if nothing."""
    asked = set(metrics)
    needed = [one for one in REPORT_METRICS.values() if asked & {one.name, *one.keys}]
    names = dict.fromkeys(name for one in needed for name in (*one.weights, *[WORDNET] * one.wordnet))
    missing = [name for name in names if weights_trouble(name)]
    return f"medtasks weights fetch {' '.join(missing)}" if missing else ""


def weights_trouble(name: str) -> MedTasksError | None:
    """Return why weights, or WordNet, cannot be opened; None if they can."""
    try:
        _ = load_wordnet() if name == WORDNET else weights_path(name)
    except MedTasksError as error:
        return error
    return None
