// Package start creates Diagnoses from alerts, Events of the cluster, and schedules. It is a part
// of the controller's manager and runs in the process that leads.
//
//	HTTP ── sender ── alert ─┐
//	Events ── matched ── pod ┼─► trigger.Engine ─► queue ─► Diagnoses
//	times ───────────────────┘        │
//	                                state ─► ConfigMap, after the Diagnoses are made
//
// The engine decides which Diagnoses are wanted. They wait in a bounded queue until the API server
// has accepted them; one that already exists counts as made. While the queue is full, senders are
// asked to send alerts again, and Events wait; if too many Events wait, they are dropped, counted
// and logged.
//
// The engine's state is kept in a ConfigMap, so that the next leader continues with it. The saved
// state is never ahead of the created Diagnoses: if a process dies, its successor wants the missing
// Diagnoses again, under the same names.
//
// Alerts come over HTTP, from Alertmanager's webhook or Prometheus itself:
//
//	TLS ─► leader? ─► who is it, may it? ─► bounds ─► decode ─► Part ─► answer
//
// Senders must authenticate: by a bearer token that the API server accepts for our audience and
// whose user may post to the path, or by a certificate of a client CA with a listed name. No body is
// read before that. A 200 means that all Diagnoses for the alerts are created or withheld. If alerts
// can't be accepted now, the answer is 503, or 429 if requests come too often, so that the sender
// retries. No accepted alert is lost. A process that does not lead answers 503 too and closes the
// connection, so that the retry may reach another process.
//
// It needs the rights to list and watch Triggers, Nodes and Events, to get pods, to create
// Diagnoses and ConfigMaps in the system namespace, to get and update its own ConfigMap,
// and to patch the status of Triggers.
package start
