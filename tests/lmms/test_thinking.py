"""Thinking variants: which tasks have them, what they ask, letter by letter, and whole runs with scripted replies."""

import json

import pytest

from medtasks.data.samples import option_index
from medtasks.prompts.template import target
from medtasks.tasks.documents import task_documents, variant_hook
from medtasks.tasks.task_files import (
    tagged_tasks,
    task_config,
    task_file,
    task_files,
    variant_of,
    variants_of,
)
from medtasks.tasks.task_index import resolve_names
from medtasks.tasks.task_variants import MAX_NEW_TOKENS, MESSAGES_OF, TEXT_OF, THINKING

from ..tables import each_row
from .whole_runs import answering, evaluate

# The backslash and the n stand there in the published text.
TAGS = (
    r"You will solve a problem/request. You should provide your thoughts within <think> </think> tags before providing "
    r"the answer.\nWrite your final answer within <answer> </answer> tags."
    "\n\n"
)
LETTER = 'Answer with the option\'s letter from the given choices and put the letter in one "\\boxed{}".'
YES_NO = 'Please output "yes" or "no" and put the answer in one "\\boxed{}".'
CONCISE = 'Please answer the question concisely and put the answer in one "\\boxed{}".'
RUN = {  # single choice, pairs, yes/no and options, open questions of two families
    "medevalkit_pmc_vqa": "accuracy",
    "mediconfusion": "set_accuracy",
    "medheval_visual_mm": "accuracy",
    "multimedeval_vqa_rad": "closed_accuracy",
    "medevalkit_vqa_rad": "accuracy",
}


def prompt(task, doc):
    config = task_config(task)
    return resolve_names(config["doc_to_text"])(
        doc, resolve_names(config["lmms_eval_specific_kwargs"]).get("default")
    )


def test_tasks_whose_replies_are_read_have_thinking_variants():
    having = {task.name for task in task_files().values() if task.thinking}
    assert having >= {*RUN, "multimedeval_medqa", "medheval_context", "medevalkit_slake_judged"}
    lacking = {
        "mediconfusion_gd",
        "mediconfusion_ff",
        "gmai_mmbench_val_judged",
        "gmai_mmbench_mcls",
        "iu_xray_report",
    }
    assert not having & lacking
    assert not having & {
        "medevalkit_pmc_vqa_reasoning",
        "multimedeval_medqa_5shot",
        "multimedeval_bloodmnist",
    }
    assert [
        one.name for one in variants_of(task_file("mediconfusion"), sanity=False, thinking=True)
    ] == [f"mediconfusion_{variant}" for variant in THINKING]
    assert variant_of("mediconfusion_think_boxed") == ("mediconfusion", "think_boxed")
    assert not any(one.variant in THINKING for one in tagged_tasks("mediconfusion_sanity"))


def test_a_thinking_variant_differs_in_prompt_room_and_rows():
    base, config = task_config("medevalkit_pmc_vqa"), task_config("medevalkit_pmc_vqa_think")
    changed = {key for key in config if config[key] != base.get(key)}
    named = {"task", "task_alias", "tag", "metadata"}
    assert changed == {
        *named,
        "doc_to_text",
        "doc_to_messages",
        "generation_kwargs",
        "filter_list",
    } | {"model_specific_generation_kwargs"}
    assert config["generation_kwargs"] == {
        **base["generation_kwargs"],
        "max_new_tokens": MAX_NEW_TOKENS,
    }
    assert (config["metadata"]["variant"], config["metadata"]["base"]) == (
        "think",
        "medevalkit_pmc_vqa",
    )
    assert config["metadata"]["version"] == base["metadata"]["version"]
    rows = task_file("medevalkit_pmc_vqa_think").rows
    assert {name: row.extractor for name, row in rows.items()} == {
        "robust": "robust_kit_choice"
    }
    assert all(row.reasoned for row in rows.values())


@each_row("name", RUN)
def test_the_prompt_is_the_tasks_own_with_the_published_instruction(prepared, name):
    for doc in task_documents(task_file(name)):
        asked = prompt(name, doc)
        assert prompt(f"{name}_think", doc) == TAGS + asked
        boxed = prompt(f"{name}_think_boxed", doc)
        if name == "medevalkit_pmc_vqa":
            assert boxed == prompt("medevalkit_pmc_vqa_reasoning", doc)
        elif name == "medevalkit_vqa_rad":
            assert boxed == prompt("medevalkit_vqa_rad_reasoning", doc)
        elif name == "mediconfusion":
            assert boxed.endswith(LETTER)
        elif name == "medheval_visual_mm":
            assert boxed == f"{asked}\n{YES_NO if doc['kind'] == 'binary' else LETTER}"
        else:
            assert boxed == f"{asked}\n{YES_NO if doc['answer'] in ('yes', 'no') else CONCISE}"


def test_messages_carry_it_in_the_users_turn(prepared):
    name = "medevalkit_medxpertqa_mm"
    doc = task_documents(task_file(name))[0]
    settings = resolve_names(task_config(name)["lmms_eval_specific_kwargs"])["default"]

    def content(hook):
        (turn,) = hook(doc, lmms_eval_specific_kwargs=settings)
        return [
            part["text"] if part["type"] == "text" else part["type"] for part in turn["content"]
        ]

    own = content(resolve_names(task_config(name)["doc_to_messages"]))
    assert content(variant_hook(f"{MESSAGES_OF}{name}_think")) == [TAGS + own[0], *own[1:]]
    boxed = content(variant_hook(f"{MESSAGES_OF}{name}_think_boxed"))
    assert boxed[:-1] == own[:-1]
    assert boxed[-1].endswith(LETTER)
    assert content(resolve_names(task_config(name)["doc_to_messages"])) == own


def test_the_image_still_comes_first_for_models_that_mark_it():
    doc = {
        "question": "Where?",
        "options": ["Here", "There"],
        "image_files": ["a.png"],
        "answer": "A",
    }
    settings = {"template": "{{ image }}{{ question }}", "image_mark": "<image>\n"}
    assert (
        variant_hook(f"{TEXT_OF}medevalkit_pmc_vqa_think")(doc, settings)
        == f"<image>\n{TAGS}Where?"
    )


def test_a_question_in_chinese_is_asked_in_chinese():
    ask, settings = (
        variant_hook(f"{TEXT_OF}multimedeval_vqa_rad_think_boxed"),
        {"template": "{{ question }}"},
    )
    for answer, line in (
        ("是", "请输出'是'或'否'，并将答案放在"),
        ("肺", "请简要回答该问题，并将答案放在"),
    ):
        doc = {"question": "哪里？", "answer": answer, "language": "zh"}
        assert ask(doc, settings) == f"哪里？\n{line}一个'\\boxed{{}}'中。"


def right_and_wrong(doc):
    if doc.get("kind") == "binary":
        return ("Yes", "No") if doc["answer"] == "A" else ("No", "Yes")
    said = str(doc.get("answer") or ("A" if "kind" in doc else target(doc)))
    if "options" in doc:
        return said, next(other for other in "AB" if option_index(other) != option_index(said))
    return said, "no" if said == "yes" else "yes" if said == "no" else "something else"


@pytest.mark.slow
@each_row(
    ("variant", "form", "value"),
    [
        ("think", "<think>Not {wrong}.</think>\n<answer>{right}</answer>", 1),
        (
            "think_boxed",
            "<think>The answer is {right}. \\boxed{{{right}}}",
            0,
        ),  # reasoning that never ends
    ],
)
def test_whole_runs_with_scripted_replies(prepared, variant, form, value):
    def reply(doc):
        right, wrong = right_and_wrong(doc)
        return form.format(right=right, wrong=wrong)

    model = answering(reply)
    ran = evaluate([f"{name}_{variant}" for name in RUN], model, log_samples=True)
    for task, metric in ((f"{name}_{variant}", metric) for name, metric in RUN.items()):
        (row,) = task_file(task).rows
        assert ran["results"][task][f"{metric},{row}"] == value, task
        assert ran["results"][task][f"invalid_rate,{row}"] == 1 - value
        if value:
            assert TAGS in model.arguments[task][0]
            continue
        for sample in ran["samples"][task]:
            assert sample["score"]["reason"] == "truncated"
            assert "<think>The answer is" in json.dumps(
                sample["resps"]
            )  # the reasoning stays in the samples
