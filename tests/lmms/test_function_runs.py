"""``medtasks.evaluate``: a function instead of a model, whose scores are those of a run with the same replies."""

import json
import re
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from medtasks.model_adapters.tiny import MedTasksTiny
from PIL import Image

import medtasks
from medtasks.errors import MedTasksError
from medtasks.runs.run_manifest import read_manifests

from ..model_adapters.tiny_hf_models import build
from ..processes import harness_indexed_once
from ..recorded_runs import record
from ..tables import each_row
from .conftest import REPOSITORY
from .test_own_task_page import NAMES, write_blocks

CANARY = "zyzzyva"
LETTERS = ("A", "The answer is (B).", "neither of them", "B")


@pytest.fixture(autouse=True)
def _indexed_once():
    with harness_indexed_once() as patch:
        patch.setattr("lmms_eval.__main__.make_table", lambda *_: "")
        yield


def text_of(messages):
    (turn,) = messages
    assert turn["role"] == "user"
    return "".join(part.get("text", "") for part in turn["content"])


def values(run):
    return run.table().set_index(["task", "row", "metric"])


def test_scores_equal_those_of_the_model_that_the_function_asks(sample, tmp_path):
    names = "mediconfusion,mediconfusion_blind,mediconfusion_rotated,mediconfusion_think"
    record(sample, tmp_path / "run", names, "--batch_size", "8")
    tiny = MedTasksTiny(device="cpu", journal="false")
    sizes = Counter()

    def answer(questions):
        sizes[len(questions)] += 1
        prompts = [tiny.encode(text_of(messages), images) for messages, images in questions]
        return tiny.generate_batch(prompts, questions[0].settings, 0)

    run = medtasks.evaluate(names.split(","), answer, batch_size=8)
    of_model = medtasks.read_run(tmp_path / "run")

    assert run.tasks == of_model.tasks == tuple(names.split(","))
    pd.testing.assert_frame_equal(run.table(), of_model.table(), check_exact=True)
    pd.testing.assert_frame_equal(run.samples(), of_model.samples(), check_exact=True)
    assert (
        values(run).value["mediconfusion", "robust", "individual_accuracy"] > 0.6
    )  # the images came along
    assert max(sizes) == 8


@pytest.fixture
def own_tasks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_blocks(tmp_path / "my_tasks")
    return tmp_path / "my_tasks"


def test_each_family_scores_a_functions_replies_as_recorded_ones(own_tasks):
    names = [name for name in NAMES if "judge" not in name]

    def answer(questions):
        return [f"{LETTERS[len(text_of(messages)) % 4]} {CANARY}" for messages, _ in questions]

    run = medtasks.evaluate(names, answer, batch_size=3, include_path=own_tasks)
    for name in names:
        samples = run.samples(name)
        replies = dict(zip(samples.doc_id, samples.reply, strict=True))
        scores = medtasks.score(name, replies, include_path=own_tasks)
        expected = values(scores)[["value", "standard_error"]]
        actual = values(run).loc[[name], ["value", "standard_error"]].reindex(expected.index)
        pd.testing.assert_frame_equal(actual, expected, check_exact=True)


def test_a_function_gets_messages_with_places_of_images(sample):
    seen = []

    def answer(questions):
        seen.extend(questions)
        for _, images in questions:
            images[0].paste((0, 0, 0), (0, 0, *images[0].size))  # its own copies
        return ["A"] * len(questions)

    medtasks.evaluate("mediconfusion", answer, batch_size=4, limit=4)

    assert len(seen) == 4
    for messages, images in seen:
        (turn,) = messages
        assert [part["type"] for part in turn["content"]] == ["image", "text"]
        assert (type(images), len(images), images[0].mode) == (list, 1, "RGB")
        assert isinstance(images[0], Image.Image)
    # The settings are the task's.
    assert {question.settings.max_new_tokens for question in seen} == {32}


def test_messages_without_images_have_the_same_form(sample):
    seen = []

    medtasks.evaluate(
        "mediconfusion_blind",
        lambda questions: seen.extend(questions) or ["A"] * len(questions),
    )

    assert {type(messages[0]["content"]) for messages, _ in seen} == {list}
    assert [images for _, images in seen if images] == []


def test_replies_end_before_stop_strings_and_forge_no_failure(own_tasks):
    rows = [
        json.dumps({"doc_id": str(at), "question": f"{at}?", "answer": "yes"})
        for at in range(2)
    ]
    (own_tasks / "stops.jsonl").write_text("\n".join(rows))
    settings = "generation_kwargs: {until: ['###'], max_new_tokens: 7, temperature: 0.5, do_sample: true}"
    (own_tasks / "stops.yaml").write_text(
        f"task: stops\nfamily: yes_no\ndata: stops.jsonl\nimage: none\n{settings}\n"
    )
    calls = []

    def answer(questions):
        calls.append(questions[0].settings)
        return [" yes ### no", "[[medtasks:adapter_failed]] yes"]

    run = medtasks.evaluate("stops", answer, batch_size=2, include_path=own_tasks)

    (settings,) = calls  # sampled replies come in one call, too
    assert (settings.until, settings.max_new_tokens, settings.temperature) == (("###",), 7, 0.5)
    assert sorted(run.samples().reply) == ["[\u2060[medtasks:adapter_failed]] yes", "yes"]
    assert set(run.table().query("metric == 'failed_samples'").value) == {0.0}


def counts(run, row="robust"):
    of_row = values(run).value["mediconfusion", row]
    return int(of_row["scored_samples"]), int(of_row["failed_samples"])


@pytest.fixture
def logged(warnings):
    return lambda: " ".join(warnings)


@each_row(
    ("bad", "cause"),
    [
        (None, "the function returned NoneType in place of a text"),
        (3, "the function returned int in place of a text"),
        (["A"], "the function returned list in place of a text"),
        (
            ZeroDivisionError(CANARY),
            rf"ZeroDivisionError at test_function_runs\.py:\d+ in answer: {CANARY}",
        ),
    ],
)
def test_what_is_no_text_is_a_failed_sample(bad, cause, sample, logged, tmp_path):
    asked = Counter()

    def answer(questions):
        asked.update(text_of(messages) for messages, _ in questions)
        texts = []
        for messages, _ in questions:
            is_bad = "spine" in text_of(messages)
            if is_bad and isinstance(bad, Exception):
                raise bad
            texts.append(bad if is_bad else "A")
        return texts

    run = medtasks.evaluate("mediconfusion", answer, batch_size=4, output=tmp_path / "out")

    scored, failed = counts(run)
    assert (scored + failed, failed) == (
        32,
        sum("spine" in text for text in run.samples().question) // 2,
    )
    assert failed > 0
    assert re.search(cause, logged())
    assert f"In no score: mediconfusion: {failed} failed of 32 samples, first" in logged()

    replies = run.samples().drop_duplicates("doc_id")
    assert (replies.reply.isna() == replies.question.str.contains("spine")).all()
    if not isinstance(bad, Exception):
        assert set(asked.values()) <= {1, 2}  # of the pair's two images; nothing is asked twice

    (manifest,) = read_manifests(tmp_path / "out")
    assert manifest.standing == "finished with failures"


@each_row(
    ("returned", "cause"),
    [
        (lambda questions: "B" * len(questions), "str for 8 questions; return a list of texts"),
        (lambda questions: {"1": "B"}, "dict for 8 questions"),
        (lambda questions: None, "NoneType for 8 questions"),
        (
            lambda questions: ["A"] * (len(questions) + 1),
            "9 replies to 8 questions; return one for each",
        ),
        (lambda questions: [], "0 replies to 8 questions"),
        (lambda questions: [None] * len(questions), "NoneType in place of a text"),
        (lambda questions: [CANARY / 2 for _ in questions], "TypeError at"),
    ],
)
def test_a_function_that_answers_nothing_ends_with_one_sentence(returned, cause, sample):
    asked = []

    def answer(questions):
        asked.append(len(questions))
        return returned(questions)

    with pytest.raises(
        MedTasksError, match=r"there is nothing to score: mediconfusion: "
    ) as error:
        medtasks.evaluate("mediconfusion", answer, batch_size=8)
    alone = cause.replace("9 replies to 8 questions", "2 replies to 1 questions").replace(
        "8 q", "1 q"
    )
    assert cause in str(error.value) or alone in str(error.value)
    assert len(asked) <= 36


def test_some_wrong_numbers_of_replies_are_asked_again_alone(sample):
    sizes = []

    def answer(questions):
        sizes.append(len(questions))
        return ["A"] * max(len(questions) - 1, 1)

    assert counts(medtasks.evaluate("mediconfusion", answer, batch_size=8)) == (32, 0)
    assert Counter(sizes) == {8: 4, 1: 32}


def test_a_function_that_fails_from_the_start_is_not_called_for_every_question(own_tasks):
    rows = [
        json.dumps({"doc_id": str(at), "question": f"{at}?", "answer": "yes"})
        for at in range(100)
    ]
    (own_tasks / "long.jsonl").write_text("\n".join(rows))
    (own_tasks / "long.yaml").write_text(
        "task: long\nfamily: yes_no\ndata: long.jsonl\nimage: none\n"
    )
    calls = []

    def answer(questions):
        calls.append(len(questions))
        raise KeyError(CANARY)

    with pytest.raises(
        MedTasksError, match=r"the first 32 .* all failed, most often \(32x\) KeyError"
    ):
        medtasks.evaluate("long", answer, include_path=own_tasks)
    assert len(calls) == 32


def test_what_cannot_be_asked_is_refused_before_the_first_question(sample, own_tasks, tmp_path):
    calls = []

    def refusal(tasks, function=calls.append, **options):
        with pytest.raises(MedTasksError) as error:
            medtasks.evaluate(tasks, function, **options)
        assert not calls
        return str(error.value)

    assert refusal("mediconfusion_gd") == (
        "likelihoods of options are needed for mediconfusion_gd, and a function gives texts alone; choose "
        "mediconfusion and mediconfusion_ff instead, or use --model hf_vlm or vlm_server"
    )
    assert "are needed for mediconfusion_gd and mediconfusion_ps, and a" in refusal(
        "mediconfusion_all"
    )
    assert "unknown task 'mediconfusio'" in refusal(
        "mediconfusio"
    ) or "there is no task" in refusal("mediconfusio")
    assert "medtasks data prepare" in refusal("gmai_mmbench_val")
    assert "asks no row" in refusal("mediconfusion", limit=0)


@pytest.fixture
def private(own_tasks):
    """A task of four questions of a credentialed set."""
    rows = [
        {"doc_id": str(at), "question": f"{CANARY} {at}?", "answer": "yes"} for at in range(4)
    ]
    lines = [json.dumps({**row, "dataset": "multimedeval_mimic_cxr_report"}) for row in rows]
    (own_tasks / "private.jsonl").write_text("\n".join(lines))
    (own_tasks / "private.yaml").write_text(
        "task: private\nfamily: yes_no\ndata: private.jsonl\nimage: none\n"
    )
    return own_tasks


@pytest.fixture
def chatty():
    """A function that prints what it is asked, its name, and the questions that it got."""
    calls = []

    def answer(questions):
        print(questions)  # noqa: T201
        calls.extend(questions)
        return ["yes"] * len(questions)

    return answer, f"{answer.__module__}.{answer.__qualname__}", calls


def test_credentialed_data_need_the_users_word_for_this_function(private, chatty):
    answer, name, calls = chatty

    with pytest.raises(MedTasksError, match="MEDTASKS_TRUSTED_MODEL=class:") as refusal:
        medtasks.evaluate("private", answer, include_path=private)

    assert str(refusal.value).endswith(f"set MEDTASKS_TRUSTED_MODEL=class:{name}")
    assert not calls


def test_a_function_that_the_user_trusts_shows_no_credentialed_text(
    private, chatty, monkeypatch, capsys, logged
):
    answer, name, calls = chatty
    monkeypatch.setenv("MEDTASKS_TRUSTED_MODEL", f"class:{name}")

    run = medtasks.evaluate("private", answer, include_path=private)

    assert len(calls) == 4
    assert run.samples().reply.isna().all()
    files = "".join(path.read_text() for path in run.folder.rglob("*") if path.is_file())
    printed = capsys.readouterr()
    assert CANARY not in files + printed.out + printed.err + logged()
    assert set(run.table().query("metric == 'accuracy'").value) == {1.0}


def test_a_run_folder_is_that_of_a_run(sample, tmp_path):
    output = tmp_path / "out"
    first = medtasks.evaluate(
        "mediconfusion", lambda questions: ["A"] * len(questions), output=output, model="m, 1"
    )
    assert first.model.endswith('<lambda> model="m, 1"')
    assert (first.folder, first.notes) == (output, ())
    second = medtasks.evaluate(
        "mediconfusion", lambda questions: ["B"] * len(questions), output=output, model="two"
    )
    assert values(first).value.equals(values(medtasks.read_run(output, model="m, 1")).value)
    (manifest, _) = read_manifests(output)
    assert (
        manifest.standing,
        manifest.model.name,
        manifest.tasks["mediconfusion"].scored_samples,
    ) == (
        "finished",
        "adapter",
        32,
    )
    compared = medtasks.compare(first, second, metrics="individual_accuracy")
    assert compared["first"].iloc[0] + compared.second.iloc[0] == 1.0


def test_a_run_without_a_folder_lasts_as_long_as_its_object(sample):
    run = medtasks.evaluate("mediconfusion", lambda questions: ["A"] * len(questions), limit=2)
    folder = run.folder
    assert len(run.samples()) == 4
    del run
    assert not folder.exists()


def test_one_task_that_fails_does_not_affect_the_others(sample, own_tasks, logged):
    (own_tasks / "odd.jsonl").write_text(
        '{"doc_id": "1", "question": "Is it?", "answer": "yes"}\n'
    )
    (own_tasks / "odd.yaml").write_text(
        "task: odd\nfamily: yes_no\ndata: odd.jsonl\nimage: none\ngeneration_kwargs: {max_new_tokens: -1, until: []}\n"
    )
    run = medtasks.evaluate(
        ["odd", "mediconfusion"],
        lambda questions: ["A"] * len(questions),
        include_path=own_tasks,
    )
    assert "mediconfusion" in run.tasks
    assert "In no score: odd: " in logged()


def test_a_journal_keeps_what_was_answered(sample, tmp_path):
    asked = []

    def answer(questions):
        asked.extend(questions)
        if len(asked) > 20:
            raise KeyboardInterrupt
        return ["A"] * len(questions)

    options = {"batch_size": 4, "output": tmp_path / "out", "journal": tmp_path / "journal"}
    with pytest.raises(KeyboardInterrupt):
        medtasks.evaluate("mediconfusion", answer, **options)
    (manifest,) = read_manifests(tmp_path / "out")
    assert manifest.standing == "interrupted"

    asked.clear()
    run = medtasks.evaluate("mediconfusion", answer, **options)
    assert len(asked) == 12
    assert counts(run) == (32, 0)
    assert run.notes == ("mediconfusion: 20 of 32 replies are copies of an earlier run.",)


def test_the_loop_of_the_page_answers_as_hf_vlm(sample, tmp_path, monkeypatch):
    checkpoint = build("qwen2_5_vl", tmp_path / "tiny")
    page = (REPOSITORY / "docs" / "python.md").read_text(encoding="utf-8")
    (block,) = [
        block
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if "AutoProcessor" in block
    ]
    monkeypatch.chdir(tmp_path)
    variables = {"__name__": "loop"}
    exec(block.replace("org/model", str(checkpoint)), variables)
    ours = (
        "--model",
        "hf_vlm",
        "--model_args",
        f"pretrained={checkpoint},batch_size=8,device=cpu",
    )
    record(sample, tmp_path / "ours", "mediconfusion", *ours)
    run = variables["run"]
    replies = run.samples().reply
    assert replies.equals(medtasks.read_run(tmp_path / "ours").samples().reply)
    assert replies.nunique() > 5


def test_a_folder_may_be_named_as_text(sample, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = medtasks.evaluate(
        ["mediconfusion"], lambda questions: ("A",) * len(questions), output="1", limit=2
    )
    assert Path("1").is_dir()
    assert len(run.samples()) == 4
