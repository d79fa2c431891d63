"""Laws of the careful reader's rule for an image's class; single replies are in ``readings/robust_class.jsonl``."""

from hypothesis import given
from hypothesis import strategies as st

from ..tables import each_row, readings
from .reading import reading

read = reading("robust_class")

# The label sets of MedMNIST 3.0.2 (OrganS has the names of OrganC) and others, in option order.
SETS = readings("robust_class")[0]
FORMS = [
    *(
        "{text}",
        "{text}.",
        "{upper}",
        "{small}",
        "{capital}",
        "{capital}.",
        "Answer: {text}",
        "The answer is {text}.",
    ),
    *(
        "**{text}**",
        "{number}",
        "{number}.",
        "({number})",
        "**{number}**",
        "Answer: {number}",
        "Option {number}",
    ),
    *(
        "The answer is {number}.",
        "{number}: {text}",
        "{number}: {text}.",
        "{number}. {small}",
        "({number}) {text}",
    ),
    *("{number} ({text})", "The answer is {number}: {text}.", "Option {number}: {text}"),
]


@each_row(
    ("name", "frame"),
    [
        (name, frame)
        for name in SETS
        for frame in FORMS
        if name != "retina" or "number" in frame
    ],
)
def test_every_published_class_is_read_in_every_usual_form(name, frame):
    for n, text in enumerate(SETS[name]):
        spellings = {"upper": text.upper(), "small": text.lower(), "capital": text.capitalize()}
        reply = frame.format(text=text, number=n + 1, **spellings)
        assert read(reply, SETS[name]).value == chr(ord("A") + n), reply


@each_row("name", SETS)
def test_number_and_another_class_contradict(name):
    options = SETS[name]
    for n, text in enumerate(options[1:], 1):
        assert read(f"{n}: {text}", options).value is None or name in ("vindr", "vindr_named")
        assert read(f"{text} or {options[0]}", options).value is None


@given(
    name=st.sampled_from(["path", "blood", "derma", "organ", "tissue", "pad", "cbis"]),
    data=st.data(),
)
def test_a_name_means_its_class_in_every_position(name, data):
    shuffled = data.draw(st.permutations(SETS[name]))
    chosen = data.draw(st.sampled_from(SETS[name]))
    for frame in ("{}", "The image shows {}.", "Diagnosis: {}"):
        value = read(frame.format(chosen), shuffled).value
        assert value is not None
        assert shuffled[ord(value) - ord("A")] == chosen


@given(
    words=st.lists(
        st.sampled_from(["no", "not", "3 mm", "2015", "mass", "in the", "of", "5 of 9"]),
        max_size=6,
    )
)
def test_numbers_of_the_finding_are_no_answer(words):
    assert read(f"There is a lesion {' '.join(words)}.", SETS["path"]).value is None
