"""Instruments for models that are not ours: `probe`, its `twin`, and `watch` beside a training loop."""
