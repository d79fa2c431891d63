"""Our text-only tasks in lm-eval: the same YAML, prompts, filters, rules and metrics as in lmms-eval.

The files in ``medtasks/lm_eval_tasks`` name a task and this class, nothing else; whatever a task is stands in its YAML
below ``tasks_yaml``.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from lm_eval.api.task import ConfigurableTask

from medtasks.data.document_store import open_documents
from medtasks.errors import MedTasksError
from medtasks.lmms.evaluation import guard_evaluation
from medtasks.tasks.task_files import task_config
from medtasks.tasks.task_index import resolved

_SHARED = (
    "task",
    "task_alias",
    "output_type",
    "test_split",
    "generation_kwargs",
    "doc_to_target",
    "doc_to_choice",
    "target_delimiter",
    "process_results",
    "metric_list",
    "filter_list",
    "metadata",
)


class TextTask(ConfigurableTask):  # type: ignore[misc]  # the harness is untyped
    """A task of ours, named by ``task`` in lm-eval's file.

    A MedTasksError says that its documents show images, which lm-eval's text models cannot see; DatasetNotPrepared and
    SourceError are those of :func:`open_documents`.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config=lm_eval_config(str(config["task"])))
        if evaluator := sys.modules.get("lm_eval.evaluator"):
            guard_evaluation(evaluator)

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Open the prepared documents."""
        self.dataset = open_documents(self.config.metadata["dataset"])
        if any(self.dataset[self.config.test_split]["image_files"]):
            raise MedTasksError(f"'{self.config.task}' shows images; run it with lmms_eval")


def lm_eval_config(name: str) -> dict[str, Any]:
    """Return the lm-eval configuration of one of our tasks; UnknownName where there is none."""
    config = {key: resolved(value) for key, value in task_config(name).items() if key != "dataset_path"}
    families = config.get("lmms_eval_specific_kwargs", {})
    return {
        **{key: config[key] for key in _SHARED if key in config},
        "doc_to_text": _with_settings(config["doc_to_text"], families.get("default", {})),
    }


def _with_settings(prompt: Callable[..., str], settings: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], str]:
    if len(inspect.signature(prompt).parameters) < 2:
        return prompt
    return functools.partial(prompt, lmms_eval_specific_kwargs=settings)
