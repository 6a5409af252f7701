"""Compiles one program for a TPU; runs in a process of its own, and needs nothing of the kit.

The interpreter that runs this file holds jax, jaxlib and libtpu, and perhaps nothing else: no
TensorFlow, no Keras, not the kit. Called as `python child.py REQUEST ANSWER`, two JSON files.
Whatever the native code writes goes to this process's own output.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import sys
import time
from typing import Any

PACKAGES = ("jax", "jaxlib", "libtpu")

# No TPU holds these 256 GiB; the refusal says how much a program may use.
TOO_LARGE = """
module @too_large {
  func.func public @main(%rows: tensor<536870912x128xf32>) -> tensor<536870912x128xf32> {
    return %rows : tensor<536870912x128xf32>
  }
}
"""


def main(request_path: str, answer_path: str) -> None:
    """Reads a request, compiles, and writes the answer."""
    request = json.loads(pathlib.Path(request_path).read_text())
    answer: dict[str, Any] = {"versions": versions()}
    try:
        answer.update(compile_program(request))
    except ImportError as error:
        answer["refusal"] = {"stage": "import", "message": str(error)}
    except RefusedError as refused:
        answer["refusal"] = {"stage": refused.stage, "message": refused.message}
    written = pathlib.Path(answer_path + ".part")
    written.write_text(json.dumps(answer))
    written.replace(answer_path)


class RefusedError(Exception):
    """The compiler said no, at a stage, in its own words."""

    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(str(error))
        self.stage = stage
        self.message = str(error)


def versions() -> dict[str, str | None]:
    """Returns the installed version of each package, or `None`."""
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def compile_program(request: dict[str, Any]) -> dict[str, Any]:
    """Returns what the compiler says of a serialized HLO program."""
    # The answers to what libtpu would ask a cloud machine's metadata server; without them it
    # waits for a server that is not there.
    os.environ.update(
        TPU_SKIP_MDS_QUERY="1",
        TPU_ACCELERATOR_TYPE=request["accelerator_type"],
        TPU_WORKER_HOSTNAMES="localhost",
        TPU_WORKER_ID="0",
        TPU_LOG_DIR="disabled",
        JAX_PLATFORMS="cpu",
        ALLOW_MULTIPLE_LIBTPU_LOAD="1",
    )
    import jax
    import numpy
    from jax._src.lib import xla_client
    from jax.experimental import topologies

    refusals = (jax.errors.JaxRuntimeError, ValueError, RuntimeError, NotImplementedError)
    config = request["chip_config_name"]
    try:
        topology = topologies.get_topology_desc(
            platform="tpu",
            topology_name=request["topology_name"],
            **({"chip_config_name": config} if config else {}),
        )
    except refusals as error:
        raise RefusedError("topology", error) from None
    device = topology.devices[0]
    try:
        module = parse(xla_client, pathlib.Path(request["hlo_path"]).read_bytes())
    except refusals as error:
        raise RefusedError("parse", error) from None
    options = xla_client.CompileOptions()
    options.num_replicas = options.num_partitions = 1
    options.executable_build_options.device_assignment = xla_client.DeviceAssignment.create(
        numpy.zeros((1, 1), "int32")
    )

    def compiled(module: Any) -> Any:
        return device.client.compile(module, xla_client.DeviceList((device,)), options)

    started = time.perf_counter()
    try:
        executable = compiled(module)
    except refusals as error:
        raise RefusedError("compile", error) from None
    seconds = time.perf_counter() - started
    memory = executable.get_compiled_memory_stats()
    cost = executable.cost_analysis()
    text = executable.hlo_modules()[0].to_string()
    pathlib.Path(request["optimized_path"]).write_text(text)
    try:
        compiled(parse_text(TOO_LARGE))
        available: str | None = None
    except refusals as error:
        available = str(error)
    return {
        "argument_bytes": memory.argument_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        "alias_bytes": memory.alias_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "code_bytes": memory.generated_code_size_in_bytes,
        "peak_bytes": getattr(memory, "peak_memory_in_bytes", None),
        "flops": cost.get("flops"),
        "bytes_accessed": cost.get("bytes accessed"),
        "available_message": available,
        "compile_seconds": seconds,
    }


def parse(xla_client: Any, serialized: bytes) -> Any:
    """Returns serialized HLO as an MLIR module without `mhlo.copy`, which is an identity here."""
    from jaxlib.mlir import ir

    computation = xla_client.XlaComputation(serialized)
    module = parse_text(xla_client._xla.mlir.xla_computation_to_mlir_module(computation))
    copies: list[Any] = []

    def drop_copy(operation: Any) -> Any:
        if operation.name == "mhlo.copy":
            operation.results[0].replace_all_uses_with(operation.operands[0])
            copies.append(operation)
        return ir.WalkResult.ADVANCE

    with module.context:
        module.operation.walk(drop_copy)
        for copy in copies:
            copy.erase()
    return module


def parse_text(text: str) -> Any:
    """Returns an MLIR module from its text."""
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir

    with mlir.make_ir_context():
        return ir.Module.parse(text)


if __name__ == "__main__":
    if sys.argv[1:] == ["--versions"]:
        print(json.dumps(versions()))  # noqa: T201
    else:
        main(*sys.argv[1:])
