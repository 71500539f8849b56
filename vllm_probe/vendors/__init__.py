"""Vendors: one folder each, found by scanning, and what they share."""
