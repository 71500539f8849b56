"""The only door to the operating system: this machine, a recording of one, and the recorder."""
