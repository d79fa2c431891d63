"""Recorded readings of MedEvalKit's questions, and of its neighbours MedVLThinker and MedXpertQA."""

import json
from collections import Counter

import pytest

from medtasks.data.samples import Sample, letter
from medtasks.extract.extractor_registry import extractor_of
from medtasks.extract.published.letter_choice import (
    DIRECT,
    REASONED,
    first_letter,
    last_answer,
    named_options,
)
from medtasks.extract.published.medevalkit_choice import (
    box_content,
    declared_answer,
    is_open_right,
    kit_answer,
    most_similar,
    open_answers,
    parsed_option,
    parsed_reply,
    tag_content,
    tag_contents,
)
from medtasks.metrics.metric import mean

from .reading import recorded

TAGGED = ("omnimedvqa", "medxpertqa_mm", "medxpertqa_text")


@pytest.fixture
def cases(golden):
    return lambda name: recorded(golden / "medevalkit", name, 1)


def test_golden_medevalkit_boxed(cases):
    for case in cases("boxed"):
        assert box_content(case["text"]) == case["content"], case


def test_golden_medevalkit_tags(cases):
    for case in cases("tags"):
        assert (
            tag_content(case["text"], case["tag"], required=not case["hard"]) == case["content"]
        ), case


def test_golden_medevalkit_parse_response(cases):
    for case in cases("parse_response"):
        # The content of a box that is not there is lower-cased later, with everything else.
        assert parsed_reply(case["reply"]) == case["parsed"], case


def test_golden_medevalkit_multi_choice(cases):
    for case in cases("multi_choice"):
        columns = {
            "options": case["choices"],
            "option_lines": case["choices"],
            "gold": case["gold"],
        }
        sample = Sample({**columns, "answer": case["gold"].strip()})
        for release, name in ((False, "accepted"), (True, "accepted_release")):
            if name not in case:  # the reference raised: there was no reply
                assert "error" in case
                assert case["reply"] is None
                continue
            answer = kit_answer(
                case["reply"], sample, tags=case["set"] in TAGGED, release=release, fixed=False
            )
            assert [answer.value] == case[name], (name, case)
            assert "target" not in answer.facts
            assert release or (answer.value == case["gold"].strip()) == case["correct"]


def test_golden_medevalkit_text_gold(cases):
    for case in cases("text_gold"):
        # No option equals the gold exactly: here the options are the lines, with their letters.
        columns = {
            "options": case["choices"],
            "option_lines": case["choices"],
            "gold": case["gold_text"],
        }
        answer = kit_answer(
            case["reply"],
            Sample({**columns, "answer": None}),
            tags=True,
            release=False,
            fixed=False,
        )
        assert (answer.facts["target"] == answer.value) == case["correct"], case


def test_golden_medevalkit_most_similar(cases):
    for case in cases("most_similar"):
        assert (most_similar(tuple(case["choices"]), case["text"]) or 0) == case["index"], case


def test_golden_medevalkit_medxpertqa_formats(cases, recorded_data):
    lines = (
        (recorded_data / "medxpertqa" / "medxpertqa_mm_input.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    samples = [_question(json.loads(line)) for line in lines]
    extract = extractor_of("medevalkit_tagged_choice").extract
    for case in cases("medxpertqa_formats"):
        right = 0
        for sample in samples:
            gold = sample.document["answer"]
            text = sample.options[sample.target]
            said = case["template"].format(
                L=gold, l=gold.lower(), t=text, tu=text.upper(), tl=text.lower()
            )
            right += extract(said, sample).value == gold
        assert (right, len(samples)) == (case["right"], case["total"]), case


def _question(row):
    (gold,) = row["label"]
    return Sample(
        {
            "options": [option["content"] for option in row["options"]],
            "answer": gold,
            "gold": gold,
        }
    )


def test_golden_medevalkit_mmmu_choice(cases):
    for case in cases("mmmu_choice"):
        reply, options = case["reply"] or "", case["options"]
        assert parsed_option(reply, options) == case["parser"], case
        if "error" not in case:
            assert parsed_option(declared_answer(reply), options) == case["letter"], case


def test_golden_medevalkit_mmmu_open(cases):
    for case in cases("mmmu_open"):
        answers = open_answers(case["reply"])
        assert sorted(map(repr, answers)) == sorted(map(repr, case["parsed"])), case
        assert is_open_right(case["gold"], answers) == case["correct"], case
        assert is_open_right(case["gold"], list(case["reply"])) == case["validation_head"], case


def test_golden_medevalkit_medvlthinker_answers(cases):
    for case in cases("medvlthinker"):
        assert list(case["options"]) == [letter(index) for index in range(len(case["options"]))]
        options, target = (
            list(case["options"].values()),
            list(case["options"]).index(case["label"]),
        )
        said = [[*tag_contents(reply, "answer"), reply][0].strip() for reply in case["replies"]]
        assert said == case["extracted"], case
        assert [target in named_options(one, options) for one in said] == case["correct"], case
        rule, sample = (
            extractor_of("medvlthinker_choice"),
            Sample({"options": options, "answer": case["label"]}),
        )
        read = [rule.extract(reply, sample).value == case["label"] for reply in case["replies"]]
        assert read == case["correct"], case


def test_golden_medevalkit_medvlthinker_regraded(cases):
    for case in cases("medvlthinker"):
        options, target = (
            list(case["options"].values()),
            list(case["options"]).index(case["label"]),
        )
        said, graded = [last_answer(reply) for reply in case["replies"]], case["regraded"]
        named = [named_options(one, options) for one in said]
        letters = [
            letter(found[0]) if found else one for found, one in zip(named, said, strict=True)
        ]
        right = [target in found for found in named]
        majority = Counter(letters).most_common(1)[0][0]
        assert (letters, right, majority) == (
            graded["letters"],
            graded["correct"],
            graded["majority"],
        ), case
        assert (majority == case["label"], any(right)) == (
            graded["majority_correct"],
            graded["pass"],
        ), case
        assert mean(list(map(float, right))) == pytest.approx(graded["mean"], rel=1e-9)


def test_golden_medevalkit_medxpertqa_authors(cases):
    for case in cases("medxpertqa_authors"):
        sample = Sample({"options": ["x"] * case["options"]})
        found = first_letter(
            case["reply"], sample, trigger={"ao": DIRECT, "cot": REASONED}[case["mode"]]
        ).value
        assert ([found] if found else []) == case["prediction"], case
        assert (found == case["gold"]) == case["correct"], case


medevalkit_slake, medevalkit_slake_fixed = (
    extractor_of(f"medevalkit_slake{end}").extract for end in ("", "_fixed")
)

RECORDED = {
    **{f"bleu{order}": f"bleu_{order}" for order in range(1, 5)},
    **{f"rouge{kind}": f"rouge_{kind}" for kind in "12l"},
    **{name: name for name in ("precision", "recall", "f1")},
}
CRASHES = ("ROUGE", "F1", "recursion")
"""What the sentence says of one of which the published code raises."""


def sample_of(case, answer_type):
    return Sample({"answer": case["gold"], "answer_type": answer_type})


def test_golden_medevalkit_closed_answers(cases):
    """SLAKE's rule takes yes and no in lower case by substring, all other answers by equality."""
    for case in cases("closed"):
        gold, reply = case["gold"], case["reply"]
        by_word = gold.lower() in ("yes", "no")
        exact = medevalkit_slake(
            reply, sample_of({"gold": gold.title() if by_word else gold}, "CLOSED")
        )
        assert exact.facts["correct"] == case["exact"], case
        if by_word:
            by_substring = medevalkit_slake(reply, sample_of({"gold": gold.lower()}, "CLOSED"))
            assert by_substring.facts["correct"] == case["judgement"]


def test_golden_medevalkit_open_answers(cases):
    for case in cases("open"):
        head = medevalkit_slake(case["reply"], sample_of(case, "OPEN"))
        mended = medevalkit_slake_fixed(case["reply"], sample_of(case, "OPEN"))
        assert (head.facts["stops"] is not None) == ("error" in case), case
        assert mended.facts["stops"] is None
        if "error" in case:
            assert any(word in head.facts["stops"] for word in CRASHES)
            assert not any(mended.facts["measures"].values())
            continue
        assert head.facts["correct"] is mended.facts["correct"] is case["em"], case
        expected = {RECORDED[name]: case[name] for name in RECORDED}
        assert head.facts["measures"] == pytest.approx(expected, rel=1e-9, abs=0), case
        # HEAD's names hold F1, precision and recall
        right = {"f1": case["precision"], "precision": case["recall"], "recall": case["f1"]}
        assert mended.facts["measures"] == pytest.approx(expected | right, rel=1e-9, abs=0), (
            case
        )
