"""CIDEr in the two forms that papers print under one name.

==============  =======================================================================================================
``cider_coco``  MedEvalKit: plain CIDEr of the package cidereval with its document frequencies of COCO captions, texts
                in lower case. A pair's value does not depend on other pairs, but on that file.
``cider_d``     CIDEr-D of pycocoevalcap's class ``Cider``: matches clipped, a penalty for another length, and document
                frequencies of the references that are scored. Every value changes when pairs are added; one pair, or
                the same reference everywhere, scores 0.
==============  =======================================================================================================

Both are 10 times the mean, over n-grams of 1 to 4 words, of the cosine of two vectors of counts times
``ref_len - log(document frequency)``. Source: Vedantam et al., "CIDEr: consensus-based image description evaluation",
2015. Keys that end in ``_reference`` reproduce a fault: the published code writes all captions into one text, a line
each, so that a line end other than a line feed inside a caption shifts all later captions by one pair.
"""

import math
import pickle
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from medtasks.data.dataset_manifest import git_blob
from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import WEIGHTS, ModelSettings, weights_path
from medtasks.metrics.ptb_tokens import BEFORE_NUMBER, line_tokens
from medtasks.metrics.report_metrics import ReportScores, mean_scores

COCO = "coco-val"  # among the weights
_ORDERS = 4
_LONGEST_FILE = 1 << 29  # bytes
_LINE_END = re.compile(r"[\r\x0b\x0c\u2028\u2029]")  # a line feed becomes a blank before
# A last word whose full stop depends on the next word.
_ENDING = re.compile(rf"(?<![A-Za-z])(?:[A-Za-z]|{BEFORE_NUMBER})\.\s*$", re.IGNORECASE)
_ALLOWED = {
    *(("builtins", name) for name in ("float", "int")),
    *(("__builtin__", name) for name in ("float", "int")),
    ("collections", "defaultdict"),
    ("numpy", "dtype"),
    *((module, "scalar") for module in ("numpy.core.multiarray", "numpy._core.multiarray")),
}


class DocumentFrequencies(NamedTuple):
    """Number of documents with each n-gram."""

    log_documents: float
    counts: Mapping[tuple[str, ...], float]
    blob: str  # git's SHA-1 of the file


def cider_values(
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    owners: Sequence[int],
    frequencies: DocumentFrequencies | None = None,
    *,
    clipped: bool = False,
) -> list[float]:
    """Return CIDEr of every hypothesis, shape (hypotheses,), all texts as words.

    ``owners`` are the positions of the hypotheses that the references belong to; every hypothesis has at least one.
    Without ``frequencies`` those of the references count, the references of a hypothesis as one document. ``clipped``
    is CIDEr-D.
    """
    texts, first, owner = [*hypotheses, *references], len(hypotheses), np.asarray(owners, dtype=np.int64)
    vocabulary: dict[str, int] = {}
    words = np.array([vocabulary.setdefault(word, len(vocabulary)) for text in texts for word in text], dtype=np.int64)
    names, lengths = list(vocabulary), np.array([len(text) for text in texts], dtype=np.int64)
    text_of = np.repeat(np.arange(len(texts)), lengths)
    log_documents = frequencies.log_documents if frequencies else math.log(max(1, first))
    prefixes, cosines = np.zeros_like(words), np.zeros(len(references))
    for order in range(1, _ORDERS + 1):
        ends = np.arange(order - 1, len(words))
        starts = (ends - order + 1)[text_of[ends] == text_of[ends - order + 1]]
        codes = prefixes[starts] * len(names) + words[starts + order - 1]
        grams, examples, prefixes[starts] = np.unique(codes, return_index=True, return_inverse=True)
        size = max(1, len(grams))
        keys, counts = np.unique(text_of[starts] * size + prefixes[starts], return_counts=True)
        texts_with, gram = np.divmod(keys, size)
        in_reference = texts_with >= first
        comparison = texts_with[in_reference] - first
        if frequencies is None:
            documents = np.unique(owner[comparison] * size + gram[in_reference]) % size
            documents_with = np.bincount(documents, minlength=size).astype(float)
        else:
            columns = ((names[word] for word in words[starts[examples] + shift].tolist()) for shift in range(order))
            counts_of = (frequencies.counts.get(ngram, 0.0) for ngram in zip(*columns, strict=True))
            documents_with = np.fromiter(counts_of, dtype=float, count=len(grams)) if len(grams) else np.zeros(1)
        weights = counts * (log_documents - np.log(np.maximum(1.0, documents_with)))[gram]
        norms = np.sqrt(np.bincount(texts_with, weights**2, minlength=len(texts)))
        same_gram = owner[comparison] * size + gram[in_reference]  # in the hypothesis
        places = np.minimum(np.searchsorted(keys, same_gram), max(0, len(keys) - 1))
        shared = keys[places] == same_gram
        weighted, expected = weights[places][shared], weights[in_reference][shared]
        products = (np.minimum(weighted, expected) if clipped else weighted) * expected
        dots = np.bincount(comparison[shared], products, minlength=len(references)).astype(float)
        scale = norms[owner] * norms[first:]
        cosines += np.divide(dots, scale, out=np.zeros_like(dots), where=scale > 0)
    if clipped:
        bigrams = np.maximum(lengths - 1, 0)
        cosines *= np.exp(-((bigrams[owner] - bigrams[first:]) ** 2) / 72)
    sums = np.bincount(owner, cosines * (10 / _ORDERS), minlength=first)
    return [float(value) for value in sums / np.bincount(owner, minlength=first)]


def caption_words(texts: Sequence[str], *, as_published: bool = False) -> list[list[str]]:
    """Return the words of captions; ``as_published`` with the shift that line ends inside a caption cause."""
    captions = [text.replace("\n", " ") for text in texts]
    if not as_published:
        return [" ".join(line_tokens(_LINE_END.sub(" ", caption), "")).split() for caption in captions]
    lines = [line for caption in captions for line in _LINE_END.split(caption)][: len(captions) + 1]
    pairs = zip_longest(lines, lines[1:], fillvalue="")
    words = [line_tokens(line, after[:16] if _ENDING.search(line) else "") for line, after in pairs]
    return [" ".join(tokens).split() for tokens in words[: len(captions)]]  # no-break spaces part words


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is no part of the format")
        return super().find_class(module, name)


@lru_cache(maxsize=2)
def _read(path: Path, _size: int, _modified: int) -> DocumentFrequencies:
    try:
        with path.open("rb") as file:
            table = _Unpickler(file, encoding="iso-8859-1").load()
        counts, log_documents = table["df"], float(table["ref_len"])
        if not (math.isfinite(log_documents) and log_documents > 0 and isinstance(counts, dict) and counts):
            raise ValueError("'ref_len' is no logarithm of a number of documents, or 'df' is empty")
        numbers = np.fromiter(counts.values(), dtype=float, count=len(counts))
        if not (
            np.isfinite(numbers).all()
            and (numbers >= 0).all()
            and log_documents >= math.log(max(numbers.max(), 1)) - 1e-9
        ):
            raise ValueError("some of its counts are negative, infinite or larger than the number of documents")
        if not all(isinstance(ngram, tuple) and ngram and isinstance(ngram[0], str) for ngram in counts):
            raise ValueError("its n-grams are not tuples of words")
    except Exception as error:  # a damaged pickle raises errors of any kind
        raise WeightsMissing(
            f"{path} cannot be read as document frequencies ({error or type(error).__name__}); fetch it again with "
            f"'medtasks weights fetch {COCO}', or give the file with --weights {COCO}=FILE"
        ) from error
    return DocumentFrequencies(log_documents, dict(counts), git_blob(path))


def read_frequencies(path: Path) -> DocumentFrequencies:
    """Read a pickle ``{"ref_len", "df"}`` without running what it names, or raise WeightsMissing."""
    state = path.stat()
    if state.st_size > _LONGEST_FILE:
        raise WeightsMissing(f"{path} has {state.st_size:,} bytes, too many for document frequencies; check the file")
    return _read(path, state.st_size, state.st_mtime_ns)


def _score(name: str, settings: ModelSettings, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
    is_coco = name == "cider_coco"
    frequencies = None
    if is_coco and references:
        frequencies = read_frequencies(weights_path(COCO, settings.named_weights.get(COCO)))
    sides = [[text.lower() for text in side] if is_coco else side for side in (hypotheses, references)]
    careful, published = ([caption_words(side, as_published=shifted) for side in sides] for shifted in (False, True))
    compute = partial(cider_values, owners=range(len(references)), frequencies=frequencies, clipped=not is_coco)
    samples = {name: compute(*careful)}
    samples[f"{name}_reference"] = samples[name] if published == careful else compute(*published)
    if frequencies is None:
        source = f"the {len(references)} references scored; every value changes when pairs are added"
    else:
        expected = WEIGHTS[COCO].git_blob
        as_said = "the published one" if frequencies.blob == expected else f"not the published one, {expected}"
        source = f"file with git blob {frequencies.blob}, {as_said}"
    facts = {
        "words": "Stanford PTBTokenizer 3.4.1, lower case, punctuation dropped",
        "document frequencies": source,
        "formula": "CIDEr" if is_coco else "CIDEr-D, sigma 6",
    }
    return mean_scores(samples, facts)


cider_coco, cider_d = partial(_score, "cider_coco"), partial(_score, "cider_d")
