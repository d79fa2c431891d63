"""``adapter``: a model class or a function of another package, or of a file in the working directory, by its path.

The harness finds classes by dotted names. So the class that builds such a model is an attribute of this module:
``Adapter`` for the path in ``--model_args class=``, another one for the path of an entry point.
"""

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from operator import attrgetter
from typing import Any

from medtasks.errors import AdapterArgumentError, near_match, one_line
from medtasks.runs.harness_options import HarnessOptions, split_arguments

_DOT = "\u2024"  # in place of each dot of a path, which would end the name of a module
GIVEN: dict[str, Callable[..., Any]] = {}
"""Functions of this process by path, which need not lead to them."""


def harness_name(path: str) -> str:
    """Return the dotted name by which the harness finds the class for a path.

    Args:
        path: Module and class (or function), such as ``my_module:MyVlm``.
    """
    return f"{__name__}.{path.replace('.', _DOT)}"


def path_of(name: str, arguments: Mapping[str, object]) -> str:
    """Return the path of a model.

    Args:
        name: The harness's dotted name of its class.
        arguments: The model's arguments, of which ``class`` counts where the name is that of ``--model adapter``.

    Returns:
        Empty for other models.
    """
    module, _, attribute = name.rpartition(".")
    if module != __name__:
        return ""
    if attribute == "Adapter":
        return str(arguments.get("class") or "")
    return attribute.replace(_DOT, ".")


def check_path(path: str) -> None:
    """Check the form of a path and that there is such a module, without importing it.

    Raises:
        AdapterArgumentError: The path has another form, or there is no such module.
    """
    if path in GIVEN:
        return
    module, _, name = path.partition(":")
    parts = [*module.split("."), *name.split(".")]
    if not all(map(str.isidentifier, parts)) or module.endswith(".py"):
        raise AdapterArgumentError(
            f"--model adapter needs class=my_module:MyVlm in --model_args, the module and the class (or the function) "
            f"of your model, not '{path}'"
        )
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if find_spec(parts[0]) is None:
        raise AdapterArgumentError(
            f"there is no module '{parts[0]}' for class={path}; start in the folder that holds it, or install its "
            f"package"
        )


def load(path: str) -> Any:
    """Import the model class, or the function, that a path names.

    Raises:
        AdapterArgumentError: The path names nothing that can be imported, or no model.
    """
    check_path(path)
    module_name, _, name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise AdapterArgumentError(
            f"module '{module_name}' cannot be imported ({one_line(error)}); correct it, or install what it needs"
        ) from error
    try:
        target = attrgetter(name)(module)
    except AttributeError:
        raise AdapterArgumentError(
            f"module '{module_name}' has no '{name}'{near_match(name, vars(module))}"
        ) from None
    from lmms_eval.api.model import lmms  # imports torch, which takes seconds

    is_model = issubclass(target, lmms) if isinstance(target, type) else callable(target)
    if not is_model:
        raise AdapterArgumentError(
            f"class={path} is no model; it has to be a subclass of MedicalAdapter, another model class of lmms-eval, "
            f"or a function that answers questions (model_adapters/README.md, 'Writing an adapter')"
        )
    return target


def takes_our_arguments(class_path: str) -> bool:
    """Return whether a model, given by the dotted name of its class, takes the arguments of our adapters.

    Raises:
        AdapterArgumentError: It is no class of this package or the harness, and cannot be imported.
    """
    package = class_path.partition(".")[0]
    if package in ("", "medtasks", "lmms_eval"):
        return package == "medtasks"
    from .base.harness_adapter import HarnessAdapter  # imports torch, which takes seconds

    target = load(":".join(class_path.rsplit(".", 1)))
    return not isinstance(target, type) or issubclass(target, HarnessAdapter)


def __getattr__(name: str) -> Any:
    """Return the class by which the harness builds a model. The harness is imported when it asks for it."""
    if name != "Adapter" and ":" not in name:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from lmms_eval.api.model import lmms

    class Adapter(lmms):  # type: ignore[misc]  # the harness is not typed
        @classmethod
        def create_from_arg_string(
            cls,
            arg_string: str,
            additional_config: Mapping[str, object] | None = None,
        ) -> Any:
            """Build the model that ``class=`` or the name leads to, a function as one too, from all other arguments.

            Args:
                arg_string: The text of ``--model_args``.
                additional_config: The harness's own options, if it has any.
            """
            arguments = HarnessOptions({"model_args": arg_string}).model_arguments()
            path = path_of(f"{__name__}.{name}", arguments)
            target: Any = GIVEN.get(path) or load(path)
            if not isinstance(target, type):
                from .function_model import FunctionModel

                target = type(
                    "FunctionModel",
                    (FunctionModel,),
                    {"function": staticmethod(target), "__module__": FunctionModel.__module__},
                )
            parts = split_arguments(arg_string)
            others = [part for part in parts if part.partition("=")[0].strip() != "class"]
            model = target.create_from_arg_string(",".join(others), additional_config)
            # The name by which the guard of credentialed data knows it.
            model.named_as = path.replace(":", ".")
            return model

    return Adapter
