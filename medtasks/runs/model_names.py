"""Identity of a model: its name and the arguments that can change an answer, without secrets."""

import re
from pathlib import Path

from medtasks.runs.harness_options import HarnessOptions
from medtasks.runs.redaction import HIDDEN, redacted, without_home

TRANSPORT = frozenset(
    {
        *("api_base", "api_key", "base_url", "host", "port", "batch_size", "timeout", "max_retries", "retry_backoff_s"),
        *("num_concurrent", "num_cpus", "adaptive_concurrency", "adaptive_max_concurrency", "adaptive_min_concurrency"),
        *("num_processes", "max_failed", "concurrency", "attempts", "journal", "token_counts"),
    }
)
"""Arguments of models that say how requests are sent, so that they change no answer."""
_FREE = frozenset({"model_args", "batch_size", "verbosity", "log_samples", "device"})
SERVER = "vlm_server"
"""Name of our adapter for models on servers."""
_SERVED = (  # lmms-eval's models that are known by the name of what a server runs
    *("async_openai", "batch_gpt4", "claude", "cosmos_wm", "gemini", "generation_api", "gpt4o_audio", "gpt4v"),
    *("litellm", "openai", "qwen_vl_api", "reka", "srt_api", "whisper_tt"),
)
_WEIGHTS = ("pretrained=", "model=", "model_path=")


def model_label(name: object, arguments: object, served: object = None) -> str:
    """Return the identity of a model: its name and the arguments that can change an answer, without secrets.

    A model on a server is known by its ``served`` name, or the one in its arguments, wherever the server listens.

    Example:
        >>> model_label("qwen", "pretrained=q,batch_size=8")
        'qwen pretrained=q'
        >>> model_label("vlm_server", "base_url=http://127.0.0.1:8000/v1,concurrency=8", "org/m")
        'org/m (vlm_server)'
    """
    given = HarnessOptions({"model_args": arguments}).model_arguments()
    if str(name).removesuffix("_compatible") in (SERVER, *_SERVED):
        named = [given.pop(key, None) for key in ("model", "model_version")]
        served = served or named[0] or named[1]
    rest = ",".join(f"{key}={value}" for key, value in given.items() if key not in TRANSPORT)
    label = f"{served} ({name}) {rest}" if served else f"{name or ''} {rest}"
    return without_home(redacted(label.replace("[REDACTED]", HIDDEN))).strip()


def model_title(model: str) -> str:
    """Return the model's name and that of its weights, without the other arguments.

    Example:
        >>> model_title("medtasks_hf_vlm pretrained=/models/med-vlm,dtype=bfloat16")
        'medtasks_hf_vlm: med-vlm'
        >>> model_title("org/m (vlm_server) likelihood=tokens")
        'org/m (vlm_server)'
    """
    if served := re.match(r"\S+ \(\S+\)", model):
        return served.group()
    name, _, arguments = model.partition(" ")
    for argument in arguments.split(","):
        for key in _WEIGHTS:
            if argument.startswith(key) and len(argument) > len(key):
                return f"{name}: {Path(argument.removeprefix(key)).name}"
    return name


def what_is_asked(options: HarnessOptions) -> dict[str, str]:
    """Return the options by name that say what a model is asked, and not how; its own begin with ``model_args``."""
    arguments = options.pairs("model_args").items()
    model = {f"model_args {name}": value for name, value in arguments if name not in TRANSPORT}
    return {**{name: str(value) for name, value in options.given.items() if name not in _FREE}, **model}
