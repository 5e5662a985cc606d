// Package probe keeps the books of probes as kubelet does: which probe of which
// container failed, how often in a row, and what kubelet does about it next.
//
// A Manager has one worker a (pod UID, container, kind). A worker counts outcomes
// against the probe's thresholds by the rules of kubelet 1.36. Where outcomes come from
// is the feed:
//
//   - observed: kubelet's own probes, seen by package observe below. Nothing is sent.
//   - active: the worker makes the probe itself, at the times kubelet would.
//
// Pods come from the API server, from kubelet, or from a file, in the form of package
// podspec below; package podsource below reads the latter two.
//
// The rules, in short:
//
//   - Without a container's ID nothing is counted. A new ID begins at the initial result:
//     liveness success, readiness failure, startup unknown; or at what kubelet says of
//     this very container. It ends a hold. The run of equal results goes on.
//   - A container that does not run has failed. If it is not restarted, the worker ends;
//     sidecars are restarted.
//   - While the pod is deleted readiness goes on; liveness and startup end with success.
//   - Nothing is counted in the initial delay, which begins with the container's start.
//     Startup gates the others, and is on hold once it has succeeded or failed.
//   - A result counts when a threshold of equal ones in a row is reached. Liveness that
//     fails is on hold until the container has a new ID.
//   - The first run of an active probe comes after a random part of its period, as long
//     as the agent is younger than that. A probe that can't be made is tried three times
//     and is no failure. Readiness is probed at once when something has
//     changed.
//
// Files:
//
//	pod.go      pods, containers, probes and outcomes, as all feeds have them
//	detail.go   what a feed knows of an outcome
//	course.go   the rules above: a state machine without clock and effects
//	result.go   the results by container, and the channel of changes
//	manager.go  pods and workers come and go
//	worker.go   one worker: course, effects and what is reported, in order
//	late.go     failures that are heard of after their container's end, or unsure
//	active.go   the times of active probes
//	status.go   what is known: results, pods, and containers started
//	tell.go     events of failures and recoveries, bounded
//	metrics.go  counts by result, bounded
package probe
