"""What tests of cores stand on: a core on a disk in memory, its callers, certificates, stores."""
