"""What goes with a reply from a filter to ``process_results``: the rule that shall read it, and what is noted of it.

A filter of the harness sees one rank's replies without their documents, and scoring is not told which filter it
follows. So a filter only puts a reply into an envelope, which scoring opens where the document is at hand. It is JSON
text and not an object, because the harness strips white space from generated replies; the harness also cuts ``<think>``
blocks out of what it gets, so the JSON holds no ``<``, and a rule sees the reply as the model gave it.
"""

import contextlib
import json
from collections.abc import Sequence
from typing import Any

from medtasks.families.family import Reply, Row
from medtasks.harness.loglikelihood import parse_loglikelihood

_BEGINS = '{"rule": '


def enveloped(reply: Any, row: Row, **noted: Any) -> str:
    """Return a reply with the row that shall read it, and what else is noted of it, as text without ``<``."""
    how = {} if row.option_form is None else {"option": row.option_form}
    fenced = {"fenced": True} if row.fenced else {}
    content = {"rule": row.extractor, **how, **fenced, **noted, "reply": reply}
    return json.dumps(content, ensure_ascii=False).replace("<", "\\u003c")


def opened(result: Any) -> tuple[Reply, Row]:
    """Return the reply and how it is read, from an envelope or from a reply without one."""
    content: dict[str, Any] = {"rule": None, "reply": result}
    if isinstance(result, str) and result.startswith(_BEGINS):  # a reply of a thousand brackets is no JSON to parse
        with contextlib.suppress(ValueError):
            parsed = json.loads(result)
            content = parsed if content.keys() <= parsed.keys() else content
    text = Reply.of_text(content["reply"])
    reply = Reply(text.text, None, text.cut, "labels" in content, content.get("labels"))
    return reply, Row(content["rule"], content.get("option"), bool(content.get("fenced")))


def opened_all(results: Sequence[Any]) -> tuple[Reply, Row]:
    """Return what the harness hands to ``process_results``: one text, or one log-likelihood per option."""
    if not in_words(results):
        if all(isinstance(result, dict) for result in results):
            return Reply(losses=tuple(result["loss"] for result in results)), Row(results[0]["rule"])
        return Reply(losses=tuple(parse_loglikelihood(result)[0] for result in results)), Row()
    return opened(results[0])


def in_words(results: Sequence[Any]) -> bool:
    """Return whether the results are one text, and no log-likelihoods."""
    return len(results) == 1 and not isinstance(results[0], dict)
