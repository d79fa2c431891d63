"""The classes of one question, and which of them a piece of text names by number, grade or name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from medtasks.extract.class_names import ClassNames, class_names
from medtasks.extract.negation import Stance, clauses, stance
from medtasks.extract.option_numbers import numbers_at, without_scale

NO_OPTION = -1
_FILLER = re.compile(
    r"(?:[\s\"'(\[:,]|\b(?:an?|the|that|of|most likely|likely|probably|to be|"
    r"it is|this is|it's)\b)*",
    re.IGNORECASE,
)
_SCALE_FILLER = re.compile(rf"(?:{_FILLER.pattern}|\b(?:bi-?rads|grade|level|category)\b)*", re.IGNORECASE)
_SIGN = re.compile(
    r"[)\]\"'\s]*(?:[:.,=)\-–—]|\bis\b|\bwhich is\b|\bcorresponds to\b)?[\s\"'(\[]*(?:(?:an?|the)\s)?", re.IGNORECASE
)
_ALSO = re.compile(
    r"[)\]\"']*\s*(?:[,/&(:]|\b(?:and|or|versus|vs\.?)\b)\s*(?:(?:or|and)\s+)?(?:(?:an?|the)\s+)?", re.IGNORECASE
)
_NUMBER_BEHIND = re.compile(r"\s*[(\[,:-]\s*(?:option|class|number|#)?\s*(\d{1,2})\s*(?:[)\]]|$)", re.IGNORECASE)
_NUMBER_ENDS = re.compile(r"[)\]\"']*(?:\s*[:.)\],]|\s+[-–—]\s|\s*$|\s*\n|\s*\(|\s+(?:because|since|due)\b)")
_NAME_ENDS = re.compile(
    r"[)\]\"']*\s*(?:$|[.,;:!?)(\n]|[-–—]\s|(?:because|since|as|for|given|which|due|is)\b)", re.IGNORECASE
)
_GRADE_NAME = re.compile(r"\s*(\D*?)\s*(\d{1,2})\s*")
_NEAR = 300  # characters in which an answer begins


@dataclass(frozen=True)
class ClassChoices:
    """The classes of one question.

    Attributes:
        options: Class names in order.
        names: What the classes are called; empty for grades.
        grades: The numbers that are the class names, or nothing where they are words.
    """

    options: tuple[str, ...]
    names: ClassNames
    grades: tuple[int, ...]

    @property
    def shifted(self) -> bool:
        """Whether the classes are grades that differ from their positions."""
        return bool(self.grades) and self.grades != tuple(range(1, len(self.options) + 1))

    def position(self, number: int) -> int:
        """Return the class a bare number stands for, counted from 0; a grade only where it is no position."""
        if 1 <= number <= len(self.options):
            return number - 1
        return self.grade(number)

    def positions(self, numbers: Sequence[int]) -> set[int]:
        """Return the classes of several numbers; different numbers are never one class."""
        return {self.position(number) for number in numbers} | ({NO_OPTION} if len(set(numbers)) > 1 else set())

    def grade(self, number: int) -> int:
        """Return the class that is called by this number, or ``NO_OPTION``."""
        return self.grades.index(number) if number in self.grades else NO_OPTION

    def at(self, text: str, start: int = 0, *, leading: bool = False) -> set[int]:
        """Return the classes named where ``text`` goes on at ``start``: number, name, or both.

        Args:
            text: Text without markup.
            start: Offset to read from; fillers such as "most likely a" are skipped.
            leading: The words open a reply, so they must be set off from what follows.

        Returns:
            Positions; several where the text says "or", or a number and a name that contradict each other.
        """
        near = text[start : start + _NEAR]
        filler = (_SCALE_FILLER if self.grades and not self.shifted else _FILLER).match(near)
        begin = filler.end() if filler else 0
        numbers, end = numbers_at(near, begin)
        return self._numbered(near, numbers, end, leading) if numbers else self._named(near, begin, leading)

    def _numbered(self, near: str, numbers: list[int], end: int, leading: bool) -> set[int]:
        found = self.positions(numbers)
        sign = _SIGN.match(near, end)
        behind = sign.end() if sign else end
        if self.shifted and near[behind:].strip():  # "2: 1" names option 2, "2: moderate" may mean grade 2
            labels, _ = numbers_at(near, behind)
            return found | {self.grade(label) for label in labels} if labels else set()
        if len(numbers) == 1 and not self.grades:
            beside = [mention.option for mention in self.names.mentions(near) if mention.start == behind]
            if beside:
                return found | set(beside)
        return found if not leading or _NUMBER_ENDS.match(near, end) else set()

    def _named(self, near: str, begin: int, leading: bool) -> set[int]:
        mentions = {mention.start: mention for mention in self.names.mentions(near)}
        found, end = set(), begin
        following: re.Match[str] | None = None
        while mention := mentions.get(following.end() if following else begin):
            found.add(mention.option)
            end = mention.end
            following = _ALSO.match(near, end)
            if following is None:
                break
        if not found:
            return set()
        clause = next(iter(clauses(near[begin:])), "")
        denied = stance(clause, 0, min(end - begin, len(clause))) is Stance.DENIED
        if denied or (leading and not _NAME_ENDS.match(near, end)):
            return set()
        number = _NUMBER_BEHIND.match(near, end)
        return found | {self.position(int(number[1]))} if number else found

    def without_echo(self, text: str) -> str:
        """Remove a repetition of all options, with or without numbers, and of the whole scale of grades."""
        if self.grades:
            text = without_scale(text, min(self.grades), max(self.grades))
        listed = [r"[\W_]+".join(re.findall(r"[^\W_]+", option)) for option in self.options]
        if not all(listed):
            return text.strip()
        numbered = [rf"(?:\(?{n}\s*[:.)]+\s*){words}" for n, words in enumerate(listed, 1)]
        text = re.sub(r"\b[\W_]+".join(numbered) + r"\b[)\]\".]*", "\n", text, flags=re.IGNORECASE)
        if not self.grades:
            joint = r"\b[)\"']*\s*(?:,|,?\s*\bor\b|\n)[\W_]*"
            text = re.sub(rf"\b{joint.join(listed)}\b[)\"']*", "\n", text, flags=re.IGNORECASE)
        return re.sub(
            r"^\W*Options?\s*:\s*|^\W*Which options? correspond[^?\n]*\?", "", text.strip(), flags=re.I
        ).strip()


@lru_cache(maxsize=64)
def class_choices(options: tuple[str, ...]) -> ClassChoices:
    """Return the classes of a question, told as grades ("1", "BI-RADS 2") or as names.

    Example:
        >>> class_choices(("0", "1", "2")).shifted, class_choices(("BI-RADS 1", "BI-RADS 2")).shifted
        (True, False)
    """
    numbered = [_GRADE_NAME.fullmatch(option) for option in options]
    matched = [match for match in numbered if match]
    if options and len(matched) == len(options) and len({match[1].casefold() for match in matched}) == 1:
        return ClassChoices(options, class_names(("",) * len(options)), tuple(int(match[2]) for match in matched))
    return ClassChoices(options, class_names(options), ())
