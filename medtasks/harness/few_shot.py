"""``--num_fewshot`` of the harness, refused where a task has nothing to choose examples with."""

from collections.abc import Mapping
from typing import Any

from medtasks.errors import MedTasksError
from medtasks.harness.guarded_run import listed


def refuse_examples(tasks: Mapping[str, Any]) -> None:
    """Stop before the first request; the harness would stop there with an ``AttributeError`` about a sampler.

    Args:
        tasks: The harness's tasks by name, with the number of examples that was asked for.

    Raises:
        MedTasksError: A task is to show examples and its file has no ``fewshot_config``.
    """
    failing = [name for name, task in tasks.items() if _shots(task) > 0 and not hasattr(task, "sampler")]
    if failing:
        raise MedTasksError(
            f"--num_fewshot asks {listed(failing)} for solved examples, and the task's file has no fewshot_config to "
            f"choose them with; leave it out"
        )


def _shots(task: Any) -> int:
    return int(getattr(task.config, "num_fewshot", 0) or 0)
