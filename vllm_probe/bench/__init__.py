"""What a device can really do: one file per measurement, a timing core, and the report that becomes a capability."""
