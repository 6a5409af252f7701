"""Chips are recognised by the exact board, or not at all."""

import pytest

from keras_tpu_kit.strategy.chips import gpu_chip, tpu_chip
from keras_tpu_kit.throughput import CHIPS


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("Tesla V100-PCIE-16GB", None),
        ("A100-SXM4-40GB", "A100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-PCIE-40GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", None),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H200", "H200"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("", None),
        (None, None),
    ],
)
def test_gpus(name, chip):
    assert gpu_chip(name) == chip
    assert chip is None or chip in CHIPS


@pytest.mark.parametrize(
    ("accelerator_type", "chip"),
    [
        ("v2-8", "TPU v2"),
        ("v3-8", "TPU v3"),
        ("v4-8", "TPU v4"),
        ("v5litepod-4", "TPU v5e"),
        ("v5e", "TPU v5e"),
        ("v5p-8", "TPU v5p"),
        ("v6e-8", "TPU v6e"),
        ("v9-8", None),
        ("", None),
        (None, None),
    ],
)
def test_tpus(accelerator_type, chip):
    assert tpu_chip(accelerator_type) == chip
    assert chip is None or chip in CHIPS
