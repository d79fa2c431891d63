"""Confusion of pairs by models, and its correlation with the similarity of their images.

MediConfusion selects pairs whose images a medical encoder finds alike and another encoder does not, because models
should confuse them, the more the wider the gap (arXiv 2409.15477, section 2). Results of models show whether they do. A
pair with an answer that failed, was not judged or not asked is only counted.
"""

import enum
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from medtasks import __version__
from medtasks.audit.report.contents import as_json
from medtasks.audit.scoring import rows_of
from medtasks.curate.study import ImagePair
from medtasks.data.privacy import LOG_TEXT_VARIABLE
from medtasks.errors import MedTasksError, RepliesError, WithheldReply
from medtasks.families.counts import judged
from medtasks.families.paired_choice import paired_answers
from medtasks.metrics.metric import Score
from medtasks.metrics.pairs import complete_pairs
from medtasks.runs.replies import read_replies
from medtasks.runs.run import Source, check_fingerprints, samples_by_task
from medtasks.stats.bootstrap import RESAMPLES, SEED, rank_correlation, rank_correlation_interval
from medtasks.stats.intervals import LEVEL
from medtasks.stats.standard_error import connected_components
from medtasks.tasks.documents import task_documents, task_provenance
from medtasks.tasks.task_files import task_files

ALL = "all"
SIMILARITIES = ("gap", "sim_med")
_CAREFUL = ("robust", "fenced")  # preferred rows of results, if a task has them


class PairState(enum.StrEnum):
    """Outcome of a pair."""

    SOLVED = "solved"
    CONFUSED = "confused"  # the same option for both images
    WRONG = "wrong"  # each option for the other image
    INVALID = "invalid"  # a reply names no option
    FAILED = "failed"  # an answer failed, was not judged or not asked


ERRORS = (PairState.CONFUSED, PairState.WRONG, PairState.INVALID)
_OUTCOMES: Mapping[str, Mapping[PairState, float]] = {
    "error": {PairState.SOLVED: 0.0, **dict.fromkeys(ERRORS, 1.0)},
    "confusion": {PairState.SOLVED: 0.0, PairState.WRONG: 0.0, PairState.CONFUSED: 1.0},
}
States = Mapping[str, PairState]
"""Outcome of each pair in one task of one run, by pair id."""


@dataclass(frozen=True)
class ModelPairs:
    """Outcomes of pairs in one task of one run."""

    model: str
    run: str  # folder or file
    task: str
    rule: str  # row of results and its extractor
    states: States


@dataclass(frozen=True)
class Association:
    """Rank correlation of errors with similarity, or with the gap."""

    model: str  # letter of the model; ALL for the mean over models
    outcome: str  # "error": not solved; "confusion": the same option twice, of pairs with two valid answers
    by: str  # "gap" or "sim_med"
    pairs: int
    clusters: int  # pairs connected by shared images are one
    correlation: float  # Spearman's; NaN where nothing varies
    low: float  # ends of its 95 % interval
    high: float


@dataclass(frozen=True)
class Patterns:
    """Results of models on the pairs of one benchmark."""

    name: str  # of the dataset
    pairs: Mapping[str, ImagePair]  # by id, the most confusing first
    models: Mapping[str, ModelPairs]  # by letter
    associations: Sequence[Association]

    @property
    def counts(self) -> dict[str, Counter[PairState]]:
        """Number of pairs by outcome, by letter of the model."""
        return {letter: Counter(model.states.values()) for letter, model in self.models.items()}

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values; NaN becomes None."""
        counts = self.counts
        models: dict[str, Any] = {}
        pairs: list[dict[str, Any]] = []
        for letter, model in self.models.items():
            models[letter] = {"model": model.model, "run": model.run, "task": model.task, "rule": model.rule}
            models[letter]["pairs"] = {str(state): counts[letter][state] for state in PairState}
        for pair_id, pair in self.pairs.items():
            states = {letter: str(model.states[pair_id]) for letter, model in self.models.items()}
            pairs.append({"pair_id": pair_id, "sim_med": pair.sim_med, "sim_gen": pair.sim_gen, "gap": pair.gap})
            pairs[-1]["states"] = states
        settings = {"resamples": RESAMPLES, "seed": SEED, "level": LEVEL}
        facts = {"schema_version": 2, "medtasks": __version__, "name": self.name, "settings": settings}
        return {**facts, "models": models, "pairs": pairs, "associations": as_json(list(self.associations))}


def find_patterns(name: str, pairs: Mapping[str, ImagePair], models: Sequence[ModelPairs]) -> Patterns:
    """Return the results of models, all of tasks of one dataset; MedTasksError for more than 26 of them."""
    if len(models) > len(ascii_uppercase):
        raise MedTasksError(f"expected at most {len(ascii_uppercase)} tasks of runs, but got {len(models)}")
    pairs = {pair_id: pairs[pair_id] for pair_id in models[0].states}
    lettered = dict(zip(ascii_uppercase, models, strict=False))
    states = {letter: model.states for letter, model in lettered.items()}
    ordered = {pair_id: pairs[pair_id] for pair_id in most_confusing(pairs, list(states.values()))}
    return Patterns(name, ordered, lettered, associations(pairs, states))


def outcome_of(states: Sequence[States], outcome: str) -> dict[str, float]:
    """Return the mean over models of an outcome, by id of the pairs for which any has a value."""
    worth = _OUTCOMES[outcome]
    means = {}
    for pair_id in states[0]:
        if values := [worth[of_model[pair_id]] for of_model in states if of_model[pair_id] in worth]:
            means[pair_id] = math.fsum(values) / len(values)
    return means


def associations(pairs: Mapping[str, ImagePair], models: Mapping[str, States]) -> list[Association]:
    """Correlate outcomes with gap and similarity, for each model by its letter and for the mean of several."""
    clusters = dict(zip(pairs, connected_components([pair.images for pair in pairs.values()]), strict=True))
    columns = {model: [states] for model, states in models.items()}
    if len(models) > 1:
        columns[ALL] = list(models.values())
    correlations = []
    for (model, states), outcome, by in itertools.product(columns.items(), _OUTCOMES, SIMILARITIES):
        values = outcome_of(states, outcome)
        groups = [clusters[pair_id] for pair_id in values]
        similar, outcomes = [float(getattr(pairs[pair_id], by)) for pair_id in values], list(values.values())
        correlation = rank_correlation(similar, outcomes)
        low, high = rank_correlation_interval(similar, outcomes, groups)
        correlations.append(Association(model, outcome, by, len(values), len(set(groups)), correlation, low, high))
    return correlations


def most_confusing(pairs: Mapping[str, ImagePair], states: Sequence[States]) -> list[str]:
    """Sort pair ids: those that confuse most models first, then those that fewest solve, then the widest gap."""

    def rank(pair_id: str) -> tuple[float, ...]:
        counts = Counter(of_model[pair_id] for of_model in states)
        return -counts[PairState.CONFUSED], -sum(counts[state] for state in ERRORS), -pairs[pair_id].gap

    return sorted(pairs, key=lambda pair_id: (rank(pair_id), pair_id))


def read_models(
    name: str, pairs: Mapping[str, ImagePair], runs: Sequence[Path]
) -> tuple[list[ModelPairs], dict[str, str]]:
    """Return the outcomes of pairs in the runs (folders or samples files) of a dataset's tasks.

    The second part has the reason why a task of a run was left out. MedTasksError: a run holds no samples of these
    tasks, or no task could be read.
    """
    tasks = {
        task.name: task
        for task in task_files().values()
        if task.dataset == name and task.kind == "task" and task.has_family and task.family.paired
    }
    if not tasks:
        raise RepliesError(
            f"no task asks the pairs of '{name}'; publish the study with 'medtasks curate publish' first, or say with "
            f"--as what it was published as"
        )
    models, causes = [], {}
    for run in runs:
        source = Source(run)
        files = {task: file for task, file in samples_by_task(source).items() if task in tasks}
        if not files:
            raise RepliesError(f"{run} holds no samples of {' or '.join(tasks)}; run one of them with --log_samples")
        model = source.run.model if run.is_dir() else run.stem
        for task, file in files.items():
            try:
                documents = task_documents(tasks[task])
                check_fingerprints([file], task, task_provenance(tasks[task], documents)["fingerprint"])
                replies = read_replies(file, documents)
                answered = [document for document in documents if document["doc_id"] in replies]
                rows = rows_of(tasks[task], answered, replies)
                row = next((name for name in _CAREFUL if name in rows), next(iter(rows)))
                published = dict.fromkeys(str(document["pair_id"]) for document in documents)
                states = pair_states(rows[row][1], [pair_id for pair_id in published if pair_id in pairs])
                if not states:
                    raise RepliesError(
                        f"'{task}' asks none of these pairs; is this the study, or source, it was made from?"
                    )
                models.append(ModelPairs(model, str(run), task, f"{row}, {rows[row][0]}", states))
            except WithheldReply:  # likelihoods are not
                causes[f"{task} of {run}"] = (
                    f"'{name}' is credentialed, so that its samples file holds no replies; run it again with "
                    f"{LOG_TEXT_VARIABLE}={name} set, if whoever sees the file may see them"
                )
            except MedTasksError as error:
                causes[f"{task} of {run}"] = str(error)
    if not models:
        raise RepliesError(f"no results could be read ({'; '.join(f'{of}: {why}' for of, why in causes.items())})")
    return models, causes


def pair_states(scores: Sequence[Score], pairs: Iterable[str]) -> dict[str, PairState]:
    """Return the outcome of some pairs, by id, from scores of a paired task in any order."""
    states = {}
    for pair in complete_pairs(paired_answers(judged(scores))):
        if pair.solved:
            state = PairState.SOLVED
        elif pair.valid:
            state = PairState.CONFUSED if pair.confused else PairState.WRONG
        else:
            state = PairState.INVALID
        states[pair.first.pair_id] = state
    return {pair_id: states.get(pair_id, PairState.FAILED) for pair_id in pairs}
