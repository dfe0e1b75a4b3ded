"""A clustered repair at the end of a Sentence Transformers pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from sentence_transformers.base.modules import Module

from isoscope._core.errors import InputError
from isoscope.transforms.persistence import load

if TYPE_CHECKING:
    from isoscope.transforms.repair import Repair


class RepairModule(Module):  # type: ignore[misc]
    """Repairs "sentence_embedding", and is kept in the folder that `Repair.save` writes.

    The name of this class stands in saved pipelines: it stays where it is.
    """

    def __init__(self, repair: Repair) -> None:
        super().__init__()
        self.repair = repair

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """The features with their embeddings repaired."""
        features["sentence_embedding"] = self.repair.transform(features["sentence_embedding"])
        return features

    def get_embedding_dimension(self) -> int:
        """Dimensions of what comes out."""
        return len(self.repair.get_feature_names_out())

    def get_config_dict(self) -> dict[str, Any]:
        """What the pipeline's repr shows."""
        return {"repair": repr(self.repair)}

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write the repair as `Repair.save` does: its numbers are safetensors always."""
        self.repair.save(output_path)

    @classmethod
    def load(
        cls,
        model_name_or_path: str,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        **kwargs: Any,
    ) -> Self:
        """Read what `save` wrote, from a folder or the hub."""
        folder = cls.load_dir_path(
            model_name_or_path,
            subfolder=subfolder,
            token=token,
            cache_folder=cache_folder,
            revision=revision,
            local_files_only=local_files_only,
        )
        if folder is None:
            raise InputError(f"{model_name_or_path} has no folder {subfolder!r} with a repair in it: save it again")
        return cls(load(folder))
