// Package pods knows the pods of the own node: for a pod's UID, as the kernel's
// control groups name it, its namespace, name and labels. It remembers pods for
// some minutes after they are deleted, because a fault is often the last that is
// heard of them.
//
// It watches metadata alone, of this node alone, or is given whole lists where no API server
// is asked. It writes nothing.
package pods
