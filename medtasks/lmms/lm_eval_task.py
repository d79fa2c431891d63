"""Our text-only tasks in lm-eval: the same YAML, prompts, filters, rules and metrics as in lmms-eval.

The files in ``medtasks/lm_eval_tasks`` only name a task and this class; the task itself is defined in ``tasks_yaml``.
"""

import functools
import inspect
import sys
from collections.abc import Mapping
from typing import Any

from lm_eval.api.task import ConfigurableTask

from medtasks.data.document_store import open_documents
from medtasks.errors import MedTasksError
from medtasks.lmms.evaluation import guard_evaluation
from medtasks.tasks.task_files import task_config
from medtasks.tasks.task_index import resolve_names

# Keys of a task's file that mean the same to both harnesses.
_SHARED = (
    "task task_alias output_type test_split generation_kwargs doc_to_target doc_to_choice target_delimiter "
    "process_results metric_list filter_list metadata"
)


class TextTask(ConfigurableTask):  # type: ignore[misc]  # the harness is untyped
    """A task of ours, named by ``task`` in lm-eval's file.

    Raises:
        UnknownName: No task has this name.
        MedTasksError: Its documents have images, which lm-eval's text models cannot see. Other errors are those of
            :func:`open_documents`.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        file = task_config(str(config["task"]))
        file.pop("dataset_path", None)
        file = {key: resolve_names(value) for key, value in file.items()}
        prompt = file["doc_to_text"]
        if len(inspect.signature(prompt).parameters) > 1:
            settings = file.get("lmms_eval_specific_kwargs", {}).get("default", {})
            prompt = functools.partial(prompt, lmms_eval_specific_kwargs=settings)
        shared = {key: file[key] for key in _SHARED.split() if key in file}
        super().__init__(config={**shared, "doc_to_text": prompt})
        if evaluator := sys.modules.get("lm_eval.evaluator"):
            guard_evaluation(evaluator)

    def download(
        self,
        dataset_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Open the prepared documents. The harness's arguments are not used.

        Raises:
            MedTasksError: A document has images.
        """
        self.dataset = open_documents(self.config.metadata["dataset"])
        if any(self.dataset[self.config.test_split]["image_files"]):
            raise MedTasksError(f"'{self.config.task}' shows images; run it with lmms_eval")
