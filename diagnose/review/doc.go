// Package review checks manifests of kernosis.io together. It reports objects that can't be run,
// and objects that can be run but are probably mistakes, such as a Trigger for rules that don't
// exist, or an input that nothing provides.
//
// It is pure. Package manifest has already read the files and checked each object separately.
package review
