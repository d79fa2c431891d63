"""MedEvalKit's rules for short answers, and the careful reader's."""

from medtasks.data.samples import Sample
from medtasks.extract.extractor_registry import Reason, extractor_of
from medtasks.extract.published.medevalkit_vqa import medevalkit_vqa_release, robust_kit_vqa

from ..tables import each_row, rows_in

medevalkit_vqa, medevalkit_vqa_fixed, medevalkit_slake, medevalkit_slake_fixed = (
    extractor_of(f"medevalkit_{rule}").extract for rule in ("vqa", "vqa_fixed", "slake", "slake_fixed")
)


def asked(answer, question="", answer_type=None):
    return Sample({"answer": answer, "question": question, **({"answer_type": answer_type} if answer_type else {})})


@each_row(
    ("rule", "reply", "sample", "correct"),
    [
        (medevalkit_vqa, "It is normal.", asked("no"), True),
        (medevalkit_vqa, "Yes, the lung is normal.", asked("yes"), False),
        (medevalkit_vqa, "LEFT LUNG \n", asked(" Left lung"), True),
        (medevalkit_slake, "LEFT LUNG \n", asked("Left lung"), False),
        (medevalkit_slake, "The answer is Yes.", asked("Yes", answer_type="CLOSED"), False),
        (medevalkit_slake, "是的。", asked("是的", answer_type="CLOSED"), False),
        (medevalkit_slake_fixed, "The answer is Yes.", asked("Yes", answer_type="CLOSED"), False),
        (medevalkit_vqa_release, "<answer>Left lung. Or not.</answer>", asked("left lung"), True),
        (medevalkit_vqa_release, "Yes, it is.", asked("yes"), False),
    ],
)
def test_published_readings(rule, reply, sample, correct):
    assert rule(reply, sample).facts["correct"] is correct


def test_what_the_judge_is_shown():
    reply, sample = "So \\boxed{The Left Lung.} it is", asked("Left Lung")
    found = [rule(reply, sample).facts for rule in (medevalkit_vqa, medevalkit_slake, medevalkit_vqa_release)]
    assert [(one["judged"], one["gold"]) for one in found] == [
        ("the left lung.", "left lung"),
        ("The Left Lung.", "Left Lung"),
        ("the left lung", "left lung"),
    ]


@each_row("reply", ["", "..", "\\boxed{}", "answer: "])
def test_an_open_reply_without_words_stops_head_alone(reply):
    head, fixed = medevalkit_vqa(reply, asked("ct")), medevalkit_vqa_fixed(reply, asked("ct"))
    assert head.facts["stops"]
    assert fixed.facts["stops"] is None
    assert not any(fixed.facts["measures"].values())
    assert medevalkit_vqa(reply, asked("yes")).facts["stops"] is None


def test_an_open_reply_of_5000_words():
    reply = "left lung " + "of which much " * 1666
    found = [rule(reply, asked("left lung")) for rule in (medevalkit_vqa, medevalkit_vqa_fixed)]
    assert "recursion" in found[0].facts["stops"]
    assert found[1].facts["measures"]["recall"] == 1
    assert robust_kit_vqa(reply, asked("left lung")).facts["correct"] is False


IN_CHINESE = "图像中包含肝脏吗?"


@each_row(
    ("reply", "sample", "value"),
    [
        *(
            (reply, asked(answer, IN_CHINESE, "CLOSED"), value)
            for answer in ("Yes", "包含", "是的", "有", "否")
            for reply, value in (("是的，可以看到。", "yes"), ("No.", "no"), ("没有", "no"), ("答案：不包含", "no"))
        ),
        ("图像中不包含肝脏。", asked("不包含", IN_CHINESE, "CLOSED"), "no"),
        ("图像中包含肝脏。", asked("包含", IN_CHINESE, "CLOSED"), "yes"),
        ("图像中包含肺。", asked("不包含", IN_CHINESE, "CLOSED"), Reason.NO_MATCH),
        ("是，不是", asked("是", IN_CHINESE, "CLOSED"), Reason.AMBIGUOUS),
        ("无法确定", asked("是", IN_CHINESE, "CLOSED"), Reason.REFUSED),
        ("<think>是的</think>不是", asked("不是", IN_CHINESE, "CLOSED"), "no"),
        *(
            (reply, asked("不正常", "这张图片看起来正常吗?", "CLOSED"), "no")
            for reply in ("不正常。", "No", "不是", "异常")
        ),
        ("正常", asked("没有", "图中有异常吗?", "CLOSED"), Reason.NO_MATCH),
        ("There is a fracture.", asked("yes", "Is there a fracture?"), "yes"),
        ("\\boxed{\\text{Yes}} and no more", asked("Yes"), "yes"),
        ("Yes and no.", asked("Yes"), Reason.AMBIGUOUS),
        ("It is normal.", asked("no", "Is there a fracture?"), Reason.NO_MATCH),
        (" ", asked("no"), Reason.EMPTY),
        ("<think>It may", asked("no"), Reason.TRUNCATED),
    ],
)
def test_a_clear_yes_or_no_in_two_languages(reply, sample, value):
    found = robust_kit_vqa(reply, sample)
    assert (found.value or found.reason) == value
    negative = ("no", "不包含", "不是", "否", "不正常", "没有")
    assert found.facts["correct"] is (found.value == ("no" if sample.document["answer"] in negative else "yes"))


@each_row(("reply", "answer", "correct"), rows_in("medevalkit_vqa_the_same_words"))
@each_row("answer_type", ["OPEN", "CLOSED"])
def test_the_same_words(reply, answer, correct, answer_type):
    assert robust_kit_vqa(reply, asked(answer, "", answer_type)).facts["correct"] is correct


@each_row("reply", ["I cannot tell.", "无法判断"])
def test_refusals(reply):
    found = robust_kit_vqa(reply, asked("ct"))
    assert (found.reason, found.facts["correct"]) == (Reason.REFUSED, False)
    assert not any(found.facts["measures"].values())
