"""What the TPU compiler says of one training step, as a value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from keras_tpu_kit.tpu_compiler.program import MatrixProduct, ProgramFacts

Role = Literal["batch", "weights", "optimizer", "metrics", "others", "constants"]


@dataclasses.dataclass(frozen=True)
class Argument:
    """One array that the step is called with, as it lies in the TPU's memory.

    Args:
        name: The variable's path, such as `"dense/kernel"`, or the column, such as `"x"`.
        role: What it belongs to.
        shape: Its axes.
        dtype: Name of its dtype.
        num_bytes: Bytes without padding.
        padded_bytes: Bytes that it takes in the layout that the compiler chose, tiles included.
    """

    name: str
    role: Role
    shape: tuple[int, ...]
    dtype: str
    num_bytes: int
    padded_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompiledStep:
    """What the TPU compiler says of one step on one replica.

    All sizes are in bytes of one replica's memory. The step is one replica's: reducing the
    gradients over the replicas is not in it.

    Args:
        tpu: The TPU type that it was compiled for, such as `"v3-8"`.
        step: `"train_step"` or `"test_step"`.
        argument_bytes: Variables and batch, as they lie in memory.
        output_bytes: What the step returns, updated variables included.
        alias_bytes: The part of the outputs that takes the place of arguments.
        temporary_bytes: Activations, gradients and whatever else lives during the step only.
        code_bytes: The program itself.
        peak_bytes: The most that is taken at any moment, arguments included, as the compiler's
            own buffer assignment says, or `None` where an older compiler does not.
        available_bytes: Memory that the compiler lets a program use, or `None` where it does not
            say.
        flops: Operations of one step, as the compiler counts them; a loop's body counts once.
        bytes_accessed: Bytes that the operations read and write, as the compiler counts them.
        compile_seconds: Seconds that the compiler took, not counting starting it.
        versions: Versions of jax, jaxlib and libtpu.
        arguments: Each array of `argument_bytes`.
        program: What is in the program: its matrix products, dtypes, loops.
        hlo: The compiler's optimised program as text, where it was asked for.
        log: The last lines that the compiler wrote.
        from_cache: Whether the answer was read from disk.
    """

    tpu: str
    step: str
    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temporary_bytes: int
    code_bytes: int
    peak_bytes: int | None
    available_bytes: int | None
    flops: float | None
    bytes_accessed: float | None
    compile_seconds: float
    versions: Mapping[str, str]
    arguments: tuple[Argument, ...]
    program: ProgramFacts
    hlo: str | None = None
    log: str = ""
    from_cache: bool = False

    @property
    def total_bytes(self) -> int:
        """Memory that the step takes: arguments, new outputs, temporaries and the program."""
        outputs = self.output_bytes - self.alias_bytes
        return self.argument_bytes + outputs + self.temporary_bytes + self.code_bytes

    def role_bytes(self, role: Role, *, padded: bool = True) -> int:
        """Returns the bytes of all arguments of one role, as they lie in memory or without padding.

        Args:
            role: `"weights"`, `"optimizer"`, `"metrics"`, `"batch"` or `"constants"`.
            padded: Whether to count tile padding.
        """
        return sum(
            each.padded_bytes if padded else each.num_bytes
            for each in self.arguments
            if each.role == role
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the step as a dict of JSON types."""
        return {**dataclasses.asdict(self), "versions": dict(self.versions)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> CompiledStep:
        """Returns the step that `to_dict` wrote."""
        arguments = (
            Argument(**{**each, "shape": tuple(each["shape"])}) for each in fields["arguments"]
        )
        products = (MatrixProduct(**each) for each in fields["program"]["products"])
        facts = ProgramFacts(
            **{
                **fields["program"],
                "products": tuple(products),
                "float64_layers": tuple(fields["program"]["float64_layers"]),
                "dynamic_layers": tuple(fields["program"]["dynamic_layers"]),
            }
        )
        return cls(**{**fields, "arguments": tuple(arguments), "program": facts})
