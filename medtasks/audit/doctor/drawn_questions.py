"""Asking a served model questions and images that are drawn here, within a time."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from PIL import Image, ImageDraw

from medtasks.errors import MedTasksError
from medtasks.model_adapters.vlm_server import VlmServer
from medtasks.model_adapters.vlm_server.prompts import ServedPrompt

LONGEST_S = 60.0  # seconds for all answers to one point
SIDE = 224  # pixels of a drawn image
CHECK = "check that it runs, and base_url= and timeout= in --model-args"
_QUESTION = "Is the disc in the {} larger than half of it?\nA) yes\nB) no\nAnswer with the letter."

Result = TypeVar("Result")


def drawn_prompt(model: VlmServer, name: str, images: int) -> ServedPrompt:
    """Return a question about drawn images; what it calls them tells it from other questions."""
    drawn = tuple(_drawn(number) for number in range(images))
    digests = tuple(f"drawn {number}" for number in range(images))
    return ServedPrompt(model.arguments.system_prompt, (*[None] * images, _QUESTION.format(name)), drawn, digests)


def _drawn(number: int) -> Image.Image:
    image, radius = Image.new("RGB", (SIDE, SIDE), "black"), SIDE // (3 + number)
    middle = SIDE // 2
    ImageDraw.Draw(image).ellipse((middle - radius, middle - radius, middle + radius, middle + radius), fill="white")
    return image


def asked(model: VlmServer, work: Coroutine[Any, Any, Result], longest_s: float | None = None) -> Result:
    """Return what the servers answer to work on them; a MedTasksError where it lasts longer than some seconds."""
    seconds = longest_s or LONGEST_S
    try:
        answer: Result = model.loop.run(asyncio.wait_for(work, seconds))
    except TimeoutError:
        server = model.arguments.servers[0].name
        raise MedTasksError(f"{server} did not answer within {seconds:g} s; {CHECK}") from None
    return answer
