"""The harness's command line, read as the installed harness reads it."""

import pytest

from medtasks.errors import MedTasksError
from medtasks.runs.harness_options import HarnessOptions, _parser, read_options, seeds

from ..tables import each_row


def test_the_options_are_those_of_the_installed_harness(monkeypatch):
    from lmms_eval.__main__ import parse_eval_args

    monkeypatch.setattr("sys.argv", ["lmms_eval"])
    parser, _ = parse_eval_args()
    actions = [action for action in parser._actions if action.dest != "help"]
    theirs = {frozenset(action.option_strings): action.nargs == 0 for action in actions}
    assert {frozenset(action.option_strings): action.nargs == 0 for action in _parser()._actions} == theirs


def test_spellings_and_values():
    spelled = ["--limit", "5"], ["--limit=5"], ["--lim", "5"], ["--lim=5"], ["--limit", "-1"], ["--limit", "many"]
    assert [read_options(arguments).number("limit") for arguments in spelled] == [5, 5, 5, 5, -1, None]
    assert read_options(["--limit", "3", "--limit", "-1"]).number("limit") == -1  # the last one counts
    assert read_options(["--model_args", "a=1", "b=2", "--log-samples"]).unknown == ("b=2", "--log-samples")
    options = read_options(["-b", "4", "-c", "cache", "-w", "-x", "-n3", "--process-docs-parallel", "2"])
    values = {"batch_size": "4", "use_cache": "cache", "write_out": True, "predict_only": True, "repeats": "3"}
    assert options.given == values | {"process_docs_parallel": "2"}
    assert (options.flag("write_out"), options.flag("log_samples"), options.number("offset")) == (True, False, None)
    assert read_options(["--process_docs_parallel=2"]).given == {"process_docs_parallel": "2"}
    options = HarnessOptions({"model_args": 'pretrained=a/b=c,h={"x": 1, "y": 2},q=\'1,2\',flag'})
    assert options.pairs("model_args") == {"pretrained": "a/b=c", "h": '{"x": 1, "y": 2}', "q": "'1,2'"}
    assert options.pairs("wandb_args") == {}
    for arguments in (["--limit"], ["--log_s"], ["--write_out=yes"]):
        with pytest.raises(MedTasksError, match=r"lmms-eval does not accept these arguments: .*lmms_eval --help"):
            read_options(arguments)


def test_a_config_file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("model: hf_vlm\nlimit: 0.5\nlog_samples: true\nseed: [1, 2, 3, 4]\nenv: {A: 1, HF_TOKEN: x}\n")
    options = read_options(["--config", str(path), "--limit", "3"])
    assert (options.text("model"), options.number("limit"), options.flag("log_samples")) == ("hf_vlm", 3, True)
    assert options.environment == {"A": "1", "HF_TOKEN": "x"}
    assert options.evaluations == 1
    assert seeds(options) == (1, 2, 3, 4)
    path.write_text("- limit: 1\n- limit: 2\n")
    assert read_options([f"--config={path}"]).evaluations == 2
    path.write_text("model_args: {base_url: 'http://x', azure_openai: true}\n")
    options = read_options(["--config", str(path)])
    assert options.model_arguments() == {"base_url": "http://x", "azure_openai": True}
    assert read_options([]).model_arguments() == {}
    for content in ("", "[]", "just text", "a: [", "- 1", "env: [1]\n", None):
        path.unlink() if content is None else path.write_text(content)
        with pytest.raises(MedTasksError, match=r"run\.yaml"):
            read_options(["--config", str(path)])


def test_seeds():
    for arguments, expected in (
        ([], (0, 1234, 1234, 1234)),
        (["--seed", "7"], (7, 7, 7, 7)),
        (["--seed", "None"], (None,) * 4),
        (["--seed", "1,2,3"], (1, 2, 3, 1234)),
        (["--seed", "0, none ,8,52"], (0, None, 8, 52)),
    ):
        assert seeds(read_options(arguments)) == expected
    for text in ("1,2", "x", "1,2,3,4,5", "1.5", ""):
        with pytest.raises(MedTasksError, match="--seed"):
            seeds(read_options([f"--seed={text}"]))


@each_row(
    "text",
    [
        "base_url=http://127.0.0.1:8000/v1,model=a",
        " model=a , base_url=http://x/?a=b ,",
        "base_url =http://x,model=a",
        'a="x,base_url=http://y",b={"c": [1,2]},d=e',
        'a=\\",base_url=http://x,b=\\"',
        "a='\\',base_url=http://x,b='",
        "a='it\"s,b',c=d",
    ],
)
def test_arguments_of_the_model_are_read_as_the_harness_does(text):
    from lmms_eval.utils import simple_parse_args_string

    assert read_options(["--model_args", text]).model_arguments() == simple_parse_args_string(text)
