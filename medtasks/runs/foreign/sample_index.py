"""Samples of a task by their id, their texts, and the questions that occur in a prompt, all in linear time."""

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from medtasks.data.samples import Documents, Sample
from medtasks.runs.asked_questions import QuestionIndex
from medtasks.runs.foreign.compared_texts import (
    comparable_options,
    comparable_question,
    image_name,
    shown_options,
    with_blanks,
)

Texts = tuple[str, tuple[str, ...]]
"""Question and options of a sample in comparable form."""
_REPEATED_ID = re.compile(r" \(\d+\)$")  # of an id that is published more than once
# A word, a sign, or a character of a script without blanks: a question may follow such a character directly.
_TOKEN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|[^\w\s]")
_FIRST = 3  # tokens by which questions are found


class SampleIndex:
    """The samples of a task, by number in their order, as rows of a file may name them."""

    def __init__(self, documents: Documents) -> None:
        """Index all documents of a task, at least one."""
        self.documents = documents
        self.texts: list[Texts] = []
        self.groups: dict[Texts, list[int]] = {}  # samples with the same texts; those without a question have none
        self.options_of: dict[str, dict[tuple[str, ...], tuple[str, ...]]] = {}  # by question, each as prompts show it
        for number, document in enumerate(documents):
            question = comparable_question(Sample(document).question)
            options = [str(option) for option in document.get("options") or ()]
            texts = question, comparable_options(options)
            self.texts.append(texts)
            if question:
                self.groups.setdefault(texts, []).append(number)
                self.options_of.setdefault(question, {}).setdefault(texts[1], shown_options(options))

    @cached_property
    def _names(self) -> QuestionIndex:
        return QuestionIndex(self.documents, {})

    @cached_property
    def _repeated(self) -> dict[str, list[int]]:
        """Samples by the published id that they share."""
        samples: dict[str, list[int]] = {}
        for doc_id, number in self._names.rows.items():
            name = _REPEATED_ID.sub("", doc_id)
            if name != doc_id and name in self._names.rows:
                samples.setdefault(name, [self._names.rows[name]]).append(number)
        return samples

    @cached_property
    def _images(self) -> list[frozenset[str]]:
        names = []
        for document in self.documents:
            files = [*Sample(document).images, *filter(None, (document.get("image_id"),))]
            names.append(frozenset(image_name(str(file)) for file in files))
        return names

    @cached_property
    def finder(self) -> "QuestionFinder":
        """Finder of the questions in prompts."""
        return QuestionFinder(self.options_of)

    def with_id(self, name: str) -> list[int]:
        """Return the samples that have an id, or share it as published."""
        doc_id = self._names.id_of(name)
        return [] if doc_id is None else self._repeated.get(doc_id, [self._names.rows[doc_id]])

    def with_texts(self, question: str, options: tuple[str, ...] | None) -> list[Texts]:
        """Return the texts of samples with a question, and with these options in this order unless they are None."""
        known = self.options_of.get(question, {})
        if options is None:
            return [(question, own) for own in known]
        if options in known:
            return [(question, options)]
        blank = with_blanks(options)
        return [(question, own) for own in known if not own or with_blanks(own) == blank]

    def shows_another_order(self, question: str, options: tuple[str, ...]) -> bool:
        """Return whether a sample has a question with these options in another order."""
        ordered = sorted(options)
        return any(sorted(own) == ordered for own in self.options_of.get(question, ()))

    def with_images(self, samples: Iterable[int], names: Iterable[str]) -> list[int]:
        """Return those of some samples that show an image of one of the names."""
        wanted = {image_name(name) for name in names}
        return [number for number in samples if not wanted.isdisjoint(self._images[number])]


class QuestionFinder:
    """Finder of questions in a text, as fast for a hundred thousand questions as for ten."""

    def __init__(self, questions: Iterable[str]) -> None:
        """Index questions in comparable form by their tokens."""
        self._questions: dict[tuple[str, ...], list[str]] = {}
        self._lengths: dict[tuple[str, ...], set[int]] = {}  # by the first tokens
        for question in questions:
            tokens = tuple(_TOKEN.findall(question))
            self._questions.setdefault(tokens, []).append(question)
            self._lengths.setdefault(tokens[:_FIRST], set()).add(len(tokens))

    def find(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the places of questions in a text in comparable form, and the questions."""
        matches = list(_TOKEN.finditer(text))
        tokens = tuple(match[0] for match in matches)
        for place, match in enumerate(matches):
            for first in range(1, min(_FIRST, len(tokens) - place) + 1):
                for length in self._lengths.get(tokens[place : place + first], ()):
                    for question in self._questions.get(tokens[place : place + length], ()):
                        if text.startswith(question, match.start()):
                            yield match.start(), question
