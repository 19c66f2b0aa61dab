"""SavedModels that serve without this library, each with the report of its privacy guarantee."""

from tfdp.export.bundle import REPORT_FILE, export_with_report, read_report

__all__ = ["REPORT_FILE", "export_with_report", "read_report"]
