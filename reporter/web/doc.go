// Package web serves what an agent knows over HTTP: metrics, liveness and
// readiness. It is read-only and listens where it is told, on the local host
// by default.
package web
