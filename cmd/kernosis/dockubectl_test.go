package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// docNamespaces returns the namespaces that commands of the documentation may use: those of Kernosis,
// of node-problem-detector, and of pods in examples.
func docNamespaces() []string {
	return []string{"kernosis", "$NS", "NAMESPACE", "kube-system", "shop"}
}

// docNamespacedKinds returns the Kubernetes kinds that commands of the documentation may use.
func docNamespacedKinds() []string {
	return strings.Fields("configmap daemonset deployment events job lease leases pod podmonitors pods networkpolicies resourcequotas role rolebinding secrets serviceaccount")
}

func docClusterKinds() []string {
	return strings.Fields("clusterrole clusterrolebinding clusterrolebindings namespace node nodes validatingadmissionpolicybindings")
}

// checkKubectl checks the verb and the kinds after it, and that objects of Kernosis are requested in
// their namespace.
func (p *docPrograms) checkKubectl(c *docCommand, args []string) error {
	args, namespace, err := kubectlNamespace(args)
	if err != nil || len(args) == 0 {
		return err
	}
	verb, rest := args[0], args[1:]
	if docPlaceholder.MatchString(verb) {
		return nil
	}
	switch verb {
	case "get", "describe", "delete", "patch", "label", "explain", "rollout", "logs", "exec", "top", "port-forward":
	case "apply", "auth", "create", "debug", "kustomize", "run":
		return nil
	default:
		return fmt.Errorf("kubectl %s: the documentation uses no such command", verb)
	}
	if verb == "rollout" && len(rest) > 0 {
		rest = rest[1:]
	}
	if len(rest) == 0 || strings.HasPrefix(rest[0], "-") || strings.HasPrefix(rest[0], "$") {
		if strings.HasPrefix(firstOf(rest), "$") && namespace == "" {
			return errors.New("without the namespace of the pod: -n")
		}
		return nil
	}
	if verb == "logs" || verb == "exec" {
		if !strings.Contains(rest[0], "/") { // the name of a pod
			rest[0] = "pod/" + rest[0]
		}
	}
	return p.checkObjects(c, verb, rest, namespace)
}

// kubectlNamespace removes the namespace from the arguments and returns it; "*" for all.
func kubectlNamespace(args []string) (rest []string, namespace string, err error) {
	for i := 0; i < len(args); i++ {
		name, value, set := strings.Cut(args[i], "=")
		switch {
		case name == "-A" || name == "--all-namespaces":
			namespace = "*"
		case name != "-n" && name != "--namespace":
			rest = append(rest, args[i])
		default:
			if !set && i+1 < len(args) {
				i++
				value = args[i]
			}
			if namespace = value; !slices.Contains(docNamespaces(), value) {
				return nil, "", fmt.Errorf("namespace %q, want one of %s", value, strings.Join(docNamespaces(), ", "))
			}
		}
	}
	return rest, namespace, nil
}

// checkObjects checks KIND[,KIND] [NAME] or KIND/NAME.
func (p *docPrograms) checkObjects(c *docCommand, verb string, args []string, namespace string) error {
	kinds, name, _ := strings.Cut(args[0], "/")
	if name == "" && len(args) > 1 && !strings.HasPrefix(args[1], "-") {
		name = args[1]
	}
	for kind := range strings.SplitSeq(kinds, ",") {
		if verb == "explain" {
			kind, _, _ = strings.Cut(kind, ".")
		}
		ours, found := p.kinds[kind]
		namespaced := found && ours.namespaced || slices.Contains(docNamespacedKinds(), kind)
		if !found && !namespaced && !slices.Contains(docClusterKinds(), kind) && !docPlaceholder.MatchString(kind) {
			return fmt.Errorf("kubectl knows no kind %s", kind)
		}
		if !namespaced || !c.whole || verb == "explain" {
			continue
		}
		if (found || strings.HasPrefix(name, "kernosis-")) && namespace == "" {
			return fmt.Errorf("%s is in the namespace of Kernosis: want -n or -A", kind)
		}
		if strings.HasPrefix(name, "kernosis-") && namespace != "kernosis" && namespace != "$NS" {
			return fmt.Errorf("%s %s is in the namespace of Kernosis, not in %s", kind, name, namespace)
		}
	}
	return nil
}
