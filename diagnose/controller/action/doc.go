// Package action makes the repairs that change objects of the API: cordons, taints,
// evictions, drains, labels.
//
// A repair only ever changes the node that the Diagnosis names, or a pod that is bound to it and
// that the Diagnosis is about. Each write is conditional on the object that was read: on its
// resourceVersion, or the pod's UID. A cordon or taint is marked as Kernosis' own in the same
// write, see [policy.Do].
//
// [Actions.Do] makes one short pass; long repairs take several. Each pass may run in another
// process: it needs only the object and what the previous pass left in the outcome. Whether a
// repair may be made is decided elsewhere.
//
// It needs the rights to get and patch nodes, to get, list and delete pods, and to create
// evictions of them.
package action
