"""Reports: what a model takes on boards, operator by operator, as one page or as a trace."""

from edgekit.host.fleet.report.document import Report
from edgekit.host.fleet.report.page import page
from edgekit.host.fleet.report.single import bench_report, compile_report
from edgekit.host.fleet.report.trace import trace

__all__ = ["Report", "bench_report", "compile_report", "page", "trace"]
