"""Studies that rerun the experiments of five papers on isotropy, and compare the published numbers with ours."""

from typing import TYPE_CHECKING

from isoscope._lazy import lazy_package

if TYPE_CHECKING:
    from isoscope.studies.run import StudyRun as StudyRun
    from isoscope.studies.run import run_study as run_study
    from isoscope.studies.study import Study as Study
else:
    __getattr__, __dir__, __all__ = lazy_package(
        __name__,
        {
            "study": ["Study"],
            "run": ["StudyRun", "run_study"],
        },
    )
