"""Scoring of tasks that are not ours, in a run of the harness: likelihoods as numbers, and answers from our filters.

lmms-eval 0.7.3 turns the pair that ``loglikelihood`` returns into text, on which its own metrics fail: one such task
would end the whole run. Our filters hand a reply on in an envelope, which only our own scoring opens.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from medtasks.errors import MedTasksError
from medtasks.extract.extractor_registry import NO_OPTIONS, lacks_options
from medtasks.lmms import AnyFunction, replace_attribute
from medtasks.lmms.filters import ReadWith
from medtasks.lmms.harness_process import say
from medtasks.runs.reply_envelope import parse_loglikelihood

_LIKELIHOODS = ("loglikelihood", "multiple_choice")


@contextlib.contextmanager
def score_as_intended(tasks: Mapping[str, Any]) -> Iterator[None]:
    """Let the harness score the tasks of others within the block, and report their failed likelihoods after it.

    Args:
        tasks: Tasks of the harness, by name.

    Raises:
        MedTasksError: Before the first request, if a filter of ours reads answers among options that the documents of
            a task lack.
    """
    failed: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        for name, task in tasks.items():
            if getattr(task, "OUTPUT_TYPE", "") in _LIKELIHOODS:
                score = partial(_score_numbers, task.process_results, task, failed)
                stack.enter_context(replace_attribute(task, "process_results", score))
            readers = []
            for ensemble in getattr(task, "_filters", ()):
                readers += [each for each in ensemble.filters if isinstance(each, ReadWith)]
            if readers:
                _check_options(name, task, readers)
                apply = partial(_apply_with_documents, task.apply_filters, task, readers)
                stack.enter_context(replace_attribute(task, "apply_filters", apply))
        yield
    for name, count in failed.items():
        say(
            f"{name}: {count} likelihoods failed. lmms-eval has no failed samples, so that its scores count them as "
            f"options that were not chosen."
        )


def _score_numbers(
    score: AnyFunction,
    task: Any,
    failed: Counter[str],
    doc: Any,
    results: Sequence[Any],
) -> Any:
    """Score likelihoods as pairs of numbers, mean negative log-likelihood and greedy flag."""
    pairs = []
    for result in results:
        if isinstance(result, Mapping):  # of our own filter
            result = (result["loss"], result["is_greedy"])
        loss, greedy = parse_loglikelihood(result)
        if math.isnan(loss):
            failed[str(task.config.task)] += 1
            # the harness takes the smallest loss, and NaN for smaller than any other
            loss = math.inf
        pairs.append((loss, greedy))
    if task.OUTPUT_TYPE == "loglikelihood" and not callable(task.config.process_results):
        return score(doc, pairs[0])  # the harness unpacks the pair itself
    return score(doc, pairs)


def _apply_with_documents(
    apply: AnyFunction,
    task: Any,
    readers: Sequence[ReadWith],
) -> Any:
    """Apply a task's filters while ours among them know the documents of the replies."""
    documents = task.eval_docs_no_media
    answered = [documents[request.doc_id] for request in task.instances]
    with contextlib.ExitStack() as stack:
        for reader in readers:
            stack.enter_context(replace_attribute(reader, "documents", answered))
        return apply()


def _check_options(
    name: str,
    task: Any,
    readers: Sequence[ReadWith],
) -> None:
    """Raise MedTasksError if a filter of ours reads answers among options that a task's first document lacks."""
    documents = task.eval_docs_no_media
    if not len(documents):
        return
    for reader in readers:
        if lacks_options(reader.rule, documents[0]):
            raise MedTasksError(f"{name}: {NO_OPTIONS.format(reader.rule)}")
