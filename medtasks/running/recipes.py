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
from pydantic import Field, JsonValue, ValidationError

from medtasks.data.safe_parsing import parse_yaml
from medtasks.errors import MedTasksError, unknown_name
from medtasks.runs.harness_options import HarnessOptions, write_argument
from medtasks.runs.looks import Record
from medtasks.runs.redaction import redacted_options
from medtasks.runs.run_manifest import RecipeFacts

Backend = Literal["hf", "server"]
_BACKENDS: tuple[Backend, ...] = ("hf", "server")
SERVER_MODEL = "vlm_server"
_HF_VLM = "hf_vlm"
_KEY = "recipe"


class Fact(Record):
    """A fact about a model."""

    value: str | bool
    source: str = Field(min_length=1)  # public code with its commit, a page, a paper
    quotation: str = ""  # words of the source


class RecipeScores(Record):
    """Published scores under a protocol that no task here has, so that no table of the report shows them."""

    source: str = Field(min_length=1)
    values: Mapping[str, float]  # as printed, by benchmark
    remark: str = ""


class BackendSettings(Record):
    """Settings of one backend, or the reason why it cannot run the model.

    Attributes:
        model: Name of a model of the harness.
        args: Model arguments in addition to those that follow from the facts.
        serve: Options of ``vllm serve`` in addition to those from facts and ``args``.
        without: Why the backend cannot run the model. Empty if it can.
    """

    model: str = _HF_VLM
    args: Mapping[str, JsonValue] = {}
    serve: tuple[str, ...] = ()
    without: str = ""


class Recipe(Record):
    """Settings to run one model, and facts about it."""

    recipe: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    title: str
    hf: BackendSettings = BackendSettings()
    server: BackendSettings = BackendSettings()
    facts: Mapping[str, Fact] = {}
    traps: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    scores: tuple[RecipeScores, ...] = ()
    # The model's name in tables of published results, by file
    published_as: Mapping[str, str] = {}

    def fact(self, name: str) -> str:
        """Return the value of a fact as text, ``?`` for a fact that the recipe does not have.

        Example:
            >>> Recipe(recipe="a", title="A", facts={"gated": {"value": True, "source": "page"}}).fact("gated")
            'yes'
        """
        if name not in self.facts:
            return "?"
        value = self.facts[name].value
        if isinstance(value, str):
            return value
        return "yes" if value else "no"

    @property
    def digest(self) -> str:
        """Digest of the whole recipe, including the extended one."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"

    @property
    def backends(self) -> tuple[Backend, ...]:
        """The backends that run the model, the preferred one first; none if both of them cannot."""
        return tuple(name for name in _BACKENDS if not getattr(self, name).without)

    def model_options(self, backend: Backend, user_args: Mapping[str, str]) -> tuple[str, str]:
        """Return the harness's ``--model`` and ``--model_args``.

        Args:
            backend: ``"hf"`` or ``"server"``.
            user_args: The user's model arguments, with values as on a command line. They win over those of the recipe;
                with ``pretrained``, the recipe's revision is dropped.

        Returns:
            The name of the model, and its arguments joined as ``name=value,name=value``.

        Raises:
            MedTasksError: The backend cannot run the model, or needs ``base_url``, which only the user knows.
        """
        if not self.backends:
            raise MedTasksError(
                f"the recipe {self.recipe} has no backend: {self.hf.without}; {self.server.without}"
            )
        settings: BackendSettings = getattr(self, backend)
        if settings.without:
            raise MedTasksError(
                f"the recipe {self.recipe} does not run with --backend {backend}: {settings.without}"
            )
        if backend == "hf":
            model = settings.model
            arguments = self._weights_arguments() | {**settings.args}
            if "pretrained" in user_args:  # other weights have other revisions
                arguments.pop("revision", None)
        elif user_args.get("base_url"):
            model = SERVER_MODEL
            arguments = self._request_arguments() | {**settings.args}
        else:
            raise MedTasksError(
                f"--backend server needs the server's address: give --model_args base_url=http://127.0.0.1:8000/v1; it "
                f"is started with: {self.serve_command()}"
            )
        values = {name: write_argument(value) for name, value in arguments.items()}
        return model, ",".join(map("=".join, {**values, **user_args}.items()))

    def _weights_arguments(self) -> dict[str, JsonValue]:
        names = {"pretrained": "hub id", "dtype": "dtype"}
        if self.hf.model == _HF_VLM:
            names["revision"] = "revision"
        return {name: self.fact(key) for name, key in names.items() if key in self.facts}

    def _request_arguments(self) -> dict[str, JsonValue]:
        """Return those arguments of ``hf`` that act on each request or prompt, not on the loading of the weights."""
        names = ("system_prompt", "chat_template_kwargs", "prompt_family")
        return {name: value for name, value in self.hf.args.items() if name in names}

    def serve_command(self) -> str:
        """Return the vLLM command that serves the model with the same settings."""
        words = ["vllm serve", self.fact("hub id")]
        for name in ("revision", "dtype"):
            if name in self.facts:
                words.append(f"--{name} {self.fact(name)}")
        if settings := self.hf.args.get("processor_kwargs"):
            words.append(f"--mm-processor-kwargs '{json.dumps(settings)}'")
        return " ".join([*words, *self.server.serve])

    def command(self, backend: Backend) -> str:
        """Return the equivalent command of the harness itself."""
        address = {"base_url": "URL"} if backend == "server" else {}
        model, arguments = self.model_options(backend, address)
        quoted = "'" + arguments.replace("'", "'\\''") + "'"
        return f"lmms_eval --model {model} --model_args {quoted} --tasks TASKS"


def expansion(
    name: str,
    backend: str,
    options: HarnessOptions,
) -> tuple[list[str], RecipeFacts | None]:
    """Return the harness's arguments from a recipe, with its facts for the manifest.

    Args:
        name: Name of a recipe. If it is empty, there are no arguments and no facts.
        backend: ``"hf"``, ``"server"``, or empty for the one that the recipe prefers.
        options: The user's options of the harness.

    Raises:
        MedTasksError: The recipe or the backend is unknown or does not fit, or the options name a model.
    """
    if not name:
        if backend:
            raise MedTasksError(
                "--backend says where the model of a recipe runs; give --recipe NAME, too"
            )
        return [], None
    chosen = recipe(name, options.folders())
    if backend not in ("", *_BACKENDS):
        raise unknown_name("backend", backend, _BACKENDS)
    if options.text("model"):
        raise MedTasksError(
            f"the recipe {name} names the model; leave --model out, or --recipe"
        )
    user_args = options.written_model_arguments()
    used: Backend = "server" if backend == "server" else "hf"
    if not backend and chosen.backends:
        used = chosen.backends[0]
    model, arguments = chosen.model_options(used, user_args)
    facts = RecipeFacts(
        name=name,
        backend=used,
        digest=chosen.digest,
        given=redacted_options(user_args),
        published_as={} if "pretrained" in user_args else chosen.published_as,
    )
    return ["--model", model, "--model_args", arguments], facts


def recipes(folders: Sequence[Path] = ()) -> Mapping[str, Recipe]:
    """Return all recipes by name, sorted. Those in the user's folders override ours.

    Args:
        folders: Folders of the user. The first one that has a name counts.

    Raises:
        MedTasksError: A file is damaged or malformed.
    """
    by_name: dict[str, Recipe] = {}
    for folder in [_ours(), *reversed(folders)]:
        for path in sorted(folder.rglob("*.yaml")):
            if parsed := _parse_recipe(path):
                by_name[parsed.recipe] = parsed
    return dict(sorted(by_name.items()))


def _parse_recipe(path: Path) -> Recipe | None:
    """Read a file of a recipe, with the file that it extends.

    Returns:
        The recipe, None for a file that is no text or has no key ``recipe``, such as that of a task.

    Raises:
        MedTasksError: The recipe, or the file that it extends, is damaged or malformed.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):  # no text; if it is meant as a task, the harness reports it
        return None
    # Other files are those of tasks, or bases of recipes.
    if not any(line.startswith(f"{_KEY}:") for line in lines):
        return None
    try:
        return Recipe.model_validate(_read_with_base(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise MedTasksError(
            f"the recipe {path} is wrong at '{where}': {first['msg']}; correct it"
        ) from error


def recipe(name: str, folders: Sequence[Path] = ()) -> Recipe:
    """Return one recipe.

    Raises:
        UnknownName: No recipe has that name. The message suggests the nearest one.
        MedTasksError: See :func:`recipes`.
    """
    by_name = recipes(folders)
    if name not in by_name:
        raise unknown_name(_KEY, name, by_name, "medtasks models")
    return by_name[name]


def _ours() -> Path:
    import medtasks.model_adapters.recipes

    return Path(medtasks.model_adapters.recipes.__path__[0])


def _read_with_base(path: Path, above: Sequence[Path] = ()) -> dict[str, Any]:
    """Return the content of a recipe's file with that of the file that it extends.

    Args:
        path: File of a recipe or of a base.
        above: Files that extend it, which cannot be its own base.

    Raises:
        MedTasksError: A file is malformed, or the one that it extends is missing or extends it.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"), loader)
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
    keys = dict(content)
    name = keys.pop("extends", None)
    if name is None:
        return keys
    extending = (*above, path)
    base = _read_with_base(_find_base(str(name), extending), extending)
    if _KEY in base:
        base = _way_of_running(base)
    return _merge(base, keys)


def _find_base(name: str, extending: Sequence[Path]) -> Path:
    """Return the file that a recipe extends.

    Args:
        name: Its path from the recipe's folder, or from that of our recipes.
        extending: The recipe, last, after the files that extend it. None of them can be its base.

    Raises:
        MedTasksError: There is no such file, or it extends the recipe.
    """
    path = extending[-1]
    for folder in (path.parent, _ours()):
        base = folder / name
        # A user's recipe may have the name of ours that it extends.
        if base.is_file() and base not in extending:
            return base
    raise MedTasksError(
        f"the recipe {path} extends {name}, which is not there or extends it; correct 'extends'"
    )


def _merge(base: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's keys over those of its base, whose facts and lists come first."""
    merged = {**base, **keys}
    # Validation reports facts that are no mapping, and other keys that are no list.
    facts = keys.get("facts") or {}
    if isinstance(facts, dict):
        merged["facts"] = {**(base.get("facts") or {}), **facts}
    for key in ("traps", "unknown", "scores"):
        more = keys.get(key) or []
        if isinstance(more, list):
            merged[key] = [*(base.get(key) or ()), *more]
    return merged


def _way_of_running(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a recipe for other weights takes from one: the way to run them, not the facts of its weights."""
    facts = {**(recipe.get("facts") or {})}
    for name in ("hub id", "revision", "parameters", "licence", "gated"):
        facts.pop(name, None)
    settings = {key: recipe[key] for key in ("hf", "server", "traps") if key in recipe}
    return {"facts": facts, **settings}
