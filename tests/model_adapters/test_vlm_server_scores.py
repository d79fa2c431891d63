"""Likelihoods of ``vlm_server`` by every way, on every template, and where servers answer less than was asked for."""

import itertools
import json
import math

import pytest
from medtasks.model_adapters.vlm_server import VlmServer

from medtasks.errors import MedTasksError
from medtasks.prompts.messages import data_url

from ..tables import each_row
from .served_model import GENERATE, IMAGE_ID, SPECIAL, TOKENIZE
from .toys import SPLIT, TASK, instances, noise

LETTERS, SENTENCES = ("A", "B"), (" yes", " no", " a small one")
ODD = ("yes ", "a\nb", "Überweisung ☢ 肺", " 5 µm", "(A)")
WAYS = ("auto", "prompt_logprobs", "token_ids")


def docs_with(*options, count=4):
    """Questions of one to three images and one without, with these options each."""
    docs = [
        {"question": f"Is it clear, {number}?", "images": [noise(number)]}
        for number in range(count - 2)
    ]
    docs += [
        {
            "question": "<image> or <image>, and <image>?",
            "images": [noise(7), noise(8), noise(9)],
        }
    ]
    return [
        {**doc, "options": options}
        for doc in [*docs, {"question": "No image: is it?", "images": []}]
    ]


def adapter_for(server, docs, **arguments):
    given = {"base_url": server.base_url, "journal": False, "loglikelihood_format": "json"}
    adapter = VlmServer(**given | {"max_failed": 1, "attempts": 1} | arguments)
    adapter.task_dict = {TASK: {SPLIT: docs}}
    return adapter


def scores(adapter, docs, doc_ids=None):
    chosen = range(len(docs)) if doc_ids is None else doc_ids
    requests = [
        one
        for at in chosen
        for one in instances("loglikelihood", docs, docs[at]["options"], doc_ids=[at])
    ]
    return [json.loads(score) for score, _ in adapter.loglikelihood(requests)]


def question(doc):
    """A request for what follows the question of a document."""
    urls = iter(
        {"type": "image_url", "image_url": {"url": data_url(image)}} for image in doc["images"]
    )
    pieces = doc["question"].split("<image>")
    if len(pieces) == 1:
        return {
            "messages": [
                {"role": "user", "content": [*urls, {"type": "text", "text": doc["question"]}]}
            ]
        }
    content = [{"type": "text", "text": pieces[0]}]
    for piece in pieces[1:]:
        content += [next(urls), {"type": "text", "text": piece}]
    return {"messages": [{"role": "user", "content": content}]}


def assert_right(server, docs, found):
    """Scores are those of our other adapters' definition."""
    wanted = [
        server.model.likelihood(question(doc), option)
        for doc in docs
        for option in doc["options"]
    ]
    for one, (total, greedy, tokens) in zip(found, wanted, strict=True):
        assert one["sum"] == pytest.approx(total, rel=0, abs=1e-9)
        assert one["mean"] == pytest.approx(total / tokens, rel=0, abs=1e-9)
        assert (one["greedy"], one["tokens"]) == (greedy, tokens)


MERGES = ["yes", " no", " small", "on"]
SEAMS = ("yes", "no", " yes", "\n")  # of which some merge with the end of the prompt


@each_row(
    "way, merges, options",
    [
        (way, MERGES, options)
        for way in WAYS
        for options in (LETTERS, SENTENCES, ODD, (" yes", "yes", " no", "A"))
    ]
    + [
        (way, [*merges], SEAMS)
        for way in WAYS[::2]
        for merges in (("\ny", "\nyes"), ("t\ny",), ("\n\n", "\n"))
    ],
)
def test_every_way_gives_the_same(served, way, merges, options):
    server, docs = served(scale_out=True, merges=merges), docs_with(*options)
    assert_right(server, docs, scores(adapter_for(server, docs, likelihood=way), docs))


@each_row("way", WAYS)
def test_an_option_without_a_token_has_no_score(served, way):
    server, docs = served(scale_out=True), docs_with("")
    assert all(
        math.isnan(one["sum"])
        for one in scores(adapter_for(server, docs, likelihood=way), docs)
    )


def test_letters_cost_one_request_per_question(served):
    """Behind the first question, which proves the boundary, and the second one, beside which letters are proven."""
    server, docs = served(), docs_with(*LETTERS, count=12)
    assert_right(server, docs, scores(adapter_for(server, docs, concurrency=1), docs))
    assert len(server.bodies()) == 3 + 3 + (len(docs) - 2)
    assert not server.bodies(TOKENIZE)
    assert all(
        body["logprob_token_ids"] == [*map(ord, LETTERS)] for body in server.bodies()[6:]
    )


def test_letters_that_are_likeliest(served):
    """Whether or not the server's own settings punish tokens that stand in the prompt."""
    server = served(default_penalty=9.0)
    found = {}
    for number in itertools.count():
        doc = {"question": f"A B C D E F {number}", "images": [noise(number % 5)]}
        prompt = server.model.prompt(question(doc))
        likeliest = int(server.model.logprobs(prompt)[-1].argmax())
        if likeliest in [*map(ord, "ABCDEF")]:
            found[len(found)] = {**doc, "options": sorted({"A", "B", chr(likeliest)})}
        if len(found) == 4:
            break

    docs = [*docs_with(*"ABCDEF"), *found.values()]
    result = scores(adapter_for(server, docs, concurrency=1), docs)

    assert_right(server, docs, result)
    assert sum(one["greedy"] for one in result) >= len(found)


REFUSED = {
    "trim": "cuts the blanks off a reply",
    "think": "puts '<think>",
    "refuse": "refuses an open assistant turn",
}


@each_row("template", REFUSED)
def test_templates_that_are_refused_before_the_first_score(served, template):
    server, docs = served(template=template), docs_with("yes", " no")
    with pytest.raises(MedTasksError, match="chat template of its model") as error:
        scores(adapter_for(server, docs), docs)
    assert REFUSED[template] in str(error.value)
    assert "--enable-scale-out" in str(error.value)


@each_row("template", [*REFUSED, "bare-turn", "blank", "plain"])
@each_row("way", ["auto", "token_ids"])
def test_templates_where_the_server_takes_token_ids(served, template, way):
    server, docs = served(template=template, scale_out=True), docs_with("yes", " no", " one")
    assert_right(server, docs, scores(adapter_for(server, docs, likelihood=way), docs))
    for body in server.bodies(GENERATE):
        assert body["token_ids"].count(IMAGE_ID) == len(body.get("content_parts", ()))


def test_options_that_a_template_cannot_express_are_not_scored(served):
    """The template is one that is worked around."""
    server, docs = served(template="blank"), docs_with(" yes", "no")
    found = scores(adapter_for(server, docs), docs)
    assert [math.isnan(one["sum"]) for one in found] == [False, True] * len(docs)


def test_images_that_a_template_of_texts_moves_have_no_score(served):
    server, docs = served(template="string"), docs_with(*LETTERS)
    found = scores(adapter_for(server, docs), docs)
    assert_right(server, [docs[0], docs[1], docs[3]], [*found[:4], *found[6:]])
    assert all(math.isnan(one["sum"]) for one in found[4:6])


def test_options_that_merge_are_not_scored_without_the_rendered_text(served):
    """They have no certain beginning."""
    server, docs = (
        served(ignores=frozenset({"return_prompt_text"}), merges=["\ny"]),
        docs_with("yes", "no"),
    )
    found = scores(adapter_for(server, docs), docs)
    assert [math.isnan(one["sum"]) for one in found] == [True, False] * len(docs)


@each_row("scale_out", [True, False])
def test_a_template_that_trims_is_noticed_behind_the_first_question_too(served, scale_out):
    server = served(template="trim", scale_out=scale_out)
    docs = [*docs_with("yes", "no"), *docs_with(" yes", "no")]
    adapter = adapter_for(server, docs, likelihood="prompt_logprobs")
    assert_right(server, docs[:4], scores(adapter, docs, range(4)))
    found = scores(adapter, docs, range(4, 8))
    if scale_out:
        assert_right(server, docs[4:], found)
    else:
        assert [math.isnan(one["sum"]) for one in found] == [True, False] * 4


IGNORED = {
    "prompt_logprobs": "lacks prompt_logprobs",
    "return_token_ids": "lacks prompt_token_ids",
    "continue_final_message": "cannot score options",
    "return_prompt_text": "",
    "logprob_token_ids": "",
    "return_tokens_as_token_ids": "",
    "logprobs": "",
}


@each_row("options", [LETTERS, SENTENCES])
@each_row("field", IGNORED)
def test_fields_that_a_server_ignores(served, field, options):
    dropped = {field, *(["add_generation_prompt"] if field == "continue_final_message" else [])}
    server, docs = served(ignores=frozenset(dropped)), docs_with(*options)
    if IGNORED[field]:
        with pytest.raises(MedTasksError, match=IGNORED[field]):
            scores(adapter_for(server, docs), docs)
    else:
        assert_right(server, docs, scores(adapter_for(server, docs), docs))


@each_row("options", [LETTERS, SENTENCES])
def test_a_server_that_does_not_tokenize_texts(served, options):
    server, docs = served(tokenizes=False), docs_with(*options, count=8)
    assert_right(server, docs, scores(adapter_for(server, docs, concurrency=1), docs))
    if options is LETTERS:
        assert len(server.bodies()) == 3 + 3 + len(docs) - 2


def test_scores_of_another_prompt_are_noticed(served):
    """Such as placeholders that a server expands although they were expanded."""

    def change(path, body, answer):
        if path == GENERATE:
            answer["prompt_token_ids"].insert(1, IMAGE_ID)
            answer["prompt_logprobs"].insert(1, {str(IMAGE_ID): {"logprob": -1.0, "rank": 1}})
            answer["usage"]["prompt_tokens"] += 1
        return answer

    server, docs = served(change=change, scale_out=True), docs_with(*SENTENCES)

    found = scores(adapter_for(server, docs, likelihood="token_ids"), docs)

    assert all(math.isnan(one["sum"]) for one in found)


def entries_of(body, answer):
    """Return the place and the list of log-probabilities of ``logprob_token_ids``; empty where none was asked for."""
    if not body.get("logprob_token_ids"):
        return None, []
    (place,) = answer["choices"][0]["logprobs"]["content"]
    return place, place["top_logprobs"]


def test_of_two_values_of_one_token_none_is_right(served):
    def change(path, body, answer):
        _, entries = entries_of(body, answer)
        if entries:
            entries.append({**entries[0], "logprob": entries[0]["logprob"] / 2})
        return answer

    server, docs = served(change=change), docs_with(*LETTERS, count=6)

    found = scores(adapter_for(server, docs, max_failed=1), docs)

    assert any(math.isnan(one["sum"]) for one in found)


def test_values_of_token_ids_that_are_not_those_of_the_prompt_are_not_used(served):
    def change(path, body, answer):
        place, entries = entries_of(body, answer)
        for entry in filter(None, [place, *entries]):
            entry["logprob"] /= 2
        return answer

    server, docs = served(change=change), docs_with(*LETTERS, count=6)

    assert_right(server, docs, scores(adapter_for(server, docs), docs))


@each_row("tokenizes", [True, False])
def test_special_tokens_in_a_text_are_refused(served, tokenizes):
    server = served(tokenizes=tokenizes)
    docs = [doc for text in SPECIAL for doc in docs_with("p <0.05", f"a{text}b")]
    docs += [{"question": f"a{text}b", "images": [], "options": ["A"]} for text in SPECIAL]
    assert all(math.isnan(score["sum"]) for score in scores(adapter_for(server, docs), docs))
    assert not any(
        text in json.dumps(body["messages"]) for body in server.bodies() for text in SPECIAL
    )
