"""Credentialed text reaches no other machine and no log: models that are refused, and what a model says and sends."""

import ast
import asyncio
import logging
import os
import re
import sys
import traceback
import warnings
from types import SimpleNamespace

import httpx
import openai
import pytest
import requests
from loguru import logger
from openai import AsyncOpenAI, AzureOpenAI, DefaultHttpxClient, OpenAI
from tqdm import tqdm

from medtasks.errors import MedTasksError, ModelRefused
from medtasks.lmms.remote_models import (
    CLIENT_MODELS,
    LM_EVAL_LOCAL,
    LOCAL_MODELS,
    Destination,
    allows_checkpoint_code,
    check_model,
    class_path_of,
    credentialed_datasets,
    file_of,
    live_destinations,
    planned_destinations,
    private_calls,
    refuse_remote_model,
)
from medtasks.net import servers

from .. import tiny_multimedeval
from ..scripted_server import Endpoint, serving
from ..tables import each_row
from .model_sources import model_sources
from .whole_runs import evaluate

PRIVATE, GATED, PUBLIC = (
    "multimedeval_mimic_cxr_report",
    "gmai_mmbench_val",
    "multimedeval_vqa_rad",
)
AWAY, LOCAL = "http://api.vendor.invalid/v1", "http://127.0.0.1:8000/v1"
CANARY = "zyzzyva"
ASYNC = "lmms_eval.models.chat.async_openai.AsyncOpenAIChat"
CLAUDE = "lmms_eval.models.simple.claude.Claude"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    """No address and no proxy but those a test names."""
    addresses = ("OPENAI_API_BASE", "OPENAI_BASE_URL", "MEDTASKS_TRUSTED_MODEL")
    for name in [
        name for name in os.environ if name in addresses or name.lower().endswith("_proxy")
    ]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def refused(model, arguments, environment=None):
    """The sentence by which a model is refused before it is built, or None."""
    environment, path = environment or {}, class_path_of(model)
    try:
        check_model(
            path, planned_destinations(path, arguments, environment), [PRIVATE], environment
        )
    except ModelRefused as error:
        return str(error)
    return None


def test_the_sentence_names_dataset_model_place_and_how_to_fix_it():
    assert refused("async_openai", {"base_url": "http://api.vendor.invalid/v1"}) == (
        f"text of credentialed data ({PRIVATE}) is not sent with model '{ASYNC}' to http://api.vendor.invalid:80 "
        f"(base_url), which is not this machine; give base_url=http://127.0.0.1:8000/v1 of a server on this machine, "
        f"or, if your data use agreement allows it, set MEDTASKS_TRUSTED_MODEL=http://api.vendor.invalid:80"
    )
    assert refused("claude", {}) == (
        f"text of credentialed data ({PRIVATE}) is not sent with model '{CLAUDE}' because it is unknown where it sends "
        f"questions; choose a model that is known to answer on this machine; or, if your data use agreement allows it "
        f"wherever it sends, set MEDTASKS_TRUSTED_MODEL=class:{CLAUDE}"
    )
    assert "https://api.openai.com:443" in refused("openai", {})


def test_every_model_that_nobody_allowed_is_refused():
    """Of all models of the harness and its plug-ins, only the listed ones and ours may see credentialed text."""
    from lmms_eval.models import MODEL_REGISTRY_V2

    names = MODEL_REGISTRY_V2.list_canonical_model_ids()
    allowed = {name for name in names if refused(name, {"base_url": LOCAL}) is None}
    files = {name: file_of(class_path_of(name).rpartition(".")[0]) for name in allowed}
    assert {file for file in files.values() if file} <= LOCAL_MODELS | CLIENT_MODELS
    assert all(
        class_path_of(name).startswith("medtasks.") for name, file in files.items() if not file
    )
    assert len(names) > len(allowed) + 30


SENDING = re.compile(
    r"(?:\w+\.)*(?:(?:Async)?(?:Azure)?OpenAI|(?:Async)?Anthropic\w*|RekaClient|InferenceClient|ClientSession|urlopen)"
    r"|(?:\w*requests|httpx|aiohttp|session)\.(?:post|put|request|get|Session|Client|AsyncClient)"
    r"|genai\.Client|litellm\.\w*completion|dashscope\.\S+|fal_client\.\S+|gradio_client\.\S+",
)


def sending_calls(tree):
    names = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {name for name in names if SENDING.fullmatch(name.removeprefix("self.").lstrip("_"))}


def test_models_that_are_said_to_answer_in_their_process_send_nothing():
    sources = {
        file: tree for file, tree in model_sources() if file.parent.name in ("chat", "simple")
    }
    assert {file.stem for file in sources} >= LOCAL_MODELS | CLIENT_MODELS
    assert {
        file.stem: calls for file, tree in sources.items() if (calls := sending_calls(tree))
    }.keys().isdisjoint(LOCAL_MODELS)
    asking = {
        call
        for file, tree in sources.items()
        if file.stem in CLIENT_MODELS
        for call in sending_calls(tree)
    }
    assert asking == {"OpenAI", "AzureOpenAI", "AsyncOpenAI"}


CLASS, VENDOR, PROXY = (
    f"class:{CLAUDE}",
    "http://api.vendor.invalid",
    "http://proxy.invalid:3128",
)


@each_row(
    ("address", "may"),
    [
        (LOCAL, True),
        ("HTTP://LOCALHOST:8000", True),
        ("http://[::1]:8000", True),
        ("http://127.0.0.1.nip.io", False),
        ("http://localhost.evil.com", False),
        ("http://127.0.0.1@evil.example", False),
        ("http://127.0.0.1%40evil.example/", False),
        ("http%3A//evil.example", False),
        ("https://api.vendor.invalid", False),
    ],
)
def test_addresses(address, may):
    assert (refused("async_openai", {"base_url": address}) is None) == may
    assert (refused("openai", {}, {"OPENAI_API_BASE": address}) is None) == may


@each_row(
    ("model", "trusted", "may"),
    [
        *(("openai", f"{VENDOR}{end}", True) for end in ("", ":80/other")),
        ("openai", "HTTP://API.vendor.invalid/", True),
        *(("openai", f"{VENDOR}:8080", False), ("openai", "https://api.vendor.invalid", False)),
        *(("openai", other, False) for other in ("http://vendor.invalid", LOCAL, " ", CLASS)),
        ("claude", CLASS, True),
        ("claude", "https://api.anthropic.com", False),
        *(
            ("claude", f"class:{other}", False)
            for other in (ASYNC, "", "*", f"{CLAUDE}2", "claude")
        ),
        ("claude", CLAUDE, False),
    ],
)
def test_one_server_or_one_model_may_be_trusted(model, trusted, may):
    arguments = {"base_url": AWAY} if model == "openai" else {}
    assert (refused(model, arguments, {"MEDTASKS_TRUSTED_MODEL": trusted}) is None) == may


@each_row(
    "trusted",
    ["api.vendor.invalid", "1", "true", PRIVATE, "*", "http://u:secret@api.vendor.invalid"],
)
def test_a_malformed_trust_opens_nothing(trusted):
    sentence = refused("openai", {"base_url": AWAY}, {"MEDTASKS_TRUSTED_MODEL": trusted})
    assert "MEDTASKS_TRUSTED_MODEL names no server" in sentence
    assert "secret" not in sentence
    assert "secret" not in refused(
        "openai", {"base_url": "http://user:secret@evil.example/v1?key=secret"}
    )
    assert refused("openai", {"base_url": LOCAL}, {"MEDTASKS_TRUSTED_MODEL": trusted}) is None


@each_row("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_a_proxy_stands_between(name):
    """A library that obeys proxy variables sends to this machine by way of the proxy, in clear."""
    sentence = f"by way of the proxy that {name} names; add 127.0.0.1 to NO_PROXY"
    for exempt, may in (
        *(({"NO_PROXY": "a.invalid, 127.0.0.1"}, True), ({"no_proxy": "*"}, True), ({}, False)),
        *(
            ({"NO_PROXY": useless}, False)
            for useless in ("127.0.0.0/8", "localhost", "0.0.1", "")
        ),
    ):
        refusal = refused("async_openai", {"base_url": LOCAL}, {name: PROXY, **exempt})
        assert refusal is None if may else sentence in refusal
    for model, arguments in (
        ("openai", {"base_url": LOCAL, "httpx_trust_env": "False"}),
        ("vlm_server", {"base_url": f"{LOCAL};{LOCAL}"}),
        ("qwen2_5_vl", {}),
    ):
        assert refused(model, arguments, {name: PROXY}) is None
    assert "is not this machine" in refused(
        "vlm_server", {"base_url": f"{LOCAL};http://other.invalid/v1"}, {}
    )


@each_row(("scheme", "may"), [("https", True), ("http", False)])
def test_a_proxy_cannot_read_what_is_encrypted(scheme, may):
    address = f"{scheme}://api.vendor.invalid"
    environment = {"HTTPS_PROXY": PROXY, "HTTP_PROXY": PROXY, "MEDTASKS_TRUSTED_MODEL": address}
    assert (refused("openai", {"base_url": address}, environment) is None) == may


def test_only_what_is_credentialed_is_held_back(monkeypatch):
    lm = SimpleNamespace(client=OpenAI(base_url=AWAY))
    refuse_remote_model(lm, [PUBLIC, GATED])
    refuse_remote_model(lm, [])
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", PRIVATE)  # shows text here, and sends it nowhere
    assert credentialed_datasets([PUBLIC, PRIVATE, "nobody_knows", PRIVATE]) == [
        PRIVATE,
        "nobody_knows",
    ]
    with pytest.raises(
        ModelRefused,
        match=re.escape(f"({PRIVATE}) is not sent with model 'types.SimpleNamespace'"),
    ):
        refuse_remote_model(lm, [PUBLIC, PRIVATE])


def made(file, **attributes):
    """A model whose class lies in one of the harness's files, or elsewhere."""
    kind = type("Made", (), {})
    kind.__module__ = f"lmms_eval.models.chat.{file}" if file else "somebody"
    lm = kind()
    vars(lm).update(attributes)
    return lm


@each_row(
    ("file", "attributes"),
    [
        ("openai", {"client": OpenAI(base_url=AWAY, api_key="x")}),
        ("async_openai", {"client": AsyncOpenAI(base_url=AWAY, api_key="x")}),
        (
            "openai",
            {
                "client": AzureOpenAI(azure_endpoint=AWAY, api_version="1", api_key="x"),
                "base_url": LOCAL,
            },
        ),
        ("openai", {"client": OpenAI(api_key="x")}),
        ("openai", {"client": SimpleNamespace(base_url=LOCAL)}),
        ("openai", {}),
        (
            "async_openai",
            {"client": AsyncOpenAI(base_url=LOCAL, api_key="x"), "mcp_client": object()},
        ),
        ("claude", {}),
        ("litellm", {"client": OpenAI(base_url=LOCAL, api_key="x")}),
        ("", {"client": OpenAI(base_url=LOCAL, api_key="x")}),
        ("", {}),
    ],
)
def test_a_built_model_that_sends_elsewhere_or_that_is_unknown(file, attributes):
    with pytest.raises(ModelRefused):
        refuse_remote_model(made(file, **attributes), [PRIVATE])


def test_built_models_that_stay_here():
    from lmms_eval.models import get_model

    here = OpenAI(base_url=LOCAL, api_key="x")
    for lm in (
        made("qwen2_5_vl"),
        made("openai", client=here),
        made("llava_hf", client=object()),
    ):
        refuse_remote_model(lm, [PRIVATE])
    ours = get_model("medtasks_tiny").create_from_arg_string("", {"device": "cpu"})
    assert live_destinations(ours) == []


def allowing_nodes(tree):
    """Places in a module that allow a checkpoint's code: a default, an argument or an entry of a dictionary."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            plain = [*node.posonlyargs, *node.args]
            pairs = [*zip(plain[len(plain) - len(node.defaults) :], node.defaults, strict=True)]
            pairs += zip(node.kwonlyargs, node.kw_defaults, strict=True)
            yield from (value for name, value in pairs if name.arg == "trust_remote_code")
        elif isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
            yield node.value
        elif isinstance(node, ast.Dict):
            keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
            yield from (
                value
                for key, value in zip(keys, node.values, strict=True)
                if key == "trust_remote_code"
            )


def module_of(file):
    return f"lmms_eval.models.{file.parent.name}.{file.stem}"


def test_every_model_that_allows_a_checkpoints_code_is_known():
    sources = {file: tree for file, tree in model_sources() if file.stem in LOCAL_MODELS}
    alone = {
        module_of(file)
        for file, tree in sources.items()
        if any(
            isinstance(value, ast.Constant) and value.value is True
            for value in allowing_nodes(tree)
        )
    }
    allowed = {module_of(file) for file in sources if allows_checkpoint_code(module_of(file))}

    assert {module.rpartition(".")[2] for module in alone} >= {
        "internvl2",
        "minicpm_v",
        "qwen3_vl",
        "vllm",
        "sglang",
    }
    assert allowed - alone == {  # they build on one of these
        f"lmms_eval.models.{name}"
        for name in (
            *("simple.internvl3_5", "simple.qwen3_5", "chat.qwen3_5", "chat.qwen3_vl"),
            *("chat.llava_onevision1_5", "chat.phi4_multimodal"),
        )
    }
    assert alone <= allowed
    assert not any(map(allows_checkpoint_code, LM_EVAL_LOCAL))


def test_models_that_may_run_a_checkpoints_code_need_the_users_word():
    name = "lmms_eval.models.chat.qwen3_vl.Qwen3_VL"
    assert refused("qwen3_vl", {}) == (
        f"text of credentialed data ({PRIVATE}) is not sent with model '{name}' because it may run code that comes "
        f"with its checkpoint; choose a model that is known to answer on this machine; or, if you trust that code with "
        f"these data, set MEDTASKS_TRUSTED_MODEL=class:{name}"
    )
    assert refused("qwen3_vl", {}, {"MEDTASKS_TRUSTED_MODEL": f"class:{name}"}) is None


def test_built_models_that_may_run_a_checkpoints_code_get_no_credentialed_data():
    with pytest.raises(ModelRefused, match="it may run code that comes with its checkpoint"):
        refuse_remote_model(made("vllm"), [PRIVATE])
    refuse_remote_model(made("vllm"), [PUBLIC, GATED])


def test_a_class_derived_from_a_known_one_is_unknown(monkeypatch):
    derived = type("Derived", (type(made("qwen2_5_vl")),), {"__module__": "somebody"})
    with pytest.raises(ModelRefused, match=r"class:somebody\.Derived"):
        refuse_remote_model(derived(), [PRIVATE])
    monkeypatch.setenv("MEDTASKS_TRUSTED_MODEL", "class:somebody.Derived")
    refuse_remote_model(derived(), [PRIVATE])


def test_a_client_that_ignores_proxies(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", PROXY)
    with pytest.raises(ModelRefused, match="by way of the proxy that HTTP_PROXY names"):
        refuse_remote_model(
            made("openai", client=OpenAI(base_url=LOCAL, api_key="x")), [PRIVATE]
        )
    direct = OpenAI(
        base_url=LOCAL, api_key="x", http_client=DefaultHttpxClient(trust_env=False)
    )
    refuse_remote_model(made("openai", client=direct), [PRIVATE])


class Outside(Endpoint):
    """A server that stands for another machine and counts connections."""

    connections = 0

    def process_request(self, request, client_address):
        self.connections += 1
        super().process_request(request, client_address)


@pytest.fixture
def outside(monkeypatch):
    monkeypatch.setattr(servers, "is_loopback", lambda name: False)
    with serving(Outside()) as server:
        yield server


def request_of(lm):
    """A request of the harness with a canary in its prompt."""
    from lmms_eval.api.instance import Instance

    lm.task_dict = {"task": {"test": [{"question": CANARY}]}}
    messages = [{"role": "user", "content": [{"type": "text", "text": CANARY}]}]
    arguments = (
        CANARY,
        lambda doc: messages,
        {"max_new_tokens": 4, "until": []},
        0,
        "task",
        "test",
    )
    return Instance("generate_until", arguments, 0, {"task": "task", "doc_id": 0, "repeats": 1})


@each_row(
    ("model", "arguments", "variables"),
    [
        ("openai", "base_url=ADDRESS,max_retries=1", {}),
        ("openai", "max_retries=1", {"OPENAI_API_BASE": "ADDRESS"}),
        ("async_openai", "base_url=ADDRESS,max_retries=1", {}),
    ],
)
def test_not_one_byte_arrives_outside(outside, monkeypatch, model, arguments, variables):
    from lmms_eval.models import get_model

    outside.connections = 0
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("ADDRESS", outside.url))
    lm = get_model(model).create_from_arg_string(
        arguments.replace("ADDRESS", outside.url), {"device": "cpu"}
    )
    place = f"{PRIVATE}) is not sent with model 'lmms_eval.models.chat.{model}."
    with pytest.raises(ModelRefused, match=re.escape(place)):
        refuse_remote_model(lm, [PRIVATE])
    assert outside.connections == 0
    monkeypatch.setenv("MEDTASKS_TRUSTED_MODEL", outside.url)
    refuse_remote_model(lm, [PRIVATE])
    lm.generate_until([request_of(lm)])
    assert CANARY in str(outside.bodies)  # so the server would have noticed it


def test_plain_lmms_eval_asks_nothing(outside, monkeypatch, tmp_path):
    """The harness ends before the first request of a credentialed task."""
    monkeypatch.setenv(
        "MEDTASKS_HOME", str(tiny_multimedeval.prepare_all(tmp_path / "home", ["mednli"]))
    )
    options = {"model_args": f"base_url={outside.url},max_retries=1", "limit": 2}
    with pytest.raises(ModelRefused, match="multimedeval_mednli"):
        evaluate(["multimedeval_mednli"], "async_openai", **options)
    assert outside.connections == 0


@each_row(
    ("module", "destinations"),
    [
        ("lm_eval.models.huggingface", []),
        ("lm_eval.models.vllm_causallms", []),
        ("lm_eval.models.openai_completions", [Destination("")]),
        ("a_package.model", [Destination("")]),
    ],
)
def test_of_other_models_only_local_ones_of_lm_eval_are_known(module, destinations):
    model = type("Model", (), {"__module__": module})()
    assert live_destinations(model) == destinations


def asked(datasets, call):
    """Have a model asked that makes a call."""
    lm = SimpleNamespace(generate_until=lambda requests: call(), loglikelihood=None)
    with private_calls(lm, datasets):
        return lm.generate_until([])


@pytest.fixture
def log():
    lines = []
    number = logger.add(lines.append, level=0, backtrace=True, diagnose=True)
    yield lines
    logger.remove(number)


def chatter():
    for _ in tqdm([1], desc="asking"):
        print(CANARY)  # noqa: T201
        sys.stderr.write(CANARY)
        tqdm.write(CANARY, file=sys.stderr)
        warnings.warn(CANARY, stacklevel=1)
        logging.getLogger("httpx").critical(CANARY)
        logger.debug(CANARY)
        try:
            raise ValueError(CANARY)
        except ValueError:
            logger.exception("failed")


def test_messages_of_a_model_about_credentialed_data_are_withheld(log, capfd):
    asked([PRIVATE], chatter)

    printed = capfd.readouterr()
    assert CANARY not in printed.out + printed.err + "".join(log)
    assert "asking: 100%" in printed.err
    assert sum("message withheld" in line for line in log) == 2  # in place of the two
    assert any("what the model prints and logs is withheld" in line for line in log)


def test_other_messages_of_a_model_are_shown(log, capfd):
    with warnings.catch_warnings(record=True):
        asked([PUBLIC], chatter)
        chatter()

    printed = capfd.readouterr()
    assert (printed.out + printed.err).count(CANARY) >= 2 * 3
    assert sum(CANARY in line for line in log) == 4


def test_text_that_the_user_lets_logs_show(log, monkeypatch):
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", PRIVATE)
    asked([PRIVATE], lambda: logger.info(CANARY))
    assert CANARY in log[-1]


def failing(error):
    """Raise an error while another one is handled, as models do that try again."""

    def call():
        try:
            raise ValueError(CANARY)
        except ValueError:
            raise error  # noqa: B904

    return call


@each_row(
    ("error", "kind", "sentence"),
    [
        (TypeError(CANARY), RuntimeError, "TypeError at test_remote_models.py:"),
        (OSError(28, CANARY), RuntimeError, "OSError (No space left on device) at"),
        (ExceptionGroup(CANARY, [TypeError(CANARY)]), RuntimeError, "ExceptionGroup at"),
        (KeyboardInterrupt(CANARY), KeyboardInterrupt, ""),
        (SystemExit(CANARY), SystemExit, "1"),
        (MedTasksError("of ours"), MedTasksError, "of ours"),
    ],
)
def test_errors(error, kind, sentence):
    with pytest.raises(kind) as raised:
        asked([PRIVATE], failing(error))
    assert sentence in str(raised.value)
    # Source lines of this file are in the traceback, the values are not.
    assert CANARY not in "".join(traceback.format_exception(raised.value))


async def _posted(client, url):
    async with client:
        return (await client.post(url, json={"text": CANARY})).status_code


def _ask_openai(url):
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    return client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": CANARY}]
    )


CLIENTS = {
    "openai": _ask_openai,
    "httpx": lambda url: (
        httpx.post(url, json={"text": CANARY}, follow_redirects=True).status_code
    ),
    "httpx, later": lambda url: asyncio.run(
        _posted(httpx.AsyncClient(follow_redirects=True), url)
    ),
    "requests": lambda url: requests.post(url, json={"text": CANARY}, timeout=30).status_code,
}


@each_row("shown", ["", PRIVATE])
@each_row("client", CLIENTS)
def test_redirects(client, shown, monkeypatch):
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", shown)
    with serving(Endpoint()) as elsewhere, serving(Endpoint()) as server:
        server.script = [server.status(307, Location=f"{elsewhere.url}/chat/completions")]

        def call():
            try:
                return CLIENTS[client](server.url)
            except openai.APIStatusError as error:
                return error.status_code

        assert asked([PRIVATE], call) == 307
        assert (server.count, elsewhere.count) == (1, 0)
        asked([PUBLIC], call)
        assert elsewhere.count == 1
