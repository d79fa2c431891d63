"""Result files of other kits: what each says of a question, and a sentence for what cannot be read."""

import json
import pickle
import zipfile
from pathlib import Path

import openpyxl
import pytest
import zstandard

from medtasks.errors import RepliesError, UnknownName
from medtasks.runs.foreign.recognition import read_foreign

from ..tables import each_row

CHAT = {"custom_id": "a", "response": {"status_code": 200, "body": {}}, "error": None}
MMMU = {
    "id": "validation_Pharmacy_1",
    "index2ans": {"A": "rib", "B": "lung"},
    "response": "B",
    "parsed_pred": "A",
}


def write_json(path, content, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, ensure_ascii=False, **options), encoding="utf-8")
    return path


def write_lines(path, *records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def write_xlsx(path, *rows):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def write_eval(path, *samples, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("header.json", "{}")
        for sample in samples:
            archive.writestr(
                f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample)
            )
        archive.writestr("summaries.json", "[]")
    return path


def inspect_sample(name, completion="A", **more):
    output = {
        "completion": completion,
        "choices": [{"message": {"content": completion}, "stop_reason": "stop"}],
    }
    return {
        "id": name,
        "epoch": 1,
        "input": "Where?",
        "choices": ["l", "r"],
        "target": "A",
        "output": output,
    } | more


def values(file, name):
    return [getattr(row, name) for row in file.rows]


def replies(*paths, **options):
    return values(read_foreign(paths, **options), "reply")


@each_row(
    "fields, expected",
    [
        (
            {"prompt": "\nQuestion:  Where? \n", "choices": [" A: l ", " B: r "]},
            {"prompt": "\nQuestion:  Where? \n", "options": (" A: l ", " B: r ")},
        ),
        (
            {
                "question_id": "S_1",
                "question": "Where?",
                "image_path": "/data/x/1.png",
                "choices": ["A. l"],
            },
            {
                "identifier": "S_1",
                "question": "Where?",
                "image_names": ("1.png",),
                "options": ("A. l",),
            },
        ),
        ({"uuid": "u1", "question": "Where?"}, {"identifier": "u1", "question": "Where?"}),
        (
            {"Question": "Is it?", "choices": ["A.yes", "B.no"]},
            {"question": "Is it?", "options": ("A.yes", "B.no")},
        ),
        (
            {"id": 7, "image": ["a/1.png", "b\\2.png"]},
            {"identifier": "7", "image_names": ("1.png", "2.png")},
        ),
        ({"question": "Where?", "thinking": "Hm."}, {"reasoning": "Hm."}),
        ({"prompt": [{"role": "user"}], "prompt_id": "p"}, {"prompt": None, "identifier": "p"}),
        (MMMU, {"options": ("rib", "lung"), "identifier": "validation_Pharmacy_1"}),
    ],
)
def test_fields_of_each_set_of_medevalkit(tmp_path, fields, expected):
    reply = "<think>no</think>\r\nB"
    path = write_json(
        tmp_path / "results.json", [{**fields, "answer": "A", "response": reply}], indent=4
    )
    file = read_foreign([path])
    assert (file.kit, file.reply_column) == ("MedEvalKit", "response")
    assert file.rows[0].reply == reply
    assert {name: getattr(file.rows[0], name) for name in expected} == expected


def test_medevalkit_folders_are_read_once(tmp_path):
    first = [{"question": "Where?", "response": "left", "answer": "left"}]
    chunk = write_json(tmp_path / "SET" / "results_0.json", first)
    write_json(tmp_path / "SET" / "results_1.json", first)
    assert len(read_foreign([tmp_path]).rows) == 2
    write_json(tmp_path / "SET" / "results.json", first * 2)
    write_json(tmp_path / "SET" / "metrics.json", {"total": 1})
    assert len(read_foreign([tmp_path]).rows) == 2
    assert len(read_foreign([chunk]).rows) == 1
    write_json(tmp_path / "OTHER" / "results.json", first)
    with pytest.raises(RepliesError, match=r"2 files of several runs or sets.*OTHER.*name one"):
        read_foreign([tmp_path])


def test_mmmu_of_medevalkit(tmp_path):
    for subject, reply in (("Pharmacy", "B."), ("Anatomy", "A")):
        row = {**MMMU, "response": reply}
        write_json(tmp_path / "val" / subject / "output_sample.json", [row])
        write_json(
            tmp_path / "val" / subject / "parsed_output.json", [row | {"judge": "Correct"}]
        )
        write_json(tmp_path / "val" / subject / "result.json", {"acc": 1.0})
    file = read_foreign([tmp_path / "val"])
    assert values(file, "reply") == ["A", "B."]
    assert "<answer>" in file.notes[0]
    write_json(
        tmp_path / "test" / "response.json",
        {"test_Pharmacy_1": "The rib", "test_Pharmacy_2": ""},
        indent=4,
    )
    parsed = write_json(
        tmp_path / "test" / "results.json",
        {"test_Pharmacy_1": "A", "test_Pharmacy_2": "B"},
        indent=4,
    )
    file = read_foreign([tmp_path / "test"])
    assert values(file, "reply") == ["The rib", ""]
    assert values(file, "identifier") == ["test_Pharmacy_1", "test_Pharmacy_2"]
    with pytest.raises(RepliesError, match=r"parsed.*response\.json"):
        read_foreign([parsed])


def test_radrestruct_cannot_be_told_apart(tmp_path):
    row = {
        "answer_type": "single",
        "question": "Is it?",
        "choices": ["a"],
        "answer": "a",
        "response": "a",
    }
    with pytest.raises(RepliesError, match="cannot be told apart"):
        read_foreign([write_json(tmp_path / "results.json", [row])])


@each_row(
    "cell, reply",
    [
        ("A_x000D_\nB_x001B_[0m", "A\r\nB\x1b[0m"),
        ("_x005F_x000D_", "_x000D_"),
        ("=B", "=B"),
        ("None", "None"),
        ("NA", "NA"),
        ("null", "null"),
        (None, ""),
        ("Failed to obtain answer via API. Retry", None),
        ("Failed to obtain answer: <class 'ValueError'>", None),
        ("#NAME?", "#NAME?"),
    ],
)
def test_cells_of_vlmevalkit(tmp_path, cell, reply):
    path = write_xlsx(
        tmp_path / "m.xlsx",
        ["index", "question", "prediction"],
        [0, "Where?", "x"],
        [1, "What?", cell],
    )
    if cell == "#NAME?":  # written as a text, not as an error
        book = openpyxl.load_workbook(path)
        book.active["C3"].data_type = "s"
        book.save(path)
    file = read_foreign([path])
    assert file.kit == "VLMEvalKit"
    assert file.rows[1].reply == reply


def test_long_cells_are_cut(tmp_path):
    long = "x" * 32_767
    path = write_xlsx(
        tmp_path / "m.xlsx", ["index", "prediction"], [0, long], [1, "x" * 32_766]
    )
    assert values(read_foreign([path]), "is_cut") == [True, False]


def test_options_and_thinking_of_vlmevalkit(tmp_path):
    names = [
        "index",
        "question",
        "A",
        "B",
        "C",
        "D",
        "answer",
        "image_path",
        "prediction",
        "thinking",
    ]
    path = tmp_path / "m.tsv"
    cells = ["3", "Where?", "5.0", "", "None", "", "A", "x/y.png", 'He said ""A""\nB', "Hm."]
    quoted = ["\t".join(f'"{cell}"' for cell in row) for row in (names, cells)]
    path.write_text("\n".join(quoted) + "\n")
    (row,) = read_foreign([path]).rows
    assert (row.options, row.reply, row.reasoning) == (
        ("5.0", "", "None"),
        'He said "A"\nB',
        "Hm.",
    )
    assert (row.identifier, row.image_names, row.answer) == ("3", ("y.png",), "A")


@each_row(
    "form",
    [
        lambda rows: rows,
        lambda rows: {
            "columns": [*rows[0]],
            "index": [0, 1],
            "data": [[*row.values()] for row in rows],
        },
        lambda rows: {key: {"0": rows[0][key], "1": rows[1][key]} for key in rows[0]},
        lambda rows: {key: [row[key] for row in rows] for key in rows[0]},
    ],
)
def test_json_of_vlmevalkit_has_nan_for_blank_cells(tmp_path, form):
    nan = float("nan")
    rows = [
        {"index": 0, "question": "Where?", "A": "l", "B": nan, "prediction": nan},
        {"index": 1, "question": "What?", "A": "l", "B": "r", "prediction": "B"},
    ]
    file = read_foreign([write_json(tmp_path / "m.json", form(rows), indent=4)])
    assert (file.kit, values(file, "reply"), values(file, "options")) == (
        "VLMEvalKit",
        ["", "B"],
        [("l",), ("l", "r")],
    )


def test_an_index_of_several_questions_is_left_out(tmp_path):
    rows = [
        ["index", "question", "prediction"],
        [0, "Where?", "A"],
        [0, "What?", "A"],
        [1, "Who?", "B"],
        [1, "Who?", "B"],
    ]
    file = read_foreign([write_xlsx(tmp_path / "m.xlsx", *rows)])
    assert values(file, "question") == ["Who?", "Who?"]
    assert "2 rows are left out" in file.notes[0]


def test_a_judged_table_gives_way_to_the_replies_as_they_came(tmp_path):
    names = ["index", "question", "A", "B", "prediction"]
    write_xlsx(tmp_path / "m_SET.xlsx", names, [0, "Where?", None, None, "left, I think"])
    judged = write_xlsx(
        tmp_path / "m_SET_openai_result.xlsx",
        [*names, "hit", "log"],
        [0, "Where?", "left", "Other Answers", "A", 1, ""],
        [1, "Where?", "l", "r", "nan", 0, ""],
    )
    assert replies(tmp_path) == ["left, I think"]
    file = read_foreign([judged])
    assert (values(file, "reply"), values(file, "options")) == (["A", ""], [None, ("l", "r")])
    assert "judging" in file.notes[0]


def test_pickles_are_never_opened(tmp_path):
    class Harmful:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    for name in ("m.pkl", "renamed.xlsx", "renamed.json"):
        (tmp_path / name).write_bytes(pickle.dumps(Harmful()))
        with pytest.raises(RepliesError, match="PRED_FORMAT=tsv"):
            read_foreign([tmp_path / name])
    table = write_xlsx(tmp_path / "m.xlsx", ["index", "prediction"], [0, "A"])
    folder = tmp_path / "newest"
    folder.mkdir()
    (folder / "n.xlsx").symlink_to(table)
    for path in (table, folder / "n.xlsx"):
        with pytest.raises(RepliesError, match=r"m\.pkl"):
            read_foreign([path])
    assert not (tmp_path / "ran").exists()


def prediction(index, prompt, content, **more):
    messages = (
        [{"role": "system", "content": "s"}, {"role": "user", "content": prompt}]
        if prompt
        else []
    )
    message = {"role": "assistant", "content": content}
    output = {"choices": [{"message": message, "stop_reason": "stop"}], "error": None}
    return {
        "index": index,
        "model_output": output,
        "messages": [*messages, message],
        "metadata": {},
    } | more


def test_predictions_of_evalscope(tmp_path):
    parts = [{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": "B"}]
    image = {"type": "image", "image": "data:image/png;base64,AAAA"}
    failed = prediction(2, "q2", "")
    failed["model_output"]["error"] = "timeout"
    cut = prediction(4, "q4", "so")
    cut["model_output"]["choices"][0]["stop_reason"] = "max_tokens"
    path = write_lines(
        tmp_path / "p.jsonl",
        prediction(
            1,
            [image, {"type": "text", "text": "q1\nA) l"}],
            parts,
            metadata={"id": "v-1", "images": ["i/1.png"]},
        ),
        failed,
        prediction(3, "q3", "<think>open"),
        prediction(3, "q3", "C"),
        cut,
    )
    file = read_foreign([path])
    assert values(file, "reply") == ["B", None, "C", "so"]
    assert values(file, "prompt") == ["q1\nA) l", "q2", "q3", "q4"]
    assert (file.rows[0].reasoning, file.rows[0].identifier, file.rows[0].image_names) == (
        "Hm.",
        "v-1",
        ("1.png",),
    )
    assert values(file, "identifier")[1:] == [None] * 3
    assert values(file, "is_cut") == [False, False, False, True]
    assert values(file, "number") == [0, 1, 2, 3]
    assert "1 samples were asked again" in file.notes[0]


@each_row(
    "prompts, repeats",
    [
        (["a", "a", "b", "b"], [0, 1, 0, 1]),
        (["a", "a", "a", "b", "b", "b"], [0, 1, 2, 0, 1, 2]),
        (["a", "a", "b", "c"], [None] * 4),
        (["a", "b", "b", "c"], [None] * 4),
        (["a"], [None]),
    ],
)
def test_repeats_of_evalscope_are_blocks_of_its_index(tmp_path, prompts, repeats):
    lines = [prediction(index, prompt, "A") for index, prompt in enumerate(prompts)]
    file = read_foreign([write_lines(tmp_path / "p.jsonl", *lines[::-1])])
    assert values(file, "repeat") == repeats[::-1]


def test_reviews_of_evalscope(tmp_path):
    def review(index, run, text, **more):
        score = {
            "score": {"prediction": text, "extracted_prediction": "X"},
            "generation_index": run,
            "sample_metadata": {},
        }
        return {"index": index, "target": ["A"], "sample_score": score} | more

    messages = [{"role": "user", "content": "q0"}, {"role": "assistant", "content": "x"}]
    new = write_lines(
        tmp_path / "reviews/m/s.jsonl",
        review(0, 0, "B", messages=messages),
        review(1, 1, "C", messages=[]),
    )
    file = read_foreign([new])
    assert (values(file, "reply"), values(file, "repeat"), values(file, "answer")) == (
        ["B", "C"],
        [0, 1],
        ["A", "A"],
    )
    old = write_lines(
        tmp_path.parent / "old.jsonl", review(0, 0, "B", input="**User**: \nq0", target="D")
    )
    (row,) = read_foreign([old]).rows
    assert (row.prompt, row.answer, row.repeat) == ("**User**: \nq0", "D", None)
    write_lines(
        tmp_path / "predictions/m/s.jsonl", prediction(0, None, "B")
    )  # as 1.0 writes them
    assert len(read_foreign([tmp_path]).rows) == 2
    with pytest.raises(RepliesError, match="reviews"):
        read_foreign([tmp_path / "predictions/m/s.jsonl"])
    write_lines(tmp_path / "predictions/m/s.jsonl", prediction(0, "q0", "<think>a</think>B"))
    assert replies(tmp_path) == ["<think>a</think>B"]


def harness_line(row, name, reply, **more):
    arguments = {"gen_args_0": {"arg_0": f"Q: q{row}\nA:", "arg_1": {}}}
    return {
        "doc_id": row,
        "doc": {},
        "arguments": arguments,
        "resps": [[reply]],
        "filter": name,
        "target": "A",
    } | more


def test_a_question_under_several_filters_is_one_row(tmp_path):
    filters = [
        harness_line(row, name, f"r{row}", filtered_resps=["[invalid]"])
        for name in "ab"
        for row in range(2)
    ]
    file = read_foreign([write_lines(tmp_path / "s.jsonl", *filters)])
    assert (file.kit, values(file, "reply"), values(file, "prompt")) == (
        "lm-eval",
        ["r0", "r1"],
        ["Q: q0\nA:", "Q: q1\nA:"],
    )
    assert values(file, "identifier") == [None, None]
    second = [harness_line(row, name, f"s{row}") for name in "ab" for row in range(2)]
    assert replies(write_lines(tmp_path / "s.jsonl", *filters, *second)) == [
        "r0",
        "r1",
        "s0",
        "s1",
    ]


@each_row(
    "prompt, doc, expected",
    [
        ("Q: old\nA: B\n\nQ: new?\nA. l\nA:", {"question": "new?"}, "new?\nA. l\nA:"),
        ("Q: old\nA: B\n\nQ: new?", {"row": 1}, "Q: old\nA: B\n\nQ: new?"),
        (
            '[{"role": "user", "content": "old"}, {"role": "user", "content": "a\\nb"}]',
            {},
            "a\nb",
        ),
        (['[{"role": "user", "content": "a\\nb"}]'], {}, "a\nb"),
    ],
)
def test_prompts_of_lm_eval(tmp_path, prompt, doc, expected):
    line = harness_line(0, "none", "x", doc=doc, arguments={"gen_args_0": {"arg_0": prompt}})
    assert values(read_foreign([write_lines(tmp_path / "s.jsonl", line)]), "prompt") == [
        expected
    ]


def test_repeats_and_likelihoods_of_lm_eval(tmp_path):
    file = read_foreign(
        [write_lines(tmp_path / "s.jsonl", harness_line(0, "none", "", resps=[["None", ""]]))]
    )
    assert (values(file, "reply"), values(file, "repeat")) == (["None", ""], [0, 1])
    losses = [[["-1.2", "False"]], [["-0.3", "True"]]]
    with pytest.raises(RepliesError, match="likelihoods"):
        read_foreign(
            [write_lines(tmp_path / "s.jsonl", harness_line(0, "none", "", resps=losses))]
        )


def test_samples_of_lmms_eval(tmp_path):
    line = {
        "doc_id": 0,
        "input": "<image 1> q",
        "target": "A",
        "filtered_resps": "A",
        "input_media": ["i/1.png"],
    }
    thinking = line | {
        "doc_id": 1,
        "resps": "<think>h</think>B",
        "mmmu_acc": {"id": "validation_Art_1"},
    }
    file = read_foreign(
        [write_lines(tmp_path / "s.jsonl", line | {"acc": {"id": "0"}}, thinking)]
    )
    assert (file.kit, values(file, "reply")) == ("lmms-eval", ["A", "<think>h</think>B"])
    assert values(file, "identifier") == [None, "validation_Art_1"]
    assert (file.rows[0].prompt, file.rows[0].image_names) == ("<image 1> q", ("1.png",))


@each_row(
    "record",
    [
        {"doc_id": "a", "reply": "A"},
        {"id": "a", "reply": None},
        {"doc_id": 0, "resps": "A", "input": "q", "score": {"schema_version": 2, "rule": "r"}},
        {"doc_id": 0, "resps": "A", "input": "q", "score": {"sample": "a"}},
        {
            "doc_id": 0,
            "resps": [["A"]],
            "arguments": {},
            "doc": {"doc_id": "a", "dataset": "medxpertqa"},
        },
        {"doc_id": 0, "filtered_resps": "A"},
    ],
)
def test_our_own_files_are_left_to_their_reader(tmp_path, record):
    path = write_lines(tmp_path / "r.jsonl", record)
    path.write_text('{"doc_id": torn\n' + path.read_text())
    assert read_foreign([path]) is None
    assert read_foreign([tmp_path]) is None
    foreign = write_lines(tmp_path / "other" / "s.jsonl", harness_line(0, "none", "A"))
    for paths in ([path, foreign], [foreign, path]):
        with pytest.raises(RepliesError, match="of lm-eval"):
            read_foreign(paths)


@each_row("method", [zipfile.ZIP_DEFLATED, 93])
def test_logs_of_inspect(tmp_path, method, monkeypatch):
    error = inspect_sample("c", "", error={"message": "x"}) | {
        "output": {"choices": [], "completion": ""}
    }
    older = inspect_sample("d", "C")
    del older["output"]["completion"]
    path = tmp_path / "log.eval"
    samples = [
        inspect_sample("b", "<think>h</think>\r\nB"),
        inspect_sample("a", ""),
        error,
        older,
    ]
    if method == 93:
        write_zstd(path, samples)
    else:
        write_eval(path, *samples)
    file = read_foreign([path])
    assert (file.kit, values(file, "reply")) == (
        "inspect_ai",
        ["<think>h</think>\r\nB", "", None, "C"],
    )
    assert values(file, "identifier") == ["b", "a", "c", "d"]
    assert values(file, "place") == [f"{path}, sample {number}" for number in range(1, 5)]
    assert (file.rows[0].question, file.rows[0].options, file.rows[0].prompt) == (
        "Where?",
        ("l", "r"),
        None,
    )
    if method == 93:
        monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
        with pytest.raises(RepliesError, match=r"pip install zstandard.*inspect log dump"):
            read_foreign([path])


def write_zstd(path, samples, wrong=0):
    """Write what inspect_ai writes: members of method 93, which Python before 3.14 neither writes nor reads."""
    with zipfile.ZipFile(path, "w") as archive:
        for sample in samples:
            data = json.dumps(sample).encode()
            archive.writestr(f"samples/{sample['id']}_epoch_1.json", zstandard.compress(data))
            member = archive.infolist()[-1]
            member.CRC, member.file_size, member.compress_type = (
                zipfile.crc32(data) + wrong,
                len(data),
                93,
            )


@each_row(
    "ids, identifiers",
    [([1, 2], [None, None]), ([11, 2], ["11", "2"]), (["1", "2"], ["1", "2"])],
)
def test_numbers_that_inspect_gave_are_no_ids(tmp_path, ids, identifiers):
    content = {"eval": {}, "samples": [inspect_sample(name) for name in ids]}
    assert (
        values(read_foreign([write_json(tmp_path / "log.json", content)]), "identifier")
        == identifiers
    )


def test_gold_alone_in_a_list(tmp_path):
    targets = ("A", ["B"], ["A", "B"], [""], [2])
    samples = [
        inspect_sample(f"s{number}", target=target) for number, target in enumerate(targets)
    ]
    file = read_foreign([write_json(tmp_path / "log.json", {"eval": {}, "samples": samples})])
    assert values(file, "answer") == ["A", "B", None, None, "2"]


def test_epochs_and_messages_of_inspect(tmp_path):
    parts = [{"type": "image", "image": "attachment://ab"}, {"type": "text", "text": "Is it?"}]
    asked = [{"role": "system", "content": "s"}, {"role": "user", "content": parts}]
    samples = [
        inspect_sample("a", str(epoch), epoch=epoch, input=asked, choices=None)
        for epoch in (1, 2)
    ]
    file = read_foreign(
        [write_json(tmp_path / "log.json", {"eval": {}, "samples": samples}, indent=2)]
    )
    assert (values(file, "repeat"), values(file, "prompt"), values(file, "reply")) == (
        [0, 1],
        ["Is it?"] * 2,
        ["1", "2"],
    )
    samples[0]["input"] = "attachment://ab"
    samples[0]["attachments"] = {"ab": "Is that?"}
    file = read_foreign(
        [write_json(tmp_path / "log.json", {"eval": {}, "samples": samples[:1]})]
    )
    assert (file.rows[0].prompt, file.rows[0].repeat) == ("Is that?", None)


def chat(name, *choices, **more):
    body = {"choices": [{"index": number, **choice} for number, choice in enumerate(choices)]}
    return CHAT | {"custom_id": name, "response": {"status_code": 200, "body": body}} | more


def message(content, reason="stop", **more):
    return {"message": {"content": content, **more}, "finish_reason": reason}


@each_row(
    "line, expected",
    [
        (chat("a", message("B\r\n")), ["B\r\n"]),
        (chat("a", message("")), [""]),
        (chat("a", message(None, refusal="I cannot.")), ["I cannot."]),
        (chat("a", message(None, "tool_calls", tool_calls=[{}])), [""]),
        (
            chat("a", message([{"type": "text", "text": "A"}, {"type": "text", "text": "B"}])),
            ["AB"],
        ),
        (chat("a", message("A"), message("B")), ["A", "B"]),
        (chat("a", {"text": " B", "finish_reason": "stop"}), [" B"]),
        (CHAT | {"response": None, "error": {"code": "batch_expired"}}, [None]),
        (
            CHAT | {"response": {"status_code": 500, "body": {"error": {"message": "x"}}}},
            [None],
        ),
        (CHAT | {"response": {"status_code": 400, "body": None}, "error": "too long"}, [None]),
        (
            CHAT
            | {
                "response": {"status_code": 200, "body": {"error": {"code": "x"}, "output": []}}
            },
            [None],
        ),
        (
            CHAT
            | {
                "response": {
                    "status_code": 200,
                    "body": {
                        "error": None,
                        "output": [
                            {
                                "type": "reasoning",
                                "summary": [{"type": "summary_text", "text": "Hm."}],
                            },
                            {
                                "type": "message",
                                "content": [{"type": "output_text", "text": "B"}],
                            },
                        ],
                    },
                }
            },
            ["B"],
        ),
        (
            {
                "custom_id": "a",
                "result": {
                    "type": "succeeded",
                    "message": {"content": [{"type": "text", "text": "B"}]},
                },
            },
            ["B"],
        ),
        ({"custom_id": "a", "result": {"type": "errored", "error": {"type": "x"}}}, [None]),
    ],
)
def test_responses_of_batch_apis(tmp_path, line, expected):
    file = read_foreign([write_lines(tmp_path / "o.jsonl", line)])
    assert values(file, "reply") == expected
    assert values(file, "identifier") == ["a"] * len(expected)
    assert values(file, "repeat") == ([0, 1] if len(expected) > 1 else [None])


def test_thinking_and_limits_of_batch_apis(tmp_path):
    lines = [
        chat("a", message("B", reasoning_content="Hm.")),
        chat("b", message(None, "length", reasoning="On and")),
    ]
    file = read_foreign([write_lines(tmp_path / "o.jsonl", *lines)])
    assert (values(file, "reasoning"), values(file, "is_cut"), values(file, "reply")) == (
        ["Hm.", "On and"],
        [False, True],
        ["B", ""],
    )


@each_row(
    "body, prompt",
    [
        (
            {
                "messages": [
                    {"role": "user", "content": "old"},
                    {"role": "user", "content": "q"},
                ]
            },
            "q",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "q"},
                            {"type": "text", "text": "A"},
                        ],
                    }
                ]
            },
            "q\nA",
        ),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "q"}]}]}, "q"),
        ({"input": "q"}, "q"),
        ({"prompt": "q"}, "q"),
    ],
)
def test_a_folder_of_a_batch_has_requests_output_and_errors(tmp_path, body, prompt):
    failed = CHAT | {"custom_id": "b", "response": None, "error": {"code": "batch_expired"}}
    write_lines(tmp_path / "a_errors.jsonl", failed, failed | {"custom_id": "c"})
    write_lines(
        tmp_path / "batch_output.jsonl", chat("a", message("A")), chat("c", message("C"))
    )
    requests = [
        {"custom_id": name, "method": "POST", "url": "/v1", "body": body} for name in "abc"
    ]
    path = write_lines(tmp_path / "batch.jsonl", *requests)
    file = read_foreign([tmp_path])
    assert (values(file, "identifier"), values(file, "reply")) == (
        ["a", "c", "b"],
        ["A", "C", None],
    )
    assert values(file, "prompt") == [prompt] * 3
    assert "1 requests failed" in file.notes[0]
    with pytest.raises(RepliesError, match="requests and no replies"):
        read_foreign([path])


@each_row(
    "data, columns, expected",
    [
        (
            "id;reply\n7;=A\n8;\n".encode("utf-8-sig"),
            {},
            {"reply": ["=A", ""], "identifier": ["7", "8"]},
        ),
        (
            "Nr\tAntwort\n007\tä\n".encode("utf-16"),
            {"id": "Nr", "reply": "Antwort"},
            {"identifier": ["007"], "reply": ["ä"]},
        ),
        (
            "q,answer\nx,Größe\n".encode("cp1252"),
            {"reply": "answer", "question": "q"},
            {"reply": ["Größe"], "answer": [None]},
        ),
        (
            b'question,A,B,C,answer,prediction\nq,l,r,,A,"B\nor"\n',
            {},
            {"options": [("l", "r")], "answer": ["A"], "reply": ["B\nor"], "question": ["q"]},
        ),
        (b"x,y,response\nl,r,A\n", {"options": "x,y"}, {"options": [("l", "r")]}),
        (b'o,response\n"(A) l (B) r",A\n', {"options": "o"}, {"options": [("(A) l", "(B) r")]}),
        (b'o,response\n"A) l; B) r",A\n', {"options": "o"}, {"options": [("A) l", "B) r")]}),
        (b"o,response\n\"['l', 'r']\",A\n", {"options": "o"}, {"options": [("l", "r")]}),
        (b'o,response\n"l\nr",A\n', {"options": "o"}, {"options": [("l", "r")]}),
        (
            b"Results of May\nid,reply\n7,A\n",
            {"id": "id", "reply": "reply"},
            {"identifier": ["7"], "reply": ["A"]},
        ),
        (b"image,reply\nhttp://x.org/a/b.png?c=1,A\n", {}, {"image_names": [("b.png",)]}),
    ],
)
def test_plain_tables(tmp_path, data, columns, expected):
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    file = read_foreign([path], columns=columns)
    assert {name: values(file, name) for name in expected} == expected
    assert file.is_id_named == ("id" in columns)


def test_plain_json_lines_have_nested_keys(tmp_path):
    record = {"item": {"stem": "q", "choices": {"A": "l", "B": "r"}}, "n": 1}
    records = [record | {"out": [{"text": text}]} for text in ("B", None, 2.0)]
    path = write_lines(tmp_path / "o.jsonl", *records)
    columns = {
        "question": "item.stem",
        "options": "item.choices",
        "reply": "out.0.text",
        "id": "n",
    }
    file = read_foreign([path], columns=columns)
    assert values(file, "reply") == ["B", None, "2"]
    assert (file.rows[0].question, file.rows[0].options, file.is_id_named) == (
        "q",
        ("l", "r"),
        True,
    )


def test_plain_workbooks(tmp_path):
    book = openpyxl.Workbook()
    book.active.title, book.active.sheet_state = "old", "hidden"
    book.active.append(["reply"])
    book.active.append(["wrong"])
    sheet = book.create_sheet("answers")
    for row in (
        [],
        ["", "Study 1"],
        ["id", "reply"],
        [7, 2.0],
        [8, True],
        [9, "#NAME?"],
        [10, "=B"],
        [11, None],
    ):
        sheet.append(row)
    path = tmp_path / "t.xlsx"
    book.save(path)
    file = read_foreign([path], columns={"id": "id", "reply": "reply"})
    assert values(file, "reply") == ["2", "TRUE", None, "=B", ""]
    assert values(file, "identifier") == ["7", "8", "9", "10", "11"]
    assert any("#NAME?" in note for note in file.notes)
    assert replies(path, columns={"sheet": "old"}) == ["wrong"]
    with pytest.raises(RepliesError, match=r"no sheet 'x'; it has old, answers"):
        read_foreign([path], columns={"sheet": "x"})


@each_row(
    "name, data, columns, fault",
    [
        (
            "t.csv",
            b"id,prediction,response\n1,A,B\n",
            {},
            "prediction and response may all be replies.*--columns",
        ),
        (
            "t.csv",
            b"id,answer\n1,A\n",
            {},
            "nothing has a name.*--columns reply=NAME.*It has id, answer",
        ),
        (
            "t.csv",
            b"id,reply\n1,A\n",
            {"reply": "repli"},
            "no column 'repli'; did you mean 'reply'",
        ),
        ("t.csv", b'id,reply\n1,"A\n', {}, "quotation mark is never closed"),
        ("t.csv", b"", {}, "is empty"),
        (
            "t.json",
            b'[{"id": "a", "response": "B"}, {"id": "b", "resp',
            {},
            "entry 2 is not valid JSON",
        ),
        ("t.json", b'[{"id": "a", "response": "B"}', {}, "entry 1 is followed by no comma"),
        ("t.json", b'[{"id": "a", "response": NaN}]', {}, "entry 1: 'response' is nan"),
        ("t.json", b'[{"id": "a", "response": -Infinity}]', {}, "entry 1: 'response' is -inf"),
        (
            "t.json",
            b'[{"id": "a", "response": "A", "response": "B"}]',
            {},
            "entry 1.*'response' occurs twice",
        ),
        (
            "t.json",
            b'[{"id": "a", "response": ["B"]}]',
            {},
            "entry 1: 'response' is no text but a list",
        ),
        ("t.json", b'[{"id": "a", "response": "B"}, 3]', {}, "entry 2 is no JSON object"),
        (
            "t.json",
            b'[{"id": "a", "response": "B"}, {"id": "b"}]',
            {},
            "entry 2 has no 'response'",
        ),
        (
            "t.json",
            b'[{"id": "a", "response": "B", "choices": ["l", NaN]}]',
            {},
            "entry 1: 'option 2' is nan",
        ),
        (
            "t.json",
            b'[{"id": "a", "response": "B"}] [{}]',
            {},
            "goes on after the end of its list",
        ),
        ("t.json", b'[{"id": "a", "response": "\xff"}]', {}, "not text in UTF-8 .byte 27"),
        ("t.json", b'{"STUDY-17": "text"}', {}, "nothing has a name.*It has one object$"),
        (
            "t.json",
            b'{"columns": ["index", "prediction"], "data": [[1]]}',
            {},
            "nothing has a name",
        ),
        ("t.json", b"[" * 10_000, {}, "nested too deeply"),
        (
            "o.jsonl",
            b'{"custom_id": "a", "response": {}}\n{"custom_id": "b", "resp',
            {},
            "line 2 is not valid JSON",
        ),
        (
            "o.jsonl",
            b'{"custom_id": "a", "response": {}}\n{"custom_id": 3}',
            {},
            "line 2 has no 'custom_id'",
        ),
        (
            "o.jsonl",
            b'{"custom_id": "a", "response": {}}\n{"custom_id": "\xff"}',
            {},
            "not text in UTF-8",
        ),
        ("o.jsonl", b'{"out": "B"}\n{"other": 1}', {"reply": "out"}, "line 2 has no 'out'"),
        ("t.parquet", b"PAR1\x15\x00\xff\xfe\x81" * 9, {}, "is not text"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, data, columns, fault):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(RepliesError, match=rf"(?s){name}.*{fault}"):
        read_foreign([path], columns=columns)


def test_archives_that_are_large_only_when_unpacked_are_refused(tmp_path):
    zeros = b"0" * (80 << 20)
    for name, members in {
        "a.eval": ["samples/a.json"],
        "a.xlsx": ["xl/workbook.xml", "xl/worksheets/sheet1.xml"],
    }.items():
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for member in members:
                archive.writestr(member, zeros)
        with pytest.raises(RepliesError, match="over 100 times its size"):
            read_foreign([tmp_path / name])


def test_a_damaged_sheet_is_named(tmp_path):
    whole = write_xlsx(tmp_path / "whole.xlsx", ["index", "prediction"], [0, "A"])
    with zipfile.ZipFile(whole) as archive, zipfile.ZipFile(tmp_path / "cut.xlsx", "w") as cut:
        for name in archive.namelist():
            data = archive.read(name)
            cut.writestr(name, data[:-40] if name.endswith("sheet1.xml") else data)
    with pytest.raises(RepliesError, match=r"cut\.xlsx is a damaged workbook"):
        read_foreign([tmp_path / "cut.xlsx"])


def test_a_log_without_samples_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        archive.writestr("_journal/start.json", "{}")
    with pytest.raises(RepliesError, match="without any sample"):
        read_foreign([tmp_path / "log.eval"])


def test_a_damaged_log_is_named(tmp_path):
    path = write_eval(
        tmp_path / "log.eval", inspect_sample("a", "x" * 500), method=zipfile.ZIP_STORED
    )
    path.write_bytes(path.read_bytes().replace(b"x" * 500, b"y" * 500))
    with pytest.raises(RepliesError, match=r"log\.eval, sample 1 cannot be unpacked"):
        read_foreign([path])
    write_zstd(path, [inspect_sample("a", "x" * 500)])
    data = bytearray(path.read_bytes())
    data[80] ^= 255
    path.write_bytes(data)
    with pytest.raises(RepliesError, match=r"log\.eval, sample 1 cannot be unpacked"):
        read_foreign([path])
    write_zstd(path, [inspect_sample("a", "x" * 500)], wrong=1)
    with pytest.raises(RepliesError, match=r"log\.eval, sample 1 cannot be unpacked.*checksum"):
        read_foreign([path])


def test_columns_that_a_chosen_kit_does_not_read_are_refused(tmp_path):
    record = {"id": "a", "question": "q", "response": "B", "answer": "A", "model": "C"}
    path = write_json(tmp_path / "r.json", [record])

    with pytest.raises(RepliesError, match=r"files of MedEvalKit .* for reply; .* 'table'"):
        read_foreign([path], format="medevalkit", columns={"reply": "model"})
    assert read_foreign([path], format="medevalkit", columns={"id": "id"}).is_id_named
    assert replies(path, format="table", columns={"reply": "model"}) == ["C"]


def test_a_format_overrides_and_is_checked(tmp_path):
    record = {"id": "a", "question": "q", "response": "B", "answer": "A"}
    path = write_json(tmp_path / "r.json", [record])
    assert [read_foreign([path], format=name).kit for name in ("medevalkit", "table")] == [
        "MedEvalKit",
        "a table",
    ]
    assert read_foreign([path], columns={"id": "id"}).is_id_named
    with pytest.raises(
        RepliesError, match=r"r\.json is no file of VLMEvalKit; it has id, question"
    ):
        read_foreign([path], format="vlmevalkit")
    with pytest.raises(RepliesError, match="not 'gold'"):
        read_foreign([path], columns={"gold": "id"})
    with pytest.raises(UnknownName, match="medevalkit"):
        read_foreign([path], format="medevalkits")
    own = write_lines(tmp_path / "o.jsonl", {"doc_id": "a", "reply": "B"})
    assert replies(own, format="table") == ["B"]
    others = {"id": "a", "question": "q", "answer": ["E"], "response": "B"}
    (row,) = read_foreign([write_lines(tmp_path / "o.jsonl", others)]).rows
    assert (row.identifier, row.answer, row.reply) == ("a", "E", "B")
    with pytest.raises(RepliesError, match="prediction and response may all be replies"):
        read_foreign([write_lines(tmp_path / "o.jsonl", others | {"prediction": "B"})])


def test_a_missing_file_and_an_empty_folder(tmp_path):
    with pytest.raises(
        RepliesError, match=r"cannot read replies from .*missing\.json: No such file"
    ):
        read_foreign([tmp_path / "missing.json"])
    assert read_foreign([tmp_path]) is None


def test_a_file_with_the_name_of_a_task_of_ours_is_ours_in_a_run_alone(tmp_path):
    line = {"doc_id": 0, "input": "q", "filtered_resps": "A"}
    path = write_lines(tmp_path / "20260102_030405_samples_mediconfusion.jsonl", line)
    file = read_foreign([path])
    assert (file.kit, file.reply_column) == ("lmms-eval", "filtered_resps")
    write_json(tmp_path / "20260102_030405_results.json", {"results": {}})
    assert read_foreign([path]) is None
