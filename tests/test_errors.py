"""Messages about names that are not known, and warnings that a process gives once."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from loguru import logger

from medtasks.errors import (
    UnknownName,
    collected_warnings,
    forget_warnings,
    near_match,
    unknown_name,
    warn_once,
)
from medtasks.tasks.task_files import task_file, task_files

MANY = [f"task_{number:02}" for number in range(40)]


def test_unknown_names():
    few = str(unknown_name("rule", "robus", ["strict", "robust"], "a command"))
    assert few == "unknown rule 'robus'; did you mean 'robust'? Known: robust, strict"
    assert str(unknown_name("rule", "xyz", ["strict"])) == "unknown rule 'xyz'. Known: strict"
    many = str(unknown_name("task", "task_1", MANY, "medtasks tasks"))
    assert many.startswith("unknown task 'task_1'; did you mean 'task_")
    assert many.endswith(" All 40: medtasks tasks")
    assert many.count("task_") == 1 + 5  # what was given, and five near ones
    assert (
        str(unknown_name("task", "xyz", MANY, "medtasks tasks"))
        == "unknown task 'xyz'. All 40: medtasks tasks"
    )
    nearest = str(
        unknown_name("task", "mediconfuson", [*MANY, "mediconfusion"], "medtasks tasks")
    )
    assert (
        nearest
        == "unknown task 'mediconfuson'; did you mean 'mediconfusion'? All 41: medtasks tasks"
    )
    assert all(
        name in str(unknown_name("column", "task_1", MANY)) for name in MANY
    )  # no command lists them
    assert near_match("xyz", MANY) == ""
    assert near_match("qa", ["medevalkit_medxpertqa_mm"]) == ""  # too short to mean anything


def test_a_misspelt_task_gets_a_message_that_can_be_read():
    with pytest.raises(UnknownName) as caught:
        task_file("mediconfusio")
    assert str(caught.value).startswith(
        "unknown task 'mediconfusio'; did you mean 'mediconfusion'? Also near: "
    )
    assert f" All {len(task_files())}: medtasks tasks" in str(caught.value)
    assert len(str(caught.value)) < 300
    with pytest.raises(
        UnknownName,
        match="did you mean 'medevalkit_medxpertqa_mm' or 'medevalkit_medxpertqa_text' or",
    ):
        task_file("MedXpertQA")


@pytest.fixture
def records():
    lines = []
    sink = logger.add(lambda message: lines.append(message.record), level="WARNING")
    yield lines
    logger.remove(sink)


def test_a_sentence_is_given_once(records):
    for sentence in (
        "2 pairs are cut",
        "2 pairs are cut",
        "3 pairs are cut",
        "2 pairs are cut",
    ):
        warn_once(sentence)
    assert [record["message"] for record in records] == ["2 pairs are cut", "3 pairs are cut"]
    forget_warnings()
    with collected_warnings() as collected:
        warn_once("said in the command's output")
    assert collected == ["said in the command's output"]
    warn_once("2 pairs are cut")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: warn_once("the judge is down"), range(200)))
    assert len(records) == 4
    warn_once('the judge said {"score": 1} {0}')
    assert (
        records[-1]["message"] == 'the judge said {"score": 1} {0}'
    )  # braces are text, and the caller is named
    assert records[-1]["function"] == "test_a_sentence_is_given_once"
