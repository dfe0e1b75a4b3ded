"""A clustered repair as a module of a Sentence Transformers pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from sentence_transformers.base.modules import Module

from isoscope._core.errors import NotFoundError
from isoscope.transforms.persistence import load

if TYPE_CHECKING:
    from isoscope.transforms.repair import Repair


class RepairModule(Module):  # type: ignore[misc]
    """A module that applies a repair to "sentence_embedding"; it is saved in the format of `Repair.save`.

    Saved pipelines contain the module path of this class: do not move or rename it.
    """

    def __init__(self, repair: Repair) -> None:
        super().__init__()
        self.repair = repair

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Return the features with repaired embeddings."""
        features["sentence_embedding"] = self.repair.transform(features["sentence_embedding"])
        return features

    def get_embedding_dimension(self) -> int:
        """Return the number of output dimensions."""
        return len(self.repair.get_feature_names_out())

    def get_config_dict(self) -> dict[str, Any]:
        """Return the configuration that the repr of a pipeline shows."""
        return {"repair": repr(self.repair)}

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write the repair as `Repair.save` does, always as safetensors."""
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
        """Load a saved module from a folder or from the Hugging Face Hub."""
        folder = cls.load_dir_path(
            model_name_or_path,
            subfolder=subfolder,
            token=token,
            cache_folder=cache_folder,
            revision=revision,
            local_files_only=local_files_only,
        )
        if folder is None:
            raise NotFoundError(f"{model_name_or_path} has no folder {subfolder!r} with a repair: save the model again")
        return cls(load(folder))
