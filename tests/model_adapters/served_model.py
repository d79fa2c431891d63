"""A small vLLM: tokens are bytes, log-probabilities follow from the ids and pixels before them, so all ways agree."""

import base64
import hashlib
import io
import json
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from email.message import Message
from typing import Any

import numpy as np
from PIL import Image

from ..local_server import LocalServer, QuietHandler

CHAT, GENERATE, TOKENIZE = "/v1/chat/completions", "/inference/v1/generate", "/tokenize"
SPECIAL = ("<|image|>", "<|start|>", "<|end|>")
IMAGE_ID = 256
POSITIONS = 5  # of an image
_FIRST_MERGED = 260

Body = dict[str, Any]


@dataclass(frozen=True)
class Template:
    """What a chat template makes of the turn of the model."""

    generation_prompt: str = "<|start|>assistant\n"
    opened: str = "<|start|>assistant\n"  # an assistant turn before its text
    trims: bool = False
    refuses: bool = False  # assistant turns
    texts_only: bool = False  # so that the server puts images first, each on a line of its own
    thoughts: str = ""  # before the last assistant turn; with ``enable_thinking=false`` in the generation prompt, too


TEMPLATES = {
    "plain": Template(),
    "trim": Template(trims=True),
    "bare-turn": Template(opened="<|start|>assistant"),
    "blank": Template("ASSISTANT:", "ASSISTANT: "),
    "think": Template(thoughts="<think>\n\n</think>\n\n"),
    "refuse": Template(refuses=True),
    "string": Template(texts_only=True),
}


@dataclass(frozen=True)
class Prompt:
    text: str
    ids: tuple[int, ...]  # one placeholder per image
    images: tuple[str, ...]  # digests of their pixels

    @property
    def positions(self) -> list[int]:
        """All ids; of placeholders only as many stand for an image as there are images."""
        left, found = len(self.images), []
        for token in self.ids:
            found += [token] * (POSITIONS if token == IMAGE_ID and left > 0 else 1)
            left -= token == IMAGE_ID
        return found


class TinyModel:
    """Tokenizer, template and log-probabilities."""

    def __init__(self, template: Template, merges: Sequence[str], seed: int = 0) -> None:
        self.template, self.seed = template, seed
        self.names = {text: IMAGE_ID + number for number, text in enumerate(SPECIAL)}
        self.names |= {text: _FIRST_MERGED + number for number, text in enumerate(merges)}
        self.texts = {token: text.encode() for text, token in self.names.items()}
        self.size = _FIRST_MERGED + len(merges)
        self._rows: dict[bytes, np.ndarray] = {}
        self._known = re.compile(
            "|".join(map(re.escape, sorted(self.names, key=len, reverse=True)))
        )

    def ids(self, text: str) -> list[int]:
        found: list[int] = []
        at = 0
        for match in self._known.finditer(text):
            found += [*text[at : match.start()].encode(), self.names[match[0]]]
            at = match.end()
        return [*found, *text[at:].encode()]

    def text(self, ids: Iterable[int]) -> str:
        return b"".join(self.texts.get(token, bytes([token & 255])) for token in ids).decode(
            errors="replace"
        )

    def prompt(self, body: Body) -> Prompt:
        """Render a conversation; a ValueError where the template refuses it."""
        images: list[str] = []
        text, opened = "", bool(body.get("continue_final_message"))
        for at, turn in enumerate(body["messages"]):
            is_own = turn["role"] == "assistant"
            if is_own and self.template.refuses:
                raise ValueError("Only user turns are supported")
            thoughts = (
                self.template.thoughts if is_own and at == len(body["messages"]) - 1 else ""
            )
            text += self.template.opened + thoughts if is_own else f"<|start|>{turn['role']}\n"
            text += "".join(self._pieces(turn["content"], images))
            text += "" if opened and at == len(body["messages"]) - 1 else "<|end|>\n"
        if body.get("add_generation_prompt", True) and not opened:
            thinks = (body.get("chat_template_kwargs") or {}).get("enable_thinking", True)
            text += self.template.generation_prompt + ("" if thinks else self.template.thoughts)
        return Prompt(text, tuple(self.ids(text)), tuple(images))

    def _pieces(self, content: Any, images: list[str]) -> list[str]:
        pieces = []
        parts: list[Body] = (
            [{"type": "text", "text": content}] if isinstance(content, str) else content
        )
        for part in parts:
            if part["type"] == "image_url":
                images.append(pixels(part["image_url"]["url"]))
                pieces.append(SPECIAL[0])
            else:
                pieces.append(part["text"].strip() if self.template.trims else part["text"])
        if self.template.texts_only:
            return ["\n".join(sorted(pieces, key=lambda piece: piece != SPECIAL[0]))]
        return pieces

    def logprobs(self, prompt: Prompt) -> list[np.ndarray]:
        digest = hashlib.blake2b(f"{self.seed} {prompt.images}".encode(), digest_size=8)
        rows = []
        for token in prompt.positions:
            digest.update(token.to_bytes(2))
            rows.append(self._row(digest.digest()))
        return rows

    def _row(self, before: bytes) -> np.ndarray:
        if before not in self._rows:
            logits = 2 * np.random.default_rng(int.from_bytes(before)).standard_normal(
                self.size
            )
            self._rows[before] = logits - np.log(np.exp(logits).sum())
        return self._rows[before]

    def likelihood(self, body: Body, option: str) -> tuple[float, bool, int]:
        """Sum of the losses, greedy flag and number of tokens of an option, by the definition of our other adapters."""
        base = self.prompt(body)
        text = base.text + option
        whole = Prompt(text, tuple(self.ids(text)), base.images)
        pairs = zip(base.positions, whole.positions, strict=False)
        start = next(
            (at for at, (one, other) in enumerate(pairs) if one != other), len(base.positions)
        )
        rows, ids = self.logprobs(whole), whole.positions
        losses = [-float(rows[at - 1][ids[at]]) for at in range(start, len(ids))]
        return (
            sum(losses),
            all(rows[at - 1].argmax() == ids[at] for at in range(start, len(ids))),
            len(losses),
        )


def pixels(url: str) -> str:
    """Digest of an image's pixels, whatever its file's format."""
    try:
        image = image_of(url)
    except (OSError, ValueError, IndexError):
        return "unreadable " + hashlib.sha256(url.encode()).hexdigest()
    return f"{image.size} {hashlib.sha256(image.tobytes()).hexdigest()}"


def image_of(url: str) -> Image.Image:
    with Image.open(io.BytesIO(base64.b64decode(url.split(",", 1)[1]))) as image:
        return image.convert("RGB")


@dataclass
class Settings:
    """How a server is started, and what it does otherwise than it should."""

    name: str = "tiny"
    root: str | None = "tiny/checkpoint"
    version: str | None = "0.32.0"
    owned_by: str = "vllm"
    max_model_len: int = 100_000
    template: str = "plain"
    merges: Sequence[str] = ()  # texts that are one token
    seed: int = 0  # of the weights
    reply: str | Callable[[Body], str] = "A"
    key: str = ""
    scale_out: bool = False  # whether token ids are taken
    tokenizes: bool = True  # whether there are /tokenize and /detokenize
    ignores: frozenset[str] = frozenset()  # fields of requests, as routers and older servers do
    default_penalty: float = (
        1.0  # of the model's generation_config.json, for tokens that stand in the prompt
    )
    most_images: int = 999
    build: str | None = None  # what vLLM calls system_fingerprint
    listed: Sequence[str] | None = None  # names of models, by default its own
    # Called before an answer, True where it has answered by itself; and with an answer that it may change.
    before: Callable[["Handler", str, Body], bool] = lambda handler, path, body: False
    change: Callable[[str, Body, Body], Any] = lambda path, body, answer: answer


@dataclass
class Asked:
    path: str
    body: Body
    headers: Message = field(repr=False)  # by names in any case


class ServedModel(LocalServer):
    """To be run by ``with serving(ServedModel(template="trim")) as server``; ``asked`` has every POST."""

    request_queue_size = 128

    def __init__(self, **settings: Any) -> None:
        super().__init__(Handler)
        self.settings = Settings(**settings)
        self.model = TinyModel(
            TEMPLATES[self.settings.template], self.settings.merges, self.settings.seed
        )
        self.asked: list[Asked] = []
        self.lock = threading.Lock()

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def bodies(self, path: str = CHAT) -> list[Body]:
        return [one.body for one in self.asked if one.path == path]

    def handle_error(self, request: object, client_address: object) -> None:
        pass

    def models(self) -> Body:
        shown = {
            "object": "model",
            "owned_by": self.settings.owned_by,
            "root": self.settings.root,
        }
        names = (
            self.settings.listed if self.settings.listed is not None else [self.settings.name]
        )
        return {
            "data": [
                {"id": name, **shown, "max_model_len": self.settings.max_model_len}
                for name in names
            ]
        }

    def chat(self, body: Body) -> Body:
        prompt = self.model.prompt(body)
        names = bool(body.get("return_tokens_as_token_ids"))
        chosen, answer = self._answer(prompt, body, body if body.get("logprobs") else {}, names)
        choice = {"index": 0, "finish_reason": "length", **chosen}
        if {"logprobs", "prompt_logprobs"} & {
            name for name, value in body.items() if value not in (None, False)
        }:
            choice["message"] = {
                "role": "assistant",
                "content": self.model.text(chosen["token_ids"]),
            }
        else:
            said, end = self._said(body)
            choice |= {"message": {"role": "assistant", "content": said}, "finish_reason": end}
            answer["usage"]["completion_tokens"] = len(said.encode())
        answer["prompt_text"] = prompt.text if body.get("return_prompt_text") else None
        if not body.get("return_token_ids"):
            choice["token_ids"] = answer["prompt_token_ids"] = None
        return {**answer, "object": "chat.completion", "choices": [choice]}

    def generate(self, body: Body) -> Body:
        images = tuple(pixels(part["url"]) for part in body.get("content_parts") or ())
        prompt = Prompt("", tuple(body["token_ids"]), images)
        asked = body["sampling_params"]
        chosen, answer = self._answer(prompt, asked, {}, True)
        return {**answer, "choices": [{"index": 0, "finish_reason": "length", **chosen}]}

    def _answer(
        self, prompt: Prompt, body: Body, scored: Body, names: bool
    ) -> tuple[Body, Body]:
        ids, rows = prompt.positions, self.model.logprobs(prompt)
        penalty = body.get("repetition_penalty", self.settings.default_penalty)
        last = rows[-1].copy()
        seen = list(set(ids))
        last[seen] *= penalty
        sampled = int(last.argmax())

        def entry(token: int, row: np.ndarray) -> Body:
            name = f"token_id:{token}" if names else self.model.text([token])
            return {"token": name, "logprob": float(row[token])}

        wanted = [
            token
            for token in dict.fromkeys(scored.get("logprob_token_ids") or ())
            if token != sampled
        ]
        tops = [entry(sampled, rows[-1]), *(entry(token, rows[-1]) for token in wanted)]
        answer: Body = {
            "model": body.get("model", self.settings.name),
            "system_fingerprint": self.settings.build,
            "prompt_token_ids": ids,
            "usage": {
                "prompt_tokens": len(ids),
                "completion_tokens": 1,
                "total_tokens": len(ids) + 1,
            },
            "prompt_logprobs": None,
        }
        if body.get("prompt_logprobs") is not None:
            values = [
                (token, float(row[token]), row)
                for token, row in zip(ids[1:], rows, strict=False)
            ]
            answer["prompt_logprobs"] = [
                None,
                *(
                    {str(one): {"logprob": value, "rank": int((row >= value).sum())}}
                    for one, value, row in values
                ),
            ]
        content = (
            {"content": [{**entry(sampled, rows[-1]), "top_logprobs": tops}]}
            if scored
            else None
        )
        return {"token_ids": [sampled], "logprobs": content}, answer

    def _said(self, body: Body) -> tuple[str, str]:
        text = (
            self.settings.reply(body) if callable(self.settings.reply) else self.settings.reply
        )
        cuts = [place for stop in body.get("stop") or () if (place := text.find(stop)) >= 0]
        text = text[: min(cuts)] if cuts else text
        most = body.get("max_tokens")
        return (
            (text[:most], "length") if most is not None and len(text) > most else (text, "stop")
        )


class Handler(QuietHandler):
    server: ServedModel
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        settings = self.server.settings
        if self.path == "/v1/models" and not self._is_let_in():
            return
        found = {"/v1/models": self.server.models()}
        if settings.version is not None:
            found["/version"] = {"version": settings.version}
        self.send(200, found[self.path]) if self.path in found else self.send(
            404, {"detail": "Not Found"}
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.asked.append(Asked(self.path, body, self.headers))
        settings = self.server.settings
        if settings.before(self, self.path, body) or not self._is_let_in():
            return
        body = {name: value for name, value in body.items() if name not in settings.ignores}
        try:
            status, answer = self._answered(body)
        except (ValueError, IndexError) as error:
            status, answer = 400, _error(400, str(error))
        self.send(status, settings.change(self.path, body, answer) if status == 200 else answer)

    def _answered(self, body: Body) -> tuple[int, Body]:
        server, settings = self.server, self.server.settings
        if self.path == GENERATE and not settings.scale_out:
            return 403, _error(403, "Scale-out endpoints are disabled.")
        if self.path in (CHAT, GENERATE) and body.get("model") != settings.name:
            return 404, _error(404, "The model does not exist.", "model")
        if self.path == CHAT:
            if json.dumps(body["messages"]).count('"image_url": {') > settings.most_images:
                return 400, _error(
                    400,
                    f"At most {settings.most_images} image(s) may be provided in one prompt.",
                )
            if len(server.model.prompt(body).positions) >= settings.max_model_len:
                return 400, _error(
                    400,
                    f"This model's maximum context length is {settings.max_model_len} tokens.",
                )
            return 200, server.chat(body)
        if self.path == GENERATE:
            return 200, server.generate(body)
        if self.path in (TOKENIZE, "/detokenize") and settings.tokenizes:
            is_text = self.path == TOKENIZE
            return 200, {"tokens": server.model.ids(body["prompt"])} if is_text else {
                "prompt": server.model.text(body["tokens"])
            }
        return 404, {"detail": "Not Found"}

    def _is_let_in(self) -> bool:
        key = self.server.settings.key
        is_guarded = bool(key) and self.path.startswith(("/v1", "/inference"))
        if is_guarded and self.headers.get("Authorization") != f"Bearer {key}":
            self.send(401, {"error": "Unauthorized"})
            return False
        return True

    def send(self, status: int, value: object, **headers: str) -> None:
        """Send a value as JSON, bytes as they are."""
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.reply(status, data, Content_Type="application/json", **headers)


def _error(status: int, message: str, parameter: str | None = None) -> Body:
    return {
        "error": {
            "message": message,
            "type": "BadRequestError",
            "param": parameter,
            "code": status,
        }
    }
