"""Which models ``medtasks run`` refuses for credentialed data, before anything starts."""

import socket

import pytest
from typer.testing import CliRunner

from medtasks.cli.main import app
from medtasks.net import servers
from medtasks.running.preflight import check
from medtasks.runs.run_manifest import Severity

from ..tables import each_row

ASYNC = "lmms_eval.models.chat.async_openai.AsyncOpenAIChat"
PRIVATE, PUBLIC = "multimedeval_mimic_cxr_report", "multimedeval_vqa_rad"
AWAY, LOCAL = "http://api.vendor.invalid/v1", "http://127.0.0.1:8000/v1"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    """No address and no proxy but those a test names."""
    told = ("OPENAI_API_BASE", "OPENAI_BASE_URL", "MEDTASKS_TRUSTED_MODEL")
    for name in [*told, "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy"]:
        monkeypatch.delenv(name, raising=False)


def refused(tasks, *arguments):
    """The refusals that concern where questions go; others, such as of an unknown model, may stand beside them."""
    notices = check(tasks.split(","), [*arguments, "--log_samples"])
    sentences = [notice.sentence for notice in notices if notice.kind is Severity.REFUSE]
    return [sentence for sentence in sentences if "is not sent" in sentence]


def test_a_server_elsewhere():
    away = ["--model", "async_openai", "--model_args", f"model=m,base_url={AWAY}"]
    (sentence,) = refused(f"{PUBLIC},{PRIVATE}", *away)
    assert f"({PRIVATE}) is not sent with model '{ASYNC}' to http://api.vendor.invalid:80 (base_url)" in sentence
    assert "set MEDTASKS_TRUSTED_MODEL=http://api.vendor.invalid:80" in sentence
    assert refused(PUBLIC, *away) == []
    assert len(refused("multimedeval", *away)) == 1
    assert refused(PRIVATE, "--model", "async_openai", "--model_args", f"base_url={LOCAL}") == []
    assert refused(PRIVATE, "--model", "qwen2_5_vl") == refused(PRIVATE) == []


@each_row(
    "arguments",
    [
        ["--model=openai_compatible", f"--model_args=base_url={AWAY}"],
        ["--model", "openai", "--model_args", f"base_url={AWAY}", "--force_simple"],
        ["--model", "openai", "--model_args", f"base_url ={LOCAL}"],
        ["--model", "claude"],
        ["--model", "gemini_api"],
    ],
)
def test_other_ways_out(arguments):
    assert len(refused(PRIVATE, *arguments)) == 1


def test_a_model_of_another_plug_in(monkeypatch):
    from lmms_eval.models import MODEL_REGISTRY_V2, ModelManifest

    for table in ("_manifests", "_alias_to_model_id"):
        monkeypatch.setattr(MODEL_REGISTRY_V2, table, dict(getattr(MODEL_REGISTRY_V2, table)))
    theirs = ModelManifest(model_id="somebodys", simple_class_path="somebody.Model", aliases=("somebodys_too",))
    MODEL_REGISTRY_V2.register_manifest(theirs)
    renamed = ModelManifest(model_id="renamed", chat_class_path="lmms_eval.models.chat.async_openai.AsyncOpenAIChat")
    MODEL_REGISTRY_V2.register_manifest(renamed)
    for model in ("somebodys", "somebodys_too"):
        (sentence,) = refused(PRIVATE, "--model", model, "--model_args", f"server_url={LOCAL}")
        assert "set MEDTASKS_TRUSTED_MODEL=class:somebody.Model" in sentence
    monkeypatch.setenv("MEDTASKS_TRUSTED_MODEL", "class:somebody.Model")
    assert refused(PRIVATE, "--model", "somebodys", "--model_args", f"server_url={AWAY}") == []
    assert len(refused(PRIVATE, "--model", "renamed")) == 1
    assert "api.openai.com" in refused(PRIVATE, "--model", "renamed")[0]


def test_the_environment_of_this_command_and_of_a_file(monkeypatch, tmp_path):
    assert "api.openai.com" in refused(PRIVATE, "--model", "openai")[0]
    monkeypatch.setenv("OPENAI_API_BASE", LOCAL)
    assert refused(PRIVATE, "--model", "openai") == []
    file = tmp_path / "run.yaml"
    file.write_text(f"model: openai\nenv: {{SOMEWHERE: '{AWAY}', OPENAI_API_BASE: '$SOMEWHERE'}}\n")
    assert "vendor.invalid:80 (OPENAI_API_BASE)" in refused(PRIVATE, "--config", str(file))[0]
    file.write_text(f"model: async_openai\nmodel_args: {{base_url: '{AWAY}'}}\n")
    assert "vendor.invalid:80 (base_url)" in refused(PRIVATE, "--config", str(file))[0]
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    assert "the proxy that HTTP_PROXY names" in refused(PRIVATE, "--model", "openai")[0]


def test_what_opens_it_and_what_does_not(monkeypatch):
    away = ["--model", "async_openai", "--model_args", f"base_url={AWAY}"]
    for name, value in (
        ("MEDTASKS_LOG_TEXT", PRIVATE),
        ("MEDTASKS_TRUSTED_JUDGE", AWAY),
        ("MEDTASKS_JUDGE_ALLOW_REMOTE", PRIVATE),
        ("MEDTASKS_TRUSTED_MODEL", "https://api.vendor.invalid"),
    ):
        monkeypatch.setenv(name, value)
        assert len(refused(PRIVATE, *away)) == 1
    monkeypatch.setenv("MEDTASKS_TRUSTED_MODEL", "http://api.vendor.invalid")
    assert refused(PRIVATE, *away) == []


def test_the_users_own_task_on_credentialed_data(tmp_path):
    text = "task: mine\ndataset_path: !function medtasks.data.path_of.multimedeval_mimic_cxr_report\n"
    (tmp_path / "mine.yaml").write_text(f"{text}generation_kwargs: {{until: []}}\n")
    found = refused("mine", "--include_path", str(tmp_path), "--model", "openai", "--model_args", f"base_url={AWAY}")
    assert PRIVATE in found[0]


def test_the_command_ends_before_anything_starts(monkeypatch, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as outside:
        outside.setblocking(False)
        monkeypatch.setattr(servers, "is_loopback", lambda name: False)  # the socket stands for another machine
        address = f"http://127.0.0.1:{outside.getsockname()[1]}/v1"
        arguments = ["run", "--tasks", PRIVATE, "--output_path", str(tmp_path / "out"), "--model", "async_openai"]
        result = CliRunner().invoke(app, [*arguments, "--model_args", f"base_url={address}"])
        with pytest.raises(BlockingIOError):  # nobody has knocked
            outside.accept()
    assert result.exit_code == 1
    assert f"is not sent with model '{ASYNC}' to {address.removesuffix('/v1')}" in result.output + str(result.exception)
    assert not (tmp_path / "out").exists()
