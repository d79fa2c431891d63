"""Running ``medtasks`` in this process, as its console script does."""

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from medtasks.cli.main import main
from medtasks.data.document_store import load_documents

from ..scripted_server import Endpoint, serving


@dataclass(frozen=True)
class Ran:
    code: int | str
    out: str
    err: str


def rows_of(out: str, title: str = "") -> dict[str, list[str]]:
    """The rows of the table printed under a title, or of all tables, as texts by the first column."""
    below = out[out.index(title) :].split("└")[0] if title else out
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in below.splitlines()
        if line[:1] == "│"
    ]
    return {first: others for first, *others in rows}


@pytest.fixture
def medtasks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """Run one command; return its exit code and what it printed."""

    def run(*arguments: object, stdin: str | bytes = "") -> Ran:
        typed = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "argv", ["medtasks", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed), encoding="utf-8"))
        monkeypatch.setenv("COLUMNS", "80")
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        printed = capsys.readouterr()
        return Ran(left.value.code or 0, printed.out, printed.err)

    return run


@pytest.fixture
def fails(medtasks: Callable[..., Ran]) -> Callable[..., Ran]:
    """Run a command that must fail with exit code 1 and one sentence on stderr that contains all ``parts``."""

    def run(arguments: Iterable[object], *parts: str, stdin: str | bytes = "") -> Ran:
        ran = medtasks(*arguments, stdin=stdin)
        assert ran.code == 1
        assert ran.err.startswith("medtasks: ")
        assert ran.err.count("\n") == 1, ran.err
        assert "Traceback" not in ran.out + ran.err
        assert [part for part in parts if part not in ran.err] == [], ran.err
        return ran

    return run


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """An LLM on this machine that the environment names."""
    with serving(Endpoint()) as server:
        for name, value in {
            "BASE_URL": server.url,
            "MODEL": "m",
            "ATTEMPTS": "1",
            "CONCURRENCY": "1",
        }.items():
            monkeypatch.setenv(f"MEDTASKS_JUDGE_{name}", value)
        yield server


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a file of replies, one line each; a text is a line as it is."""

    def run(*lines: object, name: str = "replies.jsonl") -> Path:
        path = tmp_path / name
        path.write_text(
            "".join(
                line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines
            )
        )
        return path

    return run


@pytest.fixture
def constant(sample: Path, write: Callable[..., Path]) -> Callable[..., Path]:
    """Write replies to the first ``count`` questions of the sample; ``{}`` in a reply is the question's number."""

    def run(count: int = 32, reply: str = "A") -> Path:
        documents = load_documents("mediconfusion")[:count]
        return write(
            *(
                {"doc_id": row["doc_id"], "reply": reply.format(n)}
                for n, row in enumerate(documents)
            )
        )

    return run
