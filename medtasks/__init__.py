"""Medical vision-language benchmarks and model adapters for lmms-eval.

From Python: :func:`score`, :func:`evaluate`, :func:`parse`, :func:`read_run`, :func:`compare` and :func:`board`.
They are in :mod:`medtasks.scores.api`.
"""

import os
from typing import TYPE_CHECKING, Any

from medtasks.version import __version__ as __version__

__all__ = ["Run", "Scores", "board", "compare", "evaluate", "parse", "read_run", "score"]

if TYPE_CHECKING:
    from medtasks.scores.api import (
        Run,
        Scores,
        board,
        compare,
        evaluate,
        parse,
        read_run,
        score,
    )
else:

    def __getattr__(name: str) -> Any:
        """Load the functions for Python on first use: the harness imports this package at every start."""
        if name not in __all__:
            raise AttributeError(f"module 'medtasks' has no attribute '{name}'")
        from medtasks.scores import api

        return getattr(api, name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


# In a checkout, tasks_yaml/ and model_adapters/ are next to this folder and not in it. Python started in the checkout
# imports from there even when the package is installed, so they have to be found there, too.
if not os.path.isdir(os.path.join(os.path.dirname(__file__), "tasks_yaml")):
    __path__.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
