// Package ingest is the problem report interface: it accepts the findings of other problem daemons
// on the node, and converts them to Events.
//
// A daemon posts a [client.Status] as JSON to a unix socket. The configuration defines who may
// report what: the daemon's name, the users it may run as, the condition types it may set. An
// [Intake] checks reports, limits their size and rate, and remembers each daemon's conditions and
// until when they are valid. A [Server] listens on the socket and determines the user of each
// connection.
//
// # Events
//
//   - A condition becomes an event of kind check, like the result of a check program, named
//     "<source>/<Type>": status problem for True, ok for False, unknown for Unknown and if no
//     report came in time. It is reported when status or reason change, not at each heartbeat. A
//     change of only the message is not reported, because each would cause a write to the node
//     object.
//   - An event becomes an event of kind check with status problem, named "<source>/info" or
//     "<source>/warn". These sources are up as long as a report is valid, with or without events.
//
// The package does not know which rules and conditions use these events.
//
// # Time
//
// A condition is valid as long as its last report says. After a start, a daemon has the source's
// configured heartbeat to report each condition again. Until then a problem stays, and a source
// that was up before the restart stays up, so that the restart changes nothing.
package ingest
