"""The admin client: what operators ask and change, over the wire. Nothing in here consumes or
sends on behalf of an application."""
