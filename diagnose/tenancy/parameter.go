package tenancy

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/kernosis/kernosis/diagnose/operation"
)

// Parameters returns those of a tenant's Diagnosis: what it gives, and in the names that
// say what is looked at, the pod's own. It is [Refusals] where it gives a name that a
// tenant must not, or one of the pod's own with another value.
func Parameters(given map[string]string, pod Pod) (map[string]string, error) {
	var r Refusals
	out := own(pod)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		switch have, owned := out[name]; {
		case value == "": // as none
		case free(name):
			out[name] = value
		case owned && value == have, name == "address" && hasAddress(pod, value):
			out[name] = value
		case owned:
			r.add("parameter %s can't be %s: it is the pod's own, %s", shown(name), shown(value), shown(have))
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

// own are the parameters by which a pod is named. One that is empty has no value.
func own(pod Pod) map[string]string {
	out := map[string]string{
		"podUID": pod.UID, "podNamespace": pod.Namespace, "podName": pod.Name, "node": pod.Node,
		"container": pod.Container, "containerID": pod.ContainerID,
		// Where the pod has none, an address that nothing has: without one an operation would
		// take what the pod's own network namespace says, and there its user may set any.
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

// free reports whether a tenant may give a parameter: it says how something is looked at,
// not what. All others are refused, so that one that is new is too.
func free(name string) bool {
	switch name {
	case "window", "timeout", "port", "protocol", "path", "host", "headers", "service":
		return true
	case "rule", "reason", "message", "condition", "severity": // what it was made for, in words
		return true
	}
	return false
}

// confined returns the values of a call as they may be for a tenant. given is what the
// Diagnosis' own parameters are, by [Parameters].
func confined(b *operation.Builtin, values operation.Values, given map[string]string) operation.Values {
	out := make(operation.Values, len(values))
	for i := range b.Parameters {
		p := &b.Parameters[i]
		value := values[p.Name]
		if !free(p.Name) {
			value = given[p.Name]
			if value == "" {
				value = p.Default
			}
		}
		if value != "" {
			out[p.Name] = value
		}
	}
	return out
}
