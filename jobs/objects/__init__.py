"""Objects of an S3 store: a client, and how a run reads them. Only this package imports ``obstore``."""

STORES = "ceph-osd"
"""The process name of the servers that read the disk of a Ceph store."""
