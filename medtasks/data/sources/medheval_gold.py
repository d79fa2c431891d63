"""The option that the published answer of a MedHEval question names.

Answers are texts: an option, its letter, both, a sentence, several options, or a remark that the image does not say.
A single option is taken where a careful reader would find it, and none where the answer names several, contradicts
itself or decides nothing. Interpreted answers are flagged. A dataset's targets must not change when extractors of
models' replies do, so this module is separate from them and frozen: whoever changes its results raises the version of
the tasks.

Options are published as one text in one of several dialects: ``A. x, B. y``, ``A: x, B: y`` and ``A) x, B) y``, also
with semicolons or blanks between them; ``A, x; B, y``; and letters without any text, ``A, B, C``.
"""

import enum
import re
import unicodedata
from collections.abc import Sequence
from string import ascii_uppercase

from medtasks.data.samples import first_letters, option_index
from medtasks.data.samples import letter as letter_of

_DENIALS = (
    r"no(?!\s+(?:doubt|question)\b)|not(?!\s+(?:only|just|merely|solely)\b)|without|never|nor|neither|none|absence of|"
    r"absent|lack(?:s|ing)?(?: of)?|negative for|free (?:of|from)|clear of|rather than|instead of|denie[sd]|"
    r"rul(?:ed|es) out|exclud(?:es|ed)|unlikely|resolved|no longer"
)
_DENIED = re.compile(rf"(?i)\b(?:{_DENIALS})\b|n't\b")
_JUST_BEFORE = re.compile(
    r"\b(?:no|not|without|never|nor|neither|isn t|absence of|rather than)"
    r"(?: (?:an?|the|any|evidence of|on|in|at|of))* $"
)
_DENIED_AFTER = re.compile(
    r"(?i)(?:\bnot|n't|\bnever)\s+(?!only\b)(?:\w+ly\s+)?(?:be(?:en)?\s+)?(?:seen|present|identified|visible|visuali[sz]ed|"
    r"evident|noted|detected|observed|demonstrated|appreciated|found|shown|apparent|there|likely|correct|right|"
    r"indicated|appropriate|supported|consistent|the|an?|it|my|true)\b|"
    r"\b(?:absent|unlikely|less likely|negative(?!\s+for)|no longer|(?<!not )resolved|incorrect|wrong|denied)\b",
)
_UNSURE = re.compile(
    r"(?i)\b(?:may|might|could|perhaps|maybe|possibl[ey]|probabl[ey]|presumably|suspected|suspicious for|questionable|"
    r"concern\w* (?:for|about|of)|consider|whether|if|or|risk of|history of|rule out|exclude|"
    r"(?:cannot|can't|not) be (?:excluded|ruled out))\b|\?",
)
_CANNOT = r"(?:can(?:not| not|'t)|could(?: not|n't)|unable to|(?:not |im)possible to)"
_UNABLE = re.compile(
    rf"(?i)\b{_CANNOT}\s+(?:be\s+)?(?:\w+ly\s+)?(?:determine|tell|answer|say|identif|provide|assist|help|assess|interpret|"
    r"confirm|diagnos|conclu|analy|view|choose)|"
    r"\b(?:insufficient|not enough|do(?:es)?(?: not|n't) (?:have|provide) (?:enough|sufficient)) "
    r"(?:information|detail|context)|\bi(?: do not|'m not| am not| don't) (?:know|sure|able)",
)
_NONE_OF_THEM = re.compile(
    r"(?i)\bneither(?: of| [a-z]\b| is\b|\W*$)|\bnone of (?:the|these)\b"
)
_FRAME = re.compile(
    r"^(?:(?:the |my )?(?:correct |right |best |final |most likely )*(?:answer|option|diagnosis) (?:is |would be )?"
    r"|(?:it|this|that) (?:is|s) )?(?:an |the )?"
)
_BARE_WORDS = frozenset({"yes", "no", "true", "false", "maybe", "normal", "present", "absent"})
_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")
_CLAUSES = re.compile(
    r"(?i)(?<!\be\.g)(?<!\bi\.e)\.(?!\w)|[!;\n]|(?<=\?)\s|,?\s*\b(?:but|however|although|though|yet|whereas|while|except|"
    r"because|since)\b|,\s*(?:and\s+)?(?=(?:the|this|that|there|it|these|those)\b)|,\s*therefore\b",
)
_SURE = (
    r"(?:(?:(?:most|very)\s+)?(?:likely|probably|definitely|certainly|clearly|generally|overall|so|thus|therefore|hence)"
    r"\b[,:]?\s+)*"
)
_STOP = (
    r"(?=\W*$|\s*[,;:!?()\]/\"'\n]|\.(?!\d)|\s*[-–—]+\s|\s+(?:it|there|the|this|that|these|those|they|he|she|we|i|"
    r"because|since|as|a|an|both|all|patients|in|at|but|although|however|though|or|and|yes|no|not|maybe)\b)"
)
_VERDICT = re.compile(
    rf"(?i)\W*{_SURE}(?:(?P<yes>yes)|(?P<no>no)|(?P<maybe>maybe|perhaps|possibly|uncertain|inconclusive|unclear))\b{_STOP}",
)
_SECOND = re.compile(
    r"(?i)\W*(?:[,/(]|\bor\b|\band\b|&|\s)\s*(?:also\s+)?(yes|no|maybe|not)\b(?=\W*$|\s*[.,;:!?/)])",
)
_SHORT = {
    "yes": re.compile(
        r"(?:(?:it's|that's|this is) )?(?:true|present)|(?:it|there|this|that) (?:is|are|does|has)"
    ),
    "no": re.compile(
        r"(?:(?:it's|that's|this is) )?(?:false|absent|none|not (?:present|seen|visible))|there (?:is|are) none|"
        r"(?:no )?(?:it|there|this|that|they) (?:is|are|does|do|has|have)(?: not|n't)"
    ),
}
_SIMPLE = re.compile(r"(?i)\W*(?:is|are|was|were|does|do|did|can|could|has|have)\b")
_NOT_SIMPLE = re.compile(
    r"(?i)\b(?:or|no|not|without|absent|absence|free|clear|exclud\w+|neither|never|lack\w*)\b|n't\b",
)
_WORD = re.compile(r"[^\W_]+(?:'s\b)?")
_SAID_LETTER = re.compile(
    r"(?i)(?:the )?(?:correct |right )?(?:answer|option|choice)(?: is)?:? \(?([a-z])\)?(?=$|[.,;:])|\(?([a-z])\)?\.?$",
)


def _stem(word: str) -> str:
    plain = word.removesuffix("'s").replace("ae", "e").replace("oe", "e")
    is_plural = plain.endswith("s") and not plain.endswith(("ss", "is", "us", "ses"))
    return plain[:-1] if is_plural and len(plain) > 3 else plain


# Words that do not tell one question about an image from another.
_FILLER_WORDS = """
    a an the i you we it there this that these those they is are was were be been being do does did can could has have
    had any some in on at of for with to from by and also as well clearly here evidence sign finding presence see seen
    show shown reveal demonstrate demonstrated display displayed contain contained visible visualized identify
    identified note noted observe observed detect detected present appear seem exist depict depicted suggest patient
    image picture photo photograph scan film study x ray xray radiograph slide section slice ct mri no not nor without
    absent never none cannot neither
"""
_FILLERS = frozenset(map(_stem, _FILLER_WORDS.split()))


def normalise(text: str) -> str:
    """Return ``text`` in lower case with every run of punctuation and white space as one space.

    Example:
        >>> normalise("No pleural-effusion (left).")
        'no pleural effusion left'
    """
    return re.sub(r"[\W_]+", " ", unicodedata.normalize("NFKC", text).casefold()).strip()


def affirmed_option(text: str, options: Sequence[str]) -> int | None:
    """Return the index of the only option that a text affirms, by letter, text or words.

    Returns:
        None if it affirms several options, or none.

    Example:
        >>> affirmed_option("There is a fracture of the rib.", ["no fracture", "fracture of the rib"])
        1
    """
    letter = _SAID_LETTER.match(text.strip())
    if letter and letter[0].isascii():
        index = option_index((letter[1] or letter[2]).upper())
        return index if index < len(options) else None
    plain = list(map(normalise, options))
    equal = _equal_options(text, plain)
    if equal:
        return _only(equal)
    if _UNABLE.search(text) or _NONE_OF_THEM.search(text):
        return None
    return _only(_affirmed_options(text, plain) or _opening_options(normalise(text), plain))


def _only(indices: set[int]) -> int | None:
    return next(iter(indices)) if len(indices) == 1 else None


def _equal_options(text: str, options: Sequence[str]) -> set[int]:
    """Return the options that are the whole text or one of its sentences, but for a frame such as "the answer is"."""
    sentences = {normalise(text), *map(normalise, _SENTENCES.split(text))}
    forms = sentences | {_FRAME.sub("", sentence) for sentence in sentences}
    return {index for index, option in enumerate(options) if option and option in forms}


def _affirmed_options(text: str, options: Sequence[str]) -> set[int]:
    """Return the options that a text affirms by their words, without those inside a longer one."""
    affirmed = {index for index, option in enumerate(options) if _affirms(text, option)}
    longest = set[int]()
    for index in affirmed:
        others = affirmed - {index}
        if not any(options[index] in options[other] for other in others):
            longest.add(index)
    return longest


def _affirms(text: str, option: str) -> bool:
    """Return whether a text holds the words of an option without a denial around them."""
    if not option or option in _BARE_WORDS:
        return False
    words = f" {normalise(text)} "
    mentions = re.finditer(rf" {re.escape(option)}(?= )", words)
    before = [words[: mention.end() - len(option)] for mention in mentions]
    if all(_JUST_BEFORE.search(beginning) for beginning in before):
        return False
    pattern = re.compile(rf"(?i)\b{'[^a-z0-9]+'.join(map(re.escape, option.split()))}\b")
    denials = []
    for clause in filter(None, _CLAUSES.split(text)):
        denials += [_denies(clause, *mention.span()) for mention in pattern.finditer(clause)]
    return not denials or not all(denials)


def _opening_options(text: str, options: Sequence[str]) -> set[int]:
    """Return the options that begin with the whole text, or are the bare word that opens it."""
    opening = {text.partition(" ")[0]} & _BARE_WORDS
    indices = {index for index, option in enumerate(options) if option in opening}
    if text:
        indices |= {
            index for index, option in enumerate(options) if option.startswith(f"{text} ")
        }
    return indices


def yes_or_no(text: str, question: str) -> str | None:
    """Return ``yes`` or ``no`` where a sentence says it in answer to a question, else None.

    Example:
        >>> yes_or_no("There is no pleural effusion.", "Is there a pleural effusion?")
        'no'
    """
    verdicts = _stated_verdicts(text)
    if not verdicts:
        plain = re.sub(r"[^\w'\s]+", " ", text).strip().casefold()
        verdicts = {verdict for verdict, form in _SHORT.items() if form.fullmatch(plain)}
    is_open = not verdicts and not _UNABLE.search(text)
    if is_open and _SIMPLE.match(question) and not _NOT_SIMPLE.search(question):
        verdicts = _implied_verdicts(text, question)
    return verdicts.pop() if verdicts in ({"yes"}, {"no"}) else None


def _stated_verdicts(text: str) -> set[str]:
    """Return the words for yes, no or maybe that begin a text, or are a sentence of it."""
    verdicts = set()
    for number, sentence in enumerate(_SENTENCES.split(text)):
        match = _VERDICT.match(sentence)
        if not match or (number and re.search(r"\w", sentence[match.end() :])):
            continue
        verdicts.add(match.lastgroup or "")
        second = _SECOND.match(sentence, match.end())
        if second:
            verdicts.add(second[1].casefold().replace("not", "no"))
    return verdicts


def _implied_verdicts(text: str, question: str) -> set[str]:
    """Return the verdicts of statements that answer a question about one thing."""
    topic = _content(question).keys()
    verdicts = set()
    for clause in filter(None, _CLAUSES.split(text)):
        stems = _content(clause)
        denials = [_denies(clause, *span) for stem, span in stems.items() if stem in topic]
        if not denials or _UNSURE.search(clause):
            continue
        if not any(denials):
            if topic <= stems.keys():
                verdicts.add("yes")
        elif stems.keys() <= topic:
            verdicts.add("no")
    return verdicts


def _denies(clause: str, start: int, end: int) -> bool:
    """Return whether a clause denies the words from ``start`` to ``end``, before them or after in the same phrase."""
    comma = clause.find(",", end)
    denial = _DENIED_AFTER.search(clause, end, comma if comma >= 0 else len(clause))
    return denial is not None or _DENIED.search(clause, 0, start) is not None


def _content(text: str) -> dict[str, tuple[int, int]]:
    """Return the content words of a text, singular and in one spelling, with their spans."""
    spans = {}
    for word in _WORD.finditer(text.replace("’", "'").casefold()):
        stem = _stem(word[0])
        if stem not in _FILLERS:
            spans[stem] = word.span()
    return spans


YES_NO = ("Yes", "No")
_LETTERS = {"yes": "A", "no": "B"}


class Flag(enum.StrEnum):
    """Remark on an interpreted or unresolved answer."""

    OPTIONS_WITHOUT_TEXT = "options_without_text"
    OPTIONS_UNPARSED = "options_unparsed"
    GOLD_INTERPRETED = "gold_interpreted"
    GOLD_SEVERAL = "gold_several"
    GOLD_CONTRADICTORY = "gold_contradictory"
    GOLD_UNRESOLVED = "gold_unresolved"


Resolved = tuple[str | None, tuple[Flag, ...]]

_MARKS = (".", ":", ")", ".:)")  # the first option's mark for all of them, before a mixture
_BARE = re.compile(r"\(?[A-Z]\)?(?:\s*[,;/]\s*\(?[A-Z]\)?)+\s*\.?")
_BARE_LETTER = re.compile(r"[A-Z]")
_AROUND = " \t\r\n,;"
_LETTER = re.compile(r"\(?([A-Z])\)?[.:]?")
_LABELLED = re.compile(r"(?s)\(?([A-Z])\)?\s*[.:),]\s*(.+)")
_LABEL = re.compile(r"(?<!\w)([A-Z])[.:)]")
_DECIDED = re.compile(r"(?i)(yes|no)\b\W*")
_ASKS = re.compile(
    r"(?i)\W*(?:is|are|was|were|does|do|did|can|could|has|have|will|would|should)\b"
)
_JOINED = re.compile(r"\b(?:and|or|plus)(?: the| an?)? \||\| (?:and|or|plus)\b")


def parsed_options(choices: str) -> list[str]:
    """Return the texts of the options in order, none where they cannot be told.

    Labels must be A, B, C, ... without a gap, all with the marks of one dialect, and there must be at least two.

    Example:
        >>> parsed_options("A. CT, B. MRI"), parsed_options("A, CT; B, MRI"), parsed_options("CT or MRI")
        (['CT', 'MRI'], ['CT', 'MRI'], [])
    """
    dialects = [*_MARKS]
    if ";" in choices:
        dialects.append(",")
    for marks in dialects:
        texts = []
        end = -1  # of the label before; each label is the first one after it
        for letter in ascii_uppercase:
            before = r"\s*\(?" if letter == "A" else r"(?:[,;]\s*|\s+)\(?"
            label = re.compile(rf"{before}{letter}\s*[{re.escape(marks)}]\s*")
            match = label.match(choices) if letter == "A" else label.search(choices, end)
            if match is None:
                break
            if letter != "A":
                texts.append(choices[end : match.start()].strip(_AROUND))
            end = match.end()
        if end >= 0:
            texts.append(choices[end:].strip(_AROUND))
        if len(texts) > 1 and all(texts):
            return texts
    return []


def bare_letters(choices: str) -> list[str]:
    """Return the letters of options that have no text, none for other dialects.

    Example:
        >>> bare_letters("A, B, C"), bare_letters("A. CT, B. MRI")
        (['A', 'B', 'C'], [])
    """
    letters = _BARE_LETTER.findall(choices) if _BARE.fullmatch(choices.strip()) else []
    return letters if letters == first_letters(len(letters)) else []


def resolve_yes_no(gold: str, question: str, choices: str) -> Resolved:
    """Return A for yes, B for no, or None, and flags.

    Args:
        gold: Published answer. Sentences are understood as answers to the question.
        question: As published.
        choices: As published. Some yes/no questions list ``A. Yes, B. No``.

    Example:
        >>> resolve_yes_no("There is no effusion.", "Is there an effusion?", "")
        ('B', (<Flag.GOLD_INTERPRETED: 'gold_interpreted'>,))
    """
    text = gold.strip()
    options = parsed_options(choices)
    if options:
        chosen, flags = resolve_choice(text, options)
        if Flag.GOLD_CONTRADICTORY in flags:
            return None, flags
        if chosen and not flags:
            text = options[option_index(chosen)]
    labelled = _LABELLED.fullmatch(text)
    plain = _DECIDED.fullmatch(labelled[2].strip() if labelled else text)
    if plain:
        return _LETTERS[plain[1].casefold()], ()
    # "None" says no to "Is there an effusion?", and something else to "Which organ is enlarged?".
    value = None
    if _DECIDED.match(text) or _ASKS.match(question):
        value = yes_or_no(text, question)
    if value is None:
        return None, (Flag.GOLD_UNRESOLVED,)
    return _LETTERS[value], (Flag.GOLD_INTERPRETED,)


def resolve_choice(gold: str, options: Sequence[str]) -> Resolved:
    """Return the letter of the one option that the published answer names, or None, and flags.

    There is no flag if the answer is exactly an option or a letter, or both and they agree. ``GOLD_INTERPRETED`` says
    that it was read more freely. With None the flag is ``GOLD_SEVERAL`` if it names several options,
    ``GOLD_CONTRADICTORY`` if letter and text differ, else ``GOLD_UNRESOLVED``, as for a text that two options share.

    Example:
        >>> [resolve_choice(gold, ["CT", "MRI"])[0] for gold in ("MRI", "B", "B: MRI", "A: MRI")]
        ['B', 'B', 'B', None]
    """
    text = gold.strip()
    equal = _equal(text, options)
    if len(equal) == 1:
        return letter_of(equal[0]), ()
    alone = _LETTER.fullmatch(text)
    if alone:
        exists = option_index(alone[1]) < len(options)
        return (alone[1], ()) if exists else (None, (Flag.GOLD_UNRESOLVED,))
    labelled = _LABELLED.fullmatch(text)
    if labelled and option_index(labelled[1]) < len(options):
        return _resolve_letter_and_text(labelled[1], labelled[2], options)
    if _names_several(text, options):
        return None, (Flag.GOLD_SEVERAL,)
    index = affirmed_option(text, options)
    if index is None:
        return None, (Flag.GOLD_UNRESOLVED,)
    return letter_of(index), (Flag.GOLD_INTERPRETED,)


def _resolve_letter_and_text(letter: str, named: str, options: Sequence[str]) -> Resolved:
    """Resolve an answer with the letter of an option in front of it."""
    equal = _equal(named, options)
    if option_index(letter) in equal:
        return letter, ()
    if equal:
        return None, (Flag.GOLD_CONTRADICTORY,)
    others = set(_LABEL.findall(named)) - {letter}
    names_another = any(option_index(other) < len(options) for other in others)
    if names_another or _names_several(named, options):
        return None, (Flag.GOLD_SEVERAL,)
    contained, _ = _find_options(named, options)
    if contained and option_index(letter) not in contained:
        return None, (Flag.GOLD_CONTRADICTORY,)
    return letter, (Flag.GOLD_INTERPRETED,)


def _equal(text: str, options: Sequence[str]) -> list[int]:
    """Return the options that are the text, to the letter if there is one, else but for case and punctuation."""
    plain = text.strip().casefold()
    same = [index for index, option in enumerate(options) if option.casefold() == plain]
    words = normalise(text)
    if same or not words:
        return same
    return [index for index, option in enumerate(options) if normalise(option) == words]


def _names_several(text: str, options: Sequence[str]) -> bool:
    """Return whether a text holds several options, or one that is joined to something else ("GI and IV contrast")."""
    indices, barred = _find_options(text, options)
    return len(indices) > 1 or _JOINED.search(barred) is not None


def _find_options(text: str, options: Sequence[str]) -> tuple[list[int], str]:
    """Return the options whose words a text holds, not only inside a longer one, and the text with bars for them."""
    barred = f" {normalise(text)} "
    indices = []
    plain = list(map(normalise, options))
    for index in sorted(range(len(plain)), key=lambda index: -len(plain[index])):
        words = f" {plain[index]} "
        if plain[index] and words in barred:
            indices.append(index)
            barred = barred.replace(words, " | ")
    return sorted(indices), barred
