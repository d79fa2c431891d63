"""Names of tasks in the harness's table, as task files name them.

A dataset may be the user's own, so that no name can be written here.
"""

from medtasks.data.dataset_lookup import label_of as __getattr__  # noqa: F401
