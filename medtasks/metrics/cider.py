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
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from medtasks.data.dataset_manifest import git_blob
from medtasks.data.safe_parsing import parse_json
from medtasks.errors import MedTasksError, WeightsMissing
from medtasks.home import file_state
from medtasks.metrics.model_settings import WEIGHTS, ModelSettings
from medtasks.metrics.report_metrics import ReportScores, Texts, mean_scores
from medtasks.stats.bootstrap import Floats, Integers

COCO = "coco-val"  # among the weights
_ORDERS = 4
_LONGEST_FILE = 1 << 29  # bytes
_JAR = "stanford-corenlp-3.4.1.jar"
_TOKENIZE = ("edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase")
# ``PUNCTUATIONS`` of pycocoevalcap; brackets in lower case, as the tokenizer gives them, are kept.
_PUNCTUATION = frozenset(
    [
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
    ]
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
    """Return CIDEr of every hypothesis.

    CIDEr = 10 * mean over n = 1 ... 4 of cos(g(hypothesis), g(reference)), averaged over the references of the
    hypothesis, where g counts n-grams times ``log(documents / document frequency)``.

    Args:
        hypotheses: Words of each hypothesis.
        references: Words of each reference.
        owners: Position of the hypothesis of each reference. Every hypothesis has at least one reference.
        frequencies: Document frequencies. If None, they are counted in ``references``, where all references of a
            hypothesis are one document.
        clipped: Whether to compute CIDEr-D: matches clipped, and a penalty for another length.

    Returns:
        One value per hypothesis, shape (hypotheses,).
    """
    texts = [*hypotheses, *references]
    first = len(hypotheses)  # position of the first reference in texts
    owner = np.asarray(owners, dtype=np.int64)
    vocabulary: dict[str, int] = {}
    numbers = []
    for text in texts:
        numbers += [vocabulary.setdefault(word, len(vocabulary)) for word in text]
    words = np.array(numbers, dtype=np.int64)
    lengths = np.array(list(map(len, texts)), dtype=np.int64)
    log_documents = frequencies.log_documents if frequencies else math.log(max(1, first))
    cosines = np.zeros(len(references))
    names = list(vocabulary)
    for grams in _ngrams(words, lengths):
        if frequencies is None:
            # The references of one hypothesis are a document.
            size = max(1, len(grams.examples))
            in_reference = grams.text >= first
            owners_with = owner[grams.text[in_reference] - first]
            documents = np.unique(owners_with * size + grams.gram[in_reference])
            documents_with = np.bincount(documents % size, minlength=size).astype(float)
        else:
            counts = [frequencies.counts.get(gram, 0.0) for gram in grams.texts(words, names)]
            documents_with = np.array(counts, dtype=float)
        weights = log_documents - np.log(np.maximum(1.0, documents_with))
        cosines += _cosines(grams, weights, owner, first, clipped)
    if clipped:
        bigrams = np.maximum(lengths - 1, 0)
        cosines *= np.exp(-((bigrams[owner] - bigrams[first:]) ** 2) / 72)
    sums = np.bincount(owner, cosines * (10 / _ORDERS), minlength=first)
    values: list[float] = (sums / np.bincount(owner, minlength=first)).tolist()
    return values


class _Ngrams(NamedTuple):
    """The distinct n-grams of one order in all texts, hypotheses first, sorted by text and number of the n-gram."""

    order: int
    # place of each distinct n-gram in the words of all texts, shape (distinct,)
    examples: Integers
    text: Integers  # position of the text, shape (entries,)
    gram: Integers  # number of the n-gram, shape (entries,)
    counts: Integers  # how often the text has it, shape (entries,)

    def texts(self, words: Integers, vocabulary: Sequence[str]) -> Iterator[str]:
        """Return the words of each distinct n-gram, joined by blanks."""
        columns = []
        for shift in range(self.order):
            numbers = words[self.examples + shift].tolist()
            columns.append([vocabulary[number] for number in numbers])
        return map(" ".join, zip(*columns, strict=True))


def _ngrams(words: Integers, lengths: Integers) -> Iterator[_Ngrams]:
    """Yield the n-grams of 1, 2, 3 and 4 words.

    Args:
        words: Number in the vocabulary of each word of all texts, which are laid end to end, shape (words,).
        lengths: Number of words of each text, shape (texts,).
    """
    text_of = np.repeat(np.arange(len(lengths)), lengths)
    prefixes = np.zeros_like(words)  # number of the n-gram of the order before at each start
    vocabulary_size = int(words.max(initial=-1)) + 1
    for order in range(1, _ORDERS + 1):
        ends = np.arange(order - 1, len(words))
        starts = (ends - order + 1)[text_of[ends] == text_of[ends - order + 1]]
        codes = prefixes[starts] * vocabulary_size + words[starts + order - 1]
        grams, examples, prefixes[starts] = np.unique(
            codes, return_index=True, return_inverse=True
        )
        size = max(1, len(grams))
        keys, counts = np.unique(text_of[starts] * size + prefixes[starts], return_counts=True)
        text, gram = np.divmod(keys, size)
        yield _Ngrams(order, starts[examples], text, gram, counts)


def _cosines(
    grams: _Ngrams,
    weights: Floats,
    owner: Integers,
    first: int,
    clipped: bool,
) -> Floats:
    """Return the cosine of every reference with its hypothesis, shape (references,).

    Args:
        grams: N-grams of one order in all texts.
        weights: Weight of each distinct n-gram.
        owner: Position of the hypothesis of each reference.
        first: Position of the first reference in all texts.
        clipped: Whether an n-gram of a hypothesis counts at most as often as the reference has it.
    """
    references = len(owner)
    size = max(1, len(grams.examples))
    values = grams.counts * weights[grams.gram]
    norms = np.sqrt(np.bincount(grams.text, values**2, minlength=first + references))
    in_reference = grams.text >= first
    reference = grams.text[in_reference] - first
    keys = grams.text * size + grams.gram
    same_gram = owner[reference] * size + grams.gram[in_reference]  # in the hypothesis
    positions = np.searchsorted(keys, same_gram)
    positions = np.minimum(positions, max(0, len(keys) - 1))
    shared = keys[positions] == same_gram
    weighted = values[positions][shared]
    expected = values[in_reference][shared]
    products = (np.minimum(weighted, expected) if clipped else weighted) * expected
    dots = np.bincount(reference[shared], products, minlength=references).astype(float)
    scale = norms[owner] * norms[first:]
    cosines: Floats = np.divide(dots, scale, out=np.zeros_like(dots), where=scale > 0)
    return cosines


def tokenizer_command() -> list[str]:
    """Return the command that runs the published tokenizer.

    Raises:
        WeightsMissing: The package that brings it, or Java, is not installed.
    """
    package = importlib.util.find_spec("pycocoevalcap")
    folders = package.submodule_search_locations if package else None
    jars = [Path(folder, "tokenizer", _JAR) for folder in folders or ()]
    jar = next(filter(Path.is_file, jars), None)
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


def caption_words(
    texts: Texts,
    *,
    as_published: bool = False,
) -> list[list[str]]:
    """Return the words of captions without punctuation, by one run of the published tokenizer.

    Captions go to it by a pipe, so that no file holds them.

    Args:
        texts: Captions.
        as_published: Whether the captions are lines of one text, so that a line end inside a caption shifts the later
            ones, and a full stop at the end of a caption may depend on the next one. Else captions are kept apart.

    Raises:
        WeightsMissing: The tokenizer or Java is not installed.
        MedTasksError: The tokenizer fails.
    """
    captions = [text.replace("\n", " ") for text in texts]
    if not captions:
        return []
    if as_published:
        lines = _tokenize("\n".join(captions))[: len(captions)]
    else:
        apart = [f"{_LINE_END.sub(' ', caption)}\n{_BETWEEN}\n" for caption in captions]
        lines = _tokenize("".join(apart))[:-1:2]  # every second line is the one between
    if len(lines) != len(captions):
        raise MedTasksError(
            f"CIDEr's tokenizer made {len(lines)} lines of {len(captions)} captions; report this"
        )
    words = []
    for line in lines:
        tokens = [token for token in line.split(" ") if token not in _PUNCTUATION]
        words.append(" ".join(tokens).split())  # a token may hold blanks
    return words


def _tokenize(text: str) -> list[str]:
    """Return the lines that the published tokenizer makes of a text.

    Raises:
        WeightsMissing: The tokenizer or Java is not installed.
        MedTasksError: The tokenizer fails.
    """
    # Half a surrogate pair becomes bytes that no text has, which the tokenizer drops.
    content = text.encode("utf-8", "surrogatepass")
    process = subprocess.run(
        tokenizer_command(), input=content, capture_output=True, check=False
    )
    if process.returncode:  # the tokenizer's own message may repeat a caption, and is not shown
        raise MedTasksError(
            f"CIDEr's tokenizer ended with code {process.returncode}; check Java with: java -version"
        )
    return process.stdout.decode().split("\n")


def read_frequencies(path: Path) -> DocumentFrequencies:
    """Read the table that ``medtasks weights fetch coco-val`` makes.

    Raises:
        WeightsMissing: The file is another one, damaged or too large.
    """
    state = file_state(path)
    if state[0] > _LONGEST_FILE:
        raise WeightsMissing(
            f"{path} has {state[0]:,} bytes, too many for document frequencies; check the file"
        )
    return _parse_frequencies(path, state)


@lru_cache(maxsize=2)
def _parse_frequencies(
    path: Path,
    _state: tuple[int, ...],
) -> DocumentFrequencies:
    """Parse a table. ``_state`` is the state of its file, so that a changed file is parsed again.

    Raises:
        WeightsMissing: The file is no such table.
    """
    try:
        table = parse_json(path.read_bytes())
        log_documents = float(table["ref_len"])
        counts = dict(table["df"])
        numbers = np.array(list(counts.values()), dtype=float)
        if not 0 < log_documents < math.inf:
            raise ValueError("'ref_len' is no logarithm of a number of documents")
        if not (len(numbers) and np.isfinite(numbers).all() and numbers.min() >= 0):
            raise ValueError("its counts are none, negative or infinite")
        if log_documents < math.log(max(1, numbers.max())) - 1e-9:
            raise ValueError("some of its counts are larger than the number of documents")
        made_from = str(table.get("made_from"))
        return DocumentFrequencies(log_documents, counts, git_blob(path), made_from)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise WeightsMissing(
            f"{path} is no table of document frequencies ({error}); 'medtasks weights fetch {COCO}' makes one of the "
            "published pickle, and no other pickle is read, because it can run code"
        ) from error


def _score(
    name: str,
    settings: ModelSettings,
    references: Texts,
    hypotheses: Texts,
) -> ReportScores:
    """Score the metric ``name``, ``cider_coco`` or ``cider_d``.

    Args:
        name: Name of the metric.
        settings: Names the table of document frequencies, if it is not the fetched one.
        references: One text per pair.
        hypotheses: The texts of the model, in the same order.

    Returns:
        ``<name>`` with captions kept apart and ``<name>_reference`` as published, by pair, and their means, 0 to 10.

    Raises:
        WeightsMissing: The tokenizer, Java or the table is not on this machine.
    """
    is_coco = name == "cider_coco"
    frequencies = None
    if is_coco:
        if references:
            frequencies = read_frequencies(settings.find_weights(COCO))
        references = list(map(str.lower, references))
        hypotheses = list(map(str.lower, hypotheses))
    published = [caption_words(side, as_published=True) for side in (hypotheses, references)]
    words = caption_words([*hypotheses, *references])
    careful = [words[: len(hypotheses)], words[len(hypotheses) :]]
    compute = partial(
        cider_values,
        owners=range(len(references)),
        frequencies=frequencies,
        clipped=not is_coco,
    )
    samples = {name: compute(*careful)}
    samples[f"{name}_reference"] = (
        samples[name] if published == careful else compute(*published)
    )
    source = (
        f"the {len(references)} references scored; every value changes when pairs are added"
    )
    if frequencies is not None:
        expected = WEIGHTS[COCO].git_blob
        as_said = "made from" if frequencies.made_from == expected else "not made from"
        source = (
            f"table with git blob {frequencies.blob}, {as_said} the published file, {expected}"
        )
    facts = {
        "words": "Stanford PTBTokenizer 3.4.1, lower case, punctuation dropped",
        "document frequencies": source,
        "formula": "CIDEr" if is_coco else "CIDEr-D, sigma 6",
    }
    return mean_scores(samples, facts)


cider_coco = partial(_score, "cider_coco")
cider_d = partial(_score, "cider_d")
