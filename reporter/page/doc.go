// Package page serves read-only web pages: an agent's of its node, with conditions, problems, blind
// sources, losses, the latest changes of the journal and Diagnoses; and a controller's of all nodes.
//
// They are rendered on the server, from copies of what the process holds. Browsers hear of changes through
// server-sent events and fetch the new state. Renderings are shared by all clients and bounded in rate
// and size; while nobody looks, nothing is read, rendered or kept.
//
// Everything shown comes from others. It is made safe with [display.Safe], escaped by html/template, and
// served under a policy that allows no script but the page's own.
package page
