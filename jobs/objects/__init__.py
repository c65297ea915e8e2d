"""Read and write objects in an S3 object store. Only this package imports ``obstore``."""

OSD_PROCESS_NAME = "ceph-osd"
"""The process name of the Ceph servers that read and write the disk of the object store."""
