"""Studies: tables of methods by budgets by seeds, the tuning before them, and one export."""

from tfdp.transfer.studies.candidates import Budget, Candidate
from tfdp.transfer.studies.held_out import split
from tfdp.transfer.studies.study import Study
from tfdp.transfer.studies.study_export import Export, fit_export, planned_export, record_export
from tfdp.transfer.studies.study_results import ResultsFile, write_summaries
from tfdp.transfer.studies.tuning import Chosen, fit, tune

__all__ = [
    "Budget",
    "Candidate",
    "Chosen",
    "Export",
    "ResultsFile",
    "Study",
    "fit",
    "fit_export",
    "planned_export",
    "record_export",
    "split",
    "tune",
    "write_summaries",
]
