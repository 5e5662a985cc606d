package podspec

import (
	"errors"
	"net/netip"
	"slices"

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
)

// Pod returns the parts of a pod that are needed to probe it. It shares only strings and labels
// with p. The error joins an [*Error] for each part that can't be used; if the pod itself can't
// be used, the returned pod is nil.
func Pod(p *corev1.Pod) (*probe.Pod, error) {
	at := place{namespace: p.Namespace, name: p.Name}
	if err := names(p, at); err != nil {
		return nil, err
	}
	pod := &probe.Pod{
		UID:         UID(&p.ObjectMeta),
		Namespace:   p.Namespace,
		Name:        p.Name,
		Labels:      p.Labels,
		HostNetwork: p.Spec.HostNetwork,
		Terminated:  p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Deleting:    p.DeletionTimestamp != nil,
	}
	var errs []error
	if err := addresses(pod, p, at); err != nil {
		errs = append(errs, err)
	}
	if err := containers(pod, p, at); err != nil {
		errs = append(errs, err)
	}
	return pod, errors.Join(errs...)
}

func names(p *corev1.Pod, at place) error {
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
func addresses(pod *probe.Pod, p *corev1.Pod, at place) error {
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
