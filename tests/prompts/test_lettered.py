"""Prompts: filling templates, and the published texts letter by letter."""

from string import Template

from medtasks.prompts.lettered import letters, option_texts, prompt, target
from medtasks.tasks.task_files import task_config

from ..tables import rows

DOC = {"question": "Which {side}?", "options": ["70% left", "Right, {maybe} "], "answer": "B"}

CHOOSE = "Based on the image, choose the correct option for the following question."
LETTER = "Answer with the option's letter from the given choices directly."
ONE = "Your answer should be just one letter."
HASH = f'{CHOOSE}\nQuestion: $q\n("A": $a)\n("B": $b)\n{LETTER} {ONE}\n#answer: ("'
LINES = f"{CHOOSE}\nQuestion: $q\nA: $a\nB: $b\n{LETTER} {ONE}\nAnswer: "
GREEDY = f"{CHOOSE}\nQuestion: $q\nA: $a\nB: $b\n{LETTER}\nAnswer: "
BLIP2 = f"Question: {CHOOSE} $q\nA: $a\nB: $b\n{LETTER} Answer:"

HELPFUL = "You are a helpful medical assistant. You are being provided with images, a "
FOLLOW = "question about each image and an answer. Follow the examples and answer the last question. "
SHOTS = [
    (
        "What radiological technique was used to confirm the diagnosis?\nA: CT Scan\nB: Mammography\n"
        "Answer: B: Mammography"
    ),
    "What did the CT scan show?\nA: Cerebral edema\nB: Intracranial hemorrhage\nAnswer: A: Cerebral edema",
    (
        "What is the purpose of the asterisk shown in the figure?\n"
        "A: To indicate the formation of lobes around the contracting nucleus.\n"
        "B: To indicate the normal lentoid shape of hypocotyl nuclei.\n"
        "Answer: B: To indicate the normal lentoid shape of hypocotyl nuclei."
    ),
]
BARE = [
    "What radiological technique was used to confirm the diagnosis? Answer: Mammography",
    "What did the CT scan show? Answer: Cerebral edema",
    (
        "What is the purpose of the asterisk shown in the figure? "
        "Answer: To indicate the normal lentoid shape of hypocotyl nuclei."
    ),
]


def flamingo(kind, shots, second, last):
    """Three of four modes lack the first sign of the second separator: a slip that models were asked with."""
    return (
        f"{HELPFUL}{kind}{FOLLOW}<image>Question: {shots[0]}<|endofchunk|><image>Question: {shots[1]}{second}"
        f"<image>Question: {shots[2]}<|endofchunk|><image>Question: $q{last}"
    )


FLAMINGO = flamingo("two choice ", SHOTS, "|endofchunk|>", "\nA: $a\nB: $b\nAnswer:")
FLAMINGO_FF = flamingo("two choice ", BARE, "|endofchunk|>", " Answer:")
FLAMINGO_PS = flamingo("", BARE, "<|endofchunk|>", " Answer: $a")
FREE = "Based on the image, answer following question.\n$q"

PUBLISHED = {
    "mediconfusion": {
        "default": HASH,
        "radfm": HASH,
        "molmo": HASH,
        "llava_hf": HASH,
        "instructblip": HASH,
        "blip2": BLIP2,
        "llava_med": LINES,
        "openai": LINES,
        "gemini_api": LINES,
        "claude": LINES,
        "deepseek": LINES,
        "med_flamingo": FLAMINGO,
    },
    "mediconfusion_gd": {
        "default": GREEDY,
        "llava_med": GREEDY,
        "radfm": GREEDY,
        "molmo": HASH,
        "blip2": BLIP2,
        "med_flamingo": FLAMINGO,
    },
    "mediconfusion_ff": {
        "default": FREE,
        "llava_med": FREE,
        "radfm": FREE,
        "molmo": FREE,
        "blip2": "Question: $q Answer:",
        "med_flamingo": FLAMINGO_FF,
    },
    # Question and first option as one text.
    "mediconfusion_ps": {
        "default": "Question: $q Answer: $a",
        "blip2": "Question: $q Answer: $a",
        "molmo": "Question: $q Answer: $a",
        "llava_med": "$q $a",
        "radfm": "$q $a",
        "med_flamingo": FLAMINGO_PS,
    },
}
CASES = [(task, family) for task, families in PUBLISHED.items() for family in families]


@rows("task, family", CASES)
def test_prompt_is_the_published_one(task, family):
    config = task_config(task)
    settings = config["lmms_eval_specific_kwargs"]
    ours = prompt(DOC, settings.get(family, settings["default"]))
    if task == "mediconfusion_ps":
        ours += config["target_delimiter"] + option_texts(DOC)[0]
    expected = Template(PUBLISHED[task][family])
    assert ours == expected.substitute(q=DOC["question"], a=DOC["options"][0], b=DOC["options"][1])


def test_greedy_letter_follows_the_prompt_directly():
    assert task_config("mediconfusion_gd")["target_delimiter"] == ""


@rows("task", PUBLISHED)
def test_only_med_flamingo_is_shown_examples(task):
    settings = task_config(task)["lmms_eval_specific_kwargs"]
    shown = {family: kwargs["demonstrations"] for family, kwargs in settings.items() if "demonstrations" in kwargs}
    assert shown == {"med_flamingo": ["PMC1064097_F2.jpg", "PMC1065025_F1.jpg", "PMC1087855_F3.jpg"]}
    assert settings["med_flamingo"]["template"].count("<image>") == len(shown["med_flamingo"])


@rows("template", ["{{ question }} ", " {{ question }}\n", "\t{{ question }}  \n ", "{ x } {{ question }}"])
def test_blanks_and_braces_stay(template):
    expected = template.replace("{{ question }}", DOC["question"])
    assert prompt(DOC, {"template": template}) == expected


def test_default_lists_all_options():
    doc = {"question": "Where?", "options": ["Here", "There", "Elsewhere"], "answer": "C"}
    expected = (
        "Where?\nA: Here\nB: There\nC: Elsewhere\nAnswer with the option's letter from the given choices directly."
    )
    assert prompt(doc) == prompt(doc, {}) == prompt(doc, None) == expected
    assert prompt(doc, {"template": "{{ option_c }}, {{ option_a }}"}) == "Elsewhere, Here"
    assert (target(doc), letters(doc), option_texts(doc)) == ("C", ["A", "B", "C"], ["Here", "There", "Elsewhere"])
