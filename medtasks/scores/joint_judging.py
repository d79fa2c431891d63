"""Verdicts of a judge that sees the answers of several runs in one request, as MedHEval's authors asked theirs.

They are kept for each run, under a digest of all its replies (:attr:`Reply.run`) and of the judge: a run whose replies
have changed has none, and is judged alone.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from typing import Any

from medtasks.data.samples import Document, Documents, Sample
from medtasks.errors import MedTasksError
from medtasks.families.family import JointVerdicts, Replies, Reply, Rule
from medtasks.judges.judge_client import Judge, judge_for, judge_if_there
from medtasks.judges.medheval_judges import MOST_MODELS, JudgeQuestion
from medtasks.tasks.task_file import TaskFile


def judge_side_by_side(task: TaskFile, documents: Documents, runs: Sequence[Replies]) -> int:
    """Have the replies of several runs judged together and keep the verdicts, so that scores of these runs use them.

    Args:
        task: Task whose prompts are about several models.
        documents: All its documents.
        runs: Replies by document id, those of ``model_1`` first.

    Returns:
        Number of samples that were judged with fewer answers, because some run has none to them.

    Raises:
        MedTasksError: The task has no such prompt, there are too many runs, two are the same, or the judge's verdicts
            cannot be kept. Errors of the judge's settings are those of :func:`judge_for`.
    """
    _check_joinable(task, runs)
    judge = judge_for(Sample(documents[0]).dataset)
    stored: dict[str, str] = {}
    for rule in task.rows.values():
        ask = partial(_joint_verdicts, judge, task, rule, runs)
        with ThreadPoolExecutor(judge.settings.concurrency) as threads:
            for document, by_run in zip(documents, threads.map(ask, documents), strict=True):
                for index, verdicts in by_run.items():
                    reply = runs[index][document["doc_id"]]
                    stored[_name(rule, document, reply)] = json.dumps(asdict(verdicts))
    judge.store(stored)
    if judge.read_texts(list(stored)) != list(stored.values()):
        raise MedTasksError(
            "the judge's verdicts could not be kept, so that no score can use them; see the warning"
        )
    numbers = Counter(chain.from_iterable(runs))
    return sum(0 < numbers[document["doc_id"]] < len(runs) for document in documents)


def _check_joinable(task: TaskFile, runs: Sequence[Replies]) -> None:
    """Raise MedTasksError if a task has no prompt about several models, or not for these runs."""
    if not task.family.joins_runs:
        raise MedTasksError(
            f"'{task.name}' has no judge's prompt about several models; such tasks are medheval_knowledge_open_eleven "
            "and medheval_visual_report_eleven, which also read the replies to medheval_knowledge_open and "
            "medheval_visual_report"
        )
    if not 2 <= len(runs) <= MOST_MODELS:
        raise MedTasksError(
            f"one request holds the answers of 2 to {MOST_MODELS} runs, and the command names {len(runs)}"
        )
    if len({next(iter(replies.values())).run for replies in runs}) < len(runs):
        raise MedTasksError("two of the runs have the same replies; name each run once")


def with_joint_verdicts(
    task: TaskFile,
    rule: Rule,
    documents: Documents,
    replies: Sequence[Reply],
) -> list[Reply]:
    """Add the verdicts of :func:`judge_side_by_side`, if there are any, to replies.

    Args:
        task: Task that the replies answer.
        rule: Rule under which the verdicts were kept.
        documents: Documents with a reply.
        replies: Replies to them, shape (documents,).
    """
    judge = None
    if task.family.joins_runs and any(reply.run for reply in replies):
        with suppress(MedTasksError):  # scoring says so
            judge = judge_if_there(Sample(documents[0]).dataset)
    if judge is None:
        return list(replies)
    pairs = zip(documents, replies, strict=True)
    texts = judge.read_texts([_name(rule, document, reply) for document, reply in pairs])
    judged = []
    for reply, text in zip(replies, texts, strict=True):
        verdicts = None if text is None else JointVerdicts(**json.loads(text))
        judged.append(replace(reply, verdicts=verdicts))
    return judged


def _joint_verdicts(
    judge: Judge,
    task: TaskFile,
    rule: Rule,
    runs: Sequence[Replies],
    document: Document,
) -> dict[int, JointVerdicts]:
    """Return the verdicts on the replies to one sample, by index of the run. Runs without a reply have none."""
    doc_id = document["doc_id"]
    by_field: dict[str, dict[int, JudgeQuestion]] = {}
    for index, run in enumerate(runs):
        if doc_id in run:
            for question in task.family.judge_questions(Sample(document), run[doc_id], rule):
                by_field.setdefault(question.field, {})[index] = question
    verdicts: dict[int, dict[str, Any]] = {}
    for field, questions in by_field.items():
        by_model = _ask(judge, questions, fenced=rule.fenced)
        for index, question in questions.items():
            verdict = (
                by_model.get(f"model_{index + 1}") if question.answer else question.of_empty
            )
            verdicts.setdefault(index, {})[field] = verdict
    return {index: JointVerdicts(len(runs), fields) for index, fields in verdicts.items()}


def _ask(
    judge: Judge,
    questions: Mapping[int, JudgeQuestion],
    *,
    fenced: bool,
) -> Mapping[str, Any]:
    """Ask the judge about the replies of several runs at once.

    Args:
        judge: The judge.
        questions: Question about each reply by index of the run. Empty replies are not asked about.
        fenced: Whether each reply is quoted between marks that its author cannot know.

    Returns:
        Verdicts by model, such as ``model_1``. There are none without any reply to ask about, or if the judge fails.
    """
    answered = {f"model_{index + 1}": each for index, each in questions.items() if each.answer}
    if not answered:
        return {}
    first = next(iter(answered.values()))  # all have the same prompt about the same sample
    answers = {model: question.answer for model, question in answered.items()}
    parsers = {model: question.parse for model, question in answered.items()}
    return (
        first.prompt.ask_jointly(judge, first.pairs, answers, parsers, fenced=fenced).value
        or {}
    )


def _name(rule: Rule, document: Document, reply: Reply) -> str:
    """Return the name under which the verdicts on one reply of a run are kept."""
    return json.dumps(
        [
            "joint",
            reply.run,
            rule.extractor,
            rule.fenced,
            document["doc_id"],
            reply.text_for_files,
        ]
    )
