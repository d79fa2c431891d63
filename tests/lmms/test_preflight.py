"""``medtasks run``'s checks before anything starts: what is refused and warned of, by options, names and servers."""

import functools
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from medtasks.cli.main import app
from medtasks.net import servers
from medtasks.running import preflight
from medtasks.running.preflight import check, cut_units
from medtasks.runs.run_manifest import Severity
from medtasks.tasks.task_files import task_files
from medtasks.tasks.task_index import index_tasks

from ..scripted_server import Endpoint, serving
from ..tables import each_row
from .test_remote_models import ASYNC, AWAY, LOCAL, PRIVATE, PUBLIC, bare_environment  # noqa: F401

ENDLESS = "generation_kwargs: {until: []}\n"
PATH_OF = "dataset_path: !function medtasks.data.path_of."
OWN = {
    "mine": "process_results: !function medtasks.hooks.choice.process_results\n",
    "theirs": "process_results: !function my.f\n",
    "bare": "",
    "kept": ENDLESS,
    "a": f"tag: both\n{ENDLESS}",
    "b": f"tag: both\n{ENDLESS}",
    "ready": f"fewshot_config: {{sampler: first_n}}\n{ENDLESS}",
    "patients": f"{PATH_OF}{PRIVATE}\n{ENDLESS}",
    "path": f"dataset_path: !function own.path\n{ENDLESS}",
}


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A folder with the user's own task files and configuration files of runs."""
    folder = tmp_path_factory.mktemp("own")
    for name, text in OWN.items():
        (folder / f"{name}.yaml").write_text(f"task: {name}\n{text}")
    configs = {
        "shares": "limit: 0.5\nlog_samples: true\nnum_fewshot: 1\n",
        "several": "- limit: 2\n  env: {MEDTASKS_HOME: /x, HF_TOKEN: y}\n- limit: 4\n",
    }
    (folder / "configs").mkdir()
    for name, text in configs.items():
        (folder / "configs" / f"{name}.yml").write_text(text)
    return folder


@pytest.fixture(scope="module", autouse=True)
def _harness_read_once():
    """The harness's thousands of task files are read once."""
    indexed = functools.cache(index_tasks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            preflight,
            "index_tasks",
            lambda folders, naming=(): indexed(tuple(folders), tuple(naming)),
        )
        yield


def notices(tasks, *arguments):
    """Return the sentences that refuse a run, and those that warn."""
    notices = check(tasks.split(","), arguments)
    return tuple(
        [notice.sentence for notice in notices if notice.kind is kind]
        for kind in (Severity.REFUSE, Severity.WARN)
    )


NO_ROW, NOT_PAIRED = "asks no row", "cuts 1 of 3 pairs of mediconfusion"
NO_EXAMPLES = f"no effect on {PUBLIC}"
ENDS = "replies of {} end at the first blank line.*until: \\[\\]"
SHARE = r"--limit 0.5 is a share, .* to all {} tasks; run them one by one"
INSTRUCTED = "--system_instruction brief"
TINY = "--model medtasks_tiny"
NOT_HERE = "there is no (?:task|model) '.*', neither here.*; did you mean"
OF_EVERY_KIND = (
    "mediconfusion,mediconfusion_all,multimedeval_vqa,mediconfusion_blind,mediconfusion_sanity"
)


@each_row(
    ("tasks", "arguments", "refused", "warned"),
    [
        ("mediconfusion", "", [], []),
        ("mediconfusion,mmbench_en_dev", "--limit 4 --batch_size=4 --seed 1", [], []),
        ("mediconfusion", "--limit -1", [], []),
        ("mediconfusion", "--limit 0.5", [], []),  # a share of one task that cuts no pair
        *(
            ("mediconfusion", f"--limit {limit}", [NO_ROW], [])
            for limit in ("0", "0.0", "-2", "nan", "inf")
        ),
        (
            "mediconfusion",
            "--offset 32",
            [],
            ["^--offset 32 skips all 32 rows of mediconfusion"],
        ),
        (
            "mediconfusion",
            "--offset -1",
            ["^--offset -1 lies before the first row; give the number of rows to sk"],
            [],
        ),
        (
            "mediconfusion",
            "--limit 5",
            [],
            [f"{NOT_PAIRED}.*consecutive rows.*give --limit 4 or --limit 6$"],
        ),
        ("mediconfusion_swapped", "--limit 5", [], [f"{NOT_PAIRED}_swapped"]),
        ("mediconfusion", "--offset 3", [], ["give --offset 2 or --offset 4$"]),
        ("mediconfusion_gd", "--limit 2.0", [], ["--limit 2.0 means 2 rows"]),
        (
            "mediconfusion",
            "--offset=3 --limit=4",
            [],
            ["--offset 2 --limit 4 or --offset 2 --limit 6$"],
        ),
        # Of 32 rows the harness takes ceil(32 * 0.01) = 1.
        ("mediconfusion", "--limit 0.01", [], ["^--limit 0.01 cuts 1 of 1 pairs"]),
        # Both options of each of the 32 questions come in two orders, so a question has two rows, a pair four.
        (
            "mediconfusion_rotated",
            "--limit 5",
            [],
            [
                "cuts 1 of 3 questions of mediconfusion_rotated.*each rotation of a q.*give --limit 4 or --limit 6$"
            ],
        ),
        ("mediconfusion_rotated", "--limit 2", [], []),
        ("mediconfusion_rotated", "--offset 34", [], []),
        (
            "mediconfusion_rotated",
            "--offset 64",
            [],
            ["^--offset 64 skips all 64 rows of mediconfusion_rotated"],
        ),
        ("mediconfusion_all", "--limit=.5", [SHARE.format(r"\d+")], []),
        ("multimedeval_5shot", "--lim 5e-1", [SHARE.format(r"\d+")], []),
        ("mmbench", "--limit 0.5", [SHARE.format(r"\d+")], []),
        ("mmbench_en_dev", "--limit 0.5", [], []),
        ("both,mmbench_en_dev", "--limit 0.5 --include_path OWN", ["all 3 tasks"], []),
        ("a", "--limit 0.5 --include_path OWN", [], []),
        (PUBLIC, "--num_fewshot 2", [f"{NO_EXAMPLES}.*choose {PUBLIC}_5shot instead"], []),
        (f"{PUBLIC}_5shot", "--num_fewshot=2", ["leave it out"], []),
        ("mediconfusion", "--num_fewshot 2", ["no examples to draw for mediconfusion"], []),
        ("mediconfusion", "--num_fewshot 0", [], []),
        ("kept", "--num_fewshot 2 --include_path OWN", ["no examples to draw for kept"], []),
        ("ready", "--num_fewshot 2 --include_path OWN", [], []),
        (PUBLIC, "--use_cache folder", [], ["old one"]),
        (PUBLIC, "--cache_requests true", [], ["cache_requests refresh"]),
        *(
            (PUBLIC, wrong, [""], [])
            for wrong in ("--limit", "--seed x", "--config missing.yaml")
        ),
        ("mediconfusion", INSTRUCTED, [], ["in front of every prompt of mediconfusion"]),
        ("mmbench_en_dev", INSTRUCTED, [], []),
        ("bare", "--include_path OWN", [], [ENDS.format("bare")]),
        (
            "mine,theirs,kept",
            "--include_path OWN",
            [],
            [ENDS.format("mine")],
        ),  # hooks of others end them as they want
        ("bare", "--include_path OWN --gen_kwargs temperature=0,until=###", [], []),
        ("OWN/bare.yaml", "", [], [ENDS.format("bare")]),
        (
            ",".join(name for name, task in task_files().items() if task.kind == "task"),
            "",
            [],
            [],
        ),
        ("patients", "--write_out --include_path OWN", [PRIVATE], []),
        (PRIVATE, "--cache_requests delete", [], []),
        (PRIVATE, "--hf_hub_log_args push_samples_to_hub=False,push_results_to_hub=1", [], []),
        ("path", "--write_out --include_path OWN", [], []),
        # Names that no task or model has.
        (
            "mediconfusio",
            f"{TINY} --limit 0",
            ["--limit 0", f"{NOT_HERE} 'mediconfusion'.*--include_path FOLDER$"],
            [],
        ),
        ("mediconfusion,mmbench_en_de", TINY, ["did you mean 'mmbench_en_dev'"], []),
        (
            "mediconfusion",
            "--model medtasks_tny --batch_size auto",
            [f"{NOT_HERE} 'medtasks_tiny'\\?$"],
            [],
        ),
        ("mediconfusio,medi_confusion", "--model medtasks_tny", ["", "", ""], []),
        ("medii*", TINY, ["no task 'medii\\*'"], []),
        ("kept,both,OWN/kept.yaml", f"{TINY} --include_path OWN", [], []),
        (f"{OF_EVERY_KIND},medi*,*_blind,mmb*,mmbench,mme,ocr?ench", TINY, [], []),
        (
            "mediconfusion,mediconfusion_gd",
            "--config OWN/configs/shares.yml",
            ["--limit 0.5 is a share", "--num_fewshot"],
            [],
        ),
        ("mediconfusion", "--config OWN/configs/shares.yml --limit 4 --num_fewshot 0", [], []),
        (
            PUBLIC,
            "--config OWN/configs/several.yml",
            ["2 evaluations", "^(?!.*HF_TOKEN).*MEDTASKS_HOME"],
            [],
        ),
    ],
)
def test_options(sample, own, tasks, arguments, refused, warned):
    words = arguments.replace("OWN", str(own)).split()
    model = [] if "--model" in arguments else ["--model", "dummy"]
    found = notices(tasks.replace("OWN", str(own)), *model, *words)
    for sentences, patterns in zip(found, (refused, warned), strict=True):
        assert len(sentences) == len(patterns), sentences
        for sentence, pattern in zip(sentences, patterns, strict=True):
            assert re.search(pattern, sentence), sentence


def test_a_dataset_that_is_not_there_has_no_pairs_and_no_model_is_none_that_exists():
    assert notices("mediconfusion", "--model", "dummy", "--limit", "5") == ([], [])
    (sentence,), _ = notices("mediconfusion")
    assert (
        sentence
        == "no model is named, and the harness's default, 'hf', does not exist; give --model NAME"
    )


@each_row(
    ("config", "cut"),
    [
        ({}, True),
        (
            {
                "output_type": "generate_until_multi_round",
                "generation_kwargs": {"max_new_tokens": 8},
            },
            True,
        ),
        ({"generation_kwargs": {"until": []}}, False),
        ({"generation_kwargs": {"until": None}}, False),
        ({"output_type": "multiple_choice"}, False),
        ({"class": "some.Class"}, False),
        ({"fewshot_delimiter": "###"}, False),
        ({"model_specific_generation_kwargs": {"default": {"until": []}}}, False),
        ({"model_specific_generation_kwargs": {"mine": {"until": []}, "default": {}}}, False),
        ({"model_specific_generation_kwargs": {"mine": {}, "default": {"until": []}}}, True),
    ],
)
def test_replies_cut_at_blank_lines(tmp_path, config, cut):
    (tmp_path / "own.yaml").write_text(json.dumps({"task": "own", **config}))
    _, warned = notices(str(tmp_path / "own.yaml"), "--model", "mine")
    assert any(re.search(ENDS.format("own"), sentence) for sentence in warned) is cut


PAIRS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=12)


@given(PAIRS, st.integers(0, 12), st.integers(1, 14) | st.none())
def test_cut_pairs_are_counted_and_the_advice_cuts_none(ids, offset, limit):
    def cut(start, count):
        asked = range(start, len(ids) if count is None else min(len(ids), start + count))
        inside = {ids[row] for row in asked}
        return sum(
            any(ids[row] == pair for row in range(len(ids)) if row not in asked)
            for pair in inside
        )

    offset = min(offset, len(ids))
    _, count_of_cut, better = cut_units(ids, offset, limit)

    assert count_of_cut == cut(offset, limit)
    assert bool(better) == bool(count_of_cut)

    for advice in better:
        words = advice.split()
        options = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        start, count = options.get("--offset", offset), options.get("--limit", limit)
        assert cut(start, count) == 0
        assert start < len(ids)
        assert count != 0


@each_row(
    "arguments",
    [
        *(
            "--use_cache folder",
            "-c folder",
            "--cache_requests true",
            "--cache_requests=refresh",
            "--write_out",
            "-w",
        ),
        *(
            "--swanlab_log_samples",
            "--hf_hub_log_args hub_results_org=me,push_samples_to_hub=True",
        ),
    ],
)
def test_text_of_patients_stays(arguments, monkeypatch):
    model = ["--model", "dummy", *arguments.split()]
    (sentence,), _ = notices(f"{PUBLIC},{PRIVATE}", *model)
    assert PUBLIC not in sentence
    assert f"MEDTASKS_LOG_TEXT={PRIVATE}" in sentence
    assert notices(PUBLIC, *model)[0] == []
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", PRIVATE)
    assert notices(PRIVATE, *model)[0] == []


def refused(tasks, *arguments):
    """The refusals that concern the place to which questions go."""
    return [
        sentence
        for sentence in notices(tasks, *arguments, "--log_samples")[0]
        if "is not sent" in sentence
    ]


@each_row(
    ("tasks", "arguments", "refusals"),
    [
        (PUBLIC, f"--model async_openai --model_args model=m,base_url={AWAY}", 0),
        ("multimedeval", f"--model async_openai --model_args model=m,base_url={AWAY}", 1),
        ("patients", f"--model openai --model_args base_url={AWAY} --include_path OWN", 1),
        (PRIVATE, f"--model async_openai --model_args base_url={LOCAL}", 0),
        (PRIVATE, "--model qwen2_5_vl", 0),
        (PRIVATE, "", 0),
        (PRIVATE, f"--model=openai_compatible --model_args=base_url={AWAY}", 1),
        (PRIVATE, f"--model openai --model_args base_url={AWAY} --force_simple", 1),
        (PRIVATE, f"--model openai --model_args base_url_={LOCAL}", 1),  # with a blank
        (PRIVATE, "--model claude", 1),
        (PRIVATE, "--model gemini_api", 1),
    ],
)
def test_places(own, tasks, arguments, refusals):
    words = [
        word.replace("base_url_", "base_url ")
        for word in arguments.replace("OWN", str(own)).split()
    ]
    assert len(refused(tasks, *words)) == refusals


def test_rows_of_rotations_are_those_of_the_questions_that_can_be_rotated(sample, monkeypatch):
    monkeypatch.setattr(
        preflight, "can_be_rotated", lambda document: document["position"] == 1
    )  # half of them
    (warning,) = notices("mediconfusion_rotated", *TINY.split(), "--offset", "32")[1]
    assert warning.startswith("--offset 32 skips all 32 rows of mediconfusion_rotated")


ELSEWHERE = ["--model", "async_openai", "--model_args", f"model=m,base_url={AWAY}"]


def test_a_server_elsewhere_is_refused_with_what_allows_it():
    (sentence,) = refused(f"{PUBLIC},{PRIVATE}", *ELSEWHERE)
    assert (
        f"({PRIVATE}) is not sent with model '{ASYNC}' to http://api.vendor.invalid:80 (base_url)"
        in sentence
    )
    assert "set MEDTASKS_TRUSTED_MODEL=http://api.vendor.invalid:80" in sentence


@each_row(
    "name, value",
    [
        ("MEDTASKS_LOG_TEXT", PRIVATE),
        ("MEDTASKS_TRUSTED_JUDGE", AWAY),
        ("MEDTASKS_JUDGE_ALLOW_REMOTE", PRIVATE),
        ("MEDTASKS_TRUSTED_MODEL", "https://api.vendor.invalid"),
    ],
)
def test_no_other_permission_allows_a_server_elsewhere(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert len(refused(PRIVATE, *ELSEWHERE)) == 1


def test_a_server_that_the_user_trusts_is_allowed(monkeypatch):
    monkeypatch.setenv("MEDTASKS_TRUSTED_MODEL", "http://api.vendor.invalid")
    assert refused(PRIVATE, *ELSEWHERE) == []


@pytest.fixture
def _foreign_models(monkeypatch):
    """Models that another plug-in registers: one of its own, and one of the harness by another name."""
    from lmms_eval.models import MODEL_REGISTRY_V2, ModelManifest

    for table in ("_manifests", "_alias_to_model_id"):
        monkeypatch.setattr(MODEL_REGISTRY_V2, table, dict(getattr(MODEL_REGISTRY_V2, table)))
    theirs = ModelManifest(
        model_id="somebodys", simple_class_path="somebody.Model", aliases=("somebodys_too",)
    )
    MODEL_REGISTRY_V2.register_manifest(theirs)
    MODEL_REGISTRY_V2.register_manifest(
        ModelManifest(model_id="renamed", chat_class_path=ASYNC)
    )


@pytest.mark.usefixtures("_foreign_models")
@each_row("model", ["somebodys", "somebodys_too"])
def test_a_model_of_another_plug_in_is_refused_by_its_class(model):
    (sentence,) = refused(PRIVATE, "--model", model, "--model_args", f"server_url={LOCAL}")
    assert "set MEDTASKS_TRUSTED_MODEL=class:somebody.Model" in sentence


@pytest.mark.usefixtures("_foreign_models")
def test_a_class_of_another_plug_in_may_be_trusted(monkeypatch):
    monkeypatch.setenv("MEDTASKS_TRUSTED_MODEL", "class:somebody.Model")
    assert refused(PRIVATE, "--model", "somebodys", "--model_args", f"server_url={AWAY}") == []


@pytest.mark.usefixtures("_foreign_models")
def test_a_model_of_the_harness_is_known_under_another_name():
    (sentence,) = refused(PRIVATE, "--model", "renamed")
    assert "api.openai.com" in sentence


def test_the_address_of_a_server_is_that_of_the_environment(monkeypatch):
    assert "api.openai.com" in refused(PRIVATE, "--model", "openai")[0]
    monkeypatch.setenv("OPENAI_API_BASE", LOCAL)
    assert refused(PRIVATE, "--model", "openai") == []


def test_the_address_of_a_server_is_that_of_a_configuration_file(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_BASE", LOCAL)
    file = tmp_path / "run.yaml"
    file.write_text(
        f"model: openai\nenv: {{SOMEWHERE: '{AWAY}', OPENAI_API_BASE: '$SOMEWHERE'}}\n"
    )
    assert "vendor.invalid:80 (OPENAI_API_BASE)" in refused(PRIVATE, "--config", str(file))[0]
    file.write_text(f"model: async_openai\nmodel_args: {{base_url: '{AWAY}'}}\n")
    assert "vendor.invalid:80 (base_url)" in refused(PRIVATE, "--config", str(file))[0]


def test_a_proxy_before_a_server_is_refused(monkeypatch):
    monkeypatch.setenv("OPENAI_API_BASE", LOCAL)
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    assert "the proxy that HTTP_PROXY names" in refused(PRIVATE, "--model", "openai")[0]


def test_the_command_ends_before_anything_starts(monkeypatch, tmp_path):
    monkeypatch.setattr(
        servers, "is_loopback", lambda name: False
    )  # the server stands for another machine
    with serving(Endpoint()) as outside:
        arguments = [
            "run",
            "--tasks",
            PRIVATE,
            "--output_path",
            str(tmp_path / "out"),
            "--model",
            "async_openai",
        ]
        result = CliRunner().invoke(
            app, [*arguments, "--model_args", f"base_url={outside.url}"]
        )
    assert outside.count == 0
    assert result.exit_code == 1
    sentence = f"is not sent with model '{ASYNC}' to {outside.url.removesuffix('/v1')}"
    assert sentence in result.output + str(result.exception)
    assert not (tmp_path / "out").exists()
