package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// maxAnswer bounds the body of a response, in bytes.
const maxAnswer = 1 << 20

// ServerURL returns the URL of a web server, or an error with all that is wrong with it.
func ServerURL(p *v1alpha1.HTTPServer) (*url.URL, error) {
	var wrong []string
	scheme, address, port := cmp.Or(p.Scheme, "http"), cmp.Or(p.Address, "127.0.0.1"), int(p.Port)
	if scheme != "http" && scheme != "https" {
		wrong = append(wrong, "scheme "+operation.Quoted(p.Scheme)+": want http or https")
	}
	if ip, err := netip.ParseAddr(address); err == nil {
		if why := refusedAddress(ip, false); why != "" {
			wrong = append(wrong, "address: "+why)
		}
	} else if len(validation.IsDNS1123Subdomain(strings.ToLower(strings.TrimSuffix(address, ".")))) > 0 {
		wrong = append(wrong, "address "+operation.Quoted(address)+": want an IP address or a DNS name")
	}
	switch {
	case port == 0 && scheme == "https":
		port = 443
	case port == 0:
		port = 80
	case port < 0 || port > 65535:
		wrong = append(wrong, fmt.Sprintf("port %d: want 1 to 65535", port))
	}
	if scheme != "https" && (len(p.CABundle) > 0 || p.ServerName != "" || p.ClientCertificateSecret != nil) {
		wrong = append(wrong, "certificates and server name require the scheme https")
	}
	path := cmp.Or(p.Path, "/")
	u, err := url.ParseRequestURI(path)
	if err != nil || path[0] != '/' || strings.Contains(path, "#") || len(path) > operation.MaxText {
		wrong = append(wrong, "path "+operation.Quoted(p.Path)+": want a path such as /a/b")
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("httpServer: %s", strings.Join(wrong, "; "))
	}
	u.Scheme, u.Host = scheme, net.JoinHostPort(address, strconv.Itoa(port))
	return u, nil
}

// CallServer calls a web server once: it sends a POST with [Call.Parameters] as a JSON object of
// strings; the server answers 200 with another such object, the results. Any other status is a
// failure. If the answer is too long, the results are cut, and the artifact answer.json has all of it.
// Without a valid answer to a request that was sent, the error is an [operation.OutcomeUnknown].
func CallServer(ctx context.Context, p *v1alpha1.HTTPServer, t TLS, call *operation.Call) (operation.Output, error) {
	u, err := ServerURL(p)
	if err != nil {
		return operation.Output{}, err
	}
	answer, err := askServer(ctx, u, t, call.Parameters)
	if err != nil {
		return operation.Output{}, fmt.Errorf("POST %s: %w", u.Redacted(), WhyEnded(ctx, err))
	}
	results, err := parseAnswer(answer)
	if err != nil {
		return operation.Output{}, fmt.Errorf("POST %s: answer: %w", u.Redacted(), &operation.OutcomeUnknown{Err: err})
	}
	out := operation.Output{Results: results}
	if out.Bound(); out.Truncated {
		if err := writeArtifact(call, "answer.json", answer); err != nil {
			return operation.Output{}, &operation.OutcomeUnknown{Err: err}
		}
	}
	return out, nil
}

func askServer(ctx context.Context, u *url.URL, t TLS, parameters operation.Values) ([]byte, error) {
	client, err := newHTTPClient(t)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	resp, err := post(ctx, client, u, parameters)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, statusError(resp)
	}
	answer, err := readAnswer(resp, maxAnswer)
	if err != nil {
		return nil, &operation.OutcomeUnknown{Err: err}
	}
	return answer, nil
}

// parseAnswer parses a JSON object of strings without duplicate keys.
func parseAnswer(b []byte) (map[string]string, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("want a JSON object, got %s", operation.Quoted(string(b[:min(len(b), operation.MaxQuoted+1)])))
	}
	results := map[string]string{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, brokenJSON(err)
		}
		key := t.(string) // the decoder returns nothing else for a key
		if problem := operation.KeyProblem(key); problem != "" {
			return nil, errors.New(problem)
		}
		if _, twice := results[key]; twice {
			return nil, fmt.Errorf("key %s is duplicated", key)
		}
		if len(results) == operation.MaxKeys {
			return nil, fmt.Errorf("more than %d keys", operation.MaxKeys)
		}
		value, err := d.Token()
		if err != nil {
			return nil, brokenJSON(err)
		}
		text, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("value of %s is %s, want a string", key, jsonKind(value))
		}
		results[key] = display.SafeLines(text)
	}
	if _, err := d.Token(); err != nil {
		return nil, brokenJSON(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected data after the JSON object")
	}
	return results, nil
}

func brokenJSON(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("JSON is truncated")
	}
	return fmt.Errorf("invalid JSON: %w", err)
}

func jsonKind(t json.Token) string {
	switch t {
	case json.Delim('{'):
		return "an object"
	case json.Delim('['):
		return "a list"
	case nil:
		return "null"
	}
	if _, ok := t.(bool); ok {
		return "true or false"
	}
	return "a number"
}

// writeArtifact writes content to an artifact. Beyond the disk budget it logs that and returns no
// error: the results matter more than the artifact.
func writeArtifact(c *operation.Call, name string, content []byte) error {
	w, err := c.Artifacts.Create(name)
	if err == nil {
		_, err = w.Write(content)
		err = errors.Join(err, w.Close())
	}
	if errors.Is(err, operation.ErrArtifactBudget) {
		c.Log.Warn("artifact is incomplete", "artifact", name, "bytes", len(content), "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("artifact %s: %w", name, err)
	}
	return nil
}
