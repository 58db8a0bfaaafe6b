"""Reports: one offline HTML page, and figures as files, from one or more runs.

report = Report.of([load("runs/quickstart")])
report.write("report.html")
report.write_figures("figures")
"""

from searchlab.lab.report.report import Report

__all__ = ["Report"]
