"""What is on this machine, what is wrong with it, and which device to take."""
