"""Runs step plans on an adapter."""
