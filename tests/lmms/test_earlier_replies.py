"""Replies of an earlier run that are not asked for again, and the choice of that run."""

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from medtasks.data.shards import Shard
from medtasks.errors import MedTasksError, forget_warnings
from medtasks.extract.failure import failed_reply
from medtasks.home import home
from medtasks.lmms.earlier_replies import KEPT_VARIABLE, KeptReply, earlier_run, kept_replies
from medtasks.running.recording import first_manifest
from medtasks.runs.asked_questions import fingerprint
from medtasks.runs.logged_samples import make_logged_sample
from medtasks.runs.reply_origins import COPIED, KEPT
from medtasks.runs.run_manifest import RunManifest, TaskOutcome, TaskRecord
from medtasks.tasks.documents import Selection

from ..tables import each_row

ARGUMENTS = [
    "--model",
    "async_openai",
    "--model_args",
    "base_url=http://127.0.0.1:1/v1,model=m,timeout=1",
    "--log_samples",
]
NOTE = "[[medtasks:withheld]] 'x' is credentialed"


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def write(out, arguments=ARGUMENTS, samples=True, fingerprint="f", second=0):
    record = TaskRecord(
        outcome=TaskOutcome.DONE,
        fingerprint=fingerprint,
        samples="samples.jsonl" if samples else None,
    )
    manifest = first_manifest(
        ["medtasks", "run", *arguments], arguments, ["ours"], Selection(("ours",), {}), []
    )
    began = datetime.now(UTC) - timedelta(hours=1)
    times = {"started": began.isoformat(), "ended": (began + timedelta(hours=2)).isoformat()}
    manifest = manifest.model_copy(update={"tasks": {"ours": record}, **times})
    manifest.write(out / f"20260101_00000{second}_000000_run.json")
    return manifest


def write_samples(out, *samples):
    lines = [json.dumps({"doc_id": row, "resps": resps}) for row, resps in samples]
    (out / "samples.jsonl").write_text("\n".join(lines) + "\n")


def kept(monkeypatch, manifest, kind="generate_until", documents=()):
    monkeypatch.setenv(KEPT_VARIABLE, str(manifest.path))
    config = SimpleNamespace(output_type=kind)
    return kept_replies({"ours": SimpleNamespace(config=config, eval_docs_no_media=documents)})


def test_no_reply_is_kept_unless_a_run_is_named():
    assert kept_replies({}) == {}


def test_texts_are_kept_but_failed_ones_are_not(out, monkeypatch, warnings):
    failed = [failed_reply("no"), "[LMMS_EVAL_REQUEST_FAILED after 5 retries] no", None]
    # Once more, under the second filter.
    replies = {0: "B", **dict(enumerate(failed, 1)), 5: ""}
    write_samples(out, *((row, [[reply]]) for row, reply in [*replies.items(), (0, "B")]))
    with (out / "samples.jsonl").open("a") as samples:
        samples.write('{"doc_id": 9, "resps": [["B"')
    with (out / "samples.jsonl").open("a") as samples:
        samples.write(
            '\n{"doc_id": 7, "resps": [["A"]], "reply_of": "an earlier run", "input": "Which?"}\n'
        )

    found = kept(monkeypatch, write(out))
    assert found == {
        ("ours", 0, 0): KeptReply("B", KEPT),
        ("ours", 5, 0): KeptReply("", KEPT),
        ("ours", 7, 0): KeptReply("A", COPIED, "Which?"),  # and stays a copy
    }
    assert warnings == [f"Torn lines, left out: 1 of {out / 'samples.jsonl'}."]


def test_likelihoods_but_failed_ones(out, monkeypatch):
    rows = [
        [["(1.5, False)"], ["(nan, False)"]],
        [["[0.5, True]"], ["[[medtasks:adapter_failed]]"]],
    ]
    write_samples(out, *enumerate(rows))
    found = kept(monkeypatch, write(out), "multiple_choice")
    assert found == {
        ("ours", 0, 0): KeptReply((1.5, False)),
        ("ours", 1, 0): KeptReply((0.5, True)),
    }


LETTERED = [
    {"doc_id": name, "question": f"Is it {name}?", "options": ["yes", "no"], "answer": "A"}
    for name in "abcd"
]


@pytest.fixture
def answered(out):
    """The manifest of a run that answered each question."""
    lines = []
    for row, document in enumerate(LETTERED):
        written = dict.copy(
            make_logged_sample(document, ["B"], [], {"sample": document["doc_id"]})
        )
        lines += [
            json.dumps({"doc_id": row, "resps": [[f"to {document['doc_id']}"]], **written})
        ] * 2  # two filters
    (out / "samples.jsonl").write_text("\n".join(lines))
    return write(out)


@pytest.fixture
def fresh(warnings):
    forget_warnings()
    warnings.clear()
    return warnings


def test_samples_that_stayed_keep_their_replies(answered, monkeypatch, fresh):
    same = {("ours", row, 0): KeptReply(f"to {name}") for row, name in enumerate("abcd")}
    assert kept(monkeypatch, answered, documents=LETTERED) == same
    assert fresh == []


def test_samples_that_changed_are_asked_again_and_moved_ones_are_not(
    answered, monkeypatch, fresh
):
    first, second, third, _ = LETTERED
    now = [{**first, "doc_id": "new"}, third, {**second, "answer": "B"}, first]

    assert kept(monkeypatch, answered, documents=now) == {
        ("ours", 1, 0): KeptReply("to c"),
        ("ours", 3, 0): KeptReply("to a"),
    }
    assert fresh == [
        "2 samples of ours have changed since the earlier run, and are asked again."
    ]


LINES = [{"doc_id": "a", "reply": "A shadow."}, {"doc_id": "b", "reply": failed_reply("no")}]
ABC = [{"doc_id": name} for name in "abc"]


@pytest.fixture
def withheld(out):
    """The manifest of a run whose replies are withheld, and the file in which it saved them."""
    manifest = write(out)
    write_samples(out, *((row, [[NOTE]]) for row in range(3)))
    folder = home() / "replies" / "ours"
    folder.mkdir(parents=True)
    return manifest, folder / "now.jsonl"


def test_withheld_replies_are_those_that_the_run_saved(withheld, monkeypatch):
    manifest, file = withheld
    file.write_text("".join(json.dumps(line) + "\n" for line in LINES))

    assert kept(monkeypatch, manifest, documents=ABC) == {
        ("ours", 0, 0): KeptReply("A shadow.")
    }


def test_withheld_replies_to_another_question_are_not_kept(withheld, monkeypatch):
    manifest, file = withheld
    file.write_text(
        json.dumps(LINES[0] | {"fingerprint": fingerprint({"question": "Old?"}, {})}) + "\n"
    )

    for question, expected in (
        ("Old?", {("ours", 0, 0): KeptReply("A shadow.")}),
        ("New?", {}),
    ):
        asked = [{"doc_id": "a", "question": question}]
        assert kept(monkeypatch, manifest, documents=asked) == expected


def test_replies_that_were_saved_before_the_run_are_not_its_own(withheld, out, monkeypatch):
    manifest, file = withheld
    file.write_text(json.dumps(LINES[0]) + "\n")
    later = manifest.model_copy(
        update={"started": (datetime.now(UTC) + timedelta(minutes=1)).isoformat()}
    )
    later.write(out / "20260101_000001_000000_run.json")

    assert kept(monkeypatch, later, documents=ABC) == {}


def test_the_newest_run_of_the_same(out):
    write(out, second=1)
    newest = write(out, second=2)
    current = write(out, second=3)
    (out / "20260101_000009_000000_run.json").write_text("{")
    found = earlier_run(out, current, ARGUMENTS)
    assert found.path == newest.path
    assert isinstance(found, RunManifest)


@each_row(
    "changed",
    [
        "timeout=60,max_retries=9",
        "concurrency=8,attempts=2,timeout=9,journal=false,token_counts=false",
    ],
)
def test_how_requests_are_sent_may_differ(out, changed):
    write(out, second=1)
    arguments = [
        *ARGUMENTS[:3],
        f"base_url=http://127.0.0.1:2/v1,model=m,{changed}",
        "--batch_size",
        "8",
    ]
    current = write(out, arguments, samples=False, second=2)
    assert earlier_run(out, current, arguments).path.name == "20260101_000001_000000_run.json"


@each_row(
    "arguments",
    [
        [*ARGUMENTS[:3], "base_url=http://127.0.0.1:1/v1,model=another,timeout=1"],
        ["--model", "openai", *ARGUMENTS[2:]],
        [*ARGUMENTS, "--gen_kwargs", "temperature=1"],
        [*ARGUMENTS, "--limit", "3"],
    ],
)
def test_what_is_asked_must_be_the_same(out, arguments):
    write(out, second=1)
    current = write(out, arguments, samples=False, second=2)
    with pytest.raises(
        MedTasksError, match=r"--only-failed found no run in .* leave the option out"
    ):
        earlier_run(out, current, arguments)


def test_runs_on_other_data_or_without_samples_do_not_count(out):
    write(out, fingerprint="other", second=1)
    write(out, samples=False, second=2)
    current = write(out, samples=False, second=3)
    with pytest.raises(MedTasksError, match="found no run"):
        earlier_run(out, current, ARGUMENTS)


def test_runs_of_another_shard_do_not_count(out):
    write(out, second=1)
    current = write(out, samples=False, second=3)
    assert earlier_run(out, current, ARGUMENTS)
    with pytest.raises(MedTasksError, match="found no run"):
        earlier_run(out, current.model_copy(update={"shard": Shard(1, 2)}), ARGUMENTS)
