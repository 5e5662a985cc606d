// Package selfcheck finds out which parts of the agent can't see what they are for,
// because a right (a capability), a path of the host or a kernel program is lacking.
//
// What can be tried is tried: a log is opened, a network namespace entered, a file
// written. What is read from the capabilities alone is what a trial would change
// something by, and whose absence has no other sign. It is no source of faults: a log
// that is there and says nothing, or a daemon that is down, is not its business.
//
// # Rights
//
// [Drop] gives up what this process never needs: capabilities that a mistake, or
// somebody who has found one, could do harm with.
package selfcheck
