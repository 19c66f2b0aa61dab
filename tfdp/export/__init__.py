"""SavedModels that serve without this library, each with the report of its privacy guarantee."""

from tfdp.export.bundle import REPORT_FILE, export_with_report, read_report
from tfdp.export.captioner import export_captioner

__all__ = ["REPORT_FILE", "export_captioner", "export_with_report", "read_report"]
