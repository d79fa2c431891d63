"""Damages to the files of a source: a member of an archive is named behind ``!``, and packed tables are unpacked."""

import gzip
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

from .multimedeval_sources import json_lines, put, put_parquet, put_zip

Damage = Callable[[Path], object]


def content(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def changed(file: str, change: Callable[[bytes], bytes]) -> Damage:
    name, _, member = file.partition("!")

    def run(source: Path) -> None:
        path = source / name
        if member:
            members = content(path)
            put_zip(path, {**members, member: change(members[member])})
        elif name.endswith(".csv.gz"):
            path.write_bytes(gzip.compress(change(gzip.decompress(path.read_bytes()))))
        else:
            path.write_bytes(change(path.read_bytes()))

    return run


def text(file: str, old: str, new: str) -> Damage:
    """Replace the first place of a text, which must be there."""

    def change(data: bytes) -> bytes:
        assert old.encode() in data
        return data.replace(old.encode(), new.encode(), 1)

    return changed(file, change)


def written(file: str, data: bytes | str) -> Damage:
    name, _, member = file.partition("!")
    encoded = data if isinstance(data, bytes) else data.encode()
    return (
        changed(file, lambda _: encoded)
        if member
        else lambda source: put(source / name, encoded)
    )


def cut(file: str, length: int) -> Damage:
    return lambda source: (source / file).write_bytes((source / file).read_bytes()[:length])


def lost(*files: str) -> Damage:
    def run(source: Path) -> None:
        for file in files:
            name, _, member = file.partition("!")
            path = source / name
            if member:
                put_zip(
                    path, {name: data for name, data in content(path).items() if name != member}
                )
            elif path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    return run


def both(*damages: Damage) -> Damage:
    return lambda source: [damage(source) for damage in damages]


def row(file: str, number: int | str, **fields: Any) -> Damage:
    """Change fields of a row, counted from 1, of a list, or of an entry of an object, in JSON or parquet."""

    def json_text(data: bytes) -> bytes:
        lines = file.endswith(".jsonl")
        rows: Any = (
            [json.loads(line) for line in data.splitlines()] if lines else json.loads(data)
        )
        rows[number if isinstance(number, str) else number - 1] |= fields
        return (json_lines(rows) if lines else json.dumps(rows)).encode()

    def parquet(source: Path) -> None:
        rows = parquet_rows(source / file)
        rows[int(number) - 1] |= fields
        put_parquet(source / file, rows)

    return parquet if file.endswith(".parquet") else changed(file, json_text)


def every_row(file: str, **fields: Any) -> Damage:
    """Change fields of all rows of a parquet file, in which a column has one type."""
    return lambda source: put_parquet(
        source / file, [{**row, **fields} for row in parquet_rows(source / file)]
    )


def parquet_rows(file: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(file).to_pylist()
    return rows


def arrays(**new: Any) -> Damage:
    """Replace arrays of OCTMNIST, or (None) leave them out."""

    def run(source: Path) -> None:
        with np.load(source / "octmnist.npz") as known:
            remaining = {
                key: value for key, value in ({**known} | new).items() if value is not None
            }
        np.savez_compressed(source / "octmnist.npz", **remaining)

    return run
