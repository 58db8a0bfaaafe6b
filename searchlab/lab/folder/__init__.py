"""The run folder: its layout, and how its files are written, validated and read back."""
