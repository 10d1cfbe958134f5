"""Reports of a model's time per operator on boards, as an HTML page or a trace."""

from edgekit.host.report.document import Report
from edgekit.host.report.page import page
from edgekit.host.report.single import bench_report, compile_report
from edgekit.host.report.trace import trace

__all__ = ["Report", "bench_report", "compile_report", "page", "trace"]
