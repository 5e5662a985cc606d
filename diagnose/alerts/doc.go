// Package alerts takes alerts over HTTP, from Alertmanager's webhook and from Prometheus
// itself, and hands them to what makes Diagnoses of them.
//
//	TLS ─► leader? ─► who is it, may it? ─► bounds ─► decode ─► Taker ─► answer
//
// Only whoever is known may send: by a bearer token that the API server knows for our
// audience, and whose user may post to the path, or by a certificate of a client CA with a
// name that is listed. Nothing of a body is read before that.
//
// An answer of 200 says that all that follows from the alerts is done. What can't be taken
// now is answered with 503, and what comes too often with 429, so that the sender tries
// again; nothing is taken and then forgotten. A process that does not lead answers 503 too,
// and closes the connection, so that the next try may reach another.
//
// The server only receives. Which Diagnoses follow is said by package trigger.
package alerts
