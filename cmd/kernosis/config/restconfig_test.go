package config

import (
	"net/url"
	"strings"
	"testing"
	"unicode"
)

// No part of an override is ignored: it is in the result, or an error.
func FuzzParseOverride(f *testing.F) {
	for _, text := range []string{
		"", "http://10.0.0.1:8080?inClusterConfig=false", "https://api:6443/?inClusterConfig=false&insecure=true&auth=/etc/kube%20config", "?auth=/etc/kubeconfig",
		"http://api?inClusterConfig=false;auth=/x", "?insecure=%zz", "https://api#?insecure=true", "https://:443", "https://u@api", "https://[fe80::1%25eth0]:1", "?auth=a&auth=b", "https:api",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := parseOverride(text)
		if err != nil || text == "" || strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) {
			return
		}
		want := url.Values{"inClusterConfig": {"true"}, "insecure": {"false"}, "auth": {""}}
		if !o.inCluster {
			want.Set("inClusterConfig", "false")
		}
		if o.insecure {
			want.Set("insecure", "true")
		}
		want.Set("auth", o.kubeconfig)
		host, query, _ := strings.Cut(text, "?")
		for pair := range strings.SplitSeq(query, "&") {
			key, value, _ := strings.Cut(pair, "=")
			key, keyErr := url.QueryUnescape(key)
			value, valueErr := url.QueryUnescape(value)
			if pair != "" && (keyErr != nil || valueErr != nil || !want.Has(key) || strings.Count(query, key) == 1 && want.Get(key) != value) {
				t.Errorf("%q is %+v, without %q", text, o, pair)
			}
		}
		given, err := url.Parse(strings.TrimSuffix(host, "/"))
		if u, again := url.Parse(o.host); err != nil || again != nil || o.host != "" && u.Hostname() == "" || *given != *u {
			t.Errorf("%q is %+v, %v, %v", text, o, err, again)
		}
	})
}
