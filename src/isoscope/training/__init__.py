"""Regularize and track embedding spaces in torch, Hugging Face, Lightning and Sentence Transformers training."""

from typing import TYPE_CHECKING

from isoscope._lazy import lazy_package

if TYPE_CHECKING:
    from isoscope.training.attach import Attachment as Attachment
    from isoscope.training.history import History as History
    from isoscope.training.repair_layer import BatchRepair as BatchRepair
    from isoscope.training.repair_layer import Repairing as Repairing
    from isoscope.training.tracker import IsotropyTracker as IsotropyTracker
else:
    __getattr__, __dir__, __all__ = lazy_package(
        __name__,
        {
            "attach": ["Attachment"],
            "history": ["History"],
            "tracker": ["IsotropyTracker"],
            "repair_layer": ["BatchRepair", "Repairing"],
        },
    )
