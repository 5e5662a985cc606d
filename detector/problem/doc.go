// Package problem holds what the detector concludes: a Problem (one rule true
// for one subject), a Condition (the node's roll-up over all problems of one
// condition type) and the Transition that reports a change.
//
// It is a leaf: the detector makes these values, reporter and diagnose consume
// them. They are plain data, copied at each hand-over.
package problem
