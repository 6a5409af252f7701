"""The example models learn what there is to learn, trained for real on small data."""

import keras
import pytest
from conftest import EXAMPLES

FALLING_RATE = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.65 ** (epoch > 0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "metric", "options"),
    [
        ("translation", "val_masked_accuracy", {"target_batch_size": 64, "epochs": 4}),
        ("recurrent", "val_masked_accuracy", {"target_batch_size": 64, "epochs": 6}),
        # The rate has to fall, or the last epoch's accuracy is a matter of luck.
        (
            "resnet50",
            "val_accuracy",
            {"global_batch_size": 64, "epochs": 5, "callbacks": [FALLING_RATE]},
        ),
    ],
)
def test_an_example_learns(example, metric, options):
    keras.utils.set_random_seed(0)
    factory = EXAMPLES[example]("cpu")
    train, validation = factory.data()

    run = factory.fit(train, validation_data=validation, seed=0, verbose=0, **options)

    assert run.history.history[metric][-1] >= 0.95
