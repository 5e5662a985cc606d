// Package web serves what an agent knows over HTTP: metrics, liveness and
// readiness. It is read-only and listens where it is reported, on the local host
// by default.
//
// At addresses that others than this machine reach it serves with TLS, and metrics only to
// those whose token the API server knows and who may get the path. Connections, requests and
// questions to the API server are bounded everywhere.
package web
