// Package ingest is the problem report interface: it takes what problem daemons of
// others find on the node, and makes Events of it.
//
// A daemon posts a [report.Status] as JSON to a unix socket. Who may report what is
// configured: the daemon's name, the users it may run as, the condition types it
// may set. An [Intake] checks reports, bounds them in size and rate, and remembers
// what each daemon's conditions are and until when that counts. A [Listener] is the
// socket: it knows which user each connection is of.
//
// # What comes of a report
//
//   - A condition becomes an event of kind check, as a check program's result does,
//     named "<source>/<Type>": status problem for True, ok for False, unknown for
//     Unknown and where nothing was reported in time. It is reported when status or
//     reason change, not at each heartbeat; a change of the message alone is not
//     reported, since each would be a write to the node's object.
//   - An event becomes an event of kind check with status problem, named
//     "<source>/info" or "<source>/warn". These sources are up from a report on, with or
//     without events, for as long as it says that it counts.
//
// Which rules and conditions these come to is not for this package to know.
//
// # Time
//
// A condition counts as long as its last report says. After a start each has the
// time that is configured to be reported again: until then a problem goes on, and a
// source that saw before the restart is up for what is left of that time, so that the
// restart changes nothing.
package ingest
