// Package web serves the agent's and the controller's state over HTTP: metrics, liveness, readiness
// and web pages. It is read-only and listens on the configured address, by default on the local host.
//
// At addresses that other machines can reach it uses TLS, and serves metrics and pages only to
// clients with a token whose user may get /metrics according to the API server. Connections,
// requests and token reviews are always bounded.
//
// # Pages
//
// An agent has a page of its node, a controller one of all nodes. They are rendered on the server,
// from copies of the process's state. Browsers are notified of changes by server-sent events and then
// fetch the new state. All clients share renderings, which are bounded in rate and size. Without
// connected clients, the server reads, renders and keeps nothing.
//
// All displayed data is untrusted. It is made safe with [display.Safe], escaped by gomponents, and
// served under a policy that allows no script but the page's own. gomponents does not check links: data
// may only be the last part of a relative link, and must be a known name or escaped.
//
// html/template must not be linked (docs/adr/0032-pages-without-templates.md).
package web
