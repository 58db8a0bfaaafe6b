"""The laboratory around a search: experiments, runs, records, statistics and reports."""
