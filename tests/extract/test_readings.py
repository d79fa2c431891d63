"""Replies as models give them, and what is read from each: tables in ``readings/``."""

import pytest

from medtasks.data.samples import Sample
from medtasks.extract.careful.open_text import open_reply
from medtasks.extract.careful.yes_no import yes_no
from medtasks.extract.extractor_registry import extractor_of
from medtasks.extract.reading.negation import clauses, stance

from ..tables import each_row, readings, rows_in
from .reading import outcome, reading


def in_words(rule):
    """Read options that are words, in two orders."""

    def read(reply, options):
        return {
            _word(reading(rule)(reply, order), order)
            for order in (options, [*map(str.title, options[::-1])])
        }

    return read


def _word(answer, options):
    return options[ord(answer.value) - ord("A")].lower() if answer.value else outcome(answer)


def letters(reply, options):
    answer = reading("listed_options")(reply, options)
    return (
        outcome(answer)
        if answer.value is None
        else "".join(name for name, on in zip("ABCDEF", answer.value, strict=True) if on)
    )


def labels(reply, options):
    answer = reading("robust_labels")(reply, options)
    return (
        outcome(answer)
        if answer.value is None
        else [n for n, on in zip(options, answer.value, strict=True) if on]
    )


def text_to_compare(reply, _):
    """Return the stated text of a reply to an open question, or why there is none."""
    text, reason = open_reply(reply)
    return str(reason) if text is None else text


def stances(text, finding):
    """Return how the clauses of a text speak of a finding, which is in capitals there."""
    return {
        stance(clause, clause.index(finding), clause.index(finding) + len(finding)).name.lower()
        for clause in clauses(text)
        if finding in clause
    }


READERS = {
    "robust_choice": lambda reply, options: outcome(reading("robust_choice")(reply, options)),
    "robust_class": lambda reply, options: outcome(reading("robust_class")(reply, options)),
    "robust_labels": labels,
    "robust_yes_no_maybe": in_words("robust_yes_no_maybe"),
    "robust_nli": in_words("robust_nli"),
    "yes_no": lambda reply, question: outcome(yes_no(reply, question)),
    "open_reply": text_to_compare,
    "stances": stances,
    "listed_options": letters,
    "mediconfusion_reference": lambda reply, options: outcome(
        reading("mediconfusion_reference")(reply, options)
    ),
    "vlmevalkit": lambda reply, options: [
        outcome(reading(f"vlmevalkit_{version}")(reply, options))
        for version in ("2024_06", "2026_06")
    ],
}
IN_SETS = ("robust_yes_no_maybe", "robust_nli", "stances")  # one reading, however often


@pytest.mark.parametrize("name", READERS)
def test_every_reply_of_a_table_is_read_as_written(name, subtests):
    @each_row(("context", "expected", "reply"), readings(name)[1])
    def check(context, expected, reply):
        value = READERS[name](reply, context)
        assert value == ({expected} if name in IN_SETS else expected)

    check(subtests=subtests)


@each_row(("rule", "document", "reply", "value", "reason", "facts"), rows_in("examples"))
def test_examples_of_every_rule(rule, document, reply, value, reason, facts):
    answer = extractor_of(rule).extract(reply, Sample(document))
    assert (
        list(answer.value) if isinstance(answer.value, tuple) else answer.value,
        answer.reason,
    ) == (value, reason)
    found, expected = (
        {**of_answer, **(of_answer.get("measures") or {})}
        for of_answer in (answer.facts, facts)
    )
    assert found.keys() == expected.keys()
    assert bool(found.pop("measures", None)) == bool(expected.pop("measures", None))
    assert found == pytest.approx(expected)
