"""Objects of an S3 store: a client, and how a run reads them. ``obstore`` is imported only here."""

STORES = "ceph-osd"
"""The process name of the servers that read the disk."""
