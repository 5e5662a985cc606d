package pods

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/probe"
)

// Bounds of one pod.
const (
	maxUID        = 128
	maxContainers = 100
	maxAddresses  = 8 // dual stack has two
	maxShown      = 200
)

// Convert returns the parts of a pod that are needed to probe it. It shares only strings and labels
// with p. The error joins a [*FieldError] for each part that can't be used; if the pod itself can't
// be used, the returned pod is nil.
func Convert(p *corev1.Pod) (*probe.Pod, error) {
	at := FieldError{Namespace: p.Namespace, Name: p.Name}
	if err := names(p, at); err != nil {
		return nil, err
	}
	pod := &probe.Pod{
		UID:        UID(&p.ObjectMeta),
		Namespace:  p.Namespace,
		Name:       p.Name,
		Labels:     p.Labels,
		Terminated: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Deleting:   p.DeletionTimestamp != nil,
	}
	return pod, errors.Join(addresses(pod, p, at), containers(pod, p, at))
}

func names(p *corev1.Pod, at FieldError) error {
	id := UID(&p.ObjectMeta)
	switch {
	case id == "":
		return at.wrong("metadata.uid", "missing")
	case len(id) > maxUID || display.Safe(id, maxUID) != id:
		return at.wrong("metadata.uid", "%s is not a UID", quoted(id))
	}
	if why := validation.IsDNS1123Label(p.Namespace); len(why) > 0 {
		return at.wrong("metadata.namespace", "%s: %s", quoted(p.Namespace), why[0])
	}
	if why := validation.IsDNS1123Subdomain(p.Name); len(why) > 0 {
		return at.wrong("metadata.name", "%s: %s", quoted(p.Name), why[0])
	}
	return nil
}

// addresses sets the pod's addresses in their order: the first one is probed. A pod with
// HostNetwork may arrive before kubelet has given it the node's address.
func addresses(pod *probe.Pod, p *corev1.Pod, at FieldError) error {
	texts, field := []string{}, "status.podIPs"
	if p.Status.PodIP != "" {
		texts = append(texts, p.Status.PodIP)
	}
	for _, ip := range p.Status.PodIPs {
		texts = append(texts, ip.IP)
	}
	if len(texts) == 0 && p.Spec.HostNetwork {
		field = "status.hostIPs"
		if p.Status.HostIP != "" {
			texts = append(texts, p.Status.HostIP)
		}
		for _, ip := range p.Status.HostIPs {
			texts = append(texts, ip.IP)
		}
	}
	if len(texts) > maxAddresses+1 {
		return at.wrong(field, "%d addresses, at most %d are used", len(texts), maxAddresses)
	}
	var errs []error
	for _, text := range texts {
		ip, err := netip.ParseAddr(text)
		if err != nil || ip.Zone() != "" {
			errs = append(errs, at.wrong(field, "%s is not an IP address", quoted(text)))
			continue
		}
		if ip = ip.Unmap(); !slices.Contains(pod.Addresses, ip) {
			pod.Addresses = append(pod.Addresses, ip)
		}
	}
	return errors.Join(errs...)
}

// FieldError is an error in one field of a pod.
type FieldError struct {
	Namespace, Name string
	Container       string // empty: the error concerns the pod itself
	Probe           string // startup, liveness or readiness; empty: it concerns the container itself
	Field           string // relative to pod, container or probe: "httpGet.port"
	// Path is the field's place in the object, "spec.containers[0].livenessProbe.httpGet.port".
	Path string
	Msg  string
}

// Error returns "pod shop/web-0: container web: liveness probe: httpGet.port: …".
func (e *FieldError) Error() string {
	text := "pod " + display.Safe(e.Namespace+"/"+e.Name, maxShown)
	if e.Container != "" {
		text += ": container " + display.Safe(e.Container, maxShown)
	}
	if e.Probe != "" {
		text += ": " + e.Probe + " probe"
	}
	if e.Field != "" {
		text += ": " + e.Field
	}
	return text + ": " + e.Msg
}

// wrong returns an error in a field of the pod, container or probe that e is about.
func (e *FieldError) wrong(field, format string, args ...any) *FieldError {
	out := *e
	out.Field, out.Path = field, strings.Trim(e.Path+"."+field, ".")
	out.Msg = fmt.Sprintf(format, args...)
	return &out
}

// quoted quotes a text of a pod for an error.
func quoted(s string) string { return `"` + display.Safe(s, maxShown) + `"` }
