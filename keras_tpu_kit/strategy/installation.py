"""What is installed on this machine and what TensorFlow makes of it, as a value to judge."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import sys
from typing import Any

from keras_tpu_kit import backend
from keras_tpu_kit._version import __version__
from keras_tpu_kit.checks import environment as rules
from keras_tpu_kit.errors import Finding
from keras_tpu_kit.processes import EXIT_TIMED_OUT, run_limited
from keras_tpu_kit.strategy.environment import TPU_VARIABLES, has_nvidia_driver, tpu_chips

_PACKAGES = ("keras", "keras-tuner", "numpy", "tensorboard", "jax", "jaxlib", "libtpu")
_VARIABLES = (
    *TPU_VARIABLES,
    "TPU_ACCELERATOR_TYPE",
    "TPU_SKIP_MDS_QUERY",
    "CUDA_VISIBLE_DEVICES",
    "KERAS_BACKEND",
    "TF_CONFIG",
    "TF_USE_LEGACY_KERAS",
    "XLA_FLAGS",
)
_MARK = "keras_tpu_kit answer: "
# Run elsewhere, since merely importing TensorFlow may hang where its TPU wheel finds no TPU.
_ASK_TENSORFLOW = f"""
import json, tensorflow as tf
devices = tf.config.list_physical_devices()
gpus = [tf.config.experimental.get_device_details(device).get("device_name")
        for device in devices if device.device_type == "GPU"]
print({_MARK!r} + json.dumps({{"version": tf.__version__, "gpus": gpus,
                               "devices": [device.name for device in devices]}}))
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Installation:
    """Versions, wheels, variables and devices of this machine.

    Args:
        python: Major and minor version.
        system: Name of the operating system and the processor's architecture.
        wheels: Wheels that provide the module `tensorflow`, with their versions.
        packages: Versions of the other packages, `None` where one is missing.
        variables: Variables about hardware that are set.
        num_tpu_chips: TPU chips of this machine.
        has_nvidia_driver: Whether the NVIDIA driver is loaded.
        devices: Names of the devices that TensorFlow sees; `None` if it could not be asked.
        gpus: What the driver calls each GPU.
        faults: What kept TensorFlow from answering.
    """

    python: tuple[int, int]
    system: str
    wheels: dict[str, str]
    packages: dict[str, str | None]
    variables: dict[str, str]
    num_tpu_chips: int = 0
    has_nvidia_driver: bool = False
    devices: tuple[str, ...] | None = None
    gpus: tuple[str, ...] = ()
    faults: tuple[Finding, ...] = ()

    def findings(self) -> list[Finding]:
        """Returns what would make training fail, or slow, or wrong."""
        packages, variables = self.packages, self.variables
        num_gpus = sum("GPU" in device for device in self.devices or ())
        judged = [
            rules.check_wheels(self.wheels),
            rules.check_python_version(self.python, self.wheels),
            rules.check_legacy_keras(variables.get("TF_USE_LEGACY_KERAS")),
            rules.check_tensorboard(packages.get("tensorboard")),
            rules.check_compiler_triple(
                packages.get("jax"), packages.get("jaxlib"), packages.get("libtpu")
            ),
            rules.check_tpu_wheel(self.num_tpu_chips, self.wheels),
            *map(rules.check_tensorflow_version, self.wheels.values()),
        ]
        if self.devices is not None:
            hidden = variables.get("CUDA_VISIBLE_DEVICES")
            judged.append(
                rules.check_gpu_visible(num_gpus, self.has_nvidia_driver, hidden, self.wheels)
            )
        return [*self.faults, *(finding for finding in judged if finding is not None)]

    def to_dict(self) -> dict[str, Any]:
        """Returns the installation as a dict of JSON types."""
        fields = dataclasses.asdict(self)
        del fields["faults"]
        return {"keras_tpu_kit": __version__, **fields}


def examine_installation(timeout: float = 60.0) -> Installation:
    """Returns what is installed here; TensorFlow is asked in a process of its own.

    Args:
        timeout: Seconds that TensorFlow may take to be imported.
    """
    wheels = backend.installed_wheels()
    problem = backend.problem()
    faults = [] if problem is None else [problem]
    answer: dict[str, Any] = {}
    if problem is None or problem.code != "tensorflow-missing":
        code, output = run_limited(
            [sys.executable, "-c", _ASK_TENSORFLOW],
            timeout=timeout,
            env={"TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        said = [line for line in output.splitlines() if line.startswith(_MARK)]
        if code == 0 and said:
            answer = json.loads(said[0].removeprefix(_MARK))
        else:
            faults.append(_mute(code, output, timeout))
    return Installation(
        python=sys.version_info[:2],
        system=f"{platform.system()} {platform.machine()}",
        wheels=wheels,
        packages={name: backend.installed_version(name) for name in _PACKAGES},
        variables={name: os.environ[name] for name in _VARIABLES if name in os.environ},
        num_tpu_chips=len(tpu_chips()),
        has_nvidia_driver=has_nvidia_driver(),
        devices=tuple(answer["devices"]) if answer else None,
        gpus=tuple(map(str, answer.get("gpus", ()))),
        faults=tuple(faults),
    )


def _mute(code: int, output: str, timeout: float) -> Finding:
    """Returns why TensorFlow did not answer."""
    if code == EXIT_TIMED_OUT:
        return Finding(
            "tensorflow-hangs",
            "error",
            what=f"import tensorflow did not end within {timeout:g} s.",
            why="A slow or busy machine takes longer; and the wheel tensorflow-tpu asks the "
            "cloud's metadata server for a TPU, and waits for minutes where there is none.",
            fix="keras-tpu-kit doctor --timeout 300 ; with tensorflow-tpu also "
            "export TPU_SKIP_MDS_QUERY=1 before Python starts.",
        )
    last = (output.strip().splitlines() or ["there was no output"])[-1]
    return Finding(
        "tensorflow-broken",
        "error",
        what=f"import tensorflow failed: {last[:300]}",
        why="Nothing trains without it.",
        fix="Install one TensorFlow wheel into a fresh environment: "
        f"{backend.INSTALL_TENSORFLOW} , or on a TPU VM {backend.INSTALL_TENSORFLOW_TPU} .",
    )
