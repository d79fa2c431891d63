"""The harness's command line as data, without importing it: spellings, abbreviations and ``--config`` files."""

import argparse
import contextlib
import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from medtasks.errors import MedTasksError
from medtasks.runs.redaction import HIDDEN, redact, without_home

DEFAULT_SEEDS = (0, 1234, 1234, 1234)
# Options of lmms-eval 0.7.3 that take a value, each with its other spellings.
VALUED = (  # noqa: SIM905 - a list would take a line for each
    "--config --model --tasks --model_args --launcher_args --num_fewshot --batch_size,-b --max_batch_size --device "
    "--output_path --limit --offset --use_cache,-c --cache_requests --log_samples_suffix --system_instruction "
    "--include_path --gen_kwargs --reasoning_tags --verbosity --wandb_args --swanlab_args --timezone --hf_hub_log_args "
    "--seed --process-docs-parallel,--process_docs_parallel --agentic_trace_mode --repeats,-n,--num_samples --baseline "
    "--max_tokens --effect-size --alpha --power --correlation --std-a --std-b"
).split()
FLAGS = (  # noqa: SIM905 - as above
    "--check_integrity --write_out,-w --log_samples --wandb_log_samples --swanlab_log_samples --apply_chat_template "
    "--fewshot_as_multiturn --show_config --predict_only,-x --trust_remote_code --process_with_media --force_simple "
    "--tui --power-analysis"
).split()
_PARTING = frozenset(",'\"\\{}[]\n")
_BRACKETS = {"{": 1, "[": 1, "}": -1, "]": -1}  # change of depth
# Model arguments that control how requests are sent and change no answer.
TRANSPORT = frozenset(
    (
        "api_base",
        "api_key",
        "base_url",
        "host",
        "port",
        "batch_size",
        "timeout",
        "max_retries",
        "retry_backoff_s",
        "num_concurrent",
        "num_cpus",
        "adaptive_concurrency",
        "adaptive_max_concurrency",
        "adaptive_min_concurrency",
        "num_processes",
        "max_failed",
        "concurrency",
        "attempts",
        "journal",
        "token_counts",
    )
)


# Options that do not decide what a model is asked, or are compared one by one.
_WITHOUT_EFFECT = ("model_args", "batch_size", "verbosity", "log_samples", "device")
SERVER = "vlm_server"  # name of our adapter for models on servers
ADAPTER = "adapter"  # name of our adapter for classes and functions by their path, which the argument ``class`` gives
# lmms-eval's models whose identity is the name of the served model.
_SERVED = (
    "async_openai",
    "batch_gpt4",
    "claude",
    "cosmos_wm",
    "gemini",
    "generation_api",
    "gpt4o_audio",
    "gpt4v",
    "litellm",
    "openai",
    "qwen_vl_api",
    "reka",
    "srt_api",
    "whisper_tt",
)


@dataclass(frozen=True)
class HarnessOptions:
    """Options of one call of the harness."""

    # Values by name with underscores, without defaults; a flag is True. The command line gives text, a ``--config``
    # file what YAML makes of it.
    given: Mapping[str, Any] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()  # arguments that the harness does not have
    # variables set by a ``--config`` file
    environment: Mapping[str, str] = field(default_factory=dict)
    evaluations: int = 1  # number of evaluations in a ``--config`` file

    def text(self, name: str) -> str:
        """Return an option's value as text, empty if it is not given.

        Args:
            name: Name of the option, with underscores.
        """
        value = self.given.get(name)
        return "" if value is None else str(value)

    def flag(self, name: str) -> bool:
        """Return whether a flag is set."""
        return bool(self.given.get(name))

    def number(self, name: str) -> float | None:
        """Return an option's value as a number, None if it is missing, or malformed and then refused by the harness."""
        try:
            return float(self.text(name))
        except ValueError:
            return None

    def folders(self) -> list[Path]:
        """Return the folders of ``--include_path``.

        Example:
            >>> [folder.name for folder in HarnessOptions({"include_path": "own/tasks"}).folders()]
            ['tasks']
        """
        folders = self.given.get("include_path") or []
        if isinstance(folders, str):
            folders = [folders]
        return list(map(Path, folders))

    def pairs(self, name: str) -> dict[str, str]:
        """Return ``key=value,...`` as a mapping. Commas in quotes and brackets do not separate.

        Example:
            >>> HarnessOptions({"gen_kwargs": "until=[a,b],top_p=1"}).pairs("gen_kwargs")
            {'until': '[a,b]', 'top_p': '1'}
        """
        parts = [part.partition("=") for part in split_arguments(self.text(name))]
        return {key.strip(): value for key, mark, value in parts if mark}

    def model_arguments(self) -> dict[str, Any]:
        """Return ``--model_args`` as the harness reads them, or the mapping of a ``--config`` file.

        Example:
            >>> HarnessOptions({"model_args": "pretrained=q,dtype=float32"}).model_arguments()
            {'pretrained': 'q', 'dtype': 'float32'}
        """
        arguments = self.given.get("model_args")
        if isinstance(arguments, Mapping):
            return dict(arguments)
        parts = (
            part.strip().partition("=") for part in split_arguments(self.text("model_args"))
        )
        return {name: value for name, mark, value in parts if mark}

    def written_model_arguments(self) -> dict[str, str]:
        """Return ``--model_args`` with values as on a command line."""
        write = write_argument if isinstance(self.given.get("model_args"), Mapping) else str
        return {str(name): write(value) for name, value in self.model_arguments().items()}


def write_argument(value: Any) -> str:
    """Write a value for ``--model_args`` so that the harness and our adapters read it back unchanged.

    Example:
        >>> print(write_argument("Think, then answer."), write_argument("bfloat16"))
        "Think, then answer." bfloat16
    """
    if isinstance(value, str):
        has_parting = bool(set(value) & _PARTING)
        if not has_parting and value == value.strip() and value[:1] != "@":
            return value
    # The harness takes a quote after one or two backslashes for a part of the text.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace(
        "\\\\", "\\u005c"
    )


def read_options(arguments: Sequence[str]) -> HarnessOptions:
    """Read arguments as lmms-eval does. The command line overrides a ``--config`` file.

    Args:
        arguments: Arguments of the harness, without the name of the command.

    Raises:
        MedTasksError: The harness would not accept them, or the file cannot be read.

    Example:
        >>> read_options(["--model", "hf_vlm", "--limit", "8"]).number("limit")
        8.0
    """
    namespace, unknown = _parser().parse_known_args(list(arguments))
    options = {name: value for name, value in vars(namespace).items() if value is not None}
    if not options.get("config"):
        return HarnessOptions(options, tuple(unknown))
    path = Path(str(options["config"]))
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise MedTasksError(
            f"--config {path} cannot be read as YAML; correct the path or the file"
        ) from error
    configs = content if isinstance(content, list) else [content]
    if not configs or not all(map(_is_config, configs)):
        raise MedTasksError(
            f"--config {path} holds no mapping of options to values, such as 'limit: 8'; correct it"
        )
    environment = {}
    for config in configs:
        for name, value in (config.pop("env", None) or {}).items():
            environment[str(name)] = str(value)
    return HarnessOptions({**configs[0], **options}, tuple(unknown), environment, len(configs))


def _is_config(content: Any) -> bool:
    return isinstance(content, dict) and isinstance(content.get("env"), dict | None)


def option_names() -> list[str]:
    """Return the names of all options of the installed harness."""
    names: list[str] = []
    for action in _parser()._actions:
        names += action.option_strings
    return names


def seeds(options: HarnessOptions) -> tuple[int | None, ...]:
    """Return the harness's seeds of Python, NumPy, PyTorch and the choice of few-shot examples.

    One value sets all, a missing fourth has its default, and ``None`` sets no seed.

    Raises:
        MedTasksError: ``--seed`` is something else.

    Example:
        >>> seeds(HarnessOptions({"seed": "7,None,9"}))
        (7, None, 9, 1234)
    """
    seed = options.given.get("seed")
    if seed is None:
        return DEFAULT_SEEDS
    items = seed if isinstance(seed, list) else str(seed).split(",")
    values = []
    with contextlib.suppress(TypeError, ValueError):
        values = [None if str(item).strip().lower() == "none" else int(item) for item in items]
    if len(values) not in (1, 3, 4):
        raise MedTasksError(
            f"--seed {seed} is neither one whole number (or None) nor four of them; give --seed 1234"
        )
    if len(values) == 1:
        values *= 4
    return (*values, *DEFAULT_SEEDS[len(values) :])


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise MedTasksError(
            f"lmms-eval does not accept these arguments: {message}; its options: lmms_eval --help"
        )


@functools.cache
def _parser() -> _Parser:
    """Return a parser of the harness's options, in which an option that is not given is None."""
    parser = _Parser(add_help=False)  # accepts every unambiguous abbreviation
    for names in VALUED:
        parser.add_argument(*names.split(","))
    for names in FLAGS:
        parser.add_argument(*names.split(","), action="store_const", const=True)
    return parser


def split_arguments(text: str) -> list[str]:
    """Split ``key=value,...`` at its commas, but for those in quotes and brackets.

    Example:
        >>> split_arguments('until=[a,b],prompt="left, right"')
        ['until=[a,b]', 'prompt="left, right"']
    """
    parts = []
    depth = 0
    quote = ""
    start = 0
    for position, character in enumerate(text):
        if character in "\"'" and text[position - 1 : position] != "\\":
            if quote in ("", character):
                quote = "" if quote else character
        elif not quote:
            depth += _BRACKETS.get(character, 0)
            if character == "," and depth == 0:
                parts.append(text[start:position])
                start = position + 1
    return [*parts, text[start:]]


def model_label(
    name: object,
    arguments: object,
    served: object = None,
) -> str:
    """Return the identity of a model: its name and the arguments that can change an answer, without secrets.

    Args:
        name: Name of the harness's model.
        arguments: ``--model_args`` as text or mapping.
        served: Name that a server states. A model on a server is identified by it, or by the one in its arguments, at
            any address.

    Example:
        >>> model_label("qwen", "pretrained=q,batch_size=8")
        'qwen pretrained=q'
        >>> model_label("vlm_server", "base_url=http://127.0.0.1:8000/v1,concurrency=8", "org/m")
        'org/m (vlm_server)'
        >>> model_label("adapter", "class=my_module:MyVlm,pretrained=q")
        'my_module:MyVlm pretrained=q'
    """
    by_name = HarnessOptions({"model_args": arguments}).model_arguments()
    if name == ADAPTER:
        name = by_name.pop("class", name)
    if str(name).removesuffix("_compatible") in (SERVER, *_SERVED):
        model = by_name.pop("model", None)
        version = by_name.pop("model_version", None)
        served = served or model or version
    others = [f"{key}={value}" for key, value in by_name.items() if key not in TRANSPORT]
    identity = f"{served} ({name})" if served else f"{name or ''}"
    label = f"{identity} {','.join(others)}"
    return without_home(redact(label.replace("[REDACTED]", HIDDEN))).strip()


def model_title(model: str) -> str:
    """Return the name of a :func:`model_label` and that of its weights, without the other arguments.

    Example:
        >>> model_title("medtasks_hf_vlm pretrained=/models/med-vlm,dtype=bfloat16")
        'medtasks_hf_vlm: med-vlm'
    """
    if served := re.match(r"\S+ \(\S+\)", model):
        return served.group()
    name, _, arguments = model.partition(" ")
    for argument in arguments.split(","):
        key, _, weights = argument.partition("=")
        if key in ("pretrained", "model", "model_path") and weights:
            return f"{name}: {Path(weights).name}"
    return name


def asked_options(options: HarnessOptions) -> dict[str, str]:
    """Return the options that decide what a model is asked.

    Returns:
        Values by name. Those of model arguments have names such as ``model_args pretrained``.

    Example:
        >>> asked_options(HarnessOptions({"tasks": "medxpertqa", "model_args": "pretrained=q,timeout=9"}))
        {'tasks': 'medxpertqa', 'model_args pretrained': 'q'}
    """
    decisive = {}
    for name, value in options.given.items():
        if name not in _WITHOUT_EFFECT:
            decisive[name] = str(value)
    for name, value in options.pairs("model_args").items():
        if name not in TRANSPORT:
            decisive[f"model_args {name}"] = value
    return decisive
