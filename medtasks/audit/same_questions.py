"""Whether two runs asked a task's questions in the same way, as far as their results and samples files record it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from medtasks.audit.scoring import Documents
from medtasks.data.privacy import hidden_id
from medtasks.errors import RepliesError, warn_once
from medtasks.runs.replies import read_samples
from medtasks.runs.result_files import results_next_to, task_of
from medtasks.tasks.documents import is_private_task
from medtasks.tasks.task_file import TaskFile, templates_in
from medtasks.tasks.task_index import SETTINGS, mapping_in

_IMAGE_MARK = "<image>"
_NOT_COMPARABLE = "so that their numbers cannot be compared; run both with the same data, task file and options"


def check_same_task(task: str, files: Sequence[Path]) -> None:
    """Check that two runs asked one version of a task on the same data.

    RepliesError: they did not.
    """
    results = [file for path in files if (file := results_next_to(path, warn_once)) is not None]
    if len(results) < len(files):
        return
    compared = {
        "were asked on different data": [file.fingerprint(task) for file in results],
        "asked different versions of the task": [file.of_task("versions", task) for file in results],
        "had different numbers of few-shot examples": [file.config(task).get("num_fewshot") for file in results],
    }
    for how, (first, second) in compared.items():
        if first is not None and second is not None and first != second:
            raise RepliesError(f"the runs {how} ({first} in A, {second} in B), {_NOT_COMPARABLE}")
    first, second = (file.content.get("system_instruction") for file in results)
    if first != second:
        raise RepliesError(f"the runs had different system instructions, {_NOT_COMPARABLE}")


def prompt_warnings(task: TaskFile, documents: Documents, files: Sequence[Path]) -> tuple[str, ...]:
    """List possible differences in prompts and sampling of two runs, one sentence each.

    Models that find an image's place by a mark in the text have it in their prompts, which is no other question.
    RepliesError: words of the prompts differ, or of what they are made from where they are not recorded.
    """
    results = [results_next_to(file, warn_once) for file in files]
    configs = [{} if file is None else file.config(task.name) for file in results]
    before, after = (read_samples(file, documents).prompts if task_of(file) else {} for file in files)
    shared = [doc_id for doc_id in before if doc_id in after]
    other = [doc_id for doc_id in shared if _words(before[doc_id]) != _words(after[doc_id])]
    spaced = sum(before[doc_id] != after[doc_id] for doc_id in shared)
    if other:
        named = hidden_id("doc", other[0]) if is_private_task(task, documents) else other[0]
        raise RepliesError(
            f"the runs gave different prompts to {len(other)} of {len(shared)} questions, such as {named} (some tasks "
            f"have other prompts for some models), {_NOT_COMPARABLE}"
        )
    warnings = [f"{spaced} prompts differ in white space or in the mark of an image"] if spaced else []
    if not shared:
        templates = [sorted(templates_in(mapping_in(config, SETTINGS))) for config in configs]
        if all(templates) and templates[0] != templates[1]:
            raise RepliesError(f"the runs made their prompts from different templates, {_NOT_COMPARABLE}")
        warnings = ["the prompts are not recorded or withheld, so that they could not be compared"]
    if task.compares_likelihoods:
        return tuple(warnings)
    first, second = (mapping_in(config, "generation_kwargs") for config in configs)
    settings = [f"generation setting {name}" for name in {**first, **second} if first.get(name) != second.get(name)]
    if settings:
        warnings.append(f"the runs drew replies with different settings ({', '.join(settings)})")
    if _draws(first) or _draws(second):
        warnings.append("replies are drawn at random, so that two runs of one backend differ, too; use temperature 0")
    return tuple(warnings)


def _draws(settings: Mapping[str, Any]) -> bool:
    """Return whether replies are drawn at random."""
    try:
        return bool(settings.get("do_sample")) or float(settings.get("temperature") or 0) > 0
    except (TypeError, ValueError):
        return False


def _words(prompt: str) -> list[str]:
    return prompt.replace(_IMAGE_MARK, " ").split()
