"""What models' results say of pairs: solved, confused, wrong, invalid, or not known.

A pair of which an answer failed, was not judged or was not asked is in no number but the count of such pairs.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from medtasks.audit.scoring import rows_of
from medtasks.curate.study import ImagePair
from medtasks.data.privacy import LOG_TEXT_VARIABLE
from medtasks.errors import MedTasksError, RepliesError, WithheldReply
from medtasks.families.counts import judged
from medtasks.families.paired_choice import paired_answers
from medtasks.metrics.metric import Score
from medtasks.metrics.pairs import ScoredPair, complete_pairs
from medtasks.runs.replies import read_replies
from medtasks.runs.sources import Source, check_fingerprints, samples_by_task
from medtasks.tasks.documents import task_documents, task_provenance
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_files

_CAREFUL = ("robust", "fenced")  # rows of results by which replies are read, where a task has them


class PairState(enum.StrEnum):
    """What became of a pair."""

    SOLVED = "solved"
    CONFUSED = "confused"  # the same option for both images
    WRONG = "wrong"  # each option for the other image
    INVALID = "invalid"  # a reply names no option
    FAILED = "failed"  # an answer failed, was not judged or not asked


@dataclass(frozen=True)
class ModelPairs:
    """What became of pairs in one task of one run."""

    model: str
    run: str  # folder or file
    task: str
    rule: str  # that read the replies, with the name of its row
    states: Mapping[str, PairState]  # by pair id


ERRORS = (PairState.CONFUSED, PairState.WRONG, PairState.INVALID)
States = Mapping[str, PairState]
"""What became of each pair in one task of one run, by pair id."""


def read_models(
    name: str, pairs: Mapping[str, ImagePair], runs: Sequence[Path]
) -> tuple[list[ModelPairs], dict[str, str]]:
    """Return what runs, folders or samples files of the harness, made of those pairs that the tasks of a dataset ask.

    Besides, why a task of a run was left out, by both. MedTasksError: a run holds no samples of these tasks, or no task
    could be read.
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
                models.append(_model(tasks[task], model, run, file, pairs))
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


def _model(task: TaskFile, model: str, run: Path, file: Path, pairs: Mapping[str, ImagePair]) -> ModelPairs:
    documents = task_documents(task)
    check_fingerprints([file], task.name, task_provenance(task, documents)["fingerprint"])
    replies = read_replies(file, documents)
    rows = rows_of(task, [document for document in documents if document["doc_id"] in replies], replies)
    row = next((name for name in _CAREFUL if name in rows), next(iter(rows)))
    rule, scores = rows[row]
    asked = dict.fromkeys(str(document["pair_id"]) for document in documents)  # of a study, what became questions
    states = pair_states(scores, [pair_id for pair_id in asked if pair_id in pairs])
    if not states:
        raise RepliesError(f"'{task.name}' asks none of these pairs; is this the study, or source, it was made from?")
    return ModelPairs(model, str(run), task.name, f"{row}, {rule}", states)


def pair_states(scores: Sequence[Score], pairs: Iterable[str]) -> dict[str, PairState]:
    """Return what became of each of some pairs, by id, from scores of a paired task in any order."""
    states = {pair.first.pair_id: _state(pair) for pair in complete_pairs(paired_answers(judged(scores)))}
    return {pair_id: states.get(pair_id, PairState.FAILED) for pair_id in pairs}


def _state(pair: ScoredPair) -> PairState:
    if pair.solved:
        return PairState.SOLVED
    if not pair.valid:
        return PairState.INVALID
    return PairState.CONFUSED if pair.confused else PairState.WRONG


def most_confusing(pairs: Mapping[str, ImagePair], states: Sequence[States]) -> list[str]:
    """Return pair ids: those that confuse most models first, then those that fewest solve, then the widest gap."""

    def place(pair_id: str) -> tuple[float, ...]:
        counts = Counter(one[pair_id] for one in states)
        return -counts[PairState.CONFUSED], -sum(counts[state] for state in ERRORS), -pairs[pair_id].gap

    return sorted(pairs, key=lambda pair_id: (place(pair_id), pair_id))
