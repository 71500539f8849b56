"""The words of the project: frozen data, errors, units, the JSON codec and the plug-in contract (stdlib only)."""
