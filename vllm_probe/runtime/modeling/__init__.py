"""Models as packed forward passes: no padding, every linear and attention through the adapter."""
