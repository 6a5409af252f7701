"""Train Keras models on TPUs and several GPUs as you would on one device."""
