"""Choosing documents of a prepared dataset by the values of their columns.

Values of one column are alternatives, and a document has to fit in every column that is named. A value is written in
full, as its abbreviation, or as a pattern with ``*`` and ``?``; case does not matter.
"""

import fnmatch
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from medtasks.data.samples import Document, Documents
from medtasks.errors import MedTasksError, near_match, unknown_name
from medtasks.home import packaged_facts

SELECTABLE = (
    "department",
    "clinical_task",
    "modality",
    "granularity",
    "keyword",
    "original_task",
    "categories",
    "hallucination",
    "kind",
    "source",
    "location",
    "subject",
    "question_type",
    "part",
    "medical_task",
    "body_system",
    "language",
    "answer_type",
)
"""Columns that group documents; the others identify them, or are their texts and answers."""

Criteria = Mapping[str, Sequence[str]]


def selectable(documents: Documents) -> dict[str, Counter[str]]:
    """Return the columns to choose by, each with the number of documents by value.

    Example:
        >>> selectable([{"modality": "CT", "question": "?"}, {"modality": "MR", "question": "?"}])
        {'modality': Counter({'CT': 1, 'MR': 1})}
    """
    columns = {}
    for name in SELECTABLE:
        counts = Counter(chain.from_iterable(values(row, name) for row in documents))
        if counts:
            columns[name] = counts
    return columns


def values_together(
    documents: Iterable[Document], column: str, other: str
) -> dict[str, set[str]]:
    """Return the values of another column that occur with each value of a column.

    Example:
        >>> documents = [{"modality": "CT", "subject": "Chest"}, {"modality": "MR", "subject": "Brain"}]
        >>> values_together(documents, "modality", "subject")
        {'CT': {'Chest'}, 'MR': {'Brain'}}
    """
    together: dict[str, set[str]] = {}
    for document in documents:
        for value in values(document, column):
            together.setdefault(value, set()).update(values(document, other))
    return together


def values(document: Document, column: str) -> list[str]:
    """Return the values a document has in a column: none, one, or those of a list.

    Example:
        >>> values({"categories": ["Lung", "Heart"]}, "categories"), values({}, "categories")
        (['Lung', 'Heart'], [])
    """
    value = document.get(column)
    if value is None:
        return []
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def choose(documents: Documents, criteria: Criteria) -> list[Document]:
    """Return the documents that fit all criteria, in order. Of a pair both images are chosen when one of them fits.

    Args:
        documents: Of a prepared dataset.
        criteria: The user's words by column. A column without any is no criterion.

    Raises:
        UnknownName: There is no such column.
        MedTasksError: A value occurs nowhere, or nothing fits all criteria.
    """
    columns = selectable(documents)
    accepted = {}
    for column, words in criteria.items():
        if words:
            accepted[column] = matching_values(column, words, columns)
    fitting = []
    for row in documents:
        if all(accepted[column] & set(values(row, column)) for column in accepted):
            fitting.append(row)
    if not fitting:
        raise MedTasksError(
            f"no question has {criteria_line(criteria)}; leave out one of these, or see what there is with --list"
        )
    pairs = {row["pair_id"] for row in fitting if "pair_id" in row}
    return [row for row in documents if row["pair_id"] in pairs] if pairs else fitting


def matching_values(
    column: str,
    chosen: Iterable[str],
    columns: Mapping[str, Mapping[str, int]],
) -> set[str]:
    """Return the values of a column that the user's words select.

    Args:
        column: The column.
        chosen: The words: full values, abbreviations or patterns.
        columns: From :func:`selectable`.

    Raises:
        UnknownName: There is no such column.
        MedTasksError: A value occurs nowhere. The message suggests the nearest.
    """
    if column not in columns:
        raise unknown_name("column", column, columns)
    published = columns[column]
    selected = set[str]()
    abbreviations = packaged_facts(__package__, "abbreviations").get(column, {})
    full_names = {short.casefold(): name for short, name in abbreviations.items()}
    for word in chosen:
        matches = _values_like(word.strip().casefold(), published, full_names)
        if not matches:
            hint = near_match(word.casefold(), [value.casefold() for value in published])
            raise MedTasksError(
                f"no question has the {column} '{word}'{hint or '; see what there is with --list'}"
            )
        selected |= matches
    return selected


def _values_like(
    name: str, published: Iterable[str], full_names: Mapping[str, str]
) -> set[str]:
    """Return the published values that one word of the user means, none if it means nothing.

    Args:
        name: The word, case folded.
        published: Values that occur.
        full_names: By abbreviation, case folded.
    """
    matches = {value for value in published if value.casefold() == name}
    if matches:
        return matches
    if re.search(r"[*?]", name):
        pattern = re.compile(fnmatch.translate(name))
        return {value for value in published if pattern.match(value.casefold())}
    full = _plain(full_names.get(name, name))
    return {value for value in published if full and _plain(value) == full}


def criteria_line(criteria: Criteria) -> str:
    """Return criteria as one line, the same for the same criteria.

    Example:
        >>> criteria_line({"modality": ["CT"], "department": ["Urology", "Oncology"], "subject": []})
        'department=Oncology|Urology, modality=CT'
    """
    return ", ".join(
        f"{column}={'|'.join(sorted(words))}"
        for column, words in sorted(criteria.items())
        if words
    )


def _plain(text: str) -> str:
    """Return a text without case, punctuation and the word after a granularity ("mask level")."""
    return re.sub(r"(?:[^\w/]|_)+", " ", text.casefold()).strip().removesuffix(" level")
