"""Fine-tune a model for a task, with or without a regularizer of its embedding space."""

from typing import TYPE_CHECKING

from isoscope._lazy import lazy_package

if TYPE_CHECKING:
    from isoscope.finetuning.result import FineTuning as FineTuning
    from isoscope.finetuning.task_data import Split as Split
    from isoscope.finetuning.task_data import Task as Task
else:
    __getattr__, __dir__, __all__ = lazy_package(
        __name__,
        {
            "task_data": ["Split", "Task"],
            "result": ["FineTuning"],
        },
    )
