"""Messages about names that are not known."""

import pytest

from medtasks.errors import UnknownName, near_match, unknown_name
from medtasks.tasks.task_files import task_file, task_files

MANY = [f"task_{number:02}" for number in range(40)]


def test_few_names_are_all_listed():
    assert str(unknown_name("rule", "robus", ["strict", "robust"], "a command")) == (
        "unknown rule 'robus'; did you mean 'robust'? Known: robust, strict"
    )
    assert str(unknown_name("rule", "xyz", ["strict"])) == "unknown rule 'xyz'. Known: strict"


def test_of_many_names_the_nearest_are_named_and_where_all_stand():
    said = str(unknown_name("task", "task_1", MANY, "medtasks tasks"))
    assert said.startswith("unknown task 'task_1'; did you mean 'task_")
    assert said.endswith(" All 40: medtasks tasks")
    assert said.count("task_") == 1 + 5  # what was given, and five near ones
    assert str(unknown_name("task", "xyz", MANY, "medtasks tasks")) == "unknown task 'xyz'. All 40: medtasks tasks"
    only = [*MANY, "mediconfusion"]
    assert str(unknown_name("task", "mediconfuson", only, "medtasks tasks")) == (
        "unknown task 'mediconfuson'; did you mean 'mediconfusion'? All 41: medtasks tasks"
    )


def test_many_names_that_no_command_lists_are_all_there():
    assert all(name in str(unknown_name("column", "task_1", MANY)) for name in MANY)


def test_a_misspelt_task_gets_a_message_that_can_be_read():
    with pytest.raises(UnknownName) as caught:
        task_file("mediconfusio")
    assert str(caught.value).startswith("unknown task 'mediconfusio'; did you mean 'mediconfusion'? Also near: ")
    assert f" All {len(task_files())}: medtasks tasks" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_nothing_near_is_no_hint():
    assert near_match("xyz", MANY) == ""
    assert near_match("qa", ["medevalkit_medxpertqa_mm"]) == ""  # too short to mean anything


def test_part_of_a_name_finds_the_names_that_contain_it():
    with pytest.raises(UnknownName) as caught:
        task_file("MedXpertQA")
    assert "did you mean 'medevalkit_medxpertqa_mm' or 'medevalkit_medxpertqa_text' or" in str(caught.value)
