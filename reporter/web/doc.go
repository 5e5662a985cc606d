// Package web serves the agent's state over HTTP: metrics, liveness and readiness. It is
// read-only and listens on the configured address, by default on the local host.
//
// At addresses that other machines can reach it uses TLS, and serves metrics only to clients with a
// token whose user may get the path according to the API server. Connections, requests and token
// reviews are always bounded.
package web
