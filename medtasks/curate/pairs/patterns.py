"""Confusion of pairs by models, and its correlation with the similarity of their images.

MediConfusion takes pairs whose images a medical encoder finds alike and another encoder does not, because models should
confuse them, the more the wider the gap (arXiv 2409.15477, section 2). Results of models tell whether they do. A pair
of which an answer failed, was not judged or was not asked is in no number but the count of such pairs.
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

import numpy as np

from medtasks import __version__
from medtasks.audit.report.contents import as_json
from medtasks.audit.report.figures import style
from medtasks.audit.scoring import rows_of
from medtasks.curate.study import ImagePair
from medtasks.data.privacy import LOG_TEXT_VARIABLE
from medtasks.errors import MedTasksError, RepliesError, WithheldReply
from medtasks.families.counts import judged
from medtasks.families.paired_choice import paired_answers
from medtasks.metrics.metric import Score
from medtasks.metrics.pairs import complete_pairs
from medtasks.runs.replies import read_replies
from medtasks.runs.sources import Source, check_fingerprints, samples_by_task
from medtasks.stats.bootstrap import RESAMPLES, SEED
from medtasks.stats.intervals import LEVEL, interval
from medtasks.stats.rank_correlation import rank_correlation, rank_correlation_interval
from medtasks.stats.standard_error import clustered_error, connected_components
from medtasks.tasks.documents import task_documents, task_provenance
from medtasks.tasks.task_files import task_files

ALL = "all"
SIMILARITIES = ("gap", "sim_med")
_CAREFUL = ("robust", "fenced")  # preferred rows of results, where a task has them
_MOST_BINS, _FEWEST_PAIRS = 5, 8
_MEAN = "mean of the models"
_HEIGHT, _LEFT = 3.0, 0.7  # inches
_BESIDE = 0.06  # how far intervals of models stand apart, as a share of a bin


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
    rule: str  # that read the replies, with the name of its row
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
class GapBin:
    """The error of a model on pairs with about the same gap."""

    model: str
    gap: float  # mean
    pairs: int
    error: float  # share of pairs that are not solved
    low: float  # ends of its 95 % interval
    high: float


@dataclass(frozen=True)
class Patterns:
    """Results of models on the pairs of one benchmark."""

    name: str  # of the dataset
    pairs: Mapping[str, ImagePair]  # by id, the most confusing first
    models: Mapping[str, ModelPairs]  # by letter
    associations: Sequence[Association]
    bins: Sequence[GapBin]

    @property
    def counts(self) -> dict[str, Counter[PairState]]:
        """Number of pairs by outcome, by letter of the model."""
        return {letter: Counter(one.states.values()) for letter, one in self.models.items()}

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values; NaN becomes None."""
        counts = self.counts
        return {
            "schema_version": 1,
            "medtasks": __version__,
            "name": self.name,
            "settings": {"resamples": RESAMPLES, "seed": SEED, "level": LEVEL},
            "models": {
                letter: {"model": one.model, "run": one.run, "task": one.task, "rule": one.rule}
                | {"pairs": {str(state): counts[letter][state] for state in PairState}}
                for letter, one in self.models.items()
            },
            "pairs": [
                {"pair_id": pair_id, "sim_med": pair.sim_med, "sim_gen": pair.sim_gen, "gap": pair.gap}
                | {"states": {letter: str(one.states[pair_id]) for letter, one in self.models.items()}}
                for pair_id, pair in self.pairs.items()
            ],
            "associations": as_json(list(self.associations)),
            "bins": as_json(list(self.bins)),
        }


def find_patterns(name: str, pairs: Mapping[str, ImagePair], models: Sequence[ModelPairs]) -> Patterns:
    """Return the results of models, all of tasks of one dataset; MedTasksError: there are more than 26."""
    if len(models) > len(ascii_uppercase):
        raise MedTasksError(f"expected at most {len(ascii_uppercase)} tasks of runs, but got {len(models)}")
    pairs = {pair_id: pairs[pair_id] for pair_id in models[0].states}
    lettered = dict(zip(ascii_uppercase, models, strict=False))
    states = {letter: one.states for letter, one in lettered.items()}
    ordered = {pair_id: pairs[pair_id] for pair_id in most_confusing(pairs, list(states.values()))}
    return Patterns(name, ordered, lettered, associations(pairs, states), gap_bins(pairs, states))


def outcome_of(states: Sequence[States], outcome: str) -> dict[str, float]:
    """Return the mean over models of an outcome, by id of the pairs for which any has a value."""
    worth = _OUTCOMES[outcome]
    values = {pair_id: [worth[one[pair_id]] for one in states if one[pair_id] in worth] for pair_id in states[0]}
    return {pair_id: math.fsum(found) / len(found) for pair_id, found in values.items() if found}


def associations(pairs: Mapping[str, ImagePair], models: Mapping[str, States]) -> list[Association]:
    """Return for each model, by its letter, and for their mean, how its outcomes go with gap and similarity."""
    clusters = _clusters(pairs)
    correlations = []
    for (model, states), outcome, by in itertools.product(_with_all(models).items(), _OUTCOMES, SIMILARITIES):
        values = outcome_of(states, outcome)
        groups = [clusters[pair_id] for pair_id in values]
        similar, happened = [float(getattr(pairs[pair_id], by)) for pair_id in values], list(values.values())
        known = rank_correlation(similar, happened), *rank_correlation_interval(similar, happened, groups)
        correlations.append(Association(model, outcome, by, len(values), len(set(groups)), *known))
    return correlations


def gap_bins(pairs: Mapping[str, ImagePair], models: Mapping[str, States]) -> list[GapBin]:
    """Return the error of each model in up to five bins of as many pairs each, by gap; of few pairs there is one."""
    clusters = _clusters(pairs)
    found = []
    for model, states in _with_all(models).items():
        errors = outcome_of(states, "error")
        ordered = sorted(errors, key=lambda pair_id: (pairs[pair_id].gap, pair_id))
        number = max(1, min(_MOST_BINS, len(ordered) // _FEWEST_PAIRS))
        edges = [round(len(ordered) * part / number) for part in range(number + 1)]
        for start, end in itertools.pairwise(edges):
            if members := ordered[start:end]:
                values, groups = [errors[one] for one in members], [clusters[one] for one in members]
                share = math.fsum(values) / len(values)
                known = clustered_error(values, groups)
                ends = interval(share, known.error, known.degrees, share=True, effective=known.effective)
                gap = math.fsum(pairs[one].gap for one in members) / len(members)
                found.append(GapBin(model, gap, len(members), share, *ends))
    return found


def _with_all(models: Mapping[str, States]) -> dict[str, list[States]]:
    each = {model: [states] for model, states in models.items()}
    return each if len(models) < 2 else {**each, ALL: list(models.values())}


def _clusters(pairs: Mapping[str, ImagePair]) -> dict[str, int]:
    return dict(zip(pairs, connected_components([pair.images for pair in pairs.values()]), strict=True))


def most_confusing(pairs: Mapping[str, ImagePair], states: Sequence[States]) -> list[str]:
    """Return pair ids: those that confuse most models first, then those that fewest solve, then the widest gap."""

    def place(pair_id: str) -> tuple[float, ...]:
        counts = Counter(one[pair_id] for one in states)
        return -counts[PairState.CONFUSED], -sum(counts[state] for state in ERRORS), -pairs[pair_id].gap

    return sorted(pairs, key=lambda pair_id: (place(pair_id), pair_id))


def read_models(
    name: str, pairs: Mapping[str, ImagePair], runs: Sequence[Path]
) -> tuple[list[ModelPairs], dict[str, str]]:
    """Return the outcomes of pairs in the runs (folders or samples files) of a dataset's tasks.

    The second part tells by task and run why one was left out. MedTasksError: a run holds no samples of these tasks, or
    no task could be read.
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
                asked = dict.fromkeys(str(document["pair_id"]) for document in documents)  # what became questions
                states = pair_states(rows[row][1], [pair_id for pair_id in asked if pair_id in pairs])
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


def write_gap_figure(path: Path, found: Patterns) -> None:
    """Write the share of unsolved pairs by gap with 95 % intervals, as SVG or PNG by the file's ending.

    Of more than six models only the mean is drawn. MedTasksError: another ending, or a file that cannot be written.
    """
    form = path.suffix.lower()
    if form not in (".svg", ".png"):
        raise MedTasksError(f"{path} is no figure that can be written; let it end in .svg or .png")
    import matplotlib

    with matplotlib.rc_context(style.RC_PARAMS):
        drawing = gap_figure(found)
        svg = form == ".svg"
        content = style.svg_element(drawing, "gap").encode() if svg else style.file_content(drawing.figure, "png")
    try:
        path.write_bytes(content)
    except OSError as error:
        raise MedTasksError(f"cannot write {path}: {error.strerror or error}") from error


def gap_figure(found: Patterns) -> style.Drawing:
    """Return the figure: a point for each model and bin of pairs, at the mean gap of the bin."""
    series, bins = {letter: f"{one.model}, {one.task}" for letter, one in found.models.items()}, found.bins
    series = series if len(series) <= len(style.LOOKS) else {ALL: _MEAN}
    title = f"{found.name}: does the gap of a pair predict the error?"
    texts = [style.legend_text(text) for text in series.values()]
    below = style.AXIS + style.legend_height(texts)
    figure, axes = style.new_figure(title, (), height=_HEIGHT, left=_LEFT, bottom=below)
    for number, model in enumerate(series):
        points = [one for one in bins if one.model == model]
        gaps = [one.gap for one in points]
        width = (max(gaps) - min(gaps)) / max(1, len(gaps) - 1) if gaps else 0.0
        shift = (number - (len(series) - 1) / 2) * _BESIDE * width
        ends = [[abs(end - one.error) for end in (one.low, one.high)] for one in points]
        axes.errorbar(
            [gap + shift for gap in gaps],
            [one.error for one in points],
            yerr=np.nan_to_num(np.reshape(ends, (-1, 2)).T),
            label=texts[number],
            color=style.LOOKS[number].colour,
            marker=style.LOOKS[number].marker,
            markersize=4,
            linewidth=1,
            elinewidth=0.8,
            capsize=2,
        )
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("gap: similarity to the medical encoder less that to the vision-only one (mean of each bin)")
    axes.set_ylabel("pairs not solved")
    axes.grid(axis="y", color=style.GRID, linewidth=0.5)
    style.in_percent(axes, "y")
    style.add_legend(figure, axes.get_legend_handles_labels()[0])
    shown = [(series[each.model], each) for each in bins if each.model in series]
    sentences = [
        f"{model}, gap {each.gap:.3f}: {each.error:.0%} of {each.pairs} pairs not solved." for model, each in shown
    ]
    return style.Drawing(figure, title, " ".join(sentences))
