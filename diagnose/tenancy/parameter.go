package tenancy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/kernosis/kernosis/diagnose/operation"
)

// Parameters returns the parameters of a tenant's Diagnosis: those that it gives, and the pod's own
// for names that select the target. It returns [Refusals] if the Diagnosis gives a parameter that a
// tenant must not, or a different value for one of the pod's own.
func Parameters(given map[string]string, pod Pod) (map[string]string, error) {
	var r Refusals
	out := own(pod)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		switch have, owned := out[name]; {
		case value == "": // same as not given
		case free(name):
			out[name] = value
		case owned && value == have, name == "address" && hasAddress(pod, value):
			out[name] = value
		case owned:
			r.add("parameter %s can't be %s: want the pod's own, %s", shown(name), shown(value), shown(have))
		default:
			r.add("parameter %s can't be given outside the system namespace", shown(name))
		}
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	maps.DeleteFunc(out, func(_, value string) bool { return value == "" })
	return out, nil
}

// own returns the parameters that identify a pod. An empty one has no value.
func own(pod Pod) map[string]string {
	out := map[string]string{
		"podUID": pod.UID, "podNamespace": pod.Namespace, "podName": pod.Name, "node": pod.Node,
		"container": pod.Container, "containerID": pod.ContainerID,
		// If the pod has no address, use an unassigned one. Without an address, an operation would
		// take one from the pod's network namespace, where its user may set any address.
		"address": netip.IPv4Unspecified().String(),
	}
	if len(pod.Addresses) > 0 {
		out["address"] = pod.Addresses[0].String()
	}
	return out
}

func hasAddress(pod Pod, text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && slices.Contains(pod.Addresses, a)
}

// free reports whether a tenant may set a parameter: those that define how the target is examined,
// but not which target. It is an allow list, so that new parameters are refused.
func free(name string) bool {
	switch name {
	case "window", "timeout", "port", "protocol", "path", "host", "headers", "service":
		return true
	case "rule", "reason", "message", "condition", "severity": // describes why it was created
		return true
	}
	return false
}

// confined returns the values of a call as restricted for a tenant. given are the Diagnosis' own
// parameters, from [Parameters].
func confined(b *operation.Builtin, values operation.Values, given map[string]string) operation.Values {
	out := make(operation.Values, len(values))
	for i := range b.Parameters {
		p := &b.Parameters[i]
		value := values[p.Name]
		if !free(p.Name) {
			value = cmp.Or(given[p.Name], p.Default)
		}
		if value != "" {
			out[p.Name] = value
		}
	}
	return out
}
