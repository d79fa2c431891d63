"""What the harness's models give in place of replies: which of its files do so, and what becomes of it."""

import ast
import asyncio
import re
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from lmms_eval.api.instance import GenerationResult, Instance, TokenCounts, unwrap_generation_output
from medtasks.model_adapters.base.batching import CountedReply as Counted
from openai.types.chat import ChatCompletionMessage

from medtasks.extract.failure import cut_reply, failed_reply, failure_cause
from medtasks.families.family import Reply
from medtasks.lmms.earlier_replies import KeptReplies
from medtasks.lmms.model_failures import EMPTY_AFTER_ERRORS, ERROR_TEXTS, watched
from medtasks.runs.reply_envelope import parse_loglikelihood

from ..tables import each_row
from .model_sources import model_sources

KINDS = ("chat", "simple")


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {f"{file.parent.name}.{file.stem}": tree for file, tree in model_sources() if file.parent.name in KINDS}


# ---- every file of the harness ----


def _given(nodes: Sequence[ast.AST]) -> Iterator[ast.expr]:
    """Yield what code assigns, returns and appends, list members one by one."""
    for node in (below for top in nodes for below in ast.walk(top)):
        values: list[Any] = []
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return):
            values = [node.value]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("append", "extend")
        ):
            values = list(node.args)
        for value in values:
            if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "GenerationResult":
                value = next((one.value for one in value.keywords if one.arg == "text"), value)
            value = value.left if isinstance(value, ast.BinOp) else value
            yield from value.elts if isinstance(value, ast.List | ast.Tuple) else [value] if value else []


def _text(value: ast.expr) -> str | None:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    return ast.unparse(value)[2:-1] if isinstance(value, ast.JoinedStr) else None


def _silent_blocks(tree: ast.AST) -> Iterator[Sequence[ast.AST]]:
    """Yield code that stands in for a reply: after an exception, or when the budget is used up."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) or (
            isinstance(node, ast.If) and "is_budget_exceeded" in ast.unparse(node.test)
        ):
            yield node.body


def _presets(tree: ast.AST) -> bool:
    """Return whether a name is set to an empty text before a ``try`` that sets it and swallows its exception."""
    for node in ast.walk(tree):
        empty: set[str] = set()
        for line in getattr(node, "body", None) if isinstance(getattr(node, "body", None), list) else ():
            if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name) and _text(line.value) == "":
                empty.add(line.targets[0].id)
            if isinstance(line, ast.Try) and not any(
                isinstance(one, ast.Raise) for h in line.handlers for one in ast.walk(h)
            ):
                set_there = {
                    target.id
                    for inner in line.body
                    for one in ast.walk(inner)
                    if isinstance(one, ast.Assign)
                    for target in one.targets
                    if isinstance(target, ast.Name)
                }
                if set_there & empty:
                    return True
    return False


def test_every_file_that_gives_an_empty_text_after_an_exception_is_known(trees):
    found = {
        name
        for name, tree in trees.items()
        if _presets(tree) or any(_text(value) == "" for block in _silent_blocks(tree) for value in _given(block))
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


KNOWN_NOT_TO_BE_REPLIES = [("chat.async_openai", "Error: {str(e)}")]  # of an addition to a text: see failure.py


# ---- what becomes of it ----


class Model:
    """A model of the harness as far as it is watched."""

    def __init__(self, replies):
        self.replies = replies

    def generate_until(self, requests):
        self.asked = list(requests)
        return self.replies if isinstance(self.replies, list) else [self.replies] * len(requests)

    loglikelihood = generate_until


def of_module(module):
    """Return a class whose ``generate_until`` lies in a module of the harness."""
    made = type("Made", (Model,), {"generate_until": lambda self, requests: Model.generate_until(self, requests)})
    made.generate_until.__module__ = f"lmms_eval.models.{module}"
    return made


def request(task="ours", row=0, number=0, repeats=1):
    kind = "generate_until"
    return Instance(kind, ("",), number, {"task": task, "doc_id": row, "repeats": repeats})


def replies_of(model, requests=None, kept=None, call="generate_until"):
    with watched(model, {"ours"}, kept or KeptReplies()):
        found = getattr(model, call)(requests or [request()])
    return [unwrap_generation_output(one)[0] if call == "generate_until" else one for one in found]


@each_row(
    "text",
    [
        None,
        GenerationResult(None, TokenCounts()),
        "[LMMS_EVAL_REQUEST_FAILED after 5 retries] Connection error. The answer is B",
        GenerationResult("[LMMS_EVAL_BUDGET_EXCEEDED]", TokenCounts()),
        'Error: can only concatenate str (not "NoneType") to str',
        "[SAFETY_BLOCKED:OTHER]",
        7,
    ],
)
def test_failures_of_any_model_are_marked(text):
    (reply,) = replies_of(of_module("chat.openai")(text))
    assert failure_cause(reply) is not None
    assert reply.startswith(failed_reply(""))


def test_an_empty_text_is_a_reply_unless_the_model_also_gives_it_after_an_error():
    assert replies_of(of_module("chat.openai")("")) == [""]
    (reply,) = replies_of(of_module("simple.llava")(" \n"))
    assert failure_cause(reply) == "an empty text, which simple.llava of lmms-eval also gives after an error"


def test_words_of_one_model_are_replies_of_another():
    text = "Video a.mp4 can not load, check the source"
    assert failure_cause(replies_of(of_module("simple.oryx")(text))[0]) == text
    assert replies_of(of_module("simple.llava")(text)) == [text]


def test_counts_of_tokens_stay():
    counts = TokenCounts(1, 2)
    with watched(model := of_module("chat.openai")(GenerationResult("B", counts)), {"ours"}, KeptReplies()):
        assert model.generate_until([request()]) == [GenerationResult("B", counts)]


@each_row("place", [1, 2])  # of the settings, in requests to simple and to chat models
def test_reasoning_that_reached_the_limit_of_tokens_was_cut(place):
    asked = request("mediconfusion_think")
    asked.arguments = ("", *[len] * (place - 1), {"max_new_tokens": 8, "until": []})
    said = [Counted("So A", 7, 8), Counted("So A", 7, 7), "So A", Counted(failed_reply("x"), 7, 8)]
    said += [GenerationResult("So A", TokenCounts(7, 8)), Counted(cut_reply("So A"), 7, 8)]
    with watched(model := Model(said), {"mediconfusion_think"}, KeptReplies()):
        found = model.generate_until([asked] * len(said))
    texts = [unwrap_generation_output(one)[0] for one in found]
    cut = cut_reply("So A")
    assert texts == [cut, "So A", "So A", failed_reply("x"), cut, cut]
    other = request("mediconfusion")  # whose replies end at their limit as ever
    other.arguments = asked.arguments
    with watched(model := Model(said[:1]), {"mediconfusion"}, KeptReplies()):
        assert model.generate_until([other]) == ["So A"]


def test_one_reply_too_many_is_none_at_all():
    requests = [request(row=row) for row in range(3)]
    found = replies_of(Model(["A", "B", "B", "C"]), requests)
    assert {failure_cause(reply) for reply in found} == {"the model gave 4 replies to 3 requests"}


def test_other_tasks_get_what_the_model_gave():
    text = "[LMMS_EVAL_REQUEST_FAILED after 5 retries] no"
    assert replies_of(of_module("simple.llava")(text), [request("theirs")]) == [text]
    assert replies_of(of_module("simple.llava")(""), [request("theirs")]) == [""]


@each_row(("result", "finite"), [((1.5, False), True), ("nonsense", False), ((float("nan"), True), False)])
def test_likelihoods_are_pairs_or_failed(result, finite):
    (found,) = replies_of(Model([result]), call="loglikelihood")
    assert (parse_loglikelihood(found)[0] == 1.5) is finite
    assert (parse_loglikelihood(found)[0] != parse_loglikelihood(found)[0]) is not finite


def test_kept_replies_are_not_asked_for():
    kept = KeptReplies({("ours", 0, 0): "kept", ("ours", 2, 0): "kept, too"})
    model = Model("new")
    requests = [request(row=row) for row in range(4)]
    assert replies_of(model, requests, kept) == ["kept", "new", "kept, too", "new"]
    assert [one.doc_id for one in model.asked] == [1, 3]
    assert replies_of(model, [request(repeats=2)], kept) == ["new"]


def test_the_model_is_as_before_behind_the_block():
    model = Model("x")
    replies_of(model)
    assert vars(model).keys() == {"replies", "asked"}


# ---- what a server says beside the text ----


def completion(content="B", finish="stop", choices=1):
    message = SimpleNamespace(content=content)
    return SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason=finish)] * choices)


class Served(Model):
    """Asks a client as the harness's models do."""

    def __init__(self, answer, *, later=False, **options):
        async def create_later(**kwargs):
            return answer

        self.later, self.options = later, options
        create = create_later if later else lambda **kwargs: answer
        self.client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))

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
    (reply,) = replies_of(Served(answer, later=later))
    assert failure_cause(reply) == cause


@each_row("choices", [0, 2])
def test_a_server_that_gives_no_single_choice_is_asked_again(choices):
    with pytest.raises(ValueError, match=f"holds {choices} choices"):
        replies_of(Served(completion(choices=choices)))


def test_a_reply_cut_by_the_server_says_so_to_our_tasks_only():
    assert replies_of(Served(completion("The answer", "length"))) == ["[[medtasks:cut]] The answer"]
    assert replies_of(Served(completion(None, "length"))) == ["[[medtasks:cut]] "]
    assert replies_of(Served(completion("The answer", "length")), [request("theirs")]) == ["The answer"]
    assert replies_of(Served(completion(None)), [request("theirs")]) == [""]


@each_row("field", ["reasoning", "reasoning_content"])
def test_what_the_servers_parser_took_for_reasoning_is_kept_for_our_tasks_only(field):
    def served(finish="stop", content="B"):
        message = ChatCompletionMessage.model_validate({"role": "assistant", "content": content, field: "A? <no>"})
        return Served(SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason=finish)]))

    (reply,) = replies_of(served())
    assert Reply.of_text(reply) == Reply("B", reasoning="A? <no>")
    (reply,) = replies_of(served("length", ""))
    assert Reply.of_text(reply) == Reply("", cut=True, reasoning="A? <no>")
    assert replies_of(served(), [request("theirs")]) == ["B"]


def test_calls_of_tools_are_left_alone():
    assert replies_of(Served(completion(None, "tool_calls"), tools=[])) == [""]
    assert replies_of(Served(completion("I ask", "length"), tools=[])) == ["I ask"]
