"""The ``radgraph`` package on the installed transformers, as an independent implementation to compare with."""

import contextlib
import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

RELEASE = "0.1.18"


def _encode_plus(self: Any, *args: Any, **options: Any) -> Any:
    return self(*args, **options)


def _build_inputs_with_special_tokens(self: Any, ids: Sequence[int]) -> list[int]:
    return [self.cls_token_id, *ids, self.sep_token_id]


@contextmanager
def package_model(model_type: str, cache: Path) -> Iterator[Any]:
    """Load the package's ``RadGraph`` on the CPU, with the two tokenizer methods that transformers 5 dropped.

    Args:
        model_type: ``"radgraph"`` or ``"radgraph-xl"``.
        cache: Folder with the unpacked archive under that name. The package writes a lock file into it.
    """
    import radgraph

    added = {"encode_plus": _encode_plus, "build_inputs_with_special_tokens": _build_inputs_with_special_tokens}
    missing = {name: method for name, method in added.items() if not hasattr(PreTrainedTokenizerBase, name)}
    for name, method in missing.items():
        setattr(PreTrainedTokenizerBase, name, method)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.redirect_stdout(io.StringIO()):
                model = radgraph.RadGraph(model_type=model_type, model_cache_dir=str(cache), cuda=-1)
            yield model
    finally:
        for name in missing:
            delattr(PreTrainedTokenizerBase, name)


def package_annotations(model: Any, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Annotate texts with a model of :func:`package_model`."""
    found = model(list(texts))
    return [found[str(position)] for position in range(len(texts))]
