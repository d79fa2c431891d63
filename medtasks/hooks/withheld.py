"""Text of patients' records stays out of the harness's samples file, of trackers such as W&B, and of messages.

The harness writes each sample with its document, prompt, key and reply in clear, and then lets the keys that
``process_results`` returned overwrite its own. So for a credentialed dataset :func:`withhold` returns those keys, too.
"""

import hashlib
from collections.abc import Callable, ItemsView, Mapping, Sequence
from typing import Any

from medtasks.data.privacy import is_private
from medtasks.harness.saved_replies import save_reply
from medtasks.hooks.loglikelihood import FAILED, parse_loglikelihood
from medtasks.hooks.reading import cut_record, untagged

_DIGITS = 16
_NOTE = "[[medtasks:withheld]] "
_IDS = {
    "sample": "doc",
    "doc_id": "doc",
    "rotation_of": "doc",
    "pair_id": "pair",
    "image_id": "image",
    "patient_id": "patient",
}


class PrivateText:
    """Text that scoring needs and no log may show.

    It goes from rank to rank by pickle and compares by content; whatever turns it into text, JSON's ``default=str``
    included, gets a digest. It is no ``str``, so nothing shows it by accident.

    Args:
        text: The text.

    Example:
        >>> PrivateText("No effusion.")
        withheld (sha256 32aedc5eb10c8955)
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def text(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return f"withheld (sha256 {_digest(self._text)})"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrivateText) and self._text == other._text

    def __hash__(self) -> int:
        return hash((PrivateText, self._text))


class WithheldSample(dict[str, Any]):
    """Records by metric, and what the harness writes of a sample in their place.

    The harness takes the metrics from ``items()``, and would list every key there as one of the task; it updates the
    sample with the whole, which ``dict.update`` reads past ``items()`` and ``[]``. So a sample holds no
    :class:`PrivateText`, which trackers could not turn into JSON, and has its text overwritten.

    Args:
        records: One per metric.
        sample: Keys of the sample without text.
    """

    def __init__(self, records: Mapping[str, Any], sample: Mapping[str, Any]) -> None:
        super().__init__({**{metric: _shown(record) for metric, record in records.items()}, **sample})
        self._records = dict(records)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """Return the records only."""
        return self._records.items()

    def __getitem__(self, key: str) -> Any:
        return self._records[key] if key in self._records else super().__getitem__(key)


def is_private_document(doc: Mapping[str, Any]) -> bool:
    """Return whether text of a document must stay out of logs; one that names no dataset is not ours."""
    dataset = doc.get("dataset")
    return dataset is not None and is_private(str(dataset))


def withhold(doc: Mapping[str, Any], results: Sequence[Any], entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``process_results`` hands to the harness for one document.

    For an open dataset these are the records. For a credentialed one ids in the records are hashed, clear text of the
    sample is overwritten, and a reply in words is saved under ``MEDTASKS_HOME``, where ``medtasks score`` finds it.
    Every hook calls this once, last.

    Args:
        doc: The document.
        results: What the harness gave to ``process_results``.
        entries: One record per metric. Besides ids, a record holds letters, labels, numbers, digests and
            :class:`PrivateText`, never text of the document or the reply.
    """
    in_words = _in_words(results)
    if in_words and is_private_document(doc):
        save_reply(doc, results[0])
    return _withheld(doc, results, entries, likelihoods=not in_words)


def withhold_saved(doc: Mapping[str, Any], results: Sequence[Any], entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same as :func:`withhold` for a hook that has saved the reply, which must be text, by itself."""
    return _withheld(doc, results, entries, likelihoods=False)


def _withheld(
    doc: Mapping[str, Any], results: Sequence[Any], entries: Mapping[str, Any], *, likelihoods: bool
) -> dict[str, Any]:
    if not likelihoods and untagged(results[0]).cut:
        entries = _changed(entries, cut_record)
    if is_private_document(doc):
        return WithheldSample(hidden_ids(entries), _overwriting(doc, likelihoods=likelihoods))
    return WithheldSample(entries, {}) if any(map(_holds_text, entries.values())) else dict(entries)


def without_scoring(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Any]:
    """Return what a task gives to the harness that only collects replies (``--predict_only``), see :func:`withhold`."""
    return withhold(doc, results, {"bypass": 0})


def is_withheld(text: str) -> bool:
    """Return whether a text of a samples file is the note that stands for the text of a credentialed dataset."""
    return text.startswith(_NOTE)


def hidden_ids(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return records with hashed ids; what was one record for several metrics is one again.

    Example:
        >>> hidden_ids({"accuracy": {"sample": "s5", "value": "A"}})
        {'accuracy': {'sample': 'doc-3b96fc064fa874a8', 'value': 'A'}}
    """
    return _changed(entries, _hidden)


def hidden_id(kind: str, value: object) -> str:
    """Return the digest that stands for an id; ``kind`` says of what.

    Example:
        >>> hidden_id("image", "scan")
        'image-59ad1b2fc74287de'
    """
    return f"{kind}-{_digest(str(value))}"


def _changed(entries: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Change each record once: what was one record for several metrics is one again."""
    made = {id(entry): change(entry) for entry in entries.values()}
    return {metric: made[id(entry)] for metric, entry in entries.items()}


def _holds_text(record: Any) -> bool:
    return isinstance(record, Mapping) and any(isinstance(value, PrivateText) for value in record.values())


def _shown(record: Any) -> Any:
    if not _holds_text(record):
        return record
    return {key: str(value) if isinstance(value, PrivateText) else value for key, value in record.items()}


def _hidden(entry: Any) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    return {
        key: hidden_id(_IDS[key], value) if key in _IDS and value is not None else value for key, value in entry.items()
    }


def _overwriting(doc: Mapping[str, Any], *, likelihoods: bool) -> dict[str, Any]:
    """Return the sample's own keys without text, in the shapes that the harness's writers expect.

    Numbers say no word of a patient, so the likelihoods of options remain.
    """
    note = f"{_NOTE}'{doc['dataset']}' is credentialed"
    kept = {} if likelihoods else {"resps": [[note]], "filtered_resps": [note]}
    return {"doc": note, "target": note, "arguments": [note], "input": note, "input_media": [], **kept}


def _in_words(results: Sequence[Any]) -> bool:
    if len(results) == 1:
        return not isinstance(results[0], dict)
    return any(not isinstance(result, dict) and parse_loglikelihood(result) is FAILED for result in results)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
