"""A run on disk: what its files recorded, of which model, what is missing, and how to go on."""

import json
import os
from pathlib import Path

import pytest

from medtasks.errors import MedTasksError, UnknownName
from medtasks.runs.logged_samples import replies_folder
from medtasks.runs.run import Source, open_run, runs_in
from medtasks.runs.run_manifest import RunManifest, RunProcess
from medtasks.runs.run_notes import facts, missing_tasks, run_notes

from ..tables import each_row

ROW = {"alias": "t", "accuracy,robust": 0.5, "accuracy_stderr,robust": 0.1}


def results(
    folder, *tasks, stamp="20260301_101500", model="m", args="", zone="UTC", limit=None, **more
):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stamp}_results.json"
    content = {
        "results": dict.fromkeys(tasks, ROW),
        "configs": {
            task: {"task": task, "metadata": {"data": {"fingerprint": "f00d"}}}
            for task in tasks
        },
        "versions": dict.fromkeys(tasks, 2),
        "n-samples": {task: {"original": 10, "effective": limit or 10} for task in tasks},
        "config": {
            "model": model,
            "model_args": args,
            "limit": limit,
            "resolved_cli_args": {"timezone": zone, "tasks": ",".join(tasks)},
        },
        "date": stamp,
    }
    path.write_text(json.dumps(content | more))
    return path


def samples(folder, task, stamp="20260301_101500"):
    folder.mkdir(exist_ok=True)
    path = folder / f"{stamp}_samples_{task}.jsonl"
    path.write_text("{}\n")
    return path


def manifest(
    folder, outcomes, state="interrupted", started="2026-03-01T10:00:00+00:00", **more
):
    folder.mkdir(exist_ok=True)
    content = {
        "state": state,
        "started": started,
        "process": RunProcess(pid=1, began=None, place=None),
        "command": ["medtasks", "run", "--tasks", "one,two words", "--model", "m"],
        "arguments": ["--model", "m"],
        "asked": list(outcomes),
        "tasks": {
            name: {"outcome": outcome, "reason": reason}
            for name, (outcome, reason) in outcomes.items()
        },
        "seeds": {"python": 0, "numpy": 1, "torch": 2, "fewshot": 3},
        "versions": {"torch": "2.15", "flash_attn": None},
        "model": {"name": "m", "arguments": ""},
        "hardware": {
            "system": "Linux x86_64",
            "cpu": "a processor",
            "cores": 2,
            "memory": None,
        },
    }
    path = folder / f"{started[:10].replace('-', '')}_{len(list(folder.iterdir()))}_run.json"
    RunManifest.model_validate(content | more).write(path)


# ---- results ----


def test_tasks_stand_in_the_order_of_the_command_line(tmp_path):
    names = ["zeta", "mediconfusion_all", "alpha"]
    config = {"model": "m", "model_args": "", "resolved_cli_args": {"tasks": ",".join(names)}}
    members = ["mediconfusion", "mediconfusion_gd", "mediconfusion_ps"]
    results(
        tmp_path, *sorted([*names, *members]), config=config
    )  # the harness sorts all else by name
    assert list(open_run(tmp_path).tasks) == ["zeta", *members, "alpha", "mediconfusion_all"]


def test_what_a_run_recorded(tmp_path):
    folder = tmp_path / "org__weights"
    results(folder, "one", zone="Asia/Singapore", args="pretrained=org/weights")
    path = samples(folder, "one")
    run = open_run(tmp_path)
    assert (run.model, run.created_at) == (
        "m pretrained=org/weights",
        "2026-03-01T02:15:00+00:00",
    )
    task = run.tasks["one"]
    assert (task.documents, task.asked, task.version, task.data["fingerprint"]) == (
        10,
        10,
        "2",
        "f00d",
    )
    assert (task.samples, run.notes, missing_tasks(run)) == (path, (), {})


def test_a_group_without_aggregates_is_no_task(tmp_path):
    results(
        tmp_path,
        "one",
        results={"one": ROW, "medheval": {"alias": "medheval"}, "both": {"x,none": 1.0}},
    )

    assert list(open_run(tmp_path).tasks) == ["one", "both"]


@each_row(
    "limit, config, asked",
    [(4, {"offset": 0}, 4), (None, {"offset": 7}, 3), (0.25, {}, 0), (4, {"offset": 8}, 2)],
)
def test_how_many_questions_were_asked(tmp_path, limit, config, asked):
    results(tmp_path, "one", limit=limit, config={"model": "m", **config})
    assert open_run(tmp_path).tasks["one"].asked == asked


def test_the_newest_results_count_in_any_time_zone(tmp_path):
    # 12:00 in Singapore is 4:00 UTC.
    older = results(tmp_path, "one", "two", stamp="20260301_120000", zone="Asia/Singapore")
    results(tmp_path, "one", stamp="20260301_100000", zone="UTC", versions={"one": 3})

    run = open_run(tmp_path)
    assert (run.tasks["one"].version, run.tasks["two"].version) == ("3", "2")
    assert run.notes == (f"{older} holds older results of one, which are left out.",)
    assert run.created_at == "2026-03-01T10:00:00+00:00"


def test_a_time_that_cannot_be_read_is_shown_as_recorded(tmp_path):
    results(tmp_path, "one", stamp="20260301_100000", date="yesterday")
    assert open_run(tmp_path).created_at == "yesterday"

    results(tmp_path, "one", stamp="20260301_100000", zone="Nowhere/Land")
    assert open_run(tmp_path).created_at == "20260301_100000"


def test_tasks_are_listed_in_the_order_asked_before_groups(tmp_path):
    names = ("zebra", "apple", "mouse")
    path = results(tmp_path, *names)
    assert tuple(open_run(tmp_path).tasks) == names
    content = json.loads(path.read_text())
    content["results"] = dict.fromkeys(
        sorted(["pair", "alone", *names]), ROW
    )  # as the harness sorts them
    content["group_subtasks"] = {"pair": ["apple", "mouse"]}
    path.write_text(json.dumps(content))
    assert list(open_run(tmp_path).tasks) == ["zebra", "apple", "mouse", "alone", "pair"]


def test_the_newest_call_decides_the_order_of_tasks(tmp_path):
    path = results(tmp_path, "zebra", "apple", "mouse")
    content = json.loads(path.read_text())
    content["results"] = dict.fromkeys(["alone", "apple", "mouse", "pair", "zebra"], ROW)
    content["group_subtasks"] = {"pair": ["apple", "mouse"]}
    path.write_text(json.dumps(content))

    results(tmp_path, "mouse", "zebra", stamp="20260301_111500")
    samples(tmp_path, "lost", "20260301_121500")
    assert list(open_run(tmp_path).tasks) == [
        "mouse",
        "zebra",
        "apple",
        "alone",
        "lost",
        "pair",
    ]
    manifest(tmp_path, {"lost": ("failed", ""), "zebra": ("done", "")})
    assert list(open_run(tmp_path).tasks) == [
        "lost",
        "zebra",
        "mouse",
        "apple",
        "alone",
        "pair",
    ]


STAMPS = ("20260301_100000", "20260301_110000", "20260301_120000")
OLDER = "{} holds older results of {}, which are left out."


def test_all_samples_count_before_a_later_part_of_them(tmp_path):
    whole = results(tmp_path, "one", stamp=STAMPS[0])
    parts = [results(tmp_path, "one", "two", stamp=stamp, limit=4) for stamp in STAMPS[1:]]
    left_out = "{} holds later results of {} on a part of the samples, which are left out."

    run = open_run(tmp_path)
    assert {name: task.results for name, task in run.tasks.items()} == {
        "one": whole,
        "two": parts[1],
    }
    assert run.notes == (
        OLDER.format(parts[0], "two"),
        *(left_out.format(part, "one") for part in parts),
    )
    assert [file.path for file in run.results] == [whole, parts[1]]


def test_a_run_is_described_by_its_whole_and_no_later_smoke_test(tmp_path):
    folder = tmp_path / "smoke test"
    whole = results(folder, "one", stamp=STAMPS[0])
    done = {"outcome": "done", "reason": ""}
    tasks = {"one": {**done, "results": whole.name}}
    manifest(folder, {}, "finished", started="2026-03-01T09:00:00+00:00", tasks=tasks)
    for number, limit in enumerate((4, 0.5, 10)):
        later = results(folder, "one", stamp=STAMPS[1], limit=limit)
        tasks = {"one": {**done, "results": later.name}}
        manifest(
            folder, {}, "finished", started=f"2026-03-01T11:0{number}:00+00:00", tasks=tasks
        )
        run = open_run(folder)

        # A limit of 10 is all samples.
        counted = later if limit == 10 else whole
        assert ([file.path for file in run.results][-1], run.tasks["one"].results) == (
            counted,
            counted,
        )
        assert run.manifests[-1].tasks["one"].results == counted.name
        assert facts(run)["limit"] == "10" if limit == 10 else "limit" not in facts(run)


def test_of_two_parts_the_newer_counts(tmp_path):
    first = results(tmp_path, "one", stamp=STAMPS[0], limit=4)
    second = results(tmp_path, "one", stamp=STAMPS[1], limit=4)

    assert open_run(tmp_path).tasks["one"].results == second
    assert open_run(tmp_path).notes == (OLDER.format(first, "one"),)


def test_a_whole_run_replaces_earlier_parts(tmp_path):
    for stamp in STAMPS[:2]:
        results(tmp_path, "one", stamp=stamp, limit=4)
    whole = results(tmp_path, "one", stamp=STAMPS[2])

    assert open_run(tmp_path).tasks["one"].results == whole


def test_damaged_files_are_named_while_the_rest_is_read(tmp_path):
    results(tmp_path, "one")
    cut = results(tmp_path, "two", stamp="20260301_110000")
    cut.write_text(cut.read_text()[:200])
    (tmp_path / "my_results.json").write_text("[1, 2]")
    (tmp_path / "x_run.json").write_text("{")
    run = open_run(tmp_path)
    assert list(run.tasks) == ["one"]
    assert len(run.notes) == 3
    for part in (
        f"{cut} cannot be read",
        "my_results.json is no results file",
        "x_run.json is damaged",
    ):
        assert any(part in note for note in run.notes)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(MedTasksError, match="there is no folder"):
        open_run(tmp_path / "nowhere")


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(MedTasksError, match="holds no results of a run; give the folder"):
        open_run(tmp_path)


def test_a_folder_with_only_damaged_results_is_refused(tmp_path):
    (tmp_path / "20260301_101500_results.json").write_text("")
    with pytest.raises(
        MedTasksError,
        match=r"holds no results of a run that can be read \(.*cut off or damaged\)",
    ):
        open_run(tmp_path)


def test_files_that_are_no_files_of_the_folder_are_named(tmp_path):
    folder = tmp_path / "run"
    path = results(folder, "one")
    (tmp_path / "diary.jsonl").write_text('{"doc_id": 1, "resps": [["private"]]}\n')
    refused = {
        "a_results.json": "/dev/zero",
        "b_samples_one.jsonl": "/dev/zero",
        "c_samples_two.jsonl": tmp_path / "diary.jsonl",
        "d_run.json": "/dev/zero",
        path.name.replace("_results.json", "_samples_one.jsonl"): tmp_path / "diary.jsonl",
    }
    for name, target in refused.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
    if hasattr(os, "mkfifo"):
        for name in ("e_results.json", "f_samples_one.jsonl"):
            os.mkfifo(folder / name)
            refused[name] = "a pipe"

    run = open_run(folder)
    assert {name: task.samples for name, task in run.tasks.items()} == {"one": None}
    for name in refused:
        assert any(name in note for note in run.notes), name


def test_samples_without_results(tmp_path):
    path = samples(tmp_path, "one")
    run = open_run(tmp_path)
    assert (run.model, run.created_at, run.tasks["one"].scores, run.tasks["one"].samples) == (
        "",
        "",
        {},
        path,
    )
    results(tmp_path, "one", stamp="20260302_101500")  # another run of the same task counts
    run = open_run(tmp_path)
    assert (bool(run.tasks["one"].scores), run.tasks["one"].samples) == (True, None)
    assert f"{path} has no results next to it and is left out" in run.notes[0]


def test_samples_without_results_belong_to_the_model_of_their_folder(tmp_path):
    folder = tmp_path
    results(folder / "a", "one", model="a")
    results(folder / "b", "one", model="b")
    of_a, of_none = (samples(folder / name, "two", "20260401_101500") for name in ("a", "c"))
    runs = [open_run(folder, model) for model in ("a", "b")]
    assert [run.tasks.get("two") and run.tasks["two"].samples for run in runs] == [of_a, None]
    assert all(any(f"{of_none} has no results" in note for note in run.notes) for run in runs)


# ---- models ----


def test_runs_of_several_models_are_told_apart(tmp_path):
    results(tmp_path / "a", "one", args="pretrained=a", stamp="20260301_100000")
    results(tmp_path / "b", "two", args="pretrained=b", stamp="20260301_110000")
    with pytest.raises(
        MedTasksError, match="'m pretrained=a'; 'm pretrained=b'; choose one with --model"
    ):
        open_run(tmp_path)
    assert list(open_run(tmp_path, "m pretrained=a").tasks) == ["one"]
    assert list(open_run(tmp_path, "pretrained=b").tasks) == ["two"]
    with pytest.raises(MedTasksError, match="--model 'm' fits several runs"):
        open_run(tmp_path, "m")
    with pytest.raises(UnknownName, match="unknown model 'llava'"):
        open_run(tmp_path, "llava")
    results(tmp_path / "c", "three", model="vlm", stamp="20260301_100000")
    results(tmp_path / "c", "four", model="vlm_large", stamp="20260301_110000")
    assert list(open_run(tmp_path, "vlm").tasks) == ["three"]  # by its whole name first


def test_a_served_model_has_one_name_at_any_address(tmp_path):
    """Also a run that failed before its results, and one whose arguments name the model."""
    served = {"id": "org/m", "owned_by": "vllm", "root": None, "build": "fp_1"}
    for stamp, args in (
        ("1", "base_url=http://h:1/v1,concurrency=8"),
        ("2", "base_url=http://h:2/v1,model=org/m"),
    ):
        results(
            tmp_path,
            "one",
            stamp=f"20260301_10150{stamp}",
            model="vlm_server",
            args=args,
            served_model=served,
        )
    lost = {
        "name": "vlm_server",
        "arguments": "base_url=http://h:3/v1,attempts=2",
        "unknown": "names no weights",
    }
    manifest(tmp_path, {"two": ("failed", "no answer")}, model=lost)
    run = open_run(tmp_path)
    assert run.model == "org/m (vlm_server)"
    assert list(missing_tasks(run)) == ["two"]
    assert facts(run)["model arguments"] == "base_url=http://h:2/v1,model=org/m"
    assert facts(run)["served model"] == "id org/m, owned_by vllm, build fp_1"
    assert (
        facts(run)["fingerprint of the weights"]
        == "not known: the weights are on the server (build fp_1)"
    )


def test_served_models_are_told_apart_by_name_or_chat_template(tmp_path):
    template = 'chat_template_kwargs={"a":1,"b":2}'
    for args, served, label in (
        ("base_url=http://h/v1", "other", "other (vlm_server)"),
        (f"base_url=http://h/v1,{template}", "m", f"m (vlm_server) {template}"),
    ):
        folder = tmp_path / f"of {served}"
        results(folder, "one", stamp="1", model="vlm_server", served_model={"id": "m"})
        results(
            folder, "one", stamp="2", model="vlm_server", args=args, served_model={"id": served}
        )
        with pytest.raises(MedTasksError, match=r"several models: 'm \(vlm_server\)'"):
            open_run(folder)
        assert open_run(folder, label).model == label


def test_a_secret_in_the_arguments_does_not_part_a_run_from_its_results(tmp_path):
    folder = tmp_path / "sub"
    path = results(
        folder / "sub",
        "one",
        args="pretrained=weights,url=http://localhost,hub_token=[REDACTED]",
    )
    record = {"outcome": "done", "results": f"sub/{path.name}"}
    model = {"name": "m", "arguments": "pretrained=weights,url=***"}
    manifest(folder, {}, "finished", tasks={"one": record}, model=model)
    assert open_run(folder).model == "m pretrained=weights,url=http://localhost,hub_token=***"


def test_a_model_behind_an_api_is_named_by_its_own_name(tmp_path):
    args = "base_url=http://h/v1,model=gpt-4o,num_concurrent=4"
    results(tmp_path, "one", model="async_openai", args=args)

    assert open_run(tmp_path).model == "gpt-4o (async_openai)"


def test_secrets_are_in_no_fact_of_a_run(tmp_path):
    secret = "base_url=http://me:hush-hush@host,apikey=hush-hush"
    results(tmp_path, "one", args=secret)

    run = open_run(tmp_path)
    assert "hush" not in f"{run.model} {facts(run)}"


def test_the_commit_of_the_working_folder_is_no_fact_of_a_run(tmp_path):
    results(tmp_path, "one", git_hash="d9eb740", lmms_eval_version="main@d9eb740")

    assert "d9eb740" not in str(facts(open_run(tmp_path)))


# ---- what is missing ----


def test_an_interrupted_run_says_how_to_go_on(tmp_path):
    outcomes = {
        "one": ("done", ""),
        "two": ("not run", ""),
        "three": ("failed", "it ran out of memory."),
    }
    manifest(tmp_path, outcomes, why="terminated by a signal.")
    results(tmp_path, "one")
    run = open_run(tmp_path)
    assert list(run.tasks) == ["one"]
    command = "medtasks run --tasks 'one,two words' --model m"
    assert missing_tasks(run) == {
        "two": f"Not run: the run is interrupted; go on with: {command}.",
        "three": f"Failed: it ran out of memory; go on with: {command}.",
    }
    ended = "did not come to its end: it is interrupted (terminated by a signal)."
    assert run_notes(run) == (f"The run of 2026-03-01 10:00:00 UTC {ended}",)
    described = facts(run)
    assert (described["command"], described["versions"]) == (command, "torch 2.15")
    assert described["seeds"] == "python 0, numpy 1, torch 2, fewshot 3"


def test_a_run_that_was_killed_before_any_result_can_be_opened(tmp_path):
    manifest(tmp_path, {"one": ("not run", "")}, "running")

    run = open_run(tmp_path)
    assert (run.tasks, run.model, run.created_at) == ({}, "m", "2026-03-01T10:00:00+00:00")
    assert missing_tasks(run)["one"].startswith(
        "Not run: the run is killed or still running; go on with: medtasks run"
    )


FAILED = {"one": ("failed", "why")}


def test_a_journal_is_mentioned_where_the_model_keeps_one(tmp_path):
    model = {"name": "medtasks_hf_vlm", "arguments": "pretrained=x"}

    manifest(tmp_path, FAILED, model=model)
    assert "journal" in missing_tasks(open_run(tmp_path))["one"]
    manifest(tmp_path, FAILED, model={**model, "arguments": "pretrained=y,journal=False"})
    assert "journal" not in missing_tasks(open_run(tmp_path, "pretrained=y"))["one"]
    manifest(tmp_path, FAILED, model={"name": "openai", "arguments": ""})
    assert "journal" not in missing_tasks(open_run(tmp_path, "openai"))["one"]


def test_saved_replies_of_a_failed_task_are_mentioned(tmp_path):
    manifest(tmp_path, FAILED, model={"name": "openai", "arguments": ""})
    kept = replies_folder("one") / "20260301T100500-1.jsonl"
    kept.parent.mkdir(parents=True)
    kept.write_text("{}\n")

    (message,) = missing_tasks(open_run(tmp_path, "openai")).values()
    assert (
        message == f"Failed: why; replies are kept, score them with: medtasks score one {kept}."
    )


def test_copied_replies_are_noted_even_without_a_manifest(tmp_path):
    results(tmp_path, "one")
    line = '{"doc_id": 0, "reply_of": "an earlier run"}\n'
    samples(tmp_path, "one").write_text(f'{line}{line}{{"doc_id": 1}}\n')
    note = "one: 1 of 2 replies are copies of an earlier run."
    assert run_notes(open_run(tmp_path)) == (note,)
    manifest(tmp_path, {"one": ("done", "")}, "finished")
    assert run_notes(open_run(tmp_path)) == (note,)


def test_results_that_are_gone_or_older_are_noted(tmp_path):
    manifest(
        tmp_path, {"one": ("done", ""), "two": ("failed", "why")}, "finished_with_failures"
    )
    results(tmp_path, "two")  # of an earlier run into the same folder
    run = open_run(tmp_path)
    assert "gone or damaged" in missing_tasks(run)["one"]
    older = "these tasks left no results; what is shown of them is older: two."
    assert run_notes(run) == (f"In the run of 2026-03-01 10:00:00 UTC {older}",)


def test_samples_of_a_task_that_failed_are_still_read(tmp_path):
    manifest(tmp_path, {"one": ("failed", "a metric broke")}, "finished_with_failures")
    samples(tmp_path, "one")

    run = open_run(tmp_path)
    assert (list(run.tasks), missing_tasks(run)) == (["one"], {})
    (note,) = run_notes(run)
    assert note.startswith("one: Failed: a metric broke; go on with: medtasks run")


def test_the_newest_manifest_says_why_a_task_is_missing(tmp_path):
    manifest(tmp_path, {"one": ("failed", "first")}, started="2026-03-01T10:00:00+00:00")
    manifest(tmp_path, {"one": ("failed", "second")}, started="2026-03-02T10:00:00+00:00")
    assert "second" in missing_tasks(open_run(tmp_path))["one"]


def test_warnings_before_the_run_are_noted(tmp_path):
    notice = {"kind": "warn", "sentence": "--limit cuts pairs."}
    manifest(tmp_path, {"one": ("done", "")}, "finished", notices=[notice])

    assert "Before the run: --limit cuts pairs." in run_notes(open_run(tmp_path))


def test_a_folder_has_a_run_per_model(tmp_path):
    for name in "abc":
        results(tmp_path / name, "t", model=name)

    assert runs_in(tmp_path) == [Source(tmp_path, name) for name in "abc"]
    assert runs_in(tmp_path / "b") == [Source(tmp_path / "b")]


def test_a_folder_named_from_inside_has_all_its_runs(tmp_path, monkeypatch):
    for name in "abc":
        results(tmp_path / name, "t", model=name)
    monkeypatch.chdir(tmp_path / "a")

    assert [source.model for source in runs_in(Path(".."))] == ["a", "b", "c"]
