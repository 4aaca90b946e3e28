"""The admin client: requests by which operators read and change a cluster, over the wire. Nothing
in here sends or consumes for an application."""
