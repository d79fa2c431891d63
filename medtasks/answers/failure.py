"""How a model adapter tells the scoring side that one sample failed, through a harness that only carries text."""

_PREFIX = "[[medtasks:adapter_failed]] "


def failed_reply(cause: str) -> str:
    """Return the reply to hand to the harness for a sample the adapter could not run."""
    return _PREFIX + " ".join(cause.split())


def failure_cause(reply: str) -> str | None:
    """Return the cause if ``reply`` marks a failed sample, else ``None``."""
    stripped = reply.strip()
    return stripped.removeprefix(_PREFIX.strip()).lstrip() if stripped.startswith(_PREFIX.strip()) else None
