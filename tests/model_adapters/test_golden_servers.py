"""``vlm_server`` against recorded answers of real servers, and what ``hf_vlm`` scored on the same checkpoints."""

import contextlib
import json
import math
from dataclasses import replace

import pytest
from medtasks.model_adapters.base.batching import common_length
from medtasks.model_adapters.vlm_server import VlmServer
from medtasks.model_adapters.vlm_server.messages import POSSIBLY_SPECIAL
from PIL import Image

from medtasks.errors import MedTasksError
from medtasks.extract.failure import failure_cause
from medtasks.families.family import Reply

from ..local_server import serving
from ..tables import each_row
from .recorded_server import RECORDINGS, RecordedServer, conversation, read_recording, turns
from .served_model import CHAT, GENERATE, image_of
from .toys import SPLIT, TASK, instances

FOLDERS = sorted(file.parent for file in RECORDINGS.glob("*/exchanges.jsonl"))
ALL = {folder.name: read_recording(folder) for folder in FOLDERS}
CLOSE = 1e-4
pytestmark = pytest.mark.usefixtures("no_certificates")


def cases(chosen=lambda recording: [None]):
    """Every recording with each of what is chosen of it; skipped with a reason where there is none."""
    rows = [(recording, case) for recording in ALL.values() for case in chosen(recording)]
    reason = f"no such recorded exchanges in {RECORDINGS}; set MEDTASKS_GOLDEN"
    return lambda test: pytest.mark.skipif(not rows, reason=reason)(
        each_row("recording, case", rows)(test)
    )


@contextlib.contextmanager
def asking(recording, exchanges, docs, always=None, **arguments):
    """An adapter that asks a server of these exchanges about documents, and the server."""
    model = next(
        one.request["model"]
        for one in recording.exchanges
        if one.role in ("generate", "option")
    )
    with serving(RecordedServer(exchanges, always)) as server:
        given = {
            "model": model,
            "journal": False,
            "loglikelihood_format": "json",
            "attempts": 1,
            "max_failed": 1,
        }
        adapter = VlmServer(base_url=server.base_url, **given | arguments)
        adapter.task_dict = {TASK: {SPLIT: docs}}
        yield adapter, server
        adapter.loop.run(
            adapter.pool.close()
        )  # ``clean`` looks for garbage, too, which takes a while


def scores(adapter, docs):
    requests = []
    for doc_id, doc in enumerate(docs):
        requests += instances("loglikelihood", docs, doc["options"], doc_ids=[doc_id])
    return [json.loads(score) for score, _ in adapter.loglikelihood(requests)]


def tried(work):
    """What comes of it, or why the run stops."""
    try:
        return work()
    except MedTasksError as error:
        return error


def meta_of(recording, server="plain"):
    return [one for one in recording.of(server) if one.role == "meta"]


def reply(adapter, docs, **settings):
    (found,) = adapter.generate_until(
        instances("generate_until", docs, [{"until": [], **settings}], doc_ids=[0])
    )
    return found


def doc_of(recording, question):
    images = [Image.open(recording.folder / "images" / name) for name in question["images"]]
    return {
        "question": question["context"],
        "images": images,
        "options": question["options"],
        "id": question["question"],
    }


def asked_about(exchange):
    """The document that a recorded request is about, and its system prompt; none where it is no such request."""
    if not exchange.is_chat:
        return None
    messages = exchange.request["messages"]
    roles = [message.get("role") for message in messages]
    system = messages[0]["content"] if roles[:1] == ["system"] else None
    if roles not in (["user"], ["system", "user"], ["user", "assistant"]):
        return None
    turn = messages[roles.index("user")]["content"]
    parts = [{"type": "text", "text": turn}] if isinstance(turn, str) else turn or []
    try:
        images = [
            image_of(part["image_url"]["url"]) for part in parts if part["type"] == "image_url"
        ]
    except (OSError, ValueError, IndexError):
        return None
    first = all(part["type"] == "image_url" for part in parts[: len(images)])
    marked = "".join(part.get("text", "<image>") for part in parts)
    text = "".join(part.get("text", "") for part in parts) if first else marked
    option = messages[-1]["content"] if roles[-1] == "assistant" else None
    option = (
        option if isinstance(option, str | None) else "".join(part["text"] for part in option)
    )
    return {"question": text, "images": images, "options": [option]}, system


def assert_close(found, expected):
    assert found["sum"] == pytest.approx(expected["sum"], rel=0, abs=CLOSE)
    assert found["mean"] == pytest.approx(expected["mean"], rel=0, abs=CLOSE)
    assert (found["tokens"], found["greedy"]) == (expected["tokens"], expected["greedy"])


def assert_score(found, expected, doc):
    """A score is that of ``hf_vlm``; a text that the model would read as a special token has none on purpose."""
    if math.isnan(found["mean"]):
        assert any(map(POSSIBLY_SPECIAL.findall, [doc["question"], *doc["options"]])), doc["id"]
    elif expected is not None:
        assert_close(found, expected)


def told(exchange, start=None):
    """What an answer with scores of a prompt says about its last tokens."""
    answer = exchange.response
    pairs = list(zip(answer["prompt_token_ids"], answer["prompt_logprobs"], strict=True))[
        start:
    ]
    entries = [values[str(token)] for token, values in pairs]
    total = -sum(one["logprob"] for one in entries)
    greedy = all(one["rank"] == 1 for one in entries)
    return {
        "sum": total,
        "mean": total / len(entries),
        "tokens": len(entries),
        "greedy": greedy,
    }


@each_row("way", ["auto", "prompt_logprobs"])
@cases()
def test_golden_scores_are_those_of_hf_vlm(recording, case, way):
    docs = [doc_of(recording, question) for question in recording.questions]
    with asking(recording, recording.of(), docs, likelihood=way) as (adapter, server):
        found = iter(scores(adapter, docs))
    expected = {(one["question"], one["option"]): one for one in recording.expected}
    for doc in docs:
        for number in range(len(doc["options"])):
            assert_score(next(found), expected.get((doc["id"], number)), doc)
    assert not [
        body
        for path, body in server.unknown
        if path == CHAT and "logprob_token_ids" not in body
    ]


@cases(
    lambda recording: [
        one for one in recording.of() if one.role == "letters" and one.row.get("question")
    ]
)
def test_golden_letters_are_scored_in_one_request(recording, case):
    question = next(
        one for one in recording.questions if one["question"] == case.row["question"]
    )
    doc = doc_of(recording, {**question, "options": case.row["options"]})
    with asking(recording, recording.of(), [doc]) as (adapter, server):
        proven, found = scores(adapter, [doc]), scores(adapter, [doc])
    assert case.id in server.used or all(math.isnan(one["mean"]) for one in found)
    rows = {one["text"]: one for one in recording.expected if one["question"] == doc["id"]}
    for option, *both in zip(doc["options"], proven, found, strict=True):
        for one in both:
            assert_score(one, rows.get(option), doc)


def replies_of(recording):
    """Exchanges that hold a reply, or what stands in its place."""
    asked = {"prompt_logprobs", "continue_final_message", "logprobs", "chat_template"}
    chats = [
        one for one in recording.exchanges if one.is_chat and not asked & one.request.keys()
    ]
    return [
        one for one in chats if one.server != "dying" and one.status == 200 and asked_about(one)
    ]


def meant(exchange):
    """What a recorded answer says, as it is kept; None where it is no reply."""
    response = exchange.response
    choices = response.get("choices") if isinstance(response, dict) else None
    if not choices or len(choices) > 1:
        return None
    (choice,) = choices
    content, cut = choice["message"]["content"], choice["finish_reason"] == "length"
    if content is None and not cut:
        return None
    reasoning = (
        choice["message"].get("reasoning") or choice["message"].get("reasoning_content") or ""
    )
    return Reply(text=(content or "").strip(), cut=cut, reasoning=reasoning)


@cases(replies_of)
def test_golden_replies_are_the_recorded_ones(recording, case, monkeypatch):
    doc, system = asked_about(case)
    if case.key:
        monkeypatch.setenv("MEDTASKS_SERVER_API_KEY", case.key)
    ours = {"model", "messages", "max_tokens", "temperature", "stop"}
    own = {"return_token_ids", "return_prompt_text"}
    extra = {name: value for name, value in case.request.items() if name not in ours | own}
    settings = {
        "max_new_tokens": case.request["max_tokens"],
        "until": case.request.get("stop") or [],
    }
    temperature = case.request.get("temperature", 0)
    arguments = {"system_prompt": system, "extra_body": json.dumps(extra) if extra else None}
    with asking(recording, [*meta_of(recording, case.server), case], [doc], **arguments) as (
        adapter,
        server,
    ):
        found = reply(
            adapter, [doc], temperature=temperature, do_sample=temperature > 0, **settings
        )
    asked = [body for path, body in server.asked if path == CHAT]
    if "does not read as text" in str(
        failure_cause(str(found.text))
    ):  # the recorded reply is to another prompt
        assert POSSIBLY_SPECIAL.findall(doc["question"] + (system or ""))
        assert not any(conversation(body) == conversation(case.request) for body in asked)
        return
    assert conversation(asked[0]) == conversation(case.request)
    wanted = meant(case)
    if wanted is None:
        assert failure_cause(found.text)
    else:
        assert Reply.of_text(found.text) == wanted
        assert found.token_counts.output_tokens == case.response["usage"]["completion_tokens"]
        assert found.token_counts.input_tokens == case.response["usage"]["prompt_tokens"]


def failures_of(recording):
    return [
        one
        for one in recording.exchanges
        if one.status >= 400 and one.path in (CHAT, GENERATE, "/v1/models")
    ]


@cases(failures_of)
def test_golden_failures_are_no_answers(recording, case):
    doc = {"question": "Is it clear?", "images": [], "options": [" yes", " no"]}
    with asking(recording, meta_of(recording), [doc], case) as (adapter, _):
        replied, scored = (
            tried(lambda: reply(adapter, [doc], max_new_tokens=4).text),
            tried(lambda: scores(adapter, [doc])),
        )
    assert isinstance(scored, MedTasksError) or all(math.isnan(one["sum"]) for one in scored)
    assert isinstance(replied, MedTasksError) or failure_cause(replied)
    error = case.response
    if isinstance(error, dict):
        error = error.get("error", error.get("detail", ""))
    words = error if isinstance(error, str) else error["message"]
    assert not words or words not in str(replied)
    concerns_all = case.status in (401, 403) or (
        case.status == 404 and "model" in str(case.response)
    )
    assert isinstance(replied, MedTasksError) == concerns_all


def question_of(request):
    """The turns of a request without what the model is to go on with."""
    found = turns(request["messages"])
    return found[:-1] if found[-1][0] == "assistant" else found


def context_of(recording, exchange, **fields):
    """What the server rendered for the question of an exchange under the same template."""
    wanted = {**exchange.request, **fields}
    for one in recording.exchanges:
        if not one.is_chat or one.status != 200 or not isinstance(one.response, dict):
            continue
        role, parts = turns(one.request["messages"])[-1]
        is_bare = role == "user" or (not parts and one.request.get("continue_final_message"))
        alike = all(
            one.request.get(name) == wanted.get(name)
            for name in ("chat_template", "chat_template_kwargs")
        )
        has_all = one.response.get("prompt_text") and one.response.get("prompt_token_ids")
        if is_bare and alike and has_all and question_of(one.request) == question_of(wanted):
            messages = [turn for turn in one.request["messages"] if turn["role"] != "assistant"]
            return one.asked(
                messages=messages, continue_final_message=None, add_generation_prompt=None
            )
    return None


def options_of(recording):
    """Exchanges that go on with an assistant turn, whether rightly or not."""
    chats = [
        one
        for one in recording.exchanges
        if one.is_chat and one.role != "error" and asked_about(one)
    ]
    return [
        one
        for one in chats
        if not one.row.get("question") and asked_about(one)[0]["options"][0]
    ]


def served(exchange, **fields):
    """An exchange of a server that was started with the template, and asked as we ask."""
    asked = exchange.asked(
        chat_template=None, continue_final_message=True, add_generation_prompt=False, **fields
    )
    return replace(asked, key=None)


def continued(server):
    """The last turn that a server was asked to go on with."""
    return next(
        body["messages"][-1]["content"]
        for path, body in reversed(server.asked)
        if path == CHAT and body["messages"][-1]["role"] == "assistant"
    )


@cases(
    lambda recording: [
        option for option in options_of(recording) if context_of(recording, option)
    ]
)
def test_golden_boundaries_are_proven_mended_or_refused(recording, case):
    """An option is scored where the template is what was recorded: right, mended, or refused with its reason."""
    context, option = context_of(recording, case), case
    doc, _ = asked_about(option)
    (text,) = doc["options"]
    fields = {"chat_template_kwargs": context.request.get("chat_template_kwargs")}
    exchanges = [
        *meta_of(recording),
        context.asked(chat_template=None),
        served(option, **fields),
    ]
    with asking(recording, exchanges, [doc]) as (adapter, server):
        found = tried(lambda: scores(adapter, [doc]))
    before = context.response["prompt_text"]
    if option.status != 200:
        assert "refuses an open assistant turn" in str(found)
        return
    rendered = option.response["prompt_text"]
    opened = rendered.removesuffix(text)
    if rendered == before + text:
        start = common_length(
            context.response["prompt_token_ids"], option.response["prompt_token_ids"]
        )
        assert_close(found[0], told(option, start))
        return
    assert isinstance(found, MedTasksError) or math.isnan(found[0]["sum"])
    added = opened.removeprefix(before) if opened.startswith(before) else ""
    if rendered.endswith(text) and before.startswith(opened):
        assert continued(server) == before.removeprefix(opened) + text
    elif added and text.startswith(added):
        assert continued(server) == text.removeprefix(added)
    else:
        assert "chat template" in str(found)
        assert (
            repr(added) in str(found)
            if added and rendered.endswith(text)
            else "reply" in str(found)
        )


def token_ids_of(recording):
    """Exchanges by token ids, where the same was recorded as text too."""
    chat, sent = recording.get("tokens/chat"), recording.get("tokens/one-placeholder")
    has_text = chat is not None and sent is not None and context_of(recording, chat) is not None
    return [
        one
        for one in recording.of("open")
        if one.path == GENERATE and one.status == 200 and has_text
    ]


@cases(token_ids_of)
def test_golden_token_ids_where_the_template_refuses_options(recording, case):
    chat = recording.get("tokens/chat")
    context = context_of(recording, chat)
    base, whole = context.response["prompt_token_ids"], chat.response["prompt_token_ids"]
    sent = recording.get("tokens/one-placeholder").request["token_ids"]
    refusal = replace(
        served(chat),
        status=400,
        response={"error": {"message": "Only user turns are supported"}},
    )
    doc, _ = asked_about(chat)
    common = common_length(base, whole)
    alone = [*sent[: len(sent) - (len(whole) - common)], *base[common:]]
    texts = {context.response["prompt_text"]: alone, chat.response["prompt_text"]: sent}
    tokenized = []
    for text, ids in texts.items():
        request = {"model": chat.request["model"], "prompt": text, "add_special_tokens": False}
        tokenized.append(
            replace(
                chat,
                id="tokenized",
                path="/tokenize",
                request=request,
                response={"tokens": ids},
            )
        )
    exchanges = [*meta_of(recording), context, refusal, *tokenized, case]
    with asking(recording, exchanges, [doc]) as (adapter, server):
        found = tried(lambda: scores(adapter, [doc]))
    (asked,) = [body for path, body in server.asked if path == GENERATE]
    assert asked["token_ids"] == sent
    if case.request["token_ids"] == sent:
        assert_close(found[0], told(chat, common))
        assert_close(found[0], told(case, common))
    else:  # ids with all positions of the images, which are never sent
        assert case.id not in server.used
        assert isinstance(found, MedTasksError)
