"""Provenance of datasets, as task files name them.

A dataset may be the user's own, so that no name can be written here.
"""

from medtasks.data.dataset_lookup import provenance_of as __getattr__  # noqa: F401
