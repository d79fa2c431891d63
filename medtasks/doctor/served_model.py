"""Check of a served model: whether it answers, sees images and thinks.

All questions are about synthetic images; no sample of a dataset is sent.
"""

import asyncio
import itertools
import os
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from loguru import logger
from PIL import Image, ImageDraw

from medtasks.doctor.check_results import MODEL, CheckResult, Findings, Scope, State
from medtasks.errors import MedTasksError, ModelRefused, join_names
from medtasks.lmms.remote_models import Destination, credentialed_datasets, refusal
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

# Seconds without a byte after which a list of models, or an answer, is given up. A shorter time of the user's counts.
LIST_S = 5.0
ANSWER_S = 30.0
LONGEST_S = 60.0  # seconds for all answers to one point
SIDE = 224  # pixels of a drawn image
CHECK = "check that it runs, and base_url= and timeout= in --model-args"
_QUESTION = (
    "Is the disc in the picture larger than half of it?\nA) yes\nB) no\nAnswer with the letter."
)
_NO_LIST = "check base_url= in --model-args, which often ends with /v1, or give model= where there is no list"
ServerReply = Mapping[str, Any]


def served_model(scope: Scope, model_args: str) -> Findings:
    """Check a served model, at each of its servers.

    Args:
        scope: The tasks, whose data the model may have to be allowed to see.
        model_args: ``--model_args`` of ``vlm_server``.

    Yields:
        Results by server. Arguments that cannot be used are a problem, and the only result: nothing is raised.
    """
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
        yield MODEL.result_of_error("arguments", error, "correct --model-args")
        return
    for server in servers:
        ending = f" ({urlsplit(server.base_url).netloc})" if len(servers) > 1 else ""
        for finding in itertools.chain([_address(scope, server)], _at(server, model_arguments)):
            yield replace(
                finding,
                name=finding.name + ending,
                found=_printable(finding.found),
                fix=_printable(finding.fix),
            )


def _printable(text: str) -> str:
    # Names come from the server.
    return "".join(filter(str.isprintable, text))


def _address(scope: Scope, server: Server) -> CheckResult:
    """Tell where a server is, what is sent there, and whether credentialed text is."""
    url = server.base_url
    host = addresses.host(url)
    takes_proxy = bool(server.transport_options["trust_env"])
    location = f"{url} is {'this' if addresses.is_loopback(host) else 'another'} machine"
    has_proxy = url.partition(":")[0] in urllib.request.getproxies()
    if has_proxy and not urllib.request.proxy_bypass(host):
        route = "by way of" if takes_proxy else "past"
        location += f", asked {route} the proxy that the environment names"
    location += f"; the key of {API_KEY} is sent" if server.api_key else "; no key is sent"
    private = credentialed_datasets(scope.datasets)
    cause = ""
    if private:
        cause = refusal(Destination(url, "base_url", takes_proxy), os.environ)
    if not cause:
        return MODEL.ok("address", location)
    sentence = (
        f"{location}; text of credentialed data ({join_names(private)}) does not go there"
    )
    state = State.PROBLEM if scope.has_names else State.NOTE
    return CheckResult(MODEL, "address", state, sentence, cause.partition("; ")[2])


def _at(server: Server, model_arguments: Mapping[str, Any]) -> Findings:
    """Check the model of one server: whether it has a list of models, starts, and answers.

    Args:
        server: The server.
        model_arguments: Arguments of ``vlm_server``, of which the server's address and short times replace some.
    """
    few_seconds = {
        **model_arguments,
        "base_url": server.base_url,
        "timeout": min(server.timeout_s, ANSWER_S),
        "attempts": 1,
        "journal": "false",
    }
    with ExitStack() as at_end:
        logger.disable("medtasks.model_adapters")  # the adapter's log repeats the results
        at_end.callback(logger.enable, "medtasks.model_adapters")
        try:
            names = asyncio.run(_names(server))
        except MedTasksError as error:
            yield MODEL.result_of_error("server", error, CHECK)
            return
        try:
            model = VlmServer(**few_seconds)
        except ModelRefused as error:
            yield MODEL.result_of_error("image attention", error)
            model = VlmServer(**{**few_seconds, "image_attention": "causal"})
        except MedTasksError as error:
            if names:
                yield MODEL.result_of_error("model", error, CHECK)
            else:
                yield MODEL.problem("model", f"{server.name} has no list of models", _NO_LIST)
            return
        at_end.callback(model.clean)
        yield _served_name(model, names)
        yield from _questions(model)


def _served_name(model: VlmServer, names: Sequence[str]) -> CheckResult:
    """Name the model of a server, which lists ``names``."""
    if not names:
        return MODEL.note(
            "model",
            f"the server has no list of models, so that the name '{model.model}' is only tried",
            "check model= in --model-args with the server's own documentation",
        )
    facts = model.facts
    version = " ".join(str(facts[key]) for key in ("owned_by", "version") if facts[key])
    sentence = f"the server answers{f' ({version})' if version else ''} and has '{model.model}'"
    if facts["root"] not in (None, model.model):
        sentence += f", which is {facts['root']}"
    others = [name for name in names if name != model.model]
    if others:
        sentence += f"; it also has {join_names(others)}"
    return MODEL.ok("model", sentence)


async def _names(server: Server) -> list[str]:
    """Return the names of a server's models, none if it has no list."""
    pool = ServerPool([replace(server, timeout_s=min(server.timeout_s, LIST_S))], 1, 1)
    try:
        return list(await pool.models(pool.servers[0]) or ())
    finally:
        await pool.close()


def _questions(model: VlmServer) -> Findings:
    """Check by questions on one and two synthetic images that a model sees both, and whether it thinks."""
    try:
        first = ask_about_discs(model, 1)
    except MedTasksError as error:
        yield _without_reply(model, error)
        return
    yield _thinking(model, first)
    try:
        second = ask_about_discs(model, 2)
    except MedTasksError as error:
        finding = MODEL.result_of_error(
            "images", error, "give it tasks with one image per question only", State.WARNING
        )
        yield replace(
            finding, found=f"one image per prompt is taken, two are not: {finding.found}"
        )
        return
    single = first["tokens"][0]
    double = second["tokens"][0]
    if single is None or double is None:
        yield MODEL.ok("images", "one and two images per prompt are taken")
    elif double <= single:
        yield MODEL.warning(
            "images",
            f"a prompt with two images counts {double} tokens, with one {single}: images may be dropped silently",
            "check that the served model reads images, and any proxy before it",
        )
    else:
        size = f"one of {SIDE} x {SIDE} pixels takes {double - single} tokens"
        yield MODEL.ok("images", f"one and two images per prompt are taken; {size}")


def _without_reply(model: VlmServer, error: MedTasksError) -> CheckResult:
    """Tell whether a question about an image has no reply because of the image."""
    try:
        ask_about_discs(model, 0, LIST_S)
    except MedTasksError:
        fields = "extra_body= in --model-args adds fields to a request, and null leaves one out"
        return MODEL.result_of_error("reply", error, f"look at the server's log; {fields}")
    finding = MODEL.result_of_error("images", error, "serve a model that reads images")
    return replace(
        finding,
        found=f"a question without images is answered, with one it is not: {finding.found}",
    )


def _thinking(model: VlmServer, reply: ServerReply) -> CheckResult:
    """Tell from a reply whether a model thinks, and whether its thoughts are part of the answer."""
    switch = 'give chat_template_kwargs={"enable_thinking":false} in --model-args'
    if "enable_thinking" in (model.arguments.chat_template_kwargs or {}):
        switch = "choose another template"
    if "<think" in reply["text"] or "</think" in reply["text"]:
        return MODEL.warning(
            "thinking",
            "it thinks before it answers, and its thoughts stand in the answer, where they can be taken for it",
            f"serve it with --reasoning-parser, or {switch}",
        )
    if reply["reasoning"] or reply["tokens"][2]:
        return MODEL.note(
            "thinking",
            "it thinks before it answers; thoughts are kept apart, and count against a reply's limit of tokens",
            f"{switch}, or set max_new_tokens high enough",
        )
    return MODEL.ok("thinking", "replies begin with the answer, without thoughts before it")


def ask_about_discs(
    model: VlmServer,
    images: int,
    longest_s: float = LONGEST_S,
) -> ServerReply:
    """Return the reply to a question about synthetic images.

    Args:
        model: The model.
        images: Number of images.
        longest_s: Seconds to wait for the reply.

    Raises:
        MedTasksError: There is no reply, or it takes longer.
    """
    drawn = []
    for number in range(images):
        image = Image.new("RGB", (SIDE, SIDE), "black")
        radius = SIDE // (3 + number)
        low = SIDE // 2 - radius
        high = SIDE // 2 + radius
        ImageDraw.Draw(image).ellipse((low, low, high, high), fill="white")
        drawn.append(image)
    digests = tuple(f"drawn {number}" for number in range(images))
    parts = (*[None] * images, _QUESTION)
    prompt = ServedPrompt(model.arguments.system_prompt, parts, tuple(drawn), digests)
    settings = GenerationSettings(max_new_tokens=32)
    try:
        reply: ServerReply = model.loop.run(
            asyncio.wait_for(model.reply(prompt, settings), longest_s)
        )
    except TimeoutError:
        server = model.arguments.servers[0].name
        raise MedTasksError(
            f"{server} did not answer within {longest_s:g} s; {CHECK}"
        ) from None
    return reply
