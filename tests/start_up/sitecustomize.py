"""The harness reads 1,900 task files when it starts: a parser in C takes a sixth of the time, with the same result.

Garbage is collected less often: looking through all that is imported takes a tenth of the tests' time.
Python imports a module of this name when it starts, so that processes of tests do the same (see ``conftest.py``).
"""

import gc
from typing import Any

import yaml
from yaml.constructor import FullConstructor
from yaml.cyaml import CParser  # type: ignore[attr-defined]  # which its stub leaves out
from yaml.resolver import Resolver


class _QuickLoader(CParser, yaml.loader.FullLoader):
    """``FullLoader``, with the constructors that are added to it."""

    def __init__(self, stream: Any) -> None:
        CParser.__init__(self, stream)
        FullConstructor.__init__(self)
        Resolver.__init__(self)
        self.name = getattr(stream, "name", "<file>")


gc.set_threshold(10_000, 10, 50)
yaml.FullLoader = _QuickLoader  # type: ignore[misc]
