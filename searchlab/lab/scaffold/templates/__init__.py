"""Templates of working plug-ins: `searchlab new` copies and renames one."""
