// Package problem holds the results of the detector: a Problem (one rule true
// for one subject), a Condition (the node's roll-up over all problems of one
// condition type) and the Transition that reports a change.
//
// The detector makes these values, reporter and diagnose consume them. They are
// plain data and are copied when they are passed on.
package problem
