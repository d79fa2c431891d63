"""Models of other packages and of the working directory: named by path, or by an entry point."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from lmms_eval.models import MODEL_REGISTRY_V2
from medtasks.model_adapters import any_model
from medtasks.model_adapters.base.harness_adapter import HarnessAdapter

from medtasks.errors import AdapterArgumentError, ModelRefused
from medtasks.lmms import plugin
from medtasks.lmms.remote_models import class_path_of, refuse_remote_model
from medtasks.running.harness_run import seed_arguments
from medtasks.running.preflight import check
from medtasks.runs.harness_options import model_label, model_title
from medtasks.scores.api import read_run

from ..processes import run_here
from ..tables import each_row

SOURCE = '''
from lmms_eval.api.model import lmms
from medtasks.model_adapters.tiny import MedTasksTiny

class MyVlm(MedTasksTiny):
    """An adapter built on ours."""
    model_id = "my_vlm"

class Chat(lmms):
    """A model of lmms-eval's other kind."""
    is_simple = False
    def __init__(self, letter="A", batch_size=1):
        super().__init__()
        self.letter = letter
    def generate_until(self, requests):
        return [self.letter for _ in requests]
    def loglikelihood(self, requests): ...
    def generate_until_multi_round(self, requests): ...

class Other: ...

class Group:
    MyVlm = MyVlm

number = 3

def answer(questions):
    return ["B" for _ in questions]
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with models in the working directory, which is in no search path."""
    name = f"models_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    (tmp_path / "broken_model.py").write_text("raise OSError('no licence')")
    (tmp_path / "needing_model.py").write_text("import package_that_nobody_has")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return name


@each_row(
    ("path", "message"),
    [
        (
            "",
            "--model adapter needs class=my_module:MyVlm in --model_args, the module and the .*, not ''$",
        ),
        ("MODULE.MyVlm", r"needs class=my_module:MyVlm .*, not 'MODULE\.MyVlm'"),
        ("MODULE.py:MyVlm", r"needs class=my_module:MyVlm .*, not 'MODULE\.py:MyVlm'"),
        ("./MODULE:MyVlm", "needs class=my_module:MyVlm"),
        (
            "nowhere:MyVlm",
            "there is no module 'nowhere' for class=nowhere:MyVlm; start in the folder that holds it",
        ),
        ("nowhere.at.all:MyVlm", "there is no module 'nowhere'"),
        (
            "xml.nowhere:MyVlm",
            r"module 'xml\.nowhere' cannot be imported \(ModuleNotFoundError: No module named 'xml\.n",
        ),
        ("MODULE:MyVml", "module 'MODULE' has no 'MyVml'; did you mean 'MyVlm'"),
        ("MODULE:xyzzy", "module 'MODULE' has no 'xyzzy'$"),
        (
            "MODULE:Other",
            "class=MODULE:Other is no model; it has to be a subclass of MedicalAdapter",
        ),
        (
            "MODULE:number",
            "class=MODULE:number is no model; .* or a function that answers questions",
        ),
        (
            "broken_model:MyVlm",
            r"module 'broken_model' cannot be imported \(OSError: no licence\); correct it, or",
        ),
        ("needing_model:X", "cannot be imported .* No module named 'package_that_nobody_has'"),
    ],
)
def test_a_path_that_leads_to_no_model_is_one_sentence(path, message, module):
    with pytest.raises(AdapterArgumentError, match=message.replace("MODULE", module)):
        any_model.load(path.replace("MODULE", module))


def built(arguments: str, name: str = "adapter"):
    harness_options = {"batch_size": "2", "max_batch_size": None, "device": "cpu"}
    return MODEL_REGISTRY_V2.get_model_class(name).create_from_arg_string(
        arguments, harness_options
    )


def test_an_adapter_class_gets_the_other_arguments(module):
    model = built(f"class={module}:MyVlm,weights=random,seed=3,batch_size=5")

    assert (type(model).__name__, model.arguments.weights, model.arguments.seed) == (
        "MyVlm",
        "random",
        3,
    )
    assert model.arguments.batch_size == 5  # of --model_args, as with each model of ours
    assert built(f"seed=4,class={module}:Group.MyVlm,weights=random").arguments.seed == 4


def test_a_class_of_the_harness_gets_the_other_arguments(module):
    chat = MODEL_REGISTRY_V2.get_model_class("adapter").create_from_arg_string(
        f'class={module}:Chat,letter="a,b"', {}
    )
    assert (chat.is_simple, chat.letter) == (False, '"a,b"')


def test_a_function_gets_the_arguments_of_functions(module):
    function = built(f"class={module}:answer,model=mine")

    assert function.function([1, 2]) == ["B", "B"]
    assert (function.arguments.model, function.arguments.batch_size) == ("mine", 2)
    assert (
        type(function).__module__ == "medtasks.model_adapters.function_model"
    )  # as results record it
    with pytest.raises(AdapterArgumentError, match="adapter has no argument 'wieghts'"):
        built(f"class={module}:answer,wieghts=1")


RUN_ADAPTER = ["medtasks", "run", "--tasks", "mediconfusion", "--output_path", "out"]
RUN_ADAPTER += ["--model", "adapter", "--model_args"]


def test_the_run_is_named_after_the_class(module, sample, tmp_path):
    ran = run_here([*RUN_ADAPTER, f"class={module}:Chat,letter=B", "--limit", "4"], tmp_path)

    assert ran.returncode == 0, ran.stderr[-2000:]
    run = read_run(tmp_path / "out")
    assert run.model == f"{module}:Chat letter=B"
    assert set(run.samples().reply) == {"B"}


def test_a_run_is_titled_by_class_and_weights():
    assert (
        model_title(model_label("adapter", "class=my_module:MyVlm,pretrained=/m/x"))
        == "my_module:MyVlm: x"
    )


def test_a_wrong_class_ends_the_run_in_one_sentence(module, sample, tmp_path):
    for wrong, message in (
        (f"{module}.Chat", "needs class="),
        ("nowhere:Chat", "there is no module 'nowhere'"),
    ):
        ran = run_here([*RUN_ADAPTER, f"class={wrong}"], tmp_path)
        assert (ran.returncode, message in " ".join(ran.stderr.split())) == (1, True), (
            ran.stderr
        )


def test_repeats_get_seeds_where_the_class_takes_them(module):
    for name, is_seeded in (("MyVlm", True), ("answer", True), ("Chat", False)):
        changed = seed_arguments(
            ["--model", "adapter", "--model_args", f"class={module}:{name},x=1"], 3
        )
        assert (f"class={module}:{name},x=1,seed=2" in changed) is is_seeded


PRIVATE = "multimedeval_mimic_cxr_report"


def test_credentialed_data_need_consent_by_the_path_that_was_given(module, monkeypatch):
    for path in ("MyVlm", "Group.MyVlm", "answer"):
        arguments, name = f"class={module}:{path}", f"{module}.{path}"
        model = built(arguments if path == "answer" else f"{arguments},weights=random")
        monkeypatch.delenv("MEDTASKS_TRUSTED_MODEL", raising=False)
        with pytest.raises(ModelRefused, match=rf"set MEDTASKS_TRUSTED_MODEL=class:{name}$"):
            refuse_remote_model(model, [PRIVATE])
        assert class_path_of("adapter", {"class": f"{module}:{path}"}) == name
        monkeypatch.setenv("MEDTASKS_TRUSTED_MODEL", f"class:{name}")
        refuse_remote_model(model, [PRIVATE])


def test_a_class_that_is_known_to_answer_here_needs_no_consent(module, monkeypatch):
    tiny = built("class=medtasks.model_adapters.tiny:MedTasksTiny,weights=random")
    monkeypatch.delenv("MEDTASKS_TRUSTED_MODEL", raising=False)
    refuse_remote_model(tiny, [PRIVATE])  # known to answer here


@pytest.fixture
def installed(module, tmp_path, monkeypatch):
    """A package as pip installs it, which offers models."""
    folder = tmp_path / "site"
    information = folder / "my_models-2.0.dist-info"
    information.mkdir(parents=True)
    (tmp_path / f"{module}.py").rename(folder / f"{module}.py")
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: my-models\nVersion: 2.0\n"
    )
    names = {
        "my-vlm.2.5": "MyVlm",
        "my_chat": "Chat",
        "my_function": "answer",
        "llava": "MyVlm",
        "hf_vlm": "MyVlm",
    }
    lines = [f"{name} = {module}:{attribute}" for name, attribute in names.items()]
    (information / "entry_points.txt").write_text(
        "\n".join(["[medtasks.adapters]", *lines, ""])
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(MODEL_REGISTRY_V2, "_manifests", dict(MODEL_REGISTRY_V2._manifests))
    monkeypatch.setattr(
        MODEL_REGISTRY_V2, "_alias_to_model_id", dict(MODEL_REGISTRY_V2._alias_to_model_id)
    )
    with pytest.warns(
        UserWarning,
        match=rf"'(llava|hf_vlm)' \({module}:MyVlm\) of an installed package is left out",
    ):
        MODEL_REGISTRY_V2.load_entrypoint_manifests(overwrite=True)
    return folder


INSTALLED = pytest.mark.filterwarnings("ignore:the adapter '")


@INSTALLED
def test_adapters_of_installed_packages_are_models_by_their_names(module, installed, tmp_path):
    assert plugin.installed_adapters() == {
        "my-vlm.2.5": f"{module}:MyVlm",
        "my_chat": f"{module}:Chat",
        "my_function": f"{module}:answer",
    }
    assert class_path_of("my-vlm.2.5") == f"{module}.MyVlm"
    assert isinstance(built("weights=random", "my-vlm.2.5"), HarnessAdapter)
    assert built("", "my_function").function([1]) == ["B"]
    assert f"my_chat      {module}:Chat" in run_here(["medtasks", "models"], tmp_path).stdout


@INSTALLED
def test_adapters_of_installed_packages_replace_none_of_ours(installed):
    assert (
        MODEL_REGISTRY_V2.resolve("hf_vlm").class_path == "medtasks.model_adapters.hf_vlm.HfVlm"
    )


@INSTALLED
def test_the_harness_runs_the_adapter_of_an_installed_package(installed, sample, tmp_path):
    options = [
        "--model_args",
        "letter=B",
        "--limit",
        "2",
        "--output_path",
        "out",
        "--log_samples",
    ]

    ran = run_here(
        ["lmms_eval", "--model", "my_chat", "--tasks", "mediconfusion", *options], tmp_path
    )

    assert ran.returncode == 0, ran.stderr[-2000:]
    assert set(read_run(tmp_path / "out").samples().reply) == {"B"}


@INSTALLED
def test_the_name_of_an_installed_adapter_is_checked_before_a_run(installed, sample):
    assert not check(["mediconfusion"], ["--model", "my_chat"])
    (refusal,) = check(["mediconfusion"], ["--model", "my_cat"])
    assert "did you mean 'my_chat'?" in refusal.sentence


def test_two_packages_with_one_name_are_told(monkeypatch):
    points = [
        EntryPoint("mine", f"{package}:MyVlm", "medtasks.adapters")
        for package in ("first", "second")
    ]
    monkeypatch.setattr(plugin, "entry_points", lambda group: points)
    with pytest.warns(
        UserWarning,
        match=r"'mine' \(second:MyVlm\) .* left out, because another model has this name",
    ):
        assert plugin.installed_adapters() == {"mine": "first:MyVlm"}
