"""Samples that the rows of a file answer: by a published id, else by question and options, never by place alone."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from medtasks.errors import RepliesError
from medtasks.runs.asked_questions import number_of
from medtasks.runs.foreign.compared_texts import (
    Options,
    are_words,
    comparable_options,
    comparable_question,
)
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow
from medtasks.runs.foreign.prompt_texts import matches_in, within_frame
from medtasks.runs.foreign.sample_index import SampleIndex, Texts

BY_ID = "id"
BY_OPTIONS = "question and options"
BY_QUESTION = "question"
BY_QUESTION_ALONE = "question (options not compared)"
BY_PROMPT = "prompt"
BY_ORDER = "order, verified row by row"
AND_IMAGE = " and image"
OTHER_ORDER = "options in another order"
OTHER_ID = "id of another question"
OTHER_IMAGE = "question of this task on another image"
NOT_HERE = "no question of this task"
SEVERAL = "fits several samples"
_NEAR = 8  # rows to each side that tell the place of a row, fewer in a short file


@dataclass
class RowMatch:
    """Samples that one row may answer.

    Attributes:
        row: The row.
        texts: Texts of samples that are those of the row.
        shown: Texts of samples that the row shows, also inside other text; an id decides between them.
        step: How they were found.
        why: Why the row answers none of the samples, or which one is unknown.
        samples: The sample that it answers, or several between which nothing decides; none where it is unmatched.
        is_on_other_image: Whether no sample with these texts shows an image of the row's names.
    """

    row: ForeignRow
    texts: list[Texts] = field(default_factory=list)
    shown: frozenset[Texts] = frozenset()
    step: str = ""
    why: str = ""
    samples: list[int] = field(default_factory=list)
    is_on_other_image: bool = False

    @property
    def identifier(self) -> str:
        """The row's id, empty without one."""
        return self.row.identifier or ""

    @property
    def has_text(self) -> bool:
        """Whether the row shows what was asked."""
        return bool(self.row.question or self.row.prompt)


def match_each(file: ForeignFile, index: SampleIndex) -> list[RowMatch]:
    """Match each row of a file to the samples of a task.

    Args:
        file: The rows.
        index: The samples.

    Returns:
        One match per row, in their order.

    Raises:
        RepliesError: The file's ids could be the numbers of any rows.
    """
    matches = _by_texts(file.rows, index)
    ids_count = file.is_id_named or _numbers_are_ids(file, matches, index)
    for match in matches:
        if ids_count or not number_of(match.identifier):
            match.samples = index.with_id(match.identifier)
        decide = _decide_by_id if match.samples else _decide_by_texts
        on_image = decide(match, index)
        match.why = "" if match.samples else match.why or NOT_HERE
        if len(match.samples) > 1 and on_image:
            match.samples = on_image
            match.step += AND_IMAGE
    _check_images(matches)
    _take_order(matches, index)
    for match in matches:
        if len(match.samples) > 1:
            match.why = SEVERAL
    return matches


def _by_texts(
    rows: Sequence[ForeignRow],
    index: SampleIndex,
) -> list[RowMatch]:
    """Find the texts that agree with those of each row: by question and options, else in its prompt.

    Returns:
        One match per row, in their order, without samples yet.
    """
    matches = list(map(RowMatch, rows))
    in_prompts = []
    of_prompts = []
    for match in matches:
        options = None if match.row.options is None else comparable_options(match.row.options)
        prompt = match.row.prompt or match.row.question
        if prompt and not _settles_texts(match, options, index):
            # What the question alone gave is replaced, even by nothing.
            found_texts, is_reordered = matches_in(prompt, index, options)
            match.shown = frozenset(each.texts for each in found_texts)
            match.why = OTHER_ORDER if is_reordered else ""
            in_prompts.append(found_texts)
            of_prompts.append(match)
    for match, found_texts in zip(of_prompts, within_frame(in_prompts), strict=True):
        match.texts = list(dict.fromkeys(each.texts for each in found_texts))
        match.step = BY_PROMPT
    return matches


def _settles_texts(
    match: RowMatch,
    options: Options | None,
    index: SampleIndex,
) -> bool:
    """Compare a row's question, and options in a place of their own, and set the texts that agree.

    Args:
        match: Match of the row.
        options: Options of the row in comparable form; None: the row has none in a place of their own.
        index: The samples.

    Returns:
        Whether the texts are settled, so that the row's prompt can add nothing.
    """
    question = comparable_question(match.row.question or "")
    match.texts = index.with_texts(question, options)
    match.shown = frozenset(match.texts)
    match.step = BY_OPTIONS if any(own_texts for _, own_texts in match.texts) else BY_QUESTION
    if options is None:
        if not all(map(are_words, index.shown.get(question, ()))):
            match.step = BY_QUESTION_ALONE
        return bool(match.texts) and not match.row.prompt
    if match.texts:
        return True
    if index.has_in_any_order(question, options):
        match.why = OTHER_ORDER
    return bool(match.why)


def _numbers_are_ids(
    file: ForeignFile,
    matches: Sequence[RowMatch],
    index: SampleIndex,
) -> bool:
    """Return whether bare numbers in a file are ids: one that contradicts its row's texts makes all of them none.

    Raises:
        RepliesError: A number is a sample's id, and its row has no text to compare with that sample.
    """
    for match in matches:
        samples = index.with_id(match.identifier) if number_of(match.identifier) else []
        if not samples:
            continue
        if not _comparable_samples(match, samples, index):
            raise RepliesError(
                f"{match.row.place}: its id could be the number of any row, and nothing in the file tells its "
                f"question; if the numbers are the ids of the questions, say so: --columns id=COLUMN"
            )
        if not any(_agrees(match, number, index) for number in samples):
            return False
    return True


def _comparable_samples(
    match: RowMatch,
    samples: Iterable[int],
    index: SampleIndex,
) -> list[int]:
    """Select the samples with which a row has a text in common."""
    if match.has_text:
        return [number for number in samples if index.texts[number][0]]
    if match.row.options is None:
        return []
    return [number for number in samples if index.texts[number][1]]


def _agrees(
    match: RowMatch,
    number: int,
    index: SampleIndex,
) -> bool:
    """Return whether the texts of a row are those of a sample."""
    question, options = index.texts[number]
    if match.has_text:
        return (question, options) in match.shown or (question, None) in match.shown
    return comparable_options(match.row.options or ()) == options


def _decide_by_id(match: RowMatch, index: SampleIndex) -> list[int]:
    """Keep the samples with a row's id unless its texts contradict it, and return those on an image of the row."""
    if compared := _comparable_samples(match, match.samples, index):
        match.samples = [number for number in compared if _agrees(match, number, index)]
    match.step = BY_ID
    match.why = match.why or OTHER_ID
    return [
        number for number in match.samples if index.shows_image(number, match.row.image_names)
    ]


def _decide_by_texts(match: RowMatch, index: SampleIndex) -> list[int]:
    """Set the samples with a row's texts, and return those on an image of the row."""
    groups = [index.groups[texts] for texts in match.texts]
    match.samples = groups[0] if len(groups) == 1 else list(chain.from_iterable(groups))
    on_image = index.with_image(match.texts, match.row.image_names)
    match.is_on_other_image = bool(match.row.image_names and match.samples and not on_image)
    return on_image


def _check_images(matches: Sequence[RowMatch]) -> None:
    """Drop rows on other images than their samples', where file and samples name images alike."""
    named = sum(bool(match.row.image_names and match.samples) for match in matches)
    others = [match for match in matches if match.is_on_other_image]
    if 2 * len(others) < named:
        for match in others:
            match.samples = []
            match.why = OTHER_IMAGE


def _take_order(matches: Sequence[RowMatch], index: SampleIndex) -> None:
    """Let the order decide between samples with the same texts, if every row of a whole file agrees with its place."""
    texts = index.texts
    if len(matches) != len(texts) or any(match.row.repeat is not None for match in matches):
        return
    # Where texts are sorted, or come again in one pattern, rows can change places unseen.
    near = min(_NEAR, len(texts) // _NEAR)
    padded = [None] * near + texts + [None] * near
    width = 2 * near + 1
    windows = Counter(tuple(padded[start : start + width]) for start in range(len(texts)))
    unique = list(windows.values()).count(1)
    if 2 * unique < len(texts) or texts == sorted(texts):
        return
    for number, match in enumerate(matches):
        if not _is_at(match, number, index):
            return
    for number, match in enumerate(matches):
        if len(match.samples) > 1:
            match.samples = [number]
            match.step = BY_ORDER


def _is_at(
    match: RowMatch,
    number: int,
    index: SampleIndex,
) -> bool:
    """Return whether a row may answer the sample at its place."""
    if len(match.samples) == 1:
        return match.samples[0] == number
    if not match.samples or not _agrees(match, number, index):
        return False
    return number in match.samples or not match.step.endswith(AND_IMAGE)
