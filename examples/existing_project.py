"""The script of stock_project.py on every replica of this machine, in four more lines."""

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_tpu_kit as ktk


def get_compiled_model():
    inputs = keras.Input((64,))
    hidden = keras.layers.Dense(128, activation="relu")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(10)(hidden))
    model.compile(
        optimizer=keras.optimizers.Adam(3e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


x, y = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x / 16, y, test_size=357, random_state=0)
train, test = (x_train, y_train), (x_test, y_test)
keras.utils.set_random_seed(1)

strategy = ktk.detect_strategy()
model = ktk.ModelFactory.from_function(get_compiled_model, strategy).create()
callbacks = ktk.callbacks_for(model, train, batch_size=72, validation_data=test)
callbacks += [keras.callbacks.CSVLogger("log.csv")]
model.fit(*train, batch_size=72, epochs=20, validation_data=test, callbacks=callbacks, verbose=2)
_, accuracy = model.evaluate(*test, verbose=0)
print(f"test accuracy {accuracy:.4f}")
model.save("digits.keras")
