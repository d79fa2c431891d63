"""``medtasks questions``: what is in the files, who may have them, and which replies ``medtasks score`` refuses."""

import base64
import dataclasses
import io
import json
import re
from pathlib import Path

import pytest
from PIL import Image

from medtasks.data.catalogue import CATALOGUE, Access
from medtasks.data.document_store import load_documents
from medtasks.data.privacy import hidden_id
from medtasks.lmms.remote_models import QUESTION_FILES, TRUSTED
from medtasks.running import question_writer
from medtasks.runs.question_manifest import MANIFEST

from ..tables import each_row

OWN = """task: mine
family: open_question
data: rows.jsonl
image: none
"""
NAMES = ("eins", "frage zwei (2)", "drei\N{LATIN SMALL LETTER U WITH DIAERESIS}", "v" * 65)


@pytest.fixture
def own_folder(tmp_path: Path) -> Path:
    """A folder with an open task of four questions without images, whose ids are not all names for a server."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "mine.yaml").write_text(OWN)
    rows = [
        {"doc_id": name, "question": f"What is {number}?", "answer": "a bone"}
        for number, name in enumerate(NAMES)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def lines_of(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def write_replies(folder: Path, reply: str = "A") -> Path:
    file = folder / "replies.jsonl"
    names = [line["doc_id"] for line in lines_of(folder / "questions.jsonl")]
    file.write_text(
        "".join(json.dumps({"doc_id": name, "reply": reply}) + "\n" for name in names)
    )
    return file


@pytest.fixture
def written(medtasks, sample, tmp_path):
    """A folder with the questions of the sample."""
    folder = tmp_path / "out"
    ran = medtasks("questions", "mediconfusion", "--out", folder)
    assert (ran.code, ran.out) == (
        0,
        f"32 questions of mediconfusion in {folder}; its README.md says how to go on\n",
    )
    return folder


def test_lines_say_what_is_asked_and_nothing_of_the_answer(written):
    documents = load_documents("mediconfusion")
    lines = lines_of(written / "questions.jsonl")

    assert [line["doc_id"] for line in lines] == [document["doc_id"] for document in documents]
    for line, document in zip(lines, documents, strict=True):
        assert list(line) == ["doc_id", "messages", "generation", "text", "images"]
        assert document["question"] in line["text"]
        url, text = {"url": line["images"][0]}, line["text"]
        content = [{"type": "image_url", "image_url": url}, {"type": "text", "text": text}]
        assert line["messages"] == [{"role": "user", "content": content}]


def test_lines_name_the_images_as_stored(written, sample):
    documents = load_documents("mediconfusion")

    for line, document in zip(lines_of(written / "questions.jsonl"), documents, strict=True):
        image = sample / "datasets" / "mediconfusion" / document["image_file"]
        assert (
            Image.open(written / line["images"][0]).tobytes()
            == Image.open(image).convert("RGB").tobytes()
        )
    assert len(list((written / "images").iterdir())) == len(
        {document["image_id"] for document in documents}
    )


def test_questions_have_a_page_and_a_manifest(written):
    manifest = json.loads((written / MANIFEST).read_text())
    assert manifest.keys() == {
        *(
            "task",
            "version",
            "data",
            "prompts",
            "samples",
            "samples_of_task",
            "files",
            "medtasks",
        ),
    }
    assert sorted(path.name for path in written.iterdir()) == [
        "README.md",
        "images",
        MANIFEST,
        "questions.jsonl",
    ]


def test_the_loop_of_the_page_makes_replies_that_are_scored(
    medtasks, sample, tmp_path, monkeypatch
):
    folder = tmp_path / "out"
    assert (
        medtasks("questions", "mediconfusion_blind", "--out", folder, "--limit", "6").code == 0
    )
    page = (folder / "README.md").read_text()
    (loop,) = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    (command,) = re.findall(r"\nmedtasks (score .+)\n", page)
    monkeypatch.chdir(folder)
    asked = []
    exec(loop, {"answer": lambda messages, generation: asked.append(messages) or "A"})
    assert len(asked) == 6
    assert all(
        isinstance(messages[0]["content"], str) for messages in asked
    )  # no image is shown
    ran = medtasks(*command.split())
    assert ran.code == 0
    assert "mediconfusion_blind: 6 of 32 questions answered" in ran.out
    assert medtasks("score", "mediconfusion_blind", folder).out == ran.out.replace(
        "replies.jsonl", str(folder)
    )


@pytest.fixture
def requests_of_three_files(medtasks, sample, tmp_path, monkeypatch):
    """A folder with seven requests in files of at most three."""
    folder = tmp_path / "out"
    monkeypatch.setattr(question_writer, "_MOST_REQUESTS", 3)
    batch = ("--format", "openai-batch", "--limit", "7")
    assert medtasks("questions", "mediconfusion", "--out", folder, *batch).code == 0
    return folder


def test_requests_fit_into_files(requests_of_three_files):
    files = sorted(requests_of_three_files.glob("*.jsonl"))

    assert [file.name for file in files] == [
        f"requests_00{number}.jsonl" for number in (1, 2, 3)
    ]
    assert [len(lines_of(file)) for file in files] == [3, 3, 1]
    requests = [request for file in files for request in lines_of(file)]
    assert [request["custom_id"] for request in requests] == [
        document["doc_id"] for document in load_documents("mediconfusion")[:7]
    ]
    page = (requests_of_three_files / "README.md").read_text()
    assert "vllm run-batch -i requests_001.jsonl" in page


def test_requests_hold_settings_question_and_image(requests_of_three_files, sample):
    files = sorted(requests_of_three_files.glob("*.jsonl"))
    requests = [request for file in files for request in lines_of(file)]

    for request, document in zip(requests, load_documents("mediconfusion"), strict=False):
        assert (request["method"], request["url"]) == ("POST", "/v1/chat/completions")
        body = request["body"]
        assert body.keys() == {"model", "messages", "temperature", "max_completion_tokens"}
        assert (body["model"], body["temperature"], body["max_completion_tokens"]) == (
            "MODEL",
            0,
            32,
        )
        image, text = body["messages"][0]["content"]
        data = base64.b64decode(
            image["image_url"]["url"].removeprefix("data:image/png;base64,")
        )
        stored = Image.open(sample / "datasets" / "mediconfusion" / document["image_file"])
        assert Image.open(io.BytesIO(data)).tobytes() == stored.convert("RGB").tobytes()
        assert document["question"] in text["text"]


BATCH_OF_FIVE = ("--format", "openai-batch", "--limit", "5")


@pytest.fixture
def whole_file(medtasks, sample, tmp_path):
    """One file with five requests."""
    folder = tmp_path / "one"
    assert medtasks("questions", "mediconfusion", "--out", folder, *BATCH_OF_FIVE).code == 0
    return folder / "requests_001.jsonl"


def sizes_of(file):
    return [len(line) + 1 for line in file.read_text().splitlines()]


def test_a_file_of_requests_is_no_larger_than_services_take(
    medtasks, whole_file, tmp_path, monkeypatch
):
    most = sum(sizes_of(whole_file)[:2])
    cut = tmp_path / "cut"
    monkeypatch.setattr(question_writer, "_MOST_BYTES", most)

    assert medtasks("questions", "mediconfusion", "--out", cut, *BATCH_OF_FIVE).code == 0

    files = sorted(cut.glob("*.jsonl"))
    assert "".join(file.read_text() for file in files) == whole_file.read_text()
    assert all(file.stat().st_size <= most for file in files)
    assert len(files) > 2


def test_a_request_larger_than_services_take_is_refused(
    fails, whole_file, tmp_path, monkeypatch
):
    sizes = sizes_of(whole_file)
    monkeypatch.setattr(question_writer, "_MOST_BYTES", min(sizes) - 1)

    fails(
        ["questions", "mediconfusion", "--out", tmp_path / "none", *BATCH_OF_FIVE],
        f"the request for sample 90001/1 has {sizes[0]:,} bytes",
        "without --format openai-batch",
    )

    assert not (tmp_path / "none").exists()


def test_lines_have_the_ids_of_the_user(medtasks, own_folder, tmp_path):
    folder = tmp_path / "lines"

    ran = medtasks("questions", "mine", "--out", folder, "--include_path", own_folder)

    assert ran.code == 0
    assert [line["doc_id"] for line in lines_of(folder / "questions.jsonl")] == list(NAMES)
    assert not (folder / "ids.csv").exists()


@pytest.fixture
def own_batch(medtasks, own_folder, tmp_path):
    """A folder with requests whose ids are not all names of requests."""
    folder = tmp_path / "batch"
    own = ("--include_path", own_folder, "--format", "openai-batch")
    assert medtasks("questions", "mine", "--out", folder, *own).code == 0
    return folder


def test_ids_that_are_no_names_of_requests_become_digests(own_batch):
    names = [request["custom_id"] for request in lines_of(own_batch / "requests_001.jsonl")]
    assert names == [NAMES[0], NAMES[1], hidden_id("doc", NAMES[2]), hidden_id("doc", NAMES[3])]
    table = (own_batch / "ids.csv").read_text(encoding="utf-8").splitlines()
    assert table == ["custom_id,doc_id", f"{names[2]},{NAMES[2]}", f"{names[3]},{NAMES[3]}"]


def test_replies_under_digests_are_scored(medtasks, own_folder, own_batch):
    names = [request["custom_id"] for request in lines_of(own_batch / "requests_001.jsonl")]
    replies = ["a bone", "a bone", "a bone", "a nail"]
    rows = [
        {"doc_id": name, "reply": reply} for name, reply in zip(names, replies, strict=True)
    ]
    (own_batch / "replies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    ran = medtasks("score", "mine", own_batch / "replies.jsonl", "--include_path", own_folder)

    assert "mine: 4 of 4 questions answered" in ran.out
    assert "75.0%" in ran.out


def test_several_tasks_have_a_folder_each(medtasks, sample, tmp_path):
    ran = medtasks(
        "questions",
        "mediconfusion_all",
        "mediconfusion_ff",
        "--out",
        tmp_path / "out",
        "--limit",
        "2",
    )

    assert ran.code == 1
    assert "left out mediconfusion_gd: 'mediconfusion_gd' compares likelihoods" in ran.out
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == [
        "mediconfusion",
        "mediconfusion_ff",
    ]  # the latter needs a judge, but only for scores
    assert all((tmp_path / "out" / name / MANIFEST).is_file() for name in written)


# ---- replies to other questions ----


@each_row(
    "key, value, part",
    [
        ("version", "0", "version 0 of the task, which is now version"),
        ("data", "0123456789ab", "other data (fingerprint 0123456789ab, now"),
        ("prompts", "0", "other prompts than those of today"),
        ("task", "mediconfusion_blind", "answer the questions of 'mediconfusion_blind'"),
        ("files", None, "is damaged"),
    ],
)
def test_replies_to_other_questions_are_refused(
    medtasks, fails, sample, tmp_path, key, value, part
):
    folder = tmp_path / "out"
    assert medtasks("questions", "mediconfusion", "--out", folder, "--limit", "3").code == 0
    replies = write_replies(folder)
    assert medtasks("score", "mediconfusion", replies).code == 0
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, key: value}))
    fails(["score", "mediconfusion", replies], part)
    fails(["score", "mediconfusion", folder], part)


@each_row(
    "file, change",
    [
        (
            "mine.yaml",
            lambda text: (
                f"{text}description: Mind the gap.\nlmms_eval_specific_kwargs: {{default: {{template: x}}}}\n"
            ),
        ),
        ("rows.jsonl", lambda text: text.replace("What is 3", "What is 4")),
        ("prompts.py", lambda text: text.replace("Say", "Tell")),
    ],
)
def test_a_changed_task_of_the_users_own_is_another_one(
    medtasks, fails, own_folder, tmp_path, file, change
):
    own, folder = ("--include_path", own_folder), tmp_path / "out"
    (own_folder / "prompts.py").write_text(
        'def prompt(doc, settings=None):\n    return "Say: " + doc["question"]\n'
    )
    (own_folder / "mine.yaml").write_text(f"{OWN}doc_to_text: !function prompts.prompt\n")
    (own_folder / "rows.jsonl").write_text(
        (own_folder / "rows.jsonl").read_text().replace("What is 4", "What is 3")
    )
    assert medtasks("questions", "mine", "--out", folder, *own).code == 0
    assert lines_of(folder / "questions.jsonl")[0]["text"] == "Say: What is 0?"
    replies = write_replies(folder, "a bone")
    assert medtasks("score", "mine", replies, *own).code == 0

    path = own_folder / file
    path.write_text(change(path.read_text()))

    fails(
        ["score", "mine", replies, *own],
        "replies answer questions of 'mine' that were made from other",
    )


# ---- what cannot be asked ----


def test_likelihoods_and_rounds_are_no_replies_in_files(fails, sample, own_folder, tmp_path):
    out = ("--out", tmp_path / "out")
    fails(
        ["questions", "mediconfusion_gd", *out],
        "compares likelihoods",
        "'mediconfusion'",
        "'medtasks run'",
    )
    fails(
        ["questions", "medevalkit_pmc_vqa_ll", *out],
        "those of 'medevalkit_pmc_vqa', which asks for words",
    )
    (own_folder / "mine.yaml").write_text(f"{OWN}output_type: generate_until_multi_round\n")
    fails(
        ["questions", "mine", *out, "--include_path", own_folder],
        "'mine' asks in several rounds",
    )
    fails(
        ["questions", "medevalkit_pmc_vqa", *out],
        "dataset 'medevalkit_pmc_vqa'",
        "is not prepared",
    )
    fails(
        ["questions", "mediconfusoin", *out],
        "unknown task 'mediconfusoin'; did you mean 'mediconfusion'?",
    )
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_in_it_is_left_alone(fails, sample, tmp_path):
    (tmp_path / "replies.jsonl").write_text("earlier")
    fails(
        ["questions", "mediconfusion", "--out", tmp_path],
        f"{tmp_path} is not empty; name a new folder",
    )
    fails(["questions", "mediconfusion", "--out", tmp_path / "replies.jsonl"], "is not empty")
    assert [path.name for path in tmp_path.iterdir()] == ["replies.jsonl"]


def test_a_prompt_that_fails_leaves_no_part_of_the_questions(fails, own_folder, tmp_path):
    prompt = "def prompt(doc, settings=None):\n    return str(1 / (len(doc['doc_id']) < 60))\n"
    (own_folder / "prompts.py").write_text(prompt)
    (own_folder / "mine.yaml").write_text(f"{OWN}doc_to_text: !function prompts.prompt\n")
    arguments = ["questions", "mine", "--out", tmp_path / "out", "--include_path", own_folder]
    fails(arguments, "a prompt of 'mine' cannot be made (ZeroDivisionError: division by zero)")
    assert not (tmp_path / "out").exists()


# ---- credentialed data ----


CREDENTIALED = ("questions", "mediconfusion", "--limit", "4", "--out")


@pytest.fixture
def credentialed(sample, monkeypatch):
    """Make the sample a credentialed set."""
    info = dataclasses.replace(CATALOGUE["mediconfusion"], access=Access.CREDENTIALED)
    monkeypatch.setitem(CATALOGUE, "mediconfusion", info)


@each_row(
    "permission",
    ["", "http://127.0.0.1:8000", "class:medtasks.model_adapters.tiny.MedTasksTiny"],
)
def test_credentialed_questions_need_the_users_word(
    fails, credentialed, tmp_path, monkeypatch, permission
):
    monkeypatch.setenv(TRUSTED, permission)

    fails(
        [*CREDENTIALED, tmp_path / "out"],
        "questions of credentialed data (mediconfusion)",
        f"set {TRUSTED}={QUESTION_FILES}",
    )

    assert not (tmp_path / "out").exists()


@pytest.fixture
def permitted(medtasks, credentialed, tmp_path, monkeypatch):
    """A folder with credentialed questions, as the user wants it."""
    monkeypatch.setenv(TRUSTED, QUESTION_FILES)
    assert medtasks(*CREDENTIALED, tmp_path / "out").code == 0
    return tmp_path / "out"


def test_credentialed_questions_are_their_owners_alone(permitted):
    everything = [permitted, *permitted.rglob("*")]
    assert all(path.stat().st_mode & 0o077 == 0 for path in everything)


def test_credentialed_questions_have_hidden_ids(permitted):
    ids = [document["doc_id"] for document in load_documents("mediconfusion")[:4]]
    assert [line["doc_id"] for line in lines_of(permitted / "questions.jsonl")] == [
        hidden_id("doc", one) for one in ids
    ]
    endings = (".jsonl", ".json", ".md")
    text = "".join(path.read_text() for path in permitted.rglob("*") if path.suffix in endings)
    assert [one for one in ids if one in text] == []
    assert not (permitted / "ids.csv").exists()


def test_replies_to_credentialed_questions_are_scored(medtasks, permitted):
    ran = medtasks("score", "mediconfusion", write_replies(permitted))

    assert ran.code == 0
    assert "mediconfusion: 4 of 32 questions answered" in ran.out


# ---- a batch's output ----


def batch_answer(request: dict, text: str | None) -> dict:
    """Return the line of a batch's output for a request; None for one that failed."""
    if text is None:
        body = {"error": {"message": "too long", "code": "context_length_exceeded"}}
        response = {"status_code": 400, "request_id": "r", "body": body}
        return {
            "id": "b",
            "custom_id": request["custom_id"],
            "response": response,
            "error": None,
        }
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    }
    body = {"object": "chat.completion", "model": "m", "choices": [choice]}
    response = {"status_code": 200, "request_id": "r", "body": body}
    return {"id": "b", "custom_id": request["custom_id"], "response": response, "error": None}


def set_access(monkeypatch, access):
    """Set the access level of the sample, and permit questions of credentialed data."""
    info = dataclasses.replace(CATALOGUE["mediconfusion"], access=access)
    monkeypatch.setitem(CATALOGUE, "mediconfusion", info)
    monkeypatch.setenv(TRUSTED, QUESTION_FILES)


def write_batch(medtasks, folder):
    """Write the questions as a batch; return its requests, and a text for each, None for one that fails."""
    batch = ("--format", "openai-batch")
    assert medtasks("questions", "mediconfusion", "--out", folder, *batch).code == 0
    requests = [
        request for file in sorted(folder.glob("*.jsonl")) for request in lines_of(file)
    ]
    texts = [None if number == 3 else "AB"[number % 2] for number in range(len(requests))]
    return requests, texts


def write_outputs(folder, requests, texts):
    """Write the output of a batch in two files, last answer first."""
    answers = [
        batch_answer(request, text) for request, text in zip(requests, texts, strict=True)
    ]
    answers.reverse()
    outputs = [folder / "replies_001.jsonl", folder / "replies_002.jsonl"]
    for output, part in zip(outputs, (answers[:20], answers[20:]), strict=True):
        output.write_text("".join(json.dumps(answer) + "\n" for answer in part))
    return outputs


@each_row("access", [Access.PUBLIC, Access.CREDENTIALED])
def test_the_output_of_a_batch_scores_as_the_same_replies_in_lines(
    medtasks, sample, tmp_path, monkeypatch, access
):
    set_access(monkeypatch, access)
    monkeypatch.setattr(question_writer, "_MOST_REQUESTS", 10)
    folder = tmp_path / "out"
    requests, texts = write_batch(medtasks, folder)
    outputs = write_outputs(folder, requests, texts)
    lines = tmp_path / "lines.jsonl"
    names = [request["custom_id"] for request in requests]
    rows = [{"doc_id": name, "reply": text} for name, text in zip(names, texts, strict=True)]
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))

    scores = {}
    for source in (outputs, [folder], [lines]):
        ran = medtasks(
            "score",
            "mediconfusion",
            *source,
            "--json",
            tmp_path / "s.json",
            "--max-failed",
            "5",
        )
        assert (ran.code, ran.err) == (0, "")
        scores[str(source)] = json.loads((tmp_path / "s.json").read_text())["rules"]

    of_outputs, of_folder, of_lines = scores.values()
    assert of_outputs == of_lines
    assert of_folder == of_lines


@each_row("access", [Access.PUBLIC, Access.CREDENTIALED])
def test_the_page_of_a_batch_scores_its_outputs(
    medtasks, sample, tmp_path, monkeypatch, access
):
    set_access(monkeypatch, access)
    write_batch(medtasks, tmp_path / "out")

    page = (tmp_path / "out" / "README.md").read_text()
    (command,) = re.findall(r"\nmedtasks (score .+)\n", page)
    assert command == "score mediconfusion replies_*.jsonl"


@each_row("access", [Access.PUBLIC, Access.CREDENTIALED])
def test_the_output_of_a_batch_with_other_prompts_is_refused(
    medtasks, fails, sample, tmp_path, monkeypatch, access
):
    set_access(monkeypatch, access)
    folder = tmp_path / "out"
    outputs = write_outputs(folder, *write_batch(medtasks, folder))
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, "prompts": "0"}))

    fails(["score", "mediconfusion", *outputs], "other prompts than those of today")
