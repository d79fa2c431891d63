"""Whether two runs asked a task's questions in the same way, as far as their results and samples files record it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from medtasks.audit.scoring import Documents
from medtasks.data.privacy import hidden_id
from medtasks.data.safe_parsing import parse_json
from medtasks.errors import RepliesError
from medtasks.harness.documents import is_private_task
from medtasks.harness.task_file import TaskFile, templates_in
from medtasks.harness.task_index import SETTINGS, mapping_in
from medtasks.runs.logged_samples import is_withheld
from medtasks.runs.sources import recorded_fingerprint, results_beside

_IMAGE_MARK = "<image>"
_NOT_COMPARABLE = "so that their numbers cannot be compared; run both with the same data, task file and options"


def check_same_task(task: str, files: Sequence[Path]) -> None:
    """Check that two runs asked one version of a task on the same data.

    RepliesError: they did not.
    """
    results = [results_beside(file) for file in files]
    compared = {
        "were asked on different data": [recorded_fingerprint(run, task) for run in results],
        "asked different versions of the task": [mapping_in(run, "versions").get(task) for run in results],
        "had different numbers of few-shot examples": [_config(run, task).get("num_fewshot") for run in results],
    }
    for how, (first, second) in compared.items():
        if first is not None and second is not None and first != second:
            raise RepliesError(f"the runs {how} ({first} in A, {second} in B), {_NOT_COMPARABLE}")
    first, second = results
    if first and second and first.get("system_instruction") != second.get("system_instruction"):
        raise RepliesError(f"the runs had different system instructions, {_NOT_COMPARABLE}")


def prompt_warnings(task: TaskFile, documents: Documents, files: Sequence[Path]) -> tuple[str, ...]:
    """List possible differences in prompts and sampling of two runs, one sentence each.

    Models that find an image's place by a mark in the text have it in their prompts, which is no other question.
    RepliesError: words of the prompts differ, or of what they are made from where they are not recorded.
    """
    configs = [_config(results_beside(file), task.name) for file in files]
    before, after = (_prompts(file, documents) for file in files)
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


def _config(results: Mapping[str, Any], task: str) -> Mapping[str, Any]:
    return mapping_in(mapping_in(results, "configs"), task)


def _draws(settings: Mapping[str, Any]) -> bool:
    """Return whether replies are drawn at random."""
    try:
        return bool(settings.get("do_sample")) or float(settings.get("temperature") or 0) > 0
    except (TypeError, ValueError):
        return False


def _words(prompt: str) -> list[str]:
    return prompt.replace(_IMAGE_MARK, " ").split()


def _prompts(path: Path, documents: Documents) -> dict[str, str]:
    """Return the prompts in a samples file by document id; none where it holds none, or withholds them."""
    prompts = {}
    for line in path.read_text(encoding="utf-8-sig").split("\n") if path.is_file() else ():
        item = parse_json(line) if line.strip() else {}
        prompt = item.get("input")
        if isinstance(prompt, str) and isinstance(item["doc_id"], int) and not is_withheld(prompt):
            prompts[str(documents[item["doc_id"]]["doc_id"])] = prompt
    return prompts
