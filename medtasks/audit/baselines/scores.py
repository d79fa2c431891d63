"""What replies score that do not look at the image, through a task's own rules and hooks.

The same answer to every question, what is most often right, and guessing. A model is worth its distance from these.

Which words a rule reads as an answer differs: a letter, an option's text, or ``2: background``. Each way to say it is
tried until the task's own hook reads the answer that is meant; where no way is left the rule gets NaN and the
description says why, never a score of something else. The hooks' aggregations make the scores, so that they are what a
run would show.

No judge, labeler or other model is asked: a task whose replies a judge reads has no baselines here, a rule that needs a
labeler gets NaN, and of reports only the metrics that count words are computed.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loguru import logger

from medtasks.audit.baselines.blind_replies import Document, Meant, Strategy, strategies
from medtasks.audit.baselines.chance import expected_scores
from medtasks.audit.report.contents import Baseline
from medtasks.audit.scoring import samples_of
from medtasks.extract import chexbert_labels
from medtasks.extract.registry import Kind, extractors
from medtasks.harness.replies import RecordedReply
from medtasks.harness.task_files import TaskFile
from medtasks.hooks.metric_list import COUNTS
from medtasks.hooks.reading import written_options
from medtasks.hooks.reports import INVALID_RATE, metrics_for, score_records

Record = Mapping[str, Any]

_ERROR = "_stderr"
_JUDGED = "medtasks.hooks.judged_choice.process_results"
_OF_THE_QUESTIONS = frozenset(  # these do not depend on the replies
    {*COUNTS, "always_yes", "always_no", "random_choice", "unscored_rate", "incomplete_pairs", "incomplete_rotations"}
)
_COUNTS_WORDS = ("bleu", "rouge")
_RANDOM = ("random answer", "Chooses an option at random, each with the same chance: the exact expectation.")


class _Misread(Exception):
    """A rule does not read an answer from any of its replies; the message says how often."""


def baselines(task: TaskFile, documents: Sequence[Document]) -> tuple[Baseline, ...]:
    """Return the baselines of a task on its documents.

    - Options: each letter that every question has (of at most six), the most frequent answer, a random one.
    - Classes: the most frequent one, a random one.
    - Findings: none of them, all of them.
    - Several right options: all of them, the most frequent one, a random one.
    - MedHEval's closed questions: yes, no, what is most frequent, and the hooks' own ``random_choice``.
    - Open questions: yes, no, and the most frequent answer to yes/no questions and to others.
    - Reports: the one that occurs most often, where one occurs twice, by BLEU and ROUGE alone.

    Args:
        task: A task, no group.
        documents: Those that the scores shall be compared on, such as all that were answered.

    Returns:
        Scores by filter name and metric, without metrics that do not depend on the replies; none for groups, tasks
        whose replies a judge reads, and datasets without a published key. They hold no text of a credentialed dataset.
    """
    if not documents or not _has_rules(task):
        return ()
    with _quiet_hooks():
        return (*_constants(task, documents, strategies(documents)), *_random(task, documents))


@contextlib.contextmanager
def _quiet_hooks() -> Iterator[None]:
    """Keep the hooks from warning of cut pairs once more for every baseline."""
    logger.disable("medtasks.hooks")
    try:
        yield
    finally:
        logger.enable("medtasks.hooks")


def _has_rules(task: TaskFile) -> bool:
    """Return whether rules alone read the replies."""
    free_text = extractors(Kind.FREE_TEXT).keys() & task.rules.values()
    return bool(task.rules) and task.process_results != _JUDGED and not free_text


def _constants(task: TaskFile, documents: Sequence[Document], known: Sequence[Strategy]) -> list[Baseline]:
    scores: list[dict[str, dict[str, float]]] = [{} for _ in known]
    reasons: list[list[str]] = [[] for _ in known]
    for name in task.rules:
        read = _Reader(task, name, documents)
        read.all_of(known)
        for position, strategy in enumerate(known):
            try:
                scores[position][name] = _scores(task, documents, read.records(strategy))
            except _Misread as why:
                scores[position][name] = dict.fromkeys(_metrics(task, documents), math.nan)
                reasons[position].append(f" No score under {name}: {why}.")
    return [
        Baseline(strategy.name, strategy.describes + "".join(why), found)
        for strategy, why, found in zip(known, reasons, scores, strict=True)
    ]


class _Reader:
    """What the task's hook makes of meant answers under one rule."""

    def __init__(self, task: TaskFile, name: str, documents: Sequence[Document]) -> None:
        self._task, self._name, self._documents = task, name, documents
        self._found: dict[tuple[int, Meant], Mapping[str, Record]] = {}

    def all_of(self, known: Sequence[Strategy]) -> None:
        """Read the replies of all strategies, document by document: rules prepare much per question."""
        if self._task.rules[self._name] == chexbert_labels.NAME:
            return
        together = zip(*(strategy.meant for strategy in known), strict=True)
        waiting = list(dict.fromkeys((place, one) for place, meant in enumerate(together) for one in meant))
        attempt = 0
        while waiting:
            asked = [(key, reply) for key in waiting if (reply := self._reply(*key, attempt))]
            samples = samples_of(
                self._task,
                self._name,
                [self._documents[place] for (place, _), _ in asked],
                [reply for _, reply in asked],
            )
            for (key, _), sample in zip(asked, samples, strict=True):
                if _reads(sample, key[1].value):
                    self._found[key] = sample
            waiting = [key for key, _ in asked if key not in self._found]
            attempt += 1

    def records(self, strategy: Strategy) -> list[Mapping[str, Record]]:
        """Return what the hook made of the replies of a strategy, shape (documents,).

        Raises:
            _Misread: Some were not read as meant.
        """
        if self._task.rules[self._name] == chexbert_labels.NAME:
            raise _Misread("it needs a labeler, which baselines do not ask")
        found = [self._found.get((place, one)) for place, one in enumerate(strategy.meant)]
        read = [sample for sample in found if sample is not None]
        if len(read) < len(found):
            raise _Misread(f"it reads no reply as this answer for {len(found) - len(read)} of {len(found)} questions")
        return read

    def _reply(self, place: int, meant: Meant, attempt: int) -> RecordedReply | None:
        """Return the reply of one attempt, None where there is no other way left."""
        document = self._documents[place]
        if self._task.output_type == "multiple_choice":
            losses = tuple(float(index != meant.option) for index in range(max(1, len(document["options"]))))
            return RecordedReply(losses=losses) if attempt == 0 else None
        ways = meant.said
        form = self._task.option_forms.get(self._name)
        if form is not None and meant.option is not None and not meant.whole:
            ways = (written_options(form, document["options"])[meant.option], *ways)
        return RecordedReply(text=ways[attempt]) if attempt < len(ways) else None


def _reads(sample: Mapping[str, Record], value: object) -> bool:
    record = next(iter(sample.values()))
    said = record["value"] if "value" in record else record.get("correct")
    return value is None or (tuple(said) if isinstance(said, list) else said) == value


def _metrics(task: TaskFile, documents: Sequence[Document]) -> list[str]:
    """Return the names of the metrics that a baseline has."""
    names = [entry["metric"] for entry in ([] if task.metric_list is None else task.metric_list.resolve())]
    own = [name for name in names if not name.endswith(_ERROR) and name not in _OF_THE_QUESTIONS]
    if "report" not in documents[0]:
        return own
    return [name for name in own if name != INVALID_RATE and set(metrics_for([name])) <= set(_COUNTS_WORDS)]


def _scores(task: TaskFile, documents: Sequence[Document], samples: Sequence[Mapping[str, Record]]) -> dict[str, float]:
    """Return the scores of samples by the task's own aggregations."""
    names = _metrics(task, documents)
    if "report" in documents[0]:
        values = score_records([sample[names[0]] for sample in samples], metrics_for(names)).values
        return {name: values[name] for name in names}
    aggregations = {} if task.metric_list is None else {one["metric"]: one for one in task.metric_list.resolve()}
    return {name: float(aggregations[name]["aggregation"]([sample[name] for sample in samples])) for name in names}


def _random(task: TaskFile, documents: Sequence[Document]) -> list[Baseline]:
    scores = _guessed(task, documents) if "choices" in documents[0] else _expected(task, documents)
    return [Baseline(*_RANDOM, scores)] if any(scores.values()) else []


def _expected(task: TaskFile, documents: Sequence[Document]) -> dict[str, dict[str, float]]:
    known = expected_scores(documents)
    found = {name: known[name] for name in _metrics(task, documents) if name in known}
    return {name: dict(found) for name in task.rules}


def _guessed(task: TaskFile, documents: Sequence[Document]) -> dict[str, dict[str, float]]:
    """Return the accuracies of MedHEval's closed questions with the chance of guessing right for each right answer."""
    metrics = [] if task.metric_list is None else task.metric_list.resolve()
    accuracies = [one for one in metrics if one["metric"].startswith("acc") and not one["metric"].endswith(_ERROR)]
    likelihoods = task.output_type == "multiple_choice"
    scores = {}
    for name in task.rules:
        replies = [
            RecordedReply(losses=(0.0,) * max(1, len(document["options"]))) if likelihoods else RecordedReply(text="")
            for document in documents
        ]
        samples = samples_of(task, name, documents, replies)
        guesses = [{**record, "correct": record["random_choice"]} for record in (one["accuracy"] for one in samples)]
        scores[name] = {one["metric"]: one["aggregation"](guesses) for one in accuracies}
    return scores
