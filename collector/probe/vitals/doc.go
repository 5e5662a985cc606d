// Package vitals looks at how a container is at the moment its probe fails: whether its
// CPU limit or its pod's holds it back, whether its processes are stopped or blocked,
// whether it is frozen, or has just lost a process to the OOM killer.
//
// Throttling is a difference over the last seconds, so containers that have probes and a
// CPU limit are sampled all the time, a small file of each and of its pod; everything else
// is read when it is asked for, bounded in time and rate.
package vitals
