"""Warnings that a process gives once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from loguru import logger

from medtasks.data.samples import Sample
from medtasks.errors import forget_warnings, warn_once
from medtasks.families.family import Reply, Row
from medtasks.families.paired_choice import PAIRED_CHOICE
from medtasks.hooks import pairs


@pytest.fixture
def records() -> Iterator[list[dict[str, object]]]:
    found: list[dict[str, object]] = []
    sink = logger.add(lambda message: found.append(message.record), level="WARNING")
    yield found
    logger.remove(sink)


def test_a_sentence_is_given_once(records):
    for sentence in ("2 pairs are cut", "2 pairs are cut", "3 pairs are cut", "2 pairs are cut"):
        warn_once(sentence)
    assert [record["message"] for record in records] == ["2 pairs are cut", "3 pairs are cut"]
    forget_warnings()
    warn_once("2 pairs are cut")
    assert len(records) == 3


def test_braces_are_text_and_the_caller_is_named(records):
    warn_once('the judge said {"score": 1} {0}')
    assert records[0]["message"] == 'the judge said {"score": 1} {0}'
    assert records[0]["function"] == "test_braces_are_text_and_the_caller_is_named"


def test_threads_give_it_once(records):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: warn_once("the judge is down"), range(200)))
    assert len(records) == 1


def test_the_same_of_two_filters_is_said_once(records):
    def cut(rule):
        document = {"doc_id": "1/1", "pair_id": "1", "position": 1, "image_id": "i", "answer": "A", "categories": ["C"]}
        return [PAIRED_CHOICE.score(Sample({**document, "options": ["x", "y"]}), Reply(text="A"), Row(rule))]

    for rule in ("mediconfusion_reference", "robust_choice"):
        pairs.set_accuracy(cut(rule))
    assert ["1 pairs lack" in str(record["message"]) for record in records] == [True]
