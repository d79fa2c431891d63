"""What a careful reader accepts as the class of an image.

The options are class names or grades; prompts number them from 1. The rule reads from strong evidence to weak and stops
at the first step that finds something:

1. the whole reply is a number, a class name, an acronym of one, or the beginning of exactly one name;
2. a declared answer ("the answer is 2", "diagnosis: BCC"); a final answer overrules an earlier one;
3. a leading number or name ("2: background", "2. The image ...", "Melanoma, because ...");
4. a refusal ("cannot be determined", "none of the above");
5. a called number or grade ("option 2", "BI-RADS 4", "category IV");
6. the one class that the text affirms, or holds possible ("may be a melanoma").

Two different classes on one step, and a number beside another class's name, are ambiguous. Measurements, counts and
years are no option numbers. "Not malignant" says nothing about the other class: only what is stated counts. Of names
that contain one another the longest counts, so "benign without callback" is not "benign".

Grades: where the options are numbers 1, 2, ... a number is its own position. Where they are numbers that do not agree
with the positions ("1: 0", "2: 1", ...), the prompt asks for an option, so a bare number is an option's position;
"grade 2" is the option that reads "2"; a number that is no position is taken as the grade.
"""

import re

from medtasks.data.samples import Sample
from medtasks.data.samples import letter as letter_of
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.class_choices import NO_OPTION, ClassChoices, class_choices
from medtasks.extract.extractor import Kind, extractor
from medtasks.extract.negation import Stance, clauses, stance
from medtasks.extract.option_numbers import grades_called, numbers_called, only_numbers
from medtasks.extract.reply_text import own_words, refuses

_TIERS = (
    r"\bfinal\s+",
    r"\b(?:correct|right|best|my|the|appropriate|most likely|predicted)\s+(?:\w+\s+)?",
    r"\b",
)
_NOUN = (
    r"(?:answer|option|choice|class|label|diagnosis|category|classification|prediction|response|selection|result|"
    r"conclusion)"
)
_LINK = r"[\"']?\s*(?:(?:is|was|would be|should be|must be|will be)\b|:|=|->|→)\s*(?:therefore|thus)?[:\s]*"
_DECLARED = [re.compile(rf"{tier}{_NOUN}{_LINK}", re.IGNORECASE) for tier in _TIERS]
_CHOOSING = re.compile(
    r"(?<!not )(?<!n't )(?<!if )(?<!whether )\b(?:corresponds? (?:best |most closely )?to|belongs? to|"
    r"classif(?:y|ied)(?: it| this)? as|(?:diagnosed|identified|labell?ed|rated|graded|assessed) as|"
    r"(?:rate|grade|assess) (?:it|this) as|"
    r"(?:i|i'd|i would|i will) (?:choose|select|pick|say|guess|go with))\b",
    re.IGNORECASE,
)
_NEGATIVE = re.compile(r"\(?\bnegative\b\)?", re.IGNORECASE)  # the name of BI-RADS 1
_MARKER = re.compile(r"(?:^|\s)\(?(\d{1,2})[.):]\s")
_BOTH_SIDES = re.compile(
    r"\b(?:left\s*(?:and|or|/|&)\s*(?:the\s+)?right|right\s*(?:and|or|/|&)\s*(?:the\s+)?left|both|bilateral)\b",
    re.IGNORECASE,
)


@extractor(
    "robust_class",
    kind=Kind.CHOICE,
    version=1,
    summary="option numbers, grades and class names as a careful reader would",
)
def robust_class(reply: str | None, sample: Sample) -> Answer:
    """Read the class of an image from a free-text reply.

    Args:
        reply: Raw reply; ``None`` is read as empty.
        sample: Its options are class names without numbers; none at all stand for two classes with unknown names.

    Returns:
        The letter of a class (A for the first), or no value with the reason why.

    Example:
        >>> masses = Sample({"options": ["benign", "malignant", "benign without callback"]})
        >>> robust_class("2: malignant", masses).value
        'B'
        >>> robust_class("Benign without a callback.", masses).value
        'C'
        >>> robust_class("It is not malignant.", masses).reason.value
        'no_match'
        >>> robust_class("BI-RADS category 4", Sample({"options": ["1", "2", "3", "4", "5"]})).value
        'D'
    """
    text = own_words(reply, split_names=True)
    if isinstance(text, Reason):
        return Answer.invalid(text)
    classes = class_choices(sample.options or ("", ""))
    text = classes.without_echo(text)
    if not text:
        return Answer.invalid(Reason.AMBIGUOUS)
    shifted = classes.shifted and grades_called(text)
    found = set() if shifted else _whole(text, classes) or _declared(text, classes) or _leading(text, classes)
    if not found and refuses(text):
        return Answer.invalid(Reason.REFUSED)
    found = found or _called(text, classes)
    return _settle(found, text, classes) if found else _affirmed(text, classes)


def _settle(found: set[int], text: str, classes: ClassChoices) -> Answer:
    """Accept a single class unless the text denies it, or affirms exactly one, and that is another."""
    if found == {NO_OPTION}:
        return Answer.invalid(Reason.NO_MATCH)
    if len(found) > 1:
        return Answer.invalid(Reason.AMBIGUOUS)
    (option,) = found
    stances = _stances(text, classes)
    affirmed = stances[Stance.AFFIRMED]
    another = (len(affirmed) == 1 and option not in affirmed) or option in stances[Stance.DENIED]
    if another or not _distinct(option, text, classes):
        return Answer.invalid(Reason.AMBIGUOUS)
    return Answer.ok(letter_of(option))


def _distinct(option: int, text: str, classes: ClassChoices) -> bool:
    """Return whether the text rules out the class's look-alikes: a longer name, the other side of a paired organ."""
    sided = re.search(r"\b(?:left|right)\b", classes.options[option], re.IGNORECASE)
    return classes.names.told_apart(option, text) and not (sided and _BOTH_SIDES.search(text))


def _whole(text: str, classes: ClassChoices) -> set[int]:
    numbers = only_numbers(text)
    if numbers and not (classes.shifted and len(numbers) > 1):  # "(2) 1" is option 2, grade 1
        return classes.positions(numbers)
    mentions = classes.names.mentions(text)
    if len(mentions) == 1 and not re.search(r"\w", text[: mentions[0].start] + text[mentions[0].end :]):
        return {mentions[0].option}
    begun = classes.names.begun_by(text)
    return set() if begun is None or mentions else {begun}


def _declared(text: str, classes: ClassChoices) -> set[int]:
    for lead in (*_DECLARED, _CHOOSING):
        found: set[int] = set()
        for match in lead.finditer(text):
            found |= classes.at(text, match.end())
        if found:
            return found
    return set()


def _leading(text: str, classes: ClassChoices) -> set[int]:
    # The "1." of a list of thoughts is not an option.
    first = _MARKER.match(text)
    if first and len(set(_MARKER.findall(text))) > 1:
        return set()
    return classes.at(text, leading=True)


def _called(text: str, classes: ClassChoices) -> set[int]:
    """Return classes called by number or grade and not denied."""
    found = set()
    for clause in clauses(text):
        called = [(classes.position(number.value), number) for number in numbers_called(clause)]
        if classes.grades:
            clause = _NEGATIVE.sub(lambda match: " " * len(match[0]), clause)
            called += [(classes.grade(number.value), number) for number in grades_called(clause)]
        found |= {option for option, number in called if stance(clause, number.start, number.end) is not Stance.DENIED}
    return found if found == {NO_OPTION} else found - {NO_OPTION}


def _stances(text: str, classes: ClassChoices) -> dict[Stance, set[int]]:
    found: dict[Stance, set[int]] = {kind: set() for kind in Stance}
    for clause in clauses(text):
        for mention in classes.names.mentions(clause):
            found[stance(clause, mention.start, mention.end)].add(mention.option)
    return found


def _affirmed(text: str, classes: ClassChoices) -> Answer:
    """Read the one class that the text affirms or holds possible."""
    found = _stances(text, classes)
    named = found[Stance.AFFIRMED] or found[Stance.HEDGED]
    if not named:
        either = found[Stance.OPEN]
        unclear = len(either) > 1 or not all(_distinct(option, text, classes) for option in either)
        return Answer.invalid(Reason.AMBIGUOUS if unclear else Reason.NO_MATCH)
    if len(named | found[Stance.HEDGED]) > 1 or named & found[Stance.DENIED]:
        return Answer.invalid(Reason.AMBIGUOUS)
    (option,) = named
    return Answer.ok(letter_of(option)) if _distinct(option, text, classes) else Answer.invalid(Reason.AMBIGUOUS)
