"""``vlm_server`` on a server that fails: a right answer, a failed sample, or the run stops; never a made-up answer."""

import asyncio
import itertools
import json
import math
import socket
import struct
import threading
import time

import pytest
from medtasks.model_adapters.vlm_server import VlmServer, server_client

from medtasks.errors import MedTasksError
from medtasks.extract.failure import (
    cut_reply,
    failure_cause,
    without_cut_mark,
    without_reasoning,
)
from medtasks.net import chat_client
from medtasks.net.chat_client import AdaptiveLimit

from ..local_server import serving
from ..tables import each_row
from .served_model import CHAT, ServedModel
from .toys import SPLIT, TASK, instances, noise, to_visual

SECRET = "Jane Doe"
DOCS = [{"question": f"{number}: {SECRET}?", "image": noise(number)} for number in range(5)]
OPTIONS = ("yes", "B")
KINDS = ("generation", "scoring")
KEY_TEXT = "key-of-the-test"
LONG = "This model's maximum context length is 9 tokens"


@pytest.fixture(autouse=True)
def quick(monkeypatch, no_certificates):
    monkeypatch.setattr(server_client, "_BACKOFF_S", 0.001)
    monkeypatch.setattr(server_client, "_IN_A_ROW", 3)
    monkeypatch.setattr(chat_client, "_LONGEST_BACKOFF_S", 0.005)


def saying(body):
    return f"Reply {json.dumps(body['messages']).split(f': {SECRET}')[0][-1]}"


class FaultyModel(ServedModel):
    """``fault`` happens to the chat requests of these numbers, counted from 0; all else is answered."""

    def __init__(self, fault=None, numbers=(), before=None):
        super().__init__(reply=saying, before=before or self._before, change=self._change)
        self.fault, self.numbers, self.count = fault, numbers, 0
        self.faulty = threading.local()
        self.over = threading.Event()

    def _before(self, handler, path, body):
        self.faulty.now = False
        if path != CHAT:
            return False
        with self.lock:
            number, self.count = self.count, self.count + 1
        if self.fault is None or number not in self.numbers:
            return False
        self.faulty.now = True
        return CONNECTIONS[self.fault](handler) if self.fault in CONNECTIONS else False

    def _change(self, path, body, answer):
        if path == CHAT and getattr(self.faulty, "now", False):
            answer = CHANGES[self.fault](answer)
        return answer


def status(code, message="", kind="application/json", headers=None, **error):
    body = (
        {"error": {"message": f"{message} {SECRET} yes B", "code": code, **error}}
        if kind != "text/html"
        else "<B>"
    )

    def answer(handler):
        handler.reply(code, json.dumps(body).encode(), Content_Type=kind, **(headers or {}))
        return True

    return answer


def closed(sent=0.0, reset=False):
    """The connection ends before an answer, or in the middle of it."""

    def answer(handler):
        body = (
            b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}}]}'
        )
        if sent:
            handler.send_response(200)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body[: int(sent * len(body))])
        if reset:
            handler.connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
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
    handler.server.over.wait()
    handler.close_connection = True
    return True


CONNECTIONS = {
    **{name: status(int(name)) for name in ("401", "403", "413", "422", "429", "500", "503")},
    "404": status(404, "The model does not exist.", param="model"),
    "400": status(400, LONG),
    "400i": status(400, "Failed to load image"),
    "400m": status(400),
    "500h": status(502, kind="text/html"),
    "429 later": status(429, headers={"Retry_After": "900"}),
    "hang": hanging,
    "reset": closed(reset=True),
    "half": closed(0.5),
    "cut": plain(b'{"choices": [{"index": 0, "message": {"rol', "application/json"),
    "text": plain(b"yes"),
    "error200": plain(
        json.dumps({"error": {"message": f"B {SECRET}"}}).encode(), "application/json"
    ),
}


def chosen(**fields):
    """Changes of the first choice; those of its message, too."""

    def change(answer):
        (choice,) = answer["choices"]
        message = {name: fields[name] for name in ("content", "reasoning") if name in fields}
        rest = {name: value for name, value in fields.items() if name not in message}
        return {
            **answer,
            "choices": [{**choice, "message": {**choice["message"], **message}, **rest}],
        }

    return change


def valued(value):
    """Every log-probability is another."""

    def other(part):
        return {**part, "logprob": value} if "logprob" in part else part

    return lambda answer: json.loads(json.dumps(answer), object_hook=other)


def without_logprobs(answer):
    lost = {"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None}
    return {**chosen(logprobs=None)(answer), **lost}


CHANGES = {
    "null": chosen(content=None),
    "number": chosen(content=3),
    "reasoning": chosen(content=None, reasoning="A or B?", finish_reason="length"),
    "blank": chosen(content=""),
    "length": chosen(finish_reason="length"),
    "filter": chosen(content=None, finish_reason="content_filter"),
    "ended": chosen(finish_reason=f"yes {SECRET}"),
    "nochoices": lambda answer: {**answer, "choices": []},
    "twice": lambda answer: {**answer, "choices": answer["choices"] * 2},
    "othermodel": lambda answer: {**answer, "model": "another"},
    "nologprobs": without_logprobs,
    "shortlogprobs": lambda answer: {
        **answer,
        "prompt_logprobs": (answer["prompt_logprobs"] or [])[:-1] or None,
    },
    "otherids": lambda answer: {
        **answer,
        "prompt_token_ids": [7, *(answer["prompt_token_ids"] or [])[1:]],
    },
    "nan": valued(math.nan),
    "minusinf": valued(-9999.0),
    "text value": valued(SECRET),
    "positive": valued(0.5),
    "othercount": lambda answer: {**answer, "usage": {**answer["usage"], "prompt_tokens": 3}},
    "othertokens": lambda answer: {
        **answer,
        "prompt_logprobs": (answer["prompt_logprobs"] or [])[::-1] or None,
    },
    "othertext": lambda answer: {**answer, "prompt_text": "x" * bool(answer["prompt_text"])},
}

RIGHT, FAILED, EMPTY, CUT, THOUGHT = ENDS = ("right", "failed", "empty", "cut", "thought")
# Words of the sentence with which the run stops.
GONE, KEY, NO_MODEL, LATER = (
    "the run stops, and",
    "MEDTASKS_SERVER_API_KEY",
    "check model=",
    "asks to wait 900 s",
)
NO_SCORES = "gives no likelihoods|cannot score options"
# Of each kind: when it happens to the second chat request, and when to all of them.
PASSING = ((RIGHT, GONE), (RIGHT, GONE))
SAMPLE = ((FAILED, FAILED), (FAILED, FAILED))
REPLY = ((FAILED, FAILED), (RIGHT, RIGHT))
SCORE = ((RIGHT, RIGHT), (FAILED, FAILED))
MISSING = ((RIGHT, RIGHT), (NO_SCORES, NO_SCORES))
EXPECTED = {
    **dict.fromkeys(
        ("429", "500", "503", "500h", "hang", "reset", "half", "cut", "text", "error200"),
        PASSING,
    ),
    **dict.fromkeys(("401", "403"), ((KEY, KEY), (KEY, KEY))),
    "404": ((NO_MODEL, NO_MODEL), (NO_MODEL, NO_MODEL)),
    "429 later": ((LATER, LATER), (LATER, LATER)),
    **dict.fromkeys(("400", "400i", "413", "nochoices", "twice", "othermodel"), SAMPLE),
    # The second request of a scoring is the first open turn: a server that takes none cannot score.
    **dict.fromkeys(("400m", "422"), ((FAILED, FAILED), (NO_SCORES, FAILED))),
    **dict.fromkeys(("null", "number", "filter", "ended"), REPLY),
    "reasoning": ((THOUGHT, THOUGHT), (RIGHT, RIGHT)),
    "blank": ((EMPTY, EMPTY), (RIGHT, RIGHT)),
    "length": ((CUT, CUT), (RIGHT, RIGHT)),
    **dict.fromkeys(("nologprobs", "shortlogprobs"), MISSING),
    "otherids": (
        (RIGHT, RIGHT),
        (FAILED, RIGHT),
    ),  # ids before the option's own only have to stay as they are
    **dict.fromkeys(
        ("nan", "minusinf", "text value", "positive", "othercount", "othertokens"), SCORE
    ),
    "othertext": ((RIGHT, RIGHT), (NO_SCORES, FAILED)),
}


def adapter(*servers, docs=DOCS, **arguments):
    given = {
        "concurrency": 1,
        "timeout": 20,
        "attempts": 3,
        "max_failed": 1,
        "journal": False,
        **arguments,
    }
    lm = VlmServer(base_url=";".join(server.base_url for server in servers), **given)
    lm.task_dict = {TASK: {SPLIT: docs}}
    return lm


def asked(lm, kind, docs=DOCS):
    if kind == "scoring":
        return lm.loglikelihood(instances("loglikelihood", docs, OPTIONS, to_visual))
    settings = {"until": ["\n\n"], "max_new_tokens": 12, "temperature": 0}
    return [
        reply.text
        for reply in lm.generate_until(instances("generate_until", docs, [settings], to_visual))
    ]


@pytest.fixture(scope="module")
def right():
    with serving(FaultyModel()) as server:
        return {kind: asked(adapter(server), kind) for kind in KINDS}


def is_failed(answer):
    return (
        failure_cause(answer) is not None
        if isinstance(answer, str)
        else math.isnan(answer[0]) and not answer[1]
    )


def is_right(answer, expected):
    return answer == (
        expected if isinstance(answer, str) else pytest.approx(expected, abs=1e-9)
    )


def is_as(outcome, answer, expected):
    """Whether an answer is what a faulty exchange has to become."""
    if outcome == THOUGHT:
        text, is_cut = without_cut_mark(answer)
        return is_cut and without_reasoning(text) == ("", "A or B?")
    wanted = {
        RIGHT: expected,
        EMPTY: "",
        CUT: cut_reply(expected) if isinstance(expected, str) else None,
    }
    return is_failed(answer) if outcome == FAILED else is_right(answer, wanted[outcome])


EXCHANGES = [
    (fault, number, for_ever)
    for fault, number, for_ever in itertools.product(EXPECTED, (0, 1), (False, True))
    if {*EXPECTED[fault][number]} != {RIGHT}  # else it concerns the other kind alone
]


def check_answers(got, expected, outcome, for_ever, touched):
    """Check that what a faulty exchange touched is as it has to become, and that all else is right."""
    pairs = list(zip(got, expected, strict=True))
    hit = [is_as(outcome, *pair) for pair in pairs]
    if for_ever:
        assert all(hit)
        return
    assert sum(not is_right(*pair) for pair in pairs) == (0 if outcome == RIGHT else touched)
    assert all(is_right(*pair) or good for pair, good in zip(pairs, hit, strict=True))


@each_row("fault, number, for_ever", EXCHANGES)
def test_a_fault_costs_what_it_touches(fault, number, for_ever, right, log):
    kind, outcome = KINDS[number], EXPECTED[fault][number][for_ever]
    timeout = (0.1 if for_ever else 1) if fault == "hang" else 20
    with serving(FaultyModel(fault, range(10**6) if for_ever else [1])) as server:
        try:
            got = asked(adapter(server, timeout=timeout), kind)
        except MedTasksError as error:
            said = str(error)
            assert outcome not in ENDS, said
            assert any(word in said for word in outcome.split("|")), said
        else:
            said = "".join(
                reply for reply in got if isinstance(reply, str) and is_failed(reply)
            )
            touched = 1 if kind == "generation" else len(OPTIONS)
            check_answers(got, right[kind], outcome, for_ever, touched)
            failed = sum(is_failed(answer) for answer in got)
            assert (
                len([line for line in log if "WARNING" in line and " failed on " in line])
                == failed
            )
        server.over.set()
    assert SECRET not in said + "".join(log)


async def most_at_once(limit, count, refused=False):
    """Send requests together, which are refused or not; return the most that were under way."""
    busy = []

    async def ask():
        async with limit:
            begun = time.monotonic()
            busy.append(limit.busy)
            await asyncio.sleep(0.002)
            limit.halve(begun) if refused else limit.raise_limit()

    await asyncio.gather(*(ask() for _ in range(count)))
    return max(busy)


def test_the_limit_is_halved_once_for_requests_sent_together_and_recovers():
    async def run():
        limit = AdaptiveLimit(16)
        assert (await most_at_once(limit, 16, refused=True), limit.allowed) == (16, 8)
        assert (await most_at_once(limit, 8), limit.allowed) == (8, pytest.approx(9, abs=0.1))
        assert (await most_at_once(limit, 9 * 16), limit.allowed) == (16, 16)

    asyncio.run(run())


def test_the_limit_is_at_least_one_request():
    async def run():
        limit = AdaptiveLimit(16)
        for _ in range(9):
            await asyncio.sleep(0.001)
            await most_at_once(limit, 1, refused=True)
        assert limit.allowed == 1
        assert await most_at_once(limit, 3) <= 2

    asyncio.run(run())


@each_row("fault, requests", [(CONNECTIONS["error200"], len(DOCS)), (closed(), 3)])
def test_a_route_that_answers_nothing_is_no_dead_server(fault, requests, right, log):
    """Some servers answer with status 200 where they have nothing; texts that may be special tokens ask for that."""
    docs = [
        {**doc, "question": f"{doc['question']} <b{number}>"} for number, doc in enumerate(DOCS)
    ]

    with serving(
        FaultyModel(before=lambda handler, path, body: path != CHAT and fault(handler))
    ) as server:
        assert asked(adapter(server, docs=docs), "generation", docs) == right["generation"]
        assert len(server.bodies("/tokenize")) == requests, (
            "one per text, or the tries of the first text"
        )
    cause = f"retrying 1 request: the server at {server.url}/tokenize closed the connection without a complete answer"
    assert cause in "".join(log) or requests == len(DOCS)


@each_row("allowed", [True, False])
@each_row(
    "fault, label, words",
    [
        (
            status(500, f"CUDA out\n of it, {KEY_TEXT}"),
            "failed (HTTP 500",
            f": CUDA out of it, *** {SECRET} yes B",
        ),
        (status(500, "x" * 500), "failed (HTTP 500", f": {'x' * 200}"),
        (status(502, kind="text/html"), "failed (HTTP 502", ""),
        (status(400, "Bad"), "refused the request (HTTP 400", f": Bad {SECRET} yes B"),
        (
            status(400, "Key sk-ab****wxyz"),
            "refused the request (HTTP 400",
            f": Key *** {SECRET} yes B",
        ),
    ],
)
def test_a_servers_own_words_are_shown_where_they_may_be(
    fault, label, words, allowed, log, monkeypatch
):
    monkeypatch.setenv("MEDTASKS_SERVER_API_KEY", KEY_TEXT)
    monkeypatch.setitem(CONNECTIONS, "500", fault)
    with serving(FaultyModel("500", range(1, 10))) as server:
        lm = adapter(server, docs=DOCS[:2])
        lm.quote_errors(allowed=allowed)
        cause = failure_cause(asked(lm, "generation", DOCS[:2])[1])
    for line in (cause, *(line for line in log if "retrying" in line)):
        assert f"{label}{words * allowed})" in line


def test_a_run_whose_first_requests_all_fail_stops_unless_all_may_fail():
    docs = [{**DOCS[0], "image": noise(number)} for number in range(12)]
    with serving(FaultyModel("400m", range(10**6))) as server:
        with pytest.raises(
            MedTasksError,
            match=r"the first 8 .* all failed.* most often \(8x\) the server at .*400",
        ):
            asked(adapter(server, docs=docs, max_failed=0.5), "generation", docs)
        assert server.count == 8
        assert all(
            map(is_failed, asked(adapter(server, docs=docs, max_failed=1), "generation", docs))
        )
        assert server.count == 8 + 12


class Going(FaultyModel):
    """Answers so many chat requests, and then no more."""

    def __init__(self, left):
        super().__init__(before=self._going)
        self.left = left

    def _going(self, handler, path, body):
        with self.lock:
            self.count += path == CHAT
            self.left -= path == CHAT
            is_gone = self.left < 0
        return is_gone and CONNECTIONS["reset"](handler)


@each_row("kind", KINDS)
def test_after_a_server_went_the_same_command_asks_for_the_rest(kind, right, tmp_path):
    docs = DOCS * 4
    with serving(Going(10)) as server:
        given = {"journal": str(tmp_path), "docs": docs, "concurrency": 4}
        with pytest.raises(
            MedTasksError,
            match=r"closed the connection .*; the run stops, and the answers so far",
        ):
            asked(adapter(server, **given), kind, docs)
        answered, before = server.bodies()[:10], len(server.bodies())
        server.left = 10**6

        got = asked(adapter(server, **given), kind, docs)

        assert all(is_right(*pair) for pair in zip(got, right[kind] * 4, strict=True))
        assert sum(body in answered for body in server.bodies()[before:]) <= 4, (
            "which may have been on their way"
        )
        again = server.count
        assert asked(adapter(server, **given), kind, docs) == got
        assert server.count == again + 1, "nothing was missing; one request tells who answers"


def test_another_server_takes_over_without_a_lost_sample(log):
    # A server's share of the images depends on its port: of forty it gets fewer than four in one of 10^8 runs.
    docs = [{**DOCS[0], "image": noise(number)} for number in range(40)]
    with serving(Going(3)) as first, serving(FaultyModel()) as second:
        right = asked(adapter(second, docs=docs), "generation", docs)
        got = asked(adapter(first, second, docs=docs, concurrency=3), "generation", docs)
    assert first.left < 0
    assert all(is_right(*pair) for pair in zip(got, right, strict=True))
    assert not [line for line in log if "WARNING" in line]
