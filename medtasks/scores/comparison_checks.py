"""Checks that runs were asked alike, and warnings where prompts or sampling differ."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from medtasks.data.privacy import hidden_id
from medtasks.data.samples import Documents
from medtasks.errors import RepliesError, warn_once
from medtasks.runs.replies import read_samples
from medtasks.runs.reply_origins import ASK_ANEW, ReplyOrigins, read_origins
from medtasks.runs.result_files import results_next_to, task_of
from medtasks.tasks.documents import is_private_task
from medtasks.tasks.task_file import TaskFile, templates_in
from medtasks.tasks.task_index import SETTINGS, Config, mapping_in

_NOT_COMPARABLE = "so that their numbers cannot be compared; run both with the same data, task file and options"


def comparable_origins(
    task: str,
    files: Mapping[str, Sequence[Path]],
    fingerprint: str,
    *,
    strictly: bool,
) -> dict[str, ReplyOrigins]:
    """Check that runs can be compared, and return the origins of their replies by name of the run.

    Args:
        task: Name of the task.
        files: Samples files of the repeats of each run, at least one, by name of the run.
        fingerprint: Fingerprint of the data that all runs have to be on.
        strictly: Whether a verdict is asked for. It takes runs that were asked exactly alike, as many repeats of each,
            and no copies of earlier replies.

    Raises:
        RepliesError: The runs cannot be compared.
    """
    origins = {name: read_origins(*of_run) for name, of_run in files.items()}
    # Repeats of one run were asked the same.
    firsts = {name: of_run[0] for name, of_run in files.items()}
    check_asked_alike(task, firsts, strictly=strictly)
    if strictly:
        _check_repeats(origins, files)
    for of_run in files.values():
        for path in of_run:
            check_data(task, path, fingerprint)
    return origins


def _check_repeats(
    origins: Mapping[str, ReplyOrigins], files: Mapping[str, Sequence[Path]]
) -> None:
    """Raise RepliesError if a run has copies of earlier replies, or not as many repeats as the others."""
    for name, counts in origins.items():
        if counts.copied:
            raise RepliesError(
                f"{name}: {counts}, so that a verdict would not be on this run; {ASK_ANEW}"
            )
    if len(set(map(len, files.values()))) > 1:
        raise RepliesError(
            "the runs have different numbers of repeats, and a verdict takes as many of each; give one repeat of "
            "each, such as FOLDER/repeat_1"
        )


def check_data(task: str, path: Path, expected: str | None) -> None:
    """Raise RepliesError if samples files were made on data with another fingerprint.

    Files without a recorded fingerprint pass.

    Args:
        task: Name of the task.
        path: A samples file, or a folder with some.
        expected: Fingerprint of the prepared data.
    """
    for samples in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
        results = results_next_to(samples, warn_once)
        fingerprint = results.fingerprint(task) if results else None
        if fingerprint not in (None, expected):
            raise RepliesError(
                f"{samples} was made on data with fingerprint {fingerprint}, but the prepared dataset has "
                f"{expected}; point MEDTASKS_HOME to the data of that run"
            )


def check_asked_alike(task: str, samples: Mapping[str, Path], *, strictly: bool) -> None:
    """Raise RepliesError if runs asked different versions of a task. What a run did not record is not compared.

    Args:
        task: Name of the task.
        samples: Samples file of each run by its name.
        strictly: Whether data, number of few-shot examples and system instruction have to be the same, too.
    """
    results = {}
    for name, path in samples.items():
        file = results_next_to(path, warn_once)
        if file is not None:
            results[name] = file
    first_values: dict[str, tuple[str, Any]] = {}
    for name, file in results.items():
        facts = {"asked different versions of the task": file.of_task("versions", task)}
        if strictly:
            shots = file.config(task).get("num_fewshot")
            facts["were asked on different data"] = file.fingerprint(task)
            facts["had different numbers of few-shot examples"] = shots
        for how, value in facts.items():
            if value is None:
                continue
            first, first_value = first_values.setdefault(how, (name, value))
            if value != first_value:
                raise RepliesError(
                    f"the runs {how} ({first_value} in {first}, {value} in {name}), {_NOT_COMPARABLE}"
                )
    instructions = {
        json.dumps(file.content.get("system_instruction")) for file in results.values()
    }
    if strictly and len(instructions) > 1:
        raise RepliesError(f"the runs had different system instructions, {_NOT_COMPARABLE}")


def prompt_warnings(
    task: TaskFile, documents: Documents, files: Sequence[Path]
) -> tuple[str, ...]:
    """List possible differences in prompts and sampling of two runs, one sentence each.

    Args:
        task: Task that the runs were asked.
        documents: All its documents.
        files: Samples file of each of the two runs.

    Raises:
        RepliesError: Words of the prompts differ (not white space or the marks of images), or of their templates where
            prompts are not recorded.
    """
    configs = []
    prompts = []
    for file in files:
        results = results_next_to(file, warn_once)
        configs.append({} if results is None else results.config(task.name))
        # A file of another task has other prompts.
        prompts.append(
            read_samples(file, documents).prompts if task_of(file) == task.name else {}
        )
    before, after = prompts
    pairs = {doc_id: (before[doc_id], after[doc_id]) for doc_id in before if doc_id in after}
    warnings = []
    if pairs:
        _check_words(pairs, hashed=is_private_task(task, documents))
        if spaced := sum(first != second for first, second in pairs.values()):
            warnings.append(
                f"{spaced} prompts differ in white space or in the mark of an image"
            )
    else:
        _check_templates(configs)
        warnings.append(
            "the prompts are not recorded or withheld, so that they could not be compared"
        )
    if not task.compares_likelihoods:
        warnings += _sampling_warnings(configs)
    return tuple(warnings)


def _check_templates(configs: Sequence[Config]) -> None:
    """Raise RepliesError if two runs record different templates of prompts."""
    first, second = (templates_in(mapping_in(config, SETTINGS)) for config in configs)
    if first and second and sorted(first) != sorted(second):
        raise RepliesError(
            f"the runs made their prompts from different templates, {_NOT_COMPARABLE}"
        )


def _check_words(prompts: Mapping[str, tuple[str, str]], *, hashed: bool) -> None:
    """Raise RepliesError if prompts differ in more than white space and marks of images.

    Args:
        prompts: Prompts of both runs by document id.
        hashed: Whether the id in the message is hashed, as for a private task.
    """
    different = [
        doc_id for doc_id, (first, second) in prompts.items() if _words(first) != _words(second)
    ]
    if different:
        named = hidden_id("doc", different[0]) if hashed else different[0]
        raise RepliesError(
            f"the runs gave different prompts to {len(different)} of {len(prompts)} questions, such as {named} "
            f"(some tasks have other prompts for some models), {_NOT_COMPARABLE}"
        )


def _words(prompt: str) -> list[str]:
    """Return the words of a prompt without the marks of images."""
    return prompt.replace("<image>", " ").split()


def _sampling_warnings(configs: Sequence[Config]) -> Iterator[str]:
    """Yield the differences in the generation settings of two runs, and whether they sample."""
    first, second = [mapping_in(config, "generation_kwargs") for config in configs]
    different = []
    for name in {**first, **second}:
        if first.get(name) != second.get(name):
            different.append(f"generation setting {name}")
    if different:
        yield f"the runs drew replies with different settings ({', '.join(different)})"
    if any(
        setting.get("do_sample") or setting.get("temperature") for setting in (first, second)
    ):
        yield "replies are drawn at random, so that two runs of one backend differ, too; use temperature 0"
