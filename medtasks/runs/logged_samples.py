"""What the harness's samples file holds of a sample of ours: one score, and no text of a patient's record.

The harness writes each sample with its document, prompt, target and reply in clear, and then lets the keys that
``process_results`` returned overwrite its own. It also takes the metrics from there: one entry per metric. A
:class:`LoggedSample` gives it the score under each metric's name, and lets it write the score once, under
:data:`SCORE`; of a credentialed dataset it overwrites the text.
"""

from collections.abc import ItemsView, Iterable, Mapping, Sequence
from typing import Any

from medtasks.data.privacy import PrivateText, hidden_id, is_private
from medtasks.runs.reply_envelope import FAILED, in_words, parse_loglikelihood
from medtasks.runs.saved_replies import save_reply

SCORE = "score"
"""Key of a sample's score in a samples file."""
SCHEMA_VERSION = 2
"""Of a score in a samples file."""

_NOTE = "[[medtasks:withheld]] "
_IDS = {
    "sample": "doc",
    "doc_id": "doc",
    "rotation_of": "doc",
    "pair_id": "pair",
    "image_id": "image",
    "patient_id": "patient",
}


class LoggedSample(dict[str, Any]):
    """Scores by metric, and what the harness writes of a sample in their place.

    The harness takes the metrics from ``items()``, and would list every key there as one of the task; it updates the
    sample with the whole, which ``dict.update`` reads past ``items()`` and ``[]``.
    """

    def __init__(self, metrics: Iterable[str], score: Any, written: Mapping[str, Any]) -> None:
        super().__init__(written)
        self._by_metric = dict.fromkeys(metrics, score)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]  # the harness needs no more of it
        """Return the score by metric."""
        return self._by_metric.items()

    def __getitem__(self, key: str) -> Any:
        return self._by_metric[key] if key in self._by_metric else super().__getitem__(key)


def is_private_document(doc: Mapping[str, Any]) -> bool:
    """Return whether text of a document must stay out of logs; one that names no dataset is not ours."""
    dataset = doc.get("dataset")
    return dataset is not None and is_private(str(dataset))


def logged(
    doc: Mapping[str, Any], results: Sequence[Any], metrics: Iterable[str], score: Mapping[str, Any]
) -> LoggedSample:
    """Return what ``process_results`` hands to the harness for one document.

    For a credentialed dataset ids in the score are hashed and clear text of the sample is overwritten. The score holds
    no text of the document or the reply, but as :class:`~medtasks.data.privacy.PrivateText`.
    """
    private = is_private_document(doc)
    kept = dict(score)
    if private:
        kept |= {name: hidden_id(kind, kept[name]) for name, kind in _IDS.items() if kept.get(name) is not None}
    shown = {name: str(value) if isinstance(value, PrivateText) else value for name, value in kept.items()}
    overwritten = _overwriting(doc, words=may_hold_words(results)) if private else {}
    return LoggedSample(metrics, kept, {SCORE: {"schema_version": SCHEMA_VERSION, **shown}, **overwritten})


def without_scoring(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Any]:
    """Return what a task gives to the harness that only collects replies (``--predict_only``).

    Replies to a credentialed dataset are saved under ``MEDTASKS_HOME``, where ``medtasks score`` finds them.
    """
    if not is_private_document(doc):
        return {"bypass": 0}
    words = may_hold_words(results)
    if words:
        save_reply(doc, results[0])
    return LoggedSample(["bypass"], 0, {"bypass": 0, **_overwriting(doc, words=words)})


def score_in(sample: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the score in a line of a samples file; None where it holds none of ours."""
    return dict(sample[SCORE]) if isinstance(sample.get(SCORE), dict) else None


def answers_another(sample: Mapping[str, Any], doc_id: str) -> str | None:
    """Return the document that a line of a samples file says it answers, if that is another one than ``doc_id``."""
    asked = (score_in(sample) or {}).get("sample")
    return None if asked is None or str(asked) in (doc_id, hidden_id("doc", doc_id)) else str(asked)


def is_withheld(text: str) -> bool:
    """Return whether a text of a samples file is the note that stands for the text of a credentialed dataset."""
    return text.startswith(_NOTE)


def may_hold_words(results: Sequence[Any]) -> bool:
    """Return whether results may be text, which likelihoods that can be read are not."""
    return in_words(results) or any(
        not isinstance(result, dict) and parse_loglikelihood(result) is FAILED for result in results
    )


def _overwriting(doc: Mapping[str, Any], *, words: bool) -> dict[str, Any]:
    """Return the sample's own keys without text, in the shapes that the harness's writers expect.

    Numbers say no word of a patient, so the likelihoods of options remain.
    """
    note = f"{_NOTE}'{doc['dataset']}' is credentialed"
    replies = {"resps": [[note]], "filtered_resps": [note]} if words else {}
    return {"doc": note, "target": note, "arguments": [note], "input": note, "input_media": [], **replies}
