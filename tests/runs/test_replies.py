"""Recorded replies: our short form, the harness's two forms, and every line that is neither."""

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.data.privacy import hidden_id
from medtasks.errors import RepliesError, forget_warnings
from medtasks.extract.failure import NO_TEXT, cut_reply, failed_reply
from medtasks.families.family import Reply, Rule
from medtasks.runs.logged_samples import (
    SCORED_SETTINGS,
    make_logged_sample,
    save_reply,
    without_scoring,
)
from medtasks.runs.replies import read_replies, read_samples, take_answer_field
from medtasks.runs.reply_envelope import make_envelope

from ..tables import each_row

DOCUMENTS = [
    {"doc_id": f"{pair}/{position}"} for pair in (10001, 10002, 10003) for position in (1, 2)
]
GREEDY = {
    "doc_id": 0,
    "target": "A",
    "resps": [["(3.43, False)"], ["(4.52, False)"]],
    "doc_hash": "74",
}
TEXT = {
    "doc_id": 3,
    "target": "A",
    "resps": ["The answer is B"],
    "filtered_resps": '{"rule": "x", "reply": "B"}',
}


@pytest.fixture
def read(tmp_path):
    def run(*lines):
        path = tmp_path / "replies.jsonl"
        whole = [
            line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)
            for line in lines
        ]
        path.write_text("\n".join(whole) + "\n", encoding="utf-8")
        return read_replies(path, DOCUMENTS)

    return run


def test_the_short_form_is_read_by_id_or_row(read):
    expected = {
        "10002/1": Reply(text="A"),
        "10001/2": Reply(text=NO_TEXT),
        "10003/2": Reply(text="B"),
    }
    for names in (expected, (2, 1, "5")):
        lines = zip(names, ("A", None, "B"), strict=True)
        replies = read("", *({"doc_id": name, "reply": reply} for name, reply in lines))
        assert replies == expected
        assert list(replies) == list(expected)


def test_a_text_of_the_harness_is_read(read):
    assert read(TEXT) == {"10002/2": Reply(text="The answer is B")}


def test_likelihoods_of_the_harness_are_read(read):
    assert read(GREEDY) == {"10001/1": Reply(losses=(3.43, 4.52))}
    mixed = read(GREEDY | {"resps": ["(3.43, False)", [4.52, True]]})["10001/1"]
    assert (mixed, mixed.greedy) == (Reply(losses=(3.43, 4.52)), (False, True))


def test_a_reply_is_read_with_or_without_a_list_around_it(read):
    for recorded in (
        {"filtered_resps": ["A"]},
        {"resps": "A"},
        {"resps": [["A"]], "filtered_resps": [{}]},
    ):
        assert read({"doc_id": 0, **recorded}) == {"10001/1": Reply(text="A")}


def test_a_failed_forward_pass_is_a_loss_without_a_number(read):
    losses = read(GREEDY | {"resps": [["[LMMS_EVAL_REQUEST_FAILED]"], ["(4.52, False)"]]})[
        "10001/1"
    ].losses
    assert (math.isnan(losses[0]), losses[1]) == (True, 4.52)


def test_published_ids(read):
    """They are never row numbers, and may be numbers in JSON, as those of PubMed are."""
    assert read({"id": "10002/1", "reply": "A", "gold": "B"}) == {"10002/1": Reply(text="A")}
    assert read({"id": "no such", "doc_id": 0, "reply": "A"}) == {"10001/1": Reply(text="A")}
    for unknown in (0, "0", "anatomy-001", None):
        with pytest.raises(
            RepliesError, match=f"line 1: no document '{unknown}' in the prepared dataset"
        ):
            read({"id": unknown, "reply": "A"})
    with pytest.raises(
        RepliesError,
        match=r"line 2: there is an earlier reply with the id '10002/1'; give one per",
    ):
        read(*[{"id": "10002/1", "reply": "A"}] * 2)


@each_row(
    "written", ['{"rule": "robust_choice", "reply": "B"}', '{"rule": "no_such", "reply": null}']
)
def test_a_reply_that_looks_like_an_envelope_stays_text(read, written):
    """Only a samples file that the harness wrote with --reasoning_tags holds an envelope as its reply."""
    samples = [
        {"doc_id": 0, "reply": written},
        {"doc_id": 0, "resps": [written]},
        {
            "doc_id": 0,
            "resps": [[written]],
            "filtered_resps": [make_envelope(written, Rule("robust_choice"))],
        },
    ]
    assert [read(sample)["10001/1"] for sample in samples] == [Reply(text=written)] * 3
    envelope = make_envelope("<think>A?</think>B", Rule("robust_choice"))
    for kept in (
        {"filtered_resps": [envelope]},
        {"resps": [envelope], "filtered_resps": [make_envelope("B", Rule())]},
    ):
        assert read({"doc_id": 0, **kept})["10001/1"] == Reply(text="<think>A?</think>B")


@each_row(
    "written, answer",
    [
        (
            '{"why": "\\"answer\\": \\"A\\"", "answer": "B. \\u00b5g", "others": [{"answer": "C"}]}',
            "B. µg",
        ),
        ('Sure:\n```json\n{"answer": "B"}\n```\nIs that all?', "B"),
        ('{"why": "It\\\'s so", "answer": "B. a"}', "B. a"),  # no JSON: there is no such escape
        ('{"why": "so", "answer": "B. \\u00b5', "B. µ"),  # cut
        ('{"answer": "A"} No, it is {"answer": "B"}', "B"),
        ('{"result": {"answer": 2}}', "2"),
        ('{"answer": ["A", "C"], "sure": true}', '["A", "C"]'),
        ('<think>{"answer": "A"}</think>{"answer": "B"}', "B"),
        ('<think>{"answer": "A"}', ""),
        ('{"answer": null}', ""),
        ("The answer: A", ""),
        ("[" * 100_000, ""),
        ('{"answer": ' + "[" * 100_000, "[" * 100_000),
    ],
)
def test_answer_field(written, answer, warnings):
    forget_warnings()
    warnings.clear()
    others = {
        "2": Reply(text='{"answer": "A"}'),
        "3": Reply(text=NO_TEXT),
        "4": Reply(losses=(1.0,)),
    }
    replies = take_answer_field({"1": Reply(text=written, cut=True), **others}, "answer")
    assert replies == {"1": Reply(text=answer, cut=True), **others, "2": Reply(text="A")}
    sentence = "1 of 2 replies have no JSON field 'answer'; they are scored as empty replies."
    assert warnings == [sentence] * (answer == "")


def test_an_answer_field_that_no_reply_has():
    with pytest.raises(
        RepliesError,
        match="none of the 1 replies has a JSON field 'Answer'; give the answer field as",
    ):
        take_answer_field({"1": Reply(text='{"answer": "A"}')}, "Answer")
    assert take_answer_field({"1": Reply(text=NO_TEXT)}, "answer") == {"1": Reply(text=NO_TEXT)}


@each_row(
    "written, reply",
    [
        (None, Reply(text=NO_TEXT)),
        ("", Reply(text="")),
        (failed_reply("no memory"), Reply(text=failed_reply("no memory"))),
        (cut_reply("The answer"), Reply(text="The answer", cut=True)),
        (cut_reply(""), Reply(text="", cut=True)),
    ],
)
def test_marks_of_failed_and_cut_replies_in_every_form(read, written, reply):
    """An empty text is a reply; no text at all is none."""
    forms = [
        {"doc_id": "10001/1", "reply": written},
        {"doc_id": 0, "resps": [written], "filtered_resps": "x"},
        {"doc_id": 0, "resps": [[written]]},
    ]
    assert [read(one) for one in forms] == [{"10001/1": reply}] * len(forms)


def test_one_reply_per_filter_must_agree(read):
    assert read(TEXT, TEXT | {"filtered_resps": "else"}) == {
        "10002/2": Reply(text="The answer is B")
    }
    with pytest.raises(
        RepliesError, match=r"replies.jsonl line 3: document 10002/2 has two different replies"
    ):
        read(TEXT, TEXT, TEXT | {"resps": ["A"]})
    with pytest.raises(RepliesError, match="two different replies"):
        read({"doc_id": 0, "reply": "A"}, {"doc_id": "0", "reply": "B"})


@each_row(
    "ids, names, rows",
    [
        ("123456", (1, 2, 3, 4, 5), (0, 1, 2, 3, 4)),
        ("123456", ("2", 3.0), (1, 2)),
        (("001", "002", "010"), (1, "002", "10"), (0, 1, 2)),
        ("1234", ("001", "0004"), (0, 3)),
        (("1", "01", "002"), ("01", "1", 2), (1, 0, 2)),
        (("100", "101", "102"), (0, 1, 2), (0, 1, 2)),
        (("100", "101", "102"), ("1", "0"), (1, 0)),
        ("abc", (2,), (2,)),
        (("1.0", "2"), ("1.0",), (0,)),
        (("1.0", "2.0", "3.5", "7"), (1, "2", 3.50, "7.0"), (0, 1, 2, 3)),
        (("1.10", "1.2"), ("1.1", "1.20"), (0, 1)),
        (("-1", "x y"), ("x y", "-1"), (1, 0)),
    ],
)
def test_numbers_are_rows_only_if_none_is_an_id(tmp_path, ids, names, rows):
    documents = [{"doc_id": name} for name in ids]
    files = [tmp_path / f"{number}.jsonl" for number in range(len(names))]
    for file, name in zip(files, names, strict=True):
        file.write_text(json.dumps({"doc_id": name, "reply": f"to {name}"}))
    expected = {
        ids[row]: Reply(text=f"to {name}") for row, name in zip(rows, names, strict=True)
    }
    assert (
        read_replies(files, documents) == expected
    )  # also where each rank wrote a file of its own
    files[0].write_text("\n".join(file.read_text() for file in files))
    assert read_replies(files[0], documents) == expected


@each_row(
    "ids, names, sentence",
    [
        (
            "1234",
            (0, 1, 2, 3),
            "line 1: '0' is no id of the questions and could only .* while '1' is an id; name",
        ),
        (
            "1a",
            ("a", "0"),
            "line 2: '0' is no id of the questions and could only count their rows, from 0, while 'a'",
        ),
        (
            ("100", "101", "108"),
            ("2",),
            "line 1: no document '2' in the prepared dataset; its ids run from '100' to",
        ),
        (("1", "01", "2"), ("001",), "line 1: no document '001'"),
        (("1.0", "2.0", "3.5", "4.0"), (3,), "line 1: no document '3'"),
        # The float next to it in a column of floats, for what was 12345678901234567.
        (
            ("12345678901234567", "12345678901234568"),
            (12345678901234567.0,),
            "no document '1.2345678901234568e",
        ),
        (("1.2", "1.2.840"), ("1.2.84",), "line 1: no document '1.2.84'"),
        ("abc", (0, 1, 3), "line 3: no document '3'"),
        ("abc", (-1,), "line 1: no document '-1'"),
    ],
)
def test_names_that_are_neither_all_ids_nor_all_rows(tmp_path, ids, names, sentence):
    lines = [json.dumps({"doc_id": name, "reply": "A"}) for name in names]
    (tmp_path / "replies.jsonl").write_text("\n".join(lines))
    with pytest.raises(RepliesError, match=sentence):
        read_replies(tmp_path / "replies.jsonl", [{"doc_id": name} for name in ids])


def test_the_harness_counts_rows_whatever_the_ids_are(tmp_path):
    file = tmp_path / "20260102_030405_samples_own.jsonl"
    documents = [{"doc_id": str(number)} for number in (1, 2, 3)]
    for sample in ({}, {"score": {"sample": "2"}}):
        file.write_text(json.dumps({"doc_id": 1, "resps": ["A"], **sample}))
        assert read_replies(file, documents) == {"2": Reply(text="A")}


# ---- samples that have changed since they were asked ----

QUESTION = {
    "doc_id": "0",
    "question": "Is it round?",
    "options": ["yes", "no"],
    "answer": "A",
    "image_file": "0.png",
}


@pytest.fixture
def asked(tmp_path):
    """A samples file of two questions, and the data and settings of its images."""
    (tmp_path / "images").mkdir()
    documents = [
        QUESTION,
        {**QUESTION, "doc_id": "1", "question": "Is it red?\nLook.", "image_file": "1.png"},
    ]
    for document in documents:
        (tmp_path / "images" / document["image_file"]).write_text(document["question"])
    settings = {
        "image_root": str(tmp_path / "images"),
        "template": "{{ question }} {{ hospital }}",
    }
    reset = SCORED_SETTINGS.set(settings)
    lines = []
    for row, document in enumerate(documents):
        written = dict.copy(
            make_logged_sample(
                {**document, "hospital": "ours", "ward": 1}, ["A"], [], {"sample": str(row)}
            )
        )
        lines.append({"doc_id": row, "resps": ["A"], "input": document["question"], **written})
    SCORED_SETTINGS.reset(reset)
    return (
        tmp_path / "samples.jsonl",
        lines,
        [{**document, "hospital": "ours"} for document in documents],
        settings,
    )


def read_asked(asked, *documents):
    file, lines, before, settings = asked
    file.write_text("\n".join(map(json.dumps, lines)))
    return read_samples(file, documents or before, settings=settings, keep_scores=True)


@each_row(
    "change, parts",
    [
        ({}, None),
        ({"ward": 2, "patient_id": "p"}, None),
        ({"question": "Is it square?"}, ["question"]),
        ({"options": ["Yes", "no"]}, ["options"]),
        ({"answer": "B"}, ["answer"]),
        ({"hospital": "theirs"}, ["hospital"]),
        ({"image_file": "1.png"}, ["images"]),
        ({"image_file": "copy.png"}, None),
        ({"image_file": "not here.png"}, None),
        ({"image_sha256": "0" * 64}, ["images"]),
        ({"answer": "B", "question": "Is it square?"}, ["answer", "question"]),
    ],
)
def test_a_sample_that_changed_since_is_left_out(asked, change, parts):
    Path(asked[3]["image_root"], "copy.png").write_text(QUESTION["question"])
    first, second = asked[2]
    samples = read_asked(asked, {**first, **change}, second)
    assert samples.changed == ({} if parts is None else {"0": parts})
    assert list(samples.replies) == list(samples.answered) == ["0", "1"][parts is not None :]


def test_an_image_is_compared_by_its_content(asked, tmp_path):
    image = tmp_path / "images" / "0.png"
    os.utime(image, (1, 1))
    assert read_asked(asked).changed == {}
    state, content = image.stat(), image.read_text()
    image.write_text(content[::-1])
    os.utime(image, ns=(state.st_atime_ns, state.st_mtime_ns))  # of the same size and time
    assert read_asked(asked).changed == {"0": ["images"]}
    image.write_text("another")
    assert read_asked(asked).changed == {"0": ["images"]}
    assert (
        read_samples(asked[0], asked[2]).changed == {}
    )  # without settings the file cannot be found


def test_samples_are_matched_by_the_id_that_the_run_recorded(asked):
    first, second = asked[2]
    new = {**first, "doc_id": "new"}
    assert list(read_asked(asked, new, second, first).replies) == ["0", "1"]
    samples = read_asked(asked, new, second)
    assert (samples.changed, list(samples.replies)) == ({"0": ["gone"]}, ["1"])
    sentence = samples.describe_changes(asked[0])
    assert sentence.startswith(
        f"1 of 2 samples in {asked[0]} are in no score, because they have changed since they "
    )
    assert "'0' (gone); give the run's command again with --only-failed" in sentence
    shifted = [
        {**document, "doc_id": str(row)} for row, document in enumerate((new, first, second))
    ]
    assert read_asked(asked, *shifted).changed == {"1": ["question", "images"]}


def test_replies_to_changed_questions_are_warned_of_or_refused(asked, warnings):
    forget_warnings()
    warnings.clear()
    file, _, documents, settings = asked
    first, second = ({**document, "answer": "B"} for document in documents)
    read_asked(asked)
    assert list(read_replies(file, [first, documents[1]], settings)) == ["1"]
    assert [sentence[:15] for sentence in warnings] == ["1 of 2 samples "]
    with pytest.raises(
        RepliesError, match=r"2 of 2 samples .* '0' \(answer\) and '1' \(answer\)"
    ):
        read_replies(file, [first, second], settings)


def test_a_run_without_fingerprints_is_compared_by_its_prompts(asked):
    _, lines, (first, second), _ = asked
    for line in lines:
        del line["score"]
    assert list(read_asked(asked).replies) == ["0", "1"]
    assert read_asked(asked, {**second, "doc_id": "0"}, {**first, "doc_id": "1"}).changed == {
        "0": ["question"],
        "1": ["question"],
    }
    assert list(
        read_asked(asked, {**first, "question": "Is it shown otherwise?"}, second).replies
    ) == ["0", "1"]


def test_fingerprints_of_credentialed_data_are_never_logged(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    document = {**QUESTION, "dataset": "multimedeval_mednli", "doc_id": "p10"}
    assert (
        "fingerprint"
        not in make_logged_sample(document, ["secret"], [], {"sample": "p10"})["score"]
    )
    file = tmp_path / "replies" / str(save_reply(document, "secret"))
    assert read_replies(file, [document]) == {"p10": Reply(text="secret")}
    with pytest.raises(
        RepliesError, match=r"1 of 1 samples .*: 'doc-\w+' \(answer\)"
    ) as refused:
        read_replies(file, [{**document, "answer": "B"}])
    assert "p10" not in str(refused.value)


def test_replies_that_are_only_collected_have_a_fingerprint(asked):
    file, _, (first, _), _ = asked
    returned = without_scoring(first, ["A"])
    assert dict(returned.items()) == {"bypass": 0}  # what the harness takes for metrics
    file.write_text(json.dumps({"doc_id": 0, "resps": ["A"], **dict.copy(returned)}))
    assert read_samples(file, [first]).changed == {}
    assert read_samples(file, [{**first, "answer": "B"}]).changed == {"0": ["answer"]}
    assert without_scoring({"question": "not ours"}, ["A"]) == {"bypass": 0}


@each_row("separator", ["\u2028", "\u2029", "\x85"])
def test_replies_may_hold_what_python_calls_a_line_end(tmp_path, separator):
    path = tmp_path / "replies.jsonl"
    lines = [f'{{"doc_id": 0, "reply": "A{separator}B"}}', '{"doc_id": 1, "reply": "B"}']
    path.write_text("\r\n".join(lines), encoding="utf-8-sig", newline="")
    assert read_replies(path, DOCUMENTS)["10001/1"].text == f"A{separator}B"


@each_row(
    "line, part",
    [
        ("nonsense", r"line 2 is not valid JSON \("),
        ('{"doc_id": 0, "reply": "A"', r"line 2 is not valid JSON \("),
        ("[1, 2]", "line 2 has no 'doc_id'; expected lines like"),
        ('{"doc_id": 1}', "line 2 has neither 'reply' nor 'resps'"),
        ('{"doc_id": 1, "resps": [[]]}', "line 2 has neither 'reply' nor 'resps'"),
        ('{"doc_id": 1, "reply": 5}', "line 2: 'reply' must be text or null"),
        (
            '{"doc_id": "10009/1", "reply": "A"}',
            "no document '10009/1' .* run from '10001/1' to '10003/2'",
        ),
        ('{"doc_id": "²", "reply": "A"}', "line 2: no document '²'"),
        ('{"doc_id": true, "reply": "A"}', "line 2: no document 'True'"),
        ('{"doc_id": ["1"], "reply": "A"}', "line 2: no document"),
        ('{"doc_id": "' + "9" * 5000 + '", "reply": "A"}', "line 2: no document"),
    ],
)
def test_malformed_line(read, line, part):
    with pytest.raises(RepliesError, match=part) as caught:
        read({"doc_id": 0, "reply": "A"}, line)
    assert "\n" not in str(caught.value)


def test_replies_to_other_data_are_refused(read):
    asked = {"score": {"sample": "10001/2", "value": "A"}}
    assert read({"doc_id": 1, "resps": ["A"]} | asked)["10001/2"].text == "A"
    with pytest.raises(
        RepliesError,
        match=r"answers document '10001/2', but row 0 .* is '10001/1'.*MEDTASKS_HOME",
    ):
        read({"doc_id": 0, "resps": ["A"]} | asked)


def test_files_that_hold_no_replies_are_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    for path, contents in (("empty", b""), ("blank", b" \n\n"), ("binary", b"\xff\xfe")):
        (tmp_path / path).write_bytes(contents)

    for path in ("none", "folder", "empty", "blank", "binary"):
        with pytest.raises(
            RepliesError, match=f"{path}.*(holds no replies|No such file|can't decode)"
        ):
            read_replies(tmp_path / path, DOCUMENTS)


@pytest.fixture
def rank_files(tmp_path):
    (tmp_path / "run").mkdir()
    files = [tmp_path / "run" / f"rank{rank}.jsonl" for rank in range(2)]
    for rank, file in enumerate(files):
        file.write_text(json.dumps({"doc_id": rank, "reply": f"reply {rank}"}) + "\n")
    return files


def test_files_of_several_ranks_are_one_run(rank_files):
    folder = rank_files[0].parent
    (folder / "notes.txt").write_text("no replies")

    expected = {DOCUMENTS[rank]["doc_id"]: Reply(text=f"reply {rank}") for rank in range(2)}
    assert read_replies(rank_files, DOCUMENTS) == read_replies(folder, DOCUMENTS) == expected
    assert read_replies([folder, rank_files[0]], DOCUMENTS) == expected


def test_files_of_two_runs_are_refused(rank_files):
    rank_files[1].write_text(json.dumps({"doc_id": 0, "reply": "another run"}) + "\n")
    with pytest.raises(
        RepliesError,
        match=r"rank1\.jsonl line 1: document .* two different replies.*of one run only",
    ):
        read_replies(rank_files, DOCUMENTS)


def test_withheld_replies_are_read_from_where_the_run_saved_them(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    note = "[[medtasks:withheld]] 'multimedeval_mednli' is credentialed"
    lines = []
    for row in range(2):
        score = {"schema_version": 2, "rule": "r", "saved": "med/run.jsonl"}
        withheld = {"doc_id": row, "resps": [[note]], "filtered_resps": [note], "score": score}
        lines.append(json.dumps(withheld))
    file = tmp_path / "samples.jsonl"
    file.write_text("\n".join(lines) + "\n")
    saved = tmp_path / "replies" / "med" / "run.jsonl"
    saved.parent.mkdir(parents=True)
    ids = [document["doc_id"] for document in DOCUMENTS[:3]]
    replies = [json.dumps({"doc_id": name, "reply": f"reply {name}"}) for name in ids]
    saved.write_text("\n".join(replies) + "\n")
    read = read_replies(file, DOCUMENTS)
    assert read == {name: Reply(text=f"reply {name}") for name in ids[:2]}
    saved.write_text(replies[0] + "\n")
    with pytest.raises(RepliesError, match="does not hold those of the whole run"):
        read_replies(file, DOCUMENTS)
    # A name from a file of others leads to no other folder.
    (tmp_path / "secret.jsonl").write_text("\n".join(replies) + "\n")
    file.write_text("\n".join(lines).replace("med/run.jsonl", "../secret.jsonl") + "\n")
    with pytest.raises(RepliesError, match="does not hold those of the whole run"):
        read_replies(file, DOCUMENTS)


def test_samples_of_credentialed_data(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    note = make_logged_sample(
        {"dataset": "multimedeval_mednli", "doc_id": "1"}, ["secret"], ["accuracy"], {}
    )["resps"][0][0]
    file = tmp_path / "samples.jsonl"
    file.write_text(json.dumps({"doc_id": 0, "resps": [note], "filtered_resps": note}) + "\n")
    with pytest.raises(
        RepliesError,
        match=r"line 1 holds no reply, because .* credentialed.*/replies does not hold",
    ):
        read_replies(file, DOCUMENTS)
    doc_id = DOCUMENTS[0]["doc_id"]
    losses = {
        "doc_id": 0,
        "resps": [["(1.0, True)"], ["(2.0, False)"]],
        "score": {"sample": hidden_id("doc", doc_id)},
    }
    file.write_text(json.dumps(losses) + "\n")
    assert read_replies(file, DOCUMENTS) == {doc_id: Reply(losses=(1.0, 2.0))}
    file.write_text(
        json.dumps(losses | {"score": {"sample": hidden_id("doc", "another")}}) + "\n"
    )
    with pytest.raises(RepliesError, match="answers document 'doc-"):
        read_replies(file, DOCUMENTS)


ROWS = [{"doc_id": f"d{row}"} for row in range(3)]


def read_file(folder, *lines, likelihoods=False, keep=False):
    path = folder / "samples.jsonl"
    written = [
        line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)
        for line in lines
    ]
    path.write_text("\n".join(written) + "\n", encoding="utf-8")
    return read_samples(path, ROWS, likelihoods=likelihoods, keep_scores=keep)


def test_a_samples_file_holds_replies_next_to_their_prompts(tmp_path):
    found = read_file(
        tmp_path,
        {"doc_id": 0, "resps": ["A\u2028B"], "filtered_resps": "x", "input": "asked"},
        {"doc_id": 2, "filtered_resps": "equal to resps, so that the harness left these out"},
        {
            "doc_id": 1,
            "resps": [None],
            "filtered_resps": json.dumps({"rule": "robust_choice", "reply": None}),
        },
    )
    texts = {
        "d0": "A\u2028B",
        "d2": "equal to resps, so that the harness left these out",
        "d1": NO_TEXT,
    }
    assert found.replies == {doc_id: Reply(text=text) for doc_id, text in texts.items()}
    assert (found.prompts, list(found.answered), found.damaged) == (
        {"d0": "asked"},
        ["d0", "d2", "d1"],
        0,
    )


def test_of_several_replies_in_a_samples_file_the_first_is_read(tmp_path):
    found = read_file(tmp_path, {"doc_id": 0, "resps": ["first", "second"]})

    assert found.replies["d0"].text == "first"


def test_likelihoods_in_a_samples_file_are_read_if_asked_for(tmp_path):
    line = {"doc_id": 0, "resps": [["(1.5, False)"], ["(0.5, True)"]]}
    assert read_file(tmp_path, line, likelihoods=True).replies["d0"].losses == (1.5, 0.5)


def test_a_withheld_reply_leaves_only_its_score(tmp_path):
    note = "[[medtasks:withheld]] 'x' is credentialed"
    score = {"schema_version": 2, "sample": hidden_id("doc", "d1"), "rule": "r", "value": "A"}
    withheld = {"doc_id": 1, "resps": [note], "input": note, "score": score}
    found = read_file(tmp_path, withheld, keep=True)
    assert (found.replies, found.prompts, list(found.answered)) == ({}, {}, ["d1"])
    assert (found.scores, read_file(tmp_path, withheld).scores) == ({"r": {"d1": score}}, {})


def test_torn_lines_of_a_samples_file_are_counted(tmp_path):
    for torn in (
        "{",
        "[]",
        "7",
        '"x"',
        "null",
        "{}",
        '{"doc_id": 0}',
        '{"doc_id": 0, "resps": [7]}',
    ):
        found = read_file(tmp_path, torn, {"doc_id": 1, "resps": ["A"]})
        assert (found.damaged, list(found.replies)) == (1, ["d1"]), torn


@given(st.integers(0, 200))
def test_whatever_is_cut_off_costs_one_line(tmp_path_factory, length):
    path = tmp_path_factory.mktemp("cut") / "samples.jsonl"
    lines = [
        json.dumps({"doc_id": row, "resps": [f"é{row}"], "input": "p" * 20}).encode()
        for row in range(3)
    ]
    whole = b"\n".join(lines)
    path.write_bytes(whole[: len(whole) - min(length, len(whole))])
    present = [line for line in path.read_bytes().split(b"\n") if line]
    found = read_samples(path, ROWS)
    assert len(found.replies) == sum(line in lines for line in present)
    assert found.damaged == sum(line not in lines for line in present)
