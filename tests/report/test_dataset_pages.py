"""Pages about a dataset, without a browser: duplicates and the tree of groups."""

import base64
import hashlib
import json
import re

import pytest

from medtasks.data.dataset_lookup import provenance
from medtasks.data.duplicates.duplicate_search import find_duplicates
from medtasks.data.duplicates.image_copies import dataset_images as dataset_pictures
from medtasks.data.duplicates.image_copies import other_images as other_pictures
from medtasks.data.selecting import SELECTABLE
from medtasks.errors import MedTasksError
from medtasks.report import dataset_pages
from medtasks.report.dataset_pages import COLUMNS, DuplicateNames, duplicates_as_dict, tree_data, write_tree_page

from ..picture_sets import jpeg_bytes, prepare_set, texture, write_folder
from .page_structure import Structure


def written(name, path, other=None, sample=False):
    shown = dataset_pictures(name)
    found = find_duplicates(shown, other and other_pictures(str(other)), 40)
    names = DuplicateNames(found)
    contents = duplicates_as_dict(name, provenance(name), found, names, 40)
    dataset_pages.write_duplicates_page(contents, found, names, path, sample=sample)
    return Structure(path.read_text(encoding="utf-8"))


def test_each_finding_is_shown_side_by_side(tmp_path):
    """Of a set with a leak and copies of its pictures, in files with names that look like markup."""
    rows = [{"doc_id": f"q{number} <b>&", "pictures": [texture(number)]} for number in range(4)]
    examples = [{"doc_id": "e1", "pictures": [jpeg_bytes(texture(3), 80)]}]
    prepare_set("bench", rows, examples)
    copies = {"<img src=x onerror=alert(1)>.png": texture(0), '"quoted".jpg': texture(1), "inverted.png": texture(9)}
    page = written("bench", tmp_path / "p.html", write_folder(tmp_path / "training", copies))
    findings = page.all("article")
    assert [(one["data-kind"], one["data-concern"]) for one in findings] == [
        ("same pixels", ""),
        ("looks the same", ""),
        ("looks the same", "solved example"),
    ]
    pictures = page.all("img")
    assert len(pictures) == 6
    assert all(one["src"].startswith("data:image/jpeg;base64,") for one in pictures)
    assert "q0 <b>&" in page.text
    assert "<img src=x onerror=alert(1)>.png" in page.text
    assert "bits differ, details correlate by 0.9" in page.text
    assert "4 questions on 4 distinct pictures, 1 more picture in solved examples only." in page.text

    # It loads nothing and runs only its own script.
    source = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert re.findall(r"""(?:https?:)?//[\w-]+\.\w""", re.sub(r"data:image/jpeg;base64,[\w+/=]+", "", source)) == []
    assert [attributes for _, attributes in page.elements if "onerror" in attributes or "onclick" in attributes] == []
    (script,) = re.findall(r"<script>(.*?)</script>", source, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = dict(rule.strip().split(" ", 1) for rule in page.policy.split(";"))
    assert (allowed["default-src"], allowed["img-src"]) == ("'none'", "data:")
    assert allowed["script-src"] == f"'sha256-{digest}'"
    assert len(page.all("script")) == 1


def test_only_the_surest_are_shown_and_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset_pages, "MOST_SHOWN", 2)
    prepare_set("bench", [{"doc_id": f"q{number}", "pictures": [texture(number)]} for number in range(5)])
    copies = {f"{number}.jpg": jpeg_bytes(texture(number), 60) for number in range(4)} | {"same.bmp": texture(4)}
    page = written("bench", tmp_path / "p.html", write_folder(tmp_path / "training", copies))
    assert [one["data-kind"] for one in page.all("article")] == ["same pixels", "looks the same"]
    assert len(page.all("img")) == 4
    assert "The 2 surest of 5 findings are shown" in page.text
    assert "any of these 5 5 (100.0%)" in page.text
    rows = [{"doc_id": f"q{number}", "pictures": [texture(1)], "image_id": f"i{number}"} for number in range(40)]
    prepare_set("crowd", rows)  # many questions on one picture do not flood the page
    page = written("crowd", tmp_path / "p.html")
    assert len(page.all("article")) == 1
    assert "34 more" in page.text


OPTIONS = {"department": "--department", "keyword": "--keyword"}


def question(number, **groups):
    return {"doc_id": f"id{number}", "question": "SECRET", "answer": "A", "options": ["SECRET"], **groups}


def pages(tmp_path, documents):
    write_tree_page("bench", documents, OPTIONS, tmp_path / "tree.html", selects=True, sample=False)
    page = (tmp_path / "tree.html").read_text(encoding="utf-8")
    return page, json.loads(re.search(r'id="tree-data">(.*?)</script>', page, re.DOTALL)[1])


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


def test_no_command_holds_what_a_terminal_acts_on():
    data = tree_data("bench", [question(1, keyword="A\x1b[2J\n\tB\x9b")], OPTIONS)
    assert data["columns"][0]["values"] == ["A?[2J??B?"]


def test_pairs_are_units_and_a_dataset_without_groups_has_no_tree():
    assert sorted(COLUMNS) == sorted(SELECTABLE)  # every column to choose by has its place
    sides = [("p1", ["Cardiac"]), ("p1", ["Cardiac", "Spinal"]), ("p2", ["Spinal"]), ("p2", ["Spinal"])]
    documents = [question(n, pair_id=pair, categories=groups) for n, (pair, groups) in enumerate(sides)]
    assert tree_data("bench", documents, {})["units"] == [[2, (((0,),), ((0, 1),))], [2, (((1,),),)]]
    with pytest.raises(MedTasksError, match="no column groups the questions of 'bench'"):
        tree_data("bench", [question(1)], {})
