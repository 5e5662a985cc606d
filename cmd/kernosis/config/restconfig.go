package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ErrNoCluster: no API server is configured.
var ErrNoCluster = errors.New("no kubeconfig, and not in a pod of a cluster") //nolint:gochecknoglobals // a constant

// RESTConfig returns the client configuration for the API server: from node-problem-detector's
// --apiserver-override if set, from a kubeconfig, or in-cluster. The error is [ErrNoCluster] if there
// is none of these.
func RESTConfig(apiServerOverride, kubeconfig string) (*rest.Config, error) {
	o, err := parseOverride(apiServerOverride)
	if err != nil {
		return nil, fmt.Errorf("apiserver-override: %w", err)
	}
	kubeconfig = cmp.Or(o.kubeconfig, kubeconfig)
	var c *rest.Config
	switch {
	case kubeconfig != "":
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
		over := &clientcmd.ConfigOverrides{}
		over.ClusterInfo.Server = o.host
		c, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, over).ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
		}
	case !o.inCluster:
		c = &rest.Config{Host: o.host}
	default:
		c, err = rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, ErrNoCluster
		}
		if err != nil {
			return nil, fmt.Errorf("in-cluster configuration: %w", err)
		}
		c.Host = cmp.Or(o.host, c.Host)
	}
	if o.insecure {
		c.Insecure, c.CAData, c.CAFile = true, nil, ""
	}
	return c, nil
}

// CheckOverride returns an error if text is not a valid --apiserver-override; empty is valid.
func CheckOverride(text string) error {
	_, err := parseOverride(text)
	return err
}

type override struct {
	host       string // https://host:port; "": not overridden
	inCluster  bool
	kubeconfig string // auth
	insecure   bool
}

func parseOverride(text string) (override, error) {
	o := override{inCluster: true}
	if text == "" {
		return o, nil
	}
	u, err := url.Parse(text)
	var query url.Values
	if err == nil {
		query, err = url.ParseQuery(u.RawQuery)
	}
	if err != nil {
		return o, fmt.Errorf("%q is not a URL", text) // err repeats text
	}
	switch address := (url.URL{Scheme: u.Scheme, Host: u.Host}); {
	case u.User != nil || u.Opaque != "" || u.Path != "" && u.Path != "/" || strings.Contains(text, "#"),
		address != url.URL{} && (u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == ""),
		address == url.URL{} && text[0] != '?':
		return o, fmt.Errorf("%q: want http or https://host:port", text)
	default:
		o.host = address.String()
	}
	for key, values := range query {
		value := values[len(values)-1]
		truth := func(to *bool) error {
			if !slices.Contains([]string{"true", "false"}, value) {
				return fmt.Errorf("%q: %s: want true or false", text, key)
			}
			*to = value == "true"
			return nil
		}
		switch key {
		case "inClusterConfig":
			err = truth(&o.inCluster)
		case "insecure":
			err = truth(&o.insecure)
		case "auth":
			o.kubeconfig = value
		case "useServiceAccount", "apiVersion":
			err = fmt.Errorf("%q: %s is no longer supported: remove it", text, key)
		default:
			err = fmt.Errorf("%q: %s: want inClusterConfig, auth or insecure", text, key)
		}
		if err != nil {
			return o, err
		}
	}
	if !o.inCluster && o.host == "" && o.kubeconfig == "" {
		return o, fmt.Errorf("%q: with inClusterConfig=false a host or auth is required", text)
	}
	return o, nil
}
