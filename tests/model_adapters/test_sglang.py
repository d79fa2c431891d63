"""Likelihoods by SGLang's native endpoint, from a server of its documented form around a real tiny checkpoint."""

import base64
import io
import json

import pytest
import torch
from medtasks.model_adapters.hf_vlm import HfVlm
from medtasks.model_adapters.vlm_server import VlmServer
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from medtasks.errors import MedTasksError

from ..local_server import LocalServer, QuietHandler, serving
from ..tables import each_row
from . import tiny_hf_models
from .toys import SPLIT, TASK, instances, noise

OPTIONS = (" yes", "a large effusion in the right lung", " no")
DOCS = [
    {"question": "Is it clear?", "images": [noise(0)]},
    {"question": "Is there a large effusion?", "images": [noise(1, (40, 20))]},
    {"question": "No image: no nodule?", "images": []},
]


class Handler(QuietHandler):
    """Positions are counted with images expanded, and ids of image positions are others, as in SGLang 0.5."""

    def do_GET(self):
        card = {"id": "m", "root": "elsewhere", "max_model_len": 4096, "owned_by": "sglang"}
        self.answer(*((200, {"data": [card]}) if self.path == "/v1/models" else (404, {"detail": "Not Found"})))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/generate":
            return self.answer(200, self.server.change(self.generated(body)))
        parts = body["messages"][-1]["content"]
        parts = [{"type": "text", "text": parts}] if isinstance(parts, str) else parts
        turn = [{**part, "type": part["type"].removesuffix("_url")} for part in parts]
        text = self.server.processor.apply_chat_template(
            [{"role": "user", "content": turn}], add_generation_prompt=True
        )
        ids = self.inputs(text, [part["image_url"]["url"] for part in parts if "image_url" in part])["input_ids"]
        choice = {"index": 0, "message": {"content": "x"}, "finish_reason": "length"}
        return self.answer(200, {"model": "m", "choices": [choice], "usage": {"prompt_tokens": ids.shape[1]}})

    def inputs(self, text, urls):
        images = [Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) for url in urls]
        return self.server.processor(text=[text], **({"images": [images]} if images else {}), return_tensors="pt")

    def generated(self, body):
        inputs = self.inputs(body["text"], body.get("image_data", []))
        ids = inputs["input_ids"][0].tolist()
        told = {"prompt_tokens": len(ids), "finish_reason": {"type": "length"}}
        if body.get("return_logprob"):
            with torch.inference_mode():
                logprobs = self.server.network(**inputs).logits[0].float().log_softmax(-1)
            places = range(body["logprob_start_len"], len(ids))
            before = [logprobs[place - 1] if place else None for place in places]
            told["input_token_logprobs"] = [
                [None if row is None else float(row[ids[place]]), ids[place], None]
                for place, row in zip(places, before, strict=True)
            ]
            told["input_top_logprobs"] = [
                None if row is None else [[float(row.max()), int(row.argmax()), None]] for row in before
            ]
        return {"text": "x", "meta_info": told}

    def answer(self, status, value):
        self.reply(status, json.dumps(value).encode(), Content_Type="application/json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tiny_hf_models.build("qwen2_5_vl", tmp_path_factory.mktemp("sglang") / "model"))


@pytest.fixture
def server(folder):
    made = LocalServer(Handler)
    made.processor = AutoProcessor.from_pretrained(folder)
    made.network = AutoModelForImageTextToText.from_pretrained(folder).eval()
    made.change = lambda answer: answer
    with serving(made):
        yield made


@pytest.fixture
def served(server):
    def get(**arguments):
        adapter = VlmServer(**{"base_url": f"{server.url}/v1", "journal": False} | arguments)
        adapter.task_dict = {TASK: {SPLIT: DOCS}}
        return adapter

    return get


def scoring():
    return instances("loglikelihood", DOCS, OPTIONS)


def test_scores_and_greedy_flags_are_those_of_hf_vlm(served, folder):
    local = HfVlm(pretrained=folder, device="cpu", journal=False, dtype="float32")
    local.task_dict = {TASK: {SPLIT: DOCS}}
    expected, found = local.loglikelihood(scoring()), served(pretrained=folder).loglikelihood(scoring())
    assert [mean for mean, _ in found] == pytest.approx([mean for mean, _ in expected], abs=1e-5)
    assert [greedy for _, greedy in found] == [greedy for _, greedy in expected]


@each_row("arguments, said", [({}, "give pretrained="), ({"pretrained": "", "system_prompt": "s"}, "give pretrained=")])
def test_without_the_processor_nothing_is_scored(served, arguments, said):
    with pytest.raises(MedTasksError, match=said):
        served(**arguments).loglikelihood(scoring())


def test_settings_that_its_prompt_would_lack_are_refused(served, folder):
    with pytest.raises(MedTasksError, match="without system_prompt"):
        served(pretrained=folder, system_prompt="Be brief.").loglikelihood(scoring())


def test_the_processor_of_another_model_stops_the_run(served, folder, server, tmp_path):
    server.processor.chat_template = server.processor.chat_template.replace("<|assistant|>", "<|assistant|>\n\n")
    with pytest.raises(MedTasksError, match="tokens of the prompt, the server"):
        served(pretrained=folder).loglikelihood(scoring())


def without_scores(answer):
    answer["meta_info"].pop("input_top_logprobs", None)
    return answer


def other_tokens(answer):
    for entry in answer["meta_info"].get("input_token_logprobs", []):
        entry[1] += 1
    return answer


def impossible(answer):
    for entry in answer["meta_info"].get("input_token_logprobs", []):
        entry[0] = float("nan")
    return answer


@each_row("change", [without_scores, other_tokens, impossible])
def test_an_answer_that_is_not_certainly_right_is_a_failed_sample(served, folder, server, change):
    server.change = change
    found = served(pretrained=folder, max_failed=1).loglikelihood(scoring())
    assert all(mean != mean and not greedy for mean, greedy in found)
