// Package remote has the operations that query others: a web server, a script, a name server, the
// profiles of a Go program; and the webhook.
package remote
