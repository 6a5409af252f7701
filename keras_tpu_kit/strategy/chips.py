"""Names chips as the table of peaks spells them; what it does not know for sure is `None`."""

from __future__ import annotations

import re

# A peak differs between the boards of one name (H100 SXM and PCIe, V100 SXM2 and PCIe, laptop
# parts, MIG slices), so only the board whose peak the table holds is recognised.
_GPU_NAMES = (
    (r"Tesla T4", "T4"),
    (r"Tesla V100-(SXM2|SXM3|DGXS)-\d+GB(-LS)?", "V100"),
    (r"(NVIDIA )?A100-(SXM4|SXM|PCIE|PCI)-\d+GB", "A100"),
    (r"NVIDIA A100 80GB PCIe", "A100"),
    (r"NVIDIA L4", "L4"),
    (r"NVIDIA H100( SXM5?)?( 80GB)? HBM3", "H100"),
    (r"NVIDIA H200", "H200"),
    (r"(NVIDIA )?GeForce RTX 4090", "RTX 4090"),
)

_TPU_GENERATIONS = {
    "v2": "TPU v2",
    "v3": "TPU v3",
    "v4": "TPU v4",
    "v5e": "TPU v5e",
    "v5lite": "TPU v5e",
    "v5litepod": "TPU v5e",
    "v5p": "TPU v5p",
    "v6e": "TPU v6e",
}


def gpu_chip(device_name: str | None) -> str | None:
    """Returns the chip of a GPU by the name that its driver gives, or `None`.

    Example:

    >>> gpu_chip("Tesla V100-SXM2-16GB"), gpu_chip("NVIDIA H100 80GB HBM3")
    ('V100', 'H100')
    >>> gpu_chip("NVIDIA H100 PCIe") is None       # another peak than the SXM board's
    True
    """
    for pattern, chip in _GPU_NAMES:
        if device_name and re.fullmatch(pattern, device_name.strip()):
            return chip
    return None


def tpu_chip(accelerator_type: str | None) -> str | None:
    """Returns the chip of an accelerator type (`"v3-8"`, `"v5litepod-4"`), or `None`.

    Source: https://cloud.google.com/tpu/docs/supported-tpu-configurations

    Example:

    >>> tpu_chip("v5litepod-4")
    'TPU v5e'
    """
    generation = (accelerator_type or "").strip().lower().split("-")[0]
    return _TPU_GENERATIONS.get(generation)
