"""Samples that the rows of a file answer: by a published id, else by question and options, never by place alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from medtasks.errors import RepliesError
from medtasks.runs.asked_questions import number_of
from medtasks.runs.foreign.compared_texts import comparable_options, comparable_question
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow
from medtasks.runs.foreign.prompt_texts import PromptMatch, matches_in, within_frame
from medtasks.runs.foreign.sample_index import SampleIndex, Texts

BY_ID, BY_OPTIONS, BY_QUESTION = "id", "question and options", "question"
BY_QUESTION_ALONE = "question (options not compared)"
BY_PROMPT, AND_IMAGE, BY_ORDER = "prompt", " and image", "order, verified row by row"
OTHER_ORDER = "options in another order"
OTHER_ID = "its id is that of another question"
OTHER_IMAGE = "its question is asked here on other images"
NOT_HERE = "its text is none of this task"
SEVERAL = "fits several samples"


@dataclass
class RowMatch:
    """Samples that one row may answer.

    Attributes:
        row: The row.
        texts: Texts of samples that agree with those of the row.
        step: How they were found.
        why: Why the row answers none of the samples, or which one is unknown.
        samples: The sample that it answers, or several between which nothing decides; none where it is unmatched.
    """

    row: ForeignRow
    texts: list[Texts] = field(default_factory=list)
    step: str = ""
    why: str = ""
    samples: list[int] = field(default_factory=list)

    @property
    def has_text(self) -> bool:
        """Whether the row shows what was asked."""
        return bool(self.row.question or self.row.prompt)


def match_each(file: ForeignFile, index: SampleIndex) -> list[RowMatch]:
    """Match each row of a file to the samples of a task. RepliesError: its ids could be the numbers of any rows."""
    matches = _by_texts(file.rows, index)
    ids_count = file.is_id_named or _numbers_are_ids(file, matches, index)
    for match in matches:
        _decide(match, index, ids_count=ids_count)
    _check_images(matches, index)
    _take_order(matches, index)
    for match in matches:
        if len(match.samples) > 1:
            match.why = SEVERAL
    return matches


def _by_texts(rows: Sequence[ForeignRow], index: SampleIndex) -> list[RowMatch]:
    """Find the texts that agree with those of each row."""
    matches = [RowMatch(row) for row in rows]
    in_prompts: list[list[PromptMatch]] = []
    of_prompts: list[RowMatch] = []
    for match in matches:
        row = match.row
        options = None if row.options is None else comparable_options(row.options)
        question = comparable_question(row.question or "")
        match.texts = index.with_texts(question, options)
        match.step = BY_QUESTION
        if any(own for _, own in match.texts):
            match.step = BY_QUESTION_ALONE if options is None else BY_OPTIONS
        if options is not None and not match.texts and index.shows_another_order(question, options):
            match.why = OTHER_ORDER
        elif match.has_text and (not match.texts or (options is None and row.prompt)):
            asked, is_reordered = matches_in(row.prompt or row.question or "", index, options)
            match.why = OTHER_ORDER if is_reordered else ""
            in_prompts.append(asked)
            of_prompts.append(match)
    for match, asked in zip(of_prompts, within_frame(in_prompts), strict=True):
        match.texts = [each.texts for each in asked]
        match.step = BY_PROMPT
    return matches


def _numbers_are_ids(file: ForeignFile, matches: Sequence[RowMatch], index: SampleIndex) -> bool:
    """Return whether bare numbers in a file are ids: one that contradicts its row's texts makes all of them none."""
    numbered = [match for match in matches if number_of(match.row.identifier or "")]
    for match in numbered:
        samples = index.with_id(match.row.identifier or "")
        if samples and not _comparable_samples(match, samples, index):
            raise RepliesError(
                f"{match.row.place}: '{match.row.identifier}' could be the number of any row, and nothing in the file "
                f"tells its question; if the numbers are the ids of the questions, say so: --columns id=COLUMN"
            )
        if samples and not _agreeing(match, samples, index):
            return False
    return True


def _comparable_samples(match: RowMatch, samples: Iterable[int], index: SampleIndex) -> list[int]:
    """Return those of some samples with which a row has a text in common."""
    if match.has_text:
        return [number for number in samples if index.texts[number][0]]
    return [number for number in samples if match.row.options is not None and index.texts[number][1]]


def _agreeing(match: RowMatch, samples: Iterable[int], index: SampleIndex) -> list[int]:
    """Return those of some samples whose texts are those of a row."""
    if match.has_text:
        return [number for number in samples if index.texts[number] in match.texts]
    options = comparable_options(match.row.options or ())
    return [number for number in samples if index.texts[number][1] == options]


def _decide(match: RowMatch, index: SampleIndex, *, ids_count: bool) -> None:
    """Set the samples that a row answers, and the step or the cause."""
    name = match.row.identifier or ""
    of_id = index.with_id(name) if ids_count or not number_of(name) else []
    compared = _comparable_samples(match, of_id, index)
    agreeing = _agreeing(match, compared, index)
    if compared and not agreeing:
        match.texts = []
        match.why = match.why or OTHER_ID
        return
    if of_id:
        match.samples, match.step = agreeing or of_id, BY_ID
    else:
        match.samples = [number for texts in match.texts for number in index.groups[texts]]
    if match.samples:
        match.why = ""
    elif not match.why:
        match.why = NOT_HERE
    if len(match.samples) > 1:
        shown = index.with_images(match.samples, match.row.image_names)
        if shown:
            match.samples, match.step = shown, match.step + AND_IMAGE


def _check_images(matches: Sequence[RowMatch], index: SampleIndex) -> None:
    """Drop rows on other images than their samples', where file and samples name images alike."""
    named = [match for match in matches if match.row.image_names and match.samples]
    others = [match for match in named if not index.with_images(match.samples, match.row.image_names)]
    if 2 * len(others) >= len(named):
        return
    for match in others:
        if match.step != BY_ID:
            match.samples, match.why = [], OTHER_IMAGE


def _take_order(matches: Sequence[RowMatch], index: SampleIndex) -> None:
    """Let the order decide between samples with the same texts, if every row of a whole file agrees with its place.

    It says nothing where the questions are sorted, or where most of them are asked more than once.
    """
    if len(matches) != len(index.texts) or any(match.row.repeat is not None for match in matches):
        return
    unique = sum(len(match.samples) == 1 for match in matches)
    questions = [question for question, _ in index.texts]
    if 2 * unique < len(matches) or questions == sorted(questions):
        return
    if all(number in match.samples for number, match in enumerate(matches)):
        for number, match in enumerate(matches):
            if len(match.samples) > 1:
                match.samples, match.step = [number], BY_ORDER
