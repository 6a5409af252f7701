"""Compiles a training step for a TPU with the real TPU compiler, with no TPU present.

`compiling` is the door; `lowering` takes a model's own step through TensorFlow's bridge to an
XLA program; `program` and `layouts` read what is in one; `child` runs the compiler, the only
file that imports JAX and libtpu, in a process of its own with a time limit; `installation` says
which compiler is there; `cache` keeps answers on disk, and `content` says what a model is without
tracing it; `translation` turns refusals into findings.
"""

from keras_tpu_kit.tpu_compiler.compiling import check_step, compile_step
from keras_tpu_kit.tpu_compiler.installation import Compiler, find_compiler
from keras_tpu_kit.tpu_compiler.step import Argument, CompiledStep
from keras_tpu_kit.tpu_compiler.translation import StepRefusedError

__all__ = [
    "Argument",
    "CompiledStep",
    "Compiler",
    "StepRefusedError",
    "check_step",
    "compile_step",
    "find_compiler",
]
