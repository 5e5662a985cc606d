// Package operation is the contract of the operations that nodes of a diagnosis graph run.
//
// A [Builtin] says what it takes, gives and does; [Builtin.Run] does it once. Which
// runs when, how often and with whose results is package runner's matter: an operation
// knows its parameters and the node, and nothing of graphs, Diagnoses or budgets.
//
// The built-in operations are in the packages below, by subject, one file each, and say what
// they do in their Doc; package catalog lists them. Package remote also has those that call a
// web server or a script.
//
// What an operation reads is written by others: names, messages and files are bounded,
// and text passes [display.Safe] before it becomes a result. One that only collects
// or checks changes nothing on the node or in the cluster.
package operation
