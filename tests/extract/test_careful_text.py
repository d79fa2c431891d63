"""Laws of the careful reader's rules for findings, fixed words, lists and open questions.

Single replies are in ``readings/``.
"""

from hypothesis import given
from hypothesis import strategies as st

from medtasks.extract.careful.yes_no import yes_no
from medtasks.extract.extractor_registry import Reason
from medtasks.extract.reading.negation import Stance, clauses, stance

from ..tables import readings
from .reading import reading

read_yes_no_maybe, read_nli = reading("robust_yes_no_maybe"), reading("robust_nli")
read_labels, listed_options = reading("robust_labels"), reading("listed_options")

NAMES, LABELLED = readings("robust_labels")
MIMIC = NAMES["mimic"]
CELL = readings("listed_options")[0]["cell"]
VERDICTS = ("yes", "no", "maybe")


@given(data=st.data())
def test_order_of_the_labels_does_not_matter(data):
    names, _, reply = data.draw(st.sampled_from(LABELLED))
    order = data.draw(st.permutations(range(len(names))))
    answer, shuffled = read_labels(reply, names), read_labels(reply, [names[n] for n in order])
    assert shuffled.reason is answer.reason
    assert shuffled.value == (answer.value and tuple(answer.value[n] for n in order))


@given(
    present=st.sets(st.sampled_from(MIMIC)),
    absent=st.sets(st.sampled_from(MIMIC)),
    data=st.data(),
)
def test_list_of_present_and_absent_findings(present, absent, data):
    absent -= present
    lines = [f"{name}: yes" for name in present] + [f"{name}: no" for name in absent]
    lines = data.draw(st.permutations(lines))
    answer = read_labels("\n".join(lines), MIMIC)
    assert answer.value == (tuple(int(name in present) for name in MIMIC) if lines else None)
    sentences = [f"There is {name}." for name in present] + [
        f"No {name} is seen." for name in absent
    ]
    assert read_labels(" ".join(data.draw(st.permutations(sentences))), MIMIC) == answer


def test_a_list_is_one_clause_and_statements_are_several():
    assert clauses("no effusion, mass, or edema") == ["no effusion, mass, or edema"]
    assert clauses("The heart is large, the lungs are clear and there is no mass.") == [
        *("The heart is large", "the lungs are clear", "there is no mass")
    ]


@given(
    text=st.text()
    | st.lists(
        st.sampled_from(["no ", "is ", ", ", "and ", "edema", "(", ")", ".", "?", "\n", ": "])
    ).map("".join)
)
def test_clauses_keep_the_words_in_order(text):
    following = text
    for clause in clauses(text):
        assert clause in following
        following = following[following.index(clause) + len(clause) :]
        assert stance(clause, 0, len(clause)) in Stance


@given(
    verdict=st.sampled_from(VERDICTS),
    explanation=st.lists(
        st.sampled_from(
            [
                "no significant difference",
                "yes-no questions",
                "not",
                "maybe in part",
                "no evidence",
                "was seen",
            ]
        ),
        max_size=5,
    ),
)
def test_explanation_never_flips_a_leading_verdict(verdict, explanation):
    reply = (
        f"{verdict.capitalize()}, as the abstract says: {' '.join(explanation)} was reported."
    )
    value = read_yes_no_maybe(reply, VERDICTS).value
    assert value is not None
    assert VERDICTS[ord(value) - ord("A")] == verdict


def test_verdict_that_is_no_option_is_no_answer():
    assert read_yes_no_maybe("maybe", ["yes", "no"]).reason is Reason.NO_MATCH
    assert read_yes_no_maybe("yes", ["yes", "Yes."]).reason is Reason.AMBIGUOUS
    assert read_nli("neutral", ["entailment"]).reason is Reason.NO_MATCH


@given(
    finding=st.sampled_from(["fracture", "effusion", "nodule"]),
    topic=st.sampled_from(["fracture", "effusion"]),
)
def test_affirmed_and_denied_statements_are_read_alike(finding, topic):
    question = f"Is there a {topic}?"
    values = [yes_no(f"There is {some} {finding}.", question).value for some in ("a", "no")]
    assert values == (["yes", "no"] if finding == topic else [None, None])


@given(
    st.sets(st.sampled_from("ABCDEF"), min_size=1), st.sampled_from([",", ", ", " and ", "; "])
)
def test_reads_the_list_that_the_prompt_asks_for(chosen, between):
    expected = tuple(int(letter in chosen) for letter in "ABCDEF")
    assert listed_options(between.join(sorted(chosen)), CELL).value == expected
