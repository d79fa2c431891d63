"""Prompts and settings of two runs, where no samples file holds the prompts; others are in test_equivalence_verdict."""

import json
from types import SimpleNamespace

import pytest

from medtasks.audit.comparing import prompt_warnings
from medtasks.errors import RepliesError

UNKNOWN = "the prompts are not recorded or withheld, so that they could not be compared"


@pytest.fixture
def run(tmp_path):
    """Write a run without prompts whose task had some configuration; return its samples file."""

    def write(name, config):
        (tmp_path / name).mkdir()
        (tmp_path / name / "20260102_030405_results.json").write_text(
            json.dumps({"results": {}, "configs": {"letters": config}})
        )
        samples = tmp_path / name / "20260102_030405_samples_letters.jsonl"
        samples.write_text("")
        return samples

    return write


def test_templates_count_where_no_prompt_is_recorded(run):
    task = SimpleNamespace(name="letters", compares_likelihoods=True)
    first, second, unknown = (
        run(name, {"lmms_eval_specific_kwargs": {"default": {"template": template}}} if template else {})
        for name, template in (("a", "{{ question }}?"), ("b", "{{ question }}\nAnswer:"), ("c", None))
    )
    assert prompt_warnings(task, [], [first, first]) == prompt_warnings(task, [], [first, unknown]) == (UNKNOWN,)
    with pytest.raises(RepliesError, match="the runs made their prompts from different templates"):
        prompt_warnings(task, [], [first, second])


def test_sampling_is_a_warning_of_generated_replies(run):
    files = [run("a", {}), run("b", {"generation_kwargs": {"temperature": "0.7", "max_new_tokens": 4}})]
    unknown, settings, drawn = prompt_warnings(SimpleNamespace(name="letters", compares_likelihoods=False), [], files)
    assert unknown == UNKNOWN
    assert settings.endswith("(generation setting temperature, generation setting max_new_tokens)")
    assert drawn.endswith("use temperature 0")
    assert prompt_warnings(SimpleNamespace(name="letters", compares_likelihoods=True), [], files) == (UNKNOWN,)
