package remote

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/operationtest"
)

// httpServer is an operation that calls a test server.
type httpServer struct {
	v1alpha1.HTTPServer
	TLS TLS
}

func (h *httpServer) Run(ctx context.Context, call *operation.Call) (operation.Output, error) {
	return CallServer(ctx, &h.HTTPServer, h.TLS, call)
}

// serverOf returns the operation that calls a test server.
func serverOf(t *testing.T, address string) *httpServer {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return &httpServer{HTTPServer: v1alpha1.HTTPServer{Address: host, Port: int32(n), Path: "/processor/x"}}
}

func serve(t *testing.T, handle http.HandlerFunc) *httpServer {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return serverOf(t, s.Listener.Addr().String())
}

func TestHTTPServer(t *testing.T) {
	h := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || r.URL.Path != "/processor/x" || r.URL.RawQuery != "a=b%20c" ||
			r.Header.Get("Content-Type") != "application/json" || string(body) != `{"pid":"7","text":"a\"\nä\u003c"}` {
			t.Errorf("%s %s %s %s", r.Method, r.URL, r.Header, body)
		}
		fmt.Fprint(w, `{"a.b-c/d":"one\ntwo\t\u001b[0m","empty":""}`)
	})
	h.Path += "?a=b%20c"
	call, _, _ := operationtest.NewCall(operation.Values{"pid": "7", "text": "a\"\nä<"})
	out, err := h.Run(t.Context(), call)
	if err != nil || out.Truncated || !maps.Equal(out.Results, map[string]string{"a.b-c/d": "one\ntwo\t\\x1b[0m", "empty": ""}) {
		t.Errorf("%+v, %v", out, err)
	}
	h = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); string(body) != "{}" {
			t.Errorf("%s", body)
		}
		fmt.Fprint(w, " {} \n")
	})
	if out, err := h.Run(t.Context(), &operation.Call{}); err != nil || len(out.Results) != 0 {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestHTTPServerRefusesAnswers(t *testing.T) {
	var keys strings.Builder
	for i := range operation.MaxKeys + 1 {
		fmt.Fprintf(&keys, `,"k%d":""`, i)
	}
	for _, tt := range []struct{ name, answer, want string }{
		{"empty", "", `want a JSON object, got ""`},
		{"text", "<html>\x1b</html>", `want a JSON object, got "<html>\x1b</html>"`},
		{"long text", strings.Repeat("x", 300), `want a JSON object, got "` + strings.Repeat("x", 80) + `…"`},
		{"list", `["a"]`, `want a JSON object, got "["a"]"`},
		{"null", `null`, `want a JSON object, got "null"`},
		{"number", `{"a":"b","n":7}`, "value of n is a number, want a string"},
		{"null value", `{"n":null}`, "value of n is null, want a string"},
		{"boolean", `{"n":true}`, "value of n is true or false, want a string"},
		{"object", `{"n":{"a":"b"}}`, "value of n is an object, want a string"},
		{"nested", `{"n":` + strings.Repeat("[", 100000), "value of n is a list, want a string"},
		{"twice", `{"a":"b","a":"c"}`, "key a is duplicated"},
		{"twice escaped", `{"a":"b","\u0061":"c"}`, "key a is duplicated"},
		{"key", `{"a\nb":"c"}`, `key "a\nb" contains characters other than letters, digits and ._-/`},
		{"no key", `{"":"c"}`, "a key is empty"},
		{"long key", `{"` + strings.Repeat("k", 200) + `":""}`, `key "` + strings.Repeat("k", 80) + `…" has 200 bytes, at most 128`},
		{"many keys", "{" + keys.String()[1:] + "}", "more than 64 keys"},
		{"cut", `{"a":"b`, "JSON is truncated"},
		{"cut after", `{"a":"b"`, "JSON is truncated"},
		{"comma", `{"a":"b",}`, "invalid JSON: "},
		{"key is a number", `{1:"b"}`, "invalid JSON: "},
		{"more", `{"a":"b"}{}`, "unexpected data after the JSON object"},
		{"rubbish", `{"a":"b"} x`, "unexpected data after the JSON object"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, tt.answer) })
			_, err := h.Run(t.Context(), &operation.Call{})
			want := fmt.Sprintf("POST http://%s:%d/processor/x: answer: %s", h.Address, h.Port, tt.want)
			if err == nil || !strings.HasPrefix(err.Error(), want) || len(err.Error()) > 500 || !operationtest.OutcomeUnknown(err) {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}

func TestHTTPServerStatus(t *testing.T) {
	for _, tt := range []struct {
		status      int
		to, body, w string
	}{
		{500, "", "  no such \x1b pod \n", `status 500 Internal Server Error: no such \x1b pod`},
		{404, "", strings.Repeat("x", 10000), "status 404 Not Found: " + strings.Repeat("x", 256) + "…"},
		{201, "", "{}", "status 201 Created: {}"},
		{204, "", "", "status 204 No Content"},
		{302, "http://169.254.169.254/", "", `status 302 Found, redirected to "http://169.254.169.254/": redirects are not followed`},
		{307, "/processor/x", "", `status 307 Temporary Redirect, redirected to "/processor/x": redirects are not followed`},
		{401, "", "", "status 401 Unauthorized"},
	} {
		asked := 0
		h := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			asked++
			if tt.to != "" {
				w.Header().Set("Location", tt.to)
			}
			w.WriteHeader(tt.status)
			fmt.Fprint(w, tt.body)
		})
		_, err := h.Run(t.Context(), &operation.Call{})
		if err == nil || !strings.HasSuffix(err.Error(), "/processor/x: "+tt.w) || asked != 1 || operationtest.OutcomeUnknown(err) {
			t.Errorf("%v, want %s; asked %d times", err, tt.w, asked)
		}
	}
}

// TestHTTPServerLongAnswer: an answer that doesn't fit into results becomes an artifact.
func TestHTTPServerLongAnswer(t *testing.T) {
	answer := `{"a":"` + strings.Repeat("ä", 4000) + `","b":"short"}`
	h := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) })
	call, kept, _ := operationtest.NewCall(nil)
	out, err := h.Run(t.Context(), call)
	if err != nil || !out.Truncated || len(out.Results["a"]) > operation.MaxResult || out.Results["b"] != "short" || kept.Files["answer.json"] != answer {
		t.Errorf("%d bytes, %v", len(out.Results["a"]), err)
	}
	call, kept, log := operationtest.NewCall(nil)
	kept.Err = operation.ErrArtifactBudget
	if out, err := h.Run(t.Context(), call); err != nil || !out.Truncated || !strings.Contains(log.String(), "artifact is incomplete") {
		t.Errorf("%v, %s", err, log)
	}
	kept.Err = errors.New("no disk")
	if _, err := h.Run(t.Context(), call); err == nil || err.Error() != "artifact answer.json: no disk" || !operationtest.OutcomeUnknown(err) {
		t.Error(err)
	}
}

func TestHTTPServerBoundsAnswers(t *testing.T) {
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	for range 64 {
		_, _ = zip.Write(make([]byte, 1<<20))
	}
	_ = zip.Close()
	flood := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	}
	for _, tt := range []struct {
		name   string
		handle http.HandlerFunc
		want   string
	}{
		{"endless", flood, "answer of more than 1048576 bytes"},
		{"declared", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "99999999999")
			flood(w, r)
		}, "answer of 99999999999 bytes, at most 1048576"},
		{"gzip bomb", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept-Encoding") != "" {
				t.Errorf("asks for %s", r.Header.Get("Accept-Encoding"))
			}
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		}, `answer is encoded as "gzip", which was not requested`},
		{"gzip bomb without saying so", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bomb.Bytes()) }, `answer: want a JSON object, got "\x1f\x8b`},
		{"header", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 100<<10)) }, "net/http: server response headers exceeded 65536 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := serve(t, tt.handle).Run(t.Context(), &operation.Call{})
			if err == nil || !strings.Contains(err.Error(), tt.want) || !operationtest.OutcomeUnknown(err) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

// TestLostAnswers: once a server may have the request, an error does not mean that it did nothing.
func TestLostAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		answer string // before the connection ends
		linger int    // 0: it is reset
		want   string
	}{
		"closed":          {"", -1, "EOF"},
		"reset":           {"", 0, "connection reset by peer"},
		"cut in the head": {"HTTP/1.1 200 OK\r\nServer: x\r\n", -1, "unexpected EOF"},
		"rubbish":         {"SSH-2.0-x\r\n", -1, "malformed HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			h := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				c, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.(*net.TCPConn).SetLinger(tt.linger)
				_, _ = io.WriteString(c, tt.answer)
				_ = c.Close()
			})
			_, err := h.Run(t.Context(), &operation.Call{})
			if err == nil || !strings.Contains(err.Error(), tt.want) || !operationtest.OutcomeUnknown(err) {
				t.Errorf("httpServer: %v", err)
			}
			url := fmt.Sprintf("http://%s:%d/", h.Address, h.Port)
			if _, _, err := operationtest.Perform(t, Webhook(operation.Host{}), map[string]string{"url": url}); err == nil || !operationtest.OutcomeUnknown(err) {
				t.Errorf("webhook: %v", err)
			}
		})
	}
	t.Run("cut in the body", func(t *testing.T) {
		h := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		})
		if _, err := h.Run(t.Context(), &operation.Call{}); !errors.Is(err, io.ErrUnexpectedEOF) || !operationtest.OutcomeUnknown(err) {
			t.Error(err)
		}
	})
	t.Run("nothing was sent", func(t *testing.T) {
		s := httptest.NewServer(http.NotFoundHandler())
		s.Close()
		if _, err := serverOf(t, s.Listener.Addr().String()).Run(t.Context(), &operation.Call{}); !errors.Is(err, unix.ECONNREFUSED) || operationtest.OutcomeUnknown(err) {
			t.Error(err)
		}
	})
}

// TestHTTPServerSlowAnswers: a server that answers a byte at a time, or never, is waited for until
// the timeout.
func TestHTTPServerSlowAnswers(t *testing.T) {
	for name, first := range map[string]string{
		"nothing": "", "status": "HTTP/1.1 200 OK\r\n", "body": "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{",
		"chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				c, err := ln.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
					return
				}
				_, _ = io.WriteString(c, first)
				drip := time.NewTicker(20 * time.Millisecond)
				defer drip.Stop()
				for first != "" {
					<-drip.C
					b := "X-A: b\r\n"
					if name == "body" {
						b = " "
					} else if name == "chunks" {
						b = "1\r\n \r\n"
					}
					if _, err := io.WriteString(c, b); err != nil {
						break
					}
				}
				_, _ = io.Copy(io.Discard, c)
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err = serverOf(t, ln.Addr().String()).Run(ctx, &operation.Call{})
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no complete answer in time") || time.Since(began) > operationtest.Longest/2 {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			_ = ln.Close()
			<-done
		})
	}
}

func TestHTTPServerAsksNoProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	h := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })
	// Go never uses a proxy for loopback addresses, so check the setting, too.
	client, err := newHTTPClient(TLS{})
	if err != nil || client.Transport.(*http.Transport).Proxy != nil {
		t.Errorf("a proxy is asked; %v", err)
	}
	if _, err := h.Run(t.Context(), &operation.Call{}); err != nil {
		t.Error(err)
	}
}

func TestHTTPServerURL(t *testing.T) {
	for _, tt := range []struct {
		h    v1alpha1.HTTPServer
		want string
	}{
		{v1alpha1.HTTPServer{Address: "10.0.0.1", Port: 80}, "http://10.0.0.1:80/"},
		{v1alpha1.HTTPServer{Scheme: "https", Address: "fd00::1", Port: 1, Path: "/a?b=c"}, "https://[fd00::1]:1/a?b=c"},
		{v1alpha1.HTTPServer{Address: "Svc.ns.svc.", Port: 80, Path: "//evil.example/x"}, "http://Svc.ns.svc.:80//evil.example/x"},
		{v1alpha1.HTTPServer{Address: "a"}, "http://a:80/"},
		{v1alpha1.HTTPServer{Scheme: "https", Address: "a"}, "https://a:443/"},
		{v1alpha1.HTTPServer{Address: "a", ServerName: "b"}, "httpServer: certificates and server name require the scheme https"},
		{v1alpha1.HTTPServer{Scheme: "file", Address: "a b", Path: "x", Port: -1}, `httpServer: scheme "file": want http or https; ` +
			`address "a b": want an IP address or a DNS name; port -1: want 1 to 65535; path "x": want a path such as /a/b`},
		{v1alpha1.HTTPServer{Address: "a:80@evil", Port: 80}, `httpServer: address "a:80@evil": want an IP address or a DNS name`},
		{v1alpha1.HTTPServer{Port: 80}, "http://127.0.0.1:80/"},
		{v1alpha1.HTTPServer{Address: "a", Port: 65536, Path: "/a\r\nX: y"}, `httpServer: port 65536: want 1 to 65535; path "/a\r\nX: y": want a path such as /a/b`},
		{v1alpha1.HTTPServer{Address: "a", Port: 80, Path: "http://b/"}, `httpServer: path "http://b/": want a path such as /a/b`},
		{v1alpha1.HTTPServer{Address: "a", Port: 80, Path: "/a#b"}, `httpServer: path "/a#b": want a path such as /a/b`},
		{v1alpha1.HTTPServer{Address: "169.254.169.254", Port: 80}, "httpServer: address: 169.254.169.254 is link-local, like cloud metadata services"},
		{v1alpha1.HTTPServer{Address: "0.0.0.0", Port: 80}, "httpServer: address: 0.0.0.0 is not the address of a host"},
	} {
		var got string
		if u, err := ServerURL(&tt.h); err != nil {
			got = err.Error()
		} else {
			got = u.String()
		}
		if got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestRefusedAddresses(t *testing.T) {
	for _, a := range []string{
		"169.254.169.254", "169.254.0.1", "fe80::1%eth0", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "fd00:ec2::254", "100.100.100.200",
		"192.0.0.192", "168.63.129.16", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255",
	} {
		if refusedAddress(netip.MustParseAddr(a), false) == "" {
			t.Errorf("%s is not refused", a)
		}
	}
	for _, a := range []string{"127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "fd00::1", "8.8.8.8", "64:ff9b::808:808"} {
		if why := refusedAddress(netip.MustParseAddr(a), false); why != "" {
			t.Error(why)
		}
	}
	// The address of a name is checked when it is connected to.
	d := guardedDialer(false)
	if c, err := d.DialContext(t.Context(), "tcp", "169.254.169.254:80"); err == nil || !strings.Contains(err.Error(), "refused: 169.254.169.254 is link-local") {
		t.Errorf("%v, %v", c, err)
	}
}

func FuzzParseAnswer(f *testing.F) {
	for _, s := range []string{"", "{}", `{"a":"b"}`, `{"a":"b","a":"c"}`, `{"a":1}`, `{"a":[`, `{"a":"b"}x`, `{"a" "b"}`, "{\"a\":\"\\ud800\xff\"}", `{1:2}`, `{"a":"b",}`, `{,}`, `{]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		results, err := parseAnswer(b)
		if err != nil {
			if len(err.Error()) > 700 || strings.ContainsAny(err.Error(), "\n\x00\x1b") {
				t.Errorf("%q", err)
			}
			return
		}
		out := operation.Output{Results: results}
		out.Bound()
		for k, v := range out.Results {
			if operation.KeyProblem(k) != "" || len(v) > operation.MaxResult || strings.ContainsAny(v, "\x00\x1b\r") {
				t.Errorf("%q: %q", k, v)
			}
		}
	})
}
