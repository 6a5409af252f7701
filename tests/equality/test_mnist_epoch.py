"""An epoch of digits through factory, dataset and plan ends with the weights of one replica."""

import json
import os
import subprocess
import sys

import pytest

from tests.equality.cells import TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("dtype", sorted(TOLERANCE))
def test_every_number_of_replicas_ends_with_the_same_weights(dtype):
    done = subprocess.run(
        [sys.executable, "-m", "tests.equality.mnist_epoch", dtype],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    gaps = json.loads(done.stdout.splitlines()[-1])["gaps"]
    assert set(gaps) == {"2", "4", "8"}
    assert max(gaps.values()) < TOLERANCE[dtype]
