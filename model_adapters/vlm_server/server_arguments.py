"""Arguments of ``vlm_server``."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from medtasks.errors import AdapterArgumentError
from medtasks.net import endpoints
from medtasks.net.servers import Server

from ..base.arguments import HarnessArguments, argument

API_KEY = "MEDTASKS_SERVER_API_KEY"
"""Environment variable with the servers' key, which stands nowhere else."""
AUTOMATIC, PROMPT_LOGPROBS, TOKEN_BY_TOKEN, TOKEN_IDS = "auto", "prompt_logprobs", "tokens", "token_ids"
_REFUSALS = {
    401: f"set {API_KEY}",
    403: f"check {API_KEY} and that it may use this model",
    404: "check model= and base_url= in --model_args",
}


@dataclass(frozen=True)
class VlmServerArguments(HarnessArguments):
    """Arguments of ``vlm_server``, see ``README.md``."""

    base_url: str = argument("")  # one address, or several with ``;`` between them; it has to be given
    model: str = argument("")  # as the server calls it; by default the only one it has
    concurrency: int = argument(64, least=1, most=4096)  # most requests under way at once
    timeout: float = argument(600.0, least=0.001)  # seconds without a byte before a try is given up
    attempts: int = argument(6, least=1)  # most tries of a request that meets a passing trouble
    system_prompt: str | None = argument(None, prose=True)
    # JSON, for instance {"enable_thinking":false}
    chat_template_kwargs: dict[str, Any] | None = argument(None)  # noqa: RUF009  # a field, not a shared value
    # JSON, fields of every chat request; null leaves one of ours out
    extra_body: dict[str, Any] | None = argument(None)  # noqa: RUF009  # as above
    likelihood: str = argument(AUTOMATIC, choices=(AUTOMATIC, PROMPT_LOGPROBS, TOKEN_BY_TOKEN, TOKEN_IDS))
    image_attention: str | None = argument(None, choices=("bidirectional", "causal"))
    pretrained: str | None = argument(None)  # SGLang: folder or hub id with the model's processor
    token_counts: bool = argument(True)

    @property
    def servers(self) -> tuple[Server, ...]:
        """The servers, with the key of the environment."""
        urls = [url.strip().rstrip("/") for url in self.base_url.split(";") if url.strip()]
        key = os.environ.get(API_KEY, "").strip()
        mend = "check base_url= in --model_args"
        return tuple(Server(url, "server", self.timeout, mend, _REFUSALS, key) for url in dict.fromkeys(urls))


def check_given(given: Mapping[str, object]) -> None:
    """Refuse a key among the arguments, which stand in manifests and in lists of processes."""
    if "api_key" in given:
        raise AdapterArgumentError(f"vlm_server takes no api_key; set the environment variable {API_KEY}.")


def check_arguments(arguments: VlmServerArguments) -> None:
    """Check what the types of the arguments cannot say."""
    if not arguments.servers:
        raise AdapterArgumentError(
            "vlm_server: argument 'base_url' is missing; give for example base_url=http://127.0.0.1:8000/v1."
        )
    for server in arguments.servers:
        if not endpoints.is_url(server.base_url):
            raise AdapterArgumentError(
                "vlm_server: base_url must be http(s)://host[:port]/path without user and query, several of them with "
                "';' between them."
            )
    key = arguments.servers[0].api_key
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise AdapterArgumentError(f"{API_KEY} contains a character that no HTTP header may hold.")
