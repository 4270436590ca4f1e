"""Speed and memory, always as a ratio to a reference measured in the same run: machines are noisy."""
