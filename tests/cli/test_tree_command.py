"""``medtasks data tree`` as a user sees it; what its page does is tried in a browser."""

import json
import re
import shutil

from medtasks.tasks.own_tasks import select_as

from ..picture_sets import prepare_set, texture


def test_page_of_the_sample_and_what_is_refused(medtasks, fails, sample_home, tmp_path, monkeypatch):
    shutil.copytree(sample_home / "datasets", tmp_path / "datasets")
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    ran = medtasks("data", "tree", "mediconfusion")
    assert (ran.code, ran.err) == (0, "")
    assert "Page: mediconfusion_tree.html (32 questions)" in ran.out
    page = (tmp_path / "mediconfusion_tree.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="tree-data">(.*?)</script>', page, re.DOTALL)[1])
    assert sum(number for number, _ in data["units"]) == data["questions"] == 32
    assert (data["selects"], data["columns"][0]["option"]) == (True, "")
    assert "SAMPLE DATA" in page
    assert "The keyword is the right answer" not in page

    fails(["data", "tree", "mediconfusion", "--out", tmp_path / "no" / "t.html"], "cannot write the page", "--out")
    select_as("mediconfusion", {"categories": ["Cerebral"]}, "mc_head")
    fails(["data", "tree", "mc_head"], "'mc_head' is itself a part of 'mediconfusion'")
    prepare_set("plain", [{"doc_id": "q1", "pictures": [texture(1)]}])
    fails(["data", "tree", "plain"], "no column groups the questions of 'plain'")


def test_options_of_the_command_are_those_of_select():
    from medtasks.cli.data import options

    assert options() == {
        name: f"--{name.replace('_', '-')}"
        for name in ("department", "modality", "clinical_task", "granularity", "keyword", "original_task")
    }
