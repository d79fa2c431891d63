"""A user's own documents are checked as soon as the harness has loaded them, before it builds a prompt of the first.

It builds that prompt while it makes the task, so that a missing column would be a ``KeyError`` of some hook.
"""

import functools
from types import ModuleType
from typing import Any

_MARK = "_medtasks_checked"


def check_own_documents(module: ModuleType) -> None:
    """Wrap the loading of a task's documents in ``lmms_eval.tasks``, once.

    Raises:
        AttributeError: This version of the harness loads documents in another way.
    """
    task_class = getattr(module, "ConfigurableTask", None)
    if task_class is None:
        return
    download = task_class.download
    if getattr(download, _MARK, False):
        return

    @functools.wraps(download)
    def download_and_check(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = download(self, *args, **kwargs)
        if _has_hooks_of_ours(self):
            _find_image_root(self)
            complete_documents(self)
        return found

    setattr(download_and_check, _MARK, True)
    task_class.download = download_and_check


def complete_documents(task: Any) -> None:
    """Check the documents of a live task whose hooks are ours, and add the columns that follow from others.

    Documents that were prepared by us have all columns and are left as they are, as are those that are read in streams.

    Raises:
        MedTasksError: A column is missing, or a row holds something else than the task's hooks need; the file, the
            column and who needs it are named.
    """
    from medtasks.harness.own_documents import completed, is_prepared, split_of

    config = vars(task.config)
    split = split_of(config)
    if is_prepared(config.get("dataset_path")):
        return
    for tables in (task.dataset, task.dataset_no_image):
        if split in tables and hasattr(tables[split], "select_columns") and hasattr(tables[split], "__len__"):
            tables[split] = completed(tables[split], config)


def _has_hooks_of_ours(task: Any) -> bool:
    from medtasks.harness.own_columns import is_our_hook

    config = vars(task.config)
    return any(is_our_hook(config.get(key)) for key in ("process_results", "doc_to_text", "doc_to_visual"))


def _find_image_root(task: Any) -> None:
    """Look for a relative ``image_root`` beside the task's file, as the harness does for ``data_files``."""
    from medtasks.harness.task_files import task_files
    from medtasks.harness.task_index import SETTINGS, with_image_roots

    known = task_files().get(str(task.config.task))
    for holder in (task.config, task):  # the task has its model's settings already
        settings = getattr(holder, SETTINGS, None)
        if known is not None and settings is not None:
            setattr(holder, SETTINGS, with_image_roots({SETTINGS: settings}, known.path.parent)[SETTINGS])
