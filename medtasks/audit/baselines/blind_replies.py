"""What models would say that do not look at the image: the same to every question, or what is most often right.

A strategy says which *answer* is meant to each document; the words that a rule reads as this answer differ from rule to
rule and are found by :mod:`medtasks.audit.baselines.scores`. What is most frequent is counted in the keys of these
questions, so that its accuracy is the best that the same answer to every question can have.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from medtasks.data.privacy import is_private
from medtasks.data.samples import Sample, letter
from medtasks.extract.medheval_reference import listed_options
from medtasks.extract.medheval_strict import medheval_strict
from medtasks.extract.multimedeval_cleaning import clean_head
from medtasks.harness.variant_documents import published_position
from medtasks.metrics.open_questions import is_closed

Document = Mapping[str, Any]

_LONGEST_NAME = 20
_MOST_CONSTANTS = 6  # of more options, only the most frequent is of interest
_NO_FINDING = ("No finding", "Normal chest, no abnormality.")


@dataclass(frozen=True)
class Meant:
    """The answer that is meant to one document.

    Attributes:
        said: Replies that may say it, the likeliest first.
        value: What the scoring hook must make of the reply: ``value`` of its record, or ``correct`` if it has no
            ``value``. None where any reading will do.
        option: Index of the option for tasks that compare likelihoods; None for all options alike.
        whole: Whether ``said`` must be taken as it is, and no other way to write the option is tried.
    """

    said: tuple[str, ...]
    value: object = None
    option: int | None = None
    whole: bool = False


@dataclass(frozen=True)
class Strategy:
    """A way to answer without looking.

    Attributes:
        name: Such as ``always A``.
        describes: One sentence.
        meant: Shape (documents,).
    """

    name: str
    describes: str
    meant: tuple[Meant, ...]


def strategies(documents: Sequence[Document]) -> list[Strategy]:
    """Return the strategies for a task's documents, by the family that their columns show.

    Args:
        documents: At least one, all of one family (:mod:`medtasks.data.schema`).

    Returns:
        None for a family whose key is not published; for reports the most frequent one, where any report occurs twice.
    """
    first = documents[0]
    if "report" in first:
        return _reports(documents)
    if "choices" in first:
        return _closed(documents)
    if "labels" in first:
        return _findings(documents)
    if "answers" in first:
        return _several_right(documents)
    if "options" in first:
        return _one_right(documents)
    return _open(documents)


def key_of(document: Document) -> int | None:
    """Return the index of the right option, None where it is not known."""
    if "label" in document:
        return int(document["label"])
    return None if document.get("answer") is None else ord(document["answer"]) - ord("A")


def _option(document: Document, index: int) -> Meant:
    """Mean one option of a document."""
    text, name = document["options"][index], letter(index)
    if "rotation" in document:
        published = published_position(index, document["rotation"], len(document["options"]))
        value: object = letter(published)
    else:
        value = index if "label" in document else name
    if "label" in document or document.get("kind") == "binary":
        return Meant((text,), value, index)
    lone, labelled = name, f"{name}. {text}"
    return Meant((labelled, lone, text) if "choices" in document else (lone, labelled, text), value, index)


def _one_right(documents: Sequence[Document]) -> list[Strategy]:
    keys = [key_of(document) for document in documents]
    if any(key is None for key in keys):
        return []
    fewest = min(len(document["options"]) for document in documents)
    constants = 0 if "label" in documents[0] or fewest > _MOST_CONSTANTS else fewest
    found = []
    for index, name in enumerate(_names(documents, constants)):
        meant = tuple(_option(document, index) for document in documents)
        found.append(Strategy(f"always {name}", f"Answers {name} to every question.", meant))
    if "rotation" in documents[0]:  # every letter is right equally often
        return found
    frequent = _most_frequent([(len(document["options"]), key) for document, key in zip(documents, keys, strict=True)])
    meant = tuple(_option(document, frequent[len(document["options"])]) for document in documents)
    return [*found, Strategy(*_of_frequent(documents), meant)]


def _of_frequent(documents: Sequence[Document]) -> tuple[str, str]:
    if "label" in documents[0]:
        return "most frequent class", "Gives every image the class that most of them have."
    same = len({len(document["options"]) for document in documents}) == 1
    among = "of these questions" if same else "of the questions with as many options"
    return "most frequent answer", f"Answers the letter that is most often right {among}."


def _names(documents: Sequence[Document], number: int) -> list[str]:
    """Return what the first options are called: their texts where these are short, public and always the same."""
    letters = [letter(index) for index in range(number)]
    texts = {tuple(document["options"]) for document in documents}
    options = next(iter(texts))
    plain = len(texts) == 1 and len({*options}) == len(options) and max(map(len, options)) <= _LONGEST_NAME
    return list(options[:number]) if plain and not is_private(str(documents[0].get("dataset"))) else letters


def _most_frequent(keys: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return the most frequent key of each group, of equally frequent ones the least."""
    counts: dict[Any, Counter[Any]] = defaultdict(Counter)
    for group, key in keys:
        counts[group][key] += 1
    return {group: min(found, key=lambda key: (-found[key], key)) for group, found in counts.items()}


def _several_right(documents: Sequence[Document]) -> list[Strategy]:
    sizes = [len(document["options"]) for document in documents]
    frequent = _most_frequent((len(one["options"]), answer) for one in documents for answer in one["answers"])
    every = tuple(_listed(one, range(size)) for one, size in zip(documents, sizes, strict=True))
    single = tuple(_listed(one, [ord(frequent[size]) - ord("A")]) for one, size in zip(documents, sizes, strict=True))
    describes = "Lists the one letter that is most often right of the questions with as many options."
    return [
        Strategy("all options", "Lists every option of every question.", every),
        Strategy("most frequent answer", describes, single),
    ]


def _listed(document: Document, indices: Sequence[int]) -> Meant:
    options = len(document["options"])
    shown = [published_position(index, document.get("rotation", 0), options) for index in indices]
    return Meant((", ".join(map(letter, indices)),), tuple(sorted(map(letter, shown))), whole=True)


def _findings(documents: Sequence[Document]) -> list[Strategy]:
    options = tuple(documents[0]["options"])
    none = Meant(_NO_FINDING, (0,) * len(options), whole=True)
    every = Meant((", ".join(options),), (1,) * len(options), whole=True)
    return [
        Strategy("no finding", "Calls every image normal.", (none,) * len(documents)),
        Strategy("all findings", "Lists every finding for every image.", (every,) * len(documents)),
    ]


def _closed(documents: Sequence[Document]) -> list[Strategy]:
    """Mean "Yes" or "No", also to questions with options, as the metrics ``always_yes`` and ``always_no`` do."""
    keyed = [document for document in documents if document["answer"] is not None]
    frequent = _most_frequent((_kind(document), document["answer"]) for document in keyed)
    found = [
        Strategy(
            f"always {word.lower()}",
            f"Answers {word} to every question, also where options are asked for.",
            tuple(_verdict(document, word) for document in documents),
        )
        for word in ("Yes", "No")
        if any(document["kind"] == "binary" for document in documents)
    ]
    most = tuple(_listed_option(document, frequent.get(_kind(document), "A")) for document in documents)
    describes = "Answers what is most often right: yes or no, and the letter of the questions with as many options."
    return [*found, Strategy("most frequent answer", describes, most)]


def _kind(document: Document) -> tuple[str, int]:
    return document["kind"], len(document["options"])


def _listed_option(document: Document, name: str) -> Meant:
    """Mean an option; what is read where no option can be told or none is the key is without consequence."""
    if not document["options"]:
        return Meant((name,), whole=True)
    meant = _option(document, ord(name) - ord("A"))
    told = document["kind"] == "binary" or listed_options(document["choices"])
    return meant if told and document["answer"] is not None else replace(meant, value=None)


def _verdict(document: Document, word: str) -> Meant:
    read = medheval_strict(word, Sample(document)).value
    option = None if read is None else ord(read) - ord("A")
    value = letter(("Yes", "No").index(word)) if document["kind"] == "binary" else None
    return Meant((word,), value, option, whole=True)


def _open(documents: Sequence[Document]) -> list[Strategy]:
    """Mean words: to questions whose key is yes or no as much as to others."""
    keys = [str(document["answer"]) for document in documents if document.get("answer") is not None]
    if len(keys) < len(documents):
        return []
    cleaned = [clean_head(key.strip()) for key in keys]
    closed = [is_closed(key) for key in cleaned]
    frequent = _most_frequent(zip(closed, cleaned, strict=True))
    spelled = {word: key for key, word in zip(reversed(keys), reversed(cleaned), strict=True)}  # as it first occurs
    found = [
        Strategy(
            f"always {word}",
            f"Answers {word} to every question.",
            tuple(_words(word, kind, key, word) for kind, key in zip(closed, cleaned, strict=True)),
        )
        for word in ("yes", "no")
        if any(closed)
    ]
    most = tuple(
        _words(spelled[frequent[kind]], kind, key, frequent[kind]) for kind, key in zip(closed, cleaned, strict=True)
    )
    describes = "Answers what is most often right, to yes/no questions and to others."
    return [*found, Strategy("most frequent answer", describes, most)]


def _words(reply: str, closed: bool, key: str, said: str) -> Meant:
    """Mean words; it is known whether they are right where they are the key, and for yes/no questions."""
    return Meant((reply, said), key == said if closed or key == said else None, whole=True)


def _reports(documents: Sequence[Document]) -> list[Strategy]:
    counts = Counter(document["report"] for document in documents)
    text, number = min(counts.items(), key=lambda item: (-item[1], item[0]))
    if number < 2:
        return []
    meant = (Meant((text,), whole=True),) * len(documents)
    return [Strategy("most frequent report", "Gives every image the report that occurs most often.", meant)]
