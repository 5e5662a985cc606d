// Package facts says in words what the evidence of an event is: verdict, what is behind it,
// what is excluded. Events in the API carry that in annotations, so that who can read them
// need not ask the node.
//
// It must not decide anything: a verdict is the event's own.
package facts
