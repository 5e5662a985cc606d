// Package action makes the repairs that change objects of the API: cordons, taints,
// evictions, drains, labels.
//
// What is changed is always the node that the Diagnosis names, or a pod that is bound to
// it and is the one that the Diagnosis is about. Each write is for the object as it was
// looked at: by its resourceVersion, or the pod's UID. A cordon or taint is marked as
// Kernosis' own in the same write, see [policy.Do].
//
// [Actions.Do] does a pass, which is short; what takes longer is done in several. Each may
// be by another process: all that a pass needs is the object and what the pass before it
// has left in the outcome. Whether a repair may be made is not decided here.
//
// It needs the rights to get and patch nodes, to get, list and delete pods, and to create
// evictions of them.
package action
