"""What the page of a dataset's groups knows, without a browser."""

import json
import re

import pytest

from medtasks.audit.report.selection_tree import COLUMNS, tree_data, write_tree_page
from medtasks.data.selecting import SELECTABLE, choose, selectable
from medtasks.errors import MedTasksError

OPTIONS = {"department": "--department", "keyword": "--keyword"}


def question(number, **groups):
    return {"doc_id": f"id{number}", "question": "SECRET", "answer": "A", "options": ["SECRET"], **groups}


def pages(tmp_path, documents):
    write_tree_page("bench", documents, OPTIONS, tmp_path / "tree.html", selects=True, sample=False)
    page = (tmp_path / "tree.html").read_text(encoding="utf-8")
    return page, json.loads(re.search(r'id="tree-data">(.*?)</script>', page, re.DOTALL)[1])


def test_every_column_to_choose_by_has_its_place():
    assert sorted(COLUMNS) == sorted(SELECTABLE)


def test_the_page_counts_combinations_and_holds_nothing_else_of_a_question(tmp_path):
    evil = '</script><script>alert("1")</script> & "more"'
    groups = [("Urology", evil), ("Urology", evil), ("Urology", None), ("Oncology", "polyp")]
    documents = [question(n, department=one, keyword=two) for n, (one, two) in enumerate(groups)]
    page, data = pages(tmp_path, documents)
    assert [column["name"] for column in data["columns"]] == ["department", "keyword"]
    assert data["columns"][1]["values"] == [evil, "polyp"]
    assert sorted(data["units"]) == [[1, [[[0], [1]]]], [1, [[[1], []]]], [2, [[[1], [0]]]]]
    assert evil not in page
    assert page.count("<script") == 2
    assert "SECRET" not in page
    assert "id0" not in page
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", page)
    assert "The keyword is the right answer" in page


def test_a_pair_is_one_unit_of_two_questions():
    sides = [("p1", ["Cardiac"]), ("p1", ["Cardiac", "Spinal"]), ("p2", ["Spinal"]), ("p2", ["Spinal"])]
    documents = [question(n, pair_id=pair, categories=groups) for n, (pair, groups) in enumerate(sides)]
    assert tree_data("bench", documents, {})["units"] == [[2, (((0,),), ((0, 1),))], [2, (((1,),),)]]


def test_values_the_command_takes_for_others_are_known():
    said = ["Polyp", "polyp", " liver", "x*", "x1", "", "bone"]
    documents = [question(n, keyword=word, location=word) for n, word in enumerate(said)]
    data = tree_data("bench", documents, OPTIONS)
    for column in data["columns"]:
        for place, value in enumerate(column["values"]):
            taken = column["says"].get(str(place), [place])
            if value == "" and not column["option"]:
                assert taken == []  # --where COLUMN= is refused
            else:
                chosen = choose(documents, {column["name"]: [value]})
                assert set(selectable(chosen)[column["name"]]) == {column["values"][one] for one in taken}


def test_a_dataset_without_groups_has_no_tree():
    with pytest.raises(MedTasksError, match="no column groups the questions of 'bench'"):
        tree_data("bench", [question(1)], {})
