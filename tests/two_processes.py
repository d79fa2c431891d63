"""Scripts that run on two processes, as the harness does on two devices."""

import os
import subprocess
import sys
from pathlib import Path

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
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    environment |= {"ACCELERATE_USE_CPU": "true", "HF_HUB_OFFLINE": "1"}
    run = subprocess.run([*launch, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-12000:]
    return run
