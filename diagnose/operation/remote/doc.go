// Package remote has the operations that others answer: a web server, a script, a name
// server, a Go program's profiles; and the webhook.
package remote
