"""Recipes: how a published model is run, as data, each fact with its source.

One YAML file per model, ours in ``medtasks.model_adapters.recipes``, the user's own in folders of ``--include_path``:
files with the key ``recipe``, which is the model's name here. ``extends`` names a file beside it, or one of ours, whose
facts and lists come first; its other keys are replaced. Of another recipe only how it is run is taken, not what is
known about its weights. What is not known is left out, and said under ``unknown``.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from medtasks.data.safe_parsing import parse_yaml
from medtasks.errors import MedTasksError, unknown_name
from medtasks.runs.harness_options import HarnessOptions, written
from medtasks.runs.redaction import redacted_options
from medtasks.runs.run_manifest import RecipeFacts

Backend = Literal["hf", "server"]
SERVER_MODEL = "vlm_server"
_HF_VLM = "hf_vlm"
_KEY = "recipe"
_EXTENDS = "extends"
_OF_WEIGHTS = ("hub id", "revision", "parameters", "licence", "gated")
_JOINED = ("traps", "unknown", "scores")
# What of a recipe's arguments a server is told per request; the rest it is told when it starts.
_PER_REQUEST = ("system_prompt", "chat_template_kwargs")


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Fact(_Data):
    """One thing that is known about a model."""

    value: str | bool
    source: str = Field(min_length=1)  # public code with its commit, a page, a paper
    quotation: str = ""  # words of the source


class RecipeScores(_Data):
    """Published scores that stand in no table of the report, because no task here has their protocol."""

    source: str = Field(min_length=1)
    values: Mapping[str, float]  # as printed, by what they are on
    remark: str = ""


class Way(_Data):
    """How one backend runs a model; with ``without`` a reason why it does not."""

    model: str = _HF_VLM  # of the harness
    args: Mapping[str, JsonValue] = {}  # beside those that the facts name
    serve: tuple[str, ...] = ()  # options of ``vllm serve`` beside those that the facts and ``args`` name
    without: str = ""


class Recipe(_Data):
    """How one model is run, and what is known about it."""

    recipe: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    title: str
    hf: Way = Way()
    server: Way = Way()
    facts: Mapping[str, Fact] = {}
    traps: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    scores: tuple[RecipeScores, ...] = ()
    published_as: Mapping[str, str] = {}  # the model's name in tables of published results, by file

    def fact(self, name: str, otherwise: str = "?") -> str:
        """Return the value of a fact as text."""
        if name not in self.facts:
            return otherwise
        value = self.facts[name].value
        return value if isinstance(value, str) else "yes" if value else "no"

    @property
    def digest(self) -> str:
        """Digest of all that the recipe says, that of its ``extends`` included."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"

    @property
    def backends(self) -> tuple[Backend, ...]:
        """The backends that run it, the preferred one first."""
        ways: tuple[tuple[Backend, Way], ...] = (("hf", self.hf), ("server", self.server))
        return tuple(name for name, way in ways if not way.without)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the model in this process."""
        named = {"pretrained": "hub id", "dtype": "dtype"}
        if self.hf.model == _HF_VLM:
            named["revision"] = "revision"
        facts = {argument: self.fact(fact) for argument, fact in named.items() if fact in self.facts}
        return {**facts, **self.hf.args}

    def expanded(self, backend: Backend, given: Mapping[str, str]) -> tuple[str, str]:
        """Return the harness's ``--model`` and ``--model_args``; what the user has ``given`` wins, as it is written.

        MedTasksError: the backend does not run the model, or needs an argument that only the user knows.
        """
        if not self.backends:
            raise MedTasksError(f"the recipe {self.recipe} has no backend: {self.hf.without}; {self.server.without}")
        way = self.hf if backend == "hf" else self.server
        if way.without:
            raise MedTasksError(f"the recipe {self.recipe} does not run with --backend {backend}: {way.without}")
        if backend == "hf":
            known = self.arguments()
            if "pretrained" in given:  # other weights have other revisions
                known.pop("revision", None)
            return way.model, _joined(known, given)
        if not given.get("base_url"):
            raise MedTasksError(
                f"--backend server needs the server's address: give --model_args base_url=http://127.0.0.1:8000/v1; it "
                f"is started with: {self.serve_command()}"
            )
        told = {name: value for name, value in self.hf.args.items() if name in _PER_REQUEST}
        return SERVER_MODEL, _joined({**told, **way.args}, given)

    def serve_command(self) -> str:
        """Return the command of vLLM by which a server runs the model, with the same settings."""
        words = ["vllm serve", self.fact("hub id")]
        words += [f"--{name} {self.fact(name)}" for name in ("revision", "dtype") if name in self.facts]
        if settings := self.hf.args.get("processor_kwargs"):
            words.append(f"--mm-processor-kwargs '{json.dumps(settings)}'")
        return " ".join([*words, *self.server.serve])

    def command(self, backend: Backend) -> str:
        """Return a command by which the harness itself runs the model, without the recipe."""
        model, arguments = self.expanded(backend, {"base_url": "URL"} if backend == "server" else {})
        quoted = "'" + arguments.replace("'", "'\\''") + "'"
        return f"lmms_eval --model {model} --model_args {quoted} --tasks TASKS"


def _joined(known: Mapping[str, Any], given: Mapping[str, str]) -> str:
    """Return ``--model_args``; of what is in both, the given."""
    said = {name: written(value) for name, value in known.items()} | dict(given)
    return ",".join(f"{name}={value}" for name, value in said.items())


def expansion(name: str, backend: str, options: HarnessOptions) -> tuple[list[str], RecipeFacts | None]:
    """Return the harness's arguments that a recipe stands for, and what a manifest says of it; nothing without a name.

    MedTasksError: the recipe or the backend is not known, does not fit, or the options name a model of their own.
    """
    if not name:
        if backend:
            raise MedTasksError("--backend says where the model of a recipe runs; give --recipe NAME, too")
        return [], None
    found = recipe(name, options.folders())
    if backend not in ("", "hf", "server"):
        raise unknown_name("backend", backend, ("hf", "server"))
    if options.text("model"):
        raise MedTasksError(f"the recipe {name} names the model; leave --model out, or --recipe")
    given = options.written_model_arguments()
    chosen: Backend = "server" if backend == "server" else "hf" if backend else (*found.backends, "hf")[0]
    model, arguments = found.expanded(chosen, given)
    same = {} if "pretrained" in given else found.published_as
    told = redacted_options(given)
    facts = RecipeFacts(name=name, backend=chosen, digest=found.digest, given=told, published_as=same)
    return ["--model", model, "--model_args", arguments], facts


def recipes(folders: Sequence[Path] = ()) -> Mapping[str, Recipe]:
    """Return all recipes by name, sorted: ours, and those in folders of the user's, which count before ours.

    A file that is damaged, or says what no recipe says, is a MedTasksError.
    """
    found: dict[str, Recipe] = {}
    for folder in [_ours(), *reversed(folders)]:
        for path in sorted(folder.rglob("*.yaml")):
            if (made := _recipe(path)) is not None:
                found[made.recipe] = made
    return {name: found[name] for name in sorted(found)}


def recipe(name: str, folders: Sequence[Path] = ()) -> Recipe:
    """Return one recipe; an unknown name is an ``UnknownName`` that tells the nearest."""
    known = recipes(folders)
    if name not in known:
        raise unknown_name(_KEY, name, known, "medtasks models list")
    return known[name]


def _ours() -> Path:
    import medtasks.model_adapters.recipes

    return Path(next(iter(medtasks.model_adapters.recipes.__path__)))


def _recipe(path: Path) -> Recipe | None:
    """Return the recipe in a file; None for another file, such as one with a task, or what recipes extend."""
    try:
        if not any(line.startswith(f"{_KEY}:") for line in path.read_text(encoding="utf-8").splitlines()):
            return None
    except (OSError, ValueError):  # no text; if it is to be a task, the harness says so
        return None
    try:
        return Recipe.model_validate(_extended(path, _read(path), ()))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise MedTasksError(f"the recipe {path} is wrong at '{where}': {first['msg']}; correct it") from error


def _extended(path: Path, said: Mapping[str, Any], above: Sequence[Path]) -> dict[str, Any]:
    own = dict(said)
    name = own.pop(_EXTENDS, None)
    if name is None:
        return own
    places = [path.parent / str(name), _ours() / str(name)]
    # One of the user's may have the name of ours that it extends.
    base = next((place for place in places if place.is_file() and place not in (path, *above)), None)
    if base is None:
        raise MedTasksError(f"the recipe {path} extends {name}, which is not there or extends it; correct '{_EXTENDS}'")
    below = _extended(base, _read(base), (*above, path))
    if _KEY in below:  # other weights: how they are run is the same, what they are is not
        facts = {name: fact for name, fact in (below.get("facts") or {}).items() if name not in _OF_WEIGHTS}
        below = {"facts": facts, **{key: below[key] for key in ("hf", "server", "traps") if key in below}}
    merged = {**below, **own}
    if isinstance(facts := own.get("facts") or {}, dict):  # anything else is said to be wrong when all is checked
        merged["facts"] = {**(below.get("facts") or {}), **facts}
    for key in _JOINED:
        if isinstance(more := own.get(key) or [], list):
            merged[key] = [*(below.get(key) or ()), *more]
    return merged


def _read(path: Path) -> Mapping[str, Any]:
    try:
        said = parse_yaml(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, ValueError, yaml.YAMLError) as error:
        where = getattr(error, "problem_mark", None)
        raise MedTasksError(
            f"the recipe {path} cannot be read as YAML{f' in line {where.line + 1}' if where else ''}; correct it or "
            f"move it away"
        ) from error
    if not isinstance(said, dict):
        raise MedTasksError(f"the recipe {path} holds no mapping of keys to values; correct it or move it away")
    return said


def listed(known: Mapping[str, Recipe]) -> Iterator[tuple[str, ...]]:
    """Yield a row of texts per recipe, headings first."""
    yield "name", "parameters", "licence", "gate", "backends", "thinking"
    for one in known.values():
        licence = one.fact("licence").partition(" (")[0]  # without where that is said
        facts = (one.fact("parameters"), licence, one.fact("gated"))
        yield one.recipe, *facts, ", ".join(one.backends) or "none", one.fact("thinking")
