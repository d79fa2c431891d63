import json

from hypothesis import given
from hypothesis import strategies as st

from medtasks.data.privacy import hidden_id
from medtasks.extract.failure import NO_TEXT
from medtasks.families.family import Reply
from medtasks.runs.replies import read_samples

from ..tables import each_row

DOCUMENTS = [{"doc_id": f"d{row}"} for row in range(3)]


def read(folder, *lines, likelihoods=False, keep=False):
    path = folder / "samples.jsonl"
    written = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
    path.write_text("\n".join(written) + "\n", encoding="utf-8")
    return read_samples(path, DOCUMENTS, likelihoods=likelihoods, keep_scores=keep)


def test_replies_and_prompts(tmp_path):
    found = read(
        tmp_path,
        {"doc_id": 0, "resps": ["A\u2028B"], "filtered_resps": "x", "input": "asked"},
        {"doc_id": 2, "filtered_resps": "equal to resps, so that the harness left these out"},
        {"doc_id": 1, "resps": [None], "filtered_resps": json.dumps({"rule": "robust_choice", "reply": None})},
    )
    assert found.replies == {
        "d0": Reply(text="A\u2028B"),
        "d2": Reply(text="equal to resps, so that the harness left these out"),
        "d1": Reply(text=NO_TEXT),
    }
    assert found.prompts == {"d0": "asked"}
    assert list(found.answered) == ["d0", "d2", "d1"]
    assert found.damaged == 0


def test_repeated_replies_and_likelihoods(tmp_path):
    assert read(tmp_path, {"doc_id": 0, "resps": ["first", "second"]}).replies["d0"].text == "first"
    line = {"doc_id": 0, "resps": [["(1.5, False)"], ["(0.5, True)"]]}
    assert read(tmp_path, line, likelihoods=True).replies["d0"].losses == (1.5, 0.5)


def test_withheld_replies(tmp_path):
    note = "[[medtasks:withheld]] 'x' is credentialed"
    score = {"sample": hidden_id("doc", "d1"), "rule": "r", "value": "A"}
    line = {"doc_id": 1, "resps": [note], "input": note, "score": {"schema_version": 2, **score}}
    found = read(tmp_path, line, keep=True)
    assert (found.replies, found.prompts, list(found.answered)) == ({}, {}, ["d1"])
    assert found.scores == {"r": {"d1": {"schema_version": 2, **score}}}
    assert read(tmp_path, line).scores == {}


@each_row("line", [*("{", "[]", "7", '"x"', "null", "{}", '{"doc_id": 0}', '{"doc_id": 0, "resps": [7]}')])
def test_lines_that_say_nothing_are_torn(line, tmp_path):
    found = read(tmp_path, line, {"doc_id": 1, "resps": ["A"]})
    assert (found.damaged, list(found.replies)) == (1, ["d1"])


@given(st.integers(0, 200))
def test_whatever_is_cut_off_costs_one_line(tmp_path_factory, length):
    path = tmp_path_factory.mktemp("cut") / "samples.jsonl"
    lines = [json.dumps({"doc_id": row, "resps": [f"é{row}"], "input": "p" * 20}).encode() for row in range(3)]
    whole = b"\n".join(lines)
    path.write_bytes(whole[: len(whole) - min(length, len(whole))])
    left = [line for line in path.read_bytes().split(b"\n") if line]
    found = read_samples(path, DOCUMENTS)
    assert len(found.replies) == sum(line in lines for line in left)
    assert found.damaged == sum(line not in lines for line in left)
