"""Documents and recipes of the sets with options, and what is said of rows whose published answer is at fault."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from medtasks.data.prepare.preparation import Recipe, TableReader
from medtasks.data.samples import letter
from medtasks.data.schema import KIT_CHOICE, Document, new_document
from medtasks.data.store import Documents

NO_MODALITY_TYPE = "no_modality_type"
NULL_OPTION = "null_option"
NO_SUCH_GOLD = "no_such_gold"
INEXACT_GOLD = "inexact_gold"
REPEATED_GOLD = "repeated_gold"
OTHER_ANSWER_TEXT = "other_answer_text"
FLAGS: Mapping[str, str] = {
    NO_MODALITY_TYPE: "the row has no modality_type, which stops MedEvalKit",
    NULL_OPTION: "an option is null; MedEvalKit shows it as None, and so do its lines, but it is no option",
    NO_SUCH_GOLD: "the published answer is none of the options",
    INEXACT_GOLD: "the published answer is an option only without the blanks around it; MedEvalKit finds none",
    REPEATED_GOLD: "several options are the published answer; MedEvalKit takes the last, and here it is the first",
    OTHER_ANSWER_TEXT: "the text that is published as the answer is not that of the published letter",
}
_REMARKS = {
    NO_SUCH_GOLD: "the right option of {} (the published answer is none of the options)",
    OTHER_ANSWER_TEXT: "the text of the answer of {} (the published letter is that of another option and counts)",
}


def kit_choice(doc_id: str, options: Sequence[str], lines: Sequence[str], gold: str | None, **known: Any) -> Document:
    """Return a document of the ``KIT_CHOICE`` schema; without an ``answer``, the gold is the letter of an option."""
    flags = list(known.pop("flags", ()))
    letters = [letter(place) for place in range(len(options))]
    named = gold.strip() if gold is not None and gold.strip() in letters else None
    answer = known.pop("answer", named)
    if options and gold is not None and answer is None:
        flags.append(NO_SUCH_GOLD)
    choices = {"options": list(options), "option_lines": list(lines)}
    return new_document(KIT_CHOICE, doc_id, **choices, answer=answer, gold=gold, flags=flags, **known)


def kit_recipe(reader: TableReader, layout: str, *files: str, split: str = "test") -> Recipe:
    """Return the recipe of a set of one split and no examples; ``files`` are the Hub's."""
    return replace(reader.recipe(layout, (split,), files), remarks=_remarks)


def lettered(options: Iterable[str], form: str) -> list[str]:
    """Return option lines, such as ``A. text`` for the form ``{}. {}``."""
    return [form.format(letter(place), option) for place, option in enumerate(options)]


def _remarks(documents: Documents) -> list[str]:
    """Return what a manifest says of rows that are kept and lack something."""
    counts = Counter(flag for document in documents for flag in document["flags"])
    return [
        text.format("1 row" if counts[flag] == 1 else f"{counts[flag]} rows")
        for flag, text in _REMARKS.items()
        if counts[flag]
    ]
