"""The SDK's inside: `core` decides, the rest talks over the wire. Nothing here knows a broker's
inside."""
