"""Check of a served model: whether it answers, sees images and thinks.

All questions are about synthetic images; no sample of a dataset is sent.
"""

import asyncio
import itertools
import os
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from loguru import logger
from PIL import Image, ImageDraw

from medtasks.doctor.check_results import MODEL, CheckResult, Scope, State, of_error
from medtasks.errors import MedTasksError, ModelRefused, listed
from medtasks.lmms.remote_models import Destination, credentialed, refusal
from medtasks.model_adapters.base.arguments import parse_arguments
from medtasks.model_adapters.base.batching import GenerationSettings
from medtasks.model_adapters.vlm_server import VlmServer
from medtasks.model_adapters.vlm_server.messages import ServedPrompt
from medtasks.model_adapters.vlm_server.server_client import (
    API_KEY,
    ServerPool,
    VlmServerArguments,
    check_arguments,
    refuse_api_key,
)
from medtasks.net import servers as addresses
from medtasks.net.servers import Server
from medtasks.runs.harness_options import HarnessOptions

# Seconds without a byte, for a list of models and for an answer; a shorter time the user has set goes before.
LIST_S, ANSWER_S = 5.0, 30.0
LONGEST_S = 60.0  # seconds for all answers to one point
SIDE = 224  # pixels of a drawn image
CHECK = "check that it runs, and base_url= and timeout= in --model-args"
_QUESTION = (
    "Is the disc in the picture larger than half of it?\nA) yes\nB) no\nAnswer with the letter."
)
ServerReply = Mapping[str, Any]


def served_model(scope: Scope, model_args: str) -> Iterator[CheckResult]:
    """Check the model that ``--model_args`` of ``vlm_server`` name, at each of its servers."""
    try:
        model_arguments = HarnessOptions({"model_args": model_args}).model_arguments()
        if "base_url" not in model_arguments:
            raise MedTasksError(
                "only models behind a server are asked (--model vlm_server), and --model-args names none; give for "
                "example base_url=http://127.0.0.1:8000/v1,model=NAME"
            )
        refuse_api_key(model_arguments)
        arguments = parse_arguments(VlmServerArguments, model_arguments, VlmServer.model_id)
        check_arguments(arguments)
        servers: tuple[Server, ...] = arguments.servers
    except MedTasksError as error:
        yield of_error(MODEL, "arguments", State.PROBLEM, error, "correct --model-args")
        return
    private = credentialed(scope.datasets)
    for server in servers:
        url = server.base_url
        host, obeys = addresses.host(url), bool(server.transport_options["trust_env"])
        where = f"{url} is {'this' if addresses.is_loopback(host) else 'another'} machine"
        if url.partition(":")[0] in urllib.request.getproxies() and not urllib.request.proxy_bypass(
            host
        ):
            where += (
                f", asked {'by way of' if obeys else 'past'} the proxy that the environment names"
            )
        where += f"; the key of {API_KEY} is sent" if server.api_key else "; no key is sent"
        address = MODEL.ok("address", where)
        if cause := refusal(Destination(url, "base_url", obeys), os.environ) if private else "":
            sentence = f"{where}; text of credentialed data ({listed(private)}) does not go there"
            state = State.PROBLEM if scope.chosen else State.NOTE
            address = CheckResult(MODEL, "address", state, sentence, cause.partition("; ")[2])
        ending = f" ({urlsplit(url).netloc})" if len(servers) > 1 else ""
        for finding in itertools.chain([address], _at(server, model_arguments)):
            # Names come from the server.
            found, fix = (
                "".join(filter(str.isprintable, text)) for text in (finding.found, finding.fix)
            )
            yield replace(finding, name=finding.name + ending, found=found, fix=fix)


def _at(server: Server, model_arguments: Mapping[str, Any]) -> Iterator[CheckResult]:
    changes = {"base_url": server.base_url, "timeout": min(server.timeout_s, ANSWER_S)}
    few_seconds = {**model_arguments, **changes, "attempts": 1, "journal": "false"}
    with ExitStack() as at_end:
        logger.disable("medtasks.model_adapters")  # the adapter's log repeats the results
        at_end.callback(logger.enable, "medtasks.model_adapters")
        try:
            names = asyncio.run(_names(server))
        except MedTasksError as error:
            yield of_error(MODEL, "server", State.PROBLEM, error, CHECK)
            return
        try:
            model = VlmServer(**few_seconds)
        except ModelRefused as error:
            yield of_error(MODEL, "image attention", State.PROBLEM, error)
            model = VlmServer(**{**few_seconds, "image_attention": "causal"})
        except MedTasksError as error:
            fix = "check base_url= in --model-args, which often ends with /v1, or give model= where there is no list"
            no_list = MODEL.problem("model", f"{server.name} has no list of models", fix)
            yield of_error(MODEL, "model", State.PROBLEM, error, CHECK) if names else no_list
            return
        at_end.callback(model.clean)
        facts, others = model.facts, [name for name in names if name != model.model]
        version = " ".join(str(facts[key]) for key in ("owned_by", "version") if facts[key])
        root = f", which is {facts['root']}" if facts["root"] not in (None, model.model) else ""
        further = f"; it also has {listed(others)}" if others else ""
        answers = f"the server answers{f' ({version})' if version else ''} and has '{model.model}'{root}{further}"
        unlisted = (
            f"the server has no list of models, so that the name '{model.model}' is only tried"
        )
        fix = "check model= in --model-args with the server's own documentation"
        yield MODEL.ok("model", answers) if names else MODEL.note("model", unlisted, fix)
        yield from _questions(model)


async def _names(server: Server) -> list[str]:
    pool = ServerPool([replace(server, timeout_s=min(server.timeout_s, LIST_S))], 1, 1)
    try:
        return list(await pool.models(pool.servers[0]) or ())
    finally:
        await pool.close()


def _questions(model: VlmServer) -> Iterator[CheckResult]:
    try:
        first = asked(model, 1)
    except MedTasksError as error:
        try:  # is it because of the image?
            asked(model, 0, LIST_S)
        except MedTasksError:
            fields = "extra_body= in --model-args adds fields to a request, and null leaves one out"
            yield of_error(
                MODEL, "reply", State.PROBLEM, error, f"look at the server's log; {fields}"
            )
            return
        finding = of_error(MODEL, "images", State.PROBLEM, error, "serve a model that reads images")
        yield replace(
            finding,
            found=f"a question without images is answered, with one it is not: {finding.found}",
        )
        return

    in_text = "<think" in first["text"] or "</think" in first["text"]
    switch = 'give chat_template_kwargs={"enable_thinking":false} in --model-args'
    if "enable_thinking" in (model.arguments.chat_template_kwargs or {}):
        switch = "choose another template"
    if in_text:
        sentence = "it thinks before it answers, and its thoughts stand in the answer, where they can be taken for it"
        yield MODEL.warning("thinking", sentence, f"serve it with --reasoning-parser, or {switch}")
    elif first["reasoning"] or first["tokens"][2]:
        sentence = "it thinks before it answers; thoughts are kept apart, and count against a reply's limit of tokens"
        yield MODEL.note("thinking", sentence, f"{switch}, or set max_new_tokens high enough")
    else:
        yield MODEL.ok("thinking", "replies begin with the answer, without thoughts before it")

    try:
        second = asked(model, 2)
    except MedTasksError as error:
        finding = of_error(
            MODEL, "images", State.WARNING, error, "give it tasks with one image per question only"
        )
        yield replace(finding, found=f"one image per prompt is taken, two are not: {finding.found}")
        return
    single, double = first["tokens"][0], second["tokens"][0]
    if single is None or double is None:
        yield MODEL.ok("images", "one and two images per prompt are taken")
    elif double <= single:
        sentence = f"a prompt with two images counts {double} tokens, with one {single}: images may be dropped silently"
        yield MODEL.warning(
            "images", sentence, "check that the served model reads images, and any proxy before it"
        )
    else:
        size = f"one of {SIDE} x {SIDE} pixels takes {double - single} tokens"
        yield MODEL.ok("images", f"one and two images per prompt are taken; {size}")


def asked(model: VlmServer, images: int, longest_s: float | None = None) -> ServerReply:
    """Return the reply to a question about synthetic images; MedTasksError: it takes longer than some seconds."""
    drawn = []
    for number in range(images):
        drawn.append(Image.new("RGB", (SIDE, SIDE), "black"))
        low, high = SIDE // 2 - SIDE // (3 + number), SIDE // 2 + SIDE // (3 + number)
        ImageDraw.Draw(drawn[-1]).ellipse((low, low, high, high), fill="white")
    digests = tuple(f"drawn {number}" for number in range(images))
    prompt = ServedPrompt(
        model.arguments.system_prompt, (*[None] * images, _QUESTION), tuple(drawn), digests
    )
    seconds, settings = longest_s or LONGEST_S, GenerationSettings(max_new_tokens=32)
    try:
        reply: ServerReply = model.loop.run(
            asyncio.wait_for(model.reply(prompt, settings), seconds)
        )
    except TimeoutError:
        server = model.arguments.servers[0].name
        raise MedTasksError(f"{server} did not answer within {seconds:g} s; {CHECK}") from None
    return reply
