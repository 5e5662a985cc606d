// Package ruletest runs unit tests of rules, written in YAML beside the rules
// (<stem>_test.yaml): events at offsets, and the problems and conditions
// expected at times.
//
// It is used by the tests of the shipped rules and by "kernosis rules test".
// A test sees exactly what an agent would: the same engine, ticked at every
// deadline, on a clock of the test's own. The format is in docs/rules.md.
package ruletest
