"""Recipes: how a published model is run, as data, each fact with its source.

One YAML file per model: ours in ``medtasks.model_adapters.recipes``, the user's in folders of ``--include_path``. The
key ``recipe`` gives the model's name. ``extends`` names a file in the same folder, or one of ours, whose facts and
lists come first; other keys are replaced. Of another recipe only the way to run it is taken, not facts on weights.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from medtasks.data.safe_parsing import parse_yaml
from medtasks.errors import MedTasksError, unknown_name
from medtasks.runs.harness_options import HarnessOptions, write_argument
from medtasks.runs.redaction import redacted_options
from medtasks.runs.run_manifest import RecipeFacts

Backend = Literal["hf", "server"]
SERVER_MODEL = "vlm_server"
_HF_VLM = "hf_vlm"
_KEY = "recipe"


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Fact(_Data):
    """A fact about a model."""

    value: str | bool
    source: str = Field(min_length=1)  # public code with its commit, a page, a paper
    quotation: str = ""  # words of the source


class RecipeScores(_Data):
    """Published scores under a protocol that no task here has, so that no table of the report shows them."""

    source: str = Field(min_length=1)
    values: Mapping[str, float]  # as printed, by benchmark
    remark: str = ""


class Way(_Data):
    """Settings of one backend, or the reason why it cannot run the model."""

    model: str = _HF_VLM  # of the harness
    args: Mapping[str, JsonValue] = {}  # in addition to those that follow from the facts
    serve: tuple[
        str, ...
    ] = ()  # options of ``vllm serve`` in addition to those from facts and ``args``
    without: str = ""  # why the backend cannot run the model; empty if it can


class Recipe(_Data):
    """Settings to run one model, and facts about it."""

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
        """Digest of the whole recipe, including the extended one."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"

    @property
    def backends(self) -> tuple[Backend, ...]:
        """The backends that run it, the preferred one first."""
        ways: tuple[tuple[Backend, Way], ...] = (("hf", self.hf), ("server", self.server))
        return tuple(name for name, way in ways if not way.without)

    def expanded(self, backend: Backend, given: Mapping[str, str]) -> tuple[str, str]:
        """Return the harness's ``--model`` and ``--model_args``; ``given`` are the user's arguments, which win.

        Raises MedTasksError if the backend cannot run the model, or needs an argument that only the user knows.
        """
        if not self.backends:
            raise MedTasksError(
                f"the recipe {self.recipe} has no backend: {self.hf.without}; {self.server.without}"
            )
        way = self.hf if backend == "hf" else self.server
        if way.without:
            raise MedTasksError(
                f"the recipe {self.recipe} does not run with --backend {backend}: {way.without}"
            )
        if backend == "hf":
            fact_names = {"pretrained": "hub id", "dtype": "dtype"}
            if way.model == _HF_VLM:
                fact_names["revision"] = "revision"
            facts = {
                argument: self.fact(fact)
                for argument, fact in fact_names.items()
                if fact in self.facts
            }
            model, arguments = way.model, {**facts, **way.args}
            if "pretrained" in given:  # other weights have other revisions
                arguments.pop("revision", None)
        elif given.get("base_url"):
            # Sent to a server per request, not at its start.
            names = ("system_prompt", "chat_template_kwargs", "prompt_family")
            per_request = {name: value for name, value in self.hf.args.items() if name in names}
            model, arguments = SERVER_MODEL, {**per_request, **way.args}
        else:
            raise MedTasksError(
                f"--backend server needs the server's address: give --model_args base_url=http://127.0.0.1:8000/v1; it "
                f"is started with: {self.serve_command()}"
            )
        values = {name: write_argument(value) for name, value in arguments.items()} | dict(given)
        return model, ",".join(f"{name}={value}" for name, value in values.items())

    def serve_command(self) -> str:
        """Return the vLLM command that serves the model with the same settings."""
        words = ["vllm serve", self.fact("hub id")]
        words += [
            f"--{name} {self.fact(name)}" for name in ("revision", "dtype") if name in self.facts
        ]
        if settings := self.hf.args.get("processor_kwargs"):
            words.append(f"--mm-processor-kwargs '{json.dumps(settings)}'")
        return " ".join([*words, *self.server.serve])

    def command(self, backend: Backend) -> str:
        """Return the equivalent command of the harness itself."""
        model, arguments = self.expanded(
            backend, {"base_url": "URL"} if backend == "server" else {}
        )
        quoted = "'" + arguments.replace("'", "'\\''") + "'"
        return f"lmms_eval --model {model} --model_args {quoted} --tasks TASKS"


def expansion(
    name: str, backend: str, options: HarnessOptions
) -> tuple[list[str], RecipeFacts | None]:
    """Return the harness's arguments from a recipe, with its facts for the manifest; nothing without a name.

    Raises MedTasksError if the recipe or the backend is unknown or does not fit, or the options name a model.
    """
    if not name:
        if backend:
            raise MedTasksError(
                "--backend says where the model of a recipe runs; give --recipe NAME, too"
            )
        return [], None
    chosen = recipe(name, options.folders())
    if backend not in ("", "hf", "server"):
        raise unknown_name("backend", backend, ("hf", "server"))
    if options.text("model"):
        raise MedTasksError(f"the recipe {name} names the model; leave --model out, or --recipe")
    given = options.written_model_arguments()
    way: Backend = (
        "server" if backend == "server" else "hf" if backend else (*chosen.backends, "hf")[0]
    )
    model, arguments = chosen.expanded(way, given)
    facts = RecipeFacts(
        name=name,
        backend=way,
        digest=chosen.digest,
        given=redacted_options(given),
        published_as={} if "pretrained" in given else chosen.published_as,
    )
    return ["--model", model, "--model_args", arguments], facts


def recipes(folders: Sequence[Path] = ()) -> Mapping[str, Recipe]:
    """Return all recipes by name, sorted; those in the user's folders override ours.

    Raises MedTasksError for a damaged or malformed file.
    """
    by_name: dict[str, Recipe] = {}
    for path in (
        path for folder in [_ours(), *reversed(folders)] for path in sorted(folder.rglob("*.yaml"))
    ):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError):  # no text; if it is meant as a task, the harness reports it
            continue
        if not any(
            line.startswith(f"{_KEY}:") for line in lines
        ):  # a task's file, or a base of recipes
            continue
        try:
            made = Recipe.model_validate(_extended(path))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise MedTasksError(
                f"the recipe {path} is wrong at '{where}': {first['msg']}; correct it"
            ) from error
        by_name[made.recipe] = made
    return dict(sorted(by_name.items()))


def recipe(name: str, folders: Sequence[Path] = ()) -> Recipe:
    """Return one recipe. Raises UnknownName with the nearest name."""
    by_name = recipes(folders)
    if name not in by_name:
        raise unknown_name(_KEY, name, by_name, "medtasks models")
    return by_name[name]


def _ours() -> Path:
    import medtasks.model_adapters.recipes

    return Path(next(iter(medtasks.model_adapters.recipes.__path__)))


def _extended(path: Path, above: Sequence[Path] = ()) -> dict[str, Any]:
    """Return the content of a recipe's file with that of the file that it extends; ``above`` are those extending it."""
    keys = _read_mapping(path)
    name = keys.pop("extends", None)
    if name is None:
        return keys
    candidates = [path.parent / str(name), _ours() / str(name)]
    # A user's recipe may have the name of ours that it extends.
    base = next(
        (file for file in candidates if file.is_file() and file not in (path, *above)), None
    )
    if base is None:
        raise MedTasksError(
            f"the recipe {path} extends {name}, which is not there or extends it; correct 'extends'"
        )
    below = _extended(base, (*above, path))
    if _KEY in below:
        below = _way_of_running(below)
    merged = {**below, **keys}
    if isinstance(facts := keys.get("facts") or {}, dict):  # validation reports anything else
        merged["facts"] = {**(below.get("facts") or {}), **facts}
    for key in ("traps", "unknown", "scores"):
        if isinstance(more := keys.get(key) or [], list):
            merged[key] = [*(below.get(key) or ()), *more]
    return merged


def _read_mapping(path: Path) -> dict[str, Any]:
    """Return the content of a recipe's file. Raises MedTasksError if it is no YAML, or no mapping."""
    try:
        content = parse_yaml(
            path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        )
    except (OSError, ValueError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise MedTasksError(
            f"the recipe {path} cannot be read as YAML{where}; correct it or move it away"
        ) from error
    if not isinstance(content, dict):
        raise MedTasksError(
            f"the recipe {path} holds no mapping of keys to values; correct it or move it away"
        )
    return dict(content)


def _way_of_running(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a recipe for other weights takes from one: the way to run them, not the facts of its weights."""
    of_weights = ("hub id", "revision", "parameters", "licence", "gated")
    facts = {
        name: fact for name, fact in (recipe.get("facts") or {}).items() if name not in of_weights
    }
    return {
        "facts": facts,
        **{key: recipe[key] for key in ("hf", "server", "traps") if key in recipe},
    }
