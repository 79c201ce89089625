"""The calls of targets: one HTTP request, one AMQP message or one Python task per attempt.

* call            one call of a target within its timeout, with an outcome in every case
* secret_values   secrets of the call, and the short excerpts of its outcome
* call_signer     the signing keys of an attempt
* attempt         the context of an attempt, its judgement by the policy, and its outcome
* http            the HTTP target
* name_resolver   the look-ups of host names
* tenant_tls      the CA and the client certificate of a tenant
* client_spans    the spans of HTTP requests and AMQP messages
* http_request    rules for the request and its redirects
* http_response   rules for the response and for failed connections
* status_line     the status of a response whose rest is invalid
* amqp            the AMQP target
* task            the task target
"""
