"""``prompt_family``: a checkpoint's own prompts and decoding, whichever model of the harness runs it."""

import inspect
from types import SimpleNamespace

import pytest

from medtasks.data.document_store import load_documents
from medtasks.errors import MedTasksError, UnknownName
from medtasks.lmms import plugin
from medtasks.lmms.prompt_family import asked_as_family, choose_blocks
from medtasks.prompts.template import lettered_prompt
from medtasks.tasks.prompt_settings import for_other_model, prompt_settings
from medtasks.tasks.task_files import task_config
from medtasks.tasks.task_index import SETTINGS, resolve_names

from ..scripted_server import Endpoint, serving
from ..tables import each_row
from .test_judged_tasks import verdict
from .whole_runs import evaluate, harness

pytestmark = pytest.mark.slow

LETTERED = (
    "Based on the image, choose the correct option for the following question.\nQuestion: {question}\nA: {a}\nB: {b}\n"
    "Answer with the option's letter from the given choices directly."
)
MARKED = LETTERED.replace("A: {a}\nB: {b}", '("A": {a})\n("B": {b})')
BLIP2 = LETTERED.replace(".\nQuestion: {question}", ". {question}")
ONE_LETTER = " Your answer should be just one letter.\n"
SYSTEM = (
    "You are a helpful assitant expert in medical domain."  # spelt so in the published code
)


@pytest.fixture
def asked(sample):
    """Run a task with a served model and its arguments, and return the requests."""

    def run(task, arguments, model="vlm_server", **options):
        with serving(Endpoint()) as server:
            server.models = [{"id": "m"}]
            server.script = [server.reply("A")]
            journal = ",journal=false" if model == "vlm_server" else ""
            model_args = f"base_url={server.url}{journal}{arguments}"
            evaluate([task], model, model_name=model, model_args=model_args, limit=2, **options)
            return server.bodies

    return run


def text_of(body):
    return "".join(part.get("text", "") for part in body["messages"][-1]["content"])


def decoding_of(body):
    return {
        name: body[name]
        for name in ("temperature", "top_p", "max_tokens")
        if body.get(name) is not None
    }


def filled(template):
    doc = load_documents("mediconfusion")[0]
    a, b = doc["options"]
    return template.replace("{question}", doc["question"]).replace("{a}", a).replace("{b}", b)


@each_row(
    "arguments, template, length",
    [
        ("", f'{MARKED}{ONE_LETTER}#answer: ("', 32),
        (",prompt_family=blip2", f"Question: {BLIP2} Answer:", 32),
        (",prompt_family=molmo", f'{MARKED}{ONE_LETTER}#answer: ("', 32),
        (",prompt_family=llama_vision", f'{MARKED}{ONE_LETTER}#answer: ("', 100),
        (",prompt_family=deepseek", f"{LETTERED}{ONE_LETTER}Answer: ", 512),
    ],
)
def test_multiple_choice_is_asked_as_the_family_was(asked, arguments, template, length):
    first, second = asked("mediconfusion", arguments)
    assert text_of(first) == text_of(second) == filled(template)
    assert decoding_of(first) == {"temperature": 0, "max_tokens": length}


@each_row(
    "family, template, decoding",
    [
        (
            "blip2",
            "Question: {question} Answer:",
            {"temperature": 1, "top_p": 0.9, "max_tokens": 30},
        ),
        ("instructblip", "", {"temperature": 1, "top_p": 0.9, "max_tokens": 128}),
        ("openai", "", {"temperature": 0.7, "max_tokens": 2048}),
        ("claude", "", {"temperature": 0.2, "max_tokens": 2048}),
        ("gemini", "", {"temperature": 0.2, "max_tokens": 2048}),
    ],
)
def test_free_answers_are_drawn_as_in_table_2(asked, judging, family, template, decoding):
    judging(verdict)
    body, _ = asked("mediconfusion_ff", f',prompt_family={family},system_prompt="{SYSTEM}"')
    assert text_of(body) == filled(
        template or "Based on the image, answer following question.\n{question}"
    )
    assert decoding_of(body) == decoding
    assert body["messages"][0] == {"role": "system", "content": SYSTEM}


SERVED = ",model_version=gpt-4o"


@pytest.fixture
def _key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")


@pytest.mark.usefixtures("_key")
def test_a_system_turn_is_an_argument_of_the_model_of_the_harness(asked, judging):
    judging(verdict)

    body, _ = asked("mediconfusion_ff", f"{SERVED},system_prompt={SYSTEM}", "async_openai")

    (turn,) = body["messages"][:-1]
    assert (turn["role"], SYSTEM in str(turn["content"])) == ("system", True)
    assert decoding_of(body) == {"temperature": 0.7, "max_tokens": 2048}


@pytest.mark.usefixtures("_key")
def test_the_option_for_a_system_turn_is_ignored_by_the_model_of_the_harness(asked):
    body, _ = asked("mediconfusion", SERVED, "async_openai", system_instruction=SYSTEM)

    assert len(body["messages"]) == 1
    assert text_of(body) == filled(f"{LETTERED}{ONE_LETTER}Answer: ")


def test_the_command_line_wins_and_an_unknown_family_is_refused(asked, judging):
    judging(verdict)
    body, _ = asked("mediconfusion_ff", ",prompt_family=openai", gen_kwargs="temperature=0")
    assert decoding_of(body) == {"temperature": 0, "max_tokens": 2048}
    with pytest.raises(UnknownName, match="unknown prompt_family 'blip'; did you mean 'blip2'"):
        asked("mediconfusion", ",prompt_family=blip")


def test_prompts_of_another_family_are_refused(asked, monkeypatch):
    """A caller may hold the harness's function as it was before it was wrapped."""
    monkeypatch.setattr(
        plugin, "_check_and_redact", lambda evaluate, *args, **kwargs: evaluate(*args, **kwargs)
    )
    monkeypatch.setattr(harness(), "simple_evaluate", inspect.unwrap(harness().simple_evaluate))
    with pytest.raises(
        MedTasksError, match=r"prompt_family does nothing for .* hand the manager over"
    ):
        asked("mediconfusion", ",prompt_family=blip2")


def test_places_of_images_are_marked_as_the_model_reads_them():
    placed = {"template": "{{ image }}Which?", "image_mark": "<image>"}
    assert for_other_model(placed, "llava", "hf_vlm") == {"template": "{{ image }}Which?"}
    assert for_other_model({"template": "{{ image }}Which?"}, "blip2", "vlm_server") == placed
    solved = prompt_settings("mediconfusion")["med_flamingo"]
    assert for_other_model(solved, "med_flamingo", "vlm_server") == solved
    with pytest.raises(
        MedTasksError,
        match="hf_vlm puts images first, and the prompt for prompt_family=med_flamingo",
    ):
        for_other_model(solved, "med_flamingo", "hf_vlm")


@each_row(
    "name, family, template",
    [
        ("mediconfusion_ps", "llama_vision", "Question: {question}"),
        ("mediconfusion_ps", "deepseek", "{question}"),
        ("mediconfusion_ps", "blip2", "Question: {question} Answer:"),
        ("mediconfusion_gd", "molmo", f'{MARKED}{ONE_LETTER}#answer: ("'),
        ("mediconfusion_gd", "blip2", f"Question: {BLIP2} Answer:"),
    ],
)
def test_modes_of_likelihoods_reach_each_familys_prompt(sample, name, family, template):
    config = resolve_names(task_config(name))
    task = SimpleNamespace(
        config=SimpleNamespace(**config), lmms_eval_specific_kwargs=config[SETTINGS]["default"]
    )
    with asked_as_family(
        {"model": "hf_vlm", "model_args": f"pretrained=DIR,prompt_family={family},batch_size=4"}
    ):
        choose_blocks(task)
    assert lettered_prompt(
        load_documents("mediconfusion")[0], task.lmms_eval_specific_kwargs
    ) == filled(template)
