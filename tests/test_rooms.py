"""Rooms use only rooms above them in the table of CONTRIBUTING.md."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "medtasks"
_, _, PART = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## Rooms\n")
TABLE = re.findall(r"^\| `(\w+)` \| ", PART.partition("\n## ")[0], re.MULTILINE)


def rooms() -> dict[str, list[Path]]:
    """Return the modules of each room: a folder of the package, or a module directly in it."""
    entries = [
        path
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    ]
    folders = [
        path for path in (*entries, ROOT / "model_adapters") if path.name != "__init__.py"
    ]
    return {path.stem: [*path.rglob("*.py")] if path.is_dir() else [path] for path in folders}


def imported_rooms(module: Path) -> set[str]:
    """Return the rooms that a module imports from, inside functions and by string too; empty for an unknown one."""
    names = []
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            parts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
            names += [str(part) for part in parts if str(part).startswith("medtasks.")]
    # tasks_yaml holds no code
    return {name.split(".")[1] for name in names if name.startswith("medtasks.")} - {
        "tasks_yaml"
    }


def test_the_table_names_every_room():
    assert sorted(TABLE) == sorted(rooms())


def test_no_import_points_down_the_table():
    wrong = [
        f"{module.relative_to(ROOT)} uses {used}"
        for room, modules in rooms().items()
        for module in modules
        for used in sorted(imported_rooms(module))
        if not used or TABLE.index(used) > TABLE.index(room)
    ]
    assert wrong == []
