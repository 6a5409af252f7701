"""Trains from TFRecord files, so that the data may be larger than memory.

    python examples/tfrecords.py

For the demonstration it first writes scikit-learn's 1,797 digits into four files. Of your own
files only the features and the number of rows are yours to say.
"""

import pathlib
import tempfile

import keras
import tensorflow as tf
from sklearn.datasets import load_digits

import keras_tpu_kit as ktk

ROWS = {"train": 1_536, "valid": 261}  # Files do not tell.
FEATURES = {
    "pixels": tf.io.FixedLenFeature([64], tf.float32),
    "digit": tf.io.FixedLenFeature([], tf.int64),
}


class Classifier(ktk.ModelFactory):
    def build(self, hp):
        hidden = keras.layers.Dense(128, activation="relu")
        return keras.Sequential([keras.Input((64,)), hidden, keras.layers.Dense(10)])

    def compile_args(self, hp):
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return {"optimizer": keras.optimizers.Adam(0.01), "loss": loss, "metrics": ["accuracy"]}


def write(folder, part, x, y, files):
    """Writes rows into numbered files: every n-th row in each."""
    for index in range(files):
        with tf.io.TFRecordWriter(str(folder / f"{part}-{index}.tfrecord")) as writer:
            for pixels, digit in zip(x[index::files], y[index::files], strict=True):
                feature = {
                    "pixels": tf.train.Feature(float_list=tf.train.FloatList(value=pixels)),
                    "digit": tf.train.Feature(int64_list=tf.train.Int64List(value=[digit])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())


def read(pattern):
    """Returns the rows of all files, read side by side: a dataset of (pixels, digit)."""
    files = tf.data.Dataset.list_files(str(pattern), shuffle=False)
    records = files.interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE)

    def parse(record):
        row = tf.io.parse_single_example(record, FEATURES)
        return row["pixels"], row["digit"]

    return records.map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def main(folder):
    (x, y), cut = load_digits(return_X_y=True), ROWS["train"]
    write(folder, "train", x[:cut] / 16, y[:cut], files=3)
    write(folder, "valid", x[cut:] / 16, y[cut:], files=1)

    strategy = ktk.detect_strategy()
    train, valid = read(folder / "train-*"), read(folder / "valid-*")
    plan = ktk.plan_for_data(
        ktk.describe_strategy(strategy), train, num_samples=ROWS["train"], target_batch_size=64,
        validation_data=valid, num_validation_samples=ROWS["valid"])  # fmt: skip
    model = Classifier(strategy, plan).create()
    valid = ktk.make_dataset(valid, plan, training=False)
    train = ktk.make_dataset(train, plan, seed=0, shuffle_buffer=1_000)
    model.fit(train, validation_data=valid, epochs=4, verbose=2, **plan.fit_args())
    return model.evaluate(valid, verbose=0, return_dict=True)["accuracy"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(f"validation accuracy {main(pathlib.Path(folder)):.3f}")
