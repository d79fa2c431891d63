"""What tasks call their images, so that questions on one image can be planned side by side before any is loaded."""

from typing import Any

from .requests import Documents, Request

COLUMN = "image_id"
"""Canonical column of documents, see ``medtasks.data.schema``: the same picture has the same id wherever it is used."""


class ImageNames:
    """Looks up the ``image_id`` of requests; a hint only, whether images are equal is told by their pixels.

    Args:
        documents: See :data:`~medtasks.model_adapters.requests.Documents`.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._splits: dict[tuple[str, str], Any] = {}

    def __call__(self, request: Request) -> str | None:
        """Return the name; ``None`` for a request without image, or where documents do not name theirs."""
        if request.doc_to_visual is None:
            return None
        try:
            name = self._named(request.task, request.split)[request.doc_id][COLUMN]
        except (LookupError, TypeError):  # another kind of document; where one is missing, loading it says so
            return None
        return None if name is None else str(name)

    def _named(self, task: str, split: str) -> Any:
        """Return the documents of a split; of a table this column alone, because others may hold images to decode."""
        if (task, split) not in self._splits:
            documents = self._documents[task][split]
            columns = getattr(documents, "column_names", None)
            if columns is not None:
                documents = documents.select_columns([COLUMN]) if COLUMN in columns else []
            self._splits[task, split] = documents
        return self._splits[task, split]
