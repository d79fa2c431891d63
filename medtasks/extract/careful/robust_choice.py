"""The chosen option, as a careful reader accepts it, in any language.

Of JSON, tags and boxes only the answer is read (:func:`~medtasks.extract.reading.reply_text.own_words`). What is left
is cut into statements: lines and sentences. Each mention of an option in a statement, by label, text or both, has
*evidence*, which needs words of a language (``words.toml``) only where a mark does not show it:

* **denied**: a denial or a dismissal reaches it ("not A", "A is unlikely", "rather than A", "A" with a cross), or it
  was only a first thought;
* **named**: it is mentioned;
* **declared**: it is all of its statement, follows a colon or begins the reply as a label; or words near it are about
  the answer, praise it or choose it ("the answer is A", "A fits best");
* **final**: a word that concludes is near it ("therefore A"), or it is a line for the answer ("Answer: A").

Two or more statements in a row that each begin with another option are a *walk* through the options. A walk of nothing
but options repeats the question and is not read; of any other only praise counts.

The first of these that names options decides; several options on one step are ambiguous:

1. the last final statement;
2. declared statements outside a walk, by label, else by text;
3. the options that a walk praises;
4. statements outside a walk that name an option;
5. of a reply without any mention: a position ("the third option", "2"), "none" and "all" where an option says so, the
   words of one option that no other option has, and what a statement says about a yes/no question.

What comes before a correction ("wait") counts only if nothing follows it. A reply that ends within a sentence has no
answer on step 4: it was cut. A label next to another option's text is ambiguous.
"""

import re
from functools import cache

from medtasks.data.samples import Sample, letter
from medtasks.extract.careful.unnamed_options import quantity_option, unnamed_option
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.reading.languages import few_languages_of, pattern_of
from medtasks.extract.reading.option_mentions import (
    OptionSet,
    folded,
    option_set,
    tokens_of,
    whole_option,
)
from medtasks.extract.reading.option_statements import OptionStatements, is_cut, option_statements
from medtasks.extract.reading.reply_text import own_words

_NEW_QUESTION = re.compile(r"\n[^\n]*\?[ \t]*\n")


@extractor(
    "robust_kit_choice",
    AnswerKind.CHOICE,
    "robust_choice, by the name of MedEvalKit's tasks",
    version=5,
)
@extractor(
    "robust_choice", AnswerKind.CHOICE, "letters, texts and refusals, in any language", version=6
)
def robust_choice(reply: str | None, sample: Sample) -> Answer:
    """Read the chosen option from a reply; a sample without options has A and B with unknown texts."""
    options = option_set(tuple(sample.options) or ("", ""))
    text = own_words(reply, is_answer=lambda value: whole_option(value, options) is not None)
    if isinstance(text, Reason):
        return Answer.invalid(text)
    languages = few_languages_of(text, sample.languages)
    text = _without_invented(text, options, sample.question, languages)
    new_question = _NEW_QUESTION.search(text)
    chosen: int | Reason = Reason.NO_MATCH
    if new_question:  # a base model goes on with another question
        chosen = _read(text[: new_question.start()].strip(), options, sample, languages)
    if isinstance(chosen, Reason):
        chosen = _read(text, options, sample, languages)
    return Answer.invalid(chosen) if isinstance(chosen, Reason) else Answer.ok(letter(chosen))


def _read(
    text: str, options: OptionSet, sample: Sample, languages: tuple[str, ...]
) -> int | Reason:
    whole = whole_option(text, options)
    if whole is not None:
        return whole
    statements = option_statements(text, options, languages)
    if statements is None:
        return unnamed_option(text, options, sample, languages)
    return (
        _single(statements.decided)
        if statements.decided
        else _named(text, statements, options, languages)
    )


def _single(options: frozenset[int]) -> int | Reason:
    if len(options) == 1:
        return next(iter(options))
    return Reason.AMBIGUOUS if options else Reason.NO_MATCH


def _named(
    text: str, statements: OptionStatements, options: OptionSet, languages: tuple[str, ...]
) -> int | Reason:
    """Return the option that a reply without a declaration names, or why there is none."""
    named = statements.affirmed
    none = (
        quantity_option("none", options, ("none",))
        if len(statements.denied) == len(options) - 1
        else None
    )
    if none is not None and none not in statements.denied:
        return none
    if (named or statements.walk) and is_cut(text, statements.findings):
        return Reason.TRUNCATED
    if len(named) != 1 and pattern_of("refusal none", languages).search(text):
        return Reason.REFUSED
    is_denied = statements.denied and not statements.walk
    return _single(named) if named or is_denied else Reason.AMBIGUOUS


def _without_invented(
    text: str, options: OptionSet, question: str, languages: tuple[str, ...]
) -> str:
    """Return a reply up to an invented question, which names none of the options and is not the sample's question."""
    for match in _heading(languages).finditer(text):
        rest = text[match.end() : match.end() + 600]
        words = [token.word for token in tokens_of(folded(rest))]
        repeated = sum(
            bool(own) and f" {' '.join(own)} " in f" {' '.join(words)} " for own in options.words
        )
        asked = {token.word for token in tokens_of(folded(question))}
        is_asked = 2 * len(asked.intersection(words)) > len(asked) if asked else match.start() == 0
        if repeated < 2 and not is_asked:
            return text[: match.start()].strip()
    return text


@cache
def _heading(languages: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(
        rf"(?i)(?:^|\n|[.!?]\s)\W*(?:{pattern_of('question', languages).pattern})[^\w\n]*\d*\s*:"
    )
