"""RadGraph on texts."""

import json
from collections.abc import Sequence
from typing import cast

from medtasks.metrics.encoder_batches import weights_digest
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.radgraph.annotations import Annotation, Prediction, annotation
from medtasks.metrics.radgraph.archive import open_archive
from medtasks.metrics.radgraph.words import SPLIT, ModelType
from medtasks.metrics.text_cache import TextCache, text_key

_VERSION = 1  # of the code that makes annotations; a change that can change one must change it
_PUT_AFTER = 256

Words = tuple[str, ...]


class RadGraph:
    """Annotates reports as the ``radgraph`` package, version 0.1.18, does.

    Nothing is loaded before the first text that the cache lacks, and nothing stays loaded after a call.

    Args:
        model_type: ``"radgraph"`` (the first version) or ``"radgraph-xl"``. Labels and words differ, so scores of one
            cannot be compared with scores of the other.
        settings: How it runs; :func:`medtasks.metrics.radgraph.archive.open_archive` says which weights it may name.
    """

    def __init__(self, model_type: ModelType, settings: ModelSettings | None = None) -> None:
        self._model_type = model_type
        self._settings = settings or ModelSettings()

    def annotate(self, texts: Sequence[str]) -> list[Annotation]:
        """Annotate texts.

        The empty text is read as the word ``None``, as the package does; a text of white space only, on which the
        package fails, has no entities.

        Args:
            texts: Reports of any length, shape (texts,).

        Returns:
            Shape (texts,), in the order of the input.

        Raises:
            WeightsMissing: The weights are not on this machine, or cannot be read.
            MedTasksError: Memory does not suffice for a single text.
        """
        split = SPLIT[self._model_type]
        reports = [tuple(split(text or "None")) for text in texts]
        known: dict[Words, Annotation] = {(): annotation((), Prediction())}
        asked = [words for words in dict.fromkeys(reports) if words]
        if asked:
            self._annotate(asked, known)
        return [known[words] for words in reports]

    def _annotate(self, asked: Sequence[Words], known: dict[Words, Annotation]) -> None:
        archive = open_archive(self._model_type, self._settings)
        model = f"radgraph {_VERSION} {self._model_type} {self._settings.dtype} {weights_digest(archive.files)}"
        cache = TextCache(self._settings.cache, model)
        keys = {words: text_key(" ".join(words)) for words in asked}
        found = cache.get(list(keys.values()))
        known.update((words, cast(Annotation, json.loads(found[key]))) for words, key in keys.items() if key in found)
        missing = [words for words in asked if words not in known]
        if not missing:
            return
        from medtasks.metrics.radgraph.annotator import Annotator  # needs torch, which a full cache does not

        pending: dict[bytes, bytes] = {}
        try:
            for position, result in Annotator(archive, self._settings).annotate(missing):
                words = missing[position]
                known[words] = result
                pending[keys[words]] = json.dumps(result).encode()
                if len(pending) >= _PUT_AFTER:
                    cache.put(pending)
                    pending = {}
        finally:
            cache.put(pending)
