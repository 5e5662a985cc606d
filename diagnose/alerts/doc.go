// Package alerts receives alerts over HTTP, from Alertmanager's webhook or Prometheus itself, and
// passes them to a [Taker], which creates Diagnoses.
//
//	TLS ─► leader? ─► who is it, may it? ─► bounds ─► decode ─► Taker ─► answer
//
// Senders must authenticate: by a bearer token that the API server accepts for our audience and
// whose user may post to the path, or by a certificate of a client CA with a listed name. Nothing
// of a body is read before that.
//
// A 200 means that everything that follows from the alerts is done. If alerts can't be accepted
// now, the answer is 503, or 429 if requests come too often, so that the sender retries; nothing is
// accepted and then lost. A process that does not lead answers 503 too and closes the connection,
// so that the retry may reach another process.
//
// The server only receives. Package trigger decides which Diagnoses follow.
package alerts
