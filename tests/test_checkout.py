"""Python started in a checkout takes the package from there, whatever is installed."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
SCRIPT = """
import sys
sys.path.insert(0, "")
sys.meta_path[:] = [finder for finder in sys.meta_path if "ditable" not in getattr(finder, "__name__", "")]
import medtasks
from medtasks.tasks.task_index import tasks_folder
import medtasks.model_adapters.base.arguments
print(medtasks.__file__, tasks_folder(), medtasks.model_adapters.__file__, sep="\\n")
"""


def test_checkout_without_an_editable_install_is_whole():
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    package, tasks, adapters = map(Path, ran.stdout.splitlines())
    assert package == REPOSITORY / "medtasks/__init__.py"
    assert tasks == REPOSITORY / "tasks_yaml"
    assert adapters == REPOSITORY / "model_adapters/__init__.py"
