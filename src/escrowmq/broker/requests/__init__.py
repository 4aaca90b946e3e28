"""The handlers of all requests, one file for each family; the request tables; and how a request is
served."""
