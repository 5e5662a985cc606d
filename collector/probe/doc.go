// Package probe tracks probes as kubelet does: which probe of which container failed, how often
// in a row, and what kubelet does about it next.
//
// A Manager has one worker for each (pod UID, container, kind). A worker counts outcomes against
// the probe's thresholds by the rules of kubelet 1.36. The feed is where the outcomes come from:
//
//   - observed: kubelet's own probes, as observed by package observe below. Nothing is sent.
//   - active: the worker makes the probe itself, at the times kubelet would.
//
// Pods come from the API server, from kubelet, or from a file: package collector/pods converts them
// and reads the latter two.
//
// The rules, in short:
//
//   - Nothing is counted while a container has no ID. A new ID starts with the initial result
//     (liveness success, readiness failure, startup unknown), or with what kubelet reports of
//     this very container. A new ID also ends a hold, but not the run of equal results.
//   - A container that does not run has failed. If it is not restarted, the worker ends;
//     sidecars are restarted.
//   - While the pod is being deleted, readiness goes on; liveness and startup end with success.
//   - Nothing is counted during the initial delay, which begins with the container's start.
//     The startup probe gates the others; it is on hold once it has succeeded or failed.
//   - A result counts once its threshold of equal results in a row is reached. After a failure,
//     liveness is on hold until the container has a new ID.
//   - An active probe first runs after a random part of its period, if the agent is younger
//     than the period. A probe that can't be made is tried three times and does not count as a
//     failure. Readiness is probed at once when something has changed.
package probe
