"""Where the harness's models send questions, held against the sources of the harness that is installed."""

import ast
import re

import pytest

from medtasks.net.model_places import CHAT_CLIENTS, PLACES, Destination, destinations, named_addresses

from .model_sources import model_sources

LOCAL, AWAY = "http://127.0.0.1:8000/v1", "http://api.vendor.invalid/v1"
OPENAI = "https://api.openai.com/v1"


def urls(model, arguments=None, environment=None, **options):
    return [one.url for one in destinations(model, arguments or {}, environment or {}, **options)]


@pytest.mark.parametrize("model", ["openai", "openai_compatible", "openai_compatible_chat", "async_openai"])
def test_a_model_that_takes_an_address(model):
    assert urls(model) == [OPENAI]
    assert urls(model, {"base_url": AWAY}, {"OPENAI_API_BASE": LOCAL}) == [AWAY]
    assert urls(model, {}, {"OPENAI_API_BASE": AWAY, "OPENAI_BASE_URL": LOCAL}) == [AWAY]
    assert urls(model, {}, {"OPENAI_BASE_URL": LOCAL}) == [LOCAL]
    assert urls(model, {"api_base": LOCAL, "server_url": LOCAL}) == [OPENAI]  # the model ignores names it does not know
    assert urls(model, {"base_url": LOCAL}, force_simple=True) == [LOCAL]
    (found,) = destinations(model, {}, {"OPENAI_API_BASE": AWAY})
    assert found.source == "OPENAI_API_BASE"


def test_azure_has_an_address_of_its_own():
    azure = {"AZURE_OPENAI_API_BASE": AWAY}
    assert urls("openai", {"azure_openai": "True", "base_url": LOCAL}, azure) == [AWAY]
    assert urls("openai", {"azure_openai": True, "base_url": LOCAL}, {}) == [""]
    assert urls("openai", {"azure_openai": "no", "base_url": LOCAL}, azure) == [AWAY]  # any other word is true
    for falsy in ("False", "0", False, 0):
        assert urls("openai", {"azure_openai": falsy, "base_url": LOCAL}, azure) == [LOCAL]
    assert urls("openai", {"azure_openai": "True"}, {"AZURE_OPENAI_ENDPOINT": AWAY}) == [AWAY]


def test_models_that_swallow_an_address_and_do_not_use_it():
    for model in ("gpt4v", "gpt4o_audio", "batch_gpt4"):
        unused = {"OPENAI_API_URL": LOCAL, "OPENAI_API_BASE": LOCAL}
        assert urls(model, {"base_url": LOCAL, "api_url": LOCAL}, unused) == [OPENAI]
        assert urls(model, {}, {"OPENAI_BASE_URL": LOCAL}) == [LOCAL]
    assert urls("gpt4v", {}, {"API_TYPE": "azure", "AZURE_ENDPOINT": AWAY, "OPENAI_BASE_URL": LOCAL}) == [AWAY]
    assert urls("claude", {"base_url": LOCAL}, {"ANTHROPIC_API_URL": LOCAL}) == ["https://api.anthropic.com"]
    assert urls("claude", {}, {"ANTHROPIC_BASE_URL": AWAY}) == [AWAY]


@pytest.mark.parametrize("model", ["gemini", "gemini_api"])
def test_gemini(model):
    assert urls(model) == ["https://generativelanguage.googleapis.com"]
    assert urls(model, {"vertexai": "True", "location": "europe-west4"}) == [
        "https://europe-west4-aiplatform.googleapis.com"
    ]
    assert urls(model, {}, {"GOOGLE_GENAI_USE_VERTEXAI": "1"}) == ["https://aiplatform.googleapis.com"]
    assert urls(model, {}, {"GOOGLE_GEMINI_BASE_URL": LOCAL}) == [LOCAL]


def test_litellm_goes_where_its_provider_is():
    assert urls("litellm") == urls("litellm_chat", {"model": "anthropic/claude"}) == [""]
    assert urls("litellm", {"base_url": LOCAL, "model": "hosted_vllm/m"}) == [LOCAL]
    assert urls("litellm", {"base_url": LOCAL}) == [LOCAL]
    for model in ("bedrock/m", "m", "vertex_ai/m", "OPENAI/m"):
        assert urls("litellm", {"base_url": LOCAL, "model": model}) == [""]
    assert urls("litellm", {"base_url": LOCAL}, {"USE_LITELLM_PROXY": "True"}) == [""]


def test_several_servers_all_count():
    vllm = {"backend": "vllm_omni"}
    assert urls("cosmos_wm") == urls("cosmos_wm", {"server_url": AWAY}) == []  # it answers by itself
    assert set(urls("cosmos_wm", vllm)) == {"http://localhost:8000"}
    assert set(urls("cosmos_wm", {**vllm, "server_url": f"{LOCAL};{AWAY}"})) == {LOCAL, AWAY}
    servers = {"COSMOS3_SERVER_URLS": "127.0.0.1:1, vendor.invalid:2"}
    assert set(urls("cosmos_wm", vllm, servers)) == {"http://127.0.0.1:1", "http://vendor.invalid:2"}
    assert AWAY in urls("cosmos_wm", {**vllm, "reasoner_server_url": AWAY})
    assert urls("cosmos_wm", {"backend": "nim"}) == ["https://ai.api.nvidia.com/v1/cv"]


def test_servers_that_a_model_starts():
    assert urls("srt_api") == ["http://127.0.0.1"]
    assert urls("srt_api", {"host": "vendor.invalid"}) == ["http://vendor.invalid"]
    assert urls("srt_api", {"host": "127.0.0.1:1@vendor.invalid"}) == [""]
    assert urls("whisper_tt", {}, {"OPENAI_API_BASE": AWAY}) == [AWAY]


def test_models_that_answer_by_themselves():
    for model in ("qwen2_5_vl", "vllm", "medtasks_tiny", "hf_vlm", "from_log", "hf", "no_such_model"):
        arguments = {"pretrained": "org/model", "model_base": "org/base", "tp": "2", "mcp_server_path": "a.py"}
        assert urls(model, arguments, {"OPENAI_API_BASE": AWAY}) == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"base_url": AWAY},
        {"api_base": "api.vendor.invalid/v1"},
        {"azure_endpoint": AWAY},
        {"server_urls": f"127.0.0.1,{AWAY}"},
        {"endpoints": ["http://localhost", AWAY]},
        {"HOST": "api.vendor.invalid"},
        {"host": 2130706433},
        {"where": AWAY},
        {"where": "wss://api.vendor.invalid"},
    ],
)
def test_addresses_of_a_model_nobody_has_read(arguments):
    assert {one.url for one in destinations("somebodys", arguments, {})} - {"http://127.0.0.1", "http://localhost"}


def test_what_is_no_address():
    kept = {"endpoint": "/v1/chat", "servers": 4, "use_url": True, "host": None, "url": "", "num_servers": "2"}
    assert named_addresses({**kept, "system_prompt": "see http://a.invalid for more", "device": "cuda:0"}) == []
    assert named_addresses({"endpoint": "//api.vendor.invalid"}) == [Destination("", "endpoint")]


def test_a_client_that_ignores_proxies():
    assert [one.obeys_proxies for one in destinations("openai", {"httpx_trust_env": "False"}, {})] == [False]
    for model, arguments in [("openai", {}), ("async_openai", {"httpx_trust_env": False})]:
        assert [one.obeys_proxies for one in destinations(model, arguments, {})] == [True]


SENDING = re.compile(
    r"(?:\w+\.)*(?:(?:Async)?(?:Azure)?OpenAI|(?:Async)?Anthropic\w*|RekaClient|InferenceClient|ClientSession|urlopen)"
    r"|(?:\w*requests|httpx|aiohttp|session)\.(?:post|put|request|get|Session|Client|AsyncClient)"
    r"|genai\.Client|litellm\.\w*completion|dashscope\.\S+|fal_client\.\S+|gradio_client\.\S+",
)
ADDRESS = re.compile(r"(?:^|_)(?:base_url|api_url|api_base|server_urls?|endpoint|host)$")
ADDRESS_VARIABLE = re.compile(r"(?:URLS?|URI|API_BASE|ENDPOINT|HOST)$")
NOT_SENDING = {"llama_vid"}  # fetches a page of its own, and sends nothing
UNUSED_VARIABLES = {"OPENAI_API_URL", "ANTHROPIC_API_URL"}


def signs(tree):
    """What in a source speaks of a server: calls, parameters of a model's __init__, variables that hold addresses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if SENDING.fullmatch(name) or SENDING.fullmatch(name.removeprefix("self.").lstrip("_")):
                yield name
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            for argument in (*node.args.args, *node.args.kwonlyargs):
                if ADDRESS.search(argument.arg):
                    yield argument.arg
    yield from variables(tree)


def variables(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and re.search(r"getenv|environ\.get", ast.unparse(node.func)) and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and ADDRESS_VARIABLE.search(str(name.value)):
                yield str(name.value)


def test_every_model_of_the_harness_that_talks_to_a_server_is_known():
    found = {file.stem: sorted(set(signs(tree))) for file, tree in model_sources()}
    sending = {name: spoken for name, spoken in found.items() if spoken}
    assert {name: sending[name] for name in sending.keys() - set(PLACES) - NOT_SENDING} == {}
    assert set(PLACES) - sending.keys() == set()


def test_every_variable_of_an_address_is_known():
    for file, tree in model_sources():
        known = {name for place in PLACES.get(file.stem, ()) for name in place.names}
        elsewhere = {"AZURE_OPENAI_API_BASE", "AZURE_ENDPOINT"}  # read under what else the model is told, see above
        assert set(variables(tree)) - known - elsewhere - UNUSED_VARIABLES == set(), file


def test_variables_said_to_be_unused_are():
    """``OPENAI_API_URL`` and ``ANTHROPIC_API_URL`` go into API_URL, which reaches a client with Azure only."""
    for file, tree in model_sources():
        if not UNUSED_VARIABLES & set(variables(tree)):
            continue
        uses = [
            ast.unparse(node)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and re.search(r"\b(?:API_URL|api_url)\b", ast.unparse(node))
        ]
        assert all(use.startswith("AzureOpenAI(") for use in uses), (file, uses)


def test_models_that_ask_by_an_openai_client():
    files = {file.stem: ast.unparse(tree) for file, tree in model_sources() if file.parent.name in ("chat", "simple")}
    asking = {name for name, text in files.items() if "self.client.chat.completions.create(" in text}
    inheriting = {name for name, text in files.items() if "self.client = _LiteLLMClientShim(" in text}
    assert asking | inheriting == CHAT_CLIENTS
