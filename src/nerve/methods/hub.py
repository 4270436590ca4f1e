"""A trained model on a model hub (extra ``hub``): the folder that `save` writes, uploaded whole.

Only `push_to_hub` uses a network, and only when it is called. The address is that of the library
huggingface_hub, or of the `api` that the caller gives.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import nerve
from nerve._utils.errors import NerveError, problem
from nerve.methods.pretrained import CARD, FILES, with_hub_lines


class HubMixin:
    """`push_to_hub` for methods that can be saved."""

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool = True,
        revision: str | None = None,
        commit_message: str | None = None,
        token: str | bool | None = None,
        api: Any = None,
    ) -> str:
        """Upload the fitted method: weights, config.json, model card and history, nothing else.

        Parameters
        ----------
        repo_id : str
            ``owner/name``; created if it does not exist.
        private : bool
            Whether a repository that is created is private: weights can carry information on the
            training participants.
        revision : str, optional
            The branch; the hub's main one by default.
        commit_message : str, optional
            Names the version of nerve by default.
        token : str or bool, optional
            As huggingface_hub takes it; by default that of its own login.
        api : huggingface_hub.HfApi, optional
            For another address, such as the hub of an institution.

        Returns
        -------
        str
            The address of the commit, as the hub gives it.
        """
        try:
            import huggingface_hub
        except ImportError as error:
            raise NerveError(
                "huggingface_hub is not installed: pip install 'nerve-fc[hub]' adds it."
            ) from error
        if api is None:
            api = huggingface_hub.HfApi()
        with tempfile.TemporaryDirectory(prefix="nerve-") as name:
            folder = Path(name) / "model"
            self.save(folder)  # type: ignore[attr-defined]
            card = folder / CARD
            card.write_bytes(with_hub_lines(card.read_bytes()))
            try:
                api.create_repo(repo_id, private=private, exist_ok=True, token=token)
                commit = api.upload_folder(
                    repo_id=repo_id,
                    folder_path=folder,
                    commit_message=commit_message or f"Model of nerve {nerve.__version__}",
                    revision=revision,
                    token=token,
                    allow_patterns=list(FILES),
                )
            except (OSError, ValueError) as error:  # huggingface_hub's errors are of these classes
                cause = str(error).strip().splitlines()[0].rstrip(".")
                raise problem(
                    repo_id,
                    f"the hub did not take the model ({cause})",
                    remedy="Check the name, the login (`hf auth login`) and the connection; "
                    "`save` writes the same folder to this machine.",
                ) from error
        return str(commit)
