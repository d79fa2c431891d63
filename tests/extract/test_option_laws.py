"""Laws of lettered options: what does not matter to the answer, in several languages with the words of words.toml."""

from hypothesis import given, settings
from hypothesis import strategies as st

from medtasks.data.samples import REPLY_LANGUAGE, Sample, letter
from medtasks.extract.extractor_registry import extractor_of
from medtasks.extract.reading.languages import words_of

# A sentence about something else, without a word on the answer.
NEUTRAL = {
    "en": "The patient is a woman of 54 years who came with fever.",
    "de": "Die Patientin ist 54 Jahre alt und kam mit Fieber.",
    "fr": "La patiente a 54 ans et elle est venue avec de la fièvre.",
    "es": "La paciente tiene 54 años y llegó con fiebre.",
    "pt": "A paciente tem 54 anos e chegou com febre.",
    "it": "La paziente ha 54 anni ed è arrivata con la febbre.",
    "nl": "De patiënte is 54 jaar en kwam met koorts.",
    "pl": "Pacjentka ma 54 lata i przyszła z gorączką.",
    "ru": "Пациентке 54 года, она пришла с температурой.",
    "zh": "患者为54岁女性，因发热就诊。",
    "ja": "患者は54歳の女性で、発熱で来院した。",
    "ko": "환자는 54세 여성으로 열이 나서 내원하였다.",
    "ar": "المريضة عمرها 54 عاما وجاءت مع حمى.",
}
OPTIONS = [
    ["Liver", "Spleen", "Pancreas", "Left kidney"],
    ["Aspirin", "Warfarin", "Heparin", "Ibuprofen", "Morphine"],
    ["Leber", "Milz", "Niere"],
    ["3 cm", "5 cm", "8 cm", "12 cm"],
    ["肝脏", "脾脏", "胰腺", "左肾"],
]
ANSWERS = st.sampled_from(
    ["{answer}: {letter}", "{answer}: {letter}. {text}", "{letter}. {text}", "{answer}: {text}"]
)
SETTINGS = settings(derandomize=True, deadline=None, max_examples=100)
languages = st.sampled_from(sorted(NEUTRAL))
questions = st.sampled_from(OPTIONS).flatmap(
    lambda options: st.tuples(st.permutations(options), st.integers(0, len(options) - 1))
)


def read(reply, options, language=None):
    return (
        extractor_of("robust_choice")
        .extract(reply, Sample({"options": options, REPLY_LANGUAGE: language}))
        .value
    )


def answered(form, language, options, index):
    """Write an answer with the word of a language for it."""
    noun = words_of("answer", (language,))
    own = next(word for word in noun if word != "ans").strip("*")
    return form.format(answer=own.capitalize(), letter=letter(index), text=options[index])


@SETTINGS
@given(
    form=ANSWERS, language=languages, other=languages, question=questions, bold=st.booleans()
)
def test_another_sentence_in_any_language_changes_nothing(
    form, language, other, question, bold
):
    options, index = question
    answer = answered(form, language, options, index)
    marked = f"**{answer}**" if bold else answer
    for reply in (
        marked,
        f"{NEUTRAL[other]} {marked}",
        f"{NEUTRAL[other]}\n{marked}",
        f"{NEUTRAL[other]}\n\n{NEUTRAL[language]}\n\n{marked}",
    ):
        assert read(reply, options) == letter(index), reply


@SETTINGS
@given(language=languages, question=questions, data=st.data())
def test_exchanged_options_exchange_the_letters(language, question, data):
    options, index = question
    other = data.draw(st.integers(0, len(options) - 1))
    exchanged = list(options)
    exchanged[index], exchanged[other] = options[other], options[index]
    reply = answered("{answer}: {text}", language, options, index)
    assert read(reply, options) == letter(index)
    assert read(reply, exchanged) == letter(other)


@SETTINGS
@given(language=languages, question=questions, data=st.data())
def test_a_denied_option_is_not_the_answer(language, question, data):
    """The usual words of a language for "wrong" and "correct" decide between two options."""
    options, index = question
    other = data.draw(st.integers(0, len(options) - 1).filter(lambda place: place != index))
    right = words_of("correct", (language,))
    praise = next(word for word in right if word[0].isalpha()).strip("*")
    wrong = words_of("wrong", (language,))
    dismissal = next(word for word in wrong if word[0].isalpha()).strip("*")
    lines = {index: f"{letter(index)}: {praise}", other: f"{letter(other)}: {dismissal}"}
    reply = "\n".join(lines[place] for place in sorted(lines))
    assert read(reply, options) == letter(index), reply


@SETTINGS
@given(form=ANSWERS, language=languages, question=questions)
def test_naming_the_language_changes_nothing(form, language, question):
    options, index = question
    reply = f"{NEUTRAL[language]}\n{answered(form, language, options, index)}"
    assert read(reply, options) == read(reply, options, language) == letter(index)


@SETTINGS
@given(language=languages, question=questions)
def test_an_option_that_is_only_denied_is_no_answer(language, question):
    options, index = question
    dismissal = next(
        word for word in words_of("wrong", (language,)) if word[0].isalpha()
    ).strip("*")
    assert read(f"{letter(index)}: {dismissal}", options) is None
