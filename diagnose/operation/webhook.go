package operation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Webhook tells a web server of a diagnosis.
func Webhook(Host) Builtin {
	facts := webhookFacts()
	parameters := []Parameter{
		{Name: "url", Kind: String, Required: true, Max: 2048, Doc: "where to: `https://…` or `http://…`"},
		{Name: "caFile", Kind: String, Doc: "certificates (PEM) that the server is verified with; without it the system's"},
	}
	for _, f := range facts {
		f.Kind = String
		parameters = append(parameters, f)
	}
	return Builtin{
		Name: "webhook", Doc: "Sends a POST with a JSON object of what is known of the problem and its cause; an answer other than 2xx is a failure.",
		Effect: Remediate, Parameters: parameters,
		Results: []Result{{"status", "of the answer: `200 OK`"}, {"latency", "from the request to the answer"}},
		Run: func(ctx context.Context, call *Call) (Output, error) {
			body := map[string]string{}
			for _, f := range facts {
				if v := call.Parameters[f.Name]; v != "" {
					body[f.Name] = v
				}
			}
			return webhook(ctx, call.Parameters, body)
		},
	}
}

// webhookFacts are the parameters that are sent, by their names.
func webhookFacts() []Parameter {
	return []Parameter{
		{Name: "verdictReason", Doc: "the cause in a word"},
		{Name: "verdictMessage", Doc: "the cause in a sentence"},
		{Name: "node", Doc: "the node"},
		{Name: "rule", Doc: "the rule whose problem it is"},
		{Name: "reason", Doc: "the problem in a word"},
		{Name: "message", Doc: "the problem in a sentence"},
		{Name: "subject", Doc: "who was hit"},
		{Name: "condition", Doc: "the condition of the node"},
		{Name: "severity", Doc: "how bad it is"},
		{Name: "podNamespace", Doc: "namespace of the pod"},
		{Name: "podName", Doc: "the pod"},
		{Name: "podUID", Doc: "UID of the pod"},
		{Name: "container", Doc: "the container"},
		{Name: "device", Doc: "the disk"},
		{Name: "mountPoint", Doc: "where it is mounted"},
	}
}

func webhook(ctx context.Context, p Values, facts map[string]string) (Output, error) {
	u, err := url.Parse(p["url"])
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return Output{}, errors.New("url is none as https://host/path")
	}
	where := u.Scheme + "://" + u.Host // paths of webhooks are secrets
	var verify TLS
	if p["caFile"] != "" {
		if verify.CA, err = readBounded(p["caFile"], maxPEM); err != nil {
			return Output{}, fmt.Errorf("certificate authorities: %w", err)
		}
	}
	client, err := newHTTPClient(verify, false)
	if err != nil {
		return Output{}, err
	}
	defer client.CloseIdleConnections()
	body, err := json.Marshal(facts)
	if err != nil {
		return Output{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return Output{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "kernosis")
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return Output{}, fmt.Errorf("POST %s: %w", where, whyEnded(ctx, err))
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return Output{}, fmt.Errorf("POST %s: %w", where, statusError(resp))
	}
	return Output{Results: map[string]string{
		"status": strconv.Itoa(resp.StatusCode) + " " + http.StatusText(resp.StatusCode), "latency": time.Since(began).Round(10 * time.Microsecond).String(),
	}}, nil
}
