"""MedHEval's judges: their words, what counts as a verdict, and what a misbehaving endpoint can do."""

import json
from functools import partial

from medtasks.judges.medheval_judges import (
    WORDINGS,
    parse_components,
    parse_joint,
    parse_number,
)

from ..tables import each_row

TRUTH = {"anatomy": ["heart", "lung"], "symptom": ["effusion"], "measurement": []}
ANSWER = "The heart is enlarged and the left lung is dark."
COUNTS = {"anatomy": [2, 0], "symptom": [0, 3], "measurement": [0, 0]}
ALL = [(name, kind) for name in WORDINGS for kind in ("components", "correctness", "severity")]


def components(counts=COUNTS):
    aspects = {
        name: {"recall_number": right, "wrong_number": wrong}
        for name, (right, wrong) in counts.items()
    }
    return json.dumps({"model_1": aspects})


def test_prompts_change_with_their_version_only():
    # Fingerprints of the texts that were compared word for word with the paper's figures 11 and 12 and the repository.
    assert {WORDINGS[name][kind].label for name, kind in ALL} == {
        "components_single v1 52a7406717faffb3",
        "correctness_single v1 c900e30d7e3cefd2",
        "severity_single v1 8fd2dcc0b3b66ef8",
        "components_eleven v1 1c79ee9918475c7b",
        "correctness_eleven v1 c8aec4f8124c5c16",
        "severity_eleven v1 6759c0b180743060",
    }


def test_a_judge_gets_json_with_one_model(endpoint, judge):
    endpoint.script = [endpoint.reply('```json\n{"model_1": 4}\n```')]
    prompt, pairs = WORDINGS["single"]["severity"], {"input": "Why {so}?", "ground_truth": "É."}
    assert (
        prompt.ask(judge, pairs, ANSWER, partial(parse_number, most=5), fenced=False).value == 4
    )
    system, user = endpoint.bodies[0]["messages"]
    assert (endpoint.bodies[0]["temperature"], system["content"]) == (0, prompt.system)
    before, after = prompt.template.split("{input_pairs}")
    assert user["content"].startswith(before)
    assert user["content"].endswith(after)
    sent = json.loads(user["content"].removeprefix(before).removesuffix(after))
    assert sent == {**pairs, "models": {"model_1": ANSWER}}


# What severity and correctness are read from replies.
NUMBERS = {
    (1, 1): ['{"model_1": 1}'],
    (0, 0): [
        *('{"model_1": 0}', ' \n{"model_1": 0}\n'),
        *('```\n{"model_1": 0}\n```', '```JSON\n{"model_1": 0}```'),
    ],
    (5, None): ['{"model_1": 5}'],
    (None, None): [
        *(
            f'{{"model_1": {value}}}'
            for value in ("6", "-1", "true", "1.0", '"1"', "null", "[1]", "NaN", "9" * 5000)
        ),
        *(
            "{}",
            "",
            "1",
            "null",
            '[{"model_1": 1}]',
            '{"model_2": 1}',
            '{"Model_1": 1}',
            '{"model_1": 1',
        ),
        *('{"model_1": 1, "model_2": 0}', '{"model_1": 5, "model_1": 0}', "[" * 100_000),
        *('{"model_1": 1} I think', 'Sure: {"model_1": 1}'),
        *('```json\n{"model_1": 1}\n```\nBecause.', '```python\n{"model_1": 1}\n```'),
    ],
}


@each_row("text, expected", [(text, read) for read, texts in NUMBERS.items() for text in texts])
def test_scores_are_read_strictly(text, expected):
    assert (parse_number(text, most=5), parse_number(text, most=1)) == expected


# Aspects, and fields of one aspect, that are not as asked for; None takes one away.
BROKEN = [
    dict.fromkeys(TRUTH),
    {"measurement": None},
    {"technique": {"recall_number": 0, "wrong_number": 0}},
    {"anatomy": [2, 0]},
    *(
        {"symptom": {"recall_number": 0, "wrong_number": wrong}}
        for wrong in (-1, "3", True, None)
    ),
    {"symptom": {"recall_number": 0}},
    {"symptom": {"recall_number": 0, "wrong_number": 3, "mentioned": 3}},
]


@each_row("change", BROKEN)
def test_a_missing_or_further_field_is_no_count(change):
    aspects = json.loads(components())["model_1"] | change
    changed = {name: aspect for name, aspect in aspects.items() if aspect is not None}
    assert parse_components(json.dumps({"model_1": changed}), most=9) is None


def test_components_are_read_up_to_the_length_of_the_answer():
    assert parse_components(components(), most=3) == COUNTS
    assert parse_components(f"```json\n{components()}\n```", most=3) == COUNTS
    assert parse_components(components(), most=2) is None


def test_a_joint_reply_is_read_for_all_models_or_for_none():
    parsers = {
        "model_1": partial(parse_number, most=1),
        "model_3": partial(parse_number, most=5),
    }
    assert parse_joint('{"model_1": 1, "model_3": 5}', parsers) == {"model_1": 1, "model_3": 5}
    for text in (
        '{"model_1": 5, "model_3": 5}',
        '{"model_1": 1}',
        '{"model_1": 1, "model_2": 0, "model_3": 5}',
        "5",
    ):
        assert parse_joint(text, parsers) is None


def test_a_joint_request_is_the_published_prompt_with_an_answer_per_model(endpoint, judge):
    endpoint.script = [endpoint.reply('{"model_1": 0, "model_2": 1}')]
    prompt, pairs = (
        WORDINGS["eleven"]["correctness"],
        {"question": "Why?", "ground_truth": "É."},
    )
    answers = {"model_1": "One.", "model_2": "Two."}
    parsers = dict.fromkeys(answers, partial(parse_number, most=1))
    verdict = prompt.ask_jointly(judge, pairs, answers, parsers, fenced=False)
    assert verdict.value == {"model_1": 0, "model_2": 1}
    system, user = (message["content"] for message in endpoint.bodies[0]["messages"])
    sent = '{"question": "Why?", "ground_truth": "É.", "models": {"model_1": "One.", "model_2": "Two."}}'
    assert (system, user) == (prompt.system, prompt.template.replace("{input_pairs}", sent))
