// Package event contains the Event: one immutable fact about the node, as a source detected it.
//
// It imports no other package of the agent: sources (package collector) create Events, the detector
// reads them, the journal stores them, replay and rule tests read them back. JSON is the form on
// disk and over the wire. An Event contains facts and no message text, so that what a person reads
// is decided in one place (the rules).
//
// An Event passed to a callback is valid during the call only, because hot paths reuse its memory.
// To keep it, call [Event.Clone].
package event
