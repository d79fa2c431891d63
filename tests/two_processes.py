"""Scripts that run on two processes, as the harness does on two devices."""

import subprocess
import sys
from pathlib import Path

from .processes import run_fresh

# A rank that ends while another still talks to it is aborted by the communication library now and then.
LEAVE = """
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


def on_two_processes(script: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder on two processes."""
    (folder / "ranks.py").write_text(script)
    # `accelerate launch --cpu` starts one process whatever --num_processes says.
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "ranks.py"]
    run = run_fresh([*launch, *arguments], folder, ACCELERATE_USE_CPU="true")
    assert run.returncode == 0, run.stderr[-12000:]
    return run
