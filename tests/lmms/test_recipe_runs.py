"""A run by a recipe of one's own through the real harness: arguments with commas, the manifest, and the report."""

import pytest
from lmms_eval.utils import simple_parse_args_string
from medtasks.model_adapters.base.arguments import parse_arguments
from medtasks.model_adapters.hf_vlm.adapter import HfVlmArguments

from medtasks.audit.report.collecting import collect_run
from medtasks.audit.report.contents import report_as_dict
from medtasks.audit.report.task_tables import published_table
from medtasks.running.recipes import recipe
from medtasks.runs.run import read_run
from medtasks.runs.run_manifest import read_manifests

from ..model_adapters import tiny_hf_models
from ..processes import run_here

pytestmark = pytest.mark.slow

RECIPE = """\
recipe: mine
title: A tiny model
extends: qwen2.5-vl-7b.yaml
hf:
  args:
    system_prompt: "Answer briefly, with a letter; it's \\"A\\" or \\"B\\"."
    processor_kwargs: {size: {shortest_edge: 64, longest_edge: 256}}
published_as: {mediconfusion_table1.csv: RadFM}
facts:
  hub id: {value: FOLDER, source: made here}
"""


def test_a_run_by_a_recipe(sample_home, tmp_path):
    folder = tmp_path / "my_recipes"
    folder.mkdir()
    twin = tiny_hf_models.build("qwen2_5_vl", tmp_path / "twin")
    (folder / "mine.yaml").write_text(RECIPE.replace("FOLDER", str(twin)))
    output = tmp_path / "out"
    command = ["medtasks", "run", "--recipe", "mine", "--include_path", str(folder), "--output_path", str(output)]
    command += ["--tasks", "mediconfusion_gd", "--limit", "4", "--model_args"]
    given = 'dtype=float32,batch_size=4,device=cpu,processor_kwargs={"size":{"shortest_edge":64,"longest_edge":128}}'
    ran = run_here([*command, given], tmp_path, MEDTASKS_HOME=str(sample_home))
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-3000:]

    made, (manifest,) = recipe("mine", [folder]), read_manifests(output)
    assert manifest.recipe is not None
    assert (manifest.recipe.name, manifest.recipe.backend, manifest.recipe.digest) == ("mine", "hf", made.digest)
    assert manifest.recipe.given["processor_kwargs"] == '{"size":{"shortest_edge":64,"longest_edge":128}}'
    assert manifest.model.name == "hf_vlm"
    read = parse_arguments(HfVlmArguments, simple_parse_args_string(manifest.model.arguments), "hf_vlm")
    assert read.system_prompt == made.hf.args["system_prompt"]
    assert read.processor_kwargs == {"size": {"shortest_edge": 64, "longest_edge": 128}}

    report = collect_run(read_run(output))
    assert report.facts["recipe"].startswith("mine, backend hf, sha256:")
    for task in report.tasks:
        assert {one.model for one in task.published if one.same_model} == {"RadFM"}
        shown = {row[0].text for row in published_table(task).rows}
        assert "RadFM (this model)" in shown
        assert "RadFM" not in shown
    written = report_as_dict(report)["tasks"][0]["published"]
    assert {one["model"] for one in written if one["same_model"]} == {"RadFM"}
