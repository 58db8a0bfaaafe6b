"""The parts of a report, one module each: Material -> Section, or None where there is nothing to say."""
