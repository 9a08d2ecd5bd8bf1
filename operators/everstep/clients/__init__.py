"""The only place that talks to Kubernetes and to Google APIs.

Clients speak plain JSON objects, so that no model of a client library leaks out, and translate every failure into the
errors of `everstep.clients.errors`. Each service has a client that blocks (operators, the command line) and one for
the event loop (triggers); what is read from a bucket is decided once, in steps that either client can carry out.
Libraries are imported where they are used, never at import of these modules.
"""
