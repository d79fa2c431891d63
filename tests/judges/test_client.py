import asyncio
import re
import stat
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from medtasks.errors import JudgeRefused
from medtasks.judges.judge_client import (
    BAD_FORMAT,
    CORRECTION,
    Judge,
    JudgeSettings,
    VerdictCache,
    judge_for,
)
from medtasks.net import chat_client
from medtasks.net.chat_client import background_loop

from ..tables import each_row

PROMPT = "the patient named Example"


def first_number(text):
    match = re.match(r"A: (\d+)", text)
    return int(match[1]) if match else None


def ask(judge, user=PROMPT):
    return judge.ask("be fair", user, first_number)


class Pauses:
    """Replaces the pauses between two tries by 300 s, or none if ``ends``, and notes how long they would be."""

    def __init__(self):
        self.seconds, self.begun, self.ends = [], threading.Event(), False

    def __getattr__(self, name):
        return getattr(asyncio, name)

    async def wait_for(self, awaitable, seconds):
        self.seconds.append(seconds)
        self.begun.set()
        await asyncio.wait_for(awaitable, 0 if self.ends else 300)


@pytest.fixture
def pauses(monkeypatch):
    pauses = Pauses()
    monkeypatch.setattr(chat_client, "asyncio", pauses)
    return pauses


def test_a_verdict_is_asked_once_with_the_settings(endpoint, judge_at, key):
    verdict = ask(judge_at(endpoint.url, temperature=0.3))
    assert (verdict.value, verdict.failure, verdict.cached) == (9, None, False)
    assert verdict.text.startswith("A: 9\nB: 2")
    assert endpoint.paths == ["/v1/chat/completions"]
    body = endpoint.bodies[0]
    assert (body["model"], body["temperature"]) == ("m", 0.3)
    assert body["messages"] == [
        {"role": "system", "content": "be fair"},
        {"role": "user", "content": PROMPT},
    ]
    assert endpoint.headers[0]["authorization"] == f"Bearer {key}"


def test_a_rerun_costs_no_request(endpoint, judge_at, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-personal")
    endpoint.script = [endpoint.reply("A: 9 \ud800")]
    first = ask(judge_at(endpoint.url, api_key=""), "broken \ud83d reply")
    assert "sk-personal" not in str(endpoint.headers)
    assert endpoint.bodies[0]["messages"][1]["content"] == "broken ? reply"
    again = ask(judge_at(endpoint.url, api_key=""), "broken \ud83d reply")
    assert (again.value, again.text, again.cached) == (first.value, first.text, True)
    stricter = judge_at(endpoint.url, reasks=0).ask(
        "be fair", "broken ? reply", lambda text: None
    )
    assert (stricter.value, stricter.failure) == (
        None,
        BAD_FORMAT,
    )  # what is stored no longer parses
    assert endpoint.count == 2
    assert not ask(judge_at(endpoint.url), "another question").cached
    assert (
        not judge_at(endpoint.url)
        .ask("be fair", "another question", first_number, prompt_version=2)
        .cached
    )
    assert endpoint.count == 4


def test_pauses_are_those_asked_for_else_they_grow(endpoint, judge_at, pauses):
    faults = [
        endpoint.status(500),
        endpoint.status(503),
        endpoint.reset(),
        endpoint.status(429, Retry_After="0.5"),
    ]
    endpoint.script = [*faults, endpoint.reply("A: 4")]
    judge = judge_at(endpoint.url, attempts=5, backoff_s=0.1)
    pauses.ends = True
    assert ask(judge).value == 4
    # Jitter adds up to 0.1 s to the pauses of 0.1, 0.2 and 0.4 s.
    assert all(
        0 <= pause - least <= 0.1
        for pause, least in zip(pauses.seconds, (0.1, 0.2, 0.4, 0.5), strict=True)
    )


# What an endpoint answers, what the verdict says of it, and how often the endpoint is asked.
FAILURES = (
    *(
        ({"code": code, "Location": "/v2"}, f"HTTP {code}", 1)
        for code in (400, 401, 403, 404, 307)
    ),
    ({"code": 500}, " failed (HTTP 500)", 3),
    ({"code": 429, "Retry_After": "3600"}, " asks to wait 3600 s (HTTP 429)", 1),
    (
        {"code": 429, "body": '{"error": {"code": "insufficient_quota"}}'},
        "no quota left (HTTP 429, insufficient_quota)",
        1,
    ),
    (  # its code is shown but never its message
        {
            "code": 400,
            "body": f'{{"error": {{"message": "{PROMPT}", "code": "context_length"}}}}',
        },
        " rejected the request (HTTP 400, context_length)",
        1,
    ),
    *(
        ({"code": 200, "body": body, "content_type": kind}, "no chat completion", 3)
        for body, kind in (
            *(
                ("{not json", "application/json"),
                ("<html>sign in</html>", "text/html"),
                ("[1]", "application/json"),
            ),
            *(
                (body, "application/json")
                for body in ('{"choices": []}', '{"choices": null}', "null")
            ),
        )
    ),
)


@each_row("answer, cause, asked", FAILURES)
def test_failures_are_named_and_retried_where_that_can_help(
    new_endpoint, judge_at, answer, cause, asked
):
    endpoint = new_endpoint()
    endpoint.script = [endpoint.status(**answer)]
    verdict = ask(judge_at(endpoint.url))
    assert (verdict.value, verdict.text) == (None, "")
    assert verdict.failure.startswith(f"the judge at {endpoint.url}")
    assert cause in verdict.failure
    assert PROMPT not in verdict.failure
    assert endpoint.count == asked


def test_an_always_wrong_format_fails_and_is_not_kept(endpoint, judge_at, tmp_path, warnings):
    endpoint.script = [endpoint.reply("I like A.")]
    judge = judge_at(endpoint.url, reasks=1)
    for number in range(6):
        verdict = ask(judge, f"question {number}")
        assert (verdict.value, verdict.failure, verdict.text) == (None, BAD_FORMAT, "I like A.")
    assert endpoint.count == 12, (
        "a judge that answers, however badly, must not open the breaker"
    )
    assert not (tmp_path / "judge").exists()
    assert len(warnings) == 1


def test_a_wrong_format_is_asked_again_with_a_correction(endpoint, judge_at):
    endpoint.script = [
        endpoint.reply("I like A."),
        endpoint.reply(None),
        endpoint.reply("A: 4"),
    ]
    judge = judge_at(endpoint.url)
    assert ask(judge).value == 4
    messages = endpoint.bodies[2]["messages"]
    assert [message["role"] for message in messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert [message["content"] for message in messages[2:]] == [
        "I like A.",
        CORRECTION,
        "(empty reply)",
        CORRECTION,
    ]
    assert endpoint.bodies[1]["messages"] == messages[:4]
    assert ask(judge).cached is True
    assert endpoint.count == 3


@pytest.mark.parametrize("status", [401, 500])
def test_the_breaker_opens_after_three_asks_in_a_row_with_one_warning(
    endpoint, judge_at, warnings, status
):
    judge = judge_at(endpoint.url, attempts=1)
    ask(judge, "kept")
    endpoint.script = [endpoint.status(status)]
    failures = [ask(judge, f"question {number}").failure for number in range(10)]
    assert endpoint.count == 4
    assert len(set(failures)) == 1
    assert f"HTTP {status}" in failures[0]
    (warning,) = warnings
    assert endpoint.url in warning
    assert f"HTTP {status}" in warning
    assert "medtasks score" in warning
    assert ask(judge, "kept").value == 9


def test_an_answer_in_between_keeps_the_breaker_closed(endpoint, judge_at, warnings):
    """Rate limits and single rejections are answers, too."""
    down, bad, up = endpoint.status(500), endpoint.status(400), endpoint.reply("A: 4")
    endpoint.script = [
        down,
        down,
        up,
        down,
        down,
        endpoint.reply("no format"),
        down,
        down,
        bad,
        down,
        down,
        up,
    ]
    endpoint.script += [endpoint.status(429)] * 4 + [bad] * 4 + [up]
    judge = judge_at(endpoint.url, attempts=1, reasks=0)
    values = [ask(judge, f"question {number}").value for number in range(21)]
    assert values == [None, None, 4, *[None] * 8, 4, *[None] * 8, 4]
    assert not [line for line in warnings if "No more replies" in line]


def test_an_open_breaker_wakes_the_threads_that_back_off(
    judge_at, closed_url, warnings, pauses
):
    patient = judge_at(closed_url, attempts=2)
    waiting = threading.Thread(target=ask, args=(patient, "slow"))
    waiting.start()
    assert pauses.begun.wait(300)
    background_loop().call_soon_threadsafe(patient._client.give_up, "it is down")
    waiting.join(timeout=200)  # less than the pause
    assert not waiting.is_alive()
    assert ask(patient, "next").failure == "it is down"
    reason = f"the judge at {closed_url} could not be reached (Connection refused)"
    assert ask(judge_at(closed_url, attempts=1)).failure == reason


def test_threads_share_the_limit_on_requests(endpoint, judge_at):
    three, answer = threading.Barrier(3), endpoint.reply("A: 4")
    endpoint.script = [lambda handler: (three.wait(300), answer(handler))]
    judge = judge_at(endpoint.url, concurrency=3)
    with ThreadPoolExecutor(12) as pool:
        verdicts = list(pool.map(lambda number: ask(judge, f"question {number}"), range(24)))
    assert [verdict.value for verdict in verdicts] == [4] * 24
    assert endpoint.peak == 3


def test_a_thread_that_backs_off_holds_no_slot(endpoint, judge_at, pauses):
    endpoint.script = [endpoint.status(500), endpoint.reply("A: 4")]
    judge = judge_at(endpoint.url, concurrency=1)
    slow = threading.Thread(target=ask, args=(judge, "slow"))
    slow.start()
    assert pauses.begun.wait(300)
    assert ask(judge, "quick").value == 4
    assert slow.is_alive()
    background_loop().call_soon_threadsafe(judge._client._opened.set)
    slow.join()


def test_nothing_secret_is_logged_whatever_happens(endpoint, judge_at, key, everything_logged):
    body = f'{{"error": {{"message": "{PROMPT} {key}", "code": "{key} {PROMPT}"}}}}'
    endpoint.script = [
        endpoint.reply("A: 4"),
        endpoint.reply(PROMPT),
        endpoint.reply(PROMPT),
        endpoint.reset(),
        endpoint.status(400, body),
        endpoint.status(429, body),
        endpoint.status(401, body),
    ]
    judge = judge_at(endpoint.url, attempts=1, reasks=1)
    verdicts = [ask(judge, f"{PROMPT} {number}") for number in range(9)]
    assert endpoint.count == 9, "two for the re-ask, none behind the breaker"
    seen = (
        everything_logged()
        + repr(judge)
        + repr(judge.settings)
        + "".join(str(v.failure) for v in verdicts)
    )
    assert "No more replies" in seen
    assert key not in seen
    assert PROMPT not in seen


@pytest.mark.parametrize(
    "local", [True, False], ids=["this machine", "another that is trusted"]
)
def test_text_takes_no_proxy_and_no_redirect(
    endpoint, new_endpoint, judge_at, monkeypatch, local
):
    elsewhere, proxy = new_endpoint(), new_endpoint()
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_port}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setattr(
        JudgeSettings, "is_local", local
    )  # the endpoint stands for one on another machine
    assert ask(judge_at(endpoint.url)).value == 9
    endpoint.script = [endpoint.status(307, Location=f"{elsewhere.url}/chat/completions")]
    assert "redirects elsewhere" in ask(judge_at(endpoint.url), "another").failure
    assert (endpoint.count, elsewhere.count, proxy.count) == (2, 0, 0)


def test_one_judge_is_shared_and_guarded(endpoint, monkeypatch, key):
    for name, text in (("BASE_URL", endpoint.url), ("MODEL", "m"), ("API_KEY", key)):
        monkeypatch.setenv(f"MEDTASKS_JUDGE_{name}", text)
    with ThreadPoolExecutor(4) as pool:
        judges = set(pool.map(lambda _: judge_for("mimic"), range(4)))
    assert len(judges) == 1
    assert judge_for("mediconfusion") in judges
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "https://api.openai.com/v1")
    with pytest.raises(JudgeRefused):
        judge_for("mimic")
    assert judge_for("mediconfusion") not in judges


def test_no_more_requests_are_sent_than_a_process_may_send(endpoint, judge_at):
    endpoint.script = [endpoint.status(500), endpoint.reply("A: 4")]
    judge = judge_at(endpoint.url, max_requests=3)
    assert ask(judge).value == 4  # two requests: a try that failed counts, too
    assert ask(judge, "second").value == 4
    refused = [ask(judge, question) for question in ("third", "fourth")]
    assert {one.failure for one in refused} == {
        "the limit of 3 requests is used up; raise MEDTASKS_JUDGE_MAX_REQUESTS and run it again"
    }
    assert endpoint.count == 3
    assert ask(judge).value == 4  # what is on disk costs nothing
    assert ask(judge_at(endpoint.url, max_requests=0), "second").cached
    assert ask(judge_at(endpoint.url, max_requests=1), "third").value == 4


# ---- cache of verdicts ----

PROMPTS = {"system": "s", "user": "u", "prompt_version": 1}
# A literal: a change of the key's recipe would silently empty every cache.
KEY = bytes.fromhex("f5bbeb580434a991c5c80f9df30b6e6a7a72286f0a21990a483de3d1a2f11372")


@pytest.fixture
def cache(tmp_path):
    return VerdictCache(tmp_path / "judge")


def test_the_key_depends_on_every_part_and_survives_versions(cache):
    def cached(url="http://h/v1", model="m", temperature=0.0, **prompts):
        settings = JudgeSettings(url, model, temperature=temperature, max_requests=0)
        return Judge(settings, cache).ask(parse=first_number, **PROMPTS | prompts).cached

    cache.put({KEY: b"A: 1"})
    assert cached()
    assert cached(temperature=0)
    others = (
        {"url": "http://h:81/v1"},
        {"model": "n"},
        {"temperature": 0.7},
        {"system": "S"},
        {"user": "U"},
    )
    for other in (*others, {"prompt_version": 2}, {"system": "su", "user": ""}):
        assert not cached(**other), other
    assert stat.S_IMODE(cache.path.stat().st_mode) == 0o600


def test_a_damaged_file_is_a_miss_with_one_warning(cache, warnings):
    cache.path.parent.mkdir(parents=True)
    cache.path.write_bytes(b"no database at all" * 100)
    assert cache.get([KEY]) == {}
    cache.put({KEY: b"A: 1"})
    assert len(warnings) == 1
    assert str(cache.path) in warnings[0]


def test_threads_that_ask_first_share_one_loop(monkeypatch):
    monkeypatch.setattr(chat_client, "_loops", [])
    start = threading.Barrier(8)
    with ThreadPoolExecutor(8) as threads:
        assert (
            len(set(threads.map(lambda _: (start.wait(), background_loop())[1], range(8)))) == 1
        )
