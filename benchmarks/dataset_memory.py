"""Peak memory of a training dataset over arrays of several sizes, copied, in place and mapped.

python benchmarks/dataset_memory.py
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import rich.console
import rich.table

COLUMNS = 784
BATCHES = 50


def resident(kind: str) -> int:
    """Returns this process's memory in bytes.

    Args:
        kind: `"VmRSS"` for now, `"VmHWM"` for its peak, `"RssAnon"` for now without the pages of
            mapped files, which the system drops when it needs them.
    """
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(kind + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status does not tell {kind}.")


def measure(kind: str, megabytes: int, path: pathlib.Path) -> None:
    """Prints what making and reading a dataset adds to the memory that the array takes, in MB."""
    import tensorflow as tf

    import keras_tpu_kit as ktk

    tf.constant(0)
    rows = megabytes * 2**20 // (4 * COLUMNS)
    before = resident("VmRSS"), resident("RssAnon")
    if kind == "mapped":
        x = np.lib.format.open_memmap(path, "w+", np.float32, (rows, COLUMNS))
    else:
        x = np.ones((rows, COLUMNS), np.float32)
        before = resident("VmRSS"), resident("RssAnon")
    plan = ktk.plan_batches(
        ktk.Topology(accelerator="cpu"), num_samples=rows, global_batch_size=1200
    )
    for _ in ktk.make_dataset(x, plan, seed=0).take(BATCHES):
        pass
    after = resident("VmHWM"), resident("RssAnon")
    added = [(b - a) / 2**20 for a, b in zip(before, after, strict=True)]
    sys.stdout.write(" ".join(f"{value:.0f}" for value in added))


def main() -> None:
    """Measures each kind in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--path", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        measure(arguments.one[0], int(arguments.one[1]), arguments.path)
        return
    table = rich.table.Table(
        "array", "MB", "more at the peak, MB", "more of its own while it trains, MB"
    )
    for kind, megabytes in (("copied", 200), ("copied", 800), ("in place", 1600), ("mapped", 1600)):
        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder) / "x.npy")
            command = [sys.executable, __file__, "--one", kind, str(megabytes), "--path", path]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        table.add_row(kind, str(megabytes), *done.stdout.split())
    rich.console.Console().print(table)


if __name__ == "__main__":
    main()
