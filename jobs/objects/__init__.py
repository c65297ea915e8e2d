"""Objects of a store that speaks S3: a client, and how a run reads them. Only here ``obstore`` is imported."""

STORES = "ceph-osd"
"""The name of the servers' processes that read the disk."""
