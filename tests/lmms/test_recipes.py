"""Recipes as data, the harness's arguments that they stand for, and the report of a run by one."""

import re

import pytest
from lmms_eval.utils import simple_parse_args_string
from medtasks.model_adapters.base.arguments import parse_arguments
from medtasks.model_adapters.hf_vlm.loading import HfVlmArguments

from medtasks.errors import MedTasksError, UnknownName
from medtasks.report.collecting import collect_run
from medtasks.report.published import published_of
from medtasks.report.report_model import report_as_dict
from medtasks.report.task_tables import published_table
from medtasks.running.recipes import expansion, recipe, recipes
from medtasks.runs.harness_options import read_options, write_argument
from medtasks.runs.run import open_run

from ..made_up_runs import write_run
from ..runs.test_run import manifest
from ..tables import each_row

OWN = """\
recipe: mine
title: My model
extends: qwen2.5-vl-7b.yaml
hf: {args: {system_prompt: "Think, then \\"answer\\".", trust_remote_code: false}}
facts:
  hub id: {value: me/mine, source: I made it}
  revision: {value: "12345678", source: I made it}
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "mine.yaml").write_text(OWN)
    (tmp_path / "task.yaml").write_text("task: t\ndoc_to_text: !function a.b\n")
    return tmp_path


def test_every_fact_of_ours_has_a_source_that_anyone_can_look_up():
    for one in recipes().values():
        assert {"hub id", "parameters"} <= set(one.facts), one.recipe
        for fact in one.facts.values():
            assert not re.search(
                r"/root|/work|/tmp|file index", f"{fact.source} {fact.value}"
            ), one.recipe
        if not one.backends:
            assert one.hf.without
            assert one.server.without
        assert "revision" in one.facts or "revision" in " ".join(one.unknown), one.recipe


def test_each_model_has_its_rows_in_the_tables_that_it_names():
    by_name = recipes()
    published = {name: published_of(made.published_as) for name, made in by_name.items()}
    for name, results in published.items():
        names = by_name[name].published_as
        assert bool(results) == bool(names), name
        assert {score.model for _, score in results} <= set(names.values())
    scores = {(task, score.metric): score.printed for task, score in published["lingshu-7b"]}
    assert scores["medevalkit_pmc_vqa", "accuracy"] == "56.3"
    assert {"mediconfusion_gd", "multimedeval_medqa"} <= {
        task for task, _ in published["radfm"]
    }


@each_row(
    "value",
    [
        *(
            "plain",
            "a, b",
            "it's",
            'say "x"',
            "line\nbreak",
            "ends with \\",
            " blanks ",
            "@file",
            "{brace",
            '"',
            "",
        ),
        "\\n, 'x'",
    ],
)
def test_a_text_comes_back_from_the_harness_as_it_was(value):
    read = simple_parse_args_string(
        f"pretrained=x,system_prompt={write_argument(value)},batch_size=2"
    )
    assert parse_arguments(HfVlmArguments, read, "hf_vlm").system_prompt == value
    assert read["batch_size"] == 2


@pytest.fixture
def qoq():
    """The arguments of the harness for a recipe with settings of the user, and the facts of the recipe."""
    given = 'dtype=float32,processor_kwargs={"size":{"longest_edge":9}},batch_size=2'
    return expansion("qoq-med-7b", "", read_options(["--model_args", given]))


def test_what_the_user_gives_wins(qoq):
    named, _ = qoq

    assert named[:3] == ["--model", "hf_vlm", "--model_args"]
    read = simple_parse_args_string(named[3])
    assert read["pretrained"] == "ddvd233/QoQ-Med-VL-7B"
    expected = ("float32", 2, '{"size":{"longest_edge":9}}')
    assert (read["dtype"], read["batch_size"], read["processor_kwargs"]) == expected
    assert "revision" in read


def test_what_the_user_gave_is_recorded_with_the_recipe(qoq):
    _, facts = qoq

    assert facts.given == {
        "dtype": "float32",
        "batch_size": "2",
        "processor_kwargs": '{"size":{"longest_edge":9}}',
    }
    assert (facts.name, facts.backend, facts.digest) == (
        "qoq-med-7b",
        "hf",
        recipe("qoq-med-7b").digest,
    )


def test_other_weights_have_no_revision_of_the_recipe():
    named, _ = expansion("qoq-med-7b", "hf", read_options(["--model_args=pretrained=/my/copy"]))
    assert "revision" not in simple_parse_args_string(named[3])


def test_other_weights_are_not_set_beside_what_was_published():
    published = [
        expansion("lingshu-7b", "hf", read_options(["--model_args", arguments]))[1].published_as
        for arguments in ("dtype=float16", "pretrained=me/mine")
    ]
    assert published == [recipe("lingshu-7b").published_as, {}]
    assert published[0] != {}


def test_a_config_file_gives_arguments_as_a_mapping(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(
        "model_args: {dtype: float32, system_prompt: 'Yes, or no?', batch_size: 3, processor_kwargs: {a: 1, b: 2}}"
    )
    named, facts = expansion("qwen3-vl-8b", "", read_options(["--config", str(file)]))
    read = parse_arguments(HfVlmArguments, simple_parse_args_string(named[3]), "hf_vlm")
    assert (read.system_prompt, read.batch_size, read.dtype) == ("Yes, or no?", 3, "float32")
    assert (facts.given["batch_size"], facts.given["processor_kwargs"]) == (
        "3",
        '{"a":1,"b":2}',
    )


@each_row(
    ("name", "backend", "arguments", "message"),
    [
        ("lingshu7b", "", [], "unknown recipe 'lingshu7b'; did you mean 'lingshu-7b'"),
        (
            "lingshu-7b",
            "server",
            [],
            "needs the server's address: give --model_args base_url=.* vllm serve lingshu-me",
        ),
        (
            "fleming-vl-8b",
            "hf",
            [],
            "does not run with --backend hf: transformers 5.23 does not know internvl_chat",
        ),
        (
            "hulu-med-7b",
            "",
            [],
            "has no backend: transformers .*; vLLM 0.32 has no class for it",
        ),
        (
            "lingshu-7b",
            "",
            ["--model", "hf_vlm"],
            "names the model; leave --model out, or --recipe",
        ),
        ("", "hf", [], "--backend says where the model of a recipe runs; give --recipe NAME"),
    ],
)
def test_a_recipe_that_cannot_be_run_so(name, backend, arguments, message):
    with pytest.raises(MedTasksError, match=message):
        expansion(name, backend, read_options(arguments))


def test_server_only_models_choose_their_server():
    named, facts = expansion(
        "fleming-vl-8b", "", read_options(["--model_args", "base_url=http://h/v1"])
    )
    assert named == ["--model", "vlm_server", "--model_args", "base_url=http://h/v1"]
    assert facts.backend == "server"
    assert "--trust-remote-code" in recipe("fleming-vl-8b").serve_command()
    assert (
        '--mm-processor-kwargs \'{"size": {"shortest_edge": 65536'
        in recipe("qoq-med-7b").serve_command()
    )


def test_a_recipe_of_ones_own_extends_ours(own):
    mine = recipe("mine", [own])
    assert mine.fact("class") == "Qwen2_5_VLForConditionalGeneration", (
        "from what it extends, and that extends"
    )
    assert len(mine.traps) == len(recipe("qwen2.5-vl-7b").traps) > 0
    with pytest.raises(UnknownName):
        recipe("mine")


def test_a_recipe_of_ones_own_has_no_facts_of_other_weights(own):
    mine = recipe("mine", [own])
    assert mine.published_as == {}
    assert mine.fact("licence") == "?"


def test_a_recipe_of_ones_own_gives_the_arguments_of_the_harness(own):
    mine = recipe("mine", [own])
    _, arguments = mine.model_options("hf", {})
    assert simple_parse_args_string(arguments)["pretrained"] == "me/mine"
    _, arguments = mine.model_options("server", {"base_url": "u"})
    assert simple_parse_args_string(arguments)["system_prompt"] == '"Think, then \\"answer\\"."'


def test_a_changed_recipe_has_another_digest(own):
    before = recipe("mine", [own]).digest
    (own / "mine.yaml").write_text(OWN.replace("I made it}\n  rev", "You did}\n  rev"))
    assert recipe("mine", [own]).digest != before


def test_a_recipe_in_a_file_named_like_one_of_ours_extends_ours(own):
    (own / "qwen2.5-vl-7b.yaml").write_text(
        OWN.replace("recipe: mine", "recipe: same-file-name")
    )
    mine = recipe("mine", [own])
    assert recipe("same-file-name", [own]).fact("class") == mine.fact("class")


def test_a_recipe_of_ones_own_goes_before_ours(own):
    (own / "mine.yaml").write_text(OWN.replace("recipe: mine", "recipe: lingshu-7b"))
    assert recipe("lingshu-7b", [own]).title == "My model"


@each_row(
    ("change", "message"),
    [
        (("title: My model\n", ""), "wrong at 'title': Field required; correct it"),
        (
            ("title: My model", "title: My model\nnotes: x"),
            "wrong at 'notes': Extra inputs are not permitted",
        ),
        (
            ("source: I made it}\n  rev", "sauce: x}\n  rev"),
            r"wrong at 'facts\.hub id\.source'",
        ),
        (
            ("qwen2.5-vl-7b.yaml", "mine.yaml"),
            "extends mine.yaml, which is not there or extends it",
        ),
        (("title: My model", "title: [x"), "cannot be read as YAML in line"),
        (
            ("title: My model", "title: x\nserver: {args: {since: 2026-01-01}}"),
            r"wrong at 'server\.args\.since'",
        ),
    ],
)
def test_a_damaged_recipe_is_named(own, change, message):
    (own / "mine.yaml").write_text(OWN.replace(*change))
    with pytest.raises(MedTasksError, match=message) as caught:
        recipes([own])
    assert str(own / "mine.yaml") in str(caught.value)


def test_the_report_of_a_run_by_a_recipe_marks_the_published_scores_of_its_model(
    sample, tmp_path
):
    (tmp_path / "mine.yaml").write_text(
        "recipe: mine\ntitle: Mine\nhf: {model: medtasks_tiny}\npublished_as: {mediconfusion_table1.csv: RadFM}\n"
    )
    run = write_run(tmp_path / "run", ["mediconfusion"], 0.5, 1)
    _, facts = expansion("mine", "", read_options(["--include_path", str(tmp_path)]))
    model = {"name": run.name, "arguments": ""}
    manifest(
        run,
        {"mediconfusion": ("done", "")},
        state="finished",
        model=model,
        recipe=facts.model_dump(),
    )

    report = collect_run(open_run(run))

    assert report.facts["recipe"].startswith("mine, backend hf, sha256:")
    (task,) = report.tasks
    assert {score.model for score in task.published if score.same_model} == {"RadFM"}
    shown = {row[0].text for row in published_table(task).rows}
    assert "RadFM (this model)" in shown
    assert "RadFM" not in shown
    published = report_as_dict(report)["tasks"][0]["published"]
    assert {score["model"] for score in published if score["same_model"]} == {"RadFM"}
