"""The sections of a report, one module each: Material -> Section, or None if the section would be empty."""
