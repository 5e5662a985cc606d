// Package review looks at manifests of kernosis.io as a whole: what can't be run, and what
// can be run and is hardly meant, such as a Trigger for rules that nobody has, or an input
// that nothing hands over.
//
// It is pure. Package manifest has read the files, and checked each object by itself.
package review
