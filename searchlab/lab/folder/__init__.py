"""The run folder: where its files are, how they are written and checked, and how they are read back."""
