// Package selfcheck finds out which parts of the agent can't do their work because a right (a
// capability), a path of the host or a BPF program is missing.
//
// It tries whatever can be tried: it opens a log, enters a network namespace, writes a file. It
// checks only the capabilities if a trial would change something and if there is no other sign of
// a missing right. It is not a source of faults: it ignores a log that exists but is silent, or a
// daemon that is down.
//
// # Rights
//
// [Drop] drops capabilities that this process never needs and that could do harm, by mistake or in
// the hands of an attacker.
package selfcheck
