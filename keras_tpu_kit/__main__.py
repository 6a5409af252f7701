"""`python -m keras_tpu_kit` does what `keras-tpu-kit` does."""

import sys

from keras_tpu_kit.cli import main

sys.exit(main())
