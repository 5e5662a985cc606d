// Package unhealthy asks the API server for kubelet's Events about the probes of one pod.
//
// It asks when a probe has failed and nothing else says why, pod by pod: a watch of Events
// would bring each agent those of all nodes, which is more than a big cluster's API server
// can give to all agents.
package unhealthy
