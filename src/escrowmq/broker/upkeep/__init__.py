"""The broker's own background work: saving tables and offsets, registering at name servers,
checking the data folder."""
