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

import importlib.util
import math
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from medtasks.data.dataset_manifest import git_blob
from medtasks.data.safe_parsing import parse_json
from medtasks.errors import MedTasksError, WeightsMissing
from medtasks.home import file_state
from medtasks.metrics.model_settings import WEIGHTS, ModelSettings, weights_path
from medtasks.metrics.report_metrics import ReportScores, mean_scores

COCO = "coco-val"  # among the weights
_ORDERS = 4
_LONGEST_FILE = 1 << 29  # bytes
_JAR = "stanford-corenlp-3.4.1.jar"
_TOKENIZE = ("edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase")
# ``PUNCTUATIONS`` of pycocoevalcap; brackets in lower case, as the tokenizer gives them, are kept.
_PUNCTUATION = frozenset(
    (
        "''",
        "'",
        "``",
        "`",
        "-LRB-",
        "-RRB-",
        "-LCB-",
        "-RCB-",
        ".",
        "?",
        "!",
        ",",
        ":",
        "-",
        "--",
        "...",
        ";",
    )
)
_LINE_END = re.compile(r"[\r\x0b\x0c\u2028\u2029]")  # a line feed becomes a blank before
_BETWEEN = "_"  # a line that keeps the tokenizer from looking at the next caption


class DocumentFrequencies(NamedTuple):
    """Number of documents with each n-gram, which is its words joined by blanks."""

    log_documents: float
    counts: Mapping[str, float]
    blob: str  # git's SHA-1 of the table
    made_from: str  # git's SHA-1 of the published file of the same counts


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
    texts, first, owner = (
        [*hypotheses, *references],
        len(hypotheses),
        np.asarray(owners, dtype=np.int64),
    )
    vocabulary: dict[str, int] = {}
    words = np.array(
        [vocabulary.setdefault(word, len(vocabulary)) for text in texts for word in text],
        dtype=np.int64,
    )
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
            columns = (
                (names[word] for word in words[starts[examples] + shift].tolist())
                for shift in range(order)
            )
            counts_of = (
                frequencies.counts.get(" ".join(ngram), 0.0) for ngram in zip(*columns, strict=True)
            )
            documents_with = (
                np.fromiter(counts_of, dtype=float, count=len(grams)) if len(grams) else np.zeros(1)
            )
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


def tokenizer_command() -> list[str]:
    """Return the command that runs the published tokenizer.

    Raises:
        WeightsMissing: The package that brings it, or Java, is not installed.
    """
    package = importlib.util.find_spec("pycocoevalcap")
    folders = package.submodule_search_locations if package else None
    jar = next(
        (path for folder in folders or () if (path := Path(folder, "tokenizer", _JAR)).is_file()),
        None,
    )
    if jar is None:
        fix = "install it with: pip install 'medtasks[cider]'"
        raise WeightsMissing(
            f"CIDEr needs its published tokenizer, of the package pycocoevalcap; {fix}"
        )
    java = shutil.which("java")
    if java is None:
        fix = "install one, on Debian with: apt-get install default-jre-headless"
        raise WeightsMissing(f"CIDEr's published tokenizer needs a Java runtime; {fix}")
    return [java, "-Dfile.encoding=UTF-8", "-cp", str(jar), *_TOKENIZE]


def caption_words(texts: Sequence[str], *, as_published: bool = False) -> list[list[str]]:
    """Return the words of captions, by one run of the published tokenizer; no text is written to a file.

    ``as_published`` the captions are lines of one text, so that a line end inside a caption shifts the later ones, and
    a full stop at the end of a caption may depend on the next one.
    """
    captions = [text.replace("\n", " ") for text in texts]
    if not captions:
        return []
    if as_published:
        lines = _tokenized("\n".join(captions))[: len(captions)]
    else:
        lines = _tokenized(
            "".join(f"{_LINE_END.sub(' ', caption)}\n{_BETWEEN}\n" for caption in captions)
        )[:-1:2]
    if len(lines) != len(captions):
        raise MedTasksError(
            f"CIDEr's tokenizer made {len(lines)} lines of {len(captions)} captions; report this"
        )
    # Blanks inside a token part words.
    return [
        " ".join(token for token in line.split(" ") if token not in _PUNCTUATION).split()
        for line in lines
    ]


def _tokenized(text: str) -> list[str]:
    # Half a surrogate pair becomes bytes that no text has, which the tokenizer drops.
    content = text.encode("utf-8", "surrogatepass")
    done = subprocess.run(tokenizer_command(), input=content, capture_output=True, check=False)
    if done.returncode:  # its words may repeat a caption
        raise MedTasksError(
            f"CIDEr's tokenizer ended with code {done.returncode}; check Java with: java -version"
        )
    return done.stdout.decode().split("\n")


def read_frequencies(path: Path) -> DocumentFrequencies:
    """Read the table that ``medtasks weights fetch coco-val`` makes, or raise WeightsMissing for another file."""
    state = file_state(path)
    if state[0] > _LONGEST_FILE:
        raise WeightsMissing(
            f"{path} has {state[0]:,} bytes, too many for document frequencies; check the file"
        )
    return _read(path, state)


@lru_cache(maxsize=2)
def _read(path: Path, _state: tuple[int, ...]) -> DocumentFrequencies:
    try:
        table = parse_json(path.read_bytes())
        log_documents, counts = float(table["ref_len"]), dict(table["df"])
        numbers = np.array(list(counts.values()), dtype=float)
        if not 0 < log_documents < math.inf:
            raise ValueError("'ref_len' is no logarithm of a number of documents")
        if not (len(numbers) and np.isfinite(numbers).all() and numbers.min() >= 0):
            raise ValueError("its counts are none, negative or infinite")
        if log_documents < math.log(max(1, numbers.max())) - 1e-9:
            raise ValueError("some of its counts are larger than the number of documents")
        return DocumentFrequencies(
            log_documents, counts, git_blob(path), str(table.get("made_from"))
        )
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise WeightsMissing(
            f"{path} is no table of document frequencies ({error}); 'medtasks weights fetch {COCO}' makes one of the "
            "published pickle, and no other pickle is read, because it can run code"
        ) from error


def _score(
    name: str, settings: ModelSettings, references: Sequence[str], hypotheses: Sequence[str]
) -> ReportScores:
    is_coco = name == "cider_coco"
    frequencies = None
    if is_coco and references:
        frequencies = read_frequencies(weights_path(COCO, settings.named_weights.get(COCO)))
    sides = [
        [text.lower() for text in side] if is_coco else side for side in (hypotheses, references)
    ]
    published = [caption_words(side, as_published=True) for side in sides]
    words = caption_words([*sides[0], *sides[1]])
    careful = [words[: len(hypotheses)], words[len(hypotheses) :]]
    compute = partial(
        cider_values, owners=range(len(references)), frequencies=frequencies, clipped=not is_coco
    )
    samples = {name: compute(*careful)}
    samples[f"{name}_reference"] = samples[name] if published == careful else compute(*published)
    if frequencies is None:
        source = (
            f"the {len(references)} references scored; every value changes when pairs are added"
        )
    else:
        expected = WEIGHTS[COCO].git_blob
        as_said = "made from" if frequencies.made_from == expected else "not made from"
        source = f"table with git blob {frequencies.blob}, {as_said} the published file, {expected}"
    facts = {
        "words": "Stanford PTBTokenizer 3.4.1, lower case, punctuation dropped",
        "document frequencies": source,
        "formula": "CIDEr" if is_coco else "CIDEr-D, sigma 6",
    }
    return mean_scores(samples, facts)


cider_coco, cider_d = partial(_score, "cider_coco"), partial(_score, "cider_d")
