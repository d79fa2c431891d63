"""Everything that this package relies on in lmms-eval beside its command line's results, a sentence each.

A new version of the harness fails here first; ``upstream/`` has patches that would make some of it superfluous.
"""

import ast
import dataclasses
import inspect
import sys
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace

from lmms_eval import evaluator, tasks, utils
from lmms_eval.api import group, instance, model, task
from lmms_eval.api.filter import FilterEnsemble
from openai import OpenAI

from medtasks.runs.harness_options import FLAGS, VALUED
from medtasks.tasks.documents import KEYS

from ..tables import each_row
from .model_sources import model_sources

ROOM = Path(__file__).parents[2] / "medtasks"
ADAPTERS = ROOM.parent / "model_adapters"
POINTS = {}


def point(check):
    """Register a check of the sentence in its docstring."""
    POINTS[" ".join(check.__doc__.split())] = check
    return check


def parameters(function):
    return list(inspect.signature(function).parameters)


@point
def models():
    """Importing lmms_eval.models calls the entry points 'lmms_eval.models', which give ModelManifest(model_id,
    simple_class_path); the registry names the class path of a model, and imports a class of type lmms with
    is_simple True. AVAILABLE_SIMPLE_MODELS, AVAILABLE_CHAT_TEMPLATE_MODELS and MODEL_ALIASES hold the harness's
    names before it calls the entry points."""
    from lmms_eval import models as module
    from lmms_eval.models import MODEL_REGISTRY_V2

    tables = (*module.AVAILABLE_SIMPLE_MODELS, *module.AVAILABLE_CHAT_TEMPLATE_MODELS)
    assert {"llava", "openai"} <= set(tables)
    assert "openai_compatible" in module.MODEL_ALIASES["openai"]
    source = inspect.getsource(module._initialize_model_registry)
    assert "registry.load_entrypoint_manifests(overwrite=True)" in source
    assert (
        MODEL_REGISTRY_V2.get_model_class("adapter").__module__
        == "medtasks.model_adapters.any_model"
    )

    found = MODEL_REGISTRY_V2.resolve("medtasks_tiny", False)
    assert found.class_path == "medtasks.model_adapters.tiny.MedTasksTiny"
    assert {"medtasks_tiny", "openai_compatible"} <= set(MODEL_REGISTRY_V2.list_model_names())


@point
def import_of_tasks():
    """Python's finders import lmms_eval.tasks, after or before the models, so that its TaskManager can be
    wrapped."""
    assert tasks.TaskManager.initialize_tasks.__wrapped__
    assert tasks.TaskManager.match_tasks.__wrapped__


@point
def index_of_tasks():
    """TaskManager.initialize_tasks(include_path, include_defaults) returns entries with type, yaml_path and task
    by name, and match_tasks(task_list) chooses among them by pattern."""
    original = tasks.TaskManager.initialize_tasks.__wrapped__
    assert parameters(original) == ["self", "include_path", "include_defaults"]
    manager = tasks.TaskManager(include_defaults=False)
    entries = manager._get_task_and_group(str(ROOM.parent / "tasks_yaml"))
    assert entries["mediconfusion_gd"].keys() == {"type", "yaml_path"}
    assert entries["gmai_mmbench"] == {
        "type": "tag",
        "task": entries["gmai_mmbench"]["task"],
        "yaml_path": -1,
    }
    assert parameters(manager.match_tasks) == ["task_list"]


@point
def predictions_only():
    """--predict_only leaves a task the one metric 'bypass' and no process_results, before evaluate is called."""
    made = object.__new__(task.ConfigurableTask)
    made._config = SimpleNamespace(process_results=print, metric_list=[])
    made.override_metric(metric_name="bypass")
    assert made._config.metric_list == [{"metric": "bypass"}]
    assert made._config.process_results is None


@point
def scoring():
    """For each sample and filter task.process_results(doc, replies) is called, in several threads; the metrics
    are the items() of what it returns, and the logged sample is updated with it as a whole."""

    class Returned(dict):
        def items(self):  # as medtasks.runs.logged_samples.LoggedSample
            return {"metric": 1}.items()

    made = SimpleNamespace(
        process_results=lambda doc, replies: Returned({"target": "withheld", "score": replies}),
        config=SimpleNamespace(repeats=1),
        doc_to_target=lambda doc: "clear",
    )
    request = SimpleNamespace(
        filtered_resps={"f": "A"}, raw_filtered_resps={}, resps=["A"], args=(), token_counts=[]
    )
    request.doc = {"question": "?"}
    done = evaluator._process_document_results(
        (0, request.doc, [request]),
        task=made,
        filter_key="f",
        reasoning_tags=None,
        log_samples=True,
    )
    assert dict(done.metrics.items()) == {"metric": 1}
    assert (done.logged_sample["target"], done.logged_sample["score"]) == ("withheld", ["A"])
    assert done.logged_sample.keys() >= {
        "doc_id",
        "doc",
        "arguments",
        "resps",
        "filtered_resps",
        "token_counts",
    }
    assert "metric" not in done.logged_sample


@point
def calls_of_models():
    """A model's generate_until and loglikelihood are looked up on the object and get Instances with task_name,
    doc_id, idx, args and repeats; a reply is a text, a GenerationResult or a pair of a text and token counts."""
    fields = {field.name for field in dataclasses.fields(instance.Instance)}
    assert {"task_name", "doc_id", "idx", "arguments", "repeats", "metadata"} <= fields
    assert "getattr(lm, reqtype)(cloned_reqs)" in inspect.getsource(evaluator)
    assert instance.unwrap_generation_output(instance.GenerationResult("B"))[0] == "B"
    assert instance.unwrap_generation_output(("B", {}))[0] == "B"


@point
def clients():
    """The harness's models for servers with OpenAI's interface ask by self.client.chat.completions.create."""
    texts = {
        file.stem: file.read_text()
        for file, _ in model_sources()
        if file.parent.name in ("chat", "simple")
    }
    asking = {
        name for name, text in texts.items() if "self.client.chat.completions.create(" in text
    }
    assert asking | {"litellm"} == {
        "async_openai",
        "gpt4o_audio",
        "gpt4v",
        "litellm",
        "openai",
        "srt_api",
    }
    assert "self.client = _LiteLLMClientShim(" in texts["litellm"]


@point
def requests():
    """Task.build_all_requests(limit, offset, rank, world_size, ...) puts requests into _instances; one whose
    metadata have __padding_only__ keeps ranks in step, and its reply counts nowhere."""
    assert {"limit", "offset", "rank", "world_size", "cache_requests"} <= set(
        parameters(task.Task.build_all_requests)
    )
    assert "self._instances = " in inspect.getsource(task.Task.build_all_requests)
    made = instance.Instance(
        "generate_until", ("",), 0, {"task": "t", "doc_id": 0, "repeats": 1}
    )
    assert evaluator._clone_padding_request(made).metadata["__padding_only__"] is True


@point
def filters():
    """A filter's apply(resps, docs) sees all replies of a rank before any is scored, and gives one result each;
    likelihoods come to it as text, and generated replies are stripped after it."""
    seen = SimpleNamespace(apply=lambda resps, docs: [reply[0] for reply in resps])
    made = [SimpleNamespace(resps=[text], filtered_resps={}) for text in "AB"]
    FilterEnsemble("robust", [seen]).apply(made, None)
    assert [sample.filtered_resps for sample in made] == [{"robust": "A"}, {"robust": "B"}]
    assert instance.unwrap_generation_output((1.5, False))[0] == "(1.5, False)"
    assert "res.strip()" in inspect.getsource(task.ConfigurableTask.process_results)


@point
def command_line():
    """lmms_eval.__main__.cli_evaluate reads the command line and hands its arguments to cli_evaluate_single of
    the same module, whose error it prints, and which writes the results of a run in this process; the options are
    those in harness_options. Its scripts lack the name 'lmms_eval', which setup.cfg adds."""
    from lmms_eval import __main__ as main

    source = inspect.getsource(main.cli_evaluate)
    assert "results, samples = cli_evaluate_single(args)" in source
    assert "evaluation_tracker.save_results_samples(" in inspect.getsource(
        main.cli_evaluate_single
    )
    assert "traceback.print_exc()" in source
    scripts = {
        entry.name
        for entry in distribution("lmms_eval").entry_points
        if entry.group == "console_scripts"
    }
    assert "lmms-eval" in scripts
    assert "lmms_eval" not in scripts
    before, sys.argv = sys.argv, ["lmms_eval"]
    try:
        parser, _ = main.parse_eval_args()
    finally:
        sys.argv = before
    actions = [action for action in parser._actions if action.dest != "help"]
    for names, is_flag in ((VALUED, False), (FLAGS, True)):
        theirs = {
            frozenset(action.option_strings)
            for action in actions
            if (action.nargs == 0) is is_flag
        }
        assert theirs == {frozenset(name.split(",")) for name in names}


@point
def task_files(tmp_path=None):
    """A task file is YAML with include, of which its own keys win, !function module.name, taken from a file
    beside it first, and relative data_files beside it; its keys are those of TaskConfig."""
    known = {field.name for field in dataclasses.fields(task.TaskConfig)}
    assert KEYS - {"include", "class", "metadata"} <= known | {"include", "class"}
    assert known <= KEYS
    loader = inspect.getsource(utils.load_yaml_config)
    assert all(word in loader for word in ('"include"', "import_function", "reverse()"))


@point
def documents():
    """A task has its documents without images in eval_docs_no_media, its splits in dataset and dataset_no_image, and
    loads them in download, after it chose the blocks for its model; its class is in OUTPUT_TYPE, its filters are in
    _filters, called by apply_filters."""
    assert {"eval_docs_no_media", "download", "apply_filters", "OUTPUT_TYPE"} <= set(
        dir(task.ConfigurableTask)
    )
    source = inspect.getsource(task)
    assert all(f"self.{name}" in source for name in ("dataset_no_image", "dataset", "_filters"))
    assert tasks.ConfigurableTask.download.__wrapped__
    steps = inspect.getsource(task.ConfigurableTask.__init__)
    assert (
        0 < steps.index("self._prepare_model_specific_config()") < steps.index("self.download(")
    )


@point
def base_of_models():
    """The evaluator sets task_dict of a model of the class lmms, whose cache_hook has add_partial; utils parse
    --model_args, and TokenCounts holds input, output and reasoning tokens."""
    assert "self.cache_hook = CacheHook(None)" in inspect.getsource(model.lmms.__init__)
    assert parameters(model.CacheHook.add_partial) == ["self", "attr", "req", "res"]
    assert "lm.task_dict[" in inspect.getsource(evaluator)
    assert utils.simple_parse_args_string("a=1,b=x") == {"a": 1, "b": "x"}
    assert parameters(instance.TokenCounts)[:3] == [
        "input_tokens",
        "output_tokens",
        "reasoning_tokens",
    ]


@point
def results_files():
    """A results file has n-samples with original and effective, configs, versions, group_subtasks and groups, and
    utils.get_datetime_str makes the time in its name; a group's mean is by size only with weight_by_size, and a
    metric's name may be a part."""
    source = inspect.getsource(evaluator)
    keys = (
        "n-samples",
        "original",
        "effective",
        "configs",
        "versions",
        "group_subtasks",
        "groups",
        "higher_is_better",
    )
    assert all(f'"{key}"' in source for key in keys)
    assert callable(utils.get_datetime_str)
    declared = group.AggMetricConfig(metric="accuracy")
    assert (declared.aggregation, declared.weight_by_size) == ("mean", False)


@point
def destinations():
    """An openai client's base_url is the address of its server, and its _client.trust_env tells whether it obeys
    proxies; a client with tools is in mcp_client."""
    assert OpenAI(base_url="http://x/v1", api_key="none")._client.trust_env is True
    names = [
        file.stem for file, _ in model_sources() if "self.mcp_client = " in file.read_text()
    ]
    assert "async_openai" in names


@point
def questions_of_a_task():
    """ConfigurableMessagesTask(config=...) of lmms_eval.api.task builds a task for chat models; set_config and
    set_fewshot_seed change it; build_all_requests(limit=...) fills instances, whose args are context, messages of a
    document, settings, row, task and split; its bar is the module's tqdm."""
    kind = task.ConfigurableMessagesTask
    assert "config" in parameters(kind.__init__)
    assert {"key", "value"} <= set(parameters(kind.set_config))
    assert "seed" in parameters(kind.set_fewshot_seed)
    assert "limit" in parameters(kind.build_all_requests)
    assert callable(task.tqdm)
    source = " ".join(inspect.getsource(kind.construct_requests).split())
    names = "ctx, self.doc_to_messages, copy.deepcopy(self.config.generation_kwargs), doc_id, self.config.task, split"
    assert names in source


IMPORTED = {
    "lmms_eval.__main__": command_line,
    "lmms_eval.api.filter.Filter": filters,
    "lmms_eval.api.instance.GenerationResult": calls_of_models,
    "lmms_eval.api.instance.Instance": calls_of_models,
    "lmms_eval.api.instance.TokenCounts": base_of_models,
    "lmms_eval.api.model.lmms": base_of_models,
    "lmms_eval.api.task": questions_of_a_task,
    "lmms_eval.api.task.ConfigurableMessagesTask": questions_of_a_task,
    "lmms_eval.models.AVAILABLE_CHAT_TEMPLATE_MODELS": models,
    "lmms_eval.models.AVAILABLE_SIMPLE_MODELS": models,
    "lmms_eval.models.MODEL_ALIASES": models,
    "lmms_eval.models.MODEL_REGISTRY_V2": models,
    "lmms_eval.models.registry_v2.ModelManifest": models,
    "lmms_eval.tasks": questions_of_a_task,
    "lmms_eval.utils": base_of_models,
}
"""Everything of lmms-eval that is imported, with the point that checks it."""


@each_row("sentence", POINTS)
def test_what_we_rely_on(sentence):
    assert len(POINTS) <= 16
    try:
        POINTS[sentence]()
    except Exception as error:
        raise AssertionError(
            f"this version of lmms-eval is different from what medtasks needs: {sentence}"
        ) from error


def test_each_import_of_the_harness_is_in_a_point_and_in_few_rooms():
    """At run time, and not for its types; data, metrics and extraction know nothing of it."""
    imported = {}
    for path in [*ROOM.rglob("*.py"), *ADAPTERS.rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if (
                isinstance(node, ast.ImportFrom)
                and str(node.module).partition(".")[0] == "lmms_eval"
            ):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [
                    alias.name
                    for alias in node.names
                    if alias.name.partition(".")[0] == "lmms_eval"
                ]
            else:
                continue
            room = (
                path.relative_to(ROOM).parts[0]
                if path.is_relative_to(ROOM)
                else "model_adapters"
            )
            for name in names:
                imported.setdefault(name, set()).add(room)
    assert imported.keys() == IMPORTED.keys()
    assert all(check in POINTS.values() for check in IMPORTED.values())
    assert set().union(*imported.values()) == {"lmms", "model_adapters"}
