"""The harness reads 1,900 task files when it starts: a parser in C takes a sixth of the time, with the same result.

Python imports a module of this name when it starts, so that processes of tests do the same (see ``conftest.py``).
"""

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


yaml.FullLoader = _QuickLoader  # type: ignore[misc]
