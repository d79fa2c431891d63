"""Rows of a result file of another kit, as the file has them and before they are matched to samples."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ForeignRow:
    """One row of a file about one question. Texts are as written, not normalised.

    Attributes:
        number: Place in the kit's order, from 0.
        place: File and line, or cell, for messages.
        reply: The model's reply; ``""`` is an empty reply, None means that the kit says that the model gave none.
        identifier: Id in the file, as text; None without one.
        question: Text of the question alone; None where the file has only a prompt.
        options: Option texts in the order shown; None where the file has none in a place of their own.
        prompt: The whole prompt; None where the file has the question alone.
        image_names: File names, without folders, of the images.
        answer: Gold answer, a letter or a text; None without one.
        repeat: Which run of this question, from 0; None where the file knows only one run.
        reasoning: Thinking that the kit keeps in a field of its own; empty without one.
        is_cut: Whether the file says that the reply ended at a length limit.
    """

    number: int
    place: str
    reply: str | None
    identifier: str | None = None
    question: str | None = None
    options: tuple[str, ...] | None = None
    prompt: str | None = None
    image_names: tuple[str, ...] = ()
    answer: str | None = None
    repeat: int | None = None
    reasoning: str = ""
    is_cut: bool = False


@dataclass(frozen=True)
class ForeignFile:
    """All rows of one result file, or of the files of one run.

    Attributes:
        kit: Name of the kit, such as ``MedEvalKit``, for messages.
        rows: Its rows in the kit's order.
        reply_column: Column or key that the replies were read from.
        is_id_named: Whether the user named the column of ids, so that bare numbers in it are ids.
        has_our_prompts: Whether ``medtasks questions`` wrote what was asked.
        notes: Sentences about all rows, such as cells cut at a limit.
    """

    kit: str
    rows: tuple[ForeignRow, ...]
    reply_column: str
    is_id_named: bool = False
    has_our_prompts: bool = False
    notes: tuple[str, ...] = ()
