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

Called by the registry for tasks with options. It must never guess: a reply that names no option has none.
"""

import re
from functools import cache

from medtasks.data.samples import Sample, letter
from medtasks.extract.careful.unnamed_options import (
    only_option,
    quantity_option,
    unnamed_option,
)
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.reading.languages import Languages, few_languages_of, pattern_of
from medtasks.extract.reading.option_mentions import (
    OptionSet,
    option_set,
    whole_option,
    words_in,
)
from medtasks.extract.reading.option_statements import (
    OptionStatements,
    is_cut,
    option_statements,
)
from medtasks.extract.reading.reply_text import own_words

_NEW_QUESTION = re.compile(r"\n[^\n]*\?[ \t]*\n")


@extractor(
    "robust_kit_choice",
    AnswerKind.CHOICE,
    "robust_choice, by the name of MedEvalKit's tasks",
    version=5,
)
@extractor(
    "robust_choice",
    AnswerKind.CHOICE,
    "letters, texts and refusals, in any language",
    version=6,
)
def robust_choice(reply: str | None, sample: Sample) -> Answer:
    """Read the chosen option from a reply. A sample without options has A and B with unknown texts.

    Example:
        >>> robust_choice("It is not A. The answer is B.", Sample({"options": ["cyst", "scar"]})).value
        'B'
    """
    options = option_set(tuple(sample.options) or ("", ""))
    text = own_words(reply, is_answer=lambda value: whole_option(value, options) is not None)
    if isinstance(text, Reason):
        return Answer.invalid(text)
    languages = few_languages_of(text, sample.languages)
    text = _until_invented_question(text, options, sample.question, languages)
    new_question = _NEW_QUESTION.search(text)
    choice: int | Reason = Reason.NO_MATCH
    if new_question:  # a base model goes on with another question
        choice = _choice_in(text[: new_question.start()].strip(), options, sample, languages)
    if isinstance(choice, Reason):
        choice = _choice_in(text, options, sample, languages)
    return Answer.invalid(choice) if isinstance(choice, Reason) else Answer.ok(letter(choice))


def _choice_in(
    text: str,
    options: OptionSet,
    sample: Sample,
    languages: Languages,
) -> int | Reason:
    """Return the index of the option that a text chooses, or why there is none."""
    whole = whole_option(text, options)
    if whole is not None:
        return whole
    statements = option_statements(text, options, languages)
    if statements is None:
        return unnamed_option(text, options, sample, languages)
    decided = statements.decided_options
    if decided:
        return only_option(decided)
    denied = statements.denied_options
    if len(denied) == len(options) - 1:
        none_of_others = quantity_option("none", options, ("none",))
        if none_of_others is not None and none_of_others not in denied:
            return none_of_others
    return _undeclared_choice(text, statements, languages)


def _undeclared_choice(
    text: str,
    statements: OptionStatements,
    languages: Languages,
) -> int | Reason:
    """Return the index of the option that a reply without a declaration names, or why there is none."""
    affirmed = statements.affirmed_options
    if (affirmed or statements.walk) and is_cut(text, statements.findings):
        return Reason.TRUNCATED
    if len(affirmed) != 1 and pattern_of("refusal none", languages).search(text):
        return Reason.REFUSED
    if affirmed:
        return only_option(affirmed)
    is_denial = statements.denied_options and not statements.walk
    return Reason.NO_MATCH if is_denial else Reason.AMBIGUOUS


def _until_invented_question(
    text: str,
    options: OptionSet,
    question: str,
    languages: Languages,
) -> str:
    """Return a reply up to an invented question, which names none of the options and is not the sample's question."""
    for heading in _heading(languages).finditer(text):
        following = text[heading.end() : heading.end() + 600]
        words = words_in(following)
        joined = f" {' '.join(words)} "
        repeated = [name for name in options.words if name and f" {' '.join(name)} " in joined]
        question_words = set(words_in(question))
        if question_words:
            is_own = 2 * len(question_words.intersection(words)) > len(question_words)
        else:
            is_own = heading.start() == 0
        if len(repeated) < 2 and not is_own:
            return text[: heading.start()].strip()
    return text


@cache
def _heading(languages: Languages) -> re.Pattern[str]:
    """Return a pattern of headings such as "Question 2:" at the beginning of a line or sentence."""
    return re.compile(
        rf"(?i)(?:^|\n|[.!?]\s)\W*(?:{pattern_of('question', languages).pattern})[^\w\n]*\d*\s*:"
    )
