package convert

import "strings"

// agentPort is where KubeDiag's agent serves its processors.
const agentPort = 8090

// agentPath is the prefix of those processors' paths.
const agentPath = "/processor/"

type counterpart struct {
	builtin string // the built-in's name; empty: there is no equivalent
	note    string // what is different, or what to do if there is no equivalent
}

// counterparts returns the equivalents of KubeDiag's agent's processors, by the processors' names.
func counterparts() map[string]counterpart {
	return map[string]counterpart{
		"podListCollector":             {builtin: "pod-list"},
		"podDetailCollector":           {builtin: "pod-detail"},
		"containerCollector":           {builtin: "container-detail", note: "it lists only the containers of the diagnosed pod, not all of the node"},
		"processCollector":             {builtin: "process-tree"},
		"dockerInfoCollector":          {builtin: "runtime-health", note: "it queries the node's container runtime, which need not be Docker"},
		"mountInfoCollector":           {builtin: "mounts"},
		"nodeCordon":                   {builtin: "cordon", note: "it is a repair, which the RemediationPolicy must allow"},
		"goProfiler":                   {builtin: "pprof", note: "the profile is an artifact; no web server is started"},
		"tcpdumpProfiler":              {builtin: "packet-capture", note: "the capture is an artifact of bounded length; no web server is started"},
		"coreFileProfiler":             {note: "core files are not read"},
		"elasticsearchCollector":       {note: "use httpServer to call a server that searches the logs"},
		"dockerdGoroutineCollector":    {note: "use the built-in pprof with the address of dockerd's debug endpoint"},
		"containerdGoroutineCollector": {note: "use the built-in pprof with the address of containerd's debug endpoint"},
		"statefulsetDetailCollector":   {note: "the built-in pod-detail shows one pod and its owner"},
		"statefulsetStuck":             {note: "the built-in delete-pod deletes a pod that an earlier check has found"},
		"subpathRemountDiagnoser":      {note: "the built-in mounts shows a pod's mounts"},
		"subpathRemountRecover":        {note: "the built-in delete-pod has the pod recreated with fresh mounts"},
		"sonobuoyResultDiagnoser":      {note: "results of Sonobuoy are not read"},
	}
}

// ofAgent returns the name of the processor of KubeDiag's agent that a server refers to, or "" if
// it is another server.
func (h *httpServer) ofAgent() string {
	name, ok := strings.CutPrefix(deref(h.Path), agentPath)
	if !ok || deref(h.Address) != "" || (h.Port != nil && *h.Port != agentPort) {
		return ""
	}
	return name
}

// parameterNames maps KubeDiag's names of common parameters to ours.
func parameterNames() map[string]string {
	return map[string]string{
		"node":          "node",
		"pod.namespace": "podNamespace",
		"pod.name":      "podName",
		"container":     "container",
	}
}

func deref[T any](p *T) (v T) {
	if p != nil {
		return *p
	}
	return v
}
