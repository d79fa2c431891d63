"""The sanity variants of image tasks as tasks: made from the task's own configuration, without a file.

============  =========================================================================================================
variant       how its questions differ from those of the task
============  =========================================================================================================
``_blind``    the question's image is not shown. Images of solved examples in the prompt remain, and Med-Flamingo's text
              looks at the last one of them
``_blank``    a uniform grey picture of the same size stands in place of each image of the question; models that keep
              pictures' proportions still see these
``_swapped``  the question comes with another image: the other one of its pair, else that of another patient or case
``_rotated``  every question is asked once for each rotation of its options, see :mod:`medtasks.hooks.rotations`
============  =========================================================================================================

A model that looks at the images loses with the first three what the images tell; what it keeps, it has read from the
question. ``<task>_sanity`` is a tag: the task and all its variants.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from medtasks.harness.eligibility import ROTATED, ROTATED_SCORING, SWAPPED, VARIANTS
from medtasks.harness.task_files import TaskFile, metadata_of, task_file, task_files
from medtasks.harness.task_index import DottedName, resolved
from medtasks.plugin import VARIANT_OF

TAG_ENDING = "_sanity"
_LABEL = "medtasks.data.label_of."
_MEANING = {
    "blind": "without the image",
    "blank": "grey pictures in place of the images",
    "swapped": "with the image of another question",
    "rotated": "in every rotation of the options",
}


def variant_of(task_name: str) -> tuple[str, str] | None:
    """Return the task and the variant that a name stands for.

    Args:
        task_name: Name of a task.

    Returns:
        Name of the base task and name of the variant (one of
        :data:`medtasks.harness.eligibility.VARIANTS`); None for a name that is no variant of ours.

    Example:
        >>> variant_of("mediconfusion_gd_blind")
        ('mediconfusion_gd', 'blind')
        >>> variant_of("mediconfusion_gd") is None
        True
    """
    base, _, variant = task_name.rpartition("_")
    if variant not in VARIANTS:
        return None
    known = task_files()
    if task_name in known or base not in known or variant not in known[base].variants:
        return None
    return base, variant


def variant_task(name: str) -> TaskFile | None:
    """Return a variant as a task, with its base's file as path; None for a name that is no variant of ours."""
    found = variant_of(name)
    return None if found is None else _variant(task_files()[found[0]], found[1])


def variants_of(task: TaskFile) -> list[TaskFile]:
    """Return the variants of a task; a name that belongs to a file is not among them."""
    known = task_files()
    return [_variant(task, variant) for variant in task.variants if f"{task.name}_{variant}" not in known]


def tagged_tasks(tag: str) -> list[TaskFile]:
    """Return a task and its variants for the tag ``<task>_sanity``; nothing for another name."""
    base = task_files().get(tag.removesuffix(TAG_ENDING))
    if base is None or not tag.endswith(TAG_ENDING) or not base.variants:
        return []
    return [base, *variants_of(base)]


def overrides(task: TaskFile, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a variant changes in its base's configuration, with unresolved dotted names.

    Args:
        task: A variant.
        config: The base's, with resolved dotted names or unresolved ones.
    """
    label = task.name if task.dataset is None else DottedName(f"{_LABEL}{task.name}")
    about = {"description": task.description, "variant": task.variant, "base": task.base}
    changed: dict[str, Any] = {
        "task": task.name,
        "task_alias": label,
        "tag": [],
        "process_docs": DottedName(f"medtasks.harness.variant_documents.{task.variant}_table"),
        "metadata": {**metadata_of(config), **about},
    }
    if task.variant == ROTATED:
        changed |= {"process_results": task.process_results, "metric_list": task.metric_list}
    return changed


def index_entries(index: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return entries of the harness's task index for the variants, and for the tags of tasks with variants.

    Args:
        index: The harness's index. Variants are made of those of our tasks that no file of the harness or the user
            has replaced, and only under names that are free.
    """
    entries: dict[str, dict[str, Any]] = {}
    for task in task_files().values():
        listed = index.get(task.name, {})
        if os.path.abspath(str(listed.get("yaml_path"))) != str(task.path):
            continue
        names = [made.name for made in variants_of(task) if made.name not in index]
        entries |= {name: {**listed, VARIANT_OF: task.name} for name in names}
        tag = task.name + TAG_ENDING
        if names and tag not in index:
            entries[tag] = {"type": "tag", "task": [task.name, *names], "yaml_path": -1, VARIANT_OF: task.name}
    return entries


def variant_config(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a variant for the harness.

    Args:
        name: Name of the variant.
        config: The base's configuration as the harness reads it, every ``!function`` resolved.

    Raises:
        DatasetNotPrepared: Images are to be swapped, and the dataset is not under ``MEDTASKS_HOME``.
        MedTasksError: The images cannot be swapped. The harness would hide what ``process_docs`` raises.
    """
    from medtasks.harness.variant_documents import check_possible

    task = task_file(name)
    if task.variant == SWAPPED:
        check_possible(task)
    changed = resolved(overrides(task, config))
    if task.dataset is None:
        changed["process_docs"] = _OfOwnDocuments(config, changed["process_docs"])
    return {**config, **changed}


@dataclass(frozen=True)
class _OfOwnDocuments:
    """What a variant changes in a user's own documents, behind the user's own ``process_docs``."""

    config: Mapping[str, Any] = field(repr=False)
    change: Callable[[Any], Any]

    def __call__(self, table: Any) -> Any:
        from medtasks.harness.own_documents import completed

        own = self.config.get("process_docs")
        return self.change(completed(own(table) if own else table, self.config, apart=True))


def _variant(base: TaskFile, variant: str) -> TaskFile:
    made = replace(
        base,
        name=f"{base.name}_{variant}",
        description=f"{base.description}; {_MEANING[variant]}",
        tags=(),
        variants=(),
        variant=variant,
        base=base.name,
    )
    if variant != ROTATED:
        return made
    scoring = ROTATED_SCORING[str(base.process_results)]
    return replace(
        made, process_results=DottedName(scoring), metric_list=DottedName("medtasks.hooks.rotations.METRIC_LIST")
    )
