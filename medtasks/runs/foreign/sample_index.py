"""Samples of a task by their id, their texts, and the texts that occur in a prompt.

A benchmark may ask a hundred thousand questions, many of them with one text: nothing here compares each with each.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import product

from medtasks.data.samples import Documents, Sample
from medtasks.runs.asked_questions import QuestionIndex
from medtasks.runs.foreign.compared_texts import (
    Options,
    are_words,
    comparable_options,
    comparable_question,
    image_name,
    shown_options,
    with_blanks,
)

Texts = tuple[str, Options | None]
"""Question and options in comparable form; None stands for any options."""
_REPEATED_ID = re.compile(r" \(\d+\)$")  # of an id that is published more than once
# A word, a sign, or a character of a script without blanks: a question may follow such a character directly.
_TOKEN = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|[^\w\s]"
)
_FIRST = 3  # tokens by which texts are found


class SampleIndex:
    """The samples of a task, by number in their order, as rows of a file may name them."""

    def __init__(self, documents: Documents) -> None:
        """Index all documents of a task, at least one."""
        self.documents = documents
        self._names = QuestionIndex(documents, {})
        self.texts: list[tuple[str, Options]] = []
        self.groups: dict[Texts, list[int]] = {}  # samples that have a question, by their texts
        # By question: options as prompts show them, and compared.
        self.shown: dict[str, dict[Options, Options]] = {}
        # By question: options that prompts need not list.
        self.worded: dict[str, list[Options]] = {}
        self._reordered: set[Texts] = set()  # with sorted options
        self._blank: dict[Texts, dict[Texts, None]] = {}  # by options with blanks
        for number, document in enumerate(documents):
            question = comparable_question(Sample(document).question)
            written = list(map(str, document.get("options") or ()))
            options = comparable_options(written)
            texts = (question, options)
            self.texts.append(texts)
            if not question:
                continue
            if are_words(options) and texts not in self.groups:
                self.worded.setdefault(question, []).append(options)
            self.groups.setdefault(texts, []).append(number)
            self.groups.setdefault((question, None), []).append(number)
            self.shown.setdefault(question, {}).setdefault(shown_options(written), options)
            self._reordered.add((question, tuple(sorted(options))))
            self._blank.setdefault((question, with_blanks(options)), {})[texts] = None

    @cached_property
    def _shared_ids(self) -> dict[str, list[int]]:
        """Samples by the published id that they share."""
        samples: dict[str, list[int]] = {}
        for doc_id, number in self._names.rows.items():
            name = _REPEATED_ID.sub("", doc_id)
            if name != doc_id and name in self._names.rows:
                samples.setdefault(name, [self._names.rows[name]]).append(number)
        return samples

    @cached_property
    def questions(self) -> "TextFinder":
        """Finder of questions in prompts."""
        return TextFinder(self.shown)

    @cached_property
    def options(self) -> "TextFinder":
        """Finder of options in prompts."""
        texts: set[str] = set()
        for of_question in self.shown.values():
            texts.update(*of_question)
        return TextFinder(texts)

    @cached_property
    def most_options(self) -> int:
        """Largest number of options of a question."""
        return max((len(options) for _, options in self.texts), default=0)

    @cached_property
    def _images(self) -> list[frozenset[str]]:
        """Names of each sample's images, and its image id, in the form in which they are compared."""
        names = []
        for document in self.documents:
            files = [*Sample(document).images]
            if document.get("image_id"):
                files.append(document["image_id"])
            names.append(frozenset(map(image_name, map(str, files))))
        return names

    @cached_property
    def _of_images(self) -> dict[tuple[Texts, str], list[int]]:
        """Samples by texts and name of an image."""
        samples: dict[tuple[Texts, str], list[int]] = {}
        for texts, numbers in self.groups.items():
            for number in numbers:
                for name in self._images[number]:
                    samples.setdefault((texts, name), []).append(number)
        return samples

    def with_id(self, name: str) -> list[int]:
        """Return the samples that have an id, or share it as published."""
        doc_id = self._names.id_of(name)
        if doc_id is None:
            return []
        return self._shared_ids.get(doc_id, [self._names.rows[doc_id]])

    def with_texts(
        self,
        question: str,
        options: Options | None,
    ) -> list[Texts]:
        """Return the texts of samples with a question.

        Args:
            question: Question in comparable form.
            options: Options in comparable form, which the samples have in this order, or None for any.
        """
        if (question, options) in self.groups:
            return [(question, options)]
        if options is None:
            return []
        if texts := self._blank.get((question, with_blanks(options))):
            return list(texts)
        return [(question, ())] if (question, ()) in self.groups else []

    def has_in_any_order(self, question: str, options: Options) -> bool:
        """Return whether a sample has a question with these options in some order.

        Args:
            question: Question in comparable form.
            options: Options in comparable form.
        """
        return (question, tuple(sorted(options))) in self._reordered

    def shows_image(self, number: int, names: Iterable[str]) -> bool:
        """Return whether a sample shows an image of one of the names."""
        return not self._images[number].isdisjoint(map(image_name, names))

    def with_image(
        self,
        texts: Sequence[Texts],
        names: Iterable[str],
    ) -> list[int]:
        """Return the samples with some texts that show an image of one of the names.

        Args:
            texts: Texts of samples, see :meth:`with_texts`.
            names: Names of image files, also with folders.
        """
        samples: dict[int, None] = {}
        for key in product(texts, {*map(image_name, names)}):
            samples |= dict.fromkeys(self._of_images.get(key, ()))
        return list(samples)


class TextFinder:
    """Finder of known texts in another one, as fast for a hundred thousand as for ten."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Index texts in comparable form by their tokens."""
        self._texts: dict[tuple[str, ...], list[str]] = {}
        self._lengths: dict[tuple[str, ...], set[int]] = {}  # by the first tokens
        for text in texts:
            tokens = tuple(_TOKEN.findall(text))
            self._texts.setdefault(tokens, []).append(text)
            self._lengths.setdefault(tokens[:_FIRST], set()).add(len(tokens))

    def find(self, text: str) -> list[tuple[int, str]]:
        """Return the known texts in a text in comparable form, each with its place, in order.

        Example:
            >>> TextFinder(["left lung", "lung"]).find("the left lung")
            [(4, 'left lung'), (9, 'lung')]
        """
        matches = list(_TOKEN.finditer(text))
        tokens = tuple(match[0] for match in matches)
        places = []
        for number, match in enumerate(matches):
            for first in range(1, min(_FIRST, len(tokens) - number) + 1):
                for length in self._lengths.get(tokens[number : number + first], ()):
                    for sample in self._texts.get(tokens[number : number + length], ()):
                        if text.startswith(sample, match.start()):
                            places.append((match.start(), sample))
        return places
