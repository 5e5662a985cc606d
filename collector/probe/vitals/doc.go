// Package vitals inspects a container at the moment its probe fails: whether a CPU limit of the
// container or its pod throttles it, whether its processes are stopped or blocked, whether it is
// frozen, or has just lost a process to the OOM killer.
//
// Throttling is a difference over the last seconds. So containers that have probes and a CPU
// limit are sampled all the time, by reading a small file of the container and one of its pod.
// Everything else is read only on request, bounded in time and rate.
package vitals
