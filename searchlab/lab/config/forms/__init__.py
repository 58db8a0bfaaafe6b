"""The forms that values may take in a file: their one normal form, their JSON schema, their reference page."""
