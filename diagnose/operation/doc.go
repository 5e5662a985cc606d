// Package operation is the contract of the operations that nodes of a diagnosis graph run.
//
// A [Builtin] declares its parameters, results and effect; [Builtin.Run] runs it once. Package
// runner decides when and how often an operation runs, and with which results: an operation gets
// its parameters and the node, but no graphs, Diagnoses or budgets.
//
// The built-in operations are in the packages below, grouped by subject, one file each, and
// document themselves in Doc; package catalog lists them. Package remote also has the operations
// that call a web server or a script.
//
// Operations treat everything they read as untrusted: names, messages and files are bounded, and
// text passes [display.Safe] before it becomes a result. An operation that only collects or
// checks changes nothing on the node or in the cluster.
package operation
