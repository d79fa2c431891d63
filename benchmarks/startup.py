"""What the plug-in costs at start-up: ``--tasks list`` with it against without, alternating in the same run.

Prints the medians in seconds and their ratio; exits with 1 when the ratio is above 1.05.

    python benchmarks/startup.py [ROUNDS]
"""

import os
import statistics
import subprocess
import sys
import time

COMMAND = [sys.executable, "-m", "lmms_eval", "--tasks", "list"]


def seconds(autoload: str) -> float:
    """Time one start, in seconds."""
    began = time.perf_counter()
    environment = {**os.environ, "MEDTASKS_AUTOLOAD": autoload}
    shown = subprocess.run(
        COMMAND, env=environment, capture_output=True, text=True, check=True
    ).stdout
    taken = time.perf_counter() - began
    if ("mediconfusion" in shown) != (autoload == "1"):
        raise SystemExit(
            "the plug-in is not switched by MEDTASKS_AUTOLOAD; is medtasks installed?"
        )
    return taken


def main() -> None:
    """Alternate both starts so that a busy machine slows both alike."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    seconds("0"), seconds("1")  # fills the file cache
    pairs = [(seconds("0"), seconds("1")) for _ in range(rounds)]
    without, with_plugin = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    print(
        f"without {without:.2f} s, with {with_plugin:.2f} s, median ratio {ratio:.3f} over {rounds} rounds"
    )
    sys.exit(ratio > 1.05)


if __name__ == "__main__":
    main()
