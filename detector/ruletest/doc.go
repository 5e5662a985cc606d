// Package ruletest runs unit tests of rules, written in YAML beside the rules (<stem>_test.yaml):
// events at offsets, and the problems and conditions expected at times.
//
// It is used by the tests of the shipped rules and by "kernosis rules test".
// A test uses the same engine as an agent, ticked at every deadline, with a
// simulated clock. docs/rules.md describes the format.
package ruletest
