"""Check of a served model: whether it answers, sees images and thinks, and how its options can be scored.

All questions are about synthetic images; no sample of a dataset is sent.
"""

import asyncio
import os
import urllib.request
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import urlsplit

from loguru import logger
from PIL import Image, ImageDraw

from medtasks.audit.doctor.check_results import MODEL, CheckResult, Scope, State, of_error
from medtasks.errors import MedTasksError, ModelRefused, listed
from medtasks.lmms.remote_models import Destination, credentialed, refusal
from medtasks.model_adapters.base.arguments import parse_arguments
from medtasks.model_adapters.base.generation import GenerationSettings
from medtasks.model_adapters.vlm_server import VlmServer
from medtasks.model_adapters.vlm_server.messages import ServedPrompt
from medtasks.model_adapters.vlm_server.option_scorer import OptionScorer
from medtasks.model_adapters.vlm_server.server_client import (
    API_KEY,
    ServerPool,
    VlmServerArguments,
    check_arguments,
    check_given,
)
from medtasks.model_adapters.vlm_server.sglang import SglangScorer
from medtasks.net import servers as addresses
from medtasks.net.servers import Server
from medtasks.runs.harness_options import HarnessOptions

# Seconds without a byte, for a list of models and for an answer; a shorter time the user has set goes before.
LIST_S, ANSWER_S = 5.0, 30.0
LITTLE_CONTEXT = 4096  # tokens; an image of many models takes a thousand and more
_MODULES = "medtasks.model_adapters"
_NO_LIST = "check base_url= in --model-args, which often ends with /v1, or give model= where there is no list"
_NO_THOUGHTS = 'chat_template_kwargs={"enable_thinking":false}'

LONGEST_S = 60.0  # seconds for all answers to one point
SIDE = 224  # pixels of a drawn image
CHECK = "check that it runs, and base_url= and timeout= in --model-args"
_QUESTION = "Is the disc in the {} larger than half of it?\nA) yes\nB) no\nAnswer with the letter."
Result = TypeVar("Result")
_LETTERS, _TEXTS = ("A", "B"), (" a small disc", " a disc that fills more than half of it")


Record = Mapping[str, Any]


def served_model(scope: Scope, model_args: str) -> Iterator[CheckResult]:
    """Check the model that ``--model_args`` of ``vlm_server`` name, at each of its servers."""
    try:
        model_arguments = HarnessOptions({"model_args": model_args}).model_arguments()
        if "base_url" not in model_arguments:
            raise MedTasksError(
                "only models behind a server are asked (--model vlm_server), and --model-args names none; give for "
                "example base_url=http://127.0.0.1:8000/v1,model=NAME"
            )
        check_given(model_arguments)
        arguments = parse_arguments(VlmServerArguments, model_arguments, VlmServer.model_id)
        check_arguments(arguments)
        servers: tuple[Server, ...] = arguments.servers
    except MedTasksError as error:
        yield of_error(MODEL, "arguments", State.PROBLEM, error, "correct --model-args")
        return
    amiss = False
    for server in servers:
        ending = f" ({urlsplit(server.base_url).netloc})" if len(servers) > 1 else ""
        for finding in _at(scope, server, model_arguments):
            amiss |= finding.state is State.PROBLEM
            yield replace(
                finding, name=finding.name + ending, found=_printable(finding.found), fix=_printable(finding.fix)
            )
    if len(servers) > 1 and not amiss:  # do they serve the same?
        with _quiet():
            try:
                _built(model_arguments, servers[0]).clean()
            except MedTasksError as error:
                yield of_error(MODEL, "servers", State.PROBLEM, error)


def _at(scope: Scope, server: Server, model_arguments: Mapping[str, Any]) -> Iterator[CheckResult]:
    yield _address(scope, server)
    with _quiet():
        try:
            names = asyncio.run(_names(server))
        except MedTasksError as error:
            yield of_error(MODEL, "server", State.PROBLEM, error, CHECK)
            return
        try:
            model = _built({**model_arguments, "base_url": server.base_url}, server)
        except ModelRefused as error:
            yield of_error(MODEL, "image attention", State.PROBLEM, error)
            model = _built({**model_arguments, "base_url": server.base_url, "image_attention": "causal"}, server)
        except MedTasksError as error:
            unlisted = MODEL.problem("model", f"{server.name} has no list of models", _NO_LIST)
            yield of_error(MODEL, "model", State.PROBLEM, error, CHECK) if names else unlisted
            return
        try:
            yield from _found(scope, model, names)
        finally:
            model.clean()


def _found(scope: Scope, model: VlmServer, names: list[str]) -> Iterator[CheckResult]:
    yield _name(model, names)
    yield _context(model)
    try:
        first = asked(model, _reply(model, 1))
    except MedTasksError as error:
        yield _no_reply(model, error)
        return
    yield _thoughts(model, first)
    yield _images(model, first)
    compared = any(task.compares_likelihoods for task in scope.tasks)
    if compared or scope.foreign:
        yield from likelihoods(model, State.PROBLEM if scope.chosen and compared else State.WARNING)


def _address(scope: Scope, server: Server) -> CheckResult:
    url, private = server.base_url, credentialed(scope.datasets)
    host, scheme = addresses.host(url), url.partition(":")[0]
    obeys = bool(server.transport_options["trust_env"])
    where = f"{url} is {'this' if addresses.is_loopback(host) else 'another'} machine"
    if scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host):
        where += f", asked {'by way of' if obeys else 'past'} the proxy that the environment names"
    where += f"; the key of {API_KEY} is sent" if server.api_key else "; no key is sent"
    cause = refusal(Destination(url, "base_url", ("base_url",), obeys), os.environ) if private else ""
    if not cause:
        return MODEL.ok("address", where)
    _, _, fix = cause.partition("; ")
    state = State.PROBLEM if scope.chosen else State.NOTE
    return CheckResult(
        MODEL, "address", state, f"{where}; text of credentialed data ({listed(private)}) does not go there", fix
    )


async def _names(server: Server) -> list[str]:
    """Return the models a server lists, none without a list; MedTasksError: something else answers."""
    pool = ServerPool([replace(server, timeout_s=min(server.timeout_s, LIST_S))], 1, 1)
    try:
        return list(await pool.models(pool.servers[0]) or ())
    finally:
        await pool.close()


def _built(model_arguments: Mapping[str, Any], server: Server) -> VlmServer:
    times = {"timeout": min(server.timeout_s, ANSWER_S), "attempts": 1, "journal": "false"}
    return VlmServer(**{**model_arguments, **times})


def _name(model: VlmServer, names: list[str]) -> CheckResult:
    facts, others = model.facts, [name for name in names if name != model.model]
    version = " ".join(str(facts[key]) for key in ("owned_by", "version") if facts[key])
    root = f", which is {facts['root']}" if facts["root"] not in (None, model.model) else ""
    beside = f"; it also has {listed(others)}" if others else ""
    sentence = f"the server answers{f' ({version})' if version else ''} and has '{model.model}'{root}{beside}"
    if names:
        return MODEL.ok("model", sentence)
    sentence = f"the server has no list of models, so that the name '{model.model}' is only tried"
    return MODEL.note("model", sentence, "check model= in --model-args with the server's own documentation")


def _context(model: VlmServer) -> CheckResult:
    length = model.facts["max_model_len"]
    if not isinstance(length, int):
        fix = "look at how it was started; a question that does not fit fails by itself and is counted"
        return MODEL.note("context", "the server does not tell how many tokens a question and its reply may take", fix)
    sentence = f"a question with its images and reply may take {length:,} tokens"
    if length < LITTLE_CONTEXT:
        sentence += ", which is little: one image can take thousands, and a reply is cut to what is left"
        return MODEL.warning("context", sentence, "serve it with a larger --max-model-len")
    return MODEL.ok("context", sentence)


async def _reply(model: VlmServer, images: int) -> Record:
    reply: Record = await model.reply(drawn_prompt(model, "picture", images), GenerationSettings(max_new_tokens=32))
    return reply


def _no_reply(model: VlmServer, error: MedTasksError) -> CheckResult:
    """Tell whether a question got no reply because of its image."""
    try:
        asked(model, _reply(model, 0), LIST_S)
    except MedTasksError:
        fix = "look at the server's log; extra_body= in --model-args adds fields to a request, and null leaves one out"
        return of_error(MODEL, "reply", State.PROBLEM, error, fix)
    finding = of_error(MODEL, "images", State.PROBLEM, error, "serve a model that reads images")
    return replace(finding, found=f"a question without images is answered, with one it is not: {finding.found}")


def _thoughts(model: VlmServer, reply: Record) -> CheckResult:
    in_text = "<think" in reply["text"] or "</think" in reply["text"]
    if not (reply["reasoning"] or in_text or reply["tokens"][2]):
        return MODEL.ok("thinking", "replies begin with the answer, without thoughts before it")
    kwargs = model.arguments.chat_template_kwargs or {}
    switch = f"give {_NO_THOUGHTS} in --model-args" if "enable_thinking" not in kwargs else "choose another template"
    if in_text:
        sentence = "it thinks before it answers, and its thoughts stand in the answer, where they can be taken for it"
        return MODEL.warning("thinking", sentence, f"serve it with --reasoning-parser, or {switch}")
    sentence = "it thinks before it answers; thoughts are kept apart, and count against a reply's limit of tokens"
    return MODEL.note("thinking", sentence, f"{switch}, or set max_new_tokens high enough")


def _images(model: VlmServer, first: Record) -> CheckResult:
    try:
        second = asked(model, _reply(model, 2))
    except MedTasksError as error:
        finding = of_error(MODEL, "images", State.WARNING, error, "give it tasks with one image per question only")
        return replace(finding, found=f"one image per prompt is taken, two are not: {finding.found}")
    single, double = first["tokens"][0], second["tokens"][0]
    if single is None or double is None:
        return MODEL.ok("images", "one and two images per prompt are taken")
    if double <= single:
        sentence = f"a prompt with two images counts {double} tokens, with one {single}: images may be dropped silently"
        return MODEL.warning("images", sentence, "check that the served model reads images, and any proxy before it")
    sentence = f"one and two images per prompt are taken; one of {SIDE} x {SIDE} pixels takes {double - single} tokens"
    return MODEL.ok("images", sentence)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the adapter's log, which repeats the results."""
    logger.disable(_MODULES)
    try:
        yield
    finally:
        logger.enable(_MODULES)


def _printable(text: str) -> str:
    """Remove control characters: names come from the server."""
    return "".join(character for character in text if character.isprintable())


@dataclass(frozen=True)
class _Proof:
    """Result of scoring options of one kind."""

    scorer: OptionScorer | SglangScorer | None  # None if the server was not asked
    error: MedTasksError | None


def likelihoods(model: VlmServer, state: State) -> Iterator[CheckResult]:
    """Check that options are scored right after the question, and by how many requests.

    Texts begin with a blank, as most tasks have them, and letters do not: a template can be in the way of either.
    """
    texts, letters = (_proof(model, options) for options in (_TEXTS, _LETTERS))
    if texts.error and letters.error:
        yield of_error(MODEL, "likelihoods", state, texts.error, "run the model with --model hf_vlm")
        return
    for proof, kind in ((texts, "that begin with a blank"), (letters, "that begin without a blank")):
        if proof.error:
            finding = of_error(MODEL, "template", state, proof.error, "serve it with --enable-scale-out")
            yield replace(finding, found=f"for options {kind}, {finding.found}")
    scorer = texts.scorer if letters.error else letters.scorer
    if isinstance(scorer, OptionScorer) and scorer.slow:
        slow = "every option takes one request that reads the question anew (prompt_logprobs)"
        fix = "a newer vLLM, with no router that drops fields before it, scores all letters in one request"
        yield MODEL.note("likelihoods", f"{slow}: for one per question, {scorer.slow}", fix)
    else:
        yield MODEL.ok("likelihoods", "options are scored right after the question")


def _proof(model: VlmServer, options: tuple[str, ...]) -> _Proof:
    try:
        scorer = model.new_scorer()
    except MedTasksError as error:
        return _Proof(None, error)

    async def score() -> None:
        for text in ("picture", "image"):  # the second question is scored as all that follow it
            outcomes = await scorer.scores(drawn_prompt(model, text, 1), options)
            for error in (outcome for outcome in outcomes if isinstance(outcome, MedTasksError)):
                raise error

    try:
        asked(model, score())
    except MedTasksError as error:
        return _Proof(scorer, error)
    return _Proof(scorer, None)


def drawn_prompt(model: VlmServer, name: str, images: int) -> ServedPrompt:
    """Return a question about synthetic images, which it calls by a name."""
    drawn = []
    for number in range(images):
        drawn.append(Image.new("RGB", (SIDE, SIDE), "black"))
        low, high = SIDE // 2 - SIDE // (3 + number), SIDE // 2 + SIDE // (3 + number)
        ImageDraw.Draw(drawn[-1]).ellipse((low, low, high, high), fill="white")
    digests = tuple(f"drawn {number}" for number in range(images))
    return ServedPrompt(
        model.arguments.system_prompt, (*[None] * images, _QUESTION.format(name)), tuple(drawn), digests
    )


def asked(model: VlmServer, work: Coroutine[Any, Any, Result], longest_s: float | None = None) -> Result:
    """Return the result of requests to the servers; MedTasksError: they take longer than some seconds."""
    seconds = longest_s or LONGEST_S
    try:
        answer: Result = model.loop.run(asyncio.wait_for(work, seconds))
    except TimeoutError:
        server = model.arguments.servers[0].name
        raise MedTasksError(f"{server} did not answer within {seconds:g} s; {CHECK}") from None
    return answer
