"""RadGraph on texts, and RadGraph F1 of pairs of reports."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial as bound
from types import MappingProxyType

import regex  # type: ignore[import-untyped]  # it has no types

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural.encoder_batches import weights_digest
from medtasks.metrics.neural.radgraph import annotations
from medtasks.metrics.neural.radgraph.annotations import Annotation, Prediction, annotation
from medtasks.metrics.neural.radgraph.archive import ModelType, open_archive
from medtasks.metrics.report_scores import ReportMetric, ReportScores, check_lengths, mean_scores
from medtasks.metrics.text_cache import TextCache, text_key

_VERSION = 1  # of the code that makes annotations; a change that can change one must change it

_SEPARATORS = re.compile(r"([/,:.!?()])")
# NLTK's wordpunct_tokenize, which matches with this engine from 3.10 on. Before, with Python's own, the ² of cm² and
# the ½ of 2½ were one word with what they follow, and combining accents words of their own.
_RUNS = regex.compile(r"\w+|[^\w\s]+")
# The package looks for these as written, backslash and letters, such as a careless export leaves them in a text.
_WRITTEN_ESCAPES = (("\\n", " "), ("\\f", " "), ("\\u2122", " "), ('\\"', "``"))
_PARTED_RUNS = ((").", ") ."), ("%.", "% ."), (".'", ". '"), ("%,", "% ,"), ("%)", "% )"))

Words = tuple[str, ...]
Reward = Callable[[Annotation, Annotation], float]


def split_v1(text: str) -> list[str]:
    """Split at white space and around each of ``/ , : . ! ? ( )``.

    Source of this and the next: ``preprocess_reports`` of the ``radgraph`` package, version 0.1.18. Both give words
    without white space in them, so the words joined with spaces stand for the report.

    Example:
        >>> split_v1("T-tube (3.5cm):  low.")
        ['T-tube', '(', '3', '.', '5cm', ')', ':', 'low', '.']
    """
    return _SEPARATORS.sub(r" \1 ", text).split()


def split_xl(text: str) -> list[str]:
    """Split into runs of letters and digits and runs of other characters, with some runs parted further.

    Example:
        >>> split_xl("T-tube (95%). Low...")
        ['T', '-', 'tube', '(', '95', '%', ')', '.', 'Low', '...']
    """
    for written, meant in _WRITTEN_ESCAPES:
        text = text.replace(written, meant)
    joined = " ".join(_RUNS.findall(" ".join(text.split())))
    for run, parts in _PARTED_RUNS:
        joined = joined.replace(run, parts)
    return joined.split()


SPLIT: Mapping[ModelType, Callable[[str], list[str]]] = MappingProxyType(
    {"radgraph": split_v1, "radgraph-xl": split_xl}
)


class RadGraph:
    """Annotates reports as the ``radgraph`` package, version 0.1.18, does.

    Nothing is loaded before the first text that the cache lacks, and nothing stays loaded after a call. Labels and
    words of the two types of models differ, so scores of one cannot be compared with scores of the other.
    """

    def __init__(self, model_type: ModelType, settings: ModelSettings) -> None:
        self._model_type = model_type
        self._settings = settings

    def annotate(self, texts: Sequence[str]) -> list[Annotation]:
        """Annotate reports of any length, shape (texts,), in the order of the input.

        The empty text is read as the word ``None``, as the package does; a text of white space only, on which the
        package fails, has no entities.
        """
        split = SPLIT[self._model_type]
        reports = [tuple(split(text or "None")) for text in texts]
        keys = {words: text_key(" ".join(words)) for words in reports if words}
        annotated = {(): annotation((), Prediction()), **(self._annotated(keys) if keys else {})}
        return [annotated[words] for words in reports]

    def _annotated(self, keys: Mapping[Words, bytes]) -> dict[Words, Annotation]:
        archive = open_archive(self._model_type, self._settings)
        model = f"radgraph {_VERSION} {self._model_type} {self._settings.dtype} {weights_digest(archive.files)}"

        def annotate(new: Sequence[Words]) -> Iterator[tuple[int, Annotation]]:
            from medtasks.metrics.neural.radgraph.annotator import Annotator  # needs torch, which a full cache does not

            return Annotator(archive, self._settings).annotate(new)

        cache = TextCache(self._settings.cache, model)
        return cache.complete(keys, annotate, encode=lambda report: json.dumps(report).encode(), decode=json.loads)


def _metric(model_type: ModelType, settings: ModelSettings, rewards: Mapping[str, Reward], **rule: str) -> ReportMetric:
    """Return what annotates both sides of every pair, and compares the annotations.

    A pair with an empty text scores 0, whatever is on the other side, and so does a pair with a text without entities.
    ``rewards`` are scores of two annotations by key, ``rule`` is what they depend on besides the model.
    """

    def score(*, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
        check_lengths(references, hypotheses)
        pairs = list(zip(references, hypotheses, strict=True))
        scored = [position for position, pair in enumerate(pairs) if all(pair)]
        annotated = RadGraph(model_type, settings).annotate([text for position in scored for text in pairs[position]])
        samples = {key: [0.0] * len(pairs) for key in rewards}
        for position, first, second in zip(scored, annotated[::2], annotated[1::2], strict=True):
            for key, reward in rewards.items():
                samples[key][position] = reward(first, second)
        return mean_scores(samples, {"model": model_type, "dtype": settings.dtype, **rule})

    return score


def radgraph(settings: ModelSettings, *, case_sensitive: bool = True) -> ReportMetric:
    """Build RadGraph F1 with the first RadGraph: keys ``radgraph_simple``, ``radgraph_partial``, ``radgraph_complete``.

    ``case_sensitive``: words are compared with case, as release 0.1.18 of the package does; its repository's head does
    not. See :mod:`medtasks.metrics.neural.radgraph.annotations`.
    """
    return _f1("radgraph", "radgraph", settings, case_sensitive)


def radgraph_xl(settings: ModelSettings, *, case_sensitive: bool = True) -> ReportMetric:
    """Build RadGraph F1 with RadGraph-XL: keys ``radgraph_xl_simple`` and so on; see :func:`radgraph`."""
    return _f1("radgraph-xl", "radgraph_xl", settings, case_sensitive)


def _f1(model_type: ModelType, prefix: str, settings: ModelSettings, case_sensitive: bool) -> ReportMetric:
    levels = {"simple": annotations.simple, "partial": annotations.partial, "complete": annotations.complete}
    rewards = {f"{prefix}_{name}": bound(level, case_sensitive=case_sensitive) for name, level in levels.items()}
    return _metric(model_type, settings, rewards, case_sensitive="yes" if case_sensitive else "no")


def radgraph_combined(settings: ModelSettings) -> ReportMetric:
    """Build CXR-Report-Metric's scores, which RadCliQ takes, with the first RadGraph.

    Keys: ``radgraph_combined``, the mean of ``radgraph_entity_f1`` and ``radgraph_relation_f1``. That repository cannot
    score an empty reference; here it scores 0.
    """
    rewards: dict[str, Reward] = {
        "radgraph_combined": annotations.combined,
        "radgraph_entity_f1": annotations.entity_f1,
        "radgraph_relation_f1": annotations.relation_f1,
    }
    return _metric("radgraph", settings, rewards)
