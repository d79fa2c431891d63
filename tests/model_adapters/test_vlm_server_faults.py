"""``vlm_server`` on a server that fails: a right answer, a failed sample, or the run stops; never a made-up answer."""

import json
import math
import socket
import ssl
import struct
import threading
import time

import pytest
from medtasks.model_adapters.vlm_server import VlmServer, client

from medtasks.errors import MedTasksError
from medtasks.extract.failure import cut_reply, failure_cause, without_cut_mark, without_reasoning

from ..local_server import serving
from .served_model import CHAT, ServedModel
from .toys import SPLIT, TASK, instances, noise, to_visual

SECRET = "Jane Doe"
DOCS = [{"question": f"{number}: {SECRET}?", "image": noise(number)} for number in range(5)]
OPTIONS = ("yes", "B")
KINDS = ("generation", "scoring")
LONG = "This model's maximum context length is 9 tokens"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Short pauses, and no certificates for clients that speak plain HTTP."""
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: None)
    monkeypatch.setattr(client, "_BACKOFF_S", 0.001)
    monkeypatch.setattr(client, "_IN_A_ROW", 3)
    monkeypatch.setattr(client, "_LONGEST_BACKOFF_S", 0.005)


def saying(body):
    """A reply that no other question gets."""
    return f"Reply {json.dumps(body['messages']).split(f': {SECRET}')[0][-1]}"


class FaultyModel(ServedModel):
    """``fault`` happens to the chat requests of these numbers, counted from 0; all else is answered."""

    def __init__(self, fault=None, numbers=()):
        super().__init__(reply=saying, before=self._before, change=self._change)
        self.fault, self.numbers = fault, numbers
        self.count = self.busy = self.most = 0
        self.times = []
        self.faulty = threading.local()
        self.over = threading.Event()

    def _before(self, handler, path, body):
        self.faulty.now = False
        if path != CHAT:
            return False
        with self.lock:
            number, self.count = self.count, self.count + 1
            self.times.append(time.monotonic())
        if self.fault is None or number not in self.numbers:
            return False
        self.faulty.now = True
        return CONNECTIONS[self.fault](handler) if self.fault in CONNECTIONS else False

    def _change(self, path, body, answer):
        if path == CHAT and self.faulty.now:
            answer = CHANGES[self.fault](answer)
        return answer


# ---- what a server does in place of an answer ----


def status(code, message="", kind="application/json", headers=None, **error):
    body = {"error": {"message": f"{message} {SECRET} yes B", "code": code, **error}} if kind != "text/html" else "<B>"

    def answer(handler):
        handler.reply(code, json.dumps(body).encode(), Content_Type=kind, **(headers or {}))
        return True

    return answer


def closed(sent=0.0, reset=False):
    """The connection ends before an answer, or in the middle of it."""

    def answer(handler):
        body = b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}}]}'
        if sent:
            handler.send_response(200)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body[: int(sent * len(body))])
        if reset:
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.close_connection = True
        handler.connection.shutdown(socket.SHUT_RDWR) if not reset else None
        socket.close(handler.connection.detach())
        return True

    return answer


def plain(body, kind="text/plain"):
    def answer(handler):
        handler.reply(200, body, Content_Type=kind)
        return True

    return answer


def hanging(handler):
    handler.server.over.wait(5)
    handler.close_connection = True
    return True


CONNECTIONS = {
    **{name: status(int(name)) for name in ("401", "403", "408", "413", "422", "429", "500", "502", "503", "504")},
    "404": status(404, "The model does not exist.", param="model"),
    "400": status(400, LONG),
    "400i": status(400, "Failed to load image"),
    "400m": status(400),
    "500h": status(502, kind="text/html"),
    "429 later": status(429, headers={"Retry_After": "900"}),
    "hang": hanging,
    "reset": closed(reset=True),
    "reset2": closed(0.5, reset=True),
    "half": closed(0.5),
    "cut": plain(b'{"choices": [{"index": 0, "message": {"rol', "application/json"),
    "text": plain(b"yes"),
    "empty": plain(b""),
    "error200": plain(json.dumps({"error": {"message": f"B {SECRET}"}}).encode(), "application/json"),
}


def chosen(**fields):
    """Changes of the first choice; those of its message, too."""

    def change(answer):
        (choice,) = answer["choices"]
        message = {name: fields[name] for name in ("content", "reasoning", "reasoning_content") if name in fields}
        rest = {name: value for name, value in fields.items() if name not in message}
        return {**answer, "choices": [{**choice, "message": {**choice["message"], **message}, **rest}]}

    return change


def valued(value):
    """Every log-probability is another."""

    def change(answer):
        return json.loads(
            json.dumps(answer), object_hook=lambda one: {**one, "logprob": value(one)} if "logprob" in one else one
        )

    return change


def without_logprobs(answer):
    lost = {"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None}
    return {**chosen(logprobs=None)(answer), **lost}


CHANGES = {
    "null": chosen(content=None),
    "number": chosen(content=3),
    "reasoning": chosen(content=None, reasoning="A or B?", finish_reason="length"),
    "reasoning2": chosen(content=None, reasoning_content="A or B?", finish_reason="length"),
    "blank": chosen(content=""),
    "length": chosen(finish_reason="length"),
    "filter": chosen(content=None, finish_reason="content_filter"),
    "tool": chosen(content=None, finish_reason="tool_calls"),
    "ended": chosen(finish_reason=f"yes {SECRET}"),
    "nochoices": lambda answer: {**answer, "choices": []},
    "nulls": lambda answer: {**answer, "choices": None},
    "twice": lambda answer: {**answer, "choices": answer["choices"] * 2},
    "othermodel": lambda answer: {**answer, "model": "another"},
    "nologprobs": without_logprobs,
    "shortlogprobs": lambda answer: {**answer, "prompt_logprobs": (answer["prompt_logprobs"] or [])[:-1] or None},
    "otherids": lambda answer: {**answer, "prompt_token_ids": [7, *(answer["prompt_token_ids"] or [])[1:]]},
    "nan": valued(math.nan),
    "minusinf": valued(-9999.0),
    "text value": valued(SECRET),
    "positive": valued(0.5),
}

# ---- what has to come of it ----

RIGHT, FAILED, EMPTY, CUT, THOUGHT = ENDS = ("right", "failed", "empty", "cut", "thought")
# Words of the sentence with which the run stops.
GONE, KEY, NO_MODEL, LATER = "the run stops, and", "MEDTASKS_SERVER_API_KEY", "check model=", "asks to wait 900 s"
NO_SCORES = "gives no likelihoods|cannot score options"
# Of each kind: when it happens to the second chat request, and when to all of them.
PASSING = ((RIGHT, GONE), (RIGHT, GONE))
SAMPLE = ((FAILED, FAILED), (FAILED, FAILED))
REPLY = ((FAILED, FAILED), (RIGHT, RIGHT))
SCORE = ((RIGHT, RIGHT), (FAILED, FAILED))
MISSING = ((RIGHT, RIGHT), (NO_SCORES, NO_SCORES))
EXPECTED = {
    **dict.fromkeys(("408", "429", "500", "502", "503", "504", "500h", "hang", "reset", "reset2"), PASSING),
    **dict.fromkeys(("half", "cut", "text", "empty", "error200"), PASSING),
    **dict.fromkeys(("401", "403"), ((KEY, KEY), (KEY, KEY))),
    "404": ((NO_MODEL, NO_MODEL), (NO_MODEL, NO_MODEL)),
    "429 later": ((LATER, LATER), (LATER, LATER)),
    **dict.fromkeys(("400", "400i", "413", "nochoices", "nulls", "twice", "othermodel"), SAMPLE),
    # The second request of a scoring is the first open turn: a server that takes none cannot score.
    **dict.fromkeys(("400m", "422"), ((FAILED, FAILED), (NO_SCORES, FAILED))),
    **dict.fromkeys(("null", "number", "filter", "tool", "ended"), REPLY),
    **dict.fromkeys(("reasoning", "reasoning2"), ((THOUGHT, THOUGHT), (RIGHT, RIGHT))),
    "blank": ((EMPTY, EMPTY), (RIGHT, RIGHT)),
    "length": ((CUT, CUT), (RIGHT, RIGHT)),
    **dict.fromkeys(("nologprobs", "shortlogprobs"), MISSING),
    "otherids": ((RIGHT, RIGHT), (FAILED, RIGHT)),  # ids before the option's own only have to stay as they are
    **dict.fromkeys(("nan", "minusinf", "text value", "positive"), SCORE),
}


def requests(kind, docs=DOCS):
    if kind == "scoring":
        return instances("loglikelihood", docs, OPTIONS, to_visual)
    return instances("generate_until", docs, [{"until": ["\n\n"], "max_new_tokens": 12, "temperature": 0}], to_visual)


def adapter(*servers, docs=DOCS, **arguments):
    given = {"concurrency": 1, "timeout": 20, "attempts": 3, "max_failed": 1, "journal": False, **arguments}
    lm = VlmServer(base_url=";".join(server.base_url for server in servers), **given)
    lm.task_dict = {TASK: {SPLIT: docs}}
    return lm


def asked(lm, kind, docs=DOCS):
    """Replies as text, scores as they are."""
    if kind == "scoring":
        return lm.loglikelihood(requests(kind, docs))
    return [reply.text for reply in lm.generate_until(requests(kind, docs))]


@pytest.fixture(scope="module")
def right():
    with serving(FaultyModel()) as server:
        return {kind: asked(adapter(server), kind) for kind in KINDS}


def is_failed(answer):
    return failure_cause(answer) is not None if isinstance(answer, str) else math.isnan(answer[0]) and not answer[1]


def is_right(answer, expected):
    return answer == (expected if isinstance(answer, str) else pytest.approx(expected, abs=1e-9))


def is_as(outcome, answer, expected):
    """Whether an answer is what a faulty exchange has to become."""
    if outcome == THOUGHT:
        text, is_cut = without_cut_mark(answer)
        return is_cut and without_reasoning(text) == ("", "A or B?")
    wanted = {RIGHT: expected, EMPTY: "", CUT: cut_reply(expected) if isinstance(expected, str) else None}
    return is_failed(answer) if outcome == FAILED else is_right(answer, wanted[outcome])


@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", EXPECTED)
def test_each_fault(fault, kind, for_ever, right, log):
    outcome = EXPECTED[fault][KINDS.index(kind)][for_ever]
    with serving(FaultyModel(fault, range(10**6) if for_ever else [1])) as server:
        try:
            got = asked(adapter(server, timeout=0.1 if fault == "hang" else 20), kind)
        except MedTasksError as error:
            said = str(error)
            assert outcome not in ENDS, said
            assert any(word in said for word in outcome.split("|")), said
        else:
            said = "".join(reply for reply in got if isinstance(reply, str) and is_failed(reply))
            pairs = list(zip(got, right[kind], strict=True))
            hit = [is_as(outcome, *pair) for pair in pairs]
            if for_ever:
                assert all(hit)
            else:
                touched = 1 if kind == "generation" else len(OPTIONS)
                assert sum(not is_right(*pair) for pair in pairs) == (0 if outcome == RIGHT else touched)
                assert all(is_right(*pair) or good for pair, good in zip(pairs, hit, strict=True))
            failed = sum(is_failed(answer) for answer in got)
            assert len([line for line in log if "WARNING" in line and " failed on " in line]) == failed
        server.over.set()
    assert SECRET not in said + "".join(log)
