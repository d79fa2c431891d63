"""The class of an image, read with care.

The options are class names or grades; prompts number them from 1. Statements, and what each says of a class, are those
of :mod:`~medtasks.extract.careful.robust_choice`; labels are numbers. The first of these that names classes counts:

1. the whole reply: a number, a name, or the beginning of exactly one name;
2. the last final statement, else all declared ones ("the answer is 2", "diagnosis: BCC", "2: background");
3. the one class that a walk through all of them praises;
4. the classes that the reply names without denying them.

Two different classes on one step are ambiguous, and so are a number next to another class's name, a class that is also
denied, and one whose look-alike is named, too ("left and right kidney"). A number counts where it stands for an option:
alone, at the beginning of a line, after a colon or a word such as "option"; measurements and counts do not. "Not
malignant" says nothing about the other class, but "no retinopathy" is the class "No retinopathy".

Grades: of options 1, 2, ... a number is its own position. If the options are numbers that differ from their positions
("1: 0", "2: 1", ...), a bare number is a position, or a grade if it is no position; "grade 2" is the option "2".

Called by the registry for tasks with classes. It must never guess between classes that a reply does not tell apart.
"""

import itertools
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cache, lru_cache

from medtasks.data.samples import Sample, letter
from medtasks.extract.careful.unnamed_options import position_in_words
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.reading.class_names import ClassNames, absence, class_names, stems
from medtasks.extract.reading.languages import (
    ENGLISH,
    Languages,
    Words,
    languages_of,
    pattern_of,
    words_of,
)
from medtasks.extract.reading.option_mentions import (
    LABEL_GAP,
    Mention,
    fold,
    join_mentions,
    numeral,
    option_set,
)
from medtasks.extract.reading.option_statements import (
    Evidence,
    Finding,
    OptionStatements,
    statements_on,
)
from medtasks.extract.reading.reply_text import own_words

NO_OPTION = -1
_DIGITS = r"(?<![\w.,/])\d{1,2}(?![\w%°²³]|[.,/:]\d)"
_LINK = r"(?:[^\w\n.]|\b(?:is|are|was|as|to|be|an?|the|number|no|between|either|both)\b){0,12}"
_JOINT = r"[)\]\"']*(?:\s*(?:[,/&–-]|\b(?:and|or|to)\b)\s*(?:(?:and|or|option|class|grade)\b)?|\s)[\s(\[\"']*"
_ENDS = (
    r"(?=[)\]\"'*.]*\s*(?:\Z|[\n,;:!?()\[=–—-]|(?<=\.)|(?:because|since|as|for|or|and|not|rather|out\s+of|at|in)\b|"
    r"(?:is|was|corresponds|fits|looks|seems|matches)\b))"
)
_SCALE = r"\b(?:(?P<scale>bi[\s-]?rads|grade|stage|level|severity|score)|(?P<any>category|class|label))(?![a-z])"
_ROMAN = (
    r"(?:\W*(?:category|level|grade))?[\W_]*(?P<roman>(?-i:IV|V?I{1,3}|V)|iii?|iv|vi{0,3})\b"
)
_GRADE_NAME = re.compile(r"\s*(\D*?)\s*(\d{1,2})\s*")
_MEANS_GRADE = re.compile(r"\s*:\s*[^\W\d]")
_LABELLED = re.compile(r"[)\s:.]*[(:)][\s(]*")
_LIST_MARK = re.compile(r"(?:\A|\n)[ \t(]*\d{1,2}[.)]\s")


@dataclass(frozen=True)
class ClassChoices:
    """The classes of one question: their names, or the grades that are their names."""

    names: ClassNames
    grades: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.names.options)

    @property
    def has_shifted_grades(self) -> bool:
        """Whether the classes are grades that differ from their positions."""
        return bool(self.grades) and self.grades != tuple(range(1, len(self) + 1))

    def position(self, number: int) -> int:
        """Return the class of a bare number, counted from 0: a position, else a grade."""
        return number - 1 if 1 <= number <= len(self) else self.grade(number)

    def grade(self, number: int) -> int:
        """Return the class with this number as its name, or ``NO_OPTION``."""
        return self.grades.index(number) if number in self.grades else NO_OPTION

    def mentions(self, text: str, languages: Languages) -> list[Mention]:
        """Return all mentions of classes by name, number and grade, in order."""
        if not self.grades:
            of_names = self.names.mentions(text)
            starts = {mention.start for mention in of_names}
            return join_mentions(text, self._numbers_in(text, languages, starts), of_names)
        mentions = self._grades_in(text, languages)
        spans = [range(grade.start, grade.end) for grade in mentions]
        for number in self._numbers_in(text, languages, frozenset()):
            if not any(number.start in span for span in spans):
                mentions.append(number)
        return sorted(mentions)

    def _numbers_in(
        self,
        text: str,
        languages: Languages,
        starts: Set[int],
    ) -> list[Mention]:
        """Return the options called by number.

        Args:
            text: The reply.
            languages: Languages of the reply.
            starts: Where names of classes begin, which may follow a number.
        """
        mentions: list[Mention] = []
        is_list = len(_LIST_MARK.findall(text)) > 1  # of thoughts or of options
        for match in _label_pattern(languages).finditer(text):
            gap = LABEL_GAP.match(text, match.end("labels"))
            has_name = gap is not None and gap.end() in starts
            begins_item = is_list and match["lead"] in ("", "\n")
            if has_name or not begins_item or not _LIST_MARK.match(text, match.start()):
                mentions += self._labels_in(text, match, languages)
        return self._with_grades(text, mentions) if self.has_shifted_grades else mentions

    def _labels_in(
        self,
        text: str,
        match: re.Match[str],
        languages: Languages,
    ) -> list[Mention]:
        """Return the options of a list of numbers. Of shifted grades these are all they may mean: "1 or 0"."""
        mentions = []
        for number in _numbers(languages).finditer(text, *match.span("labels")):
            value = number_of(number[0])
            options = {self.position(value)}
            if self.has_shifted_grades:
                if number.start() > match.start("labels"):
                    options.add(NO_OPTION)
                elif _MEANS_GRADE.match(text, number.end()):
                    options.add(self.grade(value))
            mentions.append(Mention(frozenset(options), *number.span(), True, False))
        return mentions

    def _with_grades(self, text: str, labels: list[Mention]) -> list[Mention]:
        """Join a position with the grade that follows it: "2: 1"."""
        joined: list[Mention] = []
        for label in labels:
            if joined and _LABELLED.fullmatch(text, joined[-1].end, label.start):
                first = joined.pop()
                grade = self.grade(number_of(text[label.start : label.end]))
                label = first._replace(options=first.options | {grade}, end=label.end)
            joined.append(label)
        return joined

    def _grades_in(self, text: str, languages: Languages) -> list[Mention]:
        """Return the grades of a scale, one for every word that names it: "BI-RADS 4a", "category IV"."""
        mentions = []
        for match in _grade_pattern(languages).finditer(text):
            numbers = filter(None, match.group("value", "roman", "other"))
            values = list(map(number_of, numbers))
            options = set(map(self.grade, values))
            if self.has_shifted_grades and match["any"]:
                options.update(map(self.position, values))
            mentions.append(Mention(frozenset(options), *match.span(), True, False))
        return mentions


def number_of(text: str) -> int:
    """Return the number that a text is in digits, in words, or as a Roman numeral."""
    return int(numeral(fold(text)))


@cache
def _numbers(languages: Languages) -> re.Pattern[str]:
    """Return a pattern of numbers of one or two digits, and of words for numbers."""
    words = "|".join(words_of("one", languages))
    return re.compile(rf"(?:{_DIGITS}|\b(?:{words})\b)", re.IGNORECASE)


@cache
def _label_pattern(languages: Languages) -> re.Pattern[str]:
    """Return a pattern of numbers that stand for options: at the beginning of a line, or after a word for an answer."""
    nouns = pattern_of("answer option choose correct final", languages).pattern
    number = _numbers(languages).pattern
    return re.compile(
        rf"(?i)(?P<lead>\A|[\n:#(\[]|\bas\b|\bbetween\b|{nouns}){_LINK}(?P<labels>{number}(?:{_JOINT}{number})*){_ENDS}"
    )


@cache
def _grade_pattern(languages: Languages) -> re.Pattern[str]:
    """Return a pattern of a scale and its grade. Its groups ``value``, ``other`` and ``roman`` hold grades."""
    number = rf"(?:\d(?=[abc]?\b)(?!\w?[.,/]\d)|\b(?:{'|'.join(words_of('one', languages))})\b)"
    return re.compile(
        rf"(?i){_SCALE}(?:[^.;\n\d]{{0,60}}?(?P<value>{number})[abc]?(?:{_JOINT}(?P<other>{_DIGITS}))?|{_ROMAN})"
    )


@lru_cache(maxsize=1024)  # many samples have the same classes
def class_choices(options: tuple[str, ...]) -> ClassChoices:
    """Return the classes of a question, by grades ("1", "BI-RADS 2") or by names ("Melanoma (MEL)", "femur-left").

    Example:
        >>> class_choices(("BI-RADS 1", "BI-RADS 2")).grades, class_choices(("benign", "malignant")).grades
        ((1, 2), ())
    """
    numbered = list(filter(None, map(_GRADE_NAME.fullmatch, options)))
    scales = {match[1].casefold() for match in numbered}
    grades: tuple[int, ...] = ()
    if len(numbered) == len(options) and len(scales) == 1:
        grades = tuple(int(match[2]) for match in numbered)
    return ClassChoices(class_names(options), grades)


@extractor(
    "robust_class", AnswerKind.CHOICE, "numbers, grades and names, read with care", version=4
)
def robust_class(reply: str | None, sample: Sample) -> Answer:
    """Read the class of an image. Options are names without numbers, none at all two classes with unknown names.

    Example:
        >>> robust_class("Not benign but malignant.", Sample({"options": ["benign", "malignant"]})).value
        'B'
    """
    classes = class_choices(tuple(sample.options) or ("", ""))
    text = own_words(
        reply,
        split_names=True,
        is_answer=lambda value: isinstance(_class_in(value, classes), int),
    )
    if isinstance(text, Reason):
        return Answer.invalid(text)
    if classes.grades:
        low = min(classes.grades)
        high = max(classes.grades)
        scale = rf"\(?\b(?:from\s+|between\s+)?{low}\s*(?:to|and|[-–]|through)\s*{high}\b\)?"
        text = re.sub(scale, " ", text)
    choice = _class_in(text, classes, sample.languages)
    return Answer.invalid(choice) if isinstance(choice, Reason) else Answer.ok(letter(choice))


def _class_in(
    text: str,
    classes: ClassChoices,
    named: Sequence[str] = (),
) -> int | Reason:
    """Return the index of the class that a text names, or why there is none.

    Args:
        text: The model's own words.
        classes: Classes of the question.
        named: Languages that the task names, none by default.
    """
    languages = languages_of(text, named)
    if "en" in languages:
        languages = ENGLISH
    statements = statements_on(text, classes.mentions(text, languages), len(classes), languages)
    if statements is None:
        if pattern_of("refusal none writer", languages).search(text):
            return Reason.REFUSED
        position = position_in_words(text, option_set(classes.names.options), languages)
        if position is not None:
            return position
        matching = classes.names.beginning_with(text)
        return matching.pop() if len(matching) == 1 else Reason.NO_MATCH
    statements = statements._replace(findings=_without_absence(statements.findings))
    chosen = statements.decided_options
    if not chosen:
        chosen = statements.affirmed_options
        if len(chosen) != 1 and pattern_of("refusal none", languages).search(text):
            return Reason.REFUSED
    if chosen:
        return _distinct_class(chosen, text, statements, classes)
    return Reason.AMBIGUOUS if _is_echo(statements) else Reason.NO_MATCH


def _is_echo(statements: OptionStatements) -> bool:
    """Return whether a text names several classes and denies none."""
    named_classes = [index for index in statements.named if index >= 0]
    return len(named_classes) > 1 and not statements.denied_options


def _without_absence(findings: list[Finding]) -> list[Finding]:
    """Return findings in which a denial of what a class denies affirms it: "no retinopathy"."""
    turned = []
    for finding in findings:
        code = min(finding.options)
        if code >= NO_OPTION:
            turned.append(finding)
        elif finding.evidence is Evidence.DENIED:
            options = frozenset({absence(code)})
            turned.append(finding._replace(options=options, evidence=Evidence.DECLARED))
    return turned


def _distinct_class(
    chosen: frozenset[int],
    text: str,
    statements: OptionStatements,
    classes: ClassChoices,
) -> int | Reason:
    """Return the one class, unless the reply also denies it, or names another one next to a number or a look-alike."""
    if chosen == {NO_OPTION}:
        return Reason.NO_MATCH
    named = set[int]()
    for finding in statements.findings:
        if finding.evidence and not finding.is_label:
            named |= finding.options
    if (
        len(chosen) > 1
        or chosen & statements.denied_options
        or (len(named) == 1 and not chosen <= named)
    ):
        return Reason.AMBIGUOUS
    option = min(chosen)
    return Reason.AMBIGUOUS if _may_be_look_alike(option, text, classes) else option


def _may_be_look_alike(
    option: int,
    text: str,
    classes: ClassChoices,
) -> bool:
    """Return whether a text may mean a look-alike of a class: a longer name, "mild or" moderate, the other side."""
    name = classes.names.full[option]
    spoken = stems(text)
    is_sided = not {"left", "right"}.isdisjoint(name)
    if is_sided and not {"both", "bilateral"}.isdisjoint(spoken):
        return True
    neighbours = set(
        itertools.pairwise(word for word in spoken if word not in ("and", "or", "to"))
    )
    for other in classes.names.full:
        further = {*other[len(name) :]} - {"without", "with", "no"}
        if further.intersection(spoken) and other[: len(name)] == name:
            return True
        if not neighbours.isdisjoint(_only_difference(name, other)):
            return True
    return False


def _only_difference(name: Words, other: Words) -> list[tuple[str, str]]:
    """Return the pair of words in which two names of several words differ, in both orders.

    Empty without such a pair, or with several.
    """
    if len(name) != len(other) or len(name) < 2:
        return []
    pairs = [pair for pair in zip(name, other, strict=True) if pair[0] != pair[1]]
    return [*pairs, pairs[0][::-1]] if len(pairs) == 1 else []
