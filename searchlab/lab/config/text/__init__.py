"""From the text of a YAML file and overrides to a tree of values that know where they were written."""
