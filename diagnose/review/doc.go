// Package review checks manifests of kernosis.io together: what can't be run, and what can be run
// but is probably not intended, such as a Trigger for rules that don't exist, or an input that
// nothing provides.
//
// It is pure. Package manifest has already read the files and checked each object by itself.
package review
