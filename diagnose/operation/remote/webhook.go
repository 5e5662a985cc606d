package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func Webhook(operation.Host) operation.Builtin {
	facts := webhookFacts()
	parameters := []operation.Parameter{
		{Name: "url", Kind: operation.String, Required: true, Max: 2048, Doc: "https://… or http://…"},
		{Name: "caFile", Kind: operation.String, Doc: "CA certificates (PEM) to verify the server; none: the system's"},
	}
	for _, f := range facts {
		f.Kind = operation.String
		parameters = append(parameters, f)
	}
	return operation.Builtin{
		Name: "webhook", Doc: "Sends the known facts about the problem and its cause as a JSON object in a POST. An answer other than 2xx is a failure.",
		Effect: operation.Remediate, Parameters: parameters,
		Results: []operation.Result{{Name: "status", Doc: "status of the answer: 200 OK"}, {Name: "latency", Doc: "time from request to answer"}},
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
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

// webhookFacts returns the parameters that are sent.
func webhookFacts() []operation.Parameter {
	return []operation.Parameter{
		{Name: "verdictReason", Doc: "the cause in a word"},
		{Name: "verdictMessage", Doc: "the cause in a sentence"},
		{Name: "node", Doc: "the node"},
		{Name: "rule", Doc: "rule of the problem"},
		{Name: "reason", Doc: "the problem in a word"},
		{Name: "message", Doc: "the problem in a sentence"},
		{Name: "subject", Doc: "what was affected"},
		{Name: "condition", Doc: "condition of the node"},
		{Name: "severity", Doc: "severity"},
		{Name: "podNamespace", Doc: "namespace of the pod"},
		{Name: "podName", Doc: "the pod"},
		{Name: "podUID", Doc: "UID of the pod"},
		{Name: "container", Doc: "the container"},
		{Name: "device", Doc: "the disk"},
		{Name: "mountPoint", Doc: "mount point"},
	}
}

func webhook(ctx context.Context, p operation.Values, facts map[string]string) (operation.Output, error) {
	u, err := url.Parse(p["url"])
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return operation.Output{}, errors.New("url: want a URL such as https://host/path")
	}
	where := u.Scheme + "://" + u.Host // the path of a webhook is a secret
	var verify TLS
	if p["caFile"] != "" {
		if verify.CA, err = document.ReadFile(p["caFile"], maxPEM); err != nil {
			return operation.Output{}, fmt.Errorf("certificate authorities: %w", err)
		}
	}
	client, err := newHTTPClient(verify)
	if err != nil {
		return operation.Output{}, err
	}
	defer client.CloseIdleConnections()
	began := time.Now()
	resp, err := post(ctx, client, u, facts)
	if err != nil {
		return operation.Output{}, fmt.Errorf("POST %s: %w", where, WhyEnded(ctx, err))
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return operation.Output{}, fmt.Errorf("POST %s: %w", where, statusError(resp))
	}
	return operation.Output{Results: map[string]string{
		"status": strconv.Itoa(resp.StatusCode) + " " + http.StatusText(resp.StatusCode), "latency": time.Since(began).Round(10 * time.Microsecond).String(),
	}}, nil
}
