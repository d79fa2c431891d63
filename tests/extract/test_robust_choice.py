"""Laws of the careful reader's rule for options; single replies are in ``readings/robust_choice.jsonl``."""

from hypothesis import given
from hypothesis import strategies as st

from medtasks.data.samples import letter

from ..tables import each_row, readings
from .reading import reading

read = reading("robust_choice")

OPTIONS = readings("robust_choice")[0]
AB, DRUG = OPTIONS["ab"], OPTIONS["exam_drug"]
# The myelin sheath, and options that are letters themselves.
FURTHER = [
    [
        "Impulse through myelinated fibers is slower",
        "Membrane currents are generated at nodes of Ranvier",
        "Saltatory conduction is seen",
        "Local anesthesia is effective only when the nerve is not covered by myelin sheath",
    ],
    ["A and B", "B and C", "A, B and C", "None"],
    ["1", "2", "3", "4"],
    ["True, True", "False, False", "True, False", "False, True"],
    ["A", "B", "AB", "O"],
]
FRAMED = [
    *(
        OPTIONS[f"exam_{name}"]
        for name in ("stem", "drug", "nota", "all", "num", "ten", "hep", "sub", "long", "tox")
    ),
    *(OPTIONS["exam_gene"], *FURTHER),
]
# fmt: off
FRAMES = [
    "{upper}", "{lower}", "({lower})", "({upper})", "{lower}:", "{upper}:", "{lower}.", "{upper}.", "{lower})",
    "{upper}. {text}", "{lower}: {text}.", "{lower}: {text}..", "{lower}: {text}", "{upper}: {text}", "{lower}) {text}",
    "{upper}) {text}", "{text}", "{text}.", "{small}", "{small}.", "The answer is {lower}: {text}..",
    "The answer is {upper}: {text}", "The answer is {lower}", "The answer is {upper}", "The answer is {lower}.",
    "The answer is {upper}.", "The answer is ({upper}).", "The answer is {text}", "The answer is {text}.",
    "The answer is {small}.", "The correct answer is {text}.", "**{upper}. {text}**", "Answer: {upper}",
    "Option {upper}", "I have thought about it. So the answer is ({upper}) {text}.", "Final answer: {text}",
]
# fmt: on


@each_row(("options", "frame"), [(options, frame) for options in FRAMED for frame in FRAMES])
def test_every_option_is_read_in_every_usual_form(options, frame):
    for number, text in enumerate(options):
        name = letter(number)
        if frame != "{upper}. {text}" or (name, text) != ("A", "A and B"):
            reply = frame.format(upper=name, lower=name.lower(), text=text, small=text.lower())
            assert read(reply, options).value == name, reply


FINDINGS = st.sampled_from(
    [
        "normal",
        "brain",
        "3 cm",
        "round",
        "mass",
        "in the lung",
        "CT",
        "X-ray",
        "without contrast",
    ]
)


@given(
    words=st.lists(FINDINGS, min_size=1, max_size=6), end=st.sampled_from(["", ".", "!", "\n"])
)
def test_article_is_never_a_letter(words, end):
    assert read(f"A {' '.join(words)}{end}", AB).value is None


@given(
    name=st.sampled_from("AB"),
    frame=st.sampled_from(
        [
            "{}",
            "({})",
            "**{}**",
            "Answer: {}",
            "The answer is {}.",
            "I choose {}",
            "{}) because",
        ]
    ),
    before=st.sampled_from(["", " ", "\n", "\t", "\r\n"]),
    after=st.sampled_from(["", " ", "\n", "\t", "\r\n", "\u00a0"]),
)
def test_case_and_blanks_do_not_matter(name, frame, before, after):
    reply = frame.format(name)
    for spelling in (reply, reply.upper(), reply if "choose" in frame else reply.lower()):
        assert read(before + spelling + after, AB).value == name


def test_letter_beyond_the_options_is_no_answer():
    alphabet = [letter(n) for n in range(26)]
    options = [f"Finding number {n}" for n in range(26)]
    for count in range(1, 27):
        valid = [name for name in alphabet if read(f"({name})", options[:count]).value == name]
        assert valid == alphabet[:count]
    for reply in ("İ", "(İ)", "the answer is İ", "İ)"):
        assert read(reply, options).value is None


@given(data=st.data(), options=st.sampled_from([*FRAMED[:2], *FRAMED[7:10], FURTHER[0]]))
def test_a_text_means_its_option_in_every_position(options, data):
    shuffled = data.draw(st.permutations(options))
    chosen = data.draw(st.sampled_from(options))
    for frame in ("{}", "The answer is {}.", "The best choice is {}, because of the history."):
        value = read(frame.format(chosen), shuffled).value
        assert value is not None
        assert shuffled[ord(value) - ord("A")] == chosen


@given(
    right=st.integers(0, 4),
    yes=st.sampled_from(["correct", "This is correct.", "yes", "This is the right answer."]),
    no=st.sampled_from(
        ["incorrect", "This is not correct.", "no", "This is wrong.", "contraindicated here"]
    ),
    mark=st.sampled_from(["{}. {}: {}", "{}) {} - {}", "Option {}: {}: {}", "- {}: {}, {}"]),
    conclusion=st.booleans(),
)
def test_discussion_of_every_option_ends_in_the_one_called_correct(
    right, yes, no, mark, conclusion
):
    lines = [
        mark.format(letter(n), text, yes if n == right else no) for n, text in enumerate(DRUG)
    ]
    reply = "\n".join(
        [*lines, f"Therefore, the answer is {letter(right)}."] if conclusion else lines
    )
    assert read(reply, DRUG).value == letter(right)
    other = letter((right + 1) % 5)
    assert read("\n".join([*lines, f"So the answer is {other}."]), DRUG).value in (None, other)


def test_options_after_z():
    """Nothing asks them by letter, but a class may be one of so many."""
    for count in (27, 28, 30, 53):
        options = [f"finding {number}" for number in range(count)]
        for reply, value in (
            ("D", "D"),
            ("The answer is (AA).", "AA"),
            ("Option AA is best", "AA"),
            ("finding 26", "AA"),
        ):
            assert read(reply, options).value == value, (count, reply)
        assert read("A or B", options).value is None


def test_options_with_letters_of_their_own():
    for options in (
        ["A. left lung", "B. right lung"],
        ["(a) left lung", "(b) right lung"],
        ["1) left lung", "2) right lung"],
    ):
        for reply in (
            "right lung",
            "B",
            "B. right lung",
            "The answer is right lung.",
            "It is the right lung, not the left.",
        ):
            assert read(reply, options).value == "B", (options, reply)
        assert read("A. left lung\nB. right lung\nAnswer: B", options).value == "B", options


def test_the_only_option_is_read_before_more_is_said():
    assert read("cyst, it is large", ["cyst"]).value == "A"
