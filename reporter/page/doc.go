// Package page serves read-only web pages: an agent's page of its node, with conditions,
// problems, failed sources, losses, the latest changes in the journal and Diagnoses; and a
// controller's page of all nodes.
//
// Pages are rendered on the server, from copies of the process's state. Browsers are notified of
// changes by server-sent events and then fetch the new state. Renderings are shared by all clients
// and bounded in rate and size. While no client is connected, nothing is read, rendered or kept.
//
// All displayed data is untrusted. It is made safe with [display.Safe], escaped by html/template,
// and served under a policy that allows no script but the page's own.
package page
