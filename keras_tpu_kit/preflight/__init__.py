"""Examines a factory, a plan and data on the hardware they are meant for, before any time is spent.

`run` is the door; `subject` makes the model as one replica would hold it; `examination` asks
the TPU compiler about it; `memory`, `estimate`, `products` and `search` read its answers;
`data` draws batches; `comparison` goes through all TPU types; `report`, `pictures` and `page` show
what was found; `demo` is the MNIST model of the tutorial.
"""

from keras_tpu_kit.preflight.report import PreflightReport
from keras_tpu_kit.preflight.run import run_preflight

__all__ = ["PreflightReport", "run_preflight"]
