"""PolicyNegotiator: what a model needs, what a device offers, and the config that follows, all pure."""
