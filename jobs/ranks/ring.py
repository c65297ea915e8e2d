"""Sums over the ranks of a run by TensorFlow's own ring, ``sync=ring``.

Its servers ask for no secret: whoever reaches the port of one runs operations, ``write_file`` among them, as the user
of the job. So it is used only where the site's file says that nobody else reaches the nodes (``site.trusted_network``).
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jobs.lazy_imports import tf


@contextmanager
def port() -> Iterator[int]:
    """Find a port that is free, and keep it from others of this module meanwhile.

    TensorFlow listens on all addresses of a machine, whatever it is told: ranks on one machine each need a port of
    their own.
    """
    with socket.socket() as held:
        held.bind(("", 0))
        yield held.getsockname()[1]


class Group:
    """The ranks as TensorFlow's MultiWorkerMirroredStrategy has them, on their processors.

    It must be made before TensorFlow runs any operation. `addresses` of all ranks, in their order, as ``host:port``.
    """

    def __init__(self, addresses: Sequence[str], rank: int) -> None:
        tf.config.set_visible_devices([], "GPU")  # where it sees one, it takes NCCL
        task = {"type": "worker", "index": rank}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": list(addresses)}, "task": task})
        self._options = tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING
        )
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=self._options)
        self._sums: Any = tf.function(self._of_all, autograph=False)

    def sums(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the sums of tensors over all ranks; the first call with new shapes is compiled, and takes longer."""
        return list(self._sums([tf.convert_to_tensor(each) for each in tensors]))

    def _of_all(self, tensors: list[Any]) -> Any:
        def add(own: list[Any]) -> Any:
            context = tf.distribute.get_replica_context()
            placed = [tf.identity(each) for each in own]  # on a device, which a function's arguments have not
            return context.all_reduce(tf.distribute.ReduceOp.SUM, placed, self._options)

        return self._strategy.run(add, args=(tensors,))
