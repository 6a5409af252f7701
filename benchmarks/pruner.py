"""What the median pruner saves on the search of examples/search_mnist.py, and what it loses.

    python benchmarks/pruner.py --data mnist.npz --json pruner.json

For each of five seeds the search of 20 trials of 5 epochs runs with the pruner and without, in a
process of its own. Epochs and the winner's validation accuracy are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import Any

import rich.console
import rich.table

ROOT = pathlib.Path(__file__).parents[1]
GOAL_SAVED, GOAL_LOST = 0.25, 0.002


def child(arguments: argparse.Namespace) -> None:
    """Searches once and prints epochs and the best accuracy as JSON."""
    sys.path.insert(0, str(ROOT / "examples"))
    import search_mnist

    train, _ = search_mnist.load_data(arguments.data)
    train, validation = search_mnist.split(*train)
    with tempfile.TemporaryDirectory() as folder:
        tuner = search_mnist.make_tuner(
            train[0].shape[1],
            arguments.trials,
            arguments.child[0],
            bool(arguments.child[1]),
            folder,
            log="quiet",
        )
        tuner.search(train, validation_data=validation, epochs=arguments.epochs)
        results = tuner.results()
        scores = [trial.score for trial in tuner.oracle.get_best_trials(1)]
    told = {
        "epochs": sum(each["epochs"] for each in results),
        "pruned": sum(each["outcome"] == "pruned" for each in results),
        "best": scores[0],
    }
    sys.stdout.write("RESULT " + json.dumps(told))


def search(arguments: argparse.Namespace, seed: int, prune: bool) -> dict[str, Any]:
    """Returns what one search in a new process came to."""
    own = ["--data", arguments.data, "--trials", arguments.trials, "--epochs", arguments.epochs]
    done = subprocess.run(
        [sys.executable, __file__, *map(str, own), "--child", str(seed), str(int(prune))],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    told: dict[str, Any] = json.loads(done.stdout.partition("RESULT ")[2])
    return told


def main() -> int:
    """Prints a row for each seed and returns 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="an mnist.npz file")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures")
    parser.add_argument("--child", type=int, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.data = str(pathlib.Path(arguments.data).resolve())
    if arguments.child:
        child(arguments)
        return 0
    table = rich.table.Table("seed", "epochs", "without", "saved", "pruned", "best", "without")
    rows = []
    for seed in arguments.seeds:
        pruned, whole = (search(arguments, seed, prune) for prune in (True, False))
        row = {
            "seed": seed,
            "pruned": pruned,
            "whole": whole,
            "saved": 1 - pruned["epochs"] / whole["epochs"],
            "lost": whole["best"] - pruned["best"],
        }
        rows.append(row)
        table.add_row(
            str(seed),
            str(pruned["epochs"]),
            str(whole["epochs"]),
            f"{row['saved']:.0%}",
            str(pruned["pruned"]),
            f"{pruned['best']:.4f}",
            f"{whole['best']:.4f}",
        )
    saved = statistics.median(row["saved"] for row in rows)
    lost = statistics.median(row["lost"] for row in rows)
    console = rich.console.Console()
    console.print(table, f"Medians: {saved:.0%} of the epochs saved, {lost:.4f} of accuracy lost.")
    if arguments.json:
        arguments.json.write_text(json.dumps({"saved": saved, "lost": lost, "rows": rows}))
    return int(saved < GOAL_SAVED or lost > GOAL_LOST)


if __name__ == "__main__":
    sys.exit(main())
