// Package event holds the Event: one immutable fact about the node, as a
// source saw it.
//
// It is a leaf: sources (package collector) make Events, the detector reads
// them, the journal stores them, replay and rule tests read them back. JSON is
// the form on disk and over the wire; an Event carries no message text, only
// facts, so that what a person reads is decided in one place (the rules).
//
// An Event handed to a callback is valid only during the call, because hot
// paths reuse its memory: whoever keeps one calls [Event.Clone].
package event
