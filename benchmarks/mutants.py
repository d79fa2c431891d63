"""Deliberate faults (mutants.toml): does the suite see each of them?

    python benchmarks/mutants.py --table faults.tsv             # all faults, one after the other
    python benchmarks/mutants.py --table faults.tsv bleu-unit   # some of them

The checkout is copied, one fault at a time is put into the copy, and the tests named for it run there until the first
one fails. Each line of the table is written as soon as it is known, and faults that it holds already are skipped, so
that an interrupted run goes on where it stopped. The exit status is 1 if a fault survived.
"""

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
FAULTS = Path(__file__).with_suffix(".toml")
INSTALLED_INSIDE = (
    "model_adapters",
    "tasks_yaml",
)  # folders of the checkout that are subpackages of medtasks
NOT_COPIED = shutil.ignore_patterns(".git", "__pycache__", "*.egg-info", ".*_cache", "build")
LONGEST_S = 300.0
HEADINGS = ("fault", "room", "kind", "result", "test", "seconds", "about")


@dataclass(frozen=True)
class Fault:
    """One deliberate fault."""

    id: str
    room: str
    kind: str
    about: str
    where: str  # file or folder of the checkout in which the old text occurs exactly once
    old: str
    new: str
    tests: tuple[str, ...]  # files and folders that should see it


@dataclass(frozen=True)
class Outcome:
    """Result of the tests of one fault."""

    result: str  # seen, survived, or the reason why it was not tried
    test: str = ""  # the first that failed
    seconds: float = 0.0


class Refused(Exception):
    """A fault does not fit the checkout."""


def read_faults(path: Path, names: list[str]) -> list[Fault]:
    """Read the list of faults, all or those with one of the names.

    Raises:
        Refused: Two faults have one id, or a name is no fault's.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["fault"]
    faults = {
        entry["id"]: Fault(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries
    }
    if len(faults) < len(entries):
        raise Refused(f"{path.name} has two faults with one id.")
    unknown = [name for name in names if name not in faults]
    if unknown:
        raise Refused(f"{path.name} has no fault {', '.join(unknown)}.")
    return [fault for fault in faults.values() if not names or fault.id in names]


def copied(checkout: Path, target: Path) -> None:
    """Copy a checkout so that all of its packages are imported from the copy, whatever is installed."""
    shutil.copytree(checkout, target, ignore=NOT_COPIED, dirs_exist_ok=True)
    for name in INSTALLED_INSIDE:
        (target / "medtasks" / name).symlink_to(target / name)


def file_of(tree: Path, fault: Fault) -> Path:
    """Return the only file that holds the old text of a fault, once.

    Raises:
        Refused: The text is not there, or more than once, or a test file of the fault is missing.
    """
    place = tree / fault.where
    files = sorted(place.rglob("*.*")) if place.is_dir() else [place]
    counts = {
        path: path.read_text(encoding="utf-8").count(fault.old)
        for path in files
        if path.suffix in (".py", ".html", ".js") and path.is_file()
    }
    if sum(counts.values()) != 1:
        raise Refused(
            f"{fault.id}: the old text is {sum(counts.values())} times in {fault.where} instead of once."
        )
    missing = [test for test in fault.tests if not (tree / test.partition("::")[0]).exists()]
    if missing:
        raise Refused(f"{fault.id}: there is no {', '.join(missing)}.")
    return next(path for path, count in counts.items() if count)


@contextlib.contextmanager
def applied(fault: Fault, path: Path) -> Iterator[None]:
    """Put a fault into a file within the block."""
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(text, encoding="utf-8")


def run_tests(tree: Path, tests: tuple[str, ...]) -> Outcome:
    """Run tests in a copy until the first failure."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "--tb=no",
        *tests,
    ]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    started = os.times().elapsed
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
        )
    except subprocess.TimeoutExpired:
        return Outcome("seen", f"no end within {LONGEST_S:.0f} s", LONGEST_S)
    seconds = os.times().elapsed - started
    first = re.search(r"^(FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode == 0:
        return Outcome("survived", "", seconds)
    if done.returncode in (1, 2) and first:
        return Outcome(
            "seen", first[2] if first[1] == "FAILED" else f"error in {first[2]}", seconds
        )
    return Outcome(
        "not tried", f"pytest ended with {done.returncode}: {done.stdout[-200:]!r}", seconds
    )


def outcome(tree: Path, fault: Fault) -> Outcome:
    """Put one fault into the copy, run its tests, and take it out."""
    try:
        path = file_of(tree, fault)
    except Refused as error:
        return Outcome("not tried", str(error))
    with applied(fault, path):
        return run_tests(tree, fault.tests)


def main() -> int:
    """Run the faults of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="ids of faults; all without any")
    parser.add_argument(
        "--table", type=Path, required=True, help="TSV file, extended by what it lacks"
    )
    parser.add_argument(
        "--checkout", type=Path, default=CHECKOUT, help="checkout that is copied"
    )
    parser.add_argument("--faults", type=Path, default=FAULTS, help="list of faults")
    parser.add_argument(
        "--seconds",
        type=float,
        default=float("inf"),
        help="begin no further fault after this time",
    )
    parser.add_argument(
        "--check", action="store_true", help="only check that all old texts are there, once"
    )
    arguments = parser.parse_args()
    try:
        faults = read_faults(arguments.faults, arguments.names)
    except Refused as error:
        sys.exit(str(error))
    if arguments.check:
        problems = []
        for fault in faults:
            try:
                file_of(arguments.checkout, fault)
            except Refused as error:
                problems.append(str(error))
        sys.exit("\n".join(problems) or 0)
    lines = (
        arguments.table.read_text(encoding="utf-8").splitlines()
        if arguments.table.exists()
        else []
    )
    rows = [line.split("\t") for line in lines[1:]]
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        arguments.table.open("a", encoding="utf-8") as table,
    ):
        if not lines:
            print("\t".join(HEADINGS), file=table, flush=True)
        tree, started = Path(folder), os.times().elapsed
        copied(arguments.checkout.resolve(), tree)
        for fault in faults:
            if (
                fault.id in (row[0] for row in rows)
                or os.times().elapsed - started > arguments.seconds
            ):
                continue
            found = outcome(tree, fault)
            row = [
                fault.id,
                fault.room,
                fault.kind,
                found.result,
                found.test,
                f"{found.seconds:.0f}",
                fault.about,
            ]
            rows.append([" ".join(text.split()) for text in row])
            print("\t".join(rows[-1]), file=table, flush=True)
            print(
                f"{fault.id}: {found.result} {found.test} ({found.seconds:.0f} s)", flush=True
            )
    results = [row[3] for row in rows]
    print(f"{results.count('seen')} of {len(results)} faults seen")
    return int(any(result != "seen" for result in results))


if __name__ == "__main__":
    sys.exit(main())
