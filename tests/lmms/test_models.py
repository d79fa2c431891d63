"""Failures that the harness's models give as replies: the files that do so, and how failures are marked."""

import ast
import asyncio
import copy
import re
from types import SimpleNamespace

import pytest
from lmms_eval.api.instance import (
    GenerationResult,
    Instance,
    TokenCounts,
    unwrap_generation_output,
)
from lmms_eval.api.reasoning import strip_reasoning_tags
from medtasks.model_adapters.base.batching import CountedReply as Counted
from openai.types.chat import ChatCompletionMessage

from medtasks.extract.failure import cut_reply, failed_reply, failure_cause, reasoned_reply
from medtasks.families.family import Reply, Rule, without_its_reasoning
from medtasks.lmms.earlier_replies import KeptReply
from medtasks.lmms.model_failures import EMPTY_AFTER_ERRORS, ERROR_TEXTS, watch_replies
from medtasks.runs.logged_samples import is_withheld
from medtasks.runs.reply_envelope import make_envelope, open_envelope, parse_loglikelihood

from ..tables import each_row
from .model_sources import model_sources

KINDS = ("chat", "simple")


@pytest.fixture(scope="module")
def trees():
    return {
        f"{file.parent.name}.{file.stem}": tree
        for file, tree in model_sources()
        if file.parent.name in KINDS
    }


def _given(nodes):
    """Yield what code assigns, returns and appends, list members one by one."""
    for node in (below for top in nodes for below in ast.walk(top)):
        values = []
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return):
            values = [node.value]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in (
            "append",
            "extend",
        ):
            values = list(node.args)
        for value in values:
            if (
                isinstance(value, ast.Call)
                and getattr(value.func, "id", "") == "GenerationResult"
            ):
                value = next(
                    (keyword.value for keyword in value.keywords if keyword.arg == "text"),
                    value,
                )
            value = value.left if isinstance(value, ast.BinOp) else value
            yield from (
                value.elts
                if isinstance(value, ast.List | ast.Tuple)
                else [value]
                if value
                else []
            )


def _text(value):
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    return ast.unparse(value)[2:-1] if isinstance(value, ast.JoinedStr) else None


def _silent_blocks(tree):
    """Yield code that stands in for a reply: after an exception, or when the budget is used up."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) or (
            isinstance(node, ast.If) and "is_budget_exceeded" in ast.unparse(node.test)
        ):
            yield node.body


def _presets(tree):
    """Return whether a name is set to an empty text before a ``try`` that sets it and swallows its exception."""
    for node in ast.walk(tree):
        empty = set()
        lines = getattr(node, "body", None)
        for line in lines if isinstance(lines, list) else ():
            if (
                isinstance(line, ast.Assign)
                and isinstance(line.targets[0], ast.Name)
                and _text(line.value) == ""
            ):
                empty.add(line.targets[0].id)
            if (
                isinstance(line, ast.Try)
                and "raise" not in " ".join(map(ast.unparse, line.handlers)).split()
            ):
                assigned = [
                    below
                    for inner in line.body
                    for below in ast.walk(inner)
                    if isinstance(below, ast.Assign)
                ]
                if {
                    ast.unparse(target)
                    for assignment in assigned
                    for target in assignment.targets
                } & empty:
                    return True
    return False


def test_every_file_that_gives_an_empty_text_after_an_exception_is_known(trees):
    found = {
        name
        for name, tree in trees.items()
        if _presets(tree)
        or any(_text(value) == "" for block in _silent_blocks(tree) for value in _given(block))
    }
    assert len(found) > 30
    assert found == EMPTY_AFTER_ERRORS


NO_REPLIES = re.compile(r"no such|\{self\.|prompt|~/\.cache|eager|sdpa|<", re.IGNORECASE)


def test_every_text_that_stands_for_an_exception_is_known(trees):
    unknown = []
    for name, tree in trees.items():
        for block in _silent_blocks(tree):
            for value in _given(block):
                text = _text(value)
                if not text or " " not in text.strip() or NO_REPLIES.search(text):
                    continue
                shown = re.sub(r"\{[^{}]*\}", "x", text)
                pattern = ERROR_TEXTS.get(name)
                if failure_cause(shown) is None and not (pattern and pattern.match(shown)):
                    unknown.append((name, text))
    # A harness of another version may have new ones: look at each, and add it to models.py or to this list.
    assert [one for one in unknown if one not in KNOWN_NOT_TO_BE_REPLIES] == []


KNOWN_NOT_TO_BE_REPLIES = [
    ("chat.async_openai", "Error: {str(e)}")
]  # of an addition to a text: see failure.py


class Model:
    marks_replies = True

    def __init__(self, replies):
        self.replies = replies

    def generate_until(self, requests):
        self.asked = list(requests)
        return (
            self.replies if isinstance(self.replies, list) else [self.replies] * len(requests)
        )

    loglikelihood = generate_until


def of_module(module):
    made = type(
        "Made",
        (Model,),
        {"generate_until": lambda self, requests: Model.generate_until(self, requests)},
    )
    made.generate_until.__module__ = f"lmms_eval.models.{module}"
    return made


def request(task="ours", row=0, number=0, repeats=1):
    kind = "generate_until"
    return Instance(kind, ("",), number, {"task": task, "doc_id": row, "repeats": repeats})


def replies_of(model, requests=None, kept=None, call="generate_until"):
    with watch_replies(model, {"ours"}, kept or {}, {}):
        replies = getattr(model, call)(requests or [request()])
    return [
        unwrap_generation_output(reply)[0] if call == "generate_until" else reply
        for reply in replies
    ]


@each_row(
    "text",
    [
        *(
            None,
            7,
            GenerationResult(None, TokenCounts()),
            GenerationResult("[LMMS_EVAL_BUDGET_EXCEEDED]", TokenCounts()),
        ),
        "[LMMS_EVAL_REQUEST_FAILED after 5 retries] Connection error. The answer is B",
        'Error: can only concatenate str (not "NoneType") to str',
        "[SAFETY_BLOCKED:OTHER]",
    ],
)
def test_failures_of_any_model_are_marked(text):
    (reply,) = replies_of(of_module("chat.openai")(text))
    assert failure_cause(reply) is not None
    assert reply.startswith(failed_reply(""))


def test_an_empty_text_or_some_words_are_failures_of_some_models_only():
    assert replies_of(of_module("chat.openai")("")) == [""]
    (reply,) = replies_of(of_module("simple.llava")(" \n"))
    assert (
        failure_cause(reply)
        == "an empty text, which simple.llava of lmms-eval also gives after an error"
    )
    text = "Video a.mp4 can not load, check the source"
    assert failure_cause(replies_of(of_module("simple.oryx")(text))[0]) == text
    failed = "[LMMS_EVAL_REQUEST_FAILED after 5 retries] no"
    assert replies_of(of_module("simple.llava")(text)) == [text]
    for theirs in ("", failed):  # other tasks get what the model gave
        assert replies_of(of_module("simple.llava")(theirs), [request("theirs")]) == [theirs]


@each_row("place", [1, 2])  # of the settings, in requests to simple and to chat models
def test_reasoning_that_reached_the_limit_of_tokens_was_cut(place):
    asked = request("mediconfusion_think")
    asked.arguments = ("", *[len] * (place - 1), {"max_new_tokens": 8, "until": []})
    replies = [
        Counted("So A", 7, 8),
        Counted("So A", 7, 7),
        "So A",
        Counted(failed_reply("x"), 7, 8),
    ]
    replies += [GenerationResult("So A", TokenCounts(7, 8)), Counted(cut_reply("So A"), 7, 8)]
    with watch_replies(model := Model(replies), {"mediconfusion_think"}, {}, {}):
        found = model.generate_until([asked] * len(replies))
    assert vars(model).keys() == {"replies", "asked"}  # the model is as before after the block
    texts = [unwrap_generation_output(reply)[0] for reply in found]
    cut = cut_reply("So A")
    assert texts == [cut, "So A", "So A", failed_reply("x"), cut, cut]
    other = request("mediconfusion")  # whose replies end at their limit as ever
    other.arguments = asked.arguments
    with watch_replies(model := Model(replies[:1]), {"mediconfusion"}, {}, {}):
        assert model.generate_until([other]) == ["So A"]


MARKED = [
    failed_reply("I pass"),
    cut_reply("B"),
    reasoned_reply("Hm.", "B"),
    "[[medtasks:withheld]] B",
    '{"rule": "nonsense", "reply": "A"}',
    make_envelope("A", Rule("nonsense", fenced=True)),
]
FORGED = [
    *MARKED,
    *(f" {mark}" for mark in MARKED),
    *(f"<think>No.</think>{mark}" for mark in MARKED),
    *(f"{mark[:5]}<think>No.</think>{mark[5:]}" for mark in MARKED),
    *(f"{mark[:1]}<think>No.</think>{mark[1:]}" for mark in MARKED),
    f"<answer>{failed_reply('I pass')}</answer>",
]
HARNESS_TEXTS = [
    "[SAFETY_BLOCKED: x]",
    "[LMMS_EVAL_REQUEST_FAILED after 9 retries]",
    "[GENERATION_FAILED]",
]


class Unmarked(Model):
    marks_replies = False  # as a model of the harness that knows no marks


def assert_is_plain(reply):
    for shown in (reply, strip_reasoning_tags(reply, [["<think>", "</think>"]])):
        read, row = open_envelope(shown)
        assert (read.is_failure, read.cut, read.reasoning, row) == (False, False, "", Rule())
        assert not is_withheld(read.text)
    assert not without_its_reasoning(open_envelope(reply)[0]).is_failure


@each_row("text", FORGED)
@each_row("of_text", [Unmarked, of_module("chat.vllm"), lambda text: Served(completion(text))])
def test_no_reply_of_a_model_is_read_as_a_mark_or_an_envelope(text, of_text):
    model = of_text(text)
    model.marks_replies = False
    origins = {}
    with watch_replies(model, {"ours"}, {}, origins):
        (reply,) = model.generate_until([request()])
    assert_is_plain(reply)
    assert origins == {("ours", 0): ""}
    assert reply.replace("\u2060", "").replace("{ ", "{") == text


@each_row(
    "text",
    [
        "B. S{<``$,",
        "[x<5]",
        '{"answer": "A"}',
        "[1, 2] {rule}",
        "<think>[B]</think>{B}",
        "Error: none",
    ],
)
def test_other_texts_stay_as_they_are(text):
    assert replies_of(Unmarked(text)) == [text]


@each_row("text", HARNESS_TEXTS)
def test_texts_of_the_harness_are_failures_only_where_they_may_be_its_own(text):
    (reply,) = replies_of(Unmarked(text))
    assert failure_cause(reply) == text
    assert_is_plain(*replies_of(Served(completion(text))))
    assert_is_plain(*replies_of(Unmarked(f"{text[:8]}<think>No.</think>{text[8:]}")))


def test_one_reply_too_many_is_none_at_all():
    requests = [request(row=row) for row in range(3)]
    found = replies_of(Model(["A", "B", "B", "C"]), requests)
    assert {failure_cause(reply) for reply in found} == {
        "the model gave 4 replies to 3 requests"
    }


@each_row(
    ("result", "finite"),
    [((1.5, False), True), ("nonsense", False), ((float("nan"), True), False)],
)
def test_likelihoods_are_pairs_or_failed(result, finite):
    (found,) = replies_of(Model([result]), call="loglikelihood")
    assert (parse_loglikelihood(found)[0] == 1.5) is finite
    assert (parse_loglikelihood(found)[0] != parse_loglikelihood(found)[0]) is not finite


def test_kept_replies_are_not_asked_for():
    kept = {("ours", 0, 0): KeptReply("kept"), ("ours", 2, 0): KeptReply("kept, too")}
    model = Model("new")
    requests = [request(row=row) for row in range(4)]
    assert replies_of(model, requests, kept) == ["kept", "new", "kept, too", "new"]
    assert [question.doc_id for question in model.asked] == [1, 3]
    assert replies_of(model, [request(repeats=2)], kept) == ["new"]


def test_a_kept_reply_to_another_prompt_is_asked_for_again(warnings):
    requests = [request(row=row) for row in range(3)]
    for asked in requests:
        asked.arguments = ("Which?",)
    prompts = ["Which one?", "Which?", ""]  # the last one is not recorded
    kept = {
        ("ours", row, 0): KeptReply(f"kept {row}", prompt=prompt)
        for row, prompt in enumerate(prompts)
    }
    assert replies_of(Model("new"), requests, kept) == ["new", "kept 1", "kept 2"]
    assert warnings == [
        "ours has other prompts than in the earlier run; their samples are asked again."
    ]


def completion(content="B", finish="stop", choices=1):
    message = SimpleNamespace(content=content)
    return SimpleNamespace(
        choices=[SimpleNamespace(message=message, finish_reason=finish)] * choices
    )


class Served(Model):
    """Asks a client as the harness's models do."""

    def __init__(self, answer, *, later=False, **options):
        async def create_later(**kwargs):
            return answer

        self.later, self.options = later, options
        create = create_later if later else lambda **kwargs: answer
        self.client = SimpleNamespace(
            chat=SimpleNamespace(completions=SimpleNamespace(create=create))
        )

    def generate_until(self, requests):
        answer = self.client.chat.completions.create(**self.options)
        answer = asyncio.run(answer) if self.later else answer
        return [answer.choices[0].message.content]


@each_row("later", [False, True])
@each_row(
    ("answer", "cause"),
    [
        (completion(None), "the server's answer has no content (finish_reason: stop)"),
        (completion("A", "content_filter"), "the server's content filter stopped the reply"),
        (completion("A", "abort"), "the server broke the reply off (finish_reason: abort)"),
    ],
)
def test_a_server_that_gives_no_reply(answer, cause, later):
    (reply,) = replies_of(Served(copy.deepcopy(answer), later=later))
    assert failure_cause(reply) == cause


@each_row(
    ("content", "finish", "options", "ours", "theirs"),
    [
        ("The answer", "length", {}, "[[medtasks:cut]] The answer", "The answer"),
        (None, "length", {}, "[[medtasks:cut]] ", ""),
        (None, "tool_calls", {"tools": []}, "", ""),  # calls of tools are left alone
        ("I ask", "length", {"tools": []}, "I ask", "I ask"),
    ],
)
def test_what_a_server_says_of_its_reply_is_marked_for_our_tasks_only(
    content, finish, options, ours, theirs
):
    assert replies_of(Served(completion(content, finish), **options)) == [ours]
    assert replies_of(Served(completion(content, finish), **options), [request("theirs")]) == [
        theirs
    ]


@each_row("choices", [0, 2])
def test_a_server_that_gives_no_single_choice_is_asked_again(choices):
    with pytest.raises(ValueError, match=f"holds {choices} choices"):
        replies_of(Served(completion(choices=choices)))


@each_row("field", ["reasoning", "reasoning_content"])
def test_what_the_servers_parser_took_for_reasoning_is_kept_for_our_tasks_only(field):
    def served(finish="stop", content="B"):
        message = ChatCompletionMessage.model_validate(
            {"role": "assistant", "content": content, field: "A? <no>"}
        )
        return Served(
            SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason=finish)])
        )

    (reply,) = replies_of(served())
    assert Reply.of_text(reply) == Reply("B", reasoning="A? <no>")
    (reply,) = replies_of(served("length", ""))
    assert Reply.of_text(reply) == Reply("", cut=True, reasoning="A? <no>")
    assert replies_of(served(), [request("theirs")]) == ["B"]
