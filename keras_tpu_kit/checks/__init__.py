"""The rules, one function each: plain numbers in, a `Finding` or `None` out.

`batches` says how a batch is cut over replicas, `steps` how an epoch is cut into steps,
`data` what can be fed, `model` what can be trained on several replicas, `environment` which
installations work. Callbacks, datasets, factory, tuner, preflight and command line call
these; nobody writes a rule again.
"""
