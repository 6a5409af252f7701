"""How much faster several replicas or workers are than one, and what holds them back.

`figures` turns rates into speed-up, efficiency and a verdict, as values; `measurement` trains
in a process of its own, since logical devices and threads are fixed once per process; `series`
runs such processes, interleaved, each with its own share of the processors; `picture` draws.
"""

from keras_tpu_kit.scaling.figures import Measured, Scaling, Verdict
from keras_tpu_kit.scaling.series import measure_series

__all__ = ["Measured", "Scaling", "Verdict", "measure_series"]
