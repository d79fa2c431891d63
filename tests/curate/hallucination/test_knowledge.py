import json
import sys

import pytest

from medtasks.curate.hallucination_questions import PASSAGE, knowledge_files, read_passages, retriever
from medtasks.errors import MedTasksError, SourceError

EDEMA = "Pulmonary edema is fluid in the air spaces of the lung."
FRACTURE = "A rib fracture is a break of a bone of the chest wall."


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "b.md").write_text(f"# Edema\n\n{EDEMA}\n")
    (tmp_path / "a.txt").write_text(f"{FRACTURE}\n \n{'x ' * 700}")
    (tmp_path / "c.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in (EDEMA, "y" * 1500)))
    (tmp_path / "table.csv").write_text("not a text")
    return tmp_path


def test_passages_are_paragraphs_up_to_a_length(texts):
    files = knowledge_files([texts, texts / "b.md"])
    assert [file.name for file in files] == ["a.txt", "b.md", "c.jsonl"]
    passages = read_passages(files)
    assert passages[0] == FRACTURE
    assert all(0 < len(passage) <= PASSAGE for passage in passages)
    assert passages[1:3] == [("x " * 500).strip(), ("x " * 200).strip()]
    assert passages[3:5] == [f"# Edema\n{EDEMA}", EDEMA]
    assert [len(passage) for passage in passages[5:]] == [1000, 500]
    assert read_passages([texts / "c.jsonl", texts / "c.jsonl"]) == passages[4:]


def test_what_shares_words_is_found_best_first():
    pytest.importorskip("bm25s")
    passages = ["The heart.", FRACTURE, EDEMA, "Edema of the ankle.", EDEMA + " "]
    found = [EDEMA, EDEMA + " ", "Edema of the ankle."]
    for count in (3, 2, 50):
        assert retriever(passages, count)("There is pulmonary edema; the lung shows fluid.") == found[:count]
    assert [retriever(passages, 3)(text) for text in ("Zyzzyva of the and", "")] == [[], []]


def test_mistakes_are_one_sentence(texts, monkeypatch):
    for path in (texts / "table.csv", texts / "missing.txt"):
        with pytest.raises(SourceError, match=r"is no \.txt, \.md, \.jsonl file and no folder with any"):
            knowledge_files([path])
    for name, content, why in (
        ("b.md", b"\xff\xfe\x00", r"b\.md is no text in UTF-8"),
        ("b.md", b" \n\n ", "hold nothing to retrieve"),
        ("c.jsonl", b'{"title": "t"}\n', r"c\.jsonl row 1"),
    ):
        (texts / name).write_bytes(content)
        with pytest.raises(SourceError, match=why):
            read_passages([texts / name])
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(MedTasksError, match=r"pip install 'medtasks\[curate\]'"):
        retriever([EDEMA], 1)
