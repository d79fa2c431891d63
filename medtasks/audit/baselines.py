"""What replies score that do not look at the image: the same answer to every question, what is most frequent, a guess.

A model is worth its distance from these. Which words a rule reads as an answer differs: a letter, an option's text, or
``2: background``. Each way to say it is tried until the task's family reads the answer that is meant; where no way is
left the rule gets NaN and the description says why, never a score of something else. The family's own metrics make the
scores, so that they are what a run would show.

No judge, labeler or other model is asked: a task whose replies a judge reads has no baselines here, a rule that needs a
labeler gets NaN, and of reports only the metrics that count words are computed.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from medtasks.audit.comparing import compared_values
from medtasks.audit.report.contents import Baseline
from medtasks.audit.run_values import Values, main_metrics
from medtasks.audit.scoring import Documents, scores_of
from medtasks.data.samples import Sample
from medtasks.extract.extractor_registry import AnswerKind
from medtasks.families.constant_replies import Meant, Strategy
from medtasks.families.counts import is_failed
from medtasks.families.family import Asks, Reply, Row, needs_labeler
from medtasks.families.templates import written_options
from medtasks.families.text_metrics import text_metrics
from medtasks.metrics.metric import AnyMetric, CorpusMetric, Metric, Score, evaluate, mean
from medtasks.metrics.report_metrics import metric_info
from medtasks.stats.paired import PairedResult
from medtasks.tasks.task_file import TaskFile

_RANDOM = ("random answer", "Chooses an option at random, each with the same chance: the exact expectation.")


class _Misread(Exception):
    """A rule does not read an answer from any of its replies; the message says how often."""


def baselines(
    task: TaskFile, documents: Documents, run: Mapping[str, Mapping[str, Score]] = MappingProxyType({})
) -> tuple[Baseline, ...]:
    """Return the baselines of a task on its documents.

    - Options: each letter that every question has (of at most six), the most frequent answer, a random one.
    - Classes: the most frequent one, a random one.
    - Findings: none of them, all of them.
    - Several right options: all of them, the most frequent one, a random one.
    - MedHEval's closed questions: yes, no, what is most frequent, and the scores' own ``random_choice``.
    - Open questions: yes, no, and the most frequent answer to yes/no questions and to others.
    - Reports: the one that occurs most often, where one occurs twice, by BLEU and ROUGE alone.

    Scores are by name of the row and metric, without metrics that do not depend on the replies. There are none for
    groups, tasks whose replies a judge reads, and datasets without a published target. Baselines hold no text of a
    credentialed dataset.

    ``run`` are a run's scores by name of the row and document id. The constant answer that does best at the first main
    metric is tested against them, question by question: its score comes from the same questions, so that an interval of
    the run alone says too little of their difference.
    """
    if not documents or not task.has_family or task.family.asks is not Asks.NOBODY:
        return ()
    samples = [Sample(document) for document in documents]
    return (*_constants(task, documents, task.family.constant_replies(samples), run), *_random(task, documents))


def _constants(
    task: TaskFile, documents: Documents, known: Sequence[Strategy], run: Mapping[str, Mapping[str, Score]]
) -> list[Baseline]:
    scores: list[dict[str, dict[str, float]]] = [{} for _ in known]
    reasons: list[list[str]] = [[] for _ in known]
    tests: list[dict[str, tuple[str, PairedResult]]] = [{} for _ in known]
    metrics = _metrics(task)
    for name, row in task.rows.items():
        read = _Reader(task, row, documents)
        read.all_of(known)
        constants: dict[int, list[Score]] = {}
        for position, strategy in enumerate(known):
            try:
                constants[position] = read.scores(strategy)
                found = evaluate(metrics, constants[position])
                scores[position][name] = {metric: float(one.value) for metric, one in found.items()}
            except _Misread as why:
                scores[position][name] = dict.fromkeys((metric.name for metric in metrics), math.nan)
                reasons[position].append(f" No score under {name}: {why}.")
        if name in run and (tested := _best_against(task, documents, constants, run[name])) is not None:
            tests[tested[0]][name] = tested[1:]
    return [
        Baseline(strategy.name, strategy.describes + "".join(why), found, tested)
        for strategy, why, found, tested in zip(known, reasons, scores, tests, strict=True)
    ]


def _best_against(
    task: TaskFile, documents: Documents, constants: Mapping[int, list[Score]], run: Mapping[str, Score]
) -> tuple[int, str, PairedResult] | None:
    """Return the place of the best constant, the metric, and its test against a run; None where nothing is paired.

    A metric under which every constant gets 0 by construction, such as set accuracy, makes no baseline.
    """
    ids = [str(document["doc_id"]) for document in documents]
    shared = [place for place, doc_id in enumerate(ids) if doc_id in run and not is_failed(run[doc_id])]
    clusters = task.family.independent_clusters([Sample(documents[place]) for place in shared])
    samples = [(ids[place], cluster) for place, cluster in zip(shared, clusters, strict=True)]

    def values(metric: AnyMetric, scores: Sequence[Score]) -> Values:
        return task.family.sample_values(metric, task.family.settled([scores[place] for place in shared]), samples)

    for metric in main_metrics(task) if shared else ():
        if not isinstance(metric, Metric):
            continue
        sign = -1 if metric.higher_is_better is False else 1
        found = {place: values(metric, scores) for place, scores in constants.items()}
        means = {place: mean([value for _, value in by_id.values()]) for place, by_id in found.items() if by_id}
        if any(means.values()):
            best = max(means, key=lambda place: sign * means[place])
            compared = compared_values(found[best], values(metric, [run.get(doc_id, {}) for doc_id in ids]))
            return None if compared is None else (best, metric.name, compared)
    return None


class _Reader:
    """What the task's family makes of meant answers in one row."""

    def __init__(self, task: TaskFile, row: Row, documents: Documents) -> None:
        self._task, self._row, self._documents = task, row, documents
        self._found: dict[tuple[int, Meant], Score] = {}

    def all_of(self, known: Sequence[Strategy]) -> None:
        """Read the replies of all strategies, document by document: rules prepare much per question."""
        if needs_labeler(self._row):
            return
        together = zip(*(strategy.meant for strategy in known), strict=True)
        waiting = list(dict.fromkeys((place, one) for place, meant in enumerate(together) for one in meant))
        attempt = 0
        while waiting:
            asked = [(key, reply) for key in waiting if (reply := self._reply(*key, attempt))]
            documents = [self._documents[place] for (place, _), _ in asked]
            scores = scores_of(self._task, self._row, documents, [reply for _, reply in asked])
            for (key, _), score in zip(asked, scores, strict=True):
                if _reads(score, key[1].value):
                    self._found[key] = score
            waiting = [key for key, _ in asked if key not in self._found]
            attempt += 1

    def scores(self, strategy: Strategy) -> list[Score]:
        """Return the scores of a strategy's replies, shape (documents,); _Misread: some were not read as meant."""
        if needs_labeler(self._row):
            raise _Misread("it needs a labeler, which baselines do not ask")
        found = [self._found.get((place, one)) for place, one in enumerate(strategy.meant)]
        read = [score for score in found if score is not None]
        if len(read) < len(found):
            raise _Misread(f"it reads no reply as this answer for {len(found) - len(read)} of {len(found)} questions")
        return read

    def _reply(self, place: int, meant: Meant, attempt: int) -> Reply | None:
        """Return the reply of one attempt, None where there is no other way left."""
        options = Sample(self._documents[place]).options
        if self._task.compares_likelihoods:
            losses = tuple(float(index != meant.option) for index in range(max(1, len(options))))
            return Reply(losses=losses) if attempt == 0 else None
        ways, form = meant.said, self._row.option_form
        if form is not None and meant.option is not None and not meant.whole:
            ways = (written_options(form, options)[meant.option], *ways)
        return Reply(text=ways[attempt]) if attempt < len(ways) else None


def _reads(score: Score, value: object) -> bool:
    said = score["value"] if "value" in score else score.get("correct")
    return value is None or (tuple(said) if isinstance(said, list) else said) == value


def _metrics(task: TaskFile) -> list[AnyMetric]:
    """Return the metrics that a baseline has: of reports those that count words."""
    if task.family.kind is AnswerKind.REPORT:
        texts = [one.name for one in task.metrics if isinstance(one, CorpusMetric) and one.text_field is not None]
        return list(text_metrics(name for name in texts if metric_info(name).name in ("bleu", "rouge")))
    counted = (one for one in task.metrics if isinstance(one, CorpusMetric) and one.count is not None)
    aside = {one.name for one in counted}
    return [metric for metric in task.metrics if not metric.of_questions and metric.name not in aside]


def _random(task: TaskFile, documents: Documents) -> list[Baseline]:
    scores: dict[str, dict[str, float]] = {}
    if task.family.kind is AnswerKind.CLOSED:  # accuracies, with the chance of guessing right for each right answer
        accuracies = [one for one in task.metrics if isinstance(one, Metric) and one.name.startswith("acc")]
        for name, row in task.rows.items():
            replies = [
                Reply(losses=(0.0,) * max(1, len(Sample(one).options))) if task.compares_likelihoods else Reply(text="")
                for one in documents
            ]
            guesses = [{**one, "correct": one["random_choice"]} for one in scores_of(task, row, documents, replies)]
            scores[name] = {metric: one.value for metric, one in evaluate(accuracies, guesses).items()}
    else:
        expected = task.family.expected_by_chance([Sample(document) for document in documents])
        known = {metric.name: expected[metric.name] for metric in _metrics(task) if metric.name in expected}
        scores = {name: dict(known) for name in task.rows}
    return [Baseline(*_RANDOM, scores)] if any(scores.values()) else []
