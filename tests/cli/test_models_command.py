"""``medtasks models``, and the options of ``medtasks run`` that a recipe has."""

import json
import shlex
import sys

import pytest

from medtasks.home import own_tasks_folder
from medtasks.running.recipes import recipes
from medtasks.runs.run_manifest import read_manifests


def test_the_list_has_every_recipe_with_licence_gate_and_backends(medtasks):
    ran = medtasks("models", "list")
    rows = {line.split("  ")[0]: line for line in ran.out.splitlines()}
    assert set(rows) - {"name"} == set(recipes())
    assert "Health AI Developer Foundations" in rows["medgemma-4b"]
    assert rows["hulu-med-7b"].split("  ")[-2].strip() == "none" or "  none  " in rows["hulu-med-7b"]
    assert rows["lingshu-7b"].split()[1:4] == ["7B", "MIT", "no"]


def test_a_recipe_shows_sources_traps_scores_and_commands(medtasks):
    ran = medtasks("models", "show", "lingshu-7b")
    flat = " ".join(ran.out.split())
    assert ran.code == 0
    assert "licence: MIT source: model card of lingshu-medical-mllm/Lingshu-7B" in flat
    assert ran.out.count("    source: ") >= 10
    assert "Known traps" in ran.out
    assert "whether the paper's table used reasoning" in flat
    assert "medevalkit_pmc_vqa accuracy: 56.3, as Lingshu-7B in Lingshu, arXiv 2506.07044" in flat
    assert "lmms_eval --model hf_vlm --model_args 'pretrained=lingshu-medical-mllm/Lingshu-7B," in ran.out
    assert "vllm serve lingshu-medical-mllm/Lingshu-7B --revision b98aecd" in ran.out
    for name in recipes():
        assert medtasks("models", "show", name).code == 0


def test_a_server_alone_and_no_backend_at_all(medtasks):
    fleming, hulu = medtasks("models", "show", "fleming-vl-8b").out, medtasks("models", "show", "hulu-med-7b").out
    assert "not in this process: transformers 5.23 does not know" in fleming
    assert "(read by eye from a picture of the table)" in " ".join(fleming.split())
    assert "not on a server: vLLM 0.32 has no class for it" in hulu
    ran = medtasks("models", "show", "lingshu7b")
    assert (ran.code, "did you mean 'lingshu-7b'" in ran.err.replace("\n", " ")) == (1, True)


@pytest.fixture
def launched(tmp_path):
    """A stand-in for the harness that writes down what it is told."""
    own_tasks_folder().mkdir()
    (own_tasks_folder() / "one.yaml").write_text("task: one\ngeneration_kwargs: {until: []}\n")
    code = "import json, sys; json.dump(sys.argv, open(sys.argv[1], 'w'))"
    launcher = shlex.join([sys.executable, "-c", code, str(tmp_path / "told.json")])
    return [f"--launcher={launcher}", "--tasks", "one", "--output_path", str(tmp_path / "out")]


def test_a_run_passes_on_what_the_recipe_stands_for(medtasks, launched, tmp_path):
    medtasks("run", *launched, "--recipe", "qoq-med-7b", "--model_args", "dtype=float16,hf_token=planted")
    told = json.loads((tmp_path / "told.json").read_text())
    last = max(place for place, word in enumerate(told) if word == "--model_args")
    assert told[last + 1].startswith("pretrained=ddvd233/QoQ-Med-VL-7B,dtype=float16,revision=aedfc4")
    assert told[told.index("--model") + 1] == "hf_vlm"
    (manifest,) = read_manifests(tmp_path / "out")
    assert manifest.recipe.name == "qoq-med-7b"
    assert manifest.recipe.given == {"dtype": "float16", "hf_token": "***"}
    assert manifest.command[-4:-2] == ("--recipe", "qoq-med-7b")
    assert "planted" not in manifest.path.read_text()


def test_a_run_without_what_its_backend_needs(medtasks, launched):
    ran = medtasks("run", *launched, "--recipe", "lingshu-7b", "--backend", "server")
    assert ran.code == 1
    assert "needs the server's address: give --model_args base_url=" in " ".join(ran.err.split())
